//! The live view: what it says is what is in the tape and what fio did, and a terminal is given back.

#![cfg(target_os = "linux")]
#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot be set up has failed"
)]

mod common;

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::fio::Fio;
use common::{Ended, LoopDevice, exported, have_root_and, info_of, iotape, run};
use serde_json::Value;

const DEVICE_BYTES: u64 = 256 << 20;

/// Runs fio; answers its requests and bytes of reads and writes.
fn load(device: &str, options: &[&str]) -> [(u64, u64); 2] {
    let load = ["--rw=randrw", "--bs=4k", "--iodepth=8", "--time_based"];
    let done = Fio::start(device, &[&load, options].concat()).done();
    ["read", "write"].map(|op| (done.requests(op), done.bytes(op)))
}

/// Starts a command that watches, and waits until its first figures are out.
fn watching(args: &[&str], output: &Path) -> Child {
    let stdout = std::fs::File::create(output).unwrap();
    let mut child = iotape(args)
        .stdout(stdout)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    while std::fs::metadata(output).unwrap().len() == 0 {
        let ended = child.try_wait().unwrap();
        assert!(
            ended.is_none() && begun.elapsed() < Duration::from_secs(20),
            "{args:?}: no figures"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
    child
}

/// Arguments that show all requests of a device as JSON, ten times a second.
fn top(device: &str) -> [&str; 7] {
    [
        "top",
        device,
        "--layer",
        "queue",
        "--json",
        "--interval",
        "100ms",
    ]
}

fn interrupt(child: Child) -> Ended {
    common::tool("kill", ["-INT", &child.id().to_string()]);
    Ended::from(child.wait_with_output().unwrap())
}

/// The JSON objects of a file: those of intervals, and the last.
fn objects(path: &Path) -> (Vec<Value>, Value) {
    let text = std::fs::read_to_string(path).unwrap();
    let mut objects: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let end = objects.pop().unwrap();
    assert_eq!(end["type"], "end");
    assert!(objects.iter().all(|object| object["type"] == "interval"));
    (objects, end)
}

fn sum(intervals: &[Value], pointer: &str) -> u64 {
    let value = |interval: &Value| interval.pointer(pointer).and_then(Value::as_u64);
    intervals.iter().filter_map(value).sum()
}

/// Latencies of a tape, in order.
fn latencies(tape: &Path) -> Vec<u64> {
    let column = |row: &str| row.split(',').nth(6)?.parse().ok();
    let mut latencies: Vec<u64> = exported(tape, "csv").lines().filter_map(column).collect();
    latencies.sort_unstable();
    latencies
}

#[test]
fn intervals_add_up_to_the_tape_and_to_what_fio_did() {
    if !have_root_and(&["losetup", "fio"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (tape, output) = (folder.path().join("t.iotape"), folder.path().join("out"));
    let device = LoopDevice::new(DEVICE_BYTES);
    let idle = LoopDevice::new(DEVICE_BYTES);
    let args = [
        "record",
        device.name(),
        idle.name(),
        "--layer",
        "queue",
        "--live",
        "--json",
        "--interval",
        "200ms",
        "-o",
        tape.to_str().unwrap(),
    ];
    let child = watching(&args, &output);
    let [(reads, read_bytes), (writes, written_bytes)] = load(device.name(), &["--runtime=2"]);
    let ended = interrupt(child).expect(0);
    assert_eq!(ended.stderr, "");

    let (intervals, end) = objects(&output);
    assert!(intervals.len() >= 8, "{}", intervals.len());
    let asked = reads + writes;
    assert_eq!(sum(&intervals, "/requests"), asked);
    assert_eq!(sum(&intervals, "/bytes"), read_bytes + written_bytes);
    assert_eq!(sum(&intervals, "/by_op/read/requests"), reads);
    assert_eq!(sum(&intervals, "/by_op/write/bytes"), written_bytes);
    assert_eq!(sum(&intervals, "/devices/0/requests"), asked);
    assert_eq!(sum(&intervals, "/devices/1/requests"), 0);
    assert_eq!(end["requests"], asked);
    let info = info_of(&tape).expect(0).json();
    assert_eq!(info["requests"], asked);
    assert_eq!(end["tape_bytes"], info["tape_bytes"]);
    let last = intervals.last().unwrap();
    assert_eq!(last["tape_bytes"], info["tape_bytes"]);
    let name = format!("/dev/{}", last["devices"][0]["name"].as_str().unwrap());
    assert_eq!(name, device.name());

    // Intervals follow each other without a gap.
    let mut to_ns = 0;
    for interval in &intervals {
        assert_eq!(interval["from_ns"], to_ns);
        to_ns = interval["to_ns"].as_u64().unwrap();
    }
    assert_eq!(end["elapsed_ns"], to_ns);

    // Percentiles of all intervals are those of the tape, within the histogram's hundredth.
    let latencies = latencies(&tape);
    let total = &last["latency_total_ns"];
    assert_eq!(total["count"], latencies.len());
    assert_eq!(total["max"], *latencies.last().unwrap());
    for (name, share) in [("p50", 0.5), ("p99", 0.99), ("p99_9", 0.999)] {
        let rank = (share * latencies.len() as f64).ceil() as usize;
        let exact = latencies[rank.max(1) - 1];
        let shown = total[name].as_u64().unwrap();
        assert!(
            shown >= exact && shown as f64 <= exact as f64 * 1.01 + 1.0,
            "{name}: {shown}, exactly {exact}"
        );
    }
    let sum_ns: u64 = latencies.iter().sum();
    let mean = sum_ns as f64 / latencies.len() as f64;
    assert!((total["mean"].as_f64().unwrap() / mean - 1.0).abs() < 1e-6);
    // fio is by far the busiest process.
    let busiest = intervals.iter().max_by_key(|one| one["requests"].as_u64());
    let busiest = busiest.unwrap();
    assert_eq!(busiest["processes"][0]["name"], "fio");
    assert_eq!(busiest["processes"][0]["over_bytes"], 0);
    let rate = busiest["iops"].as_f64().unwrap();
    let length = busiest["to_ns"].as_u64().unwrap() - busiest["from_ns"].as_u64().unwrap();
    let computed = busiest["requests"].as_f64().unwrap() / (length as f64 / 1e9);
    assert!((rate / computed - 1.0).abs() < 1e-6);
    // Little's law: a rate times a mean time.
    let latency = &busiest["latency_ns"];
    let share = latency["count"].as_f64().unwrap() / busiest["requests"].as_f64().unwrap();
    let expected = rate * share * latency["mean"].as_f64().unwrap() / 1e9;
    let depth = busiest["mean_depth"].as_f64().unwrap();
    assert!((depth / expected - 1.0).abs() < 1e-6, "{depth}, {expected}");
}

#[test]
fn top_leaves_no_file_and_nothing_in_the_kernel() {
    if !have_root_and(&["losetup", "fio"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("out");
    let device = LoopDevice::new(DEVICE_BYTES);
    for backend in ["perf", "ftrace"] {
        let args = [&top(device.name())[..], &["--backend", backend]].concat();
        let child = watching(&args, &output);
        let pid = child.id();
        let [(reads, _), (writes, _)] = load(device.name(), &["--runtime=1"]);
        interrupt(child).expect(0);
        let (intervals, end) = objects(&output);
        assert_eq!(sum(&intervals, "/requests"), reads + writes, "{backend}");
        assert_eq!(
            (&end["requests"], &end["tape_bytes"]),
            (&(reads + writes).into(), &Value::Null)
        );
        assert_eq!(intervals[0]["tape_bytes"], Value::Null);
        let left = Path::new("/sys/kernel/tracing/instances").join(format!("iotape-{pid}-0"));
        assert!(!left.exists(), "{}", left.display());
    }
    let files = std::fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(files, 1);
}

#[test]
fn in_a_pipe_it_is_a_line_an_interval_and_ends_with_its_reader() {
    if !have_root_and(&["losetup", "script"]) {
        return;
    }
    let device = LoopDevice::new(DEVICE_BYTES);
    let args = ["top", device.name(), "--interval", "100ms", "--for", "1s"];
    let ended = run(args).expect(0);
    let lines: Vec<&str> = ended.stdout.lines().collect();
    assert!(
        lines[0].contains("MB/s") && lines[0].contains("p99.9"),
        "{}",
        ended.stdout
    );
    assert!((5..=12).contains(&lines.len()), "{}", ended.stdout);
    assert!(!ended.stdout.contains('\x1b'));
    // A terminal that can only print is the same.
    let command = format!("{} {}", env!("CARGO_BIN_EXE_iotape"), args.join(" "));
    let mut dumb = Command::new("script");
    dumb.args(["--quiet", "--command", &command, "/dev/null"])
        .env("TERM", "dumb");
    let ended = Ended::from(dumb.stdin(Stdio::null()).output().unwrap()).expect(0);
    assert!(
        ended.stdout.contains("p99.9") && !ended.stdout.contains('\x1b'),
        "{}",
        ended.stdout
    );
    assert!(lines.last().unwrap().contains("events lost"));

    // Nobody reads any more: top ends, a recording goes on.
    let program = env!("CARGO_BIN_EXE_iotape");
    let folder = tempfile::tempdir().unwrap();
    let tape = folder.path().join("t.iotape");
    let shell = |command: String| {
        let output = Command::new("bash")
            .args(["-o", "pipefail", "-c", &command])
            .output();
        Ended::from(output.unwrap())
    };
    let device = device.name();
    let begun = Instant::now();
    shell(format!(
        "{program} top {device} --interval 100ms --for 60s | head -n 2"
    ))
    .expect(0);
    assert!(begun.elapsed() < Duration::from_secs(30));
    shell(format!(
        "{program} record {device} --live --interval 100ms --for 2s -o {} | head -n 1",
        tape.display()
    ))
    .expect(0);
    let info = info_of(&tape).expect(0).json();
    assert_eq!(info["complete"], true);
}

#[test]
fn a_slow_reader_gets_longer_intervals_and_all_requests() {
    if !have_root_and(&["losetup", "fio"]) {
        return;
    }
    let device = LoopDevice::new(DEVICE_BYTES);
    let mut child = iotape(top(device.name()))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = child.stdout.take().unwrap();
    // A page is room for two or three intervals.
    let fd = std::os::fd::AsRawFd::as_raw_fd(&stdout);
    // SAFETY: plain integer arguments, and the descriptor is open.
    let room = unsafe { libc::fcntl(fd, libc::F_SETPIPE_SZ, 4096) };
    assert_eq!(room, 4096);
    let mut text = vec![0];
    stdout.read_exact(&mut text).unwrap();
    let [(reads, _), (writes, _)] = load(device.name(), &["--runtime=2"]);
    common::tool("kill", ["-INT", &child.id().to_string()]);
    std::thread::sleep(Duration::from_millis(200));
    stdout.read_to_end(&mut text).unwrap();
    let status = child.wait().unwrap().code();

    let text = String::from_utf8(text).unwrap();
    let objects: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let (end, intervals) = objects.split_last().unwrap();
    // Of the twenty and more, only those that found room.
    assert!(intervals.len() < 12, "{}", intervals.len());
    let lost = end["lost_requests"].as_u64().unwrap();
    assert_eq!(status, Some(if lost == 0 { 0 } else { 3 }));
    assert_eq!(
        sum(intervals, "/requests"),
        end["requests"].as_u64().unwrap()
    );
    assert_eq!(sum(intervals, "/requests") + lost, reads + writes);
}

const ENTER: &str = "\x1b[?1049h";
const LEAVE: &str = "\x1b[?1049l";

/// Runs a command on a terminal and sends it signals; answers what the terminal was sent.
fn on_a_terminal(command: &str, signals: &[&str], folder: &Path) -> String {
    let (script, pid) = (folder.join("script"), folder.join("pid"));
    let _ = std::fs::remove_file(&pid);
    let _ = std::fs::remove_file(&script);
    let command = format!(
        "ulimit -c 0; stty cols 60 rows 16; echo $$ >{}; exec {command}",
        pid.display()
    );
    let mut child = Command::new("script")
        .args(["--quiet", "--flush", "--command", &command])
        .arg(&script)
        .env("TERM", "xterm")
        .env_remove("NO_COLOR")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let shown =
        || String::from_utf8_lossy(&std::fs::read(&script).unwrap_or_default()).into_owned();
    let begun = Instant::now();
    while !shown().contains("operation") {
        assert!(begun.elapsed() < Duration::from_secs(20), "{}", shown());
        std::thread::sleep(Duration::from_millis(20));
    }
    for signal in signals {
        let pid = std::fs::read_to_string(&pid).unwrap();
        // The first may have ended it.
        let _ = Command::new("kill")
            .args([signal, pid.trim()])
            .stderr(Stdio::null())
            .status();
        std::thread::sleep(Duration::from_millis(300));
    }
    child.wait().unwrap();
    shown()
}

#[test]
fn a_terminal_is_given_back_however_it_ends() {
    if !have_root_and(&["losetup", "script", "stty"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let device = LoopDevice::new(DEVICE_BYTES);
    let program = env!("CARGO_BIN_EXE_iotape");
    let top = format!("{program} top {} --interval 200ms", device.name());
    let tape = folder.path().join("t.iotape");
    let record = format!(
        "{program} record {} --live --force -o {}",
        device.name(),
        tape.display()
    );
    for (command, signals) in [
        (&top, ["-INT"].as_slice()),
        (&top, &["-TERM"]),
        (&top, &["-QUIT"]),
        (&top, &["-INT", "-INT"]),
        (&record, &["-INT"]),
    ] {
        let shown = on_a_terminal(command, signals, folder.path());
        assert_eq!(shown.matches(ENTER).count(), 1, "{signals:?}: {shown:?}");
        let (screen, after) = shown.split_once(LEAVE).expect(&shown);
        assert!(screen.contains("\x1b[?25l") && screen.contains("\x1b[?25h"));
        assert!(
            !after.contains(LEAVE) && !after.contains("\x1b[H"),
            "{signals:?}"
        );
        // What is said at the end stands on the usual screen.
        if signals == ["-INT"] {
            assert!(after.contains("events lost"), "{after:?}");
        }
        // No line is longer than the terminal.
        let text = screen.split("\x1b[H").nth(2).unwrap();
        let line = |line: &str| {
            line.trim_end_matches('\r')
                .replace("\x1b[K", "")
                .replace("\x1b[1m", "")
                .replace("\x1b[0m", "")
        };
        assert!(
            text.lines().all(|text| line(text).chars().count() <= 60),
            "{text:?}"
        );
    }
    assert_eq!(info_of(&tape).expect(0).json()["complete"], true);
}
