//! From disk events to requests.

use etl_parse::kernel::{DiskFlush, DiskIo, DiskTransfer, Response};
use etl_parse::{Clock, ClockType, Event, EventId};

use super::people::People;
use crate::import::inits::{Init, Inits};
use crate::request::{DeviceIndex, Flags, Op, Request};

/// Longest time that a request may take and be believed.
pub(super) const MAX_RESPONSE_NS: u64 = 3_600_000_000_000;
/// Farthest time from the start of a trace that is believed: 36 years.
const MAX_TIME_NS: i128 = 1 << 60;

/// Whose disk events are read. Where a trace has several, they tell of the same requests: the first
/// of these is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Origin {
    /// The kernel logger.
    Kernel,
    /// The provider `Microsoft-Windows-Kernel-Disk`.
    KernelDisk,
    /// The provider `Microsoft-Windows-StorPort`, which `StorPorts` reads.
    StorPort,
}

/// A request as the trace tells it, with its time since the start of the trace.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Traced {
    pub time_ns: i64,
    /// Its time and device are still to be set.
    pub request: Request,
    /// Key of its file, for a read or write of the kernel's.
    pub file_key: Option<u64>,
}

/// What was counted besides requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Disk events that contradict themselves.
    pub malformed: u64,
    /// Completions that do not say, or not believably, how long the request took.
    pub without_response: u64,
    /// Disk events of an origin that is not read.
    pub other_origin: u64,
}

/// Turns disk events into requests.
#[derive(Debug)]
pub(super) struct Requests {
    clock: Clock,
    origin: Option<Origin>,
    pub inits: Inits,
    pub counts: Counts,
}

/// What reads, writes and flushes have in common.
struct Completion {
    response: Response,
    irp: Option<u64>,
    thread_id: Option<u32>,
    irp_flags: u32,
}

impl Requests {
    /// Reads the events of `origin`; without one, those that come first.
    pub fn new(clock: Clock, origin: Option<Origin>) -> Requests {
        Requests {
            clock,
            origin,
            inits: Inits::new(clock.clock_type() == ClockType::SystemTime),
            counts: Counts::default(),
        }
    }

    /// Whose events are read.
    pub fn origin(&self) -> Option<Origin> {
        self.origin
    }

    /// The request of a completion and the number of its physical disk; `None` for everything else.
    #[inline]
    pub fn take(&mut self, event: &Event<'_>, people: &People) -> Option<(u32, Traced)> {
        let (origin, disk_event) = match event.id {
            EventId::Provider { .. } => match DiskIo::parse_kernel_disk(event) {
                Some(disk_event) => (Origin::KernelDisk, disk_event),
                None => (Origin::Kernel, DiskIo::parse(event)?),
            },
            _ => (Origin::Kernel, DiskIo::parse(event)?),
        };
        if !self.is_read(origin) {
            return None;
        }
        let Some(now_ns) = event.ticks.and_then(|ticks| self.time_ns(ticks)) else {
            self.counts.malformed += 1;
            return None;
        };
        match disk_event {
            DiskIo::Init(init) => {
                let begun = Init {
                    time_ns: now_ns,
                    process_id: event.process_id,
                    processor: Some(event.processor),
                };
                self.inits.begin(init.irp, begun);
                None
            }
            DiskIo::Transfer(transfer) => {
                let traced = self.transfer(&transfer, now_ns, people)?;
                Some((transfer.disk, traced))
            }
            DiskIo::Flush(flush) => Some((flush.disk, self.flush(&flush, now_ns, people))),
            DiskIo::Malformed => {
                self.counts.malformed += 1;
                None
            }
        }
    }

    /// Whether the events of an origin are read. The first one decides where nobody has; those of
    /// others are counted.
    #[inline]
    pub fn is_read(&mut self, origin: Origin) -> bool {
        let is_read = *self.origin.get_or_insert(origin) == origin;
        self.counts.other_origin += u64::from(!is_read);
        is_read
    }

    fn transfer(&mut self, done: &DiskTransfer, now_ns: i64, people: &People) -> Option<Traced> {
        let (offset_bytes, length_bytes) = (done.offset, u64::from(done.bytes));
        if offset_bytes.checked_add(length_bytes).is_none() {
            self.counts.malformed += 1;
            return None;
        }
        let completion = Completion {
            response: done.response,
            irp: done.irp,
            thread_id: done.thread_id,
            irp_flags: done.irp_flags,
        };
        let mut traced = self.complete(&completion, now_ns, people);
        traced.request.op = if done.is_write { Op::Write } else { Op::Read };
        traced.request.offset_bytes = offset_bytes;
        traced.request.length_bytes = length_bytes;
        traced.file_key = Some(done.file_object);
        Some(traced)
    }

