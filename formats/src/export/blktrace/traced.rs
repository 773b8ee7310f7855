//! A request in the trace's words.

use std::sync::Arc;

use blktrace_parse::{Action, ByteOrder, Categories, DeviceNumber, Kind, Record};

use crate::event::{SECTOR_BYTES, without};
use crate::export::Losses;
use crate::request::{Flags, Op, Process, Request};
use crate::tape::{ErrorCodes, Layer};

/// Longest name of a process: the kernel's `comm` without its end.
pub(in crate::export) const MAX_NAME_BYTES: usize = 15;
/// Linux supports at most this many CPUs.
const MAX_CPUS: u32 = 8192;
/// Highest number that the kernel uses for an error.
const MAX_ERRNO: u32 = 4095;
const EIO: u32 = 5;

/// What a record of the request says, whichever step it is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Traced {
    pub device: DeviceNumber,
    pub layer: Layer,
    op: Op,
    /// Categories of the flags.
    flags: Categories,
    sector: u64,
    bytes: u32,
    pub cpu: u32,
    pid: u32,
    pub name: Option<Arc<str>>,
    error: u16,
}

impl Traced {
    /// The request, as far as version 7 can say it; `None` if it cannot.
    pub fn new(
        request: &Request,
        (device, layer): (DeviceNumber, Layer),
        codes: ErrorCodes,
        losses: &mut Losses,
    ) -> Option<Traced> {
        let length_bytes = match request.op {
            Op::Flush => 0,
            _ => request.length_bytes,
        };
        let Ok(bytes) = u32::try_from(length_bytes) else {
            losses.count("left out: longer than the 4 GiB that a record can say");
            return None;
        };
        if !request.offset_bytes.is_multiple_of(SECTOR_BYTES) {
            losses.count("offset rounded down to 512 bytes");
        }
        count_operation(request, losses);
        Some(Traced {
            device,
            layer,
            op: request.op,
            flags: categories_of(request.flags),
            sector: request.offset_bytes / SECTOR_BYTES,
            bytes,
            cpu: cpu_of(request, losses),
            pid: request.process.as_ref().map_or(0, |process| process.pid),
            name: request
                .process
                .as_ref()
                .and_then(|process| name_of(process, losses)),
            error: error_of(request, codes, losses),
        })
    }

    /// Whether the kernel reports it done once more, when the flush that it asked for is over.
    pub fn is_flush_sequence(&self) -> bool {
        let has_preflush = self.flags.contains(Categories::FLUSH);
        self.op == Op::Flush || has_preflush && self.op.changes_data()
    }

    /// A record of a step of it.
    pub fn record(&self, kind: Kind, time_ns: u64) -> Record<'static> {
        let error = match kind {
            Kind::Complete => self.error,
            _ => 0,
        };
        Record {
            sequence: 0,
            time_ns,
            sector: self.sector,
            bytes: self.bytes,
            action: Action::new(kind, self.operation(kind) | step_of(kind, self.op), false),
            pid: self.pid,
            device: self.device,
            cpu: self.cpu,
            error,
            cgroup: None,
            pdu: &[],
            order: ByteOrder::NATIVE,
        }
    }

    /// The end of a flush sequence: an empty write.
    pub fn sequence_end(&self, time_ns: u64) -> Record<'static> {
        let flags = Categories(self.flags.0 & !(Categories::FLUSH | Categories::FUA).0);
        let categories = Categories::WRITE | Categories::SYNC | flags;
        let step = Categories::COMPLETE | Categories::FS;
        Record {
            bytes: 0,
            action: Action::new(Kind::Complete, categories | step, false),
            ..self.record(Kind::Complete, time_ns)
        }
    }

    /// Categories of operation and flags at this step.
    fn operation(&self, kind: Kind) -> Categories {
        let is_bio = matches!(kind, Kind::Queue | Kind::GetRequest);
        let operation = match self.op {
            Op::Read | Op::Other => Categories::READ,
            Op::Discard => Categories::WRITE | Categories::DISCARD,
            // Somebody waits for each flush; at the device layer the tape has the driver's flags.
            Op::Flush if is_bio && self.layer == Layer::Device => {
                Categories::WRITE | Categories::FLUSH | Categories::SYNC
            }
            Op::Flush if is_bio => Categories::WRITE | Categories::FLUSH,
            Op::Flush => Categories::READ | Categories::FLUSH,
            Op::Write | Op::WriteZeroes | Op::ZoneAppend | Op::ZoneReset => Categories::WRITE,
        };
        operation | self.flags
    }
}

