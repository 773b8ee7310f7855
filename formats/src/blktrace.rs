//! From a record of blktrace to a neutral event: for files and for what a running kernel hands over.

use blktrace_parse::Categories;
pub use blktrace_parse::{Decoder, Kind, Payload, Record, SequenceTracker, Step as Decoded};

use crate::event::{Event, SECTOR_BYTES, Step, empty_preflush_as_flush};
use crate::request::{DeviceIndex, Flags, Op, Process};

/// The sector of a request that has none, on old kernels.
const NO_SECTOR: u64 = u64::MAX;

/// The step that a record reports; `None` for what requests do not need (plugging, allocation,
/// insertion) and for notes.
#[inline]
pub fn step_of(record: &Record<'_>) -> Option<Step> {
    // Records about requests say what kind of request it is, those about bios do not.
    let of_request = Categories::FS | Categories::PASS_THROUGH;
    let is_request = record.action.categories().intersects(of_request);
    match record.action.kind() {
        Kind::Queue => Some(Step::Queued),
        Kind::Issue => Some(Step::Issued),
        Kind::Requeue => Some(Step::Requeued),
        Kind::Complete if is_request => Some(Step::RequestCompleted),
        Kind::Complete => Some(Step::BioCompleted),
        Kind::BackMerge | Kind::FrontMerge if is_request => Some(Step::RequestsMerged),
        Kind::BackMerge | Kind::FrontMerge => Some(Step::BioMerged),
        Kind::Split => Some(Step::Split),
        _ => None,
    }
}

/// The event of a record; `process` submitted it, if it was queued. `None` if its range ends beyond
/// 64 bits.
///
/// The record's numbers are taken as they are: sectors of 512 bytes become bytes, and the kernel's
/// negative errno a positive one.
#[inline]
pub fn event_of(
    record: &Record<'_>,
    step: Step,
    time_ns: u64,
    device: DeviceIndex,
    process: impl FnOnce() -> Process,
) -> Option<Event> {
    let (op, flags) = operation(record);
    let is_completion = matches!(step, Step::RequestCompleted | Step::BioCompleted);
    let is_queued = step == Step::Queued;
    let sector = match record.sector {
        NO_SECTOR => 0,
        sector => sector,
    };
    let offset_bytes = sector.checked_mul(SECTOR_BYTES)?;
    let length_bytes = u64::from(record.bytes);
    offset_bytes.checked_add(length_bytes)?;
    Some(Event {
        time_ns,
        step,
        device,
        op,
        flags,
        offset_bytes,
        length_bytes,
        cpu: Some(record.cpu),
        error: is_completion.then(|| record.errno()),
        process: is_queued.then(process),
        cgroup: record.cgroup.filter(|_| is_queued),
    })
}

/// What an I/O does and how it asks to be treated.
#[inline]
fn operation(record: &Record<'_>) -> (Op, Flags) {
    let categories = record.action.categories();
    let has = |category| categories.contains(category);
    let op = if has(Categories::PASS_THROUGH) {
        Op::Other
    } else if has(Categories::DISCARD) {
        Op::Discard
    } else if has(Categories::WRITE_ZEROES) {
        Op::WriteZeroes
    } else if has(Categories::ZONE_APPEND) {
        Op::ZoneAppend
    } else if categories.intersects(Categories::ZONE_RESET | Categories::ZONE_RESET_ALL) {
        Op::ZoneReset
    } else if categories.intersects(OTHER_ZONE_OPERATIONS) {
        Op::Other
    } else if has(Categories::WRITE) {
        Op::Write
    } else if record.bytes > 0 {
        Op::Read
    } else {
        // A flush, if its flag is there; else a command without data.
        Op::Other
    };
    let flags = FLAGS
        .into_iter()
        .filter(|(category, _)| has(*category))
        .fold(Flags::NONE, |flags, (_, flag)| flags | flag);
    if op == Op::Other && has(Categories::PASS_THROUGH) {
        return (op, flags);
    }
    empty_preflush_as_flush(op, flags, u64::from(record.bytes))
}

const OTHER_ZONE_OPERATIONS: Categories =
    Categories(Categories::ZONE_FINISH.0 | Categories::ZONE_OPEN.0 | Categories::ZONE_CLOSE.0);

const FLAGS: [(Categories, Flags); 5] = [
    (Categories::FLUSH, Flags::PREFLUSH),
    (Categories::SYNC, Flags::SYNC),
    (Categories::FUA, Flags::FUA),
    (Categories::META, Flags::META),
    (Categories::READAHEAD, Flags::READAHEAD),
];

#[cfg(test)]
mod tests {
    use super::*;
    use blktrace_parse::{Action, ByteOrder, DeviceNumber};

