//! Files that the command opens: tapes to read, results and tapes to write.

use std::fs::{File, OpenOptions};
use std::io::{BufReader, ErrorKind};
use std::path::{Path, PathBuf};

use iotape_formats::tape::TapeReader;
use tempfile::TempPath;

use crate::exit::Failure;

/// A tape on disk.
pub type TapeFile = TapeReader<BufReader<File>>;

/// Opens a file that may be a tape. A folder can be opened too, and would fail later with a reason that
/// tells nothing.
pub fn open_file(path: &Path) -> Result<BufReader<File>, Failure> {
    let file = File::open(path).map_err(|error| Failure::at(path.display(), error))?;
    match file.metadata() {
        Ok(found) if found.is_dir() => Err(Failure::at(
            path.display(),
            "is a directory; expected a tape",
        )),
        _ => Ok(BufReader::new(file)),
    }
}

/// Opens a tape.
pub fn open_tape(path: &Path) -> Result<TapeFile, Failure> {
    TapeReader::open(open_file(path)?).map_err(|error| Failure::at(path.display(), error))
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

/// A file that is being made and is worth nothing before it is whole: dropped without
/// [`NewFile::keep`], it is taken back.
///
/// An existing file that it replaces stays as it is until then, and may be read meanwhile.
pub struct NewFile {
    path: PathBuf,
    state: State,
}

enum State {
    /// Made under its own name.
    Made,
    /// Made beside the file that it replaces.
    Beside(TempPath),
    /// Not a regular file, or kept: nothing to take back.
    Settled,
}

impl NewFile {
    /// Begins a file that only its owner can read. An existing one is refused unless `replace`.
    pub fn begin(path: &Path, replace: bool) -> Result<(NewFile, File), Failure> {
        let existing = std::fs::metadata(path).ok().filter(|_| replace);
        let (state, file) = match existing {
            Some(existing) if existing.is_file() => beside(path)?,
            Some(_) => (State::Settled, create_private(path, true)?),
            None => (State::Made, create_private(path, false)?),
        };
        let path = path.to_owned();
        Ok((NewFile { path, state }, file))
    }

    /// The file is whole.
    pub fn keep(mut self) -> Result<(), Failure> {
        match std::mem::replace(&mut self.state, State::Settled) {
            State::Beside(temporary) => {
                // A link is not to be replaced, but what it leads to.
                let target = self
                    .path
                    .canonicalize()
                    .unwrap_or_else(|_| self.path.clone());
                let kept = temporary.persist(target);
                kept.map_err(|error| Failure::at(self.path.display(), error.error))
            }
            State::Made | State::Settled => Ok(()),
        }
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if matches!(self.state, State::Made) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn beside(path: &Path) -> Result<(State, File), Failure> {
    let failed = |error| Failure::at(path.display(), error);
    let target = path.canonicalize().map_err(failed)?;
    let folder = target.parent().unwrap_or(Path::new("."));
    let file = tempfile::Builder::new()
        .prefix(".iotape-")
        .suffix(".partial")
        .tempfile_in(folder)
        .map_err(failed)?;
    let (file, temporary) = file.into_parts();
    Ok((State::Beside(temporary), file))
}
