//! Every command that the README shows runs. Devices stand in for devices: the README's names are
//! replaced by loop devices, ten seconds by one.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot be set up has failed"
)]

mod common;

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use common::{Ended, LoopDevice, have_root_and, skip};

const README: &str = include_str!("../README.md");

/// Lines of the README's `sh` blocks, lines that a backslash continues joined.
fn commands() -> Vec<String> {
    let mut commands = Vec::new();
    let mut in_block = false;
    for line in README.replace("\\\n", "").lines() {
        match line {
            "```sh" => in_block = true,
            "```" => in_block = false,
            _ if in_block => commands.push(line.split_whitespace().collect::<Vec<_>>().join(" ")),
            _ => (),
        }
    }
    commands
}

/// The two that a newcomer begins with, and the installation: continuous integration runs those.
fn is_cargo(command: &str) -> bool {
    command.starts_with("cargo ")
}

#[test]
fn continuous_integration_runs_the_cargo_commands() {
    let ci = include_str!("../.ci/run");
    let found: Vec<String> = commands()
        .into_iter()
        .filter(|command| is_cargo(command))
        .collect();
    let expected = [
        "cargo run --release -- replay traces/mail-server.iotape",
        "cargo test",
        "cargo install --path .",
    ];
    assert_eq!(found, expected);
    for command in [
        "-- replay traces/mail-server.iotape",
        "cargo test",
        "cargo install --path .",
    ] {
        assert!(ci.contains(command), "{command}");
    }
}

#[test]
fn the_other_commands_run_as_they_stand() {
    if !Path::new("traces/mail-server.iotape").exists() {
        return skip("no tape in traces/");
    }
    if !have_root_and(&["losetup", "dd"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let traces = Path::new(env!("CARGO_MANIFEST_DIR")).join("traces");
    std::os::unix::fs::symlink(traces, folder.path().join("traces")).unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_iotape")).parent().unwrap();
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());
    let devices = [(); 3].map(|()| LoopDevice::new(256 << 20));

    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| read_until(&done, devices[0].name()));
        for command in commands().iter().filter(|command| !is_cargo(command)) {
            let command = with_loop_devices(command, &devices);
            println!("$ {command}");
            let output = Command::new("sh")
                .args(["-c", &command])
                .current_dir(folder.path())
                .env("PATH", &path)
                .stdin(Stdio::null())
                .output()
                .unwrap();
            let ended = Ended::from(output);
            println!("{}{}", ended.stdout, ended.stderr);
            if ended.status != 0 {
                done.store(true, Ordering::Relaxed);
            }
            ended.expect(0);
        }
        done.store(true, Ordering::Relaxed);
    });
}

fn with_loop_devices(command: &str, devices: &[LoopDevice; 3]) -> String {
    command
        .replace("sudo ", "")
        .replace("--for 10s", "--for 1s")
        .replace("/dev/sda", devices[0].name())
        .replace("/dev/nvme0n1", devices[1].name())
        .replace("/dev/nvme1n1", devices[2].name())
}

/// Something for the recorder to see.
fn read_until(done: &AtomicBool, device: &str) {
    while !done.load(Ordering::Relaxed) {
        let _ = Command::new("dd")
            .args([
                &format!("if={device}"),
                "of=/dev/null",
                "bs=4k",
                "count=2000",
                "iflag=direct",
            ])
            .stderr(Stdio::null())
            .status();
    }
}
