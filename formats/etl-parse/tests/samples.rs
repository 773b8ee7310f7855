//! Real traces. What they must decode to was written down by whoever collected them.

#![allow(clippy::unwrap_used, reason = "a test's helpers fail the test")]

#[path = "support/samples.rs"]
mod samples;

use std::collections::{BTreeMap, HashMap};
use std::io::Cursor;

use etl_parse::kernel::{DiskIo, LogDisk, PhyDisk, ProcessInfo, Response, ThreadInfo};
use etl_parse::{EventId, Reader};
use samples::sample;

type Trace = Reader<Cursor<Vec<u8>>>;

fn open(name: &str) -> Option<Trace> {
    sample(name).map(|bytes| Reader::open(Cursor::new(bytes)).unwrap())
}

/// A disk completion: operation, completion, response, issue (ticks), disk, offset, bytes, flags, Irp,
/// process at its Init, processor.
type Row = (char, i64, u64, i64, u32, u64, u32, u32, u64, u32, u16);

fn golden() -> Option<Vec<Row>> {
    let text = String::from_utf8(sample("golden.x64.csv.xz")?).unwrap();
    let mut lines = text.lines();
    let columns: Vec<&str> = lines.next().unwrap().split(',').collect();
    let rows = lines.map(|line| {
        let fields: HashMap<&str, &str> = columns.iter().copied().zip(line.split(',')).collect();
        let number = |name: &str| fields[name].parse::<u64>().unwrap();
        let hex = |name: &str| u64::from_str_radix(&fields[name][2..], 16).unwrap();
        (
            fields["op"].chars().next().unwrap(),
            number("complete_qpc") as i64,
            number("resp_qpc"),
            number("issue_qpc_derived") as i64,
            number("disk") as u32,
            fields["offset"].parse().unwrap_or(0),
            fields["size"].parse().unwrap_or(0),
            hex("irpflags") as u32,
            hex("irp"),
            number("pid_from_init") as u32,
            number("cpu") as u16,
        )
    });
    let mut rows: Vec<Row> = rows.collect();
    rows.sort_unstable();
    Some(rows)
}

fn disk_rows(mut trace: Trace) -> Vec<Row> {
    let mut open = HashMap::new();
    let mut rows = Vec::new();
    while let Some(event) = trace.next_event().unwrap() {
        let Some(disk_event) = DiskIo::parse(&event) else {
            continue;
        };
        let done = event.ticks.unwrap();
        let ticks = |response| match response {
            Response::PerfTicks(ticks) => ticks,
            Response::Unknown => panic!("version 3 has a response"),
        };
        match disk_event {
            DiskIo::Init(init) => {
                open.insert(init.irp, event.process_id.unwrap());
            }
            DiskIo::Transfer(transfer) => {
                let response = ticks(transfer.response);
                let irp = transfer.irp.unwrap();
                rows.push((
                    if transfer.is_write { 'W' } else { 'R' },
                    done,
                    response,
                    done - response as i64,
                    transfer.disk,
                    transfer.offset,
                    transfer.bytes,
                    transfer.irp_flags,
                    irp,
                    open.remove(&irp).unwrap(),
                    event.processor,
                ));
            }
            DiskIo::Flush(flush) => {
                let response = ticks(flush.response);
                let pid = open.remove(&flush.irp).unwrap();
                let issue = done - response as i64;
                let (disk, flags, irp) = (flush.disk, flush.irp_flags, flush.irp);
                rows.push((
                    'F',
                    done,
                    response,
                    issue,
                    disk,
                    0,
                    0,
                    flags,
                    irp,
                    pid,
                    event.processor,
                ));
            }
            DiskIo::Malformed => panic!("malformed {event:?}"),
        }
    }
    assert!(open.is_empty() && trace.damage().is_none() && trace.losses().is_none());
    rows.sort_unstable();
    rows
}

#[test]
fn disk_events_are_those_of_the_golden_decode() {
    let Some(golden) = golden() else { return };
    let count = |op| golden.iter().filter(|row| row.0 == op).count();
    assert_eq!((count('R'), count('W'), count('F')), (1208, 21, 2));
    for name in ["disk-only.x64.etl.xz", "net.4.5.2.x64.etl.zip"] {
        let Some(trace) = open(name) else { return };
        assert_eq!(disk_rows(trace), golden, "{name}");
    }
}

