//! Recording what a known load does, against the load's own count and a second tracer.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot be set up has failed"
)]

mod common;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use common::fio::{Done, Fio};
use common::recorder::Recorder;
use common::{LoopDevice, exported, have_root_and, run, tool};
use serde_json::Value;

const SECONDS: u64 = 3;
const DEVICE_BYTES: u64 = 512 << 20;

/// Requests and bytes per operation.
type Totals = BTreeMap<String, (u64, u64)>;

/// The jobs of the load: a name and what makes it itself.
const JOBS: [(&str, &[&str]); 4] = [
    (
        "randrw 70/30 of 4k",
        &["--rw=randrw", "--rwmixread=70", "--bs=4k", "--iodepth=32"],
    ),
    (
        "4k to 64k mixed",
        &["--rw=randrw", "--bsrange=4k-64k", "--iodepth=16"],
    ),
    (
        "fsync every 32 writes",
        &["--rw=randwrite", "--bs=4k", "--fsync=32", "--iodepth=8"],
    ),
    ("randtrim", &["--rw=randtrim", "--bs=64k", "--iodepth=4"]),
];

/// fio for three seconds, or as long as the job says.
fn load(device: &str, job: &[&str]) -> Fio {
    let runtime = format!("--runtime={SECONDS}");
    Fio::start(
        device,
        &[&["--time_based", &runtime, "--randrepeat=1"], job].concat(),
    )
}

/// What fio says it did.
fn fio_totals(done: &Done) -> Totals {
    let mut totals = Totals::new();
    for (key, op) in [
        ("read", "read"),
        ("write", "write"),
        ("trim", "discard"),
        ("sync", "flush"),
    ] {
        let requests = done.requests(key);
        if requests > 0 {
            let bytes = if key == "sync" { 0 } else { done.bytes(key) };
            totals.insert(op.to_owned(), (requests, bytes));
        }
    }
    totals
}

fn tape_totals(info: &Value) -> Totals {
    let by_op = info["by_op"].as_object().unwrap().iter();
    by_op
        .map(|(op, of)| {
            (
                op.clone(),
                (
                    of["requests"].as_u64().unwrap(),
                    of["bytes"].as_u64().unwrap(),
                ),
            )
        })
        .collect()
}

fn info_of(tape: &Path) -> Value {
    common::info_of(tape).expect(0).json()
}

