//! What is pushed into a tape comes out of it.

#![allow(clippy::unwrap_used, reason = "a test's helpers fail the test")]

mod common;

use std::io::Cursor;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use common::{ANCHOR, LOSS, blocks_of, devices, header, request, tape_of, three_blocks};
use iotape_formats::tape::{
    BLOCK_REQUESTS, Block, Columns, Counters, Device, Header, Level, TapeError, TapeId, TapeReader,
    TapeWriter, check,
};
use iotape_formats::{DeviceIndex, Flags, Op, Process, Request};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

#[test]
fn everything_comes_back_with_and_without_a_footer() {
    let blocks = three_blocks();
    let parts: Vec<&[Request]> = blocks.iter().map(Vec::as_slice).collect();
    for finished in [true, false] {
        let bytes = tape_of(&parts, finished);
        let (read, reader) = blocks_of(&bytes);
        assert_eq!(read, blocks);
        assert_eq!(
            (reader.header(), reader.devices()),
            (&header(), &devices()[..])
        );
        assert_eq!(
            (reader.anchors(), reader.losses()),
            (&[ANCHOR][..], &[LOSS][..])
        );
        assert_eq!(reader.has_footer(), finished);
        assert!(reader.damage().is_clean(), "{:?}", reader.damage());
        let totals = reader.summary();
        assert_eq!(
            (totals.requests, totals.first_ns, totals.last_ns),
            (60, 0, 59_000)
        );
        assert_eq!(
            (totals.by_op[1].requests, totals.by_op[1].bytes),
            (20, 20 * 4096)
        );
        assert_eq!((totals.counters.lost_events, totals.counters.late), (11, 2));
        assert_eq!(totals.id, blocks.iter().flatten().map(TapeId::of).sum());
        assert_eq!(
            (
                totals.devices[0].min_offset_bytes,
                totals.devices[0].end_bytes
            ),
            (0, 59 * 4096)
        );
        assert_eq!(
            (
                totals.devices[1].min_offset_bytes,
                totals.devices[1].end_bytes
            ),
            (4096, 60 * 4096)
        );
    }
}

#[test]
fn the_reader_rewinds_and_counts_nothing_twice() {
    let blocks = three_blocks();
    let bytes = tape_of(&[&blocks[0], &blocks[1]], true);
    let mut reader = TapeReader::open(Cursor::new(&bytes)).unwrap();
    let mut block = Block::new();
    for _ in 0..2 {
        assert!(reader.next_block(&mut block).unwrap());
        assert_eq!(block.requests().collect::<Vec<_>>(), blocks[0]);
        reader.rewind();
    }
    while reader.next_block(&mut block).unwrap() {}
    assert!(reader.damage().is_clean());
}

#[test]
fn a_full_block_is_written_without_being_asked() {
    let mut writer = TapeWriter::create(Vec::new(), &header(), &devices(), Level::Live).unwrap();
    let start = writer.bytes_written();
    for number in 0..BLOCK_REQUESTS as u64 {
        assert_eq!(writer.bytes_written(), start);
        writer.push(&request(number)).unwrap();
    }
    assert!(writer.bytes_written() > start);
    writer.push(&request(0)).unwrap();
    let (bytes, summary) = writer.finish().unwrap();
    assert_eq!(summary.requests, BLOCK_REQUESTS as u64 + 1);
    let sizes: Vec<usize> = blocks_of(&bytes).0.iter().map(Vec::len).collect();
    assert_eq!(sizes, [BLOCK_REQUESTS, 1]);
}

#[test]
fn pauses_lie_within_a_block_and_change_no_byte() {
    let requests: Vec<Request> = (0..500).map(request).collect();
    let written = |pauses: Option<&Arc<AtomicUsize>>| {
        let mut bytes = Vec::new();
        let mut writer =
            TapeWriter::create(&mut bytes, &header(), &devices(), Level::Live).unwrap();
        if let Some(pauses) = pauses.map(Arc::clone) {
            writer.pause_with(move || _ = pauses.fetch_add(1, Relaxed));
        }
        for request in &requests {
            writer.push(request).unwrap();
        }
        let before = pauses.map(|pauses| pauses.load(Relaxed));
        writer.finish().unwrap();
        (bytes, before)
    };
    let pauses = Arc::default();
    let (bytes, before) = written(Some(&pauses));
    assert_eq!(before, Some(0));
    assert!(pauses.load(Relaxed) > 10, "{pauses:?}");
    assert_eq!(bytes, written(None).0);
}

#[test]
fn counts_without_requests_are_kept() {
    let mut writer = TapeWriter::create(Vec::new(), &header(), &devices(), Level::Live).unwrap();
    writer.close_block().unwrap();
    writer.count(&Counters {
        merges: 3,
        ..Counters::default()
    });
    writer.close_block().unwrap();
    writer.count(&Counters {
        merges: 4,
        ..Counters::default()
    });
    let (bytes, summary) = writer.finish().unwrap();
    assert_eq!(summary.counters.merges, 7);
    let (blocks, reader) = blocks_of(&bytes);
    assert!(blocks.is_empty());
    assert_eq!(reader.summary().counters.merges, 7);
    assert!(check(Cursor::new(&bytes)).unwrap().is_clean());
}

