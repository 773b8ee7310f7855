//! What a replay refuses, each with its own error, and the target untouched.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot be set up has failed"
)]

mod common;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{Ended, LoopDevice, checksum, have_root_and, run, tape_of_rows, tool};

const READS: &str = "0,sda,read,,0,4096,,,,,,\n1000,sda,read,,1048576,4096,,,,,,\n";
const WRITES: &str = "0,sda,write,,0,4096,,,,,,\n1000,sda,read,,1048576,4096,,,,,,\n";

fn replay(tape: &Path, rest: &[&str]) -> Ended {
    let words = ["replay", tape.to_str().unwrap()];
    run(words.iter().chain(rest).map(|word| OsStr::new(*word)))
}

/// Replays, expects a refusal that says this, and the target as it was.
#[track_caller]
fn refused(tape: &Path, target: &Path, rest: &[&str], says: &[&str]) {
    let before = checksum(target);
    let mut words = vec![target.to_str().unwrap()];
    words.extend(rest);
    let ended = replay(tape, &words).expect(1);
    for words in says {
        assert!(
            ended.stderr.contains(words),
            "no {words:?} in: {}",
            ended.stderr
        );
    }
    println!("{}", ended.stderr.trim());
    assert_eq!(checksum(target), before, "the target was touched");
}

struct Tapes {
    folder: tempfile::TempDir,
    reads: PathBuf,
    writes: PathBuf,
}

impl Tapes {
    fn new() -> Tapes {
        let folder = tempfile::tempdir().unwrap();
        let reads = tape_of_rows(folder.path(), "reads", READS);
        let writes = tape_of_rows(folder.path(), "writes", WRITES);
        Tapes {
            folder,
            reads,
            writes,
        }
    }
}

/// A filesystem mounted somewhere, until dropped.
struct Mounted<'a> {
    folder: PathBuf,
    _device: &'a LoopDevice,
}

impl<'a> Mounted<'a> {
    fn new(device: &'a LoopDevice, folder: PathBuf) -> Mounted<'a> {
        std::fs::create_dir(&folder).unwrap();
        tool("mount", [device.name(), folder.to_str().unwrap()]);
        Mounted {
            folder,
            _device: device,
        }
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.folder).status();
    }
}

#[test]
fn a_file_is_kept_without_overwrite() {
    let tapes = Tapes::new();
    let file = tapes.folder.path().join("file");
    std::fs::write(&file, vec![7; 2 << 20]).unwrap();
    refused(&tapes.writes, &file, &[], &["--overwrite", "--skip-writes"]);
    refused(
        &tapes.writes,
        &file,
        &["--overwrite", "/dev/null"],
        &["not a target"],
    );
}

#[test]
fn a_target_smaller_than_the_tape_needs_a_mapping() {
    let tapes = Tapes::new();
    let file = tapes.folder.path().join("small");
    std::fs::write(&file, vec![7; 64 << 10]).unwrap();
    refused(&tapes.reads, &file, &[], &["65536", "1052672", "--map"]);
    replay(&tapes.reads, &[file.to_str().unwrap(), "--map", "wrap"]).expect(0);
}

#[test]
fn what_is_no_target_is_named() {
    let tapes = Tapes::new();
    let fifo = tapes.folder.path().join("fifo");
    tool("mkfifo", [&fifo]);
    let missing = tapes.folder.path().join("missing");
    let cases: [(&Path, &str); 4] = [
        (tapes.folder.path(), "directory"),
        (&fifo, "FIFO"),
        (Path::new("/dev/null"), "character device"),
        (&missing, "no such file"),
    ];
    for (target, says) in cases {
        let ended = replay(&tapes.reads, &[target.to_str().unwrap()]).expect(1);
        assert!(
            ended.stderr.contains(says),
            "no {says:?} in: {}",
            ended.stderr
        );
    }
}

#[test]
fn a_file_without_permission_is_said() {
    if tool("id", ["-u"]) == "0" {
        return root_cannot_be_denied();
    }
    let tapes = Tapes::new();
    let file = tapes.folder.path().join("locked");
    std::fs::write(&file, vec![7; 2 << 20]).unwrap();
    tool("chmod", ["000", file.to_str().unwrap()]);
    let ended = replay(&tapes.reads, &[file.to_str().unwrap()]).expect(1);
    assert!(
        ended.stderr.contains("permission denied"),
        "{}",
        ended.stderr
    );
}

