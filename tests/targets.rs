//! Several targets: a single device against a striped pair, and devices of a tape apart.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot be set up has failed"
)]

mod common;

use std::ffi::OsStr;
use std::fmt::Write;
use std::path::Path;

use common::{Ended, LoopDevice, have_root_and, run, tape_of_rows};
use serde_json::Value;

const DEVICE_BYTES: u64 = 64 << 20;
const STRIPE: u64 = 65_536;
const REQUESTS: u64 = 6_000;

/// A reads and writes of 4 KiB to 128 KiB over 64 MiB, a third of which cross stripes: time,
/// operation, offset and length.
fn requests() -> impl Iterator<Item = (u64, &'static str, u64, u64)> {
    (0..REQUESTS).map(|row| {
        let op = if row % 3 == 0 { "write" } else { "read" };
        let length = 4_096 << (row % 6);
        let offset = row * 7_919 % ((DEVICE_BYTES - 131_072) / 4_096) * 4_096;
        (row * 1_000, op, offset, length)
    })
}

fn rows() -> String {
    let mut text = String::new();
    for (time, op, offset, length) in requests() {
        writeln!(text, "{time},sda,{op},,{offset},{length},90000,,,,,").unwrap();
    }
    text
}

/// Operations, bytes and sum of offsets on each of a pair, stripe by stripe.
fn on_pair() -> [(u64, u64, u64); 2] {
    let mut sums = [(0, 0, 0); 2];
    for (_, _, offset, length) in requests() {
        let mut at = offset;
        while at < offset + length {
            let end = (at / STRIPE * STRIPE + STRIPE).min(offset + length);
            let (operations, bytes, places) = &mut sums[(at / STRIPE % 2) as usize];
            *operations += 1;
            *bytes += end - at;
            *places += at / STRIPE / 2 * STRIPE + at % STRIPE;
            at = end;
        }
    }
    sums
}

fn replay(tape: &Path, words: &[&str]) -> Ended {
    let head = ["replay", tape.to_str().unwrap()];
    run(head.iter().chain(words).map(|word| OsStr::new(*word)))
}

fn on_target(target: &Value) -> (u64, u64, u64) {
    let number = |name: &str| target[name].as_u64().unwrap();
    (number("operations"), number("bytes"), number("offset_sum"))
}

