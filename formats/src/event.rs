//! Events: what a kernel reports about block I/O, one step of one operation at a time.
//!
//! Every source (the recorder, a blktrace file, `perf.data`, an ETW trace) is turned into these,
//! and [`crate::pairing`] turns them into requests.

use crate::request::{DeviceIndex, Flags, Op, Process};

/// Bytes of a Linux sector, whatever the device's own sector size is.
pub const SECTOR_BYTES: u64 = 512;

/// Which step of an operation an event reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// A submitter hands an operation to the block layer (blktrace's Q).
    Queued,
    /// A request goes to the driver (D).
    Issued,
    /// A request comes back from the driver without being done; it will be issued again (R).
    Requeued,
    /// A range of a request is done (C of a request). A request may be done in several parts, and
    /// the last step of a flush sequence reports an empty range.
    RequestCompleted,
    /// An operation is done that never became a request (C of a bio): on devices without a request
    /// queue, or because it failed before.
    BioCompleted,
    /// An operation became part of a request that already existed (M, F).
    BioMerged,
    /// Two requests became one.
    RequestsMerged,
    /// An operation was cut in two (X).
    Split,
}

/// One step of one operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// When, in nanoseconds on the clock of the source.
    pub time_ns: u64,
    /// The step.
    pub step: Step,
    /// On which device.
    pub device: DeviceIndex,
    /// What the operation does. An empty write with PREFLUSH is [`Op::Flush`].
    pub op: Op,
    /// How it asks to be treated.
    pub flags: Flags,
    /// First byte of the range; 0 where the operation has none.
    pub offset_bytes: u64,
    /// Length of the range.
    pub length_bytes: u64,
    /// Processor that reported the step.
    pub cpu: Option<u32>,
    /// Outcome of a completion: 0 for success.
    pub error: Option<u32>,
    /// Who submitted the operation ([`Step::Queued`] only: later steps run anywhere).
    pub process: Option<Process>,
    /// Control group of the submitter ([`Step::Queued`] only).
    pub cgroup: Option<u64>,
}

/// Reads the kernel's short notation of operation and flags, such as `WFS` or `RA`.
///
/// The notation (`blk_fill_rwbs` of the kernel) is: an optional `F` for PREFLUSH; the operation (`R`, `W`,
/// `D` discard, `DE` secure erase, `F` flush, `WZ` write-zeroes, `ZA` zone append, `ZR…` zone
/// reset, `N` other); then `F` for FUA, `A` read-ahead, `S` sync, `M` metadata, `U` atomic. Kernels
/// up to 6.18 print write-zeroes as `N`, which is told from a pass-through command by its length.
///
/// `text` may be followed by NUL bytes. `length_bytes` is the length of the range that the event
/// reports. `None` if the operation is not in the notation.
pub fn parse_rwbs(text: &[u8], length_bytes: u64) -> Option<(Op, Flags)> {
    let end = text
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(text.len());
    let mut rest = &text[..end];
    let mut flags = Flags::NONE;
    if let [b'F', b'R' | b'W' | b'D' | b'F' | b'Z' | b'N', ..] = rest {
        flags |= Flags::PREFLUSH;
        rest = &rest[1..];
    }
    let (op, letters) = match rest {
        [b'W', b'Z', ..] => (Op::WriteZeroes, 2),
        [b'D', b'E', ..] => {
            flags |= Flags::SECURE;
            (Op::Discard, 2)
        }
        [b'Z', b'A', ..] => (Op::ZoneAppend, 2),
        [b'Z', b'R', b'A', ..] => (Op::ZoneReset, 3),
        [b'Z', b'R', ..] => (Op::ZoneReset, 2),
        [b'Z', _, ..] => (Op::Other, 2),
        [b'W', ..] => (Op::Write, 1),
        [b'R', ..] => (Op::Read, 1),
        [b'D', ..] => (Op::Discard, 1),
        [b'F', ..] => (Op::Flush, 1),
        [b'N', ..] if length_bytes > 0 => (Op::WriteZeroes, 1),
        [b'N', ..] => (Op::Other, 1),
        _ => return None,
    };
    for letter in &rest[letters..] {
        flags |= match letter {
            b'F' => Flags::FUA,
            b'A' => Flags::READAHEAD,
            b'S' => Flags::SYNC,
            b'M' => Flags::META,
            b'U' => Flags::ATOMIC,
            _ => Flags::NONE,
        };
    }
    Some(empty_preflush_as_flush(op, flags, length_bytes))
}

