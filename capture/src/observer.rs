//! Looking on while a recording runs.

use std::time::Duration;

use iotape_formats::Request;

use crate::Progress;

/// Looks on while a recording runs, on the thread that drains the kernel's rings: what it does must
/// be short, and must not wait for a terminal or a disk.
///
/// A closure that takes a [`Progress`] is one that is called about once a second.
pub trait Observer {
    /// How often [`Observer::progress`] is wanted; at most 20 times a second.
    fn interval(&self) -> Duration {
        Duration::from_secs(1)
    }

    /// These requests are done and go to the tape, in this order. Each request is shown once.
    fn requests(&mut self, _requests: &[Request]) {}

    /// The state of the recording.
    fn progress(&mut self, progress: &Progress);
}

impl<F: FnMut(&Progress)> Observer for F {
    fn progress(&mut self, progress: &Progress) {
        self(progress);
    }
}
