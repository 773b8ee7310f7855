//! Tapes into other tapes: cut, filter, scale, anonymize, and merge by wall clock.
//!
//! [`Edit`] decides about one request at a time and holds no state, so a tape of any length is
//! edited in the memory of a block. [`Merged`] brings several tapes onto one clock first.

mod merge;

pub use merge::{MergeError, Merged};

use std::ops::Range;

use crate::request::{Op, Process, Request};
use crate::tape::{DeviceExtent, Header};

/// Offsets of an anonymized tape are moved by a multiple of this, which keeps every alignment that
/// a device may ask for.
const SHIFT_BYTES: u64 = 1 << 20;

/// What is kept of a tape, and what becomes of it. The default keeps everything as it is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Edit {
    /// Keeps requests whose time lies in here, in nanoseconds since the first anchor. Times stay
    /// what they are.
    pub times_ns: Option<Range<u64>>,
    /// Keeps these operations.
    pub ops: Option<Vec<Op>>,
    /// Keeps requests of devices of these names.
    pub devices: Option<Vec<String>>,
    /// Keeps requests of these processes.
    pub processes: Option<Vec<ProcessFilter>>,
    /// Keeps requests that touch a byte in here. A flush touches none.
    pub offsets_bytes: Option<Range<u64>>,
    /// Divides every time, so that a tape at speed 2 lasts half as long. Latencies stay.
    pub speed: Option<f64>,
    /// Removes the names of the host, of processes, control groups and files, and moves each
    /// device's requests towards its start by as many whole MiB as lie before the first of them.
    pub anonymize: bool,
    /// Removes the names of control groups and files. The numbers of files go with them: who
    /// guesses a name could prove it by its number.
    pub strip_names: bool,
}

/// Which processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProcessFilter {
    /// The one with this id.
    Pid(u32),
    /// Those with this name.
    Name(String),
}

impl Edit {
    /// The request as it is to be, or `None` if it is to be left out. `device` is the name of its
    /// device, `extent` what that device's requests span in the whole tape.
    pub fn apply(
        &self,
        mut request: Request,
        device: &str,
        extent: Option<&DeviceExtent>,
    ) -> Option<Request> {
        if !self.keeps(&request, device) {
            return None;
        }
        if let Some(speed) = self.speed {
            request.time_ns = (request.time_ns as f64 / speed) as u64;
        }
        if self.strips_names() {
            request.file = None;
        }
        if self.anonymize {
            let before = extent.map_or(0, |extent| extent.min_offset_bytes);
            let shift = before - before % SHIFT_BYTES;
            request.offset_bytes = request.offset_bytes.saturating_sub(shift);
            request.process = request.process.map(|process| Process {
                pid: process.pid,
                name: "".into(),
            });
        }
        Some(request)
    }

    /// Whether the edited tape has no names of control groups and files.
    pub fn strips_names(&self) -> bool {
        self.anonymize || self.strip_names
    }

    fn keeps(&self, request: &Request, device: &str) -> bool {
        fn within<T>(filter: Option<&T>, keeps: impl FnOnce(&T) -> bool) -> bool {
            filter.is_none_or(keeps)
        }
        within(self.times_ns.as_ref(), |times| {
            times.contains(&request.time_ns)
        }) && within(self.ops.as_ref(), |ops| ops.contains(&request.op))
            && within(self.devices.as_ref(), |names| {
                names.iter().any(|name| name == device)
            })
            && within(self.processes.as_ref(), |wanted| is_of(request, wanted))
            && within(self.offsets_bytes.as_ref(), |bytes| touches(request, bytes))
    }

    /// The header of the edited tape.
    pub fn header(&self, header: &Header) -> Header {
        let mut edited = header.clone();
        if self.anonymize {
            edited.host = None;
            edited
                .notes
                .push("anonymized: names removed, offsets moved by whole MiB".to_owned());
        }
        if self.strip_names && !self.anonymize {
            let note = "names of control groups and files removed";
            edited.notes.push(note.to_owned());
        }
        if let Some(speed) = self.speed {
            edited.notes.push(format!("times divided by {speed}"));
        }
        edited
    }

