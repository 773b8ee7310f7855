//! What can go wrong beyond damage that is skipped and counted.

use thiserror::Error;

/// Why a file cannot be read as blktrace's.
#[derive(Debug, Error)]
pub enum Error {
    /// The file holds something else.
    #[error(
        "not a blktrace file: it begins with {start:02x?}, expected the magic number of version 7 \
         or 8 (07 74 61 65 or 08 74 61 65, or the same backwards), and none stands in the first \
         {searched} bytes"
    )]
    NotBlktrace {
        /// Its first bytes, at most four.
        start: Vec<u8>,
        /// How far a record was looked for.
        searched: u64,
    },
    /// The file is blktrace's, of a version that this crate does not know.
    #[error("blktrace version {found}, expected 7 or 8: only these can be read")]
    Version {
        /// The version in the magic number.
        found: u8,
    },
    /// Reading failed.
    #[error("cannot read beyond byte {offset}: {source}")]
    Read {
        /// How many bytes were read until then.
        offset: u64,
        /// The system's reason.
        source: std::io::Error,
    },
}
