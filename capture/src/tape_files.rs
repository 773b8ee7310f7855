//! The files that a recording writes: one tape, or numbered segments.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use crate::platform::files::{begin_writeback, free_bytes, keep_private};
use crate::{CaptureError, Destination};

/// The files that a recording writes: the one that was named, or segments of it.
///
/// Segments of `mail.iotape` are `mail.0001.iotape`, `mail.0002.iotape` and so on. Where there are
/// such files already, numbers go on behind the highest: nothing is replaced, and only segments of
/// this recording are ever removed.
///
/// A tape is a regular file: a torn record is cut off, and what was written is read again. Each is locked
/// while it is written, so that no other recorder replaces it meanwhile.
///
/// All are readable by their owner only. Each record's writeback is begun at once, by the thread that
/// wrote it: the recorder holds no more dirty pages than one record, and can tell its own requests.
#[derive(Debug)]
pub struct TapeFiles {
    name: PathBuf,
    replace: bool,
    /// Number of the next segment; `None` writes the named file.
    next: Option<u32>,
    /// The first file, until the recording begins.
    first: Option<File>,
    /// The file that is being written.
    current: Option<File>,
    /// Files that are there, the oldest first.
    paths: VecDeque<PathBuf>,
}

impl TapeFiles {
    /// Makes the first file. An existing one is refused unless `replace`.
    ///
    /// # Errors
    /// When it exists, is no regular file, is written by another recorder, or cannot be made.
    pub fn create(name: &Path, segments: bool, replace: bool) -> Result<TapeFiles, CaptureError> {
        let failed = |source| CaptureError::TapeFile {
            path: name.to_owned(),
            source,
        };
        let next = match segments {
            true => Some(highest(name).map_err(failed)?.saturating_add(1)),
            false => None,
        };
        let mut files = TapeFiles {
            name: name.to_owned(),
            replace,
            next,
            first: None,
            current: None,
            paths: VecDeque::new(),
        };
        files.first = Some(files.make().map_err(failed)?);
        Ok(files)
    }

    /// The files that are there, the oldest first.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.paths.iter().map(PathBuf::as_path)
    }

    /// The file that is being written, or was last: it can be read even where its folder cannot.
    pub fn file(&self) -> Option<&File> {
        self.current.as_ref().or(self.first.as_ref())
    }

    /// The folder in which segments will be made and removed; `None` without segments.
    pub fn folder_of_segments(&self) -> Option<&Path> {
        self.next.map(|_| folder_of(&self.name))
    }

    fn make(&mut self) -> io::Result<File> {
        let Some(number) = self.next else {
            let file = open(&self.name, self.replace)?;
            self.paths.push_back(self.name.clone());
            return Ok(file);
        };
        // Somebody else may make files meanwhile.
        for number in number..=u32::MAX {
            let path = segment_path(&self.name, number);
            match open(&path, false) {
                Ok(file) => {
                    self.next = number.checked_add(1);
                    self.paths.push_back(path);
                    return Ok(file);
                }
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::Error::other("no number is left for another segment"))
    }
}

impl Destination for TapeFiles {
    type Sink = TapeFile;

    fn begin(&mut self) -> io::Result<TapeFile> {
        let file = match self.first.take() {
            Some(first) => first,
            None => self.make()?,
        };
        self.current = Some(file.try_clone()?);
        Ok(TapeFile {
            file,
            written: 0,
            begun: 0,
        })
    }

    fn end(&mut self, bytes: u64) -> io::Result<()> {
        match &self.current {
            Some(file) if file.metadata()?.len() > bytes => file.set_len(bytes),
            _ => Ok(()),
        }
    }

    fn remove_oldest(&mut self) -> io::Result<()> {
        let Some(path) = self.paths.pop_front() else {
            return Ok(());
        };
        match fs::remove_file(&path) {
            // Somebody took it away: a recorder need not fail for that.
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            result => result,
        }
    }

    fn free_bytes(&self) -> Option<u64> {
        let file = self.current.as_ref().or(self.first.as_ref())?;
        free_bytes(file, &self.name)
    }
}

/// A tape that is being written.
#[derive(Debug)]
pub struct TapeFile {
    file: File,
    written: u64,
    /// Up to here writeback has been begun.
    begun: u64,
}

impl Write for TapeFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.file.write(bytes)?;
        self.written += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.written > self.begun {
            // What cannot be done here is done by the kernel in its own time.
            let _ = begin_writeback(&self.file, self.begun, self.written - self.begun);
            self.begun = self.written;
        }
        Ok(())
    }
}

fn open(path: &Path, replace: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    keep_private(&mut options);
    if !replace {
        return lock(options.create_new(true).open(path)?);
    }
    // Before it is opened: opening alone makes some devices act.
    match fs::metadata(path) {
        Ok(there) if !there.is_file() => return Err(no_file()),
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let file = lock(options.create(true).truncate(false).open(path)?)?;
    if !file.metadata()?.is_file() {
        return Err(no_file());
    }
    file.set_len(0)?;
    Ok(file)
}

/// Keeps other recorders away until the file is closed.
fn lock(file: File) -> io::Result<File> {
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => Err(io::Error::new(
            ErrorKind::ResourceBusy,
            "another recorder is writing it; name another file",
        )),
        // Some file systems have no locks.
        Ok(()) | Err(TryLockError::Error(_)) => Ok(file),
    }
}

