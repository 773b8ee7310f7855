//! A recording of the target, made while a tape is replayed against it, holds the tape's requests:
//! each operation as what it is, where it is, with the expansions that docs/replay.md lists.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot be set up has failed"
)]

mod common;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use common::recorder::Recorder;
use common::{LoopDevice, have_root_and, run, tape_of_rows};

const DEVICE_BYTES: u64 = 256 << 20;
const ROUNDS: u64 = 300;

/// Length of the reads that look for signatures at both ends of the device before a replay; no
/// request of the tape has it.
const PROBE_BYTES: u64 = 262_144;

/// How often each operation with these flags, at this offset, of this length.
type Multiset = BTreeMap<(String, String, u64, u64), u64>;

/// One of each operation in turn, each at a place of its own; the last is a write with both flags.
fn requests() -> Vec<(&'static str, &'static str, u64, u64)> {
    let mut requests = Vec::new();
    let mut at = 0;
    let mut place = |length: u64| {
        at += 131_072;
        (at % (DEVICE_BYTES - (1 << 20)), length)
    };
    for round in 0..ROUNDS {
        let small = 4_096 << (round % 4);
        for (op, flags, length) in [
            ("read", "", small),
            ("write", "", small),
            ("flush", "", 0),
            ("write", "preflush", small),
            ("write", "fua", small),
            ("discard", "", 65_536),
            ("write_zeroes", "", 32_768),
            ("write", "fua+preflush", small),
        ] {
            let (offset, length) = match length {
                0 => (0, 0),
                length => place(length),
            };
            requests.push((op, flags, offset, length));
        }
    }
    requests
}

/// What the queue layer sees: a preflush is a flush of its own, and with the threads engine the
/// kernel's synchronous path flushes after each FUA write.
fn expected(engine: &str) -> Multiset {
    let mut expected = Multiset::new();
    let mut add = |op: &str, flags: &str, offset, length| {
        let key = (op.to_owned(), flags.to_owned(), offset, length);
        *expected.entry(key).or_insert(0) += 1;
    };
    for (op, flags, offset, length) in requests() {
        if flags.contains("preflush") {
            add("flush", "", 0, 0);
        }
        let fua = flags.contains("fua");
        add(op, if fua { "fua" } else { "" }, offset, length);
        if fua && engine == "threads" {
            add("flush", "", 0, 0);
        }
    }
    expected
}

/// The recorded requests, with the flags that ask for durability.
fn recorded(csv: &str) -> Multiset {
    let mut recorded = Multiset::new();
    for row in csv.lines().skip(1) {
        let fields: Vec<&str> = row.split(',').collect();
        let durable = |flag: &&str| ["fua", "preflush"].contains(flag);
        let flags: Vec<&str> = fields[3].split('+').filter(durable).collect();
        let length: u64 = fields[5].parse().unwrap();
        let (op, flags, offset) = match (fields[2], length) {
            (_, PROBE_BYTES) => continue,
            // An empty flush is a write with a preflush and of no length, at no place.
            ("flush", _) | ("write", 0) => ("flush", String::new(), 0),
            (op, _) => (op, flags.join("+"), fields[4].parse().unwrap()),
        };
        *recorded
            .entry((op.to_owned(), flags, offset, length))
            .or_insert(0) += 1;
    }
    recorded
}

fn words<'a>(words: &[&'a str]) -> Vec<&'a OsStr> {
    words.iter().map(|word| OsStr::new(*word)).collect()
}

#[track_caller]
fn comes_back(folder: &Path, tape: &str, device: &str, engine: &str) {
    let seen = folder.join(format!("seen-{engine}.iotape"));
    let recorder = Recorder::start(device, &seen, &["--layer", "queue"]);
    let replay = [
        "replay",
        tape,
        device,
        "--overwrite",
        device,
        "--depth",
        "8",
        "--engine",
        engine,
        "--json",
    ];
    let ended = run(words(&replay));
    std::thread::sleep(Duration::from_millis(300));
    recorder.stop().expect(0);
    if engine == "uring" && ended.status == 1 {
        common::skip(&format!("io_uring is not to be had here: {}", ended.stderr));
        return;
    }
    let result = ended.expect(0).json();
    let run_of = &result["runs"][0];
    assert_eq!(run_of["requests"], ROUNDS * 8);
    assert_eq!(run_of["errors"].as_array().unwrap().len(), 0);

    let csv = run(words(&["export", seen.to_str().unwrap(), "--to", "csv"]));
    let (found, expected) = (recorded(&csv.expect(0).stdout), expected(engine));
    let count = |set: &Multiset| set.values().sum::<u64>();
    println!(
        "{engine}: {} requests replayed, {} expected at the queue layer, {} recorded",
        ROUNDS * 8,
        count(&expected),
        count(&found)
    );
    let differing = |ours: &Multiset, theirs: &Multiset| {
        ours.iter()
            .filter(|(key, count)| theirs.get(*key) != Some(count))
            .take(5)
            .map(|(key, count)| format!("{key:?} × {count}"))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        differing(&expected, &found),
        [""; 0],
        "not recorded as often"
    );
    assert_eq!(differing(&found, &expected), [""; 0], "recorded too often");
}

#[test]
fn the_queue_layer_sees_the_tapes_requests_and_the_listed_expansions() {
    if !have_root_and(&["losetup"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let device = LoopDevice::new(DEVICE_BYTES);
    let name = device.name().trim_start_matches("/dev/");
    let queue = |attribute: &str| {
        let path = format!("/sys/block/{name}/queue/{attribute}");
        std::fs::read_to_string(path).unwrap().trim().to_owned()
    };
    if queue("write_cache") != "write back" || queue("write_zeroes_max_bytes") == "0" {
        common::skip("needs a loop device with a write cache and write-zeroes");
        return;
    }
    let mut rows = String::new();
    for (number, (op, flags, offset, length)) in requests().into_iter().enumerate() {
        writeln!(
            rows,
            "{},sda,{op},{flags},{offset},{length},,,,,,",
            number * 1000
        )
        .unwrap();
    }
    let tape = tape_of_rows(folder.path(), "all", &rows);
    for engine in ["uring", "threads"] {
        comes_back(folder.path(), tape.to_str().unwrap(), device.name(), engine);
    }
}
