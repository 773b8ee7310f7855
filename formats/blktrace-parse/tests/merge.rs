//! Several files as one stream.

#![allow(clippy::unwrap_used)] // a helper fails like a test

mod support;

use std::io::Cursor;

use blktrace_parse::Continuation::{Gap, Torn, Whole};
use blktrace_parse::{Continuation, Error, Kind, Merged, Reader, Record};
use support::{V7, V8, file, issue, note};

fn at(time_ns: u64, cpu: u32) -> Record<'static> {
    Record {
        time_ns,
        cpu,
        ..issue(1)
    }
}

fn merge(files: &[Vec<u8>]) -> (Vec<(usize, u64)>, u64) {
    let readers = files
        .iter()
        .map(|bytes| Reader::new(bytes.as_slice()))
        .collect();
    let mut merged = Merged::new(readers).unwrap();
    let mut order = Vec::new();
    while let Some((index, record)) = merged.next_record().unwrap() {
        order.push((index, record.time_ns));
    }
    assert!(merged.next_record().unwrap().is_none());
    (order, merged.late())
}

#[test]
fn records_come_in_order_of_time() {
    let files = [
        file(V7, &[at(10, 0), at(20, 0), at(70, 0)]),
        file(V8, &[at(5, 1), at(30, 1), at(30, 1), at(60, 1)]),
        Vec::new(),
        file(V7, &[at(1, 9), at(80, 9)]),
    ];
    let (order, late) = merge(&files);
    let expected = [
        (3, 1),
        (1, 5),
        (0, 10),
        (0, 20),
        (1, 30),
        (1, 30),
        (1, 60),
        (0, 70),
        (3, 80),
    ];
    assert_eq!(order, expected);
    assert_eq!(late, 0);
}

#[test]
fn equal_times_keep_the_order_of_the_files() {
    let files = [file(V7, &[at(7, 0); 2]), file(V7, &[at(7, 1); 2])];
    assert_eq!(merge(&files).0, [(0, 7), (0, 7), (1, 7), (1, 7)]);
}

#[test]
fn a_file_out_of_order_is_passed_on_and_counted() {
    let files = [
        file(V7, &[at(10, 0), at(5, 0), at(20, 0)]),
        file(V7, &[at(15, 1)]),
    ];
    let (order, late) = merge(&files);
    assert_eq!(order, [(0, 10), (0, 5), (1, 15), (0, 20)]);
    assert_eq!(late, 1);
}

#[test]
fn many_files_with_many_records_are_sorted() {
    let mut random = 1_u64;
    let mut times = Vec::new();
    let files: Vec<Vec<u8>> = (0..37)
        .map(|cpu| {
            let mut time = 0;
            let mut records = Vec::new();
            for _ in 0..200 {
                random = random
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                time += random >> 54;
                times.push(time);
                records.push(at(time, cpu));
            }
            file(V7, &records)
        })
        .collect();
    times.sort_unstable();
    let (order, late) = merge(&files);
    assert_eq!(
        order.iter().map(|(_, time)| *time).collect::<Vec<_>>(),
        times
    );
    assert_eq!(late, 0);
}

#[test]
fn an_error_names_its_file() {
    let files = [file(V7, &[at(1, 0)]), b"no trace at all".to_vec()];
    let readers = files
        .iter()
        .map(|bytes| Reader::new(bytes.as_slice()))
        .collect();
    let error = Merged::new(readers).unwrap_err();
    assert_eq!(error.source_index, 1);
    assert!(matches!(error.error, Error::NotBlktrace { .. }));
}

/// Numbered events of one CPU, a millisecond apart from `from_ms` on.
fn numbered(cpu: u32, from_ms: u64, sequences: &[u32]) -> Vec<Record<'static>> {
    let event = |(at, sequence): (usize, &u32)| Record {
        cpu,
        time_ns: (from_ms + at as u64) * 1_000_000,
        ..issue(*sequence)
    };
    sequences.iter().enumerate().map(event).collect()
}

/// What comes behind each record.
fn continuations(files: &[Vec<u8>], buffer: usize) -> Vec<(usize, u32, Continuation)> {
    let reader = |bytes: &'_ Vec<u8>| Reader::with_buffer(Cursor::new(bytes.clone()), buffer);
    let mut merged = Merged::new(files.iter().map(reader).collect()).unwrap();
    let mut all = Vec::new();
    while let Some((index, record)) = merged.next_record().unwrap() {
        let sequence = record.sequence;
        let continuation = merged.continuation().unwrap();
        assert_eq!(merged.continuation().unwrap(), Whole, "it is told once");
        all.push((index, sequence, continuation));
    }
    all
}

