//! The ftrace backend: what it records, and that it leaves the kernel as it was.

#![cfg(target_os = "linux")]
#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot be set up has failed"
)]

mod common;

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use common::recorder::Recorder;
use common::{Ended, LoopDevice, have_root_and, iotape, tool};

const DEVICE_BYTES: u64 = 512 << 20;

/// Tracefs at a place of our own.
struct Tracing(tempfile::TempDir);

impl Tracing {
    fn mount() -> Tracing {
        let point = tempfile::tempdir().unwrap();
        let path = point.path().to_str().unwrap();
        tool("mount", ["-t", "tracefs", "tracefs", path]);
        Tracing(point)
    }

    /// Our recorder's instances.
    fn instances(&self, pid: u32) -> Vec<String> {
        let prefix = format!("iotape-{pid}-");
        let entries = std::fs::read_dir(self.0.path().join("instances")).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.starts_with(&prefix)).collect()
    }

    /// What a tracer could leave behind.
    fn state(&self) -> Vec<String> {
        let files = [
            "current_tracer",
            "set_event",
            "events/block/enable",
            "trace_options",
            "trace_clock",
            "buffer_size_kb",
            "tracing_on",
            "dynamic_events",
        ];
        files
            .iter()
            .map(|file| std::fs::read_to_string(self.0.path().join(file)).unwrap_or_default())
            .collect()
    }

    /// Waits until nothing is left of a recorder.
    fn becomes_clean(&self, pid: u32) {
        let begun = Instant::now();
        while !self.instances(pid).is_empty() {
            assert!(
                begun.elapsed() < Duration::from_secs(20),
                "an instance is left"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Tracing {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).status();
    }
}

fn fio(device: &str, seconds: u32) -> Command {
    let mut fio = Command::new("fio");
    fio.args([
        "--name=load",
        "--direct=1",
        "--rw=randread",
        "--bs=4k",
        "--time_based",
    ]);
    fio.args(["--ioengine=io_uring", "--iodepth=4", "--output-format=json"]);
    fio.args([
        format!("--filename={device}"),
        format!("--runtime={seconds}"),
    ]);
    fio.stdout(std::process::Stdio::piped());
    fio
}

#[test]
fn requests_are_those_of_fio_with_their_process_and_latency() {
    if !have_root_and(&["losetup", "fio", "mount"]) {
        return;
    }
    let tracing = Tracing::mount();
    let device = LoopDevice::new(DEVICE_BYTES);
    let folder = tempfile::tempdir().unwrap();
    let tape = folder.path().join("seen.iotape");
    for layer in ["queue", "device"] {
        let options = ["--backend", "ftrace", "--layer", layer, "--force"];
        let recorder = Recorder::start(device.name(), &tape, &options);
        let pid = recorder.pid();
        assert_eq!(tracing.instances(pid).len(), 1);
        // A thread of fio submits, whose number is not that of its process.
        let mut command = fio(device.name(), 2);
        let load = command.arg("--thread").spawn().unwrap();
        let process = load.id();
        let report = Ended::from(load.wait_with_output().unwrap())
            .expect(0)
            .json();
        let info = recorder.stop().expect(0).json();
        assert_eq!(
            tracing.instances(pid),
            [] as [String; 0],
            "removed before it ends"
        );

        assert_eq!(info["backend"], "ftrace");
        let done = &report["jobs"][0]["read"];
        assert_eq!(info["by_op"]["read"]["bytes"], done["io_bytes"]);
        if layer == "queue" {
            assert_eq!(info["by_op"]["read"]["requests"], done["total_ios"]);
        }
        // Nothing is left out, as it is by perf on some kernels.
        assert_eq!(
            (&info["unpaired"], &info["lost_events"]),
            (&0.into(), &0.into())
        );
        let csv = iotape(["export", tape.to_str().unwrap(), "--to", "csv"]);
        let csv = Ended::from({ csv }.output().unwrap()).expect(0).stdout;
        let slowest = done["lat_ns"]["max"].as_u64().unwrap();
        for row in csv.lines().skip(1) {
            let fields: Vec<&str> = row.split(',').collect();
            assert_eq!(fields[8], process.to_string(), "{row}");
            let latency: u64 = fields[6].parse().unwrap();
            assert!(latency > 0 && latency <= slowest, "{row}: {slowest}");
        }
    }
}

#[test]
fn however_it_ends_the_kernel_traces_as_before() {
    if !have_root_and(&["losetup", "fio", "mount"]) {
        return;
    }
    let tracing = Tracing::mount();
    let before = tracing.state();
    let device = LoopDevice::new(DEVICE_BYTES);
    let folder = tempfile::tempdir().unwrap();
    let tape = folder.path().join("seen.iotape");
    let mut load = fio(device.name(), 60).spawn().unwrap();
    let options = ["--backend", "ftrace", "--force"];
    let bounded = [&options[..], &["--max-bytes", "64KiB"]].concat();
    for (signal, options) in [
        (Some("-INT"), &options[..]),
        (Some("-TERM"), &options[..]),
        (Some("-KILL"), &options[..]),
        (Some("-ABRT"), &options[..]),
        (None, &bounded[..]),
    ] {
        let recorder = Recorder::start(device.name(), &tape, options);
        let pid = recorder.pid();
        assert_eq!(tracing.instances(pid).len(), 1, "{signal:?}");
        if let Some(signal) = signal {
            std::thread::sleep(Duration::from_millis(300));
            recorder.signal(signal);
        }
        recorder.wait();
        tracing.becomes_clean(pid);
        assert_eq!(tracing.state(), before, "{signal:?}");
    }
    load.kill().unwrap();
    load.wait().unwrap();

    // One that does not begin leaves nothing either.
    let nowhere = Path::new("/no/such/folder/seen.iotape");
    let mut command = iotape(["record", device.name(), "--backend", "ftrace", "-o"]);
    let child = command
        .arg(nowhere)
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let pid = child.id();
    assert_eq!(Ended::from(child.wait_with_output().unwrap()).status, 1);
    assert_eq!(tracing.instances(pid), [] as [String; 0]);
    assert_eq!(tracing.state(), before);
}

#[test]
fn an_instance_whose_janitor_was_killed_too_goes_at_the_next_start() {
    if !have_root_and(&["losetup", "mount"]) {
        return;
    }
    let tracing = Tracing::mount();
    // No process has this number.
    let stale = tracing.0.path().join("instances/iotape-4194999-0");
    std::fs::create_dir(&stale).unwrap();
    let device = LoopDevice::new(1 << 20);
    let folder = tempfile::tempdir().unwrap();
    let tape = folder.path().join("seen.iotape");
    let recorder = Recorder::start(device.name(), &tape, &["--backend", "ftrace"]);
    assert!(!stale.exists());
    recorder.stop().expect(0);
}
