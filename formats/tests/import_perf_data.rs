//! `perf.data` becomes a tape. The files are made in memory, with known values.

#![allow(clippy::unwrap_used, reason = "a test's helpers fail the test")]

mod common;
#[path = "common/perf_data.rs"]
mod perf_data;

use std::io::Cursor;

use common::read_back;
use iotape_formats::import::perf_data::{Options, PerfDataError, Report, import, import_stream};
use iotape_formats::tape::{Anchor, Layer, LossReason, TapeReader};
use iotape_formats::{Flags, Op, Process, Request};
use perf_data::{Block, COMPLETE, ISSUE, PerfData, QUEUE};

struct Imported {
    report: Report,
    tape: TapeReader<Cursor<Vec<u8>>>,
    requests: Vec<Request>,
}

fn imported((bytes, report): (Vec<u8>, Report)) -> Imported {
    let (tape, requests) = read_back(bytes);
    assert_eq!(tape.summary(), &report.summary);
    Imported {
        report,
        tape,
        requests,
    }
}

fn try_import(bytes: &[u8]) -> Result<Imported, PerfDataError> {
    let options = Options::default();
    import(Cursor::new(bytes), &options, Vec::new(), &mut |_| ()).map(imported)
}

fn error_of(bytes: &[u8]) -> String {
    match try_import(bytes) {
        Ok(_) => panic!("it was imported"),
        Err(error) => error.to_string(),
    }
}

fn event(id: u16, time: u64, cpu: u32) -> Block {
    Block {
        id,
        time,
        cpu,
        thread: 4711,
        sector: 2048,
        sectors: 8,
        error: 0,
        rwbs: "WS",
        comm: "imapd",
    }
}

/// A write of 4 KiB and a read that fails, seen by two processors; the order of the records is that
/// in which their rings were read.
fn two_requests(is_big: bool) -> PerfData {
    let read = |id, time, cpu| Block {
        sector: 1 << 33,
        sectors: 16,
        rwbs: "RA",
        thread: 9,
        comm: "dd",
        ..event(id, time, cpu)
    };
    let mut file = PerfData::new(is_big);
    let host = file.fields().u32(64).text("mailhost", 64).bytes;
    let release = file.fields().u32(64).text("6.1.0-44", 64).bytes;
    let clock = file.fields().u32(1).u32(1);
    let clock = clock.u64(1_700_000_000_000_000_500).u64(1_000_100).bytes;
    file.features = vec![(3, host), (4, release), (29, clock)];
    file.sample(event(QUEUE, 1_000_000, 0))
        .sample(event(ISSUE, 1_002_000, 0))
        .sample(event(COMPLETE, 1_090_000, 0))
        .sample(read(QUEUE, 1_000_700, 1))
        .round()
        .sample(read(ISSUE, 1_001_000, 1))
        .sample(Block {
            error: -5,
            ..read(COMPLETE, 1_501_000, 1)
        })
        .round();
    file
}

fn assert_two_requests(imported: &Imported) {
    let process = |pid, name: &str| {
        Some(Process {
            pid,
            name: name.into(),
        })
    };
    let read = Request {
        time_ns: 1000,
        op: Op::Read,
        flags: Flags::READAHEAD,
        offset_bytes: 512 << 33,
        length_bytes: 8192,
        latency_ns: Some(500_000),
        queue_ns: Some(300),
        process: process(9, "dd"),
        cpu: Some(1),
        error: Some(5),
        ..Request::default()
    };
    let write = Request {
        time_ns: 2000,
        op: Op::Write,
        flags: Flags::SYNC,
        offset_bytes: 1 << 20,
        length_bytes: 4096,
        latency_ns: Some(88_000),
        queue_ns: Some(2000),
        process: process(4711, "imapd"),
        cpu: Some(0),
        error: Some(0),
        ..Request::default()
    };
    assert_eq!(imported.requests, [read, write]);
    let [device] = imported.tape.devices() else {
        panic!()
    };
    assert_eq!(
        (device.name.as_str(), device.layer),
        ("8:16", Layer::Device)
    );
    let header = imported.tape.header();
    assert_eq!(header.host.as_deref(), Some("mailhost"));
    assert_eq!(header.os.as_deref(), Some("Linux 6.1.0-44"));
    assert_eq!(header.backend, "import:perf");
    let anchor = Anchor {
        time_ns: 0,
        wall_ns: 1_700_000_000_000_000_400,
    };
    assert_eq!(imported.tape.anchors(), [anchor]);
    let report = &imported.report;
    assert!(!report.is_flawed(), "{:?}", report.warnings());
    assert_eq!((report.events, report.late_events), (6, 0));
}

