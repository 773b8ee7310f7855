//! Traces for the tests: small ones built in memory, and the real samples where they are.

#![allow(dead_code)] // each test file uses its part
#![allow(clippy::unwrap_used)] // a helper fails like a test

use std::path::PathBuf;

use blktrace_parse::{
    Action, ByteOrder, Categories, Damage, Decoder, DeviceNumber, Format, Gap, Kind, Payload,
    Record, SequenceTracker, Step, Version, encode,
};

/// Version 7 of a little-endian machine: what almost every file is.
pub const V7: Format = Format::new(Version::V7, ByteOrder::Little);
/// Version 8 of a little-endian machine.
pub const V8: Format = Format::new(Version::V8, ByteOrder::Little);

/// A record with plain values; the tests change what they are about.
pub fn record(sequence: u32, kind: Kind, categories: Categories) -> Record<'static> {
    Record {
        sequence,
        time_ns: 1_000_000 * u64::from(sequence),
        sector: 2048 + 8 * u64::from(sequence),
        bytes: 4096,
        action: Action::new(kind, categories, false),
        pid: 4711,
        device: DeviceNumber(8 << 20 | 16),
        cpu: 0,
        error: 0,
        cgroup: None,
        pdu: &[],
        order: ByteOrder::Little,
    }
}

/// An issued read.
pub fn issue(sequence: u32) -> Record<'static> {
    record(
        sequence,
        Kind::Issue,
        Categories::READ | Categories::ISSUE | Categories::FS,
    )
}

/// A note with this payload.
pub fn note(kind: Kind, pdu: &[u8]) -> Record<'_> {
    Record {
        sequence: 0,
        sector: 0,
        bytes: 0,
        pdu,
        ..record(0, kind, Categories::NOTE)
    }
}

/// The file of these records.
pub fn file(format: Format, records: &[Record<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for record in records {
        encode(record, format, &mut bytes).unwrap();
    }
    bytes
}

/// What a record says, free of its file's format.
#[derive(Clone, Debug, PartialEq)]
pub struct Said {
    pub header: Record<'static>,
    pub payload: String,
}

/// Strips a record of its format.
pub fn said(record: &Record<'_>) -> Said {
    Said {
        header: Record {
            pdu: &[],
            order: ByteOrder::Little,
            ..*record
        },
        payload: format!("{:?}", record.payload()),
    }
}

/// All that a decoder says of a file.
#[derive(Debug, PartialEq)]
pub struct Decoded {
    pub records: Vec<Said>,
    pub damage: Damage,
}

/// Decodes a file that is fed in pieces of `chunk` bytes, and checks that every byte is accounted
/// for.
pub fn decode_in(chunk: usize, bytes: &[u8]) -> Decoded {
    let mut decoder = Decoder::new();
    let mut records = Vec::new();
    let (mut start, mut end) = (0, 0);
    loop {
        let last = end == bytes.len();
        let (step, used) = decoder.step(&bytes[start..end], last).unwrap();
        start += used;
        assert_eq!(decoder.offset(), start as u64);
        match step {
            Step::Record(record) => records.push(said(&record)),
            Step::Skipped => assert_ne!(used, 0),
            Step::More(wanted) => {
                assert!(!last && wanted > end - start);
                end = bytes.len().min(end + chunk);
            }
            Step::End => break,
        }
    }
    assert_eq!(start, bytes.len());
    let damage = decoder.damage().clone();
    Decoded { records, damage }
}

/// Decodes a file that is there as a whole.
pub fn decode(bytes: &[u8]) -> Decoded {
    decode_in(usize::MAX / 2, bytes)
}

/// All gaps of a file, confirmed or not.
pub fn gaps(records: &[Record<'_>]) -> (Vec<Gap>, SequenceTracker) {
    let mut tracker = SequenceTracker::new();
    let mut gaps: Vec<Gap> = records
        .iter()
        .filter_map(|record| tracker.observe(record).gap)
        .collect();
    gaps.extend(tracker.finish());
    (gaps, tracker)
}

/// The payload of a remap, as the kernel lays it out.
pub fn remap_pdu(from: u32, to: u32, from_sector: u64) -> [u8; 16] {
    let mut pdu = [0; 16];
    pdu[..4].copy_from_slice(&from.to_be_bytes());
    pdu[4..8].copy_from_slice(&to.to_be_bytes());
    pdu[8..].copy_from_slice(&from_sector.to_be_bytes());
    pdu
}

/// A small file of every kind of payload: two notes, then 17 events numbered from 1.
pub fn small_file(format: Format) -> Vec<u8> {
    let mut clock = [0; 8];
    clock[..4].copy_from_slice(&1_605_518_127_u32.to_le_bytes());
    clock[4..].copy_from_slice(&168_810_795_u32.to_le_bytes());
    let remap = remap_pdu(8 << 20 | 2, 8 << 20, 24_391_512);
    let depth = 3_u64.to_be_bytes();
    let mut records = vec![
        note(Kind::WallClock, &clock),
        note(Kind::Process, b"mysqld\0\0\0\0\0\0\0\0\0\0"),
        Record {
            pdu: &remap,
            ..record(1, Kind::Remap, Categories::WRITE | Categories::QUEUE)
        },
        Record {
            action: Action::new(Kind::Queue, Categories::WRITE | Categories::QUEUE, true),
            cgroup: Some(0x1234_5678_9abc),
            ..record(2, Kind::Queue, Categories::NONE)
        },
        Record {
            pdu: &depth,
            ..record(3, Kind::Unplug, Categories::QUEUE)
        },
        Record {
            pdu: &depth,
            ..record(4, Kind::Split, Categories::WRITE)
        },
        Record {
            error: 0xfffb,
            ..record(5, Kind::Complete, Categories::COMPLETE)
        },
    ];
    for sequence in 6..18 {
        records.push(issue(sequence));
    }
    file(format, &records)
}

/// The folder of real samples; says why a test that needs it does nothing without it.
pub fn samples() -> Option<PathBuf> {
    let folder = PathBuf::from(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../../shared/samples/blktrace"
    ));
    if folder.is_dir() {
        return Some(folder);
    }
    eprintln!("skipped: no samples in {}", folder.display());
    None
}

/// A payload of a note, for comparison.
pub fn process(record: &Record<'_>) -> Option<String> {
    match record.payload() {
        Payload::Process(name) => Some(String::from_utf8_lossy(name).into_owned()),
        _ => None,
    }
}
