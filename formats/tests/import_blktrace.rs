//! blktrace files become tapes. Expected numbers of the real samples are blkparse's.

#![allow(clippy::unwrap_used, reason = "a test's helpers fail the test")]

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::io::Cursor;
use std::path::PathBuf;

use blktrace_parse::{
    Action, ByteOrder, Categories, Decoder, DeviceNumber, Format, Kind, Record, Step, Version,
    encode,
};
use common::read_back;
use iotape_formats::import::blktrace::{
    ImportError, Options, Progress, Remap, Report, Source, find_files, import, is_trace,
};
use iotape_formats::tape::{Anchor, Layer, Loss, LossReason, TapeReader};
use iotape_formats::{Op, Request};

const V7: Format = Format::new(Version::V7, ByteOrder::Little);
const DISK: DeviceNumber = DeviceNumber(8 << 20 | 16);

/// A tape that was made, read back.
struct Imported {
    report: Report,
    tape: TapeReader<Cursor<Vec<u8>>>,
    requests: Vec<Request>,
}

fn import_with(files: &[(&str, Vec<u8>)], layer: Option<Layer>) -> Result<Imported, ImportError> {
    let source = |(name, bytes): &(&str, Vec<u8>)| Source {
        name: (*name).to_owned(),
        reader: Cursor::new(bytes.clone()),
    };
    let options = Options {
        tool: "test 1".to_owned(),
        layer,
        ..Options::default()
    };
    let sources = files.iter().map(source).collect();
    let (bytes, report) = import(sources, &options, Vec::new(), &mut |_| ())?;
    let (tape, requests) = read_back(bytes);
    assert_eq!(tape.summary(), &report.summary);
    Ok(Imported {
        report,
        tape,
        requests,
    })
}

fn import_at(layer: Layer, files: &[(&str, Vec<u8>)]) -> Imported {
    import_with(files, Some(layer)).unwrap()
}

fn import_all(files: &[(&str, Vec<u8>)]) -> Imported {
    import_with(files, None).unwrap()
}

fn record(
    cpu: u32,
    sequence: u32,
    time_ns: u64,
    kind: Kind,
    categories: Categories,
) -> Record<'static> {
    Record {
        sequence,
        time_ns,
        sector: 2048,
        bytes: 4096,
        action: Action::new(kind, categories, false),
        pid: 100 + cpu,
        device: DISK,
        cpu,
        error: 0,
        cgroup: None,
        pdu: &[],
        order: ByteOrder::Little,
    }
}

/// Q, D or C of a write.
fn write(cpu: u32, sequence: u32, time_ns: u64, kind: Kind) -> Record<'static> {
    let step = match kind {
        Kind::Issue => Categories::ISSUE | Categories::FS,
        Kind::Complete => Categories::COMPLETE | Categories::FS,
        _ => Categories::QUEUE,
    };
    record(cpu, sequence, time_ns, kind, step | Categories::WRITE)
}

fn note(time_ns: u64, pid: u32, kind: Kind, pdu: &[u8]) -> Record<'_> {
    Record {
        pid,
        pdu,
        sector: 0,
        bytes: 0,
        ..record(0, 0, time_ns, kind, Categories::NOTE)
    }
}

fn file(format: Format, records: &[Record<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for record in records {
        encode(record, format, &mut bytes).unwrap();
    }
    bytes
}

/// The folder of real samples; says why a test that needs it does nothing without it.
fn samples() -> Option<PathBuf> {
    let folder = PathBuf::from(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../shared/samples/blktrace"
    ));
    if folder.is_dir() {
        return Some(folder);
    }
    eprintln!("skipped: no samples in {}", folder.display());
    None
}

