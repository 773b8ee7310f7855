//! fio: a load on a device, and what it says that it did.

use std::process::{Child, Command, Stdio};

use serde_json::Value;

use super::Ended;

/// fio on a device, running beside the test. It is asked to end when dropped.
pub struct Fio(Option<Child>);

impl Fio {
    /// Starts it, around the page cache; `options` say the rest.
    pub fn start(device: &str, options: &[&str]) -> Fio {
        let child = Command::new("fio")
            .args(["--name=load", "--ioengine=io_uring", "--direct=1"])
            .args(["--output-format=json", "--filename", device])
            .args(options)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        Fio(Some(child.expect("it starts")))
    }

    /// Number of its process.
    pub fn pid(&self) -> u32 {
        self.0.as_ref().expect("running").id()
    }

    /// Waits for its end, which must be a success.
    pub fn done(mut self) -> Done {
        let child = self.0.take().expect("running");
        let output = child.wait_with_output().expect("it ends");
        let mut report = Ended::from(output).expect(0).json();
        Done(report["jobs"][0].take())
    }
}

impl Drop for Fio {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            // fio's workers are processes of their own; asked to end, it ends them.
            let _ = Command::new("kill")
                .args(["-INT", &child.id().to_string()])
                .status();
            let _ = child.wait();
        }
    }
}

/// What fio says that its job did; operations by its own names.
pub struct Done(Value);

impl Done {
    /// Requests of `read`, `write`, `trim` or `sync`.
    pub fn requests(&self, op: &str) -> u64 {
        self.number(op, "/total_ios")
    }

    /// Bytes of `read`, `write` or `trim`.
    pub fn bytes(&self, op: &str) -> u64 {
        self.number(op, "/io_bytes")
    }

    /// Longest latency, as fio measured it.
    pub fn slowest_ns(&self, op: &str) -> u64 {
        self.number(op, "/lat_ns/max")
    }

    fn number(&self, op: &str, pointer: &str) -> u64 {
        let number = self.0[op].pointer(pointer).and_then(Value::as_u64);
        number.unwrap_or_else(|| panic!("{op}{pointer} in {}", self.0))
    }
}
