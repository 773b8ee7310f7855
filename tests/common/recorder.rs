//! `iotape record` running beside a test.

use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use super::{Ended, iotape, tool};

/// A recorder that has begun. It is killed when dropped.
pub struct Recorder {
    child: Option<Child>,
}

impl Recorder {
    /// Starts it and waits until the tape exists and has its header: events are being caught then.
    pub fn start(device: &str, tape: &Path, options: &[&str]) -> Recorder {
        let mut command = iotape(["record", device, "--quiet", "--json", "-o"]);
        command
            .arg(tape)
            .args(options)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut recorder = Recorder {
            child: Some(command.spawn().expect("it starts")),
        };
        let begun = Instant::now();
        while std::fs::metadata(tape).map_or(0, |metadata| metadata.len()) == 0 {
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

    /// Sends it a signal, such as `-INT`.
    pub fn signal(&self, signal: &str) {
        let pid = self.child.as_ref().expect("running").id().to_string();
        tool("kill", [signal, &pid]);
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
