//! Targets that others hold, and targets that fail while they are replayed against: a clear
//! refusal, or a result that is marked invalid with the reason; never a hang.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot be set up has failed"
)]

mod common;

use std::ffi::OsStr;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use common::{Ended, LoopDevice, have, have_root_and, iotape, run, skip, tape_of_rows, tool};

/// Random reads of a page over 64 MiB.
fn reads(folder: &Path) -> PathBuf {
    let mut rows = String::new();
    for row in 0..20_000u64 {
        let offset = row * 7_919 % 16_384 * 4_096;
        writeln!(rows, "{},sda,read,,{offset},4096,,,,,,", row * 1000).unwrap();
    }
    tape_of_rows(folder, "reads", &rows)
}

fn words<'a>(tape: &'a Path, target: &'a Path, rest: &[&'a str]) -> Vec<&'a OsStr> {
    let head = [OsStr::new("replay"), tape.as_os_str(), target.as_os_str()];
    head.into_iter()
        .chain(rest.iter().map(|word| OsStr::new(*word)))
        .collect()
}

#[track_caller]
fn refused(tape: &Path, target: &Path, says: &str) {
    // Only reads, should it not be refused.
    let ended = run(words(tape, target, &[])).expect(1);
    assert!(
        ended.stderr.contains(says),
        "no {says:?} in: {}",
        ended.stderr
    );
    println!("{}", ended.stderr.trim());
}

/// Undoes something when dropped.
struct Undo(&'static str, Vec<String>);

impl Drop for Undo {
    fn drop(&mut self) {
        let _ = Command::new(self.0).args(&self.1).output();
    }
}

/// Whether root may try, and the kernel has a driver, which nobody can install: a file that only
/// the driver makes, and a word in it.
fn have_driver(programs: &[&str], file: &str, word: &str) -> bool {
    let there = std::fs::read_to_string(file).is_ok_and(|text| text.contains(word));
    if !there {
        eprintln!("skipped: this kernel has no {word} (by {file})");
    }
    there && have_root_and(&["losetup"]) && have(programs)
}

/// Whether root may try, and the kernel has the device mapper.
fn have_device_mapper(programs: &[&str]) -> bool {
    have_driver(programs, "/proc/misc", "device-mapper")
}

#[test]
fn the_disk_of_the_root_filesystem_is_refused() {
    if !have_root_and(&["findmnt"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let source = tool("findmnt", ["--noheadings", "--output", "SOURCE", "/"]);
    let device = PathBuf::from(&source);
    if !device.starts_with("/dev") || !device.exists() {
        return skip(&format!(
            "the root filesystem is on no device of this system: {source}"
        ));
    }
    refused(&reads(folder.path()), &device, "is mounted on /;");
}

#[test]
fn a_device_under_device_mapper_is_held() {
    if !have_device_mapper(&["dmsetup"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let device = LoopDevice::new(64 << 20);
    let name = format!("iotape-held-{}", std::process::id());
    let table = format!("0 1024 linear {} 0", device.name());
    tool("dmsetup", ["create", &name, "--table", &table]);
    let _undo = Undo("dmsetup", vec!["remove".to_owned(), name]);
    refused(&reads(folder.path()), &device.path, "is held by dm-");
}

#[test]
fn a_member_of_an_md_array_is_refused_while_it_runs_and_after() {
    if !have_driver(&["mdadm"], "/proc/mdstat", "raid1") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let device = LoopDevice::new(64 << 20);
    let array = "/dev/md127";
    let create = [
        "--create",
        array,
        "--run",
        "--level=1",
        "--raid-devices=2",
        "--metadata=1.2",
        device.name(),
        "missing",
    ];
    tool("mdadm", create);
    let tape = reads(folder.path());
    {
        let _undo = Undo("mdadm", vec!["--stop".to_owned(), array.to_owned()]);
        refused(&tape, &device.path, "is held by md");
    }
    refused(&tape, &device.path, "signature");
}

#[test]
fn a_physical_volume_is_refused_with_and_without_volumes_on_it() {
    if !have_device_mapper(&["pvcreate", "vgcreate", "lvcreate", "vgremove"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let device = LoopDevice::new(64 << 20);
    let tape = reads(folder.path());
    tool("pvcreate", ["--yes", device.name()]);
    refused(&tape, &device.path, "signature");
    let group = format!("iotape{}", std::process::id());
    tool("vgcreate", [&group, device.name()]);
    let _undo = Undo("vgremove", vec!["--force".to_owned(), group.clone()]);
    tool(
        "lvcreate",
        ["--yes", "--size", "8M", "--name", "one", &group],
    );
    refused(&tape, &device.path, "is held by dm-");
}

fn start(tape: &Path, target: &Path, rest: &[&str]) -> Child {
    iotape(words(tape, target, rest))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

#[test]
fn a_device_that_fails_in_mid_run_gives_an_invalid_result() {
    if !have_root_and(&["losetup"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let tape = reads(folder.path());
    for engine in ["uring", "threads"] {
        let device = LoopDevice::new(64 << 20);
        let options = ["--depth", "8", "--for", "60s", "--engine", engine, "--json"];
        let child = start(&tape, &device.path, &options);
        std::thread::sleep(Duration::from_millis(1_500));
        let backing = std::fs::File::options().write(true).open(&device.backing);
        backing.unwrap().set_len(0).unwrap();
        let ended = Ended::from(child.wait_with_output().unwrap());
        if engine == "uring" && ended.status == 1 {
            skip(&format!("io_uring is not to be had here: {}", ended.stderr));
            continue;
        }
        let document = ended.expect(3).json();
        let run = &document["runs"][0];
        assert_eq!(run["valid"], false);
        let reasons = run["reasons"].to_string();
        assert!(
            reasons.contains("given up after 1,000 failed requests in a row")
                && reasons.contains("requests failed"),
            "{reasons}"
        );
        println!("{engine}: {reasons}");
        assert_eq!(
            (&run["errors"][0]["op"], &run["errors"][0]["errno"]),
            (&"read".into(), &5.into())
        );
        assert!(run["elapsed_ns"].as_u64().unwrap() < 50_000_000_000);
    }
}

#[test]
fn ctrl_c_on_a_device_gives_what_was_measured_so_far() {
    if !have_root_and(&["losetup"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let tape = reads(folder.path());
    let device = LoopDevice::new(64 << 20);
    for workers in [None, Some("2")] {
        let mut options = vec!["--depth", "8", "--for", "60s", "--json"];
        options.extend(workers.iter().flat_map(|count| ["--workers", count]));
        let child = start(&tape, &device.path, &options);
        std::thread::sleep(Duration::from_millis(1_500));
        tool("kill", ["-INT", &child.id().to_string()]);
        let document = Ended::from(child.wait_with_output().unwrap())
            .expect(3)
            .json();
        let run = &document["runs"][0];
        let reasons = run["reasons"].to_string();
        assert!(reasons.contains("interrupted before the end"), "{reasons}");
        assert!(run["requests"].as_u64().unwrap() > 0);
        assert_eq!(run["errors"].as_array().unwrap().len(), 0);
    }
}
