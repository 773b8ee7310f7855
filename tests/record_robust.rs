//! A recorder that is stopped, killed, or in somebody's way.

#![cfg(target_os = "linux")]
#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot be set up has failed"
)]

mod common;

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use common::fio::Fio;
use common::recorder::{Recorder, segments_in};
use common::{Ended, LoopDevice, Mount, assert_undamaged, have_root_and, info_of, iotape, tool};
use serde_json::Value;

const DEVICE_BYTES: u64 = 256 << 20;

/// fio, reading at random; it ends by itself after so many seconds.
fn load(device: &str, seconds: u32) -> Fio {
    let runtime = format!("--runtime={seconds}");
    let load = ["--rw=randread", "--bs=4k", "--iodepth=16", "--time_based"];
    Fio::start(device, &[&load[..], &[&runtime]].concat())
}

fn requests_in(info: &Value) -> u64 {
    info["requests"].as_u64().unwrap()
}

/// Joins tapes into one, whatever was there.
fn join(to: &Path, inputs: &[&Path]) -> Ended {
    let mut edit = iotape(["edit", "--force", "-o"]);
    edit.arg(to).args(inputs);
    edit.output().unwrap().into()
}

/// Records for a second, if it is not refused.
fn record(device: &str, output: &Path, options: &[&str]) -> Ended {
    let mut record = iotape(["record", device, "--for", "1s", "-o"]);
    record.arg(output).args(options);
    record.output().unwrap().into()
}

/// Reads that a loop device has answered since it was made, for whomever it stood.
fn reads_of(device: &LoopDevice) -> u64 {
    let name = device.path.file_name().unwrap().display();
    let statistics = std::fs::read_to_string(format!("/sys/block/{name}/stat")).unwrap();
    let reads = statistics.split_whitespace().next().unwrap();
    reads.parse().unwrap()
}

