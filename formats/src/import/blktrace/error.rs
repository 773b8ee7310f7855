//! What stops an import.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use crate::tape::TapeError;

/// Why files cannot be imported. Damage inside a file is no error: it is skipped and reported.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ImportError {
    /// There is no such file, nor a set of that name.
    #[error(
        "{path}: no such file, and no {path}.blktrace.0, .1, …: give the files of one trace, one \
         of them, or what stands before .blktrace in their names",
        path = path.display()
    )]
    NoFiles {
        /// What was asked for.
        path: PathBuf,
    },
    /// A file cannot be opened, or its folder not be read.
    #[error("{path}: {error}", path = path.display())]
    Open {
        /// Which.
        path: PathBuf,
        /// What the system said.
        #[source]
        error: io::Error,
    },
    /// A file cannot be read, or is not blktrace's.
    #[error("{file}: {error}")]
    Read {
        /// Which.
        file: String,
        /// Why.
        #[source]
        error: blktrace_parse::Error,
    },
    /// No file has a record.
    #[error("{files} files without a record: there is nothing to import")]
    Empty {
        /// How many files there are.
        files: usize,
    },
    /// The tape cannot be written.
    #[error(transparent)]
    Tape(#[from] TapeError),
}
