//! The depth cap, proved from outside: a recording of the target made while it is replayed
//! against shows the same requests and never more of them in flight than the cap.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot be set up has failed"
)]

mod common;

use std::ffi::OsStr;
use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use common::recorder::Recorder;
use common::{LoopDevice, have_root_and, run, tape_of_rows};

const DEVICE_BYTES: u64 = 512 << 20;
const REQUESTS: u64 = 60_000;

/// Length of the reads that look for signatures at both ends of the device before a replay; no
/// request of the tape has it.
const PROBE_BYTES: &str = "262144";

/// Random reads and writes of 4 KiB to 64 KiB, no two on the same place while both are in flight:
/// a recorder could not tell their completions apart.
fn rows() -> String {
    let slots = DEVICE_BYTES / 65_536;
    let mut text = String::new();
    for row in 0..REQUESTS {
        let offset = row * 5_003 % slots * 65_536;
        let length = 4096 << (row % 5);
        let op = if row % 4 == 3 { "write" } else { "read" };
        writeln!(text, "{},sda,{op},,{offset},{length},,,,,,", row * 1000).unwrap();
    }
    text
}

/// Most in flight and the mean over the time from the first to the last event, from rows of CSV.
fn in_flight(csv: &str) -> (u64, i64, f64) {
    let mut edges: Vec<(u64, i64)> = Vec::new();
    let (mut requests, mut unknown) = (0, 0);
    for row in csv.lines().skip(1) {
        let fields: Vec<&str> = row.split(',').collect();
        if fields[5] == PROBE_BYTES {
            continue;
        }
        let time: u64 = fields[0].parse().unwrap();
        requests += 1;
        let Ok(latency) = fields[6].parse::<u64>() else {
            unknown += 1;
            continue;
        };
        edges.extend([(time, 1), (time + latency, -1)]);
    }
    // A kernel may drop completions without a word (docs/capture.md): a few are tolerated.
    assert!(
        unknown * 4 <= requests,
        "{unknown} of {requests} without latency"
    );
    edges.sort_unstable();
    let (mut now, mut most, mut area, mut before) = (0i64, 0, 0.0, edges[0].0);
    for (time, step) in &edges {
        area += now as f64 * (time - before) as f64;
        (before, now) = (*time, now + step);
        most = most.max(now);
    }
    (requests, most, area / (before - edges[0].0) as f64)
}

fn words<'a>(words: &[&'a str]) -> Vec<&'a OsStr> {
    words.iter().map(|word| OsStr::new(*word)).collect()
}

#[track_caller]
fn proves_cap(folder: &Path, tape: &str, device: &str, depth: u32) {
    let seen = folder.join(format!("seen-{depth}.iotape"));
    let recorder = Recorder::start(device, &seen, &["--layer", "queue"]);
    let depth_text = depth.to_string();
    let replay = [
        "replay",
        tape,
        device,
        "--overwrite",
        device,
        "--depth",
        &depth_text,
        "--json",
    ];
    let result = run(words(&replay)).expect(0).json();
    std::thread::sleep(Duration::from_millis(300));
    recorder.stop().expect(0);

    let seen = seen.to_str().unwrap();
    let (requests, most, mean) = in_flight(
        &run(words(&["export", seen, "--to", "csv"]))
            .expect(0)
            .stdout,
    );
    let run = &result["runs"][0];
    let replayed_mean = run["outstanding"]["mean"].as_f64().unwrap();
    println!(
        "cap {depth}: seen {requests} requests, most {most}, mean {mean:.2}; replayed mean {replayed_mean:.2}"
    );
    assert_eq!(requests, REQUESTS, "requests seen");
    assert_eq!(run["requests"], REQUESTS, "requests replayed");
    assert!(
        most <= i64::from(depth),
        "{most} in flight under a cap of {depth}"
    );
    assert!(
        mean <= replayed_mean,
        "{mean} in flight, but {replayed_mean} in the result"
    );
    assert!(run["outstanding"]["max"].as_u64().unwrap() <= u64::from(depth));
}

#[test]
fn a_recording_of_the_target_shows_the_cap() {
    if !have_root_and(&["losetup"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let device = LoopDevice::new(DEVICE_BYTES);
    let tape = tape_of_rows(folder.path(), "load", &rows());
    for depth in [8, 48] {
        proves_cap(folder.path(), tape.to_str().unwrap(), device.name(), depth);
    }
}
