//! Per-CPU files of blktrace (`sda.blktrace.0`, `.1` and so on) into one tape.
//!
//! The files are read side by side and merged by time; their events are paired like those of a live
//! recorder ([`crate::pairing`]). Only the first part of each file is read twice: it says which
//! devices there are, at which layer they can be seen, and when the trace began, which a tape says
//! before its first request.
//!
//! At the device layer a request is what the driver got (D to C), with the time since it was queued
//! and its submitter (Q). At the queue layer it is what was submitted (Q to C). Devices that never
//! issue (zram, dm, md) are read at the queue layer unless the user wants otherwise.

mod devices;
mod error;
mod files;
mod header;
mod names;
mod origins;
mod output;
mod report;
mod run;
mod survey;

pub use error::ImportError;
pub use files::{Source, find_files, is_trace, open_files};
pub use report::{DeviceReport, FileReport, Remap, Report};

use std::io::{Read, Write};

use crate::tape::{Layer, Level};

/// Most devices in a tape; a trace with more is damaged.
const MAX_DEVICES: usize = 1024;

/// How to import.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Program and version for the tape's header, such as `iotape 0.1.0`.
    pub tool: String,
    /// Where to see requests; `None`: the device layer where a device has issues, else the queue
    /// layer.
    pub layer: Option<Layer>,
    /// How hard to try to make the tape small.
    pub level: Level,
}

/// How far an import is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes read of all files.
    pub bytes: u64,
    /// Records among them.
    pub records: u64,
    /// Requests in the tape.
    pub requests: u64,
}

/// Writes the tape of these files, in bounded memory. `progress` is called now and then.
///
/// # Errors
///
/// When a file cannot be read or is not blktrace's, when none has a record, or when the sink fails.
pub fn import<R: Read, W: Write>(
    sources: Vec<Source<R>>,
    options: &Options,
    sink: W,
    progress: &mut dyn FnMut(&Progress),
) -> Result<(W, Report), ImportError> {
    run::Run::start(survey::survey(sources)?, options, sink)?.run(progress)
}
