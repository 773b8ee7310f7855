//! Which files belong to one trace.
//!
//! blktrace writes `NAME.blktrace.N`, one file per CPU. Given one of them, all are meant; given the
//! name, too; given several of one set, just those.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use blktrace_parse::Format;

use super::ImportError;

/// What stands between a set's name and the number of the CPU.
const INFIX: &str = ".blktrace.";

/// One file of a trace.
#[derive(Debug)]
pub struct Source<R> {
    /// Its name, for messages; what stands before `.blktrace` may name the device.
    pub name: String,
    /// Its bytes, from the beginning.
    pub reader: R,
}

impl<R> Source<R> {
    /// The name of the set that the file belongs to.
    pub(super) fn set(&self) -> Option<&str> {
        let name = self.name.rsplit(['/', '\\']).next()?;
        split(name).map(|(set, _)| set)
    }
}

/// Whether a path names a trace of blktrace's: by the file's first bytes; by its name, if it is empty,
/// as that of an idle CPU is; or because there is no such file, but a set of that name.
///
/// # Errors
///
/// When the file cannot be read.
pub fn is_trace(path: &Path) -> Result<bool, ImportError> {
    if !path.is_file() {
        return Ok(!members(path)?.is_empty());
    }
    let failed = |error| ImportError::Open {
        path: path.to_owned(),
        error,
    };
    let mut start = Vec::new();
    let file = File::open(path).map_err(failed)?;
    file.take(4).read_to_end(&mut start).map_err(failed)?;
    let is_empty = start.iter().all(|byte| *byte == 0);
    Ok(Format::detect(&start).is_some() || is_empty && set_of(path).is_some())
}

/// Opens the files that [`find_files`] finds.
///
/// # Errors
///
/// When there are none, or one cannot be opened.
pub fn open_files(paths: &[PathBuf]) -> Result<Vec<Source<File>>, ImportError> {
    let open = |path: PathBuf| match File::open(&path) {
        Ok(reader) => Ok(Source {
            name: path.display().to_string(),
            reader,
        }),
        Err(error) => Err(ImportError::Open { path, error }),
    };
    find_files(paths)?.into_iter().map(open).collect()
}

/// The files of the traces that are asked for, in the order of their CPUs: a path may be a file of
/// any name, a file `NAME.blktrace.N` that stands for its set, or a set's `NAME`.
///
/// # Errors
///
/// When a path is neither, or a folder cannot be read.
pub fn find_files(paths: &[PathBuf]) -> Result<Vec<PathBuf>, ImportError> {
    let mut files = Vec::new();
    for path in paths {
        let found = match set_of(path) {
            _ if !path.is_file() => members(path)?,
            Some(set) if is_alone(&set, paths) => members(&set)?,
            _ => vec![path.clone()],
        };
        if found.is_empty() {
            return Err(ImportError::NoFiles { path: path.clone() });
        }
        for file in found {
            if !files.contains(&file) {
                files.push(file);
            }
        }
    }
    Ok(files)
}

/// Whether just one of `paths` is of this set.
fn is_alone(set: &Path, paths: &[PathBuf]) -> bool {
    let of_set = paths
        .iter()
        .filter(|path| set_of(path).as_deref() == Some(set));
    of_set.count() == 1
}

/// The path of a file's set: without `.blktrace.N`.
fn set_of(path: &Path) -> Option<PathBuf> {
    let (set, _) = split(path.file_name()?.to_str()?)?;
    Some(path.with_file_name(set))
}

/// All files of a set, in the order of their CPUs.
fn members(set: &Path) -> Result<Vec<PathBuf>, ImportError> {
    let folder = match set.parent() {
        Some(folder) if folder.as_os_str().is_empty() => Path::new("."),
        Some(folder) => folder,
        None => return Ok(Vec::new()),
    };
    let Some(name) = set.file_name().and_then(|name| name.to_str()) else {
        return Ok(Vec::new());
    };
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let failed = |error| ImportError::Open {
        path: folder.to_owned(),
        error,
    };
    let mut members = BTreeMap::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let found = entry.map_err(failed)?.file_name();
        if let Some((found_set, cpu)) = found.to_str().and_then(split)
            && found_set == name
        {
            members.insert(cpu, set.with_file_name(&found));
        }
    }
    Ok(members
        .into_values()
        .filter(|path| path.is_file())
        .collect())
}

/// Name of the set and number of the CPU in a file's name.
fn split(name: &str) -> Option<(&str, u32)> {
    let (set, cpu) = name.rsplit_once(INFIX)?;
    let is_number = cpu.bytes().all(|byte| byte.is_ascii_digit());
    (is_number && !set.is_empty()).then(|| Some((set, cpu.parse().ok()?)))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files_tell_set_and_cpu() {
        assert_eq!(split("sda.blktrace.0"), Some(("sda", 0)));
        assert_eq!(
            split("a.blktrace.1.blktrace.12"),
            Some(("a.blktrace.1", 12))
        );
        for other in [
            "sda.blktrace.",
            "sda.blktrace.x",
            ".blktrace.0",
            "sda.0",
            "sda.blktrace.+1",
        ] {
            assert_eq!(split(other), None, "{other}");
        }
        let source = |name: &str| Source {
            name: name.to_owned(),
            reader: (),
        };
        assert_eq!(source("/tmp/x/sda.blktrace.3").set(), Some("sda"));
        assert_eq!(source("-").set(), None);
    }
}