#[test]
fn columns_that_are_not_wanted_are_absent_and_change_no_other() {
    let blocks = three_blocks();
    let bytes = tape_of(&[&blocks[0]], true);
    let mut reader = TapeReader::open(Cursor::new(&bytes)).unwrap();
    reader.select(Columns::CORE | Columns::LATENCY);
    let mut block = Block::new();
    assert!(reader.next_block(&mut block).unwrap());
    let expected = blocks[0].iter().map(|request| Request {
        process: None,
        cpu: None,
        ..request.clone()
    });
    assert_eq!(
        block.requests().collect::<Vec<_>>(),
        expected.collect::<Vec<_>>()
    );
    assert_eq!(
        (
            block.cpus().count(),
            block.cpus().len(),
            block.cpus().get(0)
        ),
        (0, 20, None)
    );
    assert_eq!(block.latencies_ns().count(), 17);
    assert_eq!(
        block.latencies_ns().iter().flatten().sum::<u64>(),
        3 * (190 - 7 - 14)
    );
}

#[test]
fn requests_that_cannot_be_stored_are_refused_and_the_tape_goes_on() {
    let mut writer = TapeWriter::create(Vec::new(), &header(), &devices(), Level::Live).unwrap();
    let beyond = Request {
        offset_bytes: u64::MAX,
        length_bytes: 1,
        ..request(1)
    };
    assert!(matches!(
        writer.push(&beyond),
        Err(TapeError::RangeOverflow { .. })
    ));
    let nowhere = Request {
        device: DeviceIndex(2),
        ..request(1)
    };
    assert!(matches!(
        writer.push(&nowhere),
        Err(TapeError::UnknownDevice {
            device: 2,
            devices: 2,
            ..
        })
    ));
    let name = "x".repeat(4097).into();
    let named = Request {
        process: Some(Process { pid: 1, name }),
        ..request(1)
    };
    assert!(matches!(
        writer.push(&named),
        Err(TapeError::NameTooLong { bytes: 4097, .. })
    ));
    writer.push(&request(1)).unwrap();
    let (bytes, _) = writer.finish().unwrap();
    assert_eq!(blocks_of(&bytes).0, [[request(1)]]);
}

#[test]
fn devices_must_count_from_0() {
    let created = TapeWriter::create(Vec::new(), &header(), &devices()[1..], Level::Live);
    assert!(matches!(
        created,
        Err(TapeError::DeviceOrder {
            found: 1,
            expected: 0,
            ..
        })
    ));
}

#[test]
fn a_device_that_turns_up_late_is_known_at_once() {
    for finish in [true, false] {
        let mut bytes = Vec::new();
        let mut writer =
            TapeWriter::create(&mut bytes, &header(), &devices()[..1], Level::Live).unwrap();
        writer.push(&request(0)).unwrap();
        writer.close_block().unwrap();
        writer.device(&devices()[1]).unwrap();
        writer.push(&request(1)).unwrap();
        writer.close_block().unwrap();
        if finish {
            writer.finish().unwrap();
        }
        let reader = TapeReader::open(Cursor::new(&bytes)).unwrap();
        assert_eq!(reader.devices(), devices());
        assert!(reader.damage().is_clean());
    }
}

#[test]
fn thousands_of_small_blocks_keep_the_footer_small() {
    let mut writer = TapeWriter::create(Vec::new(), &header(), &devices(), Level::Live).unwrap();
    for number in 0..20_000 {
        writer.push(&request(number)).unwrap();
        writer.anchor(common::ANCHOR).unwrap();
        writer.loss(LOSS).unwrap();
        writer.close_block().unwrap();
    }
    let before = writer.bytes_written();
    let (bytes, summary) = writer.finish().unwrap();
    // 16,384 index entries of 36 bytes, 4,096 anchors of 16 and as many losses of 25.
    assert!(bytes.len() as u64 - before < 16_384 * 36 + 4096 * 41 + 1000);
    assert_eq!(summary.counters.lost_events, 220_000);
    let reader = TapeReader::open(Cursor::new(&bytes)).unwrap();
    assert!(reader.losses().len() <= 4096);
    assert_eq!(
        reader.losses().iter().map(|loss| loss.events).sum::<u64>(),
        220_000
    );
    assert!(reader.anchors().len() <= 4096);
    assert_eq!(reader.summary().requests, 20_000);
}

