//! The BPF backend: each request has its own latency, losses are exact, and nothing is left behind.

#![cfg(target_os = "linux")]
#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot be set up has failed"
)]

mod common;

use std::fs;
use std::io::ErrorKind;
use std::time::{Duration, Instant};

use common::fio::Fio;
use common::recorder::{Recorder, has_bpf};
use common::{LoopDevice, have_root_and, rows_of, skip};

const DEVICE_BYTES: u64 = 64 << 20;

/// A device to record, where the test can run.
fn device(programs: &[&str]) -> Option<LoopDevice> {
    let device = have_root_and(programs).then(|| LoopDevice::new(DEVICE_BYTES))?;
    has_bpf(device.name()).then_some(device)
}

#[test]
fn equal_requests_in_flight_each_have_a_latency() {
    let Some(device) = device(&["losetup", "fio"]) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let tape = folder.path().join("seen.iotape");
    let recorder = Recorder::start(device.name(), &tape, &["--backend", "bpf"]);
    // Sixteen reads of one block at once, all the time.
    let args = [
        "--rw=randread",
        "--bs=4k",
        "--size=4k",
        "--io_size=16m",
        "--iodepth=16",
    ];
    let done = Fio::start(device.name(), &args).done();
    let info = recorder.stop().expect(0).json();
    assert_eq!(info["backend"], "bpf");
    assert_eq!(done.requests("read"), 4096);
    assert_eq!(
        (&info["ambiguous"], &info["lost_events"]),
        (&0.into(), &0.into())
    );
    let slowest = done.slowest_ns("read");
    // Others look at a new device too.
    let mut rows = rows_of(&tape);
    rows.retain(|row| row["process"] == "fio");
    assert_eq!(rows.len(), 4096);
    let latencies = rows.iter().filter_map(|row| row["latency_ns"].as_u64());
    for latency in latencies.clone() {
        assert!(latency > 0 && latency <= slowest, "{latency}: {slowest}");
    }
    // Linux 6.18 leaves out completions now and then: those that are in flight at a moment.
    let without = (rows.len() - latencies.count()) as u64;
    assert!(without <= info["unpaired_issues"].as_u64().unwrap() && without <= 256);
    let times = rows.iter().map(|row| row["time_ns"].as_u64().unwrap());
    let in_order = times.is_sorted();
    assert!(in_order || info["late"] != 0, "in the order of time");
}

#[test]
fn what_a_full_ring_loses_is_counted_exactly() {
    let Some(device) = device(&["losetup", "fio"]) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let tape = folder.path().join("seen.iotape");
    let options = ["--backend", "bpf", "--ring", "64KiB"];
    let recorder = Recorder::start(device.name(), &tape, &options);
    let args = ["--rw=randread", "--bs=4k", "--io_size=40m", "--iodepth=8"];
    recorder.signal("-STOP");
    let done = Fio::start(device.name(), &args).done();
    recorder.signal("-CONT");
    let info = recorder.stop().expect(3).json();
    let total = done.requests("read");
    let (seen, lost) = (
        info["by_op"]["read"]["requests"].as_u64().unwrap(),
        info["lost_requests"].as_u64().unwrap(),
    );
    // Two rings of 1,024 records cannot hold the beginnings and ends of 10,240.
    assert!(lost > 0 && seen > 0, "{info}");
    assert!(info["lost_events"].as_u64().unwrap() >= lost, "{info}");
    assert_eq!(seen + lost, total, "{info}");
    assert!(info["unpaired_issues"].as_u64().unwrap() <= 64, "{info}");
}

/// Numbers of the programs that a process has loaded.
fn programs_of(pid: u32) -> Vec<u32> {
    let number = |line: &str| line.strip_prefix("prog_id:")?.trim().parse().ok();
    let folder = format!("/proc/{pid}/fdinfo");
    let entries = fs::read_dir(folder).unwrap().flatten();
    let texts = entries.filter_map(|entry| fs::read_to_string(entry.path()).ok());
    texts
        .filter_map(|text| text.lines().find_map(number))
        .collect()
}

/// Whether the kernel still has a program.
fn is_loaded(program: u32) -> bool {
    const PROG_GET_FD_BY_ID: libc::c_int = 13;
    let mut attributes = [0u32; 32];
    attributes[0] = program;
    // SAFETY: the attributes outlive the call, and their size is passed.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            PROG_GET_FD_BY_ID,
            attributes.as_mut_ptr(),
            std::mem::size_of_val(&attributes),
        )
    };
    if fd < 0 {
        let error = std::io::Error::last_os_error();
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
        return false;
    }
    // SAFETY: the descriptor is new, and closed once.
    unsafe { libc::close(libc::c_int::try_from(fd).unwrap()) };
    true
}

#[test]
fn however_it_ends_nothing_stays_in_the_kernel() {
    let Some(device) = device(&["losetup"]) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let tape = folder.path().join("seen.iotape");
    for signal in ["-INT", "-KILL", "-ABRT"] {
        let options = ["--backend", "bpf", "--force"];
        let recorder = Recorder::start(device.name(), &tape, &options);
        let programs = programs_of(recorder.pid());
        if programs.is_empty() {
            skip("the kernel does not tell the programs of a process");
            return;
        }
        assert!(programs.iter().all(|program| is_loaded(*program)));
        recorder.signal(signal);
        recorder.wait();
        // The kernel frees them a moment after their last descriptor.
        let begun = Instant::now();
        while programs.iter().any(|program| is_loaded(*program)) {
            assert!(
                begun.elapsed() < Duration::from_secs(20),
                "{signal}: still there"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
