//! Several files as one stream.

#![allow(clippy::unwrap_used)] // a helper fails like a test

mod support;

use blktrace_parse::{Error, Merged, Reader, Record};
use support::{V7, V8, file, issue};

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