#[test]
fn many_process_names_close_a_block_early() {
    let mut writer = TapeWriter::create(Vec::new(), &header(), &devices(), Level::Live).unwrap();
    for pid in 0..600u32 {
        let name = format!("{pid:04}").repeat(1000).into();
        writer
            .push(&Request {
                process: Some(Process { pid, name }),
                ..request(1)
            })
            .unwrap();
    }
    let (bytes, _) = writer.finish().unwrap();
    let (blocks, reader) = blocks_of(&bytes);
    // 263 names of 4,000 bytes reach 1 MiB.
    assert_eq!(
        blocks.iter().map(Vec::len).collect::<Vec<_>>(),
        [263, 263, 74]
    );
    assert_eq!(blocks[2][73].process.as_ref().unwrap().name.len(), 4000);
    assert!(reader.damage().is_clean());
}

/// Numbers of every size, and small ones more often.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![
        0..10u64,
        0..100_000u64,
        any::<u64>(),
        Just(u64::MAX),
        (0..50u64).prop_map(|page| page * 4096)
    ]
}

fn any_request() -> impl Strategy<Value = Request> {
    let core = (number(), 0..2u16, 0..8u8, any::<u32>(), number(), number());
    let times = (
        option::of(number()),
        option::of(number()),
        option::of(number()),
    );
    let process = option::of((
        0..6u32,
        prop_oneof!["", "[a-zäß,\"\n]{1,8}", Just("imap".to_owned())],
    ));
    let numbers = (option::of(0..4u32), option::of(any::<u32>()));
    (core, times, process, numbers).prop_map(|(core, times, process, numbers)| {
        let (time_ns, device, op, flags, offset_bytes, length) = core;
        Request {
            time_ns,
            device: DeviceIndex(device),
            op: Op::from_number(op).unwrap(),
            flags: Flags::from_bits(flags),
            offset_bytes,
            length_bytes: length.min(u64::MAX - offset_bytes),
            latency_ns: times.0,
            queue_ns: times.1,
            process: process.map(|(pid, name)| Process {
                pid,
                name: name.into(),
            }),
            cgroup: times.2,
            cpu: numbers.0,
            error: numbers.1,
            file: None,
        }
    })
}

/// Drops the optional columns whose bit is not set, in all requests.
fn without(mut requests: Vec<Request>, columns: u8) -> Vec<Request> {
    let keep = |bit: u8| columns & 1 << bit != 0;
    for request in &mut requests {
        request.latency_ns = request.latency_ns.filter(|_| keep(0));
        request.queue_ns = request.queue_ns.filter(|_| keep(1));
        request.process = request.process.take().filter(|_| keep(2));
        request.cgroup = request.cgroup.filter(|_| keep(3));
        request.file = request.cgroup.filter(|_| keep(1)).map(u64::swap_bytes);
        request.cpu = request.cpu.filter(|_| keep(4));
        request.error = request.error.filter(|_| keep(5));
    }
    requests
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_requests_in_any_blocks_come_back(
        requests in vec(any_request(), 0..120),
        columns in any::<u8>(),
        closings in vec(1..60usize, 1..5),
        archive in any::<bool>(),
        finish in any::<bool>(),
    ) {
        let requests = without(requests, columns);
        let level = if archive { Level::Archive } else { Level::Live };
        let mut bytes = Vec::new();
        let mut writer = TapeWriter::create(&mut bytes, &Header::default(), &devices(), level).unwrap();
        let mut closings = closings.into_iter().cycle();
        let mut left = closings.next().unwrap();
        for request in &requests {
            writer.push(request).unwrap();
            left -= 1;
            if left == 0 {
                writer.close_block().unwrap();
                left = closings.next().unwrap();
            }
        }
        if finish {
            writer.finish().unwrap();
        } else {
            writer.close_block().unwrap();
        }
        let (blocks, reader) = blocks_of(&bytes);
        prop_assert_eq!(blocks.concat(), requests.clone());
        prop_assert!(reader.damage().is_clean(), "{:?}", reader.damage());
        prop_assert_eq!(reader.summary().id, requests.iter().map(TapeId::of).sum());
        let report = check(Cursor::new(&bytes)).unwrap();
        prop_assert_eq!((report.is_clean(), report.requests), (finish, requests.len() as u64));
    }
}

#[test]
fn more_devices_than_a_tape_can_number_are_refused() {
    let mut writer = TapeWriter::create(Vec::new(), &header(), &[], Level::Live).unwrap();
    for index in 0..=u16::MAX {
        writer
            .device(&Device {
                index: DeviceIndex(index),
                ..Device::default()
            })
            .unwrap();
    }
    let again = writer.device(&Device {
        index: DeviceIndex(0),
        ..Device::default()
    });
    assert!(matches!(
        again,
        Err(TapeError::DeviceOrder {
            found: 0,
            expected: 65_536,
            ..
        })
    ));
    writer
        .push(&Request {
            device: DeviceIndex(u16::MAX),
            ..Request::default()
        })
        .unwrap();
    let (bytes, _) = writer.finish().unwrap();
    let reader = TapeReader::open(Cursor::new(&bytes)).unwrap();
    assert_eq!(reader.devices().len(), 65_536);
}