/// `timeout` sends SIGTERM to its child and then to its group.
#[test]
fn signals_at_once_are_one_and_the_tape_is_whole() {
    if !have_root_and(&["losetup", "fio"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let tape = folder.path().join("t.iotape");
    let device = LoopDevice::new(DEVICE_BYTES);
    let before = reads_of(&device);
    let load = load(device.name(), 20);
    // fio takes a moment to begin. Whoever looks at a new device does not read as often.
    let begun = Instant::now();
    while reads_of(&device) < before + 1000 {
        assert!(begun.elapsed() < Duration::from_secs(15), "no load");
        std::thread::sleep(Duration::from_millis(10));
    }
    for signal in ["-TERM", "-INT"] {
        let recorder = Recorder::start(device.name(), &tape, &["--force"]);
        std::thread::sleep(Duration::from_millis(500));
        recorder.signal(signal);
        recorder.signal(signal);
        let ended = recorder.wait().expect(0).json();
        assert_eq!(info_of(&tape).expect(0).json()["complete"], true);
        assert!(requests_in(&ended) > 0);
    }
    drop(load);
}

#[test]
fn five_seconds_without_a_turn_are_counted_to_the_request() {
    if !have_root_and(&["losetup", "fio"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let tape = folder.path().join("t.iotape");
    let device = LoopDevice::new(DEVICE_BYTES);
    let options = ["--layer", "queue", "--ring", "64KiB", "--live", "--json"];
    let recorder = Recorder::start_loud(device.name(), &tape, &options);
    let load = load(device.name(), 8);
    std::thread::sleep(Duration::from_millis(1500));
    recorder.signal("-STOP");
    std::thread::sleep(Duration::from_secs(5));
    recorder.signal("-CONT");
    let asked = load.done().requests("read");
    let ended = recorder.stop().expect(3);
    assert!(ended.stderr.contains("the kernel lost"), "{}", ended.stderr);

    let objects: Vec<Value> = ended
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let end = objects.last().unwrap();
    println!("fio {asked}, {end}");
    let of = |name: &str| end[name].as_u64().unwrap();
    assert!(of("lost_requests") > 0);
    assert_eq!(of("requests") + of("lost_requests"), asked);
    // The live view told all of it too.
    let intervals = &objects[..objects.len() - 1];
    let sum = |name: &str| -> u64 {
        let values = intervals.iter().map(|interval| &interval[name]);
        values.filter_map(Value::as_u64).sum()
    };
    assert_eq!(sum("requests"), of("requests"));
    assert_eq!(sum("lost_events"), of("lost_events"));
    assert_eq!(sum("lost_requests"), of("lost_requests"));
    let info = info_of(&tape).expect(0).json();
    assert_eq!(requests_in(&info), of("requests"));
    assert_eq!(info["lost_events"], end["lost_events"]);
    let gap = info["losses"].as_array().unwrap().iter();
    let longest =
        gap.map(|loss| loss["to_ns"].as_u64().unwrap() - loss["from_ns"].as_u64().unwrap());
    assert!(longest.max() > Some(3_000_000_000));
}

#[test]
fn killed_at_any_moment_of_a_rotation_it_leaves_whole_segments() {
    if !have_root_and(&["losetup", "fio"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let device = LoopDevice::new(DEVICE_BYTES);
    let _load = load(device.name(), 300);
    // The smallest segments: as many rotations as possible.
    let options = [
        "--layer",
        "queue",
        "--rotate",
        "64KiB",
        "--keep",
        "4",
        "--hide-host",
    ];
    let mut seed = 0x9e37_79b9_7f4a_7c15u64;
    for round in 0..20 {
        let before = segments_in(folder.path());
        let recorder = Recorder::start_segmented(device.name(), folder.path(), &options);
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        std::thread::sleep(Duration::from_millis(50 + (seed >> 33) % 1200));
        recorder.signal("-KILL");
        recorder.wait();

        let after = segments_in(folder.path());
        // It removed none that it did not write, and went on behind them.
        assert_eq!(after[..before.len()], before, "round {round}");
        let new = &after[before.len()..];
        // For a moment there is one more: the oldest goes before a new one begins.
        assert!((1..=4).contains(&new.len()), "round {round}: {new:?}");
        let (mut sum, mut readable) = (0, Vec::new());
        for (place, path) in new.iter().enumerate() {
            let last = place + 1 == new.len();
            // Killed before a byte was written, it is the last one and empty.
            if std::fs::metadata(path).unwrap().len() == 0 {
                assert!(last, "round {round}: {}", path.display());
                continue;
            }
            let info = info_of(path);
            assert!(
                info.status == 0 || last && info.status == 3,
                "round {round}: {}",
                info.stderr
            );
            sum += requests_in(&info.json());
            readable.push(path);
        }
        // Whatever the kill left, all are joined.
        let whole = folder.path().join("whole.iotape");
        let new: Vec<&Path> = new.iter().map(PathBuf::as_path).collect();
        let joined = join(&whole, &new);
        assert!(
            matches!(joined.status, 0 | 3),
            "round {round}: {}",
            joined.stderr
        );
        assert_eq!(
            requests_in(&info_of(&whole).expect(0).json()),
            sum,
            "round {round}"
        );
    }
    let segments = segments_in(folder.path());
    println!(
        "{} segments are left, the last {:?}",
        segments.len(),
        segments.last()
    );
}

#[test]
fn an_empty_segment_is_left_out_and_told() {
    let folder = tempfile::tempdir().unwrap();
    let tape = common::tape_of_rows(folder.path(), "t", "5,sda,read,,0,4096,,,,,,\n");
    let empty = folder.path().join("empty.iotape");
    std::fs::write(&empty, "").unwrap();
    let joined = folder.path().join("joined.iotape");
    let ended = join(&joined, &[&tape, &empty]).expect(3);
    assert!(ended.stderr.contains("is empty"), "{}", ended.stderr);
    assert_eq!(requests_in(&info_of(&joined).expect(0).json()), 1);
    // Nothing but that is no tape.
    join(&joined, &[&empty]).expect(1);
}

#[test]
fn a_full_file_system_ends_a_rotation_with_whole_segments() {
    if !have_root_and(&["losetup", "fio", "mount"]) {
        return;
    }
    let memory = Mount::new(&["-t", "tmpfs", "-o", "size=400k", "tmpfs"]);
    let folder = memory.path();
    let device = LoopDevice::new(DEVICE_BYTES);
    let options = ["--layer", "queue", "--rotate", "128KiB", "--min-free", "0"];
    let recorder = Recorder::start_segmented(device.name(), folder, &options);
    let load = load(device.name(), 60);
    let ended = recorder.wait().expect(1);
    drop(load);
    assert!(
        ended.stderr.contains("No space left") || ended.stderr.contains("os error 28"),
        "{}",
        ended.stderr
    );
    let segments = segments_in(folder);
    assert!(segments.len() >= 3, "{segments:?}");
    for (place, path) in segments.iter().enumerate() {
        if std::fs::metadata(path).unwrap().len() == 0 {
            assert_eq!(place + 1, segments.len());
            continue;
        }
        let info = info_of(path);
        assert!(
            info.status == 0 || place + 1 == segments.len(),
            "{}",
            info.stderr
        );
        assert_undamaged(path);
    }
}

#[test]
fn two_recorders_of_one_name_do_not_meet() {
    if !have_root_and(&["losetup", "fio"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let tape = folder.path().join("t.iotape");
    let device = LoopDevice::new(DEVICE_BYTES);
    let first = Recorder::start(device.name(), &tape, &["--layer", "queue"]);
    let refused = record(device.name(), &tape, &[]).expect(1);
    assert!(
        refused.stderr.contains("exists already"),
        "{}",
        refused.stderr
    );
    let refused = record(device.name(), &tape, &["--force"]).expect(1);
    assert!(
        refused.stderr.contains("another recorder is writing it"),
        "{}",
        refused.stderr
    );
    let asked = load(device.name(), 1).done().requests("read");
    let report = first.stop().expect(0).json();
    assert_eq!(report["requests"], asked);
    assert_eq!(requests_in(&info_of(&tape).expect(0).json()), asked);

    // Segments have numbers of their own.
    let options = ["--layer", "queue", "--rotate", "64KiB", "--keep", "3"];
    let one = Recorder::start_segmented(device.name(), folder.path(), &options);
    let other = Recorder::start_segmented(device.name(), folder.path(), &options);
    load(device.name(), 1).done();
    let paths = |ended: Ended| -> Vec<String> {
        let paths = ended.expect(0).json()["paths"].as_array().unwrap().clone();
        paths
            .iter()
            .map(|path| path.as_str().unwrap().to_owned())
            .collect()
    };
    let mut both = [paths(one.stop()), paths(other.stop())].concat();
    both.sort();
    let there: Vec<String> = segments_in(folder.path())
        .iter()
        .map(|path| path.to_string_lossy().into_owned())
        .collect();
    assert_eq!(both, there);
    assert!(
        there
            .iter()
            .all(|path| info_of(Path::new(path)).status == 0)
    );
}

#[test]
fn what_is_no_file_is_refused() {
    if !have_root_and(&["losetup", "mkfifo"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let fifo = folder.path().join("fifo");
    tool("mkfifo", [&fifo]);
    let (device, other) = (LoopDevice::new(DEVICE_BYTES), LoopDevice::new(1 << 20));
    let before = common::checksum(&other.path);
    for output in [
        fifo.as_path(),
        Path::new("/dev/stdout"),
        Path::new("/dev/null"),
        &other.path,
    ] {
        let refused = record(device.name(), output, &[]).expect(1);
        assert!(
            refused.stderr.contains("exists already"),
            "{}",
            refused.stderr
        );
        let refused = record(device.name(), output, &["--force"]).expect(1);
        assert!(
            refused.stderr.contains("not a regular file"),
            "{}",
            refused.stderr
        );
    }
    assert_eq!(common::checksum(&other.path), before);
    let refused = record(device.name(), Path::new("-"), &[]).expect(2);
    assert!(refused.stderr.contains("name a file"), "{}", refused.stderr);
    assert!(!Path::new("-").exists());
    // Not a file that is printed into either.
    let log = folder.path().join("log");
    let mut command = iotape([
        "record",
        device.name(),
        "--for",
        "1s",
        "--force",
        "-o",
        "/dev/stdout",
    ]);
    std::fs::write(&log, "precious").unwrap();
    command.stdout(std::fs::OpenOptions::new().append(true).open(&log).unwrap());
    let refused = Ended::from(command.output().unwrap()).expect(2);
    assert!(refused.stderr.contains("name a file"), "{}", refused.stderr);
    assert_eq!(std::fs::read(&log).unwrap(), b"precious");
}

/// In a sticky folder, as temporary ones are, only its owner removes a file: segments are all of the user
/// that the recorder goes on as.
#[test]
fn segments_come_and_go_in_a_folder_that_is_everybodys() {
    if !have_root_and(&["losetup"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), Permissions::from_mode(0o1777)).unwrap();
    let device = LoopDevice::new(DEVICE_BYTES);
    let options = ["--rotate", "1s", "--keep", "2", "--for", "4s"];
    Recorder::start_segmented(device.name(), folder.path(), &options)
        .wait()
        .expect(0);
    let segments = segments_in(folder.path());
    assert_eq!(segments.len(), 2, "{segments:?}");
    assert!(
        !segments
            .iter()
            .any(|path| path.ends_with("mail.0001.iotape"))
    );
}