/// Root may do everything: the same as `nobody` on a device of root's.
fn root_cannot_be_denied() {
    if !have_root_and(&["losetup", "setpriv"]) {
        return;
    }
    let tapes = Tapes::new();
    for path in [tapes.folder.path(), &tapes.reads] {
        tool("chmod", ["a+rx", path.to_str().unwrap()]);
    }
    let device = LoopDevice::new(4 << 20);
    tool("chmod", ["600", device.name()]);
    let program = tapes.folder.path().join("iotape");
    std::fs::copy(env!("CARGO_BIN_EXE_iotape"), &program).unwrap();
    let output = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(program)
        .args([
            OsStr::new("replay"),
            tapes.reads.as_os_str(),
            device.path.as_os_str(),
        ])
        .output()
        .unwrap();
    let ended = Ended::from(output).expect(1);
    assert!(
        ended.stderr.contains("permission denied"),
        "{}",
        ended.stderr
    );
}

#[test]
fn a_device_without_overwrite_is_kept() {
    if !have_root_and(&["losetup"]) {
        return;
    }
    let tapes = Tapes::new();
    let device = LoopDevice::new(16 << 20);
    refused(
        &tapes.writes,
        &device.path,
        &[],
        &["--overwrite", device.name()],
    );
    replay(
        &tapes.writes,
        &[device.name(), "--overwrite", device.name()],
    )
    .expect(0);
}

#[test]
fn a_device_with_a_filesystem_is_kept_mounted_or_not() {
    if !have_root_and(&["losetup", "mkfs.ext4", "mount"]) {
        return;
    }
    let tapes = Tapes::new();
    let device = LoopDevice::new(64 << 20);
    tool("mkfs.ext4", ["-q", device.name()]);
    let overwrite = ["--overwrite", device.name()];
    refused(
        &tapes.writes,
        &device.path,
        &overwrite,
        &["ext", "signature"],
    );
    refused(&tapes.reads, &device.path, &[], &["ext", "signature"]);
    replay(&tapes.writes, &[device.name(), "--skip-writes"]).expect(0);

    let _mounted = Mounted::new(&device, tapes.folder.path().join("mnt"));
    let ended = replay(&tapes.writes, &[device.name(), overwrite[0], overwrite[1]]).expect(1);
    assert!(ended.stderr.contains("mounted on"), "{}", ended.stderr);
}

#[test]
fn a_device_with_a_partition_table_is_kept() {
    if !have_root_and(&["losetup", "sfdisk"]) {
        return;
    }
    let tapes = Tapes::new();
    let device = LoopDevice::new(64 << 20);
    let sfdisk = format!("echo 2048,8192 | sfdisk -q --no-reread {}", device.name());
    tool("sh", ["-c", &sfdisk]);
    refused(
        &tapes.writes,
        &device.path,
        &["--overwrite", device.name()],
        &["partition table"],
    );
}

#[test]
fn a_read_only_device_is_said() {
    if !have_root_and(&["losetup"]) {
        return;
    }
    let tapes = Tapes::new();
    let device = LoopDevice::with_options(16 << 20, &["--read-only"]);
    refused(
        &tapes.writes,
        &device.path,
        &["--overwrite", device.name()],
        &["read-only"],
    );
    replay(&tapes.reads, &[device.name()]).expect(0);
}

#[test]
fn requests_that_are_no_multiple_of_the_sector_are_refused() {
    if !have_root_and(&["losetup"]) {
        return;
    }
    let tapes = Tapes::new();
    let rows = format!("{READS}2000,sda,read,,4096,512,,,,,,\n");
    let tape = tape_of_rows(tapes.folder.path(), "unaligned", &rows);
    let device = LoopDevice::with_options(16 << 20, &["--sector-size", "4096"]);
    refused(&tape, &device.path, &[], &["4096", "512", "request 2"]);
    zram_is_refused_too(&tape);
}

/// zram's sectors have 4,096 bytes by nature.
fn zram_is_refused_too(tape: &Path) {
    let Some(zram) = Zram::new() else { return };
    refused(tape, &zram.path, &[], &["4096", "512", "request 2"]);
}

struct Zram {
    path: PathBuf,
    number: String,
}

impl Zram {
    fn new() -> Option<Zram> {
        let Ok(number) = std::fs::read_to_string("/sys/class/zram-control/hot_add") else {
            common::skip("no zram in this kernel");
            return None;
        };
        let number = number.trim().to_owned();
        let size = format!("/sys/block/zram{number}/disksize");
        std::fs::write(size, "16777216").unwrap();
        let path = PathBuf::from(format!("/dev/zram{number}"));
        if !path.exists() {
            tool(
                "sh",
                [
                    "-c",
                    &format!("mknod /dev/zram{number} b $(tr : ' ' </sys/block/zram{number}/dev)"),
                ],
            );
        }
        Some(Zram { path, number })
    }
}

impl Drop for Zram {
    fn drop(&mut self) {
        let _ = std::fs::write(format!("/sys/block/zram{}/reset", self.number), "1");
        let _ = std::fs::write("/sys/class/zram-control/hot_remove", &self.number);
    }
}
