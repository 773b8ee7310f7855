//! Whose requests they are: process and control group of what six programs submit, as each backend
//! tells them. Prints the table of docs/capture.md.

#![cfg(target_os = "linux")]
#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot be set up has failed"
)]

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use common::recorder::{Recorder, has_bpf};
use common::{LoopDevice, have_root_and, rows_of, run, skip, tool};

/// A control group of the hierarchy that charges block I/O; removed when dropped.
struct Group(PathBuf);

impl Group {
    /// `None` where no hierarchy with the controller is mounted, or groups cannot be made in it.
    fn make(name: &str) -> Option<Group> {
        let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
        let fields = mounts
            .lines()
            .map(|line| line.split(' ').collect::<Vec<_>>());
        let root = fields.into_iter().find_map(|mount| match mount[..] {
            [_, point, "cgroup", options, ..] if options.split(',').any(|o| o == "blkio") => {
                Some(PathBuf::from(point))
            }
            _ => None,
        });
        let root = root.or_else(|| unified(&mounts))?;
        let path = root.join(format!("iotape-test-{}-{name}", std::process::id()));
        fs::create_dir(&path).ok()?;
        Some(Group(path))
    }

    /// The kernel's number of it is that of its folder.
    fn id(&self) -> u64 {
        fs::metadata(&self.0).unwrap().ino()
    }

    /// Its path in its hierarchy, which is mounted as a whole.
    fn path(&self) -> String {
        format!("/{}", self.0.file_name().unwrap().display())
    }

    /// A shell command that runs in it, under its own name.
    fn run(&self, script: &str) {
        let script = format!("echo $$ >{}/cgroup.procs && {script}", self.0.display());
        tool("sh", ["-c", &script]);
    }
}

/// The hierarchy of version 2, if it has the controller for its groups.
fn unified(mounts: &str) -> Option<PathBuf> {
    let mut fields = mounts
        .lines()
        .map(|line| line.split(' ').collect::<Vec<_>>());
    let point = PathBuf::from(fields.find(|mount| mount[2] == "cgroup2")?[1]);
    fs::write(point.join("cgroup.subtree_control"), "+io").ok()?;
    Some(point)
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

/// What somebody does to the device.
struct Load {
    name: &'static str,
    /// Shell command; `DEV` is the device.
    script: &'static str,
    op: &'static str,
    /// Process that submits, if it is not the kernel's.
    process: &'static str,
}

const LOADS: [Load; 6] = [
    Load {
        name: "buffered writes, fsync",
        script: "exec dd if=/dev/zero of=DEV bs=64k count=64 conv=fsync,notrunc",
        op: "write",
        process: "dd",
    },
    Load {
        name: "writes, each with fsync",
        script: "exec fio --name=sync --filename=DEV --rw=write --bs=16k --size=2m --fsync=1 --ioengine=psync --thread",
        op: "flush",
        process: "fio",
    },
    Load {
        name: "blkdiscard",
        script: "exec blkdiscard -f -o 16M -l 16M DEV",
        op: "discard",
        process: "blkdiscard",
    },
    Load {
        name: "mkfs.ext4",
        script: "exec mkfs.ext4 -q -F DEV",
        op: "write",
        process: "mkfs.ext4",
    },
    Load {
        name: "io_uring writes, O_DIRECT",
        script: "exec fio --name=ring --filename=DEV --rw=randwrite --bs=4k --size=32m --io_size=4m --direct=1 --ioengine=io_uring --iodepth=8 --thread",
        op: "write",
        process: "fio",
    },
    Load {
        name: "reads, O_DIRECT",
        script: "exec dd if=DEV of=/dev/null bs=4k count=500 iflag=direct",
        op: "read",
        process: "dd",
    },
];

/// Of requests of an operation: all, those of the process, and those of the group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Shares {
    requests: u64,
    process: u64,
    group: u64,
    no_group: u64,
}

