//! A recorder at its bounds: segments, sizes, full disks, too little time, and how it is ended.

#![cfg(target_os = "linux")]
#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot be set up has failed"
)]

mod common;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use common::fio::Fio;
use common::recorder::{Recorder, segments_in};
use common::{Ended, LoopDevice, Mount, assert_undamaged, have_root_and, iotape, run, tool};
use serde_json::Value;

const DEVICE_BYTES: u64 = 512 << 20;
const MIB: u64 = 1 << 20;

/// fio, reading at random; `options` such as how long.
fn load(device: &str, options: &[&str]) -> Fio {
    let load = ["--rw=randread", "--bs=4k", "--iodepth=16", "--time_based"];
    Fio::start(device, &[&load, options].concat())
}

fn info_of(tape: &Path) -> Value {
    common::info_of(tape).json()
}

/// Joins segments, named in any order.
fn joined(segments: &[PathBuf], to: &Path) -> Value {
    let mut edit = iotape(["edit", "-o"]);
    edit.arg(to).args(segments.iter().rev());
    Ended::from(edit.output().unwrap()).expect(0);
    info_of(to)
}

#[test]
fn segments_join_into_all_that_fio_did() {
    if !have_root_and(&["losetup", "fio"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let device = LoopDevice::new(DEVICE_BYTES);
    let options = ["--layer", "queue", "--rotate", "128KiB", "--hide-host"];
    let recorder = Recorder::start_segmented(device.name(), folder.path(), &options);
    let asked = load(device.name(), &["--runtime=2"])
        .done()
        .requests("read");
    let ended = recorder.stop().expect(0);
    let report = ended.json();

    let segments = segments_in(folder.path());
    assert!(segments.len() > 2, "{asked} requests in {segments:?}");
    assert_eq!(report["segments"], segments.len());
    let mut sum = 0;
    for path in &segments {
        let bytes = std::fs::metadata(path).unwrap().len();
        assert!(bytes <= 128 << 10, "{}: {bytes}", path.display());
        let info = info_of(path);
        assert_eq!(info["complete"], true, "{}", path.display());
        assert!(info["options"].to_string().contains("segment="));
        sum += info["requests"].as_u64().unwrap();
    }
    assert_eq!(sum, asked);
    let whole = joined(&segments, &folder.path().join("whole.iotape"));
    assert_eq!(
        (&whole["requests"], &whole["lost_events"]),
        (&asked.into(), &0.into())
    );
    assert_eq!(whole["devices"].as_array().unwrap().len(), 1);

    // The requests are the same however they are joined.
    let cat = folder.path().join("cat.iotape");
    let bytes: Vec<u8> = segments
        .iter()
        .flat_map(|path| std::fs::read(path).unwrap())
        .collect();
    std::fs::write(&cat, bytes).unwrap();
    assert_eq!(info_of(&cat)["id"], whole["id"]);
}

#[test]
fn the_newest_segments_are_kept_and_earlier_recordings_stay() {
    if !have_root_and(&["losetup", "fio"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(
        folder.path().join("mail.0003.iotape"),
        "an earlier recording",
    )
    .unwrap();
    let device = LoopDevice::new(DEVICE_BYTES);
    let options = [
        "--layer",
        "queue",
        "--max-bytes",
        "512KiB",
        "--rotate",
        "64KiB",
        "--keep",
        "4",
        "--ring",
        "64KiB",
    ];
    let recorder = Recorder::start_segmented(device.name(), folder.path(), &options);
    let asked = load(device.name(), &["--runtime=2"])
        .done()
        .requests("read");
    let ended = recorder.stop();
    assert!(matches!(ended.status, 0 | 3), "{}", ended.stderr);
    let report = ended.json();
    let of = |name: &str| report[name].as_u64().unwrap();
    assert_eq!(of("requests") + of("lost_requests"), asked);
    let segments = segments_in(folder.path());
    assert_eq!(segments.len(), 1 + 4, "{segments:?}");
    assert_eq!(
        std::fs::read(&segments[0]).unwrap(),
        b"an earlier recording"
    );
    let written = report["segments"].as_u64().unwrap();
    assert_eq!(report["removed"], written - 4);
    let newest = folder
        .path()
        .join(format!("mail.{:04}.iotape", 3 + written));
    assert_eq!(segments[4], newest);
    let kept: u64 = segments[1..]
        .iter()
        .map(|path| std::fs::metadata(path).unwrap().len())
        .sum();
    assert!(kept <= 4 * (64 << 10));
    joined(&segments[1..], &folder.path().join("whole.iotape"));
}

#[test]
fn the_largest_size_ends_a_recording_with_a_whole_tape() {
    if !have_root_and(&["losetup", "fio"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let device = LoopDevice::new(DEVICE_BYTES);
    let tape = folder.path().join("small.iotape");
    let recorder = Recorder::start(device.name(), &tape, &["--max-bytes", "100KiB"]);
    let load = load(device.name(), &["--runtime=30"]);
    let ended = recorder.wait().expect(0);
    drop(load);
    assert!(
        ended.stderr.contains("the size that was allowed"),
        "{}",
        ended.stderr
    );
    let bytes = std::fs::metadata(&tape).unwrap().len();
    assert!(bytes > 75 << 10 && bytes <= 100 << 10, "{bytes}");
    assert_eq!(info_of(&tape)["complete"], true);
}

/// A small file system on a device of its own. It is unmounted before the device goes.
struct SmallDisk {
    mount: Mount,
    device: LoopDevice,
}

impl SmallDisk {
    fn new(bytes: u64) -> SmallDisk {
        let device = LoopDevice::new(bytes);
        tool("mkfs.ext4", ["-q", "-O", "^has_journal", device.name()]);
        let mount = Mount::new(&[device.name()]);
        SmallDisk { mount, device }
    }
}

#[test]
fn a_full_disk_ends_a_recording_and_leaves_what_was_written() {
    if !have_root_and(&["losetup", "fio", "mkfs.ext4", "mount"]) {
        return;
    }
    let device = LoopDevice::new(DEVICE_BYTES);
    let disk = SmallDisk::new(8 * MIB);
    let tape = disk.mount.path().join("full.iotape");
    let refused = run([
        OsStr::new("record"),
        OsStr::new(device.name()),
        OsStr::new("-o"),
        disk.mount.path().join("refused.iotape").as_os_str(),
    ]);
    assert_eq!(refused.status, 1);
    assert!(
        refused.stderr.contains("are to be left free"),
        "{}",
        refused.stderr
    );
    // What it made before it looked is not in the way of the next one.
    assert!(!disk.mount.path().join("refused.iotape").exists());

    // Up to the floor, and up to the last block.
    for (floor, filled, status) in [("5MiB", "count=40", 3), ("0", "count=1000", 1)] {
        let options = ["--min-free", floor, "--force"];
        let recorder = Recorder::start(device.name(), &tape, &options);
        // Something else fills the disk.
        let filler = disk.mount.path().join("filler");
        let _ = Command::new("dd")
            .args([
                "if=/dev/zero",
                "bs=64k",
                filled,
                &format!("of={}", filler.display()),
            ])
            .stderr(Stdio::null())
            .status();
        let load = load(device.name(), &["--runtime=20"]);
        let ended = recorder.wait();
        drop(load);
        assert_eq!(ended.status, status, "{floor}: {}", ended.stderr);
        let said = if status == 3 {
            "to be left free"
        } else {
            "No space left"
        };
        assert!(ended.stderr.contains(said), "{floor}: {}", ended.stderr);
        assert_undamaged(&tape);
        std::fs::remove_file(filler).unwrap();
    }
}

/// Programs that take all processors.
struct Busy(Vec<Child>);

impl Busy {
    fn new() -> Busy {
        let spin = || {
            Command::new("sh")
                .args(["-c", "while :; do :; done"])
                .spawn()
                .unwrap()
        };
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        Busy((0..2 * cpus).map(|_| spin()).collect())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[test]
fn requests_in_the_tape_and_lost_ones_are_those_of_fio_however_starved_the_recorder_is() {
    if !have_root_and(&["losetup", "fio", "renice"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let device = LoopDevice::new(DEVICE_BYTES);
    let options = ["--layer", "queue", "--ring", "64KiB", "--rotate", "1MiB"];
    let recorder = Recorder::start_segmented(device.name(), folder.path(), &options);
    recorder.renice(19);
    let busy = Busy::new();
    let load = load(device.name(), &["--runtime=3"]);
    // And it does not run at all for a while.
    std::thread::sleep(Duration::from_millis(1000));
    recorder.signal("-STOP");
    std::thread::sleep(Duration::from_millis(500));
    recorder.signal("-CONT");
    let asked = load.done().requests("read");
    drop(busy);
    let report = recorder.stop().expect(3).json();

    let of = |name: &str| report[name].as_u64().unwrap();
    println!("fio {asked}, {report}");
    assert!(of("lost_requests") > 0);
    assert_eq!(of("requests") + of("lost_requests"), asked);
    let whole = joined(
        &segments_in(folder.path()),
        &folder.path().join("whole.iotape"),
    );
    assert_eq!(whole["requests"], report["requests"]);
    assert_eq!(whole["lost_events"], report["lost_events"]);
    let losses = whole["losses"].as_array().unwrap();
    let told: u64 = losses
        .iter()
        .map(|loss| loss["events"].as_u64().unwrap())
        .sum();
    assert_eq!(told, of("lost_events"));
    // The tape alone tells as much.
    let in_tape = |name: &str| whole[name].as_u64().unwrap();
    assert_eq!(in_tape("requests") + in_tape("lost_requests"), asked);
}

#[test]
fn the_first_loss_ends_a_recording_that_must_not_lose() {
    if !have_root_and(&["losetup", "fio"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let device = LoopDevice::new(DEVICE_BYTES);
    let tape = folder.path().join("strict.iotape");
    let options = ["--ring", "64KiB", "--fail-on-loss"];
    let recorder = Recorder::start(device.name(), &tape, &options);
    let load = load(device.name(), &["--runtime=30"]);
    std::thread::sleep(Duration::from_millis(300));
    recorder.signal("-STOP");
    std::thread::sleep(Duration::from_millis(500));
    recorder.signal("-CONT");
    let ended = recorder.wait().expect(3);
    drop(load);
    assert!(
        ended.stderr.contains("the recording ended after"),
        "{}",
        ended.stderr
    );
    assert!(
        ended.stderr.contains("events were lost"),
        "{}",
        ended.stderr
    );
    let info = info_of(&tape);
    assert_eq!(info["complete"], true);
    assert!(info["lost_events"].as_u64().unwrap() > 0);
}

#[test]
fn the_recorders_own_writes_are_not_in_the_tape() {
    if !have_root_and(&["losetup", "fio", "mkfs.ext4", "mount"]) {
        return;
    }
    // The tape lies on the recorded device, and nobody else writes there.
    let disk = SmallDisk::new(64 * MIB);
    let own = disk.device.name().to_owned();
    let other = LoopDevice::new(DEVICE_BYTES);
    let tape = disk.mount.path().join("own.iotape");
    let mut command = iotape([
        "record",
        &own,
        other.name(),
        "--layer",
        "queue",
        "--json",
        "-o",
    ]);
    command.arg(&tape).args(["--min-free", "0", "--for", "3s"]);
    let recorder = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_millis(500));
    load(other.name(), &["--runtime=2"]).done();
    let ended = Ended::from(recorder.wait_with_output().unwrap()).expect(0);
    assert!(
        ended.stderr.contains("which is recorded"),
        "{}",
        ended.stderr
    );
    let info = ended.json();
    let bytes = info["tape_bytes"].as_u64().unwrap();
    let written = info["by_op"]["write"]["bytes"].as_u64().unwrap_or(0);
    println!("{bytes} bytes of tape, {written} bytes of writes recorded");
    assert!(bytes > 32 << 10, "{bytes}");
    // What remains is the file system's own: its inode, bitmaps.
    assert!(written < bytes / 4 + 16_384, "{written} of {bytes}");
}
