//! With which rights a recorder runs, and what it says when one is missing.

#![cfg(target_os = "linux")]
#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot be set up has failed"
)]

mod common;

use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::{Command, Stdio};

use common::fio::Fio;
use common::recorder::Recorder;
use common::{Ended, LoopDevice, have_root_and, iotape, run};

const DEVICE_BYTES: u64 = 256 << 20;

fn reads_of_fio(device: &str) -> u64 {
    let load = ["--rw=randread", "--bs=4k", "--iodepth=8"];
    let load = Fio::start(device, &[&load[..], &["--number_ios=20000"]].concat());
    load.done().requests("read")
}

/// A line of a process's status, without its name.
fn status_of(pid: u32, name: &str) -> String {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap()
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}

fn owner_and_mode(path: &Path) -> (u32, u32) {
    let metadata = std::fs::metadata(path).unwrap();
    (metadata.uid(), metadata.permissions().mode() & 0o777)
}

#[test]
fn once_armed_it_runs_as_nobody_and_misses_nothing() {
    if !have_root_and(&["losetup", "fio"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let device = LoopDevice::new(DEVICE_BYTES);
    for backend in ["perf", "ftrace"] {
        let tape = folder.path().join(format!("{backend}.iotape"));
        let options = ["--layer", "queue", "--backend", backend];
        let recorder = Recorder::start(device.name(), &tape, &options);
        let pid = recorder.pid();
        assert_eq!(status_of(pid, "Uid:"), "65534 65534 65534 65534");
        assert_eq!(status_of(pid, "Gid:"), "65534 65534 65534 65534");
        assert_eq!(status_of(pid, "Groups:"), "");
        for set in ["CapEff:", "CapPrm:", "CapInh:"] {
            assert_eq!(status_of(pid, set), "0000000000000000", "{set}");
        }
        assert_eq!(status_of(pid, "NoNewPrivs:"), "1");
        let asked = reads_of_fio(device.name());
        let info = recorder.stop().expect(0).json();
        assert_eq!(info["requests"], asked, "{backend}");
        // The open file is enough: nobody is given no file.
        assert_eq!(owner_and_mode(&tape), (0, 0o600));
    }
}

#[test]
fn who_called_sudo_gets_the_tape() {
    if !have_root_and(&["losetup", "fio"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    chown(folder.path(), Some(4321), Some(4322)).unwrap();
    let device = LoopDevice::new(DEVICE_BYTES);
    let whole = folder.path().join("whole.iotape");
    let segments = folder.path().join("mail.iotape");
    let named: [(&Path, &[&str]); 2] = [
        (&whole, &["--for", "500ms"]),
        (&segments, &["--for", "2500ms", "--rotate", "1s"]),
    ];
    for (tape, options) in named {
        let mut sudo = iotape(["record", device.name(), "-q", "-o"]);
        sudo.arg(tape).args(options);
        sudo.env("SUDO_UID", "4321").env("SUDO_GID", "4322");
        let ended = Ended::from(sudo.output().unwrap()).expect(0);
        assert_eq!(ended.stderr, "");
    }
    let files: Vec<_> = std::fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    assert!(files.len() > 2, "{files:?}");
    for file in &files {
        assert_eq!(owner_and_mode(file), (4321, 0o600), "{}", file.display());
    }
}

#[test]
fn where_the_user_could_not_make_segments_it_is_said() {
    if !have_root_and(&["losetup"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let device = LoopDevice::new(1 << 20);
    let tape = folder.path().join("mail.iotape");
    let mut args = vec![
        "record",
        device.name(),
        "-q",
        "--rotate",
        "1MiB",
        "--for",
        "200ms",
    ];
    args.extend(["-o", tape.to_str().unwrap()]);
    let stays = run(&args).expect(0);
    assert!(stays.stderr.contains("goes on as root"), "{}", stays.stderr);

    let made = std::fs::read_dir(folder.path()).unwrap().count();
    let refused = run(args.iter().chain(&["--user", "nobody"])).expect(1);
    assert!(
        refused.stderr.contains("cannot make segments"),
        "{}",
        refused.stderr
    );
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), made);

    let root = run(args.iter().chain(&["--user", "root"])).expect(0);
    assert_eq!(root.stderr, "");
    let unknown = run(args.iter().chain(&["--user", "no-such-user"])).expect(2);
    assert!(unknown.stderr.contains("/etc/passwd"), "{}", unknown.stderr);
}

/// Runs the recorder as an ordinary user with these capabilities.
fn with_capabilities(capabilities: &str, device: &str, folder: &Path) -> Ended {
    // Where an ordinary user may run it from.
    let program = folder.join("iotape");
    if !program.exists() {
        std::fs::copy(env!("CARGO_BIN_EXE_iotape"), &program).unwrap();
    }
    // With the locked memory that a login usually has.
    let output = Command::new("prlimit")
        .args(["--memlock=65536:65536", "setpriv"])
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(format!("--inh-caps=-all{capabilities}"))
        .arg(format!("--ambient-caps=-all{capabilities}"))
        .arg(program)
        .args(["record", device, "--for", "300ms", "-q", "--force", "-o"])
        .arg(folder.join("seen.iotape"))
        .stdin(Stdio::null())
        .output();
    output.unwrap().into()
}

#[test]
fn the_documented_capabilities_are_enough_and_each_is_needed() {
    if !have_root_and(&["losetup", "setpriv", "prlimit"]) {
        return;
    }
    let tracefs = std::fs::metadata("/sys/kernel/tracing/events/block");
    if tracefs.is_err() {
        eprintln!("skipped: tracefs is not mounted at /sys/kernel/tracing");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o777)).unwrap();
    let device = LoopDevice::new(1 << 20);
    let record = |capabilities: &str| with_capabilities(capabilities, device.name(), folder.path());
    record(",+perfmon,+dac_read_search,+ipc_lock").expect(0);
    for (capabilities, missing) in [
        (",+dac_read_search,+ipc_lock", "CAP_PERFMON"),
        (",+perfmon,+ipc_lock", "CAP_DAC_READ_SEARCH"),
        (",+perfmon,+dac_read_search", "CAP_IPC_LOCK"),
    ] {
        let ended = record(capabilities).expect(1);
        assert!(
            ended.stderr.contains(missing),
            "{missing}: {}",
            ended.stderr
        );
        assert!(ended.stderr.contains("setcap"), "{}", ended.stderr);
    }
}
