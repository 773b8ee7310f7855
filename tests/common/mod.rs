//! What the end-to-end tests share: running the command, loop devices, and skipping aloud.

#![allow(dead_code, reason = "each test binary uses its own part")]

pub mod fio;
pub mod recorder;
pub mod sandbox;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// The command under test.
pub fn iotape<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_iotape"));
    command.args(args).stdin(Stdio::null());
    command
}

/// How a command ended.
pub struct Ended {
    pub status: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Ended {
    /// Parses standard output as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("{error}\n{}\n{}", self.stdout, self.stderr))
    }

    /// Asserts the exit status.
    #[track_caller]
    pub fn expect(self, status: i32) -> Ended {
        assert_eq!(
            self.status, status,
            "stdout:\n{}\nstderr:\n{}",
            self.stdout, self.stderr
        );
        self
    }
}

impl From<Output> for Ended {
    fn from(output: Output) -> Ended {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ended {
            // A panic of the command is status 101, a signal none: both fail every `expect`.
            status: output.status.code().unwrap_or(-1),
            stdout: text(&output.stdout),
            stderr: text(&output.stderr),
        }
    }
}

/// Runs the command under test to its end.
pub fn run<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Ended {
    iotape(args).output().expect("the command starts").into()
}

/// What `info` says of a tape, as JSON.
pub fn info_of(tape: &Path) -> Ended {
    run([OsStr::new("info"), tape.as_os_str(), OsStr::new("--json")])
}

/// What `export` makes of a tape in a format of text, such as `csv`.
#[track_caller]
pub fn exported(tape: &Path, format: &str) -> String {
    let tape = tape.to_str().expect("a plain path");
    run(["export", tape, "--to", format]).expect(0).stdout
}

/// Requests of a tape, as objects of JSON.
#[track_caller]
pub fn rows_of(tape: &Path) -> Vec<Value> {
    let rows = exported(tape, "jsonl");
    rows.lines()
        .map(|row| serde_json::from_str(row).expect("JSON"))
        .collect()
}

/// Asserts that `check` finds no damage in a tape, whether or not it ends as it should.
#[track_caller]
pub fn assert_undamaged(tape: &Path) {
    let check = run([OsStr::new("check"), tape.as_os_str(), OsStr::new("--json")]).json();
    assert_eq!(check["damage"].as_array().map_or(0, Vec::len), 0, "{check}");
}

/// Runs another program to its end; it must succeed.
#[track_caller]
pub fn tool<S: AsRef<OsStr>>(program: &str, args: impl IntoIterator<Item = S>) -> String {
    let output = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .output();
    let ended = Ended::from(output.unwrap_or_else(|error| panic!("{program}: {error}")));
    assert_eq!(
        ended.status, 0,
        "{program}:\n{}\n{}",
        ended.stdout, ended.stderr
    );
    ended.stdout.trim().to_owned()
}

/// Says that a test does not run here and why. Where everything is installed
/// (`IOTAPE_TEST_ALL=1`, as continuous integration sets for root) that is a failure.
pub fn skip(reason: &str) {
    assert!(
        std::env::var_os("IOTAPE_TEST_ALL").is_none(),
        "must run everything, but: {reason}"
    );
    eprintln!("skipped: {reason}");
}

/// Whether root and these programs are here; says so and answers false when not.
pub fn have_root_and(programs: &[&str]) -> bool {
    if tool("id", ["-u"]) != "0" {
        skip("needs root (loop devices, tracing)");
        return false;
    }
    have(programs)
}

/// Whether these programs are here; says so and answers false when not.
pub fn have(programs: &[&str]) -> bool {
    let missing = programs.iter().find(|program| !on_path(program));
    if let Some(missing) = missing {
        skip(&format!("needs {missing}"));
    }
    missing.is_none()
}

fn on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// A loop device over a file of its own; both go when it is dropped.
pub struct LoopDevice {
    pub path: PathBuf,
    pub backing: PathBuf,
    _folder: tempfile::TempDir,
}

impl LoopDevice {
    /// A device of this size, filled with nothing.
    pub fn new(bytes: u64) -> LoopDevice {
        LoopDevice::with_options(bytes, &[])
    }

    /// A device of this size; options for `losetup`.
    pub fn with_options(bytes: u64, options: &[&str]) -> LoopDevice {
        let (folder, backing) = backing(bytes);
        let backing_text = backing.to_str().expect("a plain path");
        let mut args = vec!["--find", "--show", "--direct-io=on"];
        args.extend(options);
        args.push(backing_text);
        let path = PathBuf::from(tool("losetup", args));
        LoopDevice {
            path,
            backing,
            _folder: folder,
        }
    }

    /// A device for a test that detaches it: with a number of its own, which no other test is given
    /// by asking for a free device.
    pub fn numbered(number: u32, bytes: u64) -> LoopDevice {
        let (folder, backing) = backing(bytes);
        let path = PathBuf::from(format!("/dev/loop{number}"));
        tool("losetup", [&path, &backing]);
        LoopDevice {
            path,
            backing,
            _folder: folder,
        }
    }

    /// `/dev/loopN` as text.
    pub fn name(&self) -> &str {
        self.path.to_str().expect("a plain path")
    }
}

fn backing(bytes: u64) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir_in("/var/tmp").expect("a folder");
    let backing = folder.path().join("backing");
    let file = std::fs::File::create(&backing).expect("a backing file");
    file.set_len(bytes).expect("room");
    (folder, backing)
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = Command::new("losetup")
            .arg("--detach")
            .arg(&self.path)
            .status();
    }
}

/// A file system mounted at a place of its own; both go when it is dropped.
pub struct Mount(tempfile::TempDir);

impl Mount {
    /// Mounts it; `args` for `mount`, without the place.
    pub fn new(args: &[&str]) -> Mount {
        let point = tempfile::tempdir().expect("a folder");
        let place = point.path().to_str().expect("a plain path");
        tool("mount", [args, &[place]].concat());
        Mount(point)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).status();
    }
}

/// Checksum of a file or device.
pub fn checksum(path: &Path) -> String {
    tool("sha256sum", [path])
        .split_whitespace()
        .next()
        .unwrap_or_default()
        .to_owned()
}

/// Header line of the CSV.
pub const CSV_HEAD: &str = "time_ns,device,op,flags,offset_bytes,length_bytes,latency_ns,queue_ns,\
                            pid,process,cpu,error\n";

/// Makes a tape of CSV rows.
pub fn tape_of_rows(folder: &Path, name: &str, rows: &str) -> PathBuf {
    let csv = folder.join(format!("{name}.csv"));
    std::fs::write(&csv, format!("{CSV_HEAD}{rows}")).expect("room");
    let tape = folder.join(format!("{name}.iotape"));
    run([
        OsStr::new("import"),
        csv.as_os_str(),
        OsStr::new("-o"),
        tape.as_os_str(),
    ])
    .expect(0);
    tape
}
