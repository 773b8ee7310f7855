//! `iotape record` running beside a test.

use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use super::{Ended, iotape, run, tool};

/// A recorder that has begun. It is killed when dropped.
pub struct Recorder {
    child: Option<Child>,
}

impl Recorder {
    /// Starts it and waits until the tape exists and has its header: events are being caught then.
    pub fn start(device: &str, tape: &Path, options: &[&str]) -> Recorder {
        Recorder::start_at(device, tape, &|_| vec![tape.to_owned()], options)
    }

    /// The same for one that shows what goes on.
    pub fn start_loud(device: &str, tape: &Path, options: &[&str]) -> Recorder {
        let command = iotape(["record", device, "-o"]);
        Recorder::begin(command, tape, &|_| vec![tape.to_owned()], options)
    }

    /// The same for one that writes the segments of `mail.iotape` into a folder.
    pub fn start_segmented(device: &str, folder: &Path, options: &[&str]) -> Recorder {
        Recorder::start_at(device, &folder.join("mail.iotape"), &segments_in, options)
    }

    /// A recorder whose files `files` finds in the tape's folder.
    fn start_at(
        device: &str,
        tape: &Path,
        files: &dyn Fn(&Path) -> Vec<PathBuf>,
        options: &[&str],
    ) -> Recorder {
        let command = iotape(["record", device, "--quiet", "--json", "-o"]);
        Recorder::begin(command, tape, files, options)
    }

    fn begin(
        mut command: std::process::Command,
        tape: &Path,
        files: &dyn Fn(&Path) -> Vec<PathBuf>,
        options: &[&str],
    ) -> Recorder {
        let folder = tape.parent().expect("a folder");
        let before = bytes_of(&files(folder));
        command
            .arg(tape)
            .args(options)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut recorder = Recorder {
            child: Some(command.spawn().expect("it starts")),
        };
        let begun = Instant::now();
        // A tape that is replaced is empty at first.
        while [0, before].contains(&bytes_of(&files(folder))) {
            let ended = recorder
                .child
                .as_mut()
                .expect("running")
                .try_wait()
                .expect("a child");
            if ended.is_some() || begun.elapsed() > Duration::from_secs(20) {
                let ended = recorder.stop();
                panic!("it did not record: {}\n{}", ended.status, ended.stderr);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        recorder
    }

    /// Number of its process.
    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("running").id()
    }

    /// Sends it a signal, such as `-INT`.
    pub fn signal(&self, signal: &str) {
        let pid = self.child.as_ref().expect("running").id().to_string();
        tool("kill", [signal, &pid]);
    }

    /// Makes all its threads nicer.
    pub fn renice(&self, nice: u32) {
        let pid = self.child.as_ref().expect("running").id();
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("running");
        for task in tasks {
            let thread = task.expect("a thread").file_name();
            let thread = thread.to_str().expect("a number");
            tool("renice", ["-n", &nice.to_string(), "-p", thread]);
        }
    }

    /// Ends it as Ctrl-C does.
    pub fn stop(self) -> Ended {
        let pid = self.child.as_ref().expect("running").id().to_string();
        let _ = std::process::Command::new("kill")
            .args(["-INT", &pid])
            .status();
        self.wait()
    }

    /// Waits for its end.
    pub fn wait(mut self) -> Ended {
        let child = self.child.take().expect("running");
        child.wait_with_output().expect("it ends").into()
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The segments of `mail.iotape` in a folder, the oldest first.
pub fn segments_in(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder)
        .expect("a folder")
        .map(|entry| entry.expect("a file").path())
        .filter(|path| path.to_string_lossy().contains("/mail.0"))
        .collect();
    paths.sort();
    paths
}

/// Whether this program has the backend `bpf`; what it answers where it does not is checked here.
pub fn has_bpf(device: &str) -> bool {
    let record = ["record", device, "--backend", "bpf", "--for", "100ms"];
    let ended = run([&record[..], &["-q", "--force", "-o", "/dev/null"]].concat());
    if ended.status != 2 {
        return true;
    }
    let said = &ended.stderr;
    assert!(said.contains("--features bpf"), "{said}");
    assert!(said.contains("apt install clang"), "{said}");
    if cfg!(feature = "bpf") {
        panic!("it was built in: {said}");
    }
    eprintln!("skipped: the backend bpf, which was not built in (--features bpf)");
    false
}

fn bytes_of(paths: &[PathBuf]) -> u64 {
    let bytes = |path: &PathBuf| std::fs::metadata(path).map_or(0, |metadata| metadata.len());
    paths.iter().map(bytes).sum()
}