#[test]
fn a_gap_is_known_before_later_events_of_other_cpus() {
    let files = [
        file(V7, &numbered(0, 0, &[1, 2, 5, 6])),
        file(V7, &numbered(1, 10, &[1, 2])),
    ];
    let expected = [
        (0, 1, Whole),
        (0, 2, Gap),
        (0, 5, Whole),
        (0, 6, Whole),
        (1, 1, Whole),
        (1, 2, Whole),
    ];
    assert_eq!(continuations(&files, 0), expected);
}

#[test]
fn a_gap_is_known_through_notes_and_across_reads() {
    let text = [b'x'; 1000];
    let [first, second] = numbered(0, 0, &[1, 7])[..] else {
        panic!()
    };
    let note = Record {
        time_ns: first.time_ns,
        ..note(Kind::Message, &text)
    };
    for notes in 0..=15 {
        let mut records = vec![first];
        records.extend(vec![note; notes]);
        records.push(second);
        let found = continuations(&[file(V8, &records)], 0);
        assert_eq!(found[0], (0, 1, Gap), "{notes}");
        assert!(
            found[1..]
                .iter()
                .all(|(_, _, continuation)| *continuation == Whole)
        );
        assert_eq!(found.len(), 2 + notes);
    }
}

#[test]
fn damage_between_two_events_is_a_gap_if_their_numbers_say_so() {
    let mut bytes = file(V7, &numbered(0, 0, &[1, 2, 3]));
    bytes[48] ^= 1; // the magic of the second
    assert_eq!(continuations(&[bytes], 0), [(0, 1, Gap), (0, 3, Whole)]);
    let mut bytes = file(V7, &numbered(0, 0, &[1]));
    bytes.extend([0xee; 100]);
    bytes.extend(file(V7, &numbered(0, 1, &[2])));
    assert_eq!(continuations(&[bytes], 0), [(0, 1, Whole), (0, 2, Whole)]);
}

#[test]
fn other_cpus_and_missing_numbers_are_no_gaps() {
    let mut mixed = numbered(0, 0, &[1]);
    mixed.extend(numbered(1, 1, &[9]));
    mixed.extend(numbered(1, 2, &[0, 0]));
    let found = continuations(&[file(V7, &mixed)], 0);
    assert!(
        found
            .iter()
            .all(|(_, _, continuation)| *continuation == Whole)
    );
}

#[test]
fn a_torn_end_is_told() {
    let whole = file(V7, &numbered(0, 0, &[1, 2]));
    let cut = whole[..90].to_vec();
    let mut killed = whole.clone();
    killed.extend([0; 100]);
    assert_eq!(continuations(&[whole], 0), [(0, 1, Whole), (0, 2, Whole)]);
    assert_eq!(continuations(&[cut], 0), [(0, 1, Torn)]);
    assert_eq!(continuations(&[killed], 0), [(0, 1, Whole), (0, 2, Torn)]);
}

#[test]
fn a_time_far_ahead_of_its_neighbours_holds_nobody_up() {
    let hour = 3_600_000_000_000;
    let mut first = numbered(0, 0, &[1, 2, 3]);
    first[1].time_ns |= 1 << 60;
    let mut second = numbered(1, 1, &[1, 2]);
    second[0].time_ns += 2 * hour; // idle for long: all that follows is later
    second[1].time_ns += 2 * hour;
    let files = [file(V7, &first), file(V7, &second)];
    let readers = files
        .iter()
        .map(|bytes| Reader::new(bytes.as_slice()))
        .collect();
    let mut merged = Merged::new(readers).unwrap();
    let mut order = Vec::new();
    while let Some((index, record)) = merged.next_record().unwrap() {
        order.push((index, record.sequence));
    }
    assert_eq!(order, [(0, 1), (0, 3), (1, 1), (1, 2)]);
    assert_eq!((merged.damaged_times(0), merged.damaged_times(1)), (1, 0));
    assert_eq!(merged.late(), 0);
    // The record that was left out is missing like a lost one.
    assert_eq!(continuations(&files[..1], 0), [(0, 1, Gap), (0, 3, Whole)]);
}

#[test]
fn a_first_time_far_ahead_is_left_out_too() {
    let mut records = numbered(0, 0, &[1, 2, 3]);
    records[0].time_ns |= 1 << 60;
    let (order, _) = merge(&[file(V7, &records)]);
    assert_eq!(order, [(0, 1_000_000), (0, 2_000_000)]);
}