fn sample(names: &[&'static str]) -> Option<Vec<(&'static str, Vec<u8>)>> {
    let folder = samples()?;
    let read = |name: &&'static str| (*name, fs::read(folder.join(name)).unwrap());
    Some(names.iter().map(read).collect())
}

const SDA: [&str; 2] = ["sda.blktrace.0", "sda.blktrace.1"];
const MISMATCH: [&str; 1] = ["sample-cpu-mismatch.blktrace.0"];

/// Requests and sectors per operation and flags.
fn totals(requests: &[Request]) -> BTreeMap<String, (u64, u64)> {
    let mut totals = BTreeMap::new();
    for request in requests {
        let total: &mut (u64, u64) = totals
            .entry(format!("{} {}", request.op, request.flags))
            .or_default();
        total.0 += 1;
        total.1 += request.length_bytes / 512;
    }
    totals
}

fn expected(rows: &[(&str, u64, u64)]) -> BTreeMap<String, (u64, u64)> {
    let row =
        |(op, requests, sectors): &(&str, u64, u64)| ((*op).to_owned(), (*requests, *sectors));
    rows.iter().map(row).collect()
}

#[test]
fn issued_requests_equal_blkparse() {
    let Some(files) = sample(&SDA) else { return };
    let imported = import_all(&files);
    let rows = [
        ("write ", 68, 5360),
        ("write meta", 32, 836),
        ("write sync", 3, 40),
        ("write sync+meta", 6, 77),
    ];
    assert_eq!(totals(&imported.requests), expected(&rows));
    let counters = imported.report.summary.counters;
    assert_eq!(
        counters.lost_events + counters.undecodable + counters.late,
        0
    );
    assert_eq!(counters.merges, 4);
    // blkparse: 109 dispatched, 109 completed; four of the latter are of one that was issued before.
    assert_eq!(imported.report.devices[0].issued, 109);
    assert_eq!(imported.report.devices[0].completed, 109);

    let Some(files) = sample(&MISMATCH) else {
        return;
    };
    let imported = import_all(&files);
    assert_eq!(
        totals(&imported.requests),
        expected(&[("read readahead", 963, 7704)])
    );
    assert!(
        imported
            .requests
            .iter()
            .all(|request| request.cpu == Some(1))
    );
}

#[test]
fn queued_requests_equal_blkparse() {
    let Some(files) = sample(&SDA) else { return };
    let rows = [
        ("write ", 68, 5360),
        ("write meta", 36, 836),
        ("write sync", 3, 40),
        ("write sync+meta", 6, 77),
    ];
    let imported = import_at(Layer::Queue, &files);
    assert_eq!(totals(&imported.requests), expected(&rows));
    assert!(
        imported
            .requests
            .iter()
            .all(|request| request.process.is_some())
    );
}

#[test]
fn times_submitter_and_clock_equal_blkparse() {
    let Some(files) = sample(&SDA) else { return };
    let imported = import_all(&files);
    // The clock note stands 1,898,111,259 ns before the first event, from which blkparse counts:
    // Q at 0.000252703, D at 0.000418904, C at 0.004057032.
    let first = &imported.requests[0];
    assert_eq!(first.time_ns, 1_898_530_163);
    assert_eq!(
        (first.offset_bytes, first.length_bytes),
        (24_803_160 * 512, 160 * 512)
    );
    assert_eq!(first.queue_ns, Some(166_201));
    assert_eq!(first.latency_ns, Some(3_638_128));
    assert_eq!(first.error, Some(0));
    let process = first.process.clone().unwrap();
    assert_eq!((process.pid, &*process.name), (17_852, "kworker/u256:1"));
    let wall_ns = 1_605_518_127_168_810_795;
    assert_eq!(
        imported.tape.anchors(),
        [Anchor {
            time_ns: 0,
            wall_ns
        }]
    );
    let queued = &import_at(Layer::Queue, &files).requests[0];
    assert_eq!(queued.time_ns, 1_898_363_962);
    assert_eq!(queued.latency_ns, Some(3_804_329));
}

#[test]
fn the_header_names_the_device_and_where_its_bios_came_from() {
    let Some(files) = sample(&SDA) else { return };
    let imported = import_all(&files);
    let [device] = imported.tape.devices() else {
        panic!()
    };
    assert_eq!((device.name.as_str(), device.layer), ("sda", Layer::Device));
    let way = "requests reached sda by way of 8,2, 253,0 (partitions, dm or md)";
    assert!(imported.tape.header().notes.iter().any(|note| note == way));
    let [disk, partition, mapped] = [8 << 20, 8 << 20 | 2, 253 << 20].map(DeviceNumber);
    let remap = |from, to| Remap {
        from,
        to,
        bios: 113,
    };
    assert_eq!(
        imported.report.remaps,
        [remap(mapped, partition), remap(partition, disk)]
    );

    let Some(files) = sample(&MISMATCH) else {
        return;
    };
    let imported = import_all(&files);
    assert_eq!(imported.tape.devices()[0].name, "259,0");
    assert!(imported.tape.anchors().is_empty());
}

/// The same records in another format.
fn reencode(bytes: &[u8], format: Format) -> Vec<u8> {
    let mut decoder = Decoder::new();
    let mut out = Vec::new();
    loop {
        let rest = &bytes[decoder.offset() as usize..];
        match decoder.step(rest, true).unwrap().0 {
            Step::Record(record) => encode(&record, format, &mut out).unwrap(),
            Step::End => return out,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn twins_in_every_format_are_the_same_tape() {
    for names in [&SDA[..], &MISMATCH[..]] {
        let Some(files) = sample(names) else { return };
        let id = import_all(&files).tape.summary().id;
        for format in Format::ALL {
            let twin = |(name, bytes): &(&'static str, Vec<u8>)| (*name, reencode(bytes, format));
            let twins: Vec<_> = files.iter().map(twin).collect();
            assert_eq!(import_all(&twins).tape.summary().id, id, "{format}");
        }
    }
}

#[test]
fn a_request_without_completion_is_kept_without_latency() {
    let events = file(
        V7,
        &[write(0, 1, 50, Kind::Queue), write(0, 2, 100, Kind::Issue)],
    );
    let imported = import_all(&[("sdb.blktrace.0", events)]);
    let [request] = &imported.requests[..] else {
        panic!()
    };
    assert_eq!((request.time_ns, request.queue_ns), (50, Some(50)));
    assert_eq!((request.latency_ns, request.error), (None, None));
    assert_eq!(imported.report.summary.counters.unpaired_issues, 1);
    assert_eq!(imported.tape.devices()[0].name, "sdb");
}

#[test]
fn an_error_is_a_positive_errno() {
    let failed = Record {
        error: 0xfffb,
        ..write(1, 1, 300, Kind::Complete)
    };
    let files = [
        ("0", file(V7, &[write(0, 1, 100, Kind::Issue)])),
        ("1", file(V7, &[failed])),
    ];
    let imported = import_all(&files);
    assert_eq!(imported.requests[0].error, Some(5));
    assert_eq!(imported.requests[0].latency_ns, Some(200));
    assert_eq!(imported.requests[0].cpu, Some(0));
}

/// One request on CPU 0, completed on CPU 1 while events of CPU 0 are missing.
fn with_gap() -> Vec<(&'static str, Vec<u8>)> {
    let later = |cpu, sequence, time_ns, kind| Record {
        sector: 9000,
        ..write(cpu, sequence, time_ns, kind)
    };
    let first = [
        write(0, 1, 100, Kind::Issue),
        later(0, 5, 900, Kind::Issue),
        later(0, 6, 1000, Kind::Complete),
    ];
    let second = [write(1, 1, 500, Kind::Complete)];
    vec![
        ("x.blktrace.0", file(V7, &first)),
        ("x.blktrace.1", file(V7, &second)),
    ]
}

#[test]
fn a_completion_during_a_gap_proves_nothing() {
    let imported = import_all(&with_gap());
    let latencies: Vec<_> = imported
        .requests
        .iter()
        .map(|request| request.latency_ns)
        .collect();
    assert_eq!(latencies, [None, Some(100)]);
    let loss = Loss {
        from_ns: 0,
        to_ns: 800,
        events: 3,
        requests: None,
        reason: LossReason::SequenceGap,
    };
    assert_eq!(imported.tape.losses(), [loss]);
    let counters = imported.report.summary.counters;
    assert_eq!((counters.lost_events, counters.ambiguous), (3, 1));
    assert_eq!(
        imported.report.warnings(),
        [
            "x.blktrace.0: 3 records were lost",
            "the trace does not say what time of day it was"
        ]
    );
}

#[test]
fn a_torn_file_puts_what_is_open_in_doubt() {
    let mut files = with_gap();
    files[0].1.truncate(48); // whole after the first record
    let whole = import_all(&files);
    assert_eq!(whole.requests[0].latency_ns, Some(400));
    files[0].1.extend([0; 4096]);
    let killed = import_all(&files);
    assert_eq!(killed.requests[0].latency_ns, None);
    assert_eq!(
        killed.report.files[0]
            .damage
            .zero_tail
            .map(|tail| tail.offset),
        Some(48)
    );
    assert!(killed.report.warnings()[0].contains("from byte 48 on it is empty"));
}

#[test]
fn names_and_cgroups_belong_to_the_submitter() {
    let queue = Action::new(Kind::Queue, Categories::WRITE | Categories::QUEUE, true);
    let queued = Record {
        action: queue,
        cgroup: Some(42),
        ..write(0, 1, 20, Kind::Queue)
    };
    let issue = Action(write(0, 2, 30, Kind::Issue).action.0 | 1 << 8);
    let issued = Record {
        action: issue,
        cgroup: Some(7),
        pid: 9,
        ..write(0, 2, 30, Kind::Issue)
    };
    let events = [
        note(10, 100, Kind::Process, b"mysqld\0\0\0\0\0\0\0\0\0\0"),
        note(10, 9, Kind::Process, b"kworker/0:1\0\0\0\0\0"),
        queued,
        issued,
        write(0, 3, 40, Kind::Complete),
    ];
    let imported = import_all(&[("x", file(V7, &events))]);
    let process = imported.requests[0].process.clone().unwrap();
    assert_eq!((process.pid, &*process.name), (100, "mysqld"));
    assert_eq!(imported.requests[0].cgroup, Some(42));
}

#[test]
fn a_process_without_a_name_keeps_its_number() {
    let events = file(
        V7,
        &[write(0, 1, 50, Kind::Queue), write(0, 2, 100, Kind::Issue)],
    );
    let process = import_all(&[("x", events)]).requests[0]
        .process
        .clone()
        .unwrap();
    assert_eq!((process.pid, &*process.name), (100, ""));
}

#[test]
fn a_device_that_issues_nothing_is_read_at_the_queue_layer() {
    let completed = record(
        0,
        2,
        90,
        Kind::Complete,
        Categories::COMPLETE | Categories::WRITE,
    );
    let events = file(V7, &[write(0, 1, 50, Kind::Queue), completed]);
    let files = [("zram0.blktrace.0", events)];
    let imported = import_all(&files);
    assert_eq!(imported.tape.devices()[0].layer, Layer::Queue);
    assert_eq!(imported.requests[0].latency_ns, Some(40));
    let said = "8,16 issues no requests to a driver: it was traced at the queue layer";
    assert!(imported.tape.header().notes.iter().any(|note| note == said));

    let imported = import_at(Layer::Device, &files);
    assert_eq!(imported.requests, []);
    assert!(imported.report.warnings()[0].contains("its requests are at the queue layer"));
}

#[test]
fn a_stack_of_traced_devices_is_told() {
    let mapped = DeviceNumber(253 << 20 | 1);
    let mut pdu = mapped.0.to_be_bytes().to_vec();
    pdu.extend(DISK.0.to_be_bytes());
    pdu.extend([0; 8]);
    let remap = record(0, 1, 55, Kind::Remap, Categories::WRITE | Categories::QUEUE);
    let above = [Record {
        device: mapped,
        ..write(0, 1, 50, Kind::Queue)
    }];
    let below = [Record { pdu: &pdu, ..remap }, write(0, 2, 60, Kind::Issue)];
    let files = [
        ("sdb.blktrace.0", file(V7, &below)),
        ("dm-1.blktrace.0", file(V7, &above)),
    ];
    let imported = import_all(&files);
    let [disk, top] = imported.tape.devices() else {
        panic!()
    };
    assert_eq!(
        (disk.name.as_str(), disk.layer, &disk.parents[..]),
        ("sdb", Layer::Device, &[][..])
    );
    assert_eq!((top.name.as_str(), top.layer), ("dm-1", Layer::Queue));
    assert_eq!(top.parents, ["sdb"]);
}

#[test]
fn version_8_tells_write_zeroes_and_zones() {
    let issue = |sequence, sector, category| {
        let categories = Categories::WRITE | Categories::ISSUE | Categories::FS | category;
        Record {
            sector,
            ..record(0, sequence, u64::from(sequence), Kind::Issue, categories)
        }
    };
    let events = [
        issue(1, 8, Categories::WRITE_ZEROES),
        issue(2, 16, Categories::ZONE_APPEND),
        Record {
            bytes: 0,
            ..issue(3, 24, Categories::ZONE_RESET)
        },
        issue(4, 32, Categories::FUA),
    ];
    for order in [ByteOrder::Little, ByteOrder::Big] {
        let imported = import_all(&[("x", file(Format::new(Version::V8, order), &events))]);
        let ops: Vec<Op> = imported.requests.iter().map(|request| request.op).collect();
        assert_eq!(
            ops,
            [Op::WriteZeroes, Op::ZoneAppend, Op::ZoneReset, Op::Write]
        );
        let notes = &imported.tape.header().notes;
        assert!(!notes.iter().any(|note| note.contains("version 7")));
    }
}

#[test]
fn the_first_clock_note_gives_the_time_of_day_of_zero() {
    let clock = |seconds: u32| -> Vec<u8> { [seconds.to_le_bytes(), 5_u32.to_le_bytes()].concat() };
    let (first, second) = (clock(1000), clock(1001));
    let events = [
        write(0, 1, 100, Kind::Issue),
        note(300, 0, Kind::WallClock, &first),
        note(1_000_000_300, 0, Kind::WallClock, &second),
    ];
    let imported = import_all(&[("x", file(V7, &events))]);
    let anchors = [
        Anchor {
            time_ns: 0,
            wall_ns: 1_000_000_000_005 - 200,
        },
        Anchor {
            time_ns: 1_000_000_200,
            wall_ns: 1_001_000_000_005,
        },
    ];
    assert_eq!(imported.tape.anchors(), anchors);
    assert!(imported.report.has_wall_clock);
}

#[test]
fn a_device_that_turns_up_late_is_added() {
    // Further in than what is looked at before the tape begins.
    let mut events: Vec<Record<'_>> = (1..=30_000)
        .map(|sequence| write(0, sequence, 1000 * u64::from(sequence), Kind::GetRequest))
        .collect();
    events[0] = write(0, 1, 1000, Kind::Issue);
    let other = DeviceNumber(259 << 20);
    events.push(Record {
        device: other,
        ..write(0, 30_001, 40_000_000, Kind::Issue)
    });
    events.push(Record {
        device: other,
        ..write(0, 30_002, 40_000_500, Kind::Complete)
    });
    let imported = import_all(&[("sdb.blktrace.0", file(V7, &events))]);
    let names: Vec<&str> = imported
        .tape
        .devices()
        .iter()
        .map(|device| device.name.as_str())
        .collect();
    assert_eq!(names, ["sdb", "259,0"]);
    assert_eq!(imported.requests[1].device.0, 1);
    assert_eq!(imported.requests[1].latency_ns, Some(500));
}

#[test]
fn what_cannot_be_understood_is_counted() {
    let events = [
        write(0, 1, 1000, Kind::Issue),
        record(0, 2, 1100, Kind::Unknown(77), Categories::WRITE),
        Record {
            sector: 1 << 60,
            ..write(0, 3, 1200, Kind::Issue)
        },
        record(
            0,
            4,
            1300,
            Kind::Remap,
            Categories::WRITE | Categories::QUEUE,
        ),
        note(1400, 0, Kind::Message, b"hello"),
        write(0, 5, 1500, Kind::Complete),
    ];
    let imported = import_all(&[("x", file(V7, &events))]);
    let report = &imported.report;
    assert_eq!((report.records, report.messages), (6, 1));
    assert_eq!((report.unknown_actions, report.malformed), (1, 2));
    assert_eq!(report.summary.counters.undecodable, 3);
    assert_eq!(report.summary.requests, 1);
    assert_eq!(imported.requests[0].latency_ns, Some(500));
}

#[test]
fn files_without_records_are_refused() {
    let error = import_with(&[("a", Vec::new()), ("b", vec![0; 999])], None)
        .err()
        .unwrap();
    assert_eq!(
        error.to_string(),
        "2 files without a record: there is nothing to import"
    );
    let error = import_with(&[("a", b"id,name\n".to_vec())], None)
        .err()
        .unwrap();
    assert!(error.to_string().starts_with("a: not a blktrace file"));
}

/// Three writes, queued and issued on CPU 0 and completed on CPU 1 after 1,000, 2,000 and 3,000 ns.
fn three_writes() -> [Vec<u8>; 2] {
    let at = |number: u32, cpu, sequence, time_ns, kind| Record {
        sector: [0x0123_4560, 0x0a5a_5a58, 0x1fed_cba0][number as usize],
        ..write(cpu, sequence, time_ns, kind)
    };
    let base = 0x0000_9fc5_0000_0000;
    let (mut first, mut second) = (Vec::new(), Vec::new());
    for number in 0..3 {
        let time_ns = base + 10_000 * u64::from(number);
        let done_ns = time_ns + 100 + 1000 * (u64::from(number) + 1);
        first.push(at(number, 0, 2 * number + 1, time_ns, Kind::Queue));
        first.push(at(number, 0, 2 * number + 2, time_ns + 100, Kind::Issue));
        second.push(at(number, 1, number + 1, done_ns, Kind::Complete));
    }
    [file(V7, &first), file(V7, &second)]
}

#[test]
fn no_flipped_bit_makes_a_wrong_latency() {
    let whole = three_writes();
    // All bits of the second write's records.
    let of_first = (8 * 96..8 * 192).map(|bit| (0, bit));
    let of_second = (8 * 48..8 * 96).map(|bit| (1, bit));
    for (flipped_file, bit) in of_first.chain(of_second) {
        let mut files = whole.clone();
        files[flipped_file][bit / 8] ^= 1 << (bit % 8);
        let imported = import_all(&files.map(|bytes| ("x", bytes)));
        let requests = &imported.requests;
        assert!(
            (2..=4).contains(&requests.len()),
            "file {flipped_file}, bit {bit}: {requests:?}"
        );
        // A time that is wrong by a little cannot be told from a right one.
        if !(8..16).contains(&(bit / 8 % 48)) {
            let right = |latency_ns: u64| [1000, 2000, 3000].contains(&latency_ns);
            let mut latencies = requests.iter().filter_map(|request| request.latency_ns);
            assert!(
                latencies.all(right),
                "file {flipped_file}, bit {bit}: {requests:?}"
            );
        }
    }
}

#[test]
fn every_truncation_keeps_the_requests_before_it() {
    let [first, second] = three_writes();
    for length in 4..=first.len() {
        let files = [("x", first[..length].to_vec()), ("x", second.clone())];
        let imported = import_at(Layer::Device, &files);
        assert_eq!(imported.requests.len(), length / 96, "{length}");
    }
}

#[test]
fn progress_is_told() {
    let events: Vec<Record<'_>> = (1..=600_000)
        .map(|sequence| write(0, sequence, u64::from(sequence), Kind::GetRequest))
        .collect();
    let bytes = file(V7, &events);
    let source = Source {
        name: "x".to_owned(),
        reader: bytes.as_slice(),
    };
    let mut seen: Vec<Progress> = Vec::new();
    let mut progress = |progress: &Progress| seen.push(*progress);
    import(
        vec![source],
        &Options::default(),
        std::io::sink(),
        &mut progress,
    )
    .unwrap();
    let told: Vec<(u64, u64)> = seen
        .iter()
        .map(|progress| (progress.records, progress.bytes))
        .collect();
    // The record behind the one that was taken has been looked at.
    assert_eq!(
        told,
        [
            (1 << 18, 48 * ((1 << 18) + 1)),
            (1 << 19, 48 * ((1 << 19) + 1))
        ]
    );
}

#[test]
fn one_file_or_the_name_stands_for_the_set() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    for name in [
        "sda.blktrace.0",
        "sda.blktrace.2",
        "sda.blktrace.10",
        "sdb.blktrace.0",
        "other",
    ] {
        fs::write(path(name), "").unwrap();
    }
    let set = [
        path("sda.blktrace.0"),
        path("sda.blktrace.2"),
        path("sda.blktrace.10"),
    ];
    assert_eq!(find_files(&[path("sda")]).unwrap(), set);
    assert_eq!(find_files(&[path("sda.blktrace.2")]).unwrap(), set);
    let two = [path("sda.blktrace.10"), path("sda.blktrace.2")];
    assert_eq!(find_files(&two).unwrap(), two);
    let both = find_files(&[path("sdb"), path("sda.blktrace.0")]).unwrap();
    assert_eq!(both, [&[path("sdb.blktrace.0")][..], &set[..]].concat());
    assert_eq!(find_files(&[path("other")]).unwrap(), [path("other")]);
    for (name, expected) in [
        ("sda.blktrace.0", true),
        ("sda", true),
        ("other", false),
        ("sdc", false),
    ] {
        assert_eq!(is_trace(&path(name)).unwrap(), expected, "{name}");
    }
    fs::write(
        path("other"),
        file(Format::ALL[3], &[write(0, 1, 1, Kind::Queue)]),
    )
    .unwrap();
    assert!(is_trace(&path("other")).unwrap());
    fs::write(path("sda.blktrace.0"), "time_ns,device\n").unwrap();
    assert!(!is_trace(&path("sda.blktrace.0")).unwrap());
    let error = find_files(&[path("sdc")]).unwrap_err();
    assert!(matches!(error, ImportError::NoFiles { path: missing } if missing == path("sdc")));
}