    fn record(action: u64, sector: u64, bytes: u32) -> Record<'static> {
        Record {
            sequence: 1,
            time_ns: 5,
            sector,
            bytes,
            action: Action(action),
            pid: 1,
            device: DeviceNumber(8 << 20),
            cpu: 3,
            error: 0xfffb,
            cgroup: Some(9),
            pdu: &[],
            order: ByteOrder::Little,
        }
    }

    fn process() -> Process {
        Process {
            pid: 1,
            name: "init".into(),
        }
    }

    #[track_caller]
    fn assert_operation(categories: u64, bytes: u32, op: Op, flags: &str) {
        let record = record(categories << 16 | 7, 0, bytes);
        assert_eq!(operation(&record), (op, flags.parse().unwrap()));
    }

    #[test]
    fn categories_become_operations_and_flags() {
        // Bits: 0 read, 1 write, 2 flush, 3 sync, 6 issue, 8 fs, 9 pass-through, 11 read-ahead,
        // 12 metadata, 13 discard, 15 fua, 16 and up zones and write-zeroes.
        assert_operation(0x0141, 4096, Op::Read, "");
        assert_operation(0x0941, 4096, Op::Read, "readahead");
        assert_operation(0x1142, 4096, Op::Write, "meta");
        assert_operation(0x814a, 4096, Op::Write, "sync+fua");
        assert_operation(0x914e, 4096, Op::Write, "sync+fua+preflush+meta");
        assert_operation(0x014e, 0, Op::Flush, "sync");
        assert_operation(0x0145, 0, Op::Flush, "");
        assert_operation(0x2142, 65536, Op::Discard, "");
        assert_operation(0x0241, 36, Op::Other, "");
        assert_operation(0x0245, 0, Op::Other, "preflush");
        assert_operation(0x0141, 0, Op::Other, "");
        assert_operation(0x40_0142, 4096, Op::WriteZeroes, "");
        assert_operation(0x01_0142, 4096, Op::ZoneAppend, "");
        assert_operation(0x02_0142, 0, Op::ZoneReset, "");
        assert_operation(0x04_0142, 0, Op::ZoneReset, "");
        assert_operation(0x08_0142, 0, Op::Other, "");
        // The end of a flush sequence.
        assert_operation(0x018a, 0, Op::Write, "sync");
    }

    #[test]
    fn completions_and_merges_of_requests_are_told_from_those_of_bios() {
        let step = |action| step_of(&record(action, 0, 512));
        assert_eq!(step(0x0182_0008), Some(Step::RequestCompleted));
        assert_eq!(step(0x0281_0008), Some(Step::RequestCompleted));
        assert_eq!(step(0x0082_0008), Some(Step::BioCompleted));
        assert_eq!(step(0x0012_0002), Some(Step::BioMerged));
        assert_eq!(step(0x0112_0002), Some(Step::RequestsMerged));
        assert_eq!(step(0x0012_0003), Some(Step::BioMerged));
        assert_eq!(step(0x0012_0001), Some(Step::Queued));
        assert_eq!(step(0x0142_0007), Some(Step::Issued));
        assert_eq!(step(0x0122_0006), Some(Step::Requeued));
        assert_eq!(step(0x0002_000d), Some(Step::Split));
        for other in [
            0x0012_0004,
            0x0011_0009,
            0x0011_000a,
            0x0112_000c,
            0x0012_000f,
            0x0400_0001,
        ] {
            assert_eq!(step(other), None, "{other:#x}");
        }
    }

    #[test]
    fn each_step_has_what_belongs_to_it() {
        let event =
            |action, step| event_of(&record(action, 8, 4096), step, 1, DeviceIndex(2), process);
        let queued = event(0x0012_0001, Step::Queued).unwrap();
        assert_eq!((queued.cgroup, queued.error), (Some(9), None));
        assert_eq!(queued.process, Some(process()));
        assert_eq!((queued.offset_bytes, queued.length_bytes), (4096, 4096));
        let completed = event(0x0182_0008, Step::RequestCompleted).unwrap();
        assert_eq!((completed.cgroup, completed.error), (None, Some(5)));
        assert_eq!(completed.process, None);
        assert_eq!((completed.cpu, completed.time_ns), (Some(3), 1));
    }

    #[test]
    fn ranges_beyond_64_bits_are_no_events() {
        let offset = |sector, bytes| {
            event_of(
                &record(0x0142_0007, sector, bytes),
                Step::Issued,
                0,
                DeviceIndex(0),
                process,
            )
            .map(|event| event.offset_bytes)
        };
        assert_eq!(offset(NO_SECTOR, 0), Some(0));
        assert_eq!(offset(1 << 55, 512), None);
        assert_eq!(offset((1 << 55) - 1, 511), Some(u64::MAX - 511));
        assert_eq!(offset((1 << 55) - 1, 512), None);
    }
}
