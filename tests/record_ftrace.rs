//! The ftrace backend: what it records, and that it leaves the kernel as it was.

#![cfg(target_os = "linux")]
#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot be set up has failed"
)]

mod common;

use std::path::Path;
use std::time::{Duration, Instant};

use common::fio::Fio;
use common::recorder::Recorder;
use common::{Ended, LoopDevice, Mount, exported, have_root_and, iotape};

const DEVICE_BYTES: u64 = 512 << 20;

/// Tracefs at a place of our own.
struct Tracing(Mount);

impl Tracing {
    fn mount() -> Tracing {
        Tracing(Mount::new(&["-t", "tracefs", "tracefs"]))
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

/// fio, reading at random for so many seconds.
fn load(device: &str, seconds: u32) -> Fio {
    let runtime = format!("--runtime={seconds}");
    let load = ["--rw=randread", "--bs=4k", "--iodepth=4", "--time_based"];
    // A thread of fio submits, whose number is not that of its process.
    Fio::start(device, &[&load[..], &[&runtime, "--thread"]].concat())
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
        let load = load(device.name(), 2);
        let process = load.pid();
        let done = load.done();
        let info = recorder.stop().expect(0).json();
        assert_eq!(
            tracing.instances(pid),
            [] as [String; 0],
            "removed before it ends"
        );

        assert_eq!(info["backend"], "ftrace");
        assert_eq!(info["by_op"]["read"]["bytes"], done.bytes("read"));
        if layer == "queue" {
            assert_eq!(info["by_op"]["read"]["requests"], done.requests("read"));
        }
        // Nothing is left out, as it is by perf on some kernels.
        assert_eq!(
            (&info["unpaired"], &info["lost_events"]),
            (&0.into(), &0.into())
        );
        let csv = exported(&tape, "csv");
        let slowest = done.slowest_ns("read");
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
    let load = load(device.name(), 60);
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
    drop(load);

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