/// Categories of the step itself.
fn step_of(kind: Kind, op: Op) -> Categories {
    let source = match op {
        Op::Other => Categories::PASS_THROUGH,
        _ => Categories::FS,
    };
    match kind {
        Kind::Issue => Categories::ISSUE | source,
        Kind::Complete => Categories::COMPLETE | source,
        Kind::Insert => Categories::QUEUE | source,
        // These are of bios, which do not say where they come from; a command has none.
        _ if op == Op::Other => Categories::QUEUE | source,
        _ => Categories::QUEUE,
    }
}

/// The flags that version 7 has.
const FLAGS: [(Flags, Categories); 5] = [
    (Flags::SYNC, Categories::SYNC),
    (Flags::FUA, Categories::FUA),
    (Flags::PREFLUSH, Categories::FLUSH),
    (Flags::META, Categories::META),
    (Flags::READAHEAD, Categories::READAHEAD),
];

fn categories_of(flags: Flags) -> Categories {
    FLAGS
        .into_iter()
        .filter(|(flag, _)| flags.contains(*flag))
        .fold(Categories::NONE, |all, (_, category)| all | category)
}

fn count_operation(request: &Request, losses: &mut Losses) {
    let said = FLAGS
        .into_iter()
        .fold(Flags::NONE, |all, (flag, _)| all | flag);
    if !without(request.flags, said).is_empty() {
        losses.count("flags other than sync, fua, preflush, meta and readahead not said");
    }
    let unsaid = match request.op {
        Op::WriteZeroes => "write_zeroes written as a write",
        Op::ZoneAppend => "zone_append written as a write",
        Op::ZoneReset => "zone_reset written as a write",
        Op::Other => "other operation written as a pass-through command",
        Op::Read | Op::Write if request.length_bytes == 0 => {
            "read or write without data: taken for a part of a flush"
        }
        _ => return,
    };
    losses.count(unsaid);
}

fn cpu_of(request: &Request, losses: &mut Losses) -> u32 {
    match request.cpu {
        Some(cpu) if cpu >= MAX_CPUS => {
            losses.count("CPU number above 8191 written as 0");
            0
        }
        cpu => cpu.unwrap_or(0),
    }
}

/// The name as it fits a note. A name of no length is none.
fn name_of(process: &Process, losses: &mut Losses) -> Option<Arc<str>> {
    let name = &process.name;
    if name.is_empty() {
        return None;
    }
    if name.len() <= MAX_NAME_BYTES {
        return Some(Arc::clone(name));
    }
    losses.count("name of the process cut after 15 bytes");
    let mut ends = (0..=MAX_NAME_BYTES).rev();
    let end = ends.find(|end| name.is_char_boundary(*end))?;
    Some(name[..end].into())
}

