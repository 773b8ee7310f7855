//! What is pushed into a tape comes out of it.

#![allow(clippy::unwrap_used, reason = "a test's helpers fail the test")]

use std::io::Cursor;

use iotape_formats::tape::{
    Anchor, Block, Clock, Counters, Device, Header, Layer, Level, Loss, LossReason, Summary,
    TapeId, TapeReader, TapeWriter,
};
use iotape_formats::{DeviceIndex, Flags, Op, Process, Request};

fn header() -> Header {
    Header {
        tool: "iotape 0.1.0".into(),
        host: Some("mail".into()),
        os: None,
        clock: Clock {
            source: "CLOCK_MONOTONIC".into(),
            resolution_ns: 1,
        },
        backend: "perf".into(),
        options: vec!["layer=device".into()],
        notes: vec!["no cgroup".into()],
        ..Header::default()
    }
}

fn devices() -> Vec<Device> {
    let sda = Device {
        name: "sda".into(),
        size_bytes: Some(1 << 40),
        ..Device::default()
    };
    let sdb = Device {
        index: DeviceIndex(1),
        name: "sdb".into(),
        layer: Layer::Queue,
        rotational: Some(true),
        ..sda.clone()
    };
    vec![sda, sdb]
}

fn request(number: u64) -> Request {
    Request {
        time_ns: number * 1000,
        device: DeviceIndex((number % 2) as u16),
        op: if number.is_multiple_of(3) {
            Op::Write
        } else {
            Op::Read
        },
        flags: if number.is_multiple_of(5) {
            Flags::SYNC | Flags::FUA
        } else {
            Flags::NONE
        },
        offset_bytes: number * 4096,
        length_bytes: 4096,
        latency_ns: (!number.is_multiple_of(7)).then_some(number * 3),
        queue_ns: None,
        process: Some(Process {
            pid: 100 + (number % 4) as u32,
            name: "imap".into(),
        }),
        cgroup: None,
        cpu: Some((number % 8) as u32),
        error: None,
    }
}

fn read_all(bytes: &[u8]) -> (Vec<Request>, TapeReader<Cursor<&[u8]>>) {
    let mut reader = TapeReader::open(Cursor::new(bytes)).unwrap();
    let mut block = Block::new();
    let mut requests = Vec::new();
    while reader.next_block(&mut block).unwrap() {
        requests.extend(block.requests());
    }
    (requests, reader)
}

fn tape(finished: bool) -> (Vec<u8>, Vec<Request>, Option<Summary>) {
    let requests: Vec<Request> = (0..100).map(request).collect();
    let mut bytes = Vec::new();
    let mut writer = TapeWriter::create(&mut bytes, &header(), &devices(), Level::Live).unwrap();
    writer
        .anchor(Anchor {
            time_ns: 0,
            wall_ns: 1_700_000_000_000_000_000,
        })
        .unwrap();
    for (number, request) in requests.iter().enumerate() {
        writer.push(request).unwrap();
        if number % 30 == 29 {
            writer.close_block().unwrap();
        }
    }
    writer
        .loss(Loss {
            from_ns: 5,
            to_ns: 9,
            events: 11,
            reason: LossReason::RingFull,
        })
        .unwrap();
    writer.count(&Counters {
        late: 2,
        ..Counters::default()
    });
    writer.close_block().unwrap();
    let summary = finished.then(|| writer.finish().unwrap().1);
    (bytes, requests, summary)
}

#[test]
fn everything_comes_back_with_and_without_a_footer() {
    for finished in [true, false] {
        let (bytes, requests, summary) = tape(finished);
        let (read, reader) = read_all(&bytes);
        assert_eq!(read, requests);
        assert_eq!(
            (reader.header(), reader.devices()),
            (&header(), &devices()[..])
        );
        assert_eq!(
            reader.anchors(),
            [Anchor {
                time_ns: 0,
                wall_ns: 1_700_000_000_000_000_000
            }]
        );
        assert_eq!(
            reader.losses(),
            [Loss {
                from_ns: 5,
                to_ns: 9,
                events: 11,
                reason: LossReason::RingFull
            }]
        );
        assert_eq!(reader.has_footer(), finished);
        assert!(reader.damage().is_clean(), "{:?}", reader.damage());
        if let Some(summary) = summary {
            assert_eq!(reader.summary(), &summary);
        }
        let totals = reader.summary();
        assert_eq!(
            (totals.requests, totals.first_ns, totals.last_ns),
            (100, 0, 99_000)
        );
        assert_eq!(totals.by_op[1].requests, 34);
        assert_eq!(totals.by_op[1].bytes, 34 * 4096);
        assert_eq!((totals.counters.lost_events, totals.counters.late), (11, 2));
        assert_eq!(totals.id, requests.iter().map(TapeId::of).sum());
        assert_eq!(
            (
                totals.devices[0].min_offset_bytes,
                totals.devices[0].end_bytes
            ),
            (0, 99 * 4096)
        );
        assert_eq!(
            (
                totals.devices[1].min_offset_bytes,
                totals.devices[1].end_bytes
            ),
            (4096, 100 * 4096)
        );
    }
}

#[test]
fn the_reader_rewinds() {
    let (bytes, requests, _) = tape(true);
    let (_, mut reader) = read_all(&bytes);
    reader.rewind();
    let mut block = Block::new();
    assert!(reader.next_block(&mut block).unwrap());
    assert_eq!(block.requests().collect::<Vec<_>>(), &requests[..30]);
}
