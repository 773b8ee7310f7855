//! Real traces. The expected numbers are blkparse's, of `blkparse -f "%a %d %n\n"`.

#![allow(clippy::unwrap_used)] // a helper fails like a test

mod support;

use std::collections::BTreeMap;
use std::fs;

use blktrace_parse::{
    Categories, Decoder, Format, Kind, Merged, Observation, Payload, Reader, Record,
    SequenceTracker, Step, encode,
};
use support::{decode, process, samples};

const SDA: [&str; 2] = ["sda.blktrace.0", "sda.blktrace.1"];
const MISMATCH: &str = "sample-cpu-mismatch.blktrace.0";

/// The operation as blkparse writes it.
fn rwbs(record: &Record<'_>) -> String {
    let categories = record.action.categories();
    let mut text = String::new();
    let flags = |letters: &[(Categories, char)]| -> String {
        let set = letters
            .iter()
            .filter(|(category, _)| categories.contains(*category));
        set.map(|(_, letter)| letter).collect()
    };
    text += &flags(&[(Categories::FLUSH, 'F')]);
    text.push(match () {
        () if categories.contains(Categories::DISCARD) => 'D',
        () if categories.contains(Categories::WRITE) => 'W',
        () if record.bytes > 0 => 'R',
        () => 'N',
    });
    text += &flags(&[
        (Categories::FUA, 'F'),
        (Categories::READAHEAD, 'A'),
        (Categories::SYNC, 'S'),
        (Categories::META, 'M'),
    ]);
    text
}

type Totals = BTreeMap<String, (u64, u64)>;

/// Requests and sectors of the issues, per operation.
fn issued(names: &[&str]) -> Option<Totals> {
    let folder = samples()?;
    let open = |name: &&str| Reader::new(fs::File::open(folder.join(name)).unwrap());
    let mut merged = Merged::new(names.iter().map(open).collect()).unwrap();
    let mut totals = Totals::new();
    while let Some((_, record)) = merged.next_record().unwrap() {
        if record.action.kind() == Kind::Issue {
            let total = totals.entry(rwbs(&record)).or_default();
            total.0 += 1;
            total.1 += u64::from(record.bytes) / 512;
        }
    }
    assert_eq!(merged.late(), 0);
    assert!(merged.readers().all(|reader| reader.damage().is_none()));
    Some(totals)
}

fn totals(expected: &[(&str, u64, u64)]) -> Totals {
    let row =
        |(op, requests, sectors): &(&str, u64, u64)| ((*op).to_owned(), (*requests, *sectors));
    expected.iter().map(row).collect()
}

#[test]
fn issues_equal_blkparse() {
    let Some(found) = issued(&SDA) else { return };
    let expected = [
        ("W", 68, 5360),
        ("WM", 32, 836),
        ("WS", 3, 40),
        ("WSM", 6, 77),
    ];
    assert_eq!(found, totals(&expected));
}

#[test]
fn a_cpu_that_differs_from_the_files_name_is_accepted() {
    let Some(found) = issued(&[MISMATCH]) else {
        return;
    };
    assert_eq!(found, totals(&[("RA", 963, 7704)]));
}

#[test]
fn notes_are_found() {
    let Some(folder) = samples() else { return };
    let mut names = Vec::new();
    let mut clocks = Vec::new();
    for name in SDA {
        let bytes = fs::read(folder.join(name)).unwrap();
        let mut reader = Reader::new(bytes.as_slice());
        while let Some(record) = reader.next_record().unwrap() {
            names.extend(process(&record).map(|name| (record.pid, name)));
            if let Payload::WallClock {
                seconds,
                nanoseconds,
            } = record.payload()
            {
                clocks.push((record.time_ns, seconds, nanoseconds));
            }
        }
    }
    // Read off a hex dump: 2f43b25f 2bd90f0a at time 0x973b0ba84b6e.
    assert_eq!(clocks, [(166_279_854_443_374, 1_605_518_127, 168_810_795)]);
    assert_eq!(names.len(), 10);
    assert!(names.contains(&(410, "xfsaild/dm-0".to_owned())));
}

#[test]
fn nothing_is_lost_in_the_samples() {
    let Some(folder) = samples() else { return };
    for (name, records) in [(SDA[0], 234), (SDA[1], 576), (MISMATCH, 6743)] {
        let bytes = fs::read(folder.join(name)).unwrap();
        let mut reader = Reader::new(bytes.as_slice());
        let mut tracker = SequenceTracker::new();
        let mut count = 0;
        while let Some(record) = reader.next_record().unwrap() {
            assert_eq!(tracker.observe(&record), Observation::default());
            count += 1;
        }
        assert_eq!((count, tracker.finish()), (records, vec![]));
        assert_eq!(tracker.numbering(), blktrace_parse::Numbering::default());
    }
}

#[test]
fn twins_in_every_format_say_the_same() {
    let Some(folder) = samples() else { return };
    for name in [SDA[0], SDA[1], MISMATCH] {
        let original = fs::read(folder.join(name)).unwrap();
        let expected = decode(&original);
        for format in Format::ALL {
            let twin = reencode(&original, format);
            assert_eq!(decode(&twin), expected, "{name}, {format}");
            assert!(format != support::V7 || twin == original, "{name}");
        }
    }
}

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
