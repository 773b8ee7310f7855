//! Files that the command opens: tapes to read, results and tapes to write.

use std::fs::{File, OpenOptions};
use std::io::{BufReader, ErrorKind};
use std::path::Path;

use iotape_formats::tape::TapeReader;

use crate::exit::Failure;

/// A tape on disk.
pub type TapeFile = TapeReader<BufReader<File>>;

/// Opens a tape.
pub fn open_tape(path: &Path) -> Result<TapeFile, Failure> {
    TapeReader::open_path(path).map_err(|error| Failure::at(path.display(), error))
}

/// Makes a file that only its owner can read. An existing one is kept unless `replace`.
pub fn create_private(path: &Path, replace: bool) -> Result<File, Failure> {
    let mut options = OpenOptions::new();
    options.write(true);
    if replace {
        options.create(true).truncate(true);
    } else {
        options.create_new(true);
    }
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path).map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => Failure::at(
            path.display(),
            "exists already and is kept; name another file",
        ),
        _ => Failure::at(path.display(), error),
    })
}
