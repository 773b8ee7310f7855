//! What the recording tests share: loop devices, a recording around a load, skipping aloud.

#![allow(dead_code, reason = "each test binary uses its own part")]

use std::fs::File;
use std::io::Cursor;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use iotape_capture::{Options, Progress, Report, Session, Single};
use iotape_formats::Request;
use iotape_formats::tape::{Block, Header, TapeReader};

/// Says that a test does not run here and why. Where everything is installed (`IOTAPE_TEST_ALL=1`)
/// that is a failure.
pub fn skip(reason: &str) {
    assert!(
        std::env::var_os("IOTAPE_TEST_ALL").is_none(),
        "must run everything, but: {reason}"
    );
    eprintln!("skipped: {reason}");
}

/// Whether root and these programs are here; says so and answers false when not.
pub fn have_root_and(programs: &[&str]) -> bool {
    if !is_root() {
        skip("needs root (loop devices, tracing)");
        return false;
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let there = |name: &&&str| std::env::split_paths(&path).any(|dir| dir.join(name).is_file());
    match programs.iter().find(|name| !there(name)) {
        Some(missing) => {
            skip(&format!("needs {missing}"));
            false
        }
        None => true,
    }
}

pub fn is_root() -> bool {
    output("id", &["-u"]) == "0"
}

/// Standard output of a program that must succeed.
#[track_caller]
pub fn output(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|error| panic!("{program}: {error}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {errors}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// Runs a program to its end, quietly, and returns its process id and whether it succeeded.
pub fn ran(program: &str, arguments: &[&str]) -> (u32, bool) {
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap_or_else(|error| panic!("{program}: {error}"));
    let pid = child.id();
    (pid, child.wait().unwrap().success())
}

/// A loop device over a file of its own; both go when it is dropped.
pub struct LoopDevice {
    pub path: String,
    pub backing: PathBuf,
    _folder: tempfile::TempDir,
}

impl LoopDevice {
    pub fn new(bytes: u64) -> LoopDevice {
        LoopDevice::with_options(bytes, &[])
    }

    /// With options for `losetup`.
    pub fn with_options(bytes: u64, options: &[&str]) -> LoopDevice {
        let (folder, backing) = backing(bytes);
        let mut arguments = vec!["--find", "--show", "--direct-io=on"];
        arguments.extend(options);
        arguments.push(backing.to_str().unwrap());
        LoopDevice {
            path: output("losetup", &arguments),
            backing,
            _folder: folder,
        }
    }

    /// A device for a test that detaches it: with a number of its own, which no other test is given
    /// by asking for a free device.
    pub fn numbered(number: u32, bytes: u64) -> LoopDevice {
        let (folder, backing) = backing(bytes);
        let path = format!("/dev/loop{number}");
        output("losetup", &[&path, backing.to_str().unwrap()]);
        LoopDevice {
            path,
            backing,
            _folder: folder,
        }
    }

    pub fn name(&self) -> &str {
        self.path.trim_start_matches("/dev/")
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        // A test may have detached it.
        let _ = Command::new("losetup")
            .args(["--detach", &self.path])
            .stderr(Stdio::null())
            .status();
    }
}

fn backing(bytes: u64) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    let backing = folder.path().join("backing");
    File::create(&backing).unwrap().set_len(bytes).unwrap();
    (folder, backing)
}

/// What a recording gave.
pub struct Recorded<T> {
    pub report: Report,
    pub header: Header,
    pub requests: Vec<Request>,
    /// What the load returned.
    pub load: T,
}

/// Records while the load runs.
pub fn record<T>(options: &Options, load: impl FnOnce() -> T) -> Recorded<T> {
    let session = Session::start(options).unwrap();
    run(session, load)
}

/// Runs a session while the load runs.
pub fn run<T>(session: Session, load: impl FnOnce() -> T) -> Recorded<T> {
    let stop = AtomicBool::new(false);
    let mut tape = Vec::new();
    let (report, load) = thread::scope(|scope| {
        let recording =
            scope.spawn(|| session.run(&mut Single::new(&mut tape), &stop, &mut |_: &Progress| {}));
        let load = load();
        stop.store(true, Ordering::Relaxed);
        (recording.join().unwrap().unwrap(), load)
    });
    assert_eq!(report.tape_bytes, tape.len() as u64);
    let mut reader = TapeReader::open(Cursor::new(tape)).unwrap();
    assert!(reader.has_footer());
    let mut requests = Vec::new();
    let mut block = Block::new();
    while reader.next_block(&mut block).unwrap() {
        requests.extend(block.requests());
    }
    assert_eq!(requests.len() as u64, report.summary.requests);
    Recorded {
        report,
        header: reader.header().clone(),
        requests,
        load,
    }
}

/// Options for one device.
pub fn options(device: &str) -> Options {
    Options::new(vec![PathBuf::from(device)])
}
