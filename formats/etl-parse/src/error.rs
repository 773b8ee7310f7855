//! What stops a reader. Damage inside a file does not: it is skipped and counted.

use thiserror::Error;

/// Why a file cannot be read as an event trace log.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// The file holds something else, or its first buffer is damaged.
    #[error(
        "not an event trace log: {problem}; an .etl begins with a buffer whose first event \
         describes the trace"
    )]
    NotEtl {
        /// What was expected and found.
        problem: String,
    },
    /// The buffers are compressed in a way that is not known.
    #[error(
        "the buffers are compressed by format {found}, expected 2 (LZNT1), 3 (XPRESS) or 4 (XPRESS \
         Huffman): only these can be read"
    )]
    Compression {
        /// The number in the first buffer.
        found: u16,
    },
    /// The events' times cannot be read.
    #[error(
        "the trace's clock is of type {clock} at {frequency} ticks a second, expected type 1 \
         (performance counter), 2 (system time) or 3 (cycle counter) and a rate above 0"
    )]
    Clock {
        /// The clock's type.
        clock: u32,
        /// Ticks a second.
        frequency: i64,
    },
    /// Reading failed.
    #[error("cannot read at byte {offset}: {source}")]
    Read {
        /// Where.
        offset: u64,
        /// The system's reason.
        source: std::io::Error,
    },
}
