//! The set of files that a blktrace export makes: all of them, or none.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use crate::exit::Failure;
use crate::files::create_private;

/// The files `NAME.blktrace.N`.
pub struct TraceFiles {
    base: PathBuf,
    made: Vec<PathBuf>,
    refused: Option<Failure>,
}

impl TraceFiles {
    /// A set of this name. One that exists already would be read together with the new one, and is
    /// refused whichever of its files exist.
    pub fn new(base: PathBuf) -> Result<TraceFiles, Failure> {
        if let Some(file) = existing(&base).map_err(|error| Failure::at(base.display(), error))? {
            return Err(Failure::at(
                file.display(),
                "exists already and is kept; name another set",
            ));
        }
        Ok(TraceFiles {
            base,
            made: Vec::new(),
            refused: None,
        })
    }

    /// Makes the file of a CPU.
    pub fn create(&mut self, cpu: u32) -> io::Result<File> {
        let mut path = self.base.clone().into_os_string();
        path.push(format!(".blktrace.{cpu}"));
        let path = PathBuf::from(path);
        match create_private(&path, false) {
            Ok(file) => {
                self.made.push(path);
                Ok(file)
            }
            Err(failure) => {
                self.refused = Some(failure);
                Err(io::Error::other("a file of the set cannot be made"))
            }
        }
    }

    /// Takes back the files that were to be.
    pub fn given_up(self, error: &io::Error) -> Failure {
        for path in &self.made {
            let _ = std::fs::remove_file(path);
        }
        let failed = || Failure::at(self.base.display(), error);
        self.refused.unwrap_or_else(failed)
    }
}

/// A file of the set, if there is one.
fn existing(base: &Path) -> io::Result<Option<PathBuf>> {
    let Some(name) = base.file_name() else {
        return Err(io::Error::other(
            "names a folder, expected a name for files",
        ));
    };
    let folder = match base.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let mut prefix = name.to_os_string();
    prefix.push(".blktrace.");
    for entry in std::fs::read_dir(folder)? {
        let found = entry?.file_name();
        if found
            .as_encoded_bytes()
            .starts_with(prefix.as_encoded_bytes())
        {
            return Ok(Some(base.with_file_name(found)));
        }
    }
    Ok(None)
}