#[test]
fn a_single_device_and_a_striped_pair_stand_side_by_side() {
    if !have_root_and(&["losetup"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let tape = tape_of_rows(folder.path(), "load", &rows());
    let [single, first, second] = [0, 1, 2].map(|_| LoopDevice::new(DEVICE_BYTES));
    let result = |name: &str| folder.path().join(name);
    let (alone, pair) = (result("single.json"), result("pair.json"));
    replay(
        &tape,
        &[
            single.name(),
            "--overwrite",
            single.name(),
            "-o",
            alone.to_str().unwrap(),
        ],
    )
    .expect(0);
    let ended = replay(
        &tape,
        &[
            "--stripe",
            "64KiB",
            first.name(),
            second.name(),
            "--overwrite",
            first.name(),
            "--overwrite",
            second.name(),
            "--verify",
            "-o",
            pair.to_str().unwrap(),
        ],
    )
    .expect(0);
    for device in [&first, &second] {
        assert!(ended.stdout.contains(device.name()), "{}", ended.stdout);
    }
    assert!(ended.stdout.contains("operations"), "{}", ended.stdout);

    let read = |path: &Path| -> Value {
        serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
    };
    let bytes: u64 = requests().map(|(_, _, _, length)| length).sum();
    let offsets: u64 = requests().map(|(_, _, offset, _)| offset).sum();
    for run in read(&alone)["runs"].as_array().unwrap() {
        assert_eq!(
            (run["requests"].as_u64(), run["bytes"].as_u64()),
            (Some(REQUESTS), Some(bytes))
        );
        assert_eq!(on_target(&run["targets"][0]), (REQUESTS, bytes, offsets));
    }
    let [on_first, on_second] = on_pair();
    assert_eq!(on_first.1 + on_second.1, bytes);
    for run in read(&pair)["runs"].as_array().unwrap() {
        assert_eq!(
            (run["requests"].as_u64(), run["bytes"].as_u64()),
            (Some(REQUESTS), Some(bytes))
        );
        assert_eq!(on_target(&run["targets"][0]), on_first);
        assert_eq!(on_target(&run["targets"][1]), on_second);
        assert_eq!(run["verified"]["wrong"], 0);
        assert!(
            run["verified"]["bytes"].as_u64() > Some(bytes / 4),
            "{}",
            run["verified"]
        );
        assert!(run["outstanding"]["max"].as_u64() <= run["depth_cap"].as_u64());
    }
    compares(&alone, &pair, [&first, &second]);
}

fn compares(alone: &Path, pair: &Path, devices: [&LoopDevice; 2]) {
    let args = [OsStr::new("compare"), alone.as_os_str(), pair.as_os_str()];
    let text = run(args).expect(0).stdout;
    let both = format!("{} {}", devices[0].name(), devices[1].name());
    assert!(
        text.contains("single") && text.contains("pair") && text.contains(&both),
        "{text}"
    );
    let json = run(args.into_iter().chain([OsStr::new("--json")]))
        .expect(0)
        .json();
    let arms = json["arms"].as_array().unwrap();
    let targets: Vec<&str> = arms
        .iter()
        .filter_map(|arm| arm["target"].as_str())
        .collect();
    let both = format!("{} {}", devices[0].name(), devices[1].name());
    assert_eq!(
        targets.iter().filter(|target| **target == both).count(),
        2,
        "{targets:?}"
    );
    println!("{text}");
}

#[test]
fn devices_of_a_tape_go_to_their_targets() {
    let folder = tempfile::tempdir().unwrap();
    let rows = "0,sda,read,,4096,4096,,,,,,\n1000,sdb,read,,8192,8192,,,,,,\n\
                2000,sdb,read,,0,4096,,,,,,\n";
    let tape = tape_of_rows(folder.path(), "two", rows);
    let file = |name: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, vec![7; 1 << 20]).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (a, b) = (file("a"), file("b"));
    let (to_a, to_b) = (format!("sda={a}"), format!("1={b}"));
    let both = [
        "--device", &to_a, "--device", &to_b, "--depth", "4", "--json",
    ];
    let document = replay(&tape, &both).expect(0).json();
    let targets = document["runs"][0]["targets"].as_array().unwrap();
    assert_eq!(targets[0]["path"], *a);
    assert_eq!(on_target(&targets[0]), (1, 4_096, 4_096));
    assert_eq!(on_target(&targets[1]), (2, 12_288, 8_192));
    let ended = replay(&tape, &["--device", &to_a]).expect(1);
    assert!(
        ended.stderr.contains("--device 1=TARGET"),
        "{}",
        ended.stderr
    );
    replay(&tape, &["--device", &to_a, &b]).expect(2);
    replay(&tape, &[&a, &b]).expect(1);
}

#[test]
fn what_a_device_cannot_do_is_refused_or_left_out_on_request() {
    if !have_root_and(&["losetup"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let rows = "0,sda,read,,0,4096,,,,,,\n1000,sda,discard,,4096,4096,,,,,,\n\
                2000,sda,discard,,8192,4096,,,,,,\n";
    let tape = tape_of_rows(folder.path(), "discards", rows);
    // The limit stays when the device is given to somebody else.
    let device = LoopDevice::numbered(4_003, 1 << 20);
    let name = device.name().trim_start_matches("/dev/");
    std::fs::write(format!("/sys/block/{name}/queue/discard_max_bytes"), "0").unwrap();
    let words = [
        device.name(),
        "--overwrite",
        device.name(),
        "--depth",
        "1",
        "--json",
    ];
    let ended = replay(&tape, &words).expect(1);
    assert!(
        ended
            .stderr
            .contains("has no discard, of which the tape has 2")
            && ended.stderr.contains("--unsupported skip"),
        "{}",
        ended.stderr
    );
    let skip = words
        .into_iter()
        .chain(["--unsupported", "skip"])
        .collect::<Vec<_>>();
    let document = replay(&tape, &skip).expect(0).json();
    let run = &document["runs"][0];
    assert_eq!(run["requests"], 1);
    assert_eq!(
        (&run["skipped"][0]["requests"], &run["skipped"][0]["bytes"]),
        (&2.into(), &8192.into())
    );
}
