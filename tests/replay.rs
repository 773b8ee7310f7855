//! Replay for an ordinary user: a scratch file, both profiles, every engine, little lockable memory,
//! and a system that forbids io_uring.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot be set up has failed"
)]

mod common;

use std::ffi::OsStr;
use std::fmt::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use common::sandbox;
use common::{Ended, iotape, run, skip, tape_of_rows, tool};
use serde_json::Value;

/// 20,000 requests over 64 MiB, every twentieth a write, a flush now and then.
fn load(folder: &Path) -> PathBuf {
    let mut rows = String::new();
    for row in 0..20_000u64 {
        let offset = row * 7919 % 16_384 * 4096;
        match row % 100 {
            50 => writeln!(rows, "{},sda,flush,sync,0,0,500000,,,,,", row * 1000),
            n if n % 20 == 0 => {
                writeln!(rows, "{},sda,write,,{offset},4096,80000,,,,,", row * 1000)
            }
            _ => writeln!(rows, "{},sda,read,,{offset},4096,120000,,,,,", row * 1000),
        }
        .unwrap();
    }
    tape_of_rows(folder, "load", &rows)
}

fn words<'a>(tape: &'a Path, rest: &[&'a str]) -> Vec<&'a OsStr> {
    let head = [OsStr::new("replay"), tape.as_os_str()];
    head.into_iter()
        .chain(rest.iter().map(|word| OsStr::new(*word)))
        .collect()
}

#[track_caller]
fn whole(run: &Value, depth: u64) {
    assert_eq!(run["requests"], 20_000);
    assert_eq!(run["by_op"]["read"]["requests"], 18_800);
    assert_eq!(run["by_op"]["write"]["requests"], 1000);
    assert_eq!(run["by_op"]["flush"]["requests"], 200);
    assert_eq!(run["bytes"], 19_800 * 4096);
    assert_eq!(run["depth_cap"], depth);
    assert!(run["outstanding"]["max"].as_u64().unwrap() <= depth);
    assert_eq!(run["errors"], Value::Array(vec![]));
}

#[test]
fn without_a_target_both_profiles_run_on_a_scratch_file() {
    let folder = tempfile::tempdir().unwrap();
    let tape = load(folder.path());
    let scratch = tempfile::tempdir_in("/var/tmp").unwrap();
    let result = folder.path().join("result.json");
    let output = iotape(words(&tape, &["--json", "-o", result.to_str().unwrap()]))
        .env("TMPDIR", scratch.path())
        .output();
    let ended = Ended::from(output.unwrap()).expect(0);
    let document = ended.json();
    assert_eq!(document["schema"], "iotape.result/1");
    let runs = document["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 2);
    whole(&runs[0], 8);
    whole(&runs[1], 48);
    assert_eq!(
        (&runs[0]["profile"], &runs[1]["profile"]),
        (&"light".into(), &"heavy".into())
    );
    assert_eq!(runs[0]["targets"][0]["kind"], "scratch");
    assert_eq!(
        std::fs::read_dir(scratch.path()).unwrap().count(),
        0,
        "the scratch file is gone"
    );
    let written: Value = serde_json::from_slice(&std::fs::read(&result).unwrap()).unwrap();
    assert_eq!(written, document);
    compares_with_itself(&result);
}

fn compares_with_itself(result: &Path) {
    let args = [
        OsStr::new("compare"),
        result.as_os_str(),
        OsStr::new("--json"),
    ];
    let comparison = run(args).expect(0).json();
    assert_eq!(comparison["arms"].as_array().unwrap().len(), 2);
    assert_eq!(comparison["ratios"][0]["of"], "result heavy");
    assert_eq!(comparison["ratios"][0]["to"], "result light");
}

#[test]
fn every_engine_replays_the_same_requests() {
    let folder = tempfile::tempdir().unwrap();
    let tape = load(folder.path());
    for engine in ["uring", "threads", "null"] {
        let ended = run(words(
            &tape,
            &["--depth", "5", "--engine", engine, "--json"],
        ));
        if engine == "uring" && ended.status == 1 {
            skip(&format!("io_uring is not to be had here: {}", ended.stderr));
            continue;
        }
        let document = ended.expect(0).json();
        assert_eq!(document["runs"][0]["engine"], engine);
        whole(&document["runs"][0], 5);
    }
}

#[test]
fn where_io_uring_is_forbidden_threads_replay_and_it_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let tape = load(folder.path());
    let mut command = iotape(words(&tape, &["--json"]));
    // SAFETY: `forbid_io_uring` makes two system calls on memory of its own and allocates nothing.
    unsafe { command.pre_exec(sandbox::forbid_io_uring) };
    let document = Ended::from(command.output().unwrap()).expect(0).json();
    for (run, depth) in document["runs"].as_array().unwrap().iter().zip([8, 48]) {
        assert_eq!(run["engine"], "threads");
        whole(run, depth);
        let notes = run["notes"].to_string();
        assert!(notes.contains("io_uring"), "{notes}");
    }
    let asked = iotape(words(&tape, &["--engine", "uring"]));
    refuses_uring(asked);
}

fn refuses_uring(mut command: std::process::Command) {
    // SAFETY: as above.
    unsafe { command.pre_exec(sandbox::forbid_io_uring) };
    let ended = Ended::from(command.output().unwrap()).expect(1);
    assert!(ended.stderr.contains("uring"), "{}", ended.stderr);
}

#[test]
fn little_lockable_memory_is_enough() {
    let folder = tempfile::tempdir().unwrap();
    let tape = load(folder.path());
    let mut command = iotape(words(&tape, &["--json"]));
    // SAFETY: `lock_little_memory` makes one system call and allocates nothing.
    unsafe { command.pre_exec(sandbox::lock_little_memory) };
    let document = Ended::from(command.output().unwrap()).expect(0).json();
    whole(&document["runs"][0], 8);
    whole(&document["runs"][1], 48);
}

#[test]
fn tables_fit_80_columns() {
    let folder = tempfile::tempdir().unwrap();
    let tape = load(folder.path());
    let ended = run(words(&tape, &["--engine", "null"])).expect(0);
    assert!(
        ended.stdout.lines().all(|line| line.chars().count() <= 80),
        "{}",
        ended.stdout
    );
    assert!(ended.stdout.contains("light") && ended.stdout.contains("heavy"));
}

#[test]
fn ctrl_c_gives_what_was_measured_so_far() {
    let folder = tempfile::tempdir().unwrap();
    let tape = load(folder.path());
    let args = words(
        &tape,
        &["--engine", "null", "--depth", "8", "--for", "60s", "--json"],
    );
    let child = iotape(args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_millis(1500));
    tool("kill", ["-INT", &child.id().to_string()]);
    let document = Ended::from(child.wait_with_output().unwrap())
        .expect(3)
        .json();
    let run = &document["runs"][0];
    assert_eq!(run["valid"], false);
    assert!(
        run["reasons"].to_string().contains("interrupted"),
        "{}",
        run["reasons"]
    );
    assert!(
        run["requests"].as_u64().unwrap() > 20_000,
        "{}",
        run["requests"]
    );
}

#[test]
fn repeating_and_warming_up_are_bounded_by_time() {
    let folder = tempfile::tempdir().unwrap();
    let tape = load(folder.path());
    let options = [
        "--engine", "null", "--depth", "8", "--for", "500ms", "--warmup", "200ms", "--json",
    ];
    let document = run(words(&tape, &options)).expect(0).json();
    let run = &document["runs"][0];
    let seconds = run["elapsed_ns"].as_f64().unwrap() / 1e9;
    assert!((0.4..0.8).contains(&seconds), "{seconds}");
    let warmup = run["warmup_ns"].as_u64().unwrap();
    assert!((200_000_000..300_000_000).contains(&warmup), "{warmup}");
    assert!(run["passes"].as_u64().unwrap() > 1, "{}", run["passes"]);
}
