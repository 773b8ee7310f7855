//! What stops an import.

use std::io;

use thiserror::Error;

use crate::tape::TapeError;

/// Why a `perf.data` cannot be imported. Damage among its records is no error: it is skipped and
/// reported.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PerfDataError {
    /// The source cannot be read.
    #[error("cannot read byte {offset}: {source}")]
    Read {
        /// Where.
        offset: u64,
        /// The system's reason.
        source: io::Error,
    },
    /// It is something else.
    #[error("no perf.data: expected PERFILE2 in its first bytes, found {found}")]
    NotPerfData {
        /// What it begins with.
        found: String,
    },
    /// The file's header contradicts itself or the file.
    #[error("the header's {what} is {found}, expected {expected}")]
    Header {
        /// Which field.
        what: &'static str,
        /// What it holds.
        found: u64,
        /// What it may hold.
        expected: &'static str,
    },
    /// The file ends too soon.
    #[error(
        "the file ends inside its {what}, which begins at byte {offset}: perf did not finish it, or it was \
         cut off"
    )]
    Ends {
        /// Inside of what.
        what: &'static str,
        /// Where that begins.
        offset: u64,
    },
    /// What is behind the records is needed before them.
    #[error(
        "a perf.data that perf did not write into a pipe has to be read from a file, not from a pipe"
    )]
    NeedsFile,
    /// The file does not describe its tracepoints.
    #[error(
        "this perf.data does not describe its tracepoints (no TRACING_DATA): perf did not finish it, it was \
         cut off, or it recorded no tracepoint"
    )]
    NoFormats,
    /// The description of the tracepoints cannot be read.
    #[error(
        "the description of the tracepoints (TRACING_DATA) is damaged at its byte {at}: {problem}"
    )]
    BadFormats {
        /// Where in it.
        at: usize,
        /// What is wrong.
        problem: &'static str,
    },
    /// No event is a block event.
    #[error(
        "no block event in this file{}. Block events are recorded by: perf record -a -e \
         block:block_bio_queue,block:block_rq_issue,block:block_rq_complete,block:block_bio_complete",
        if found.is_empty() { String::new() } else { format!("; it holds {found}") }
    )]
    NoBlockEvents {
        /// What is recorded.
        found: String,
    },
    /// Samples of several kinds, which do not say of which they are.
    #[error(
        "the samples of this file are of different layouts and do not say of which (no IDENTIFIER, and no ID \
         at the same place)"
    )]
    Ambiguous,
    /// The tape cannot be written.
    #[error(transparent)]
    Tape(#[from] TapeError),
}
