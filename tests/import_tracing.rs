//! Text of the kernel's tracing, from other programs, into tapes.

#![cfg(target_os = "linux")]
#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot be set up has failed"
)]

mod common;

use std::path::Path;
use std::process::{Command, Stdio};

use iotape_formats::import::perf_data;

use common::{LoopDevice, have, have_root_and, info_of, run, tool};

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
    let info = info_of(&tape).expect(0).json();
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
    let info = info_of(&tape).expect(0).json();
    assert_eq!(info["by_op"]["write"]["requests"], 20);
    assert_eq!(info["by_op"]["write"]["bytes"], 20 * 65_536);
}

/// A load of fio on a loop device, recorded by perf with the options.
fn record_fio(data: &Path, options: &[&str]) {
    let device = LoopDevice::new(64 << 20);
    let events = "block:block_bio_queue,block:block_rq_issue,block:block_rq_complete,\
                  block:block_bio_complete";
    let mut perf = Command::new("perf");
    perf.args(["record", "-q", "-a", "-e", events])
        .args(options);
    perf.arg("-o")
        .arg(data)
        .args(["--", "fio", "--name=load", "--output=/dev/null"]);
    perf.arg(format!("--filename={}", device.name()));
    perf.args("--direct=1 --rw=randrw --bs=4k --size=64M --io_size=8M".split(' '));
    perf.args("--ioengine=libaio --iodepth=16 --randseed=7".split(' '));
    assert!(perf.stderr(Stdio::null()).status().unwrap().success());
}

#[test]
fn a_perf_data_gives_the_requests_of_what_perf_script_prints_of_it() {
    if !have_root_and(&["losetup", "perf", "fio"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    for (number, options) in [&[][..], &["-z"]].into_iter().enumerate() {
        let (data, text) = (at(&format!("{number}.data")), at("perf.txt"));
        record_fio(Path::new(&data), options);
        let fields = "comm,pid,tid,cpu,time,event,trace";
        let printed = tool("perf", ["script", "--ns", "-F", fields, "-i", &data]);
        std::fs::write(&text, printed).unwrap();
        for layer in ["device", "queue"] {
            let id = |file: &str, tape: String| {
                let import = ["import", file, "-o", &tape, "--force", "--layer", layer];
                run(import).expect(0);
                let info = run(["info", &tape, "--json"]).expect(0).json();
                assert!(info["requests"].as_u64().unwrap() >= 2048);
                info["id"].clone()
            };
            assert_eq!(
                id(&data, at("a")),
                id(&text, at("b")),
                "{options:?} {layer}"
            );
        }
        damage(&std::fs::read(&data).unwrap());
    }
}

/// Cut at each 4 KiB and with 200 flipped bits, it is an error or a tape.
fn damage(bytes: &[u8]) {
    let import = |bytes: &[u8]| {
        let options = perf_data::Options::default();
        let result = perf_data::import(
            std::io::Cursor::new(bytes),
            &options,
            std::io::sink(),
            &mut |_| (),
        );
        result.ok().map(|(_, report)| report.summary.requests)
    };
    let all = import(bytes);
    assert!(all.is_some());
    for cut in (0..bytes.len()).step_by(4096) {
        // What describes the tracepoints stands behind the records: where it is there, all are.
        let imported = import(&bytes[..cut]);
        assert!(imported.is_none() || imported == all, "{cut}: {imported:?}");
    }
    let (mut state, mut whole) = (7u64, 0);
    for _ in 0..200 {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let mut flipped = bytes.to_vec();
        flipped[(state >> 33) as usize % bytes.len()] ^= 1 << (state >> 20 & 7);
        whole += u32::from(import(&flipped).is_some());
    }
    assert!(
        whole >= 100,
        "{whole} of 200 with one bit flipped were imported"
    );
}