    fn flush(&mut self, done: &DiskFlush, now_ns: i64, people: &People) -> Traced {
        let completion = Completion {
            response: done.response,
            irp: Some(done.irp),
            thread_id: done.thread_id,
            irp_flags: done.irp_flags,
        };
        let mut traced = self.complete(&completion, now_ns, people);
        traced.request.op = Op::Flush;
        traced
    }

    /// A request is done now: when it was issued, and by whom.
    fn complete(&mut self, done: &Completion, now_ns: i64, people: &People) -> Traced {
        let latency_ns = self.latency_ns(done.response);
        // Both are far below the limits of 64 bits.
        let issue_ns = latency_ns.map(|latency_ns| now_ns - latency_ns as i64);
        let init = done.irp.and_then(|irp| self.inits.end(irp, issue_ns));
        let pid = init.and_then(|init| init.process_id).or_else(|| {
            let thread_id = done.thread_id?;
            people.process_of_thread(thread_id)
        });
        let (time_ns, latency_ns) = match (issue_ns, init) {
            (Some(issue_ns), _) => (issue_ns, latency_ns),
            (None, Some(init)) => {
                let since_ns = now_ns.checked_sub(init.time_ns);
                (
                    init.time_ns,
                    since_ns.and_then(|since| u64::try_from(since).ok()),
                )
            }
            (None, None) => (now_ns, None),
        };
        self.counts.without_response += u64::from(latency_ns.is_none());
        Traced {
            time_ns,
            file_key: None,
            request: Request {
                device: DeviceIndex(0),
                flags: flags_of(done.irp_flags),
                latency_ns,
                process: pid.map(|pid| people.process(pid)),
                cpu: init.and_then(|init| init.processor).map(u32::from),
                ..Request::default()
            },
        }
    }

    fn latency_ns(&self, response: Response) -> Option<u64> {
        match response {
            Response::Unknown => None,
            Response::PerfTicks(ticks) => {
                let ns = self.clock.perf_span_ns(ticks);
                ns.filter(|ns| *ns <= MAX_RESPONSE_NS)
            }
        }
    }

    /// Time since the start of the trace; `None` if it is beyond belief.
    #[inline]
    pub fn time_ns(&self, ticks: i64) -> Option<i64> {
        let ns = self.clock.since_start_ns(ticks);
        (ns.abs() < MAX_TIME_NS).then_some(ns as i64)
    }
}

/// Flags of a request packet, `IRP_…` of `wdm.h`.
pub(in crate::import) fn flags_of(irp_flags: u32) -> Flags {
    const PAGING_IO: u32 = 0x02;
    const SYNCHRONOUS_API: u32 = 0x04;
    const SYNCHRONOUS_PAGING_IO: u32 = 0x40;
    const PRIORITY_SHIFT: u32 = 17;
    const PRIORITY_MASK: u32 = 7;
    /// `IoPriorityVeryLow` plus one: background work.
    const VERY_LOW: u32 = 1;
    let mut flags = Flags::NONE;
    if irp_flags & (PAGING_IO | SYNCHRONOUS_PAGING_IO) != 0 {
        flags |= Flags::PAGING;
    }
    if irp_flags & (SYNCHRONOUS_API | SYNCHRONOUS_PAGING_IO) != 0 {
        flags |= Flags::SYNC;
    }
    if irp_flags >> PRIORITY_SHIFT & PRIORITY_MASK == VERY_LOW {
        flags |= Flags::BACKGROUND;
    }
    flags
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_of_packets() {
        let cases = [
            (0x0000, ""),
            (0x0004, "sync"),
            (0x0002, "paging"),
            (0x0043, "sync+paging"),
            (0x2_0000, "background"),
            (0x4_0000, ""),
            (0x6_0904, "sync"),
        ];
        for (irp_flags, expected) in cases {
            assert_eq!(
                flags_of(irp_flags),
                expected.parse().unwrap(),
                "{irp_flags:#x}"
            );
        }
    }
}
