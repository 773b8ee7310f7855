//! Replays that keep the tape's times, on simulated devices: through the whole command.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot be set up has failed"
)]

mod common;

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{run, skip, tape_of_rows};
use serde_json::Value;

const MS: u64 = 1_000_000;

/// A read a millisecond, 502 of them, in pairs that are swapped.
fn swapped(folder: &Path) -> PathBuf {
    let mut rows = String::new();
    for n in 0..502u64 {
        writeln!(
            rows,
            "{},sda,read,,{},4096,90000,,77,app,,",
            (n ^ 1) * MS,
            n * 4096
        )
        .unwrap();
    }
    tape_of_rows(folder, "swapped", &rows)
}

fn replay(tape: &Path, words: &[&str]) -> Value {
    let head = ["replay", tape.to_str().unwrap()];
    run(head.iter().chain(words).chain(&["--json", "-q"]))
        .expect(0)
        .json()
}

#[test]
fn the_times_of_the_tape_are_kept_and_read_in_each_figure() {
    let folder = tempfile::tempdir().unwrap();
    let tape = swapped(folder.path());
    let sim = "sim:servers=8,service=10us";
    for (speed, elapsed_ns) in [("1", 501 * MS + 10_000), ("0.5", 1_002 * MS + 10_000)] {
        let document = replay(&tape, &[sim, "--depth", "8", "--speed", speed]);
        let run = &document["runs"][0];
        assert_eq!(
            (&run["timing"], &run["loop"]),
            (&"recorded".into(), &"open".into())
        );
        assert_eq!(run["elapsed_ns"], elapsed_ns);
        assert_eq!(run["lag_ns"]["max"], 0);
        assert_eq!(run["response_ns"]["p99"], 10_000);
        assert_eq!(run["schedule"]["end_drift_ns"], 0);
        let sizes = &run["by_op"]["read"]["sizes"][0];
        assert_eq!(
            (&sizes["up_to_bytes"], &sizes["requests"]),
            (&4096.into(), &502.into())
        );
        assert_eq!(sizes["recorded_ns"]["max"], 90_000);
        assert_eq!(sizes["service_ns"]["max"], 10_000);
        for name in ["all", "all/lag", "read/response"] {
            assert!(run["histograms"][name].is_string(), "{name}");
        }
    }
}

#[test]
fn a_dependent_replay_says_what_it_assumes() {
    let folder = tempfile::tempdir().unwrap();
    let tape = swapped(folder.path());
    let words = ["sim:service=5ms", "--depth", "8", "--timing", "dependent"];
    let document = replay(&tape, &words);
    let run = &document["runs"][0];
    // A chain: 502 services of 5 ms, and 501 thoughts of 1 ms less the recorded 90 us.
    assert_eq!(run["elapsed_ns"], 502 * 5 * MS + 501 * (MS - 90_000));
    let notes = run["notes"].to_string();
    assert!(notes.contains("dependent: 99.8 %"), "{notes}");
}

#[test]
fn repetitions_take_turns() {
    let folder = tempfile::tempdir().unwrap();
    let tape = swapped(folder.path());
    let document = replay(&tape, &["sim:service=10us", "--runs", "3"]);
    let runs = document["runs"].as_array().unwrap();
    let labels: Vec<&str> = runs.iter().map(|r| r["label"].as_str().unwrap()).collect();
    assert_eq!(
        labels,
        ["light", "heavy", "light", "heavy", "light", "heavy"]
    );
    let orders: Vec<u64> = runs.iter().map(|r| r["order"].as_u64().unwrap()).collect();
    assert_eq!(orders, [0, 1, 2, 3, 4, 5]);
}

#[test]
fn nonsense_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let tape = swapped(folder.path());
    let tape = tape.to_str().unwrap();
    for (words, says) in [
        (
            &["--timing", "asap", "--speed", "2"][..],
            "--timing recorded",
        ),
        (
            &["--from", "2s", "--to", "1s"][..],
            "--from must be earlier",
        ),
        (&["--speed", "0"][..], "0.000001"),
        (&["sim:servers=4"][..], "no service time"),
    ] {
        let ended = run(["replay", tape].iter().chain(words)).expect(2);
        assert!(ended.stderr.contains(says), "{}", ended.stderr);
    }
}

/// Prints what HdrHistogram's Python library reads in an interval log: tag, start, length, count
/// and maximum of each line.
const READER: &str = r"
import sys
from hdrh.histogram import HdrHistogram
from hdrh.log import HistogramLogReader
reference = HdrHistogram(1, 3600 * 1000 * 1000 * 1000, 3)
reader = HistogramLogReader(sys.argv[1], reference)
while True:
    histogram = reader.get_next_interval_histogram()
    if histogram is None:
        break
    print(histogram.get_tag() if hasattr(histogram, 'get_tag') else histogram.tag,
          round(histogram.get_start_time_stamp() / 1000), histogram.get_total_count(),
          histogram.get_max_value())
";

#[test]
fn the_interval_log_is_read_by_hdrhistograms_own_tools() {
    let importable = Command::new("python3").args(["-c", "import hdrh"]).output();
    if !importable.is_ok_and(|output| output.status.success()) {
        skip("python3 cannot import hdrh (pip install hdrhistogram)");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let tape = swapped(folder.path());
    let log = folder.path().join("run.hlog");
    let words = ["sim:service=10us", "--speed", "0.25", "--depth", "8"];
    let log_words = ["--hdr-log", log.to_str().unwrap()];
    replay(&tape, &[&words[..], &log_words].concat());
    let output = Command::new("python3")
        .args(["-c", READER])
        .arg(&log)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    let lines: Vec<Vec<&str>> = text.lines().map(|l| l.split(' ').collect()).collect();
    // 2.004 s in intervals of a second, three figures each.
    let tags: Vec<&str> = lines.iter().map(|line| line[0]).collect();
    let figures = [
        "depth_8/read/service",
        "depth_8/read/response",
        "depth_8/read/lag",
    ];
    assert_eq!(tags, [figures; 3].concat());
    let counts: Vec<u64> = lines.iter().map(|line| line[2].parse().unwrap()).collect();
    assert_eq!(counts.iter().sum::<u64>(), 3 * 502);
    for line in &lines[..2] {
        let max: u64 = line[3].parse().unwrap();
        assert!(max.abs_diff(10_000) < 10, "{line:?}");
    }
}
