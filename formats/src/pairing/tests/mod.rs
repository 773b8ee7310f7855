//! Event sequences written by hand, in a short notation, and what they must become.
//!
//! A line is `<time> <step> <rwbs> <sector> + <sectors> [pid or error]`, as blkparse prints it. Steps
//! are Q queued, D issued, R requeued, C completed (a request), B completed (a bio), M merged,
//! G requests merged, X split; `-` as the sector stands for the highest one. Other lines:
//! `<time> gap`, `<time> gap-over`, `<time> lost`, `<time> release`.

mod device_layer;
mod limits;
mod queue_layer;
mod truth;

use std::fmt::Write;

use super::*;
use crate::event::Step;
use crate::event::parse_rwbs;
use crate::request::DeviceIndex;

pub(super) fn rules(layer: Layer) -> DeviceRules {
    DeviceRules {
        layer,
        scattered_discards: false,
        single_queue: false,
        busy_at_start: false,
    }
}

pub(super) fn event(line: &str) -> Event {
    let words: Vec<&str> = line.split_whitespace().collect();
    let number = |index: usize| -> u64 { words[index].parse().unwrap() };
    let step = match words[1] {
        "Q" => Step::Queued,
        "D" => Step::Issued,
        "R" => Step::Requeued,
        "C" => Step::RequestCompleted,
        "B" => Step::BioCompleted,
        "M" => Step::BioMerged,
        "G" => Step::RequestsMerged,
        "X" => Step::Split,
        other => panic!("no step {other:?} in {line:?}"),
    };
    let tail: u32 = words
        .get(6)
        .map_or(0, |word| word.trim_matches(['[', ']']).parse().unwrap());
    let length_bytes = number(5) * 512;
    let (op, flags) = parse_rwbs(words[2].as_bytes(), length_bytes).unwrap();
    let completed = matches!(step, Step::RequestCompleted | Step::BioCompleted);
    let process = Process {
        pid: tail,
        name: format!("p{tail}").into(),
    };
    Event {
        time_ns: number(0),
        step,
        device: DeviceIndex(0),
        op,
        flags,
        offset_bytes: if words[3] == "-" { 0 } else { number(3) * 512 },
        length_bytes,
        cpu: Some(1),
        error: completed.then_some(tail),
        process: (step == Step::Queued).then_some(process),
        cgroup: None,
    }
}

pub(super) struct Paired {
    pub requests: Vec<Request>,
    pub counters: Counters,
}

pub(super) fn pair_with(rules: DeviceRules, limits: Limits, text: &str) -> Paired {
    let mut pairing = Pairing::new(vec![rules], limits, 0, Some(999));
    let mut requests = Vec::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (time, rest) = line.split_once(' ').unwrap();
        let time: u64 = time.parse().unwrap();
        match rest.trim() {
            "gap" => pairing.gap_begins(),
            "gap-over" => pairing.gap_ends(),
            "lost" => pairing.lost(time),
            "end" => pairing.end_at(time),
            "release" => pairing.release(time, &mut requests),
            _ => pairing.event(event(line)),
        }
    }
    pairing.finish(&mut requests);
    assert_eq!(pairing.in_flight(), 0);
    assert_eq!(
        (
            pairing.open.len(),
            pairing.waiting.keys_where(|_| true).len()
        ),
        (0, 0)
    );
    assert!(pairing.flushing.is_empty());
    Paired {
        requests,
        counters: pairing.take_counters(),
    }
}

pub(super) fn pair(layer: Layer, text: &str) -> Paired {
    pair_with(rules(layer), Limits::default(), text)
}

/// Requests as lines: `time op flags sector+sectors latency`, then `queue`, `pid` and `error` where
/// they are known and not 0. `?` is an unknown latency.
#[track_caller]
pub(super) fn assert_rows(paired: &Paired, expected: &str) {
    let mut rows = String::new();
    for request in &paired.requests {
        let flags = if request.flags.is_empty() {
            "-".to_owned()
        } else {
            request.flags.to_string()
        };
        let latency = request
            .latency_ns
            .map_or("?".to_owned(), |latency| latency.to_string());
        write!(
            rows,
            "{} {} {flags} {}+{} {latency}",
            request.time_ns,
            request.op,
            request.offset_bytes / 512,
            request.length_bytes / 512,
        )
        .unwrap();
        if let Some(queue_ns) = request.queue_ns {
            write!(rows, " queue={queue_ns}").unwrap();
        }
        if let Some(process) = &request.process {
            write!(rows, " pid={}", process.pid).unwrap();
        }
        if let Some(error) = request.error.filter(|error| *error != 0) {
            write!(rows, " error={error}").unwrap();
        }
        rows.push('\n');
        assert_eq!(
            request.error.is_some(),
            request.latency_ns.is_some(),
            "an outcome is known when a completion is"
        );
    }
    let expected: String = expected
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .fold(String::new(), |mut lines, line| {
            lines.push_str(line);
            lines.push('\n');
            lines
        });
    assert_eq!(rows, expected);
}