#[test]
fn at_the_queue_layer_requests_and_bytes_are_those_of_fio() {
    if !have_root_and(&["losetup", "fio"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let device = LoopDevice::new(DEVICE_BYTES);
    for (name, job) in JOBS {
        let tape = folder.path().join("seen.iotape");
        let recorder = Recorder::start(device.name(), &tape, &["--layer", "queue", "--force"]);
        let done = load(device.name(), job).done();
        recorder.stop().expect(0);
        let info = info_of(&tape);
        println!(
            "{name}: {:?}, lost {}",
            tape_totals(&info),
            info["lost_events"]
        );
        assert_eq!(tape_totals(&info), fio_totals(&done), "{name}");
        assert_eq!(info["lost_events"], 0, "{name}");
    }
}

#[test]
fn at_the_device_layer_bytes_are_those_of_fio_and_latency_that_of_perf() {
    if !have_root_and(&["losetup", "fio", "perf"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let device = LoopDevice::new(DEVICE_BYTES);
    for (name, job) in JOBS.iter().take(3) {
        let tape = folder.path().join("seen.iotape");
        let recorder = Recorder::start(device.name(), &tape, &["--layer", "device", "--force"]);
        let perf = Perf::start(&folder.path().join("perf.data"));
        let paced = [&["--rate_iops=15000,15000"], *job].concat();
        let done = load(device.name(), &paced).done();
        let peer_mean_ns = perf.mean_latency_ns(device.name());
        recorder.stop().expect(0);

        let info = info_of(&tape);
        let (seen, done) = (tape_totals(&info), fio_totals(&done));
        for op in ["read", "write"] {
            let bytes = |totals: &Totals| totals.get(op).map_or(0, |(_, bytes)| *bytes);
            assert_eq!(bytes(&seen), bytes(&done), "{name}: bytes of {op}");
        }
        let flushes = |totals: &Totals| totals.get("flush").map_or(0, |(requests, _)| *requests);
        assert!(flushes(&seen) + info["coalesced_flushes"].as_u64().unwrap() >= flushes(&done));
        let mean_ns = mean_latency_ns(&tape);
        println!(
            "{name}: mean {mean_ns:.0} ns, perf {peer_mean_ns:.0} ns; merges {}, splits {}, \
             coalesced flushes {}",
            info["merges"], info["splits"], info["coalesced_flushes"]
        );
        assert!(
            (mean_ns / peer_mean_ns - 1.0).abs() < 0.05,
            "{name}: {mean_ns} and {peer_mean_ns}"
        );
    }
}

fn mean_latency_ns(tape: &Path) -> f64 {
    let csv = exported(tape, "csv");
    let (mut sum, mut count) = (0.0, 0.0);
    for row in csv.lines().skip(1) {
        let fields: Vec<&str> = row.split(',').collect();
        if let (true, Ok(latency)) = (
            matches!(fields[2], "read" | "write"),
            fields[6].parse::<f64>(),
        ) {
            sum += latency;
            count += 1.0;
        }
    }
    sum / count
}

/// `perf record` of the same tracepoints, as a second witness.
struct Perf {
    child: std::process::Child,
    data: std::path::PathBuf,
}

impl Perf {
    fn start(data: &Path) -> Perf {
        let events = "block:block_rq_issue,block:block_rq_complete";
        let child = Command::new("perf")
            .args(["record", "-q", "-a", "-m", "4M", "-e", events, "-o"])
            .arg(data)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(1500));
        Perf {
            child,
            data: data.to_owned(),
        }
    }

    /// Ends it; mean time from issue to completion of reads and writes with data.
    fn mean_latency_ns(mut self, device: &str) -> f64 {
        tool("kill", ["-INT", &self.child.id().to_string()]);
        self.child.wait().unwrap();
        let numbers = tool("lsblk", ["-ndo", "MAJ:MIN", device])
            .trim()
            .replace(':', ",");
        let data = self.data.to_str().unwrap();
        let script = tool(
            "perf",
            ["script", "--ns", "-i", data, "-F", "time,event,trace"],
        );
        let mut open: BTreeMap<(String, String), u64> = BTreeMap::new();
        let (mut sum, mut count) = (0u64, 0u64);
        for line in script.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let Some(plus) = words.iter().position(|word| *word == "+") else {
                continue;
            };
            if words[2] != numbers || words[plus + 1] == "0" {
                continue;
            }
            let time = nanoseconds(words[0]);
            let place = (words[plus - 1].to_owned(), words[plus + 1].to_owned());
            if words[1].contains("issue") {
                open.insert(place, time);
            } else if let Some(issued) = open.remove(&place) {
                sum += time - issued;
                count += 1;
            }
        }
        assert!(count > 1000, "perf saw {count} requests of {numbers}");
        sum as f64 / count as f64
    }
}

/// `123.456789012:` as nanoseconds.
fn nanoseconds(time: &str) -> u64 {
    let (seconds, fraction) = time.trim_end_matches(':').split_once('.').unwrap();
    seconds.parse::<u64>().unwrap() * 1_000_000_000 + fraction.parse::<u64>().unwrap()
}

#[test]
fn a_killed_recorder_leaves_all_but_the_last_seconds() {
    if !have_root_and(&["losetup", "fio"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let device = LoopDevice::new(DEVICE_BYTES);
    let armed = armed_in_kernel(folder.path());
    let load = load(
        device.name(),
        &[
            "--rw=randread",
            "--bs=4k",
            "--rate_iops=5000",
            "--runtime=60",
        ],
    );
    for attempt in 0..10u64 {
        let tape = folder.path().join(format!("killed-{attempt}.iotape"));
        let recorder = Recorder::start(device.name(), &tape, &[]);
        // Spread over more than a block's two seconds.
        std::thread::sleep(Duration::from_millis(100 + attempt * 397 % 4100));
        let killed = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap()
            .as_nanos() as u64;
        recorder.signal("-KILL");
        assert_ne!(recorder.wait().status, 0);
        keeps_until(&tape, killed);
    }
    drop(load);
    assert_eq!(
        armed_in_kernel(folder.path()),
        armed,
        "tracing state of the kernel"
    );
}

/// 2 s of an open block, 1 s of ordering, and the time to notice.
const MAY_MISS_NS: u64 = 3_500_000_000;

fn keeps_until(tape: &Path, killed_unix_ns: u64) {
    let info = common::info_of(tape).expect(3).json();
    assert_eq!(info["complete"], false);
    let started = info["started_unix_ns"].as_u64().unwrap();
    let lived = killed_unix_ns.saturating_sub(started);
    let kept = info["duration_ns"].as_u64().unwrap();
    println!(
        "killed after {} ms, kept {} ms, {} requests",
        lived / 1_000_000,
        kept / 1_000_000,
        info["requests"]
    );
    assert!(kept + MAY_MISS_NS >= lived, "kept {kept} of {lived} ns");
    let check = run([OsStr::new("check"), tape.as_os_str()]);
    assert_eq!(check.status, 3, "{}", check.stderr);
}

/// Everything that a tracer could leave behind: mounts, enabled events, the current tracer.
fn armed_in_kernel(folder: &Path) -> String {
    let tracing = folder.join("tracing");
    std::fs::create_dir_all(&tracing).unwrap();
    tool(
        "mount",
        ["-t", "tracefs", "tracefs", tracing.to_str().unwrap()],
    );
    let read = |name: &str| std::fs::read_to_string(tracing.join(name)).unwrap_or_default();
    let state = [
        "current_tracer",
        "set_event",
        "events/block/enable",
        "kprobe_events",
    ]
    .map(read);
    let instances = std::fs::read_dir(tracing.join("instances")).map_or(0, Iterator::count);
    tool("umount", [tracing.to_str().unwrap()]);
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap();
    let tracefs = mounts
        .lines()
        .filter(|line| line.contains("tracefs"))
        .count();
    format!("{state:?} {instances} {tracefs}")
}

#[test]
fn sigterm_and_for_end_a_tape_whole() {
    if !have_root_and(&["losetup", "fio"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let device = LoopDevice::new(DEVICE_BYTES);
    let tape = folder.path().join("terminated.iotape");
    let recorder = Recorder::start(device.name(), &tape, &[]);
    let job = ["--rw=randread", "--bs=4k", "--runtime=1"];
    let done = load(device.name(), &job).done();
    recorder.signal("-TERM");
    recorder.wait().expect(0);
    let info = info_of(&tape);
    assert_eq!(info["complete"], true);
    assert_eq!(info["by_op"]["read"]["bytes"], done.bytes("read"));

    let timed = folder.path().join("timed.iotape");
    Recorder::start(device.name(), &timed, &["--for", "500ms"])
        .wait()
        .expect(0);
    assert_eq!(info_of(&timed)["requests"], 0);
}

#[test]
fn a_device_that_goes_away_leaves_a_whole_tape() {
    if !have_root_and(&["losetup", "fio"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let device = LoopDevice::numbered(4_002, DEVICE_BYTES);
    let tape = folder.path().join("unplugged.iotape");
    let recorder = Recorder::start(device.name(), &tape, &[]);
    let load = load(
        device.name(),
        &[
            "--rw=randread",
            "--bs=4k",
            "--rate_iops=2000",
            "--runtime=20",
        ],
    );
    std::thread::sleep(Duration::from_millis(2500));
    std::fs::File::create(&device.backing).unwrap(); // truncated: every request fails from here
    tool("losetup", ["--detach", device.name()]);
    std::thread::sleep(Duration::from_millis(500));
    drop(load);
    recorder.stop().expect(0);
    let info = info_of(&tape);
    assert_eq!(info["complete"], true);
    assert!(
        info["requests"].as_u64().unwrap() > 500,
        "{}",
        info["requests"]
    );
}
