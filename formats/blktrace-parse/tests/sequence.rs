//! Lost records, told by the numbering of each CPU.

mod support;

use blktrace_parse::{Gap, Kind, Numbering, Record};
use support::{gaps, issue, note};

fn numbered(sequences: &[u32]) -> Vec<Record<'static>> {
    let number = |(at, sequence): (usize, &u32)| Record {
        time_ns: 10 * at as u64,
        ..issue(*sequence)
    };
    sequences.iter().enumerate().map(number).collect()
}

fn check(sequences: &[u32], expected: &[Gap], numbering: Numbering) {
    let (gaps, tracker) = gaps(&numbered(sequences));
    assert_eq!(gaps, expected, "{sequences:?}");
    assert_eq!(tracker.numbering(), numbering, "{sequences:?}");
}

fn gap(records: u64, after_ns: u64, before_ns: u64) -> Gap {
    Gap {
        cpu: 0,
        records,
        after_ns,
        before_ns,
    }
}

fn lost(lost: u64) -> Numbering {
    Numbering {
        lost,
        ..Numbering::default()
    }
}

#[test]
fn gaps_are_counted_and_placed() {
    check(&[1, 2, 3], &[], lost(0));
    check(&[1, 2, 5, 6, 7], &[gap(2, 10, 20)], lost(2));
    check(&[1, 3, 5, 6], &[gap(1, 0, 10), gap(1, 10, 20)], lost(2));
    check(&[1, 2, 10], &[gap(7, 10, 20)], lost(7));
}

#[test]
fn the_count_wraps() {
    let max = u32::MAX;
    let cut = Numbering {
        missing_before_first: u64::from(max) - 2,
        ..lost(0)
    };
    check(&[max - 1, max, 0, 1, 2], &[], cut);
    let cut = Numbering { lost: 2, ..cut };
    check(&[max - 1, max, 2, 3], &[gap(2, 10, 20)], cut);
    check(&[max - 1, 1, 2], &[gap(2, 0, 10)], cut);
}

#[test]
fn a_damaged_number_is_no_loss() {
    let damaged = Numbering {
        damaged: 1,
        ..lost(0)
    };
    check(&[1, 2, 70_003, 4, 5], &[], damaged);
    check(&[1, 2, 70_003, 4], &[], damaged);
}

#[test]
fn notes_have_no_number() {
    let mut records = numbered(&[1, 2, 3]);
    records.insert(2, note(Kind::Process, b"name"));
    let (gaps, tracker) = gaps(&records);
    assert_eq!((gaps, tracker.numbering()), (vec![], lost(0)));
}

#[test]
fn each_cpu_counts_for_itself() {
    let on = |cpu, sequence| Record {
        cpu,
        ..issue(sequence)
    };
    let records = [on(0, 1), on(7, 1), on(0, 2), on(7, 4), on(7, 5), on(0, 3)];
    let (gaps, _) = gaps(&records);
    let expected = Gap {
        cpu: 7,
        records: 2,
        after_ns: 1_000_000,
        before_ns: 4_000_000,
    };
    assert_eq!(gaps, [expected]);
}

#[test]
fn records_without_numbers_are_counted() {
    let unnumbered = Numbering {
        unnumbered: 3,
        ..lost(0)
    };
    check(&[0, 0, 0], &[], unnumbered);
}

#[test]
fn a_trace_that_is_joined_to_another_begins_again() {
    let restarts = Numbering {
        restarts: 1,
        lost: 1,
        ..lost(0)
    };
    check(&[1, 2, 3, 1, 2, 4, 5], &[gap(1, 40, 50)], restarts);
}

#[test]
fn mixed_traces_are_not_counted_on() {
    // Two traces, one behind by a thousand, alternate.
    let sequences = [1001, 1, 1002, 2, 1003, 3, 1004];
    let (gaps, tracker) = gaps(&numbered(&sequences));
    assert_eq!(gaps, []);
    assert_eq!(tracker.numbering().confused_cpus, 1);
}

#[test]
fn an_impossible_cpu_takes_no_memory() {
    let record = Record {
        cpu: u32::MAX,
        ..issue(1)
    };
    let (gaps, tracker) = gaps(&[record, record]);
    assert_eq!(gaps, []);
    assert_eq!(tracker.numbering().damaged, 2);
}
