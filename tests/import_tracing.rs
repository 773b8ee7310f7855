//! Text of the kernel's tracing, from other programs, into tapes.

#![cfg(target_os = "linux")]
#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot be set up has failed"
)]

mod common;

use std::path::Path;
use std::process::{Command, Stdio};

use common::{LoopDevice, have, have_root_and, run, tool};

const SAMPLE: &str = "../shared/samples/csv/selfcap-maildir.tracefs-pipe-20k.txt.zst";

#[test]
fn every_issue_of_a_recorded_trace_pipe_is_a_request() {
    let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join(SAMPLE);
    if !sample.exists() {
        eprintln!("skipped: no {}", sample.display());
        return;
    }
    if !have(&["zstdcat", "grep"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("pipe.txt");
    std::fs::write(&text, tool("zstdcat", [&sample])).unwrap();
    let issues: u64 = tool("grep", ["-c", "block_rq_issue", text.to_str().unwrap()])
        .parse()
        .unwrap();
    let tape = folder.path().join("pipe.iotape");
    let import = [
        "import",
        text.to_str().unwrap(),
        "-o",
        tape.to_str().unwrap(),
    ];
    let refused = run(import).expect(1);
    assert!(refused.stderr.contains("--tick-khz"), "{}", refused.stderr);
    run(import.iter().chain(&["--tick-khz", "2596120"])).expect(0);
    let info = run(["info", tape.to_str().unwrap(), "--json"])
        .expect(0)
        .json();
    assert_eq!(info["requests"], issues);
    assert_eq!(info["undecodable"], 0);
}

#[test]
fn what_perf_script_prints_is_what_was_done() {
    if !have_root_and(&["losetup", "perf", "dd", "lsblk"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let device = LoopDevice::new(16 << 20);
    let (data, text) = (
        folder.path().join("perf.data"),
        folder.path().join("perf.txt"),
    );
    let to = format!("of={}", device.name());
    let events = "block:block_bio_queue,block:block_rq_issue,block:block_rq_complete";
    let mut perf = Command::new("perf");
    perf.args(["record", "-q", "-a", "-e", events, "-o"])
        .arg(&data);
    perf.args([
        "--",
        "dd",
        "if=/dev/zero",
        "bs=64k",
        "count=20",
        "oflag=direct",
        &to,
    ]);
    assert!(perf.stderr(Stdio::null()).status().unwrap().success());
    let printed = tool("perf", ["script", "--ns", "-i", data.to_str().unwrap()]);
    // Other devices are busy too.
    let numbers = tool("lsblk", ["-ndo", "MAJ:MIN", device.name()]).replace(':', ",");
    let of_device = format!(": {} ", numbers.trim());
    let lines: Vec<&str> = printed
        .lines()
        .filter(|line| line.contains(&of_device))
        .collect();
    std::fs::write(&text, lines.join("\n")).unwrap();
    let tape = folder.path().join("perf.iotape");
    let paths = [text.to_str().unwrap(), "-o", tape.to_str().unwrap()];
    run(["import"].iter().chain(&paths).chain(&["--layer", "queue"])).expect(0);
    let info = run(["info", tape.to_str().unwrap(), "--json"])
        .expect(0)
        .json();
    assert_eq!(info["by_op"]["write"]["requests"], 20);
    assert_eq!(info["by_op"]["write"]["bytes"], 20 * 65_536);
}