fn shares(tape: &Path, load: &Load, group: u64) -> Shares {
    let mut shares = Shares::default();
    for row in rows_of(tape) {
        if row["op"] != load.op {
            continue;
        }
        shares.requests += 1;
        shares.process += u64::from(row["process"] == load.process);
        shares.group += u64::from(row["cgroup"] == group);
        shares.no_group += u64::from(row["cgroup"].is_null());
    }
    shares
}

/// What the tape says by control group: its path, as `info` and as `export` show it.
fn shows_path(tape: &Path, load: &Load, group: &Group, requests: u64) {
    let tape = tape.to_str().unwrap();
    let path = group.path();
    let info = run(["info", tape, "--by", "cgroup", "--json"])
        .expect(0)
        .json();
    let rows = info["rows"].as_array().unwrap();
    let of_group = rows.iter().find(|row| row["key"] == path.as_str());
    let shown = of_group.map_or(0, |row| row["requests"].as_u64().unwrap());
    assert!(shown >= requests, "{}: {path}: {info}", load.name);
    let number = group.id().to_string();
    assert!(
        rows.iter().all(|row| row["key"] != number.as_str()),
        "{info}"
    );
    let export = ["export", tape, "--to", "csv", "--with", "cgroup"];
    let csv = run(export).expect(0).stdout;
    let ends = |line: &&str| line.ends_with(&format!(",{path}"));
    assert_eq!(csv.lines().filter(ends).count() as u64, shown, "{path}");
}

/// The backends that this program has.
fn backends(device: &str) -> Vec<&'static str> {
    let bpf = has_bpf(device).then_some("bpf");
    bpf.into_iter().chain(["perf", "ftrace"]).collect()
}

#[test]
fn who_submits_is_known_by_process_and_control_group() {
    if !have_root_and(&["losetup", "fio", "dd", "blkdiscard", "mkfs.ext4"]) {
        return;
    }
    let device = LoopDevice::new(64 << 20);
    let backends = backends(device.name());
    let folder = tempfile::tempdir().unwrap();
    println!(
        "{:<26} {:<8} {:<8} {:>9} {:>9} {:>9}",
        "load", "op", "backend", "requests", "process", "group"
    );
    for (number, load) in LOADS.iter().enumerate() {
        let Some(group) = Group::make(&number.to_string()) else {
            skip("needs a hierarchy of control groups with blkio, or version 2 with io");
            return;
        };
        // All at the same time.
        let tape = |backend: &str| folder.path().join(format!("{number}-{backend}.iotape"));
        let record = |backend: &&'static str| {
            let options = ["--backend", backend, "--user", "root"];
            (
                *backend,
                Recorder::start(device.name(), &tape(backend), &options),
            )
        };
        let recorders: Vec<_> = backends.iter().map(record).collect();
        group.run(&load.script.replace("DEV", device.name()));
        let mut seen = BTreeMap::new();
        for (backend, recorder) in recorders {
            recorder.stop().expect(0);
            let shares = shares(&tape(backend), load, group.id());
            if backend == "bpf" {
                shows_path(&tape(backend), load, &group, shares.group);
            }
            seen.insert(backend, shares);
        }
        for (backend, shares) in &seen {
            let group = match shares.no_group == shares.requests {
                true => "-".to_owned(),
                false => shares.group.to_string(),
            };
            println!(
                "{:<26} {:<8} {backend:<8} {:>9} {:>9} {group:>9}",
                load.name, load.op, shares.requests, shares.process
            );
        }
        check(load, &seen);
    }
}

fn check(load: &Load, seen: &BTreeMap<&str, Shares>) {
    for (backend, shares) in seen {
        let name = load.name;
        assert!(shares.requests > 0, "{name}, {backend}: {seen:?}");
        if *backend == "bpf" {
            assert_eq!(shares.process, shares.requests, "{name}: {seen:?}");
            assert_eq!(shares.group, shares.requests, "{name}: {seen:?}");
        } else {
            // Tracepoints do not tell groups: nothing is made up.
            assert_eq!(
                shares.no_group, shares.requests,
                "{name}, {backend}: {seen:?}"
            );
        }
    }
}
