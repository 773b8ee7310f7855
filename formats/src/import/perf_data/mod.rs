//! `perf.data`, as `perf record` writes it, into tapes.
//!
//! ```text
//! records (found, decompressed) → samples → by time, round by round → block events → pairing → tape
//! ```
//!
//! The file tells how its records are laid out: which fields each kind of sample has, and the recording
//! kernel's own description of each tracepoint. Nothing of this machine is used, so that a file of any
//! kernel, word size and byte order can be read anywhere.
//!
//! Layouts are those of `include/uapi/linux/perf_event.h` and of
//! `tools/perf/Documentation/perf.data-file-format.txt` in the kernel's sources.
//!
//! Memory is bounded: records are read in pieces of 256 KiB, at most 524,288 events wait for their
//! turn, a description of tracepoints may have 64 MiB, and what is compressed a window of 128 MiB.

mod attr;
mod error;
mod features;
mod formats;
mod head;
mod names;
mod records;
mod report;
mod rounds;
mod run;
mod sample;

pub use error::PerfDataError;
pub use report::Report;

use std::io::{Read, Seek, Write};

use crate::tape::{Layer, Level};

/// How to import.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Program and version for the tape's header, such as `iotape 0.1.0`.
    pub tool: String,
    /// How hard to try to make the tape small.
    pub level: Level,
    /// Where requests are to be seen.
    pub layer: Layer,
}

/// How far an import is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of records read.
    pub bytes: u64,
    /// Block events among them.
    pub events: u64,
}

/// Whether a file with this beginning is a `perf.data`; 16 bytes are enough to tell.
pub fn is_perf_data(start: &[u8]) -> bool {
    head::byte_order(start).is_some()
}

/// Writes the tape of a file, in bounded memory. `progress` is called now and then.
///
/// # Errors
///
/// When the file cannot be read, is no `perf.data` or has no block events, when its samples cannot be
/// told apart, or when the sink fails.
pub fn import<R: Read + Seek, W: Write>(
    source: R,
    options: &Options,
    sink: W,
    progress: &mut dyn FnMut(&Progress),
) -> Result<(W, Report), PerfDataError> {
    let (source, start) = head::open(source)?;
    run::run(source, start, options, sink, progress)
}

/// The same of what `perf record -o -` writes into a pipe.
///
/// # Errors
///
/// As [`import`]; also when it is a file, whose end would be needed first.
pub fn import_stream<R: Read, W: Write>(
    source: R,
    options: &Options,
    sink: W,
    progress: &mut dyn FnMut(&Progress),
) -> Result<(W, Report), PerfDataError> {
    let (source, start) = head::open_stream(source)?;
    run::run(source, start, options, sink, progress)
}
