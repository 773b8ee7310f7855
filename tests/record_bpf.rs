//! The BPF backend: each request has its own latency, losses are exact, and nothing is left behind.

#![cfg(target_os = "linux")]
#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot be set up has failed"
)]

mod common;

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::recorder::Recorder;
use common::{Ended, LoopDevice, have_root_and, iotape, skip};
use serde_json::Value;

const DEVICE_BYTES: u64 = 64 << 20;

/// Whether this program has the backend; what it answers where it does not is checked here.
fn is_built(device: &str) -> bool {
    let mut command = iotape(["record", device, "--backend", "bpf", "--for", "100ms"]);
    let ended = Ended::from(
        command
            .args(["-q", "--force", "-o", "/dev/null"])
            .output()
            .unwrap(),
    );
    if ended.status != 2 {
        return true;
    }
    assert!(ended.stderr.contains("--features bpf"), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("apt install clang"),
        "{}",
        ended.stderr
    );
    if cfg!(feature = "bpf") {
        panic!("it was built in: {}", ended.stderr);
    }
    eprintln!("skipped: the backend was not built in (--features bpf)");
    false
}

fn fio(device: &str, args: &[&str]) -> Command {
    let mut fio = Command::new("fio");
    fio.args([
        "--name=load",
        "--direct=1",
        "--output-format=json",
        "--ioengine=io_uring",
    ]);
    fio.arg(format!("--filename={device}")).args(args);
    fio.stdout(Stdio::piped());
    fio
}

fn rows(tape: &Path) -> Vec<Value> {
    let exported = iotape(["export", tape.to_str().unwrap(), "--to", "jsonl"]).output();
    let text = Ended::from(exported.unwrap()).expect(0).stdout;
    text.lines()
        .map(|row| serde_json::from_str(row).unwrap())
        .collect()
}

#[test]
fn equal_requests_in_flight_each_have_a_latency() {
    if !have_root_and(&["losetup", "fio"]) {
        return;
    }
    let device = LoopDevice::new(DEVICE_BYTES);
    if !is_built(device.name()) {
        return;
    }
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
    let load = fio(device.name(), &args).spawn().unwrap();
    let done = Ended::from(load.wait_with_output().unwrap())
        .expect(0)
        .json();
    let info = recorder.stop().expect(0).json();
    let read = &done["jobs"][0]["read"];
    assert_eq!(info["backend"], "bpf");
    assert_eq!(read["total_ios"], 4096);
    assert_eq!(
        (&info["ambiguous"], &info["lost_events"]),
        (&0.into(), &0.into())
    );
    let slowest = read["lat_ns"]["max"].as_u64().unwrap();
    // Others look at a new device too.
    let mut rows = rows(&tape);
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
    if !have_root_and(&["losetup", "fio"]) {
        return;
    }
    let device = LoopDevice::new(DEVICE_BYTES);
    if !is_built(device.name()) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let tape = folder.path().join("seen.iotape");
    let options = ["--backend", "bpf", "--ring", "64KiB"];
    let recorder = Recorder::start(device.name(), &tape, &options);
    let args = ["--rw=randread", "--bs=4k", "--io_size=40m", "--iodepth=8"];
    recorder.signal("-STOP");
    let load = fio(device.name(), &args).spawn().unwrap();
    let done = Ended::from(load.wait_with_output().unwrap())
        .expect(0)
        .json();
    recorder.signal("-CONT");
    let info = recorder.stop().expect(3).json();
    let total = done["jobs"][0]["read"]["total_ios"].as_u64().unwrap();
    let (seen, lost) = (
        info["by_op"]["read"]["requests"].as_u64().unwrap(),
        info["lost_events"].as_u64().unwrap(),
    );
    // Two rings of 1,024 records cannot hold 10,240.
    assert!(lost > 0 && seen > 0, "{info}");
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
    if !have_root_and(&["losetup"]) {
        return;
    }
    let device = LoopDevice::new(DEVICE_BYTES);
    if !is_built(device.name()) {
        return;
    }
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
