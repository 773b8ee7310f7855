//! Tapes to test with.

#![allow(dead_code, reason = "each test file uses its own part")]
#![allow(clippy::unwrap_used, reason = "a test's helpers fail the test")]

use std::io::Cursor;

use iotape_formats::tape::{
    Anchor, Block, Clock, Counters, Device, Header, Layer, Level, Loss, LossReason, TapeReader,
    TapeWriter,
};
use iotape_formats::{DeviceIndex, Flags, Op, Process, Request};

pub const ANCHOR: Anchor = Anchor {
    time_ns: 0,
    wall_ns: 1_700_000_000_000_000_000,
};
pub const LOSS: Loss = Loss {
    from_ns: 5,
    to_ns: 9,
    events: 11,
    requests: None,
    reason: LossReason::RingFull,
};

pub fn header() -> Header {
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

pub fn devices() -> Vec<Device> {
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

pub fn request(number: u64) -> Request {
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
        file: None,
    }
}

/// A tape of blocks with these requests each.
pub fn tape_of(blocks: &[&[Request]], finish: bool) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = TapeWriter::create(&mut bytes, &header(), &devices(), Level::Live).unwrap();
    writer.anchor(ANCHOR).unwrap();
    for (number, block) in blocks.iter().enumerate() {
        for request in *block {
            writer.push(request).unwrap();
        }
        writer.close_block().unwrap();
        if number == 0 {
            writer.loss(LOSS).unwrap();
            writer.count(&Counters {
                late: 2,
                ..Counters::default()
            });
        }
    }
    if finish {
        writer.finish().unwrap();
    } else {
        writer.close_block().unwrap();
    }
    bytes
}

/// Three blocks of different sizes and contents.
pub fn three_blocks() -> [Vec<Request>; 3] {
    let requests: Vec<Request> = (0..60).map(request).collect();
    [
        requests[..20].to_vec(),
        requests[20..50].to_vec(),
        requests[50..].to_vec(),
    ]
}

/// Three blocks that are small enough to damage in every way.
pub fn small_blocks() -> [Vec<Request>; 3] {
    let requests: Vec<Request> = (0..12).map(request).collect();
    [
        requests[..4].to_vec(),
        requests[4..10].to_vec(),
        requests[10..].to_vec(),
    ]
}

/// All requests that a reader finds, block by block.
pub fn blocks_of(bytes: &[u8]) -> (Vec<Vec<Request>>, TapeReader<Cursor<&[u8]>>) {
    let mut reader = TapeReader::open(Cursor::new(bytes)).unwrap();
    let mut block = Block::new();
    let mut blocks = Vec::new();
    while reader.next_block(&mut block).unwrap() {
        blocks.push(block.requests().collect());
    }
    (blocks, reader)
}

/// A tape that an import just made, which must be whole, and its requests.
pub fn read_back(bytes: Vec<u8>) -> (TapeReader<Cursor<Vec<u8>>>, Vec<Request>) {
    let mut tape = TapeReader::open(Cursor::new(bytes)).unwrap();
    let mut requests = Vec::new();
    let mut block = Block::new();
    while tape.next_block(&mut block).unwrap() {
        requests.extend(block.requests());
    }
    assert!(tape.has_footer() && tape.damage().is_clean());
    (tape, requests)
}

/// A record of a tape, found by a reader of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub opcode: u8,
    pub start: usize,
    pub end: usize,
}

/// Where the records of an undamaged tape stand: behind the magic of 8 bytes, each of 21 bytes of
/// header, the payload, and 4 bytes of checksum.
pub fn places(bytes: &[u8]) -> Vec<Place> {
    let mut places = Vec::new();
    let mut start = 8;
    while bytes.len() - start > 20 {
        let length = u64::from_le_bytes(bytes[start + 9..start + 17].try_into().unwrap()) as usize;
        let end = start + 21 + length + 4;
        places.push(Place {
            opcode: bytes[start + 8],
            start,
            end,
        });
        start = end;
    }
    places
}