#[test]
fn files_pipes_and_compressed_records_of_both_byte_orders_tell_the_same() {
    for is_big in [false, true] {
        let data = two_requests(is_big);
        for data in [data.clone(), data.compressed()] {
            assert_two_requests(&try_import(&data.file()).unwrap());
            assert_two_requests(&try_import(&data.pipe()).unwrap());
            let options = Options::default();
            let pipe = data.pipe();
            let stream = import_stream(&pipe[..], &options, Vec::new(), &mut |_| ());
            assert_two_requests(&imported(stream.unwrap()));
        }
    }
}

#[test]
fn samples_without_an_id_are_told_apart_by_their_tracepoint() {
    let mut data = PerfData::new(false);
    data.sample_type = perf_data::USUAL & !perf_data::IDENTIFIER;
    data.sample(event(ISSUE, 10, 0))
        .sample(event(COMPLETE, 30, 0));
    let imported = try_import(&data.file()).unwrap();
    assert_eq!(imported.requests[0].latency_ns, Some(20));
}

#[test]
fn losses_are_counted_once() {
    let mut data = PerfData::new(false);
    data.sample(event(ISSUE, 1000, 0))
        .sample(event(COMPLETE, 2000, 0));
    let lost = data.fields().u64(70).u64(5).put(&data.trailer(2500)).bytes;
    data.record(2, 0, &lost);
    data.sample(event(ISSUE, 3000, 0))
        .sample(event(COMPLETE, 4000, 0));
    // The counters count the same five, and two that no ring told of.
    let counted = data.fields().u64(7).put(&data.trailer(0)).bytes;
    data.record(13, 0, &counted);
    // Left out by a filter, not lost.
    data.record(13, 1 << 15, &counted);
    let imported = try_import(&data.file()).unwrap();
    let report = &imported.report;
    assert_eq!(report.summary.counters.lost_events, 7);
    assert!(report.is_flawed());
    let losses = imported.tape.losses();
    let seen: Vec<_> = losses
        .iter()
        .map(|loss| (loss.from_ns, loss.to_ns, loss.events, loss.reason))
        .collect();
    let full = LossReason::RingFull;
    assert_eq!(seen, [(1000, 1000, 5, full), (0, 3000, 2, full)]);
}

#[test]
fn threads_have_names_where_records_have_none() {
    let mut data = PerfData::new(false);
    data.formats = perf_data::formats(false);
    let named = data
        .fields()
        .u32(100)
        .u32(100)
        .text("parent", 8)
        .put(&data.trailer(0))
        .bytes;
    data.record(3, 0, &named);
    let forked = data.fields().u32(101).u32(100).u32(101).u32(100).u64(50);
    let forked = forked.put(&data.trailer(50)).bytes;
    data.record(7, 0, &forked);
    let renamed = data.fields().u32(101).u32(101).text("child", 8);
    let renamed = renamed.put(&data.trailer(500)).bytes;
    data.record(3, 0, &renamed);
    for (thread, time) in [(100, 100), (101, 200), (101, 600), (7, 700)] {
        let sector = time * 8;
        data.sample(Block {
            thread,
            sector,
            ..event(QUEUE, time, 0)
        });
        data.sample(Block {
            sector,
            ..event(ISSUE, time + 1, 0)
        });
    }
    let imported = try_import(&data.file()).unwrap();
    let names: Vec<&str> = imported
        .requests
        .iter()
        .map(|request| &*request.process.as_ref().unwrap().name)
        .collect();
    assert_eq!(names, ["parent", "parent", "child", ""]);
}

