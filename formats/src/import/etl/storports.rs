//! From events of the port driver to requests.
//!
//! A completion tells device, bytes and duration, its dispatch the blocks. The size of a block
//! follows from both: bytes by blocks. A completion whose dispatch was not traced went to an unknown
//! place: it is counted and left out.

use etl_parse::Event;
use etl_parse::storport::{Completion, Dispatch, ScsiAddress, StorPort};
use foldhash::HashMap;

use super::MAX_DEVICES;
use super::requests::{MAX_RESPONSE_NS, Traced};
use crate::request::{Op, Request};

/// Most requests that are remembered.
const MAX_OPEN: usize = 1 << 16;
/// How much later than the computed issue a dispatch may be: that of another request is, if the same
/// packet was used again and events are missing.
const TOLERANCE_NS: i64 = 1_000_000;
/// Sizes of blocks that are believed.
const BLOCK_BYTES: std::ops::RangeInclusive<u64> = 512..=1 << 20;

/// What was counted besides requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StorPortCounts {
    /// Completions whose dispatch is not there: where they went is not known.
    pub without_place: u64,
    /// Commands other than reads, writes and flushes.
    pub other_commands: u64,
    /// Requests that the device or its driver did not carry out. They are in the tape, without an
    /// error code: the trace has none of Windows' codes.
    pub failed: u64,
    /// Events of a version whose layout is not known.
    pub other_version: u64,
    /// Dispatches whose completion was not seen.
    pub unfinished: u64,
    /// Events that are too short, or a dispatch and a completion that contradict each other: one of
    /// each is missing between them.
    pub malformed: u64,
}

/// Turns the port driver's events into requests.
#[derive(Debug, Default)]
pub(super) struct StorPorts {
    /// Dispatches by packet, with their times.
    open: HashMap<u64, (Dispatch, i64)>,
    block_bytes: HashMap<ScsiAddress, u64>,
    pub counts: StorPortCounts,
}

impl StorPorts {
    /// The request of a completion at `now_ns`, and its device; `None` for everything else.
    pub fn take(&mut self, event: StorPort, now_ns: i64) -> Option<(ScsiAddress, Traced)> {
        match event {
            StorPort::Dispatch(dispatch) => {
                let full = self.open.len() >= MAX_OPEN && !self.open.contains_key(&dispatch.irp);
                let replaced = !full && {
                    let opened = (dispatch, now_ns);
                    self.open.insert(dispatch.irp, opened).is_some()
                };
                self.counts.unfinished += u64::from(full || replaced);
                None
            }
            StorPort::Completion(done) => self.complete(&done, now_ns),
            StorPort::OtherVersion => {
                self.counts.other_version += 1;
                None
            }
            StorPort::Malformed => {
                self.counts.malformed += 1;
                None
            }
        }
    }

    /// The trace is over.
    pub fn finish(&mut self) {
        self.counts.unfinished += self.open.len() as u64;
        self.open.clear();
    }

    fn complete(&mut self, done: &Completion, now_ns: i64) -> Option<(ScsiAddress, Traced)> {
        let dispatch = self.open.remove(&done.irp);
        let Some(op) = op_of(done.command) else {
            self.counts.other_commands += 1;
            return None;
        };
        let latency_ns = done.duration_100ns.checked_mul(100);
        let latency_ns = latency_ns.filter(|ns| *ns <= MAX_RESPONSE_NS);
        let time_ns = now_ns - latency_ns.unwrap_or(0) as i64;
        let (offset_bytes, length_bytes) = match (op, dispatch) {
            (Op::Flush, _) => (0, 0),
            (_, Some((dispatch, at_ns)))
                if dispatch.command == done.command && at_ns <= time_ns + TOLERANCE_NS =>
            {
                self.range(&dispatch, done)?
            }
            _ => {
                self.counts.without_place += 1;
                return None;
            }
        };
        let is_success = done.is_success();
        self.counts.failed += u64::from(!is_success);
        let traced = Traced {
            file_key: None,
            time_ns,
            request: Request {
                op,
                offset_bytes,
                length_bytes,
                latency_ns,
                error: is_success.then_some(0),
                ..Request::default()
            },
        };
        Some((done.device, traced))
    }

    /// First byte and bytes of a read or write; `None`, and counted, where they cannot be told.
    fn range(&mut self, dispatch: &Dispatch, done: &Completion) -> Option<(u64, u64)> {
        let Some(block_bytes) = self.block_bytes(dispatch, done) else {
            self.counts.without_place += 1;
            return None;
        };
        let range = dispatch.lba.checked_mul(block_bytes);
        let range = range.zip(dispatch.blocks.checked_mul(block_bytes));
        let is_possible = |(offset, length): &(u64, u64)| {
            let agrees = !done.is_success() || *length == u64::from(done.bytes);
            agrees && offset.checked_add(*length).is_some()
        };
        let range = range.filter(is_possible);
        self.counts.malformed += u64::from(range.is_none());
        range
    }

    /// Bytes of a block of the device: those of the first request that was carried out.
    fn block_bytes(&mut self, dispatch: &Dispatch, done: &Completion) -> Option<u64> {
        if let Some(known) = self.block_bytes.get(&done.device) {
            return Some(*known);
        }
        let bytes = u64::from(done.bytes);
        let is_whole = done.is_success() && dispatch.blocks > 0;
        if !is_whole || !bytes.is_multiple_of(dispatch.blocks) {
            return None;
        }
        let block_bytes = bytes / dispatch.blocks;
        let is_possible = BLOCK_BYTES.contains(&block_bytes) && block_bytes.is_power_of_two();
        if !is_possible || self.block_bytes.len() >= MAX_DEVICES {
            return None;
        }
        self.block_bytes.insert(done.device, block_bytes);
        Some(block_bytes)
    }
}

/// The operation of a SCSI operation code (SPC and SBC); `None` for what neither reads, writes nor
/// flushes.
fn op_of(command: u8) -> Option<Op> {
    match command {
        0x08 | 0x28 | 0xa8 | 0x88 => Some(Op::Read),
        0x0a | 0x2a | 0xaa | 0x8a => Some(Op::Write),
        0x2e | 0xae | 0x8e => Some(Op::Write), // and verify
        0x35 | 0x91 => Some(Op::Flush),        // SYNCHRONIZE CACHE
        _ => None,
    }
}

/// Whether an event begins or ends a request.
pub(super) fn tells_of_request(event: &Event<'_>) -> bool {
    matches!(
        StorPort::parse(event),
        Some(StorPort::Dispatch(_) | StorPort::Completion(_))
    )
}