fn no_file() -> io::Error {
    io::Error::new(
        ErrorKind::InvalidInput,
        "not a regular file: a tape goes into a file, which `iotape export` and others then read",
    )
}

/// `mail.iotape` and 7 give `mail.0007.iotape`.
fn segment_path(name: &Path, number: u32) -> PathBuf {
    let stem = name.file_stem().unwrap_or_default().to_owned();
    let mut file = stem;
    file.push(format!(".{number:04}"));
    if let Some(extension) = name.extension() {
        file.push(".");
        file.push(extension);
    }
    name.with_file_name(file)
}

fn folder_of(name: &Path) -> &Path {
    match name.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    }
}

/// Highest number of the segments that exist; 0 without any.
fn highest(name: &Path) -> io::Result<u32> {
    let mut highest = 0;
    for entry in fs::read_dir(folder_of(name))? {
        highest = highest.max(number_of(name, &entry?.file_name()).unwrap_or(0));
    }
    Ok(highest)
}

/// The number of a file that is a segment of this name.
fn number_of(name: &Path, file: &std::ffi::OsStr) -> Option<u32> {
    let file = file.to_str()?;
    let rest = file
        .strip_prefix(name.file_stem()?.to_str()?)?
        .strip_prefix('.')?;
    let digits = match name.extension() {
        Some(extension) => rest.strip_suffix(extension.to_str()?)?.strip_suffix('.')?,
        None => rest,
    };
    let plain = digits.len() >= 4 && digits.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| digits.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_numbered_before_the_extension() {
        let of = |name: &str, number| segment_path(Path::new(name), number);
        assert_eq!(of("a/mail.iotape", 7), Path::new("a/mail.0007.iotape"));
        assert_eq!(of("mail", 12_345), Path::new("mail.12345"));
        assert_eq!(of("a.b.iotape", 1), Path::new("a.b.0001.iotape"));
        let number = |name: &str, file: &str| number_of(Path::new(name), file.as_ref());
        assert_eq!(number("a/mail.iotape", "mail.0007.iotape"), Some(7));
        assert_eq!(number("mail", "mail.12345"), Some(12_345));
        assert_eq!(number("mail.iotape", "mail.iotape"), None);
        assert_eq!(number("mail.iotape", "mail.7.iotape"), None);
        assert_eq!(number("mail.iotape", "mail.00x7.iotape"), None);
        assert_eq!(number("mail.iotape", "mail2.0007.iotape"), None);
    }

    #[test]
    fn numbers_go_on_and_foreign_segments_stay() {
        let folder = tempfile::tempdir().unwrap();
        let name = folder.path().join("mail.iotape");
        let old = folder.path().join("mail.0041.iotape");
        fs::write(&old, "old").unwrap();
        let mut files = TapeFiles::create(&name, true, false).unwrap();
        for bytes in [3, 5] {
            let mut sink = files.begin().unwrap();
            sink.write_all(b"whole, torn").unwrap();
            sink.flush().unwrap();
            files.end(bytes).unwrap();
        }
        let paths: Vec<&Path> = files.paths().collect();
        let named = |number: &str| folder.path().join(format!("mail.{number}.iotape"));
        assert_eq!(paths, [named("0042"), named("0043")]);
        assert_eq!(fs::read(named("0042")).unwrap(), b"who");
        assert!(files.free_bytes().unwrap() > 0);
        for _ in 0..3 {
            files.remove_oldest().unwrap();
        }
        assert_eq!(files.paths().count(), 0);
        assert_eq!(fs::read(&old).unwrap(), b"old");
    }

    #[test]
    fn an_existing_tape_is_kept_unless_it_is_to_be_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let name = folder.path().join("mail.iotape");
        fs::write(&name, "old").unwrap();
        let refused = TapeFiles::create(&name, false, false).unwrap_err();
        assert!(refused.to_string().contains("exists already"), "{refused}");
        assert_eq!(fs::read(&name).unwrap(), b"old");
        TapeFiles::create(&name, false, true).unwrap();
        assert_eq!(fs::read(&name).unwrap(), b"");
    }

    #[test]
    fn a_tape_that_is_being_written_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let name = folder.path().join("mail.iotape");
        let mut files = TapeFiles::create(&name, false, false).unwrap();
        files.begin().unwrap().write_all(b"first").unwrap();
        let refused = TapeFiles::create(&name, false, true).unwrap_err();
        assert!(
            refused.to_string().contains("another recorder"),
            "{refused}"
        );
        assert_eq!(fs::read(&name).unwrap(), b"first");
        drop(files);
        TapeFiles::create(&name, false, true).unwrap();
        assert_eq!(fs::read(&name).unwrap(), b"");
        let refused = TapeFiles::create(folder.path(), false, true).unwrap_err();
        assert!(
            refused.to_string().contains("not a regular file"),
            "{refused}"
        );
    }
}