/// PREFLUSH asks for a flush before the data: without data, the flush is all there is.
pub(crate) fn empty_preflush_as_flush(op: Op, flags: Flags, length_bytes: u64) -> (Op, Flags) {
    if op != Op::Flush && !(flags.contains(Flags::PREFLUSH) && length_bytes == 0) {
        return (op, flags);
    }
    (Op::Flush, without(flags, Flags::PREFLUSH))
}

/// `flags` without those of `removed`.
pub(crate) fn without(flags: Flags, removed: Flags) -> Flags {
    Flags::from_bits(flags.bits() & !removed.bits())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn assert_rwbs(text: &str, length_bytes: u64, op: Op, flags: &str) {
        let mut padded = text.as_bytes().to_vec();
        padded.resize(10, 0);
        let expected = Some((op, flags.parse().unwrap()));
        assert_eq!(
            parse_rwbs(&padded, length_bytes),
            expected,
            "{text} + {length_bytes}"
        );
        assert_eq!(
            parse_rwbs(text.as_bytes(), length_bytes),
            expected,
            "{text} without padding"
        );
    }

    #[test]
    fn data_operations_and_their_flags() {
        assert_rwbs("R", 4096, Op::Read, "");
        assert_rwbs("RA", 4096, Op::Read, "readahead");
        assert_rwbs("RSM", 4096, Op::Read, "sync+meta");
        assert_rwbs("RAM", 4096, Op::Read, "readahead+meta");
        assert_rwbs("W", 4096, Op::Write, "");
        assert_rwbs("WFS", 4096, Op::Write, "fua+sync");
        assert_rwbs("FWFSM", 4096, Op::Write, "preflush+fua+sync+meta");
        assert_rwbs("WSU", 4096, Op::Write, "sync+atomic");
    }

    #[test]
    fn flushes() {
        assert_rwbs("FWS", 0, Op::Flush, "sync");
        assert_rwbs("FF", 0, Op::Flush, "");
        assert_rwbs("F", 0, Op::Flush, "");
        assert_rwbs("FN", 0, Op::Flush, "");
        // The end of a flush sequence is an empty write without PREFLUSH.
        assert_rwbs("WS", 0, Op::Write, "sync");
    }

    #[test]
    fn ranges_without_data() {
        assert_rwbs("D", 65536, Op::Discard, "");
        assert_rwbs("DS", 65536, Op::Discard, "sync");
        assert_rwbs("DE", 65536, Op::Discard, "secure");
        assert_rwbs("WZS", 1 << 20, Op::WriteZeroes, "sync");
        assert_rwbs("NS", 1 << 20, Op::WriteZeroes, "sync");
        assert_rwbs("N", 0, Op::Other, "");
        assert_rwbs("ZAS", 4096, Op::ZoneAppend, "sync");
        assert_rwbs("ZR", 0, Op::ZoneReset, "");
        assert_rwbs("ZRAS", 0, Op::ZoneReset, "sync");
        assert_rwbs("ZF", 0, Op::Other, "");
    }

    #[test]
    fn what_is_not_an_operation_is_refused() {
        for text in ["", "S", "?", "\0W"] {
            assert_eq!(parse_rwbs(text.as_bytes(), 4096), None, "{text:?}");
        }
    }
}