/// The error as the kernel stores it: the lower half of a negative errno.
fn error_of(request: &Request, codes: ErrorCodes, losses: &mut Losses) -> u16 {
    let errno = match (request.error, codes) {
        (None | Some(0), _) => 0,
        (Some(errno @ 1..=MAX_ERRNO), ErrorCodes::Errno) => errno,
        (Some(_), _) => {
            losses.count("error that is no errno written as EIO");
            EIO
        }
    };
    if request.cgroup.is_some() {
        losses.count("control group not said: blkparse 1.2 does not read records that name one");
    }
    (errno as u16).wrapping_neg()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEVICE: DeviceNumber = DeviceNumber(7 << 20);

    #[track_caller]
    fn assert_actions(layer: Layer, op: Op, flags: Flags, bytes: u64, expected: &[u64]) {
        let request = Request {
            op,
            flags,
            length_bytes: bytes,
            ..Request::default()
        };
        let mut losses = Losses::default();
        let codes = ErrorCodes::Errno;
        let traced = Traced::new(&request, (DEVICE, layer), codes, &mut losses).unwrap();
        let mut actions: Vec<u64> = [Kind::Queue, Kind::GetRequest, Kind::Issue, Kind::Complete]
            .map(|kind| traced.record(kind, 0).action.0)
            .into();
        if traced.is_flush_sequence() {
            actions.push(traced.sequence_end(0).action.0);
        }
        assert_eq!(actions, expected, "{actions:#x?}");
    }

    /// The actions on the right were recorded from Linux 6.18 on a loop device (direct reads,
    /// read-ahead, O_DSYNC writes, fsync, blkdiscard, ext4's journal).
    #[test]
    fn actions_are_those_of_the_kernel() {
        use Layer::Device;
        let none = Flags::NONE;
        let read = [0x11_0001, 0x11_0004, 0x141_0007, 0x181_0008];
        assert_actions(Device, Op::Read, none, 4096, &read);
        let ahead = [0x811_0001, 0x811_0004, 0x941_0007, 0x981_0008];
        assert_actions(Device, Op::Read, Flags::READAHEAD, 4096, &ahead);
        let sync = [0x1a_0001, 0x1a_0004, 0x14a_0007, 0x18a_0008];
        assert_actions(Device, Op::Write, Flags::SYNC, 4096, &sync);
        let meta = [0x1012_0001, 0x1012_0004, 0x1142_0007, 0x1182_0008];
        assert_actions(Device, Op::Write, Flags::META, 1024, &meta);
        let discard = [0x201a_0001, 0x201a_0004, 0x214a_0007, 0x218a_0008];
        assert_actions(Device, Op::Discard, Flags::SYNC, 65_536, &discard);
        let flush = [0x1e_0001, 0x1e_0004, 0x145_0007, 0x185_0008, 0x18a_0008];
        assert_actions(Device, Op::Flush, none, 0, &flush);
    }

    #[test]
    fn a_journal_commit_is_a_flush_sequence() {
        // Recorded: Q and G of FWFSM, and the end of the sequence. The driver got its parts.
        let flags = Flags::PREFLUSH | Flags::FUA | Flags::SYNC | Flags::META;
        let [queue, get, end] = [0x901e_0001, 0x901e_0004, 0x118a_0008];
        let [issue, complete] = [0x914e_0007, 0x918e_0008];
        let expected = [queue, get, issue, complete, end];
        assert_actions(Layer::Queue, Op::Write, flags, 1024, &expected);
    }

    #[test]
    fn a_flush_at_the_queue_layer_has_the_flags_of_the_tape() {
        let expected = [0x16_0001, 0x16_0004, 0x145_0007, 0x185_0008, 0x18a_0008];
        assert_actions(Layer::Queue, Op::Flush, Flags::NONE, 0, &expected);
    }

    fn traced(request: &Request, codes: ErrorCodes) -> (Option<Traced>, Vec<(&'static str, u64)>) {
        let mut losses = Losses::default();
        let traced = Traced::new(request, (DEVICE, Layer::Device), codes, &mut losses);
        (traced, losses.iter().collect())
    }

    #[test]
    fn errors_are_negative_errnos_in_16_bits() {
        let failed = |error| Request {
            length_bytes: 512,
            error: Some(error),
            ..Request::default()
        };
        let eio = |(traced, losses): (Option<Traced>, Vec<_>)| {
            let record = traced.unwrap().record(Kind::Complete, 0);
            (record.errno(), losses.len())
        };
        assert_eq!(eio(traced(&failed(0), ErrorCodes::Errno)), (0, 0));
        assert_eq!(eio(traced(&failed(28), ErrorCodes::Errno)), (28, 0));
        assert_eq!(eio(traced(&failed(0xc000_009c), ErrorCodes::Errno)), (5, 1));
        assert_eq!(eio(traced(&failed(0x103), ErrorCodes::NtStatus)), (5, 1));
    }

    #[test]
    fn what_version_7_cannot_say_is_counted() {
        let process = |name: &str| {
            Some(Process {
                pid: 4,
                name: name.into(),
            })
        };
        let request = Request {
            op: Op::WriteZeroes,
            flags: Flags::SYNC | Flags::BACKGROUND,
            offset_bytes: 513,
            length_bytes: 512,
            process: process("fourteen bytes é"),
            cgroup: Some(1),
            cpu: Some(8192),
            ..Request::default()
        };
        let (traced_request, losses) = traced(&request, ErrorCodes::Errno);
        let traced_request = traced_request.unwrap();
        assert_eq!(traced_request.name.as_deref(), Some("fourteen bytes "));
        assert_eq!((traced_request.cpu, traced_request.sector), (0, 1));
        assert_eq!(losses.len(), 6, "{losses:?}");
        let long = Request {
            length_bytes: 1 << 32,
            ..Request::default()
        };
        assert_eq!(traced(&long, ErrorCodes::Errno).0, None);
    }
}
