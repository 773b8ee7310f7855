//! Windows event trace logs (`.etl`) into tapes.
//!
//! The kernel reports a disk request when it is done, with the time that it took: each completion
//! is a request of the device layer, issued that much earlier. The Init event at its beginning, if
//! the session asked for it, tells the process and the processor, and is held against the computed
//! time. Requests come in the order of their completions and leave in that of their issues, within
//! a bounded window.
//!
//! The file is opened for reading at any place, since an idle processor's events can stand at the
//! end ([`etl_parse::Reader`]). Its first and last 32 MiB are looked at before the rest: a session
//! names processes when it begins and disks when it ends, and a tape has them in front.
//!
//! What a trace says about file names is left out unless [`Options::file_names`] asks for it: they are
//! private. A disk event has the key of its file, and the kernel tells the key's name when a file begins,
//! when it is gone, and of all files when the session ends.

mod devices;
mod error;
mod files;
mod header;
mod people;
mod providers;
mod report;
pub(super) mod requests;
mod run;
mod storports;
mod stream;
mod survey;

pub use error::ImportError;
pub use providers::{Provider, Tally};
pub use report::Report;
pub use storports::StorPortCounts;
pub use stream::{DiskRequest, Log, LogEnd, Stream, StreamCounts};

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::path::Path;

use crate::tape::Level;

/// Most devices in a tape; a trace with more is damaged.
const MAX_DEVICES: usize = 1024;

/// How to import.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Program and version for the tape's header, such as `iotape 0.1.0`.
    pub tool: String,
    /// How hard to try to make the tape small.
    pub level: Level,
    /// Whether names of files become part of the tape.
    pub file_names: bool,
}

/// How far an import is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes read.
    pub bytes: u64,
    /// Length of the file.
    pub of_bytes: u64,
    /// Events among them.
    pub events: u64,
    /// Requests in the tape.
    pub requests: u64,
}

/// Writes the tape of a trace, in bounded memory. `progress` is called now and then.
///
/// # Errors
///
/// When the file cannot be read or is no event trace log, when it holds no disk I/O, or when the
/// sink fails.
pub fn import<R: Read + Seek, W: Write>(
    source: R,
    options: &Options,
    sink: W,
    progress: &mut dyn FnMut(&Progress),
) -> Result<(W, Report), ImportError> {
    run::Run::start(source, options, sink)?.run(progress)
}

/// Whether a file is an event trace log, by its first buffer.
///
/// # Errors
///
/// When the file cannot be read.
pub fn is_trace(path: &Path) -> std::io::Result<bool> {
    const START_BYTES: u64 = 4096;
    let mut start = Vec::new();
    File::open(path)?
        .take(START_BYTES)
        .read_to_end(&mut start)?;
    Ok(etl_parse::is_trace(&start))
}