#[test]
fn what_cannot_be_imported_is_named() {
    let not = error_of(b"something else");
    assert!(not.contains("expected PERFILE2"), "{not}");
    assert!(error_of(b"").contains("found nothing"));

    let data = two_requests(false);
    let file = data.file();
    let options = Options::default();
    let stream = import_stream(&file[..], &options, Vec::new(), &mut |_| ());
    assert!(matches!(stream, Err(PerfDataError::NeedsFile)));

    // A recorder that was killed has written neither sizes nor descriptions.
    let mut killed = file.clone();
    killed[0x30..0x38].fill(0);
    assert!(error_of(&killed).contains("no TRACING_DATA"));

    let mut other = data.clone();
    other.formats = vec![("sched", "name: sched_switch\nID: 1\n".to_owned())];
    assert!(error_of(&other.file()).contains("it holds sched:sched_switch"));

    let mut unusable = data.clone();
    unusable
        .formats
        .push(("block", "name: block_split\nID: 7\n".to_owned()));
    let report = try_import(&unusable.file()).unwrap().report;
    assert!(report.is_flawed());
    assert!(report.warnings()[0].contains("block_split: its format has no field"));

    let mut large = file.clone();
    large[0x10..0x18].copy_from_slice(&u64::MAX.to_le_bytes());
    assert!(error_of(&large).contains("attr_size"));
}

#[test]
fn a_layer_without_its_events_is_told() {
    let mut data = PerfData::new(false);
    data.sample(event(QUEUE, 10, 0))
        .sample(event(COMPLETE, 30, 0));
    let report = try_import(&data.file()).unwrap().report;
    assert_eq!((report.queued, report.issued), (1, 0));
    let warnings = report.warnings();
    assert!(
        warnings[0].starts_with("no request at this layer"),
        "{warnings:?}"
    );
}

#[test]
fn damaged_records_are_counted_and_the_others_kept() {
    let mut data = PerfData::new(false);
    data.sample(event(ISSUE, 1000, 0));
    let torn = data.records.len();
    data.records.extend([0; 24]);
    data.sample(event(COMPLETE, 2000, 0));
    data.sample(Block {
        rwbs: "?",
        ..event(ISSUE, 3000, 0)
    });
    data.sample(Block {
        id: 5,
        ..event(ISSUE, 3000, 0)
    });
    data.record(9, 0, &[1; 20]);
    let imported = try_import(&data.file()).unwrap();
    assert_eq!(imported.requests.len(), 1);
    assert_eq!(imported.requests[0].latency_ns, Some(1000));
    let report = imported.report;
    assert_eq!(report.damage.skipped_bytes, 24);
    assert_eq!(
        report.damage.first_offset,
        Some((104 + 3 * 136 + torn) as u64)
    );
    assert_eq!((report.malformed, report.other_samples), (2, 1));
    assert_eq!(report.summary.counters.undecodable, 2);
}

/// No cut and no flipped bit makes it panic, and what is imported is a whole tape.
#[test]
fn whatever_is_damaged_is_an_error_or_counted() {
    let mut state = 88_172_645_463_325_252u64;
    let mut random = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 20) as usize % below
    };
    for data in [two_requests(false), two_requests(true).compressed()] {
        for bytes in [data.file(), data.pipe()] {
            for cut in 0..bytes.len() {
                let _ = try_import(&bytes[..cut]);
            }
            for _ in 0..1000 {
                let mut flipped = bytes.clone();
                let at = random(flipped.len());
                flipped[at] ^= 1 << random(8);
                let _ = try_import(&flipped);
            }
        }
    }
}