    /// A time of the tape, such as an anchor's, on the edited tape's clock.
    pub fn time_ns(&self, time_ns: u64) -> u64 {
        self.speed
            .map_or(time_ns, |speed| (time_ns as f64 / speed) as u64)
    }
}

fn is_of(request: &Request, wanted: &[ProcessFilter]) -> bool {
    let Some(process) = &request.process else {
        return false;
    };
    wanted.iter().any(|filter| match filter {
        ProcessFilter::Pid(pid) => *pid == process.pid,
        ProcessFilter::Name(name) => **name == *process.name,
    })
}

fn touches(request: &Request, bytes: &Range<u64>) -> bool {
    let end = request.end_bytes().unwrap_or(u64::MAX);
    request.length_bytes > 0 && request.offset_bytes < bytes.end && end > bytes.start
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> Request {
        Request {
            time_ns: 1000,
            op: Op::Write,
            offset_bytes: 5 << 20,
            length_bytes: 4096,
            process: Some(Process {
                pid: 7,
                name: "imap".into(),
            }),
            ..Request::default()
        }
    }

    #[track_caller]
    fn keeps(edit: &Edit, expected: bool) {
        assert_eq!(
            edit.apply(request(), "sda", None).is_some(),
            expected,
            "{edit:?}"
        );
    }

    #[test]
    fn each_filter_keeps_what_it_names() {
        let edit = Edit::default;
        keeps(&edit(), true);
        keeps(
            &Edit {
                times_ns: Some(1000..1001),
                ..edit()
            },
            true,
        );
        keeps(
            &Edit {
                times_ns: Some(0..1000),
                ..edit()
            },
            false,
        );
        keeps(
            &Edit {
                ops: Some(vec![Op::Read, Op::Write]),
                ..edit()
            },
            true,
        );
        keeps(
            &Edit {
                ops: Some(vec![Op::Read]),
                ..edit()
            },
            false,
        );
        keeps(
            &Edit {
                devices: Some(vec!["sda".into()]),
                ..edit()
            },
            true,
        );
        keeps(
            &Edit {
                devices: Some(vec!["sdb".into()]),
                ..edit()
            },
            false,
        );
        keeps(
            &Edit {
                processes: Some(vec![ProcessFilter::Pid(7)]),
                ..edit()
            },
            true,
        );
        keeps(
            &Edit {
                processes: Some(vec![ProcessFilter::Name("pop3".into())]),
                ..edit()
            },
            false,
        );
    }

    #[test]
    fn an_offset_range_keeps_what_touches_it() {
        let start = 5 << 20;
        for (range, expected) in [
            (start..start + 1, true),
            (start + 4095..start + 9000, true),
            (start + 4096..start + 9000, false),
            (0..start, false),
        ] {
            keeps(
                &Edit {
                    offsets_bytes: Some(range),
                    ..Edit::default()
                },
                expected,
            );
        }
        let flush = Request {
            op: Op::Flush,
            ..Request::default()
        };
        let edit = Edit {
            offsets_bytes: Some(0..u64::MAX),
            ..Edit::default()
        };
        assert_eq!(edit.apply(flush, "sda", None), None);
    }

    #[test]
    fn scaled_times_are_divided_and_latencies_stay() {
        let edit = Edit {
            speed: Some(2.5),
            ..Edit::default()
        };
        let slow = Request {
            latency_ns: Some(99),
            ..request()
        };
        let edited = edit.apply(slow, "sda", None).unwrap();
        assert_eq!((edited.time_ns, edited.latency_ns), (400, Some(99)));
        assert_eq!(edit.time_ns(5000), 2000);
    }

    #[test]
    fn anonymous_tapes_keep_alignment_and_pids_but_no_names() {
        let edit = Edit {
            anonymize: true,
            ..Edit::default()
        };
        let extent = DeviceExtent {
            min_offset_bytes: (3 << 20) + 512,
            ..DeviceExtent::default()
        };
        let edited = edit.apply(request(), "sda", Some(&extent)).unwrap();
        assert_eq!(edited.offset_bytes, 2 << 20);
        assert_eq!(
            edited.process,
            Some(Process {
                pid: 7,
                name: "".into()
            })
        );
        let header = Header {
            host: Some("mx1".into()),
            ..Header::default()
        };
        assert_eq!(edit.header(&header).host, None);
    }
}
