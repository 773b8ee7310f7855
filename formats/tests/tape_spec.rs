//! `docs/format.md` and the code say the same.

#![allow(clippy::unwrap_used, reason = "a test's helpers fail the test")]

use std::io::Cursor;

use iotape_formats::csv::{CsvWriter, More};
use iotape_formats::tape::{
    Anchor, Block, Clock, Device, Header, Layer, Level, Names, TapeReader, TapeWriter, check,
};
use iotape_formats::{Flags, Op, Process, Request};

/// The tape that the specification shows byte by byte.
fn example() -> (Vec<u8>, Vec<Request>) {
    let header = Header {
        tool: "iotape 0.1.0".into(),
        os: Some("Linux".into()),
        clock: Clock {
            source: "CLOCK_MONOTONIC".into(),
            resolution_ns: 1,
        },
        backend: "perf".into(),
        ..Header::default()
    };
    let device = Device {
        name: "sda".into(),
        layer: Layer::Device,
        size_bytes: Some(1 << 30),
        logical_sector_bytes: Some(512),
        ..Device::default()
    };
    let process = |pid, name: &str| {
        Some(Process {
            pid,
            name: name.into(),
        })
    };
    let read = Request {
        time_ns: 1_000,
        offset_bytes: 8192,
        length_bytes: 4096,
        latency_ns: Some(90_000),
        process: process(70, "imap"),
        ..Request::default()
    };
    let ahead = Request {
        time_ns: 41_000,
        flags: Flags::READAHEAD,
        offset_bytes: 12_288,
        length_bytes: 16_384,
        latency_ns: Some(120_000),
        ..read.clone()
    };
    let write = Request {
        time_ns: 42_500,
        op: Op::Write,
        flags: Flags::SYNC | Flags::FUA,
        offset_bytes: 512,
        length_bytes: 512,
        latency_ns: None,
        process: process(71, "jbd2/sda-8"),
        ..read.clone()
    };
    let flush = Request {
        time_ns: 45_000,
        op: Op::Flush,
        flags: Flags::PREFLUSH,
        offset_bytes: 0,
        length_bytes: 0,
        latency_ns: Some(300_000),
        ..write.clone()
    };
    let requests = vec![read, ahead, write, flush];
    let mut writer = TapeWriter::create(Vec::new(), &header, &[device], Level::Live).unwrap();
    writer
        .anchor(Anchor {
            time_ns: 0,
            wall_ns: 1_767_225_600_000_000_000,
        })
        .unwrap();
    requests
        .iter()
        .for_each(|request| writer.push(request).unwrap());
    (writer.finish().unwrap().0, requests)
}

fn specification() -> String {
    std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/format.md")).unwrap()
}

/// The lines of the first fenced block of a kind behind a heading.
fn fenced<'a>(text: &'a str, heading: &str, kind: &str) -> Vec<&'a str> {
    let section = text.split_once(&format!("\n## {heading}\n")).unwrap().1;
    let block = section.split_once(&format!("```{kind}\n")).unwrap().1;
    block.split_once("\n```").unwrap().0.lines().collect()
}

/// Bytes of lines such as `0008  b1 6f 0c  what it is`: offset, bytes, and behind two spaces a
/// remark.
fn bytes_of(lines: &[&str]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for line in lines {
        let (offset, rest) = line.split_once("  ").unwrap();
        assert_eq!(
            usize::from_str_radix(offset, 16).unwrap(),
            bytes.len(),
            "{line}"
        );
        let hex = rest.split_once("  ").map_or(rest, |(hex, _)| hex);
        bytes.extend(
            hex.split(' ')
                .map(|byte| u8::from_str_radix(byte, 16).unwrap()),
        );
    }
    bytes
}

#[test]
fn the_worked_example_is_what_the_writer_writes() {
    let (bytes, requests) = example();
    if let Ok(path) = std::env::var("IOTAPE_EXAMPLE") {
        std::fs::write(path, &bytes).unwrap();
    }
    let shown = bytes_of(&fenced(&specification(), "Worked example", "hex"));
    assert_eq!(shown, bytes);
    let mut reader = TapeReader::open(Cursor::new(&shown)).unwrap();
    let mut block = Block::new();
    assert!(reader.next_block(&mut block).unwrap());
    assert_eq!(block.requests().collect::<Vec<_>>(), requests);
    assert!(check(Cursor::new(&shown)).unwrap().is_clean());
}

#[test]
fn the_csv_of_the_example_is_what_the_writer_writes() {
    let (_, requests) = example();
    let mut csv = Vec::new();
    let mut writer = CsvWriter::new(&mut csv, More::default()).unwrap();
    requests
        .iter()
        .for_each(|request| writer.write(request, "sda", &Names::default()).unwrap());
    writer.finish().unwrap();
    let specification = specification();
    let shown = fenced(&specification, "Worked example", "csv");
    assert_eq!(
        String::from_utf8(csv).unwrap().lines().collect::<Vec<_>>(),
        shown
    );
    assert_eq!(
        fenced(&specification, "CSV", ""),
        [iotape_formats::csv::COLUMNS.join(",")]
    );
}

#[test]
fn operations_and_flags_have_the_numbers_of_the_specification() {
    let specification = specification();
    let section = specification
        .split_once("\n## Operations and flags\n")
        .unwrap()
        .1;
    let section = section.split_once("\n## ").unwrap().0;
    let rows = section.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| ")?.split(" | ");
        let number = cells.next()?.parse::<u8>().ok()?;
        Some((number, cells.next()?.trim_matches('`').to_owned()))
    });
    let shown: Vec<(u8, String)> = rows.collect();
    let operations = Op::ALL.iter().map(|op| (op.number(), op.name().to_owned()));
    let flags = (0..10).map(|bit| (bit, Flags::from_bits(1 << bit).to_string()));
    assert_eq!(shown, operations.chain(flags).collect::<Vec<_>>());
    assert_eq!(Flags::from_bits(1 << 10).to_string(), "bit10");
}

/// The signatures and sizes that a reader starts from, written out once more.
#[test]
fn the_layout_is_that_of_the_specification() {
    let (bytes, _) = example();
    let specification = specification();
    let hex = |bytes: &[u8]| {
        bytes
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect::<Vec<_>>()
            .join(" ")
    };
    let shown = |name: &str, bytes: &[u8]| {
        let text = format!("{name} `{}`", hex(bytes));
        assert!(specification.contains(&text), "{text}");
    };
    shown("sync marker", &bytes[8..16]);
    shown("head magic | 8 |", &bytes[..8]);
    shown("tail magic", &bytes[bytes.len() - 8..]);
    let footer_bytes =
        u64::from_le_bytes(*bytes[bytes.len() - 20..].first_chunk().unwrap()) as usize;
    let footer = bytes.len() - 20 - footer_bytes;
    assert_eq!(
        (&bytes[footer..footer + 8], bytes[footer + 8]),
        (&bytes[8..16], 6)
    );
    // The footer's first field behind the version says where it stands.
    assert_eq!(
        bytes[footer + 23..footer + 31],
        (footer as u64).to_le_bytes()
    );
}
