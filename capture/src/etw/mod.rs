//! Recording through a Windows event session, as far as it needs no call of Windows.
//!
//! The kernel's session writes a log file. Every now and then it is told to go on in the next one;
//! the one before is then whole, becomes requests of the tape, and is removed. What is read is thus
//! what any event trace log holds, and the decoding is that of imports.

#[cfg_attr(not(windows), allow(dead_code, reason = "only Windows has such disks"))]
mod names;
mod recorder;
#[cfg(test)]
mod tests;

#[cfg(windows)]
pub use names::Named;
pub use recorder::{Disk, Recording};

use std::io;
use std::path::PathBuf;

/// An event session that writes log files: what a recording needs of it.
pub trait Control {
    /// Goes on in the next log file; the path of the one that is whole now.
    ///
    /// # Errors
    /// When the session cannot, or is gone.
    fn roll(&mut self) -> io::Result<PathBuf>;

    /// Ends the session; the path of its last log file. `None` if it had ended before.
    ///
    /// # Errors
    /// When the system refuses.
    fn stop(&mut self) -> io::Result<Option<PathBuf>>;

    /// What the session has lost since it began.
    ///
    /// # Errors
    /// When the session is gone.
    fn lost(&mut self) -> io::Result<Lost>;
}

/// What a session has lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// Events for which no buffer was free.
    pub events: u64,
    /// Buffers that could not be written, each with at least one event.
    pub buffers: u64,
}