#[test]
fn a_merged_compressed_trace_is_read_whole_and_in_order() {
    let Some(mut trace) = open("net.4.5.2.x64.etl.zip") else {
        return;
    };
    assert_eq!(trace.buffers(), 360);
    let header = trace.header().clone();
    assert_eq!((header.os_build, header.processors), (9200, 8));
    assert_eq!(
        (header.session.as_str(), header.file.as_str()),
        ("Relogger", "[multiple files]")
    );
    let (mut events, mut last) = (0, i64::MIN);
    while let Some(event) = trace.next_event().unwrap() {
        events += 1;
        let ticks = event.ticks.unwrap_or(last);
        assert!(ticks >= last);
        assert_ne!(event.id, EventId::Malformed);
        last = ticks;
    }
    assert_eq!(events, 179_474);
    assert_eq!(trace.bytes_read(), trace.file_bytes());
    assert!(trace.damage().is_none(), "{:?}", trace.damage());
}

#[test]
fn configuration_processes_and_threads() {
    let Some(mut trace) = open("disk-only.x64.etl.xz") else {
        return;
    };
    let (mut disks, mut partitions, mut names, mut threads) =
        (Vec::new(), Vec::new(), BTreeMap::new(), HashMap::new());
    while let Some(event) = trace.next_event().unwrap() {
        disks.extend(PhyDisk::parse(&event));
        partitions.extend(LogDisk::parse(&event));
        if let Some(process) = ProcessInfo::parse(&event) {
            names.insert(process.process_id, process.image);
        }
        if let Some(thread) = ThreadInfo::parse(&event) {
            threads.insert(thread.thread_id, thread.process_id);
        }
    }
    let [disk] = &disks[..] else {
        panic!("{disks:?}")
    };
    assert_eq!((disk.disk, disk.sector_bytes, disk.partitions), (0, 512, 2));
    assert_eq!(disk.model, "Virtual HD ATA Device");
    assert_eq!(disk.geometry_bytes(), Some(16_578 * 255 * 63 * 512));
    let [partition] = &partitions[..] else {
        panic!("{partitions:?}")
    };
    assert_eq!((partition.disk, partition.letter.as_str()), (0, "C:"));
    assert_eq!(
        (partition.start_offset, partition.bytes),
        (0x15f0_0000, 0x1f_aa00_0000)
    );
    assert_eq!(
        (&*names[&0], &*names[&4], &*names[&0xe5c]),
        ("Idle", "System", "Test.x64.exe")
    );
    assert_eq!(threads[&44], 4);
}

#[test]
fn traces_without_disk_events_are_read_without_complaint() {
    // name, buffers, events lost, numbers missing
    let traces = [
        ("AMSITrace.etl", 6, 3, 0),
        ("lxcore_kernel.etl", 3, 0, 0),
        ("SelfDescribingSingleEvent.etl", 3, 0, 0),
        ("gcevents.etl.zip", 5, 0, 0),
        ("WindowsUpdate.20251008.140245.443.8.etl", 7, 41, 0),
    ];
    for (name, buffers, lost, missing) in traces {
        let Some(mut trace) = open(name) else { return };
        while let Some(event) = trace.next_event().unwrap() {
            assert_eq!(DiskIo::parse(&event), None);
            assert_ne!(event.id, EventId::Malformed, "{name}");
        }
        assert_eq!(trace.buffers(), buffers, "{name}");
        let losses = trace.losses();
        assert_eq!(
            (losses.events, losses.missing_numbers),
            (lost, missing),
            "{name}"
        );
        assert!(trace.damage().is_none(), "{name}: {:?}", trace.damage());
    }
}

#[test]
fn a_self_describing_provider_names_itself() {
    let Some(mut trace) = open("SelfDescribingSingleEvent.etl") else {
        return;
    };
    let mut names = Vec::new();
    while let Some(event) = trace.next_event().unwrap() {
        names.extend(event.provider_name());
    }
    assert_eq!(names, ["MySource"]);
}
