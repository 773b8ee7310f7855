//! A file made for the occasion, filled with random data, and deleted by the system when its last
//! handle is closed, however the process ends.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::open::describe_file;
use crate::error::ReplayError;
use crate::options::Progress;
use crate::result::TargetKind;
use crate::sys::{self, Buffers, File, Opening};
use crate::target::Target;
use crate::target::scratch_size::{CHUNK_BYTES, ScratchNeeds, size_of, smallest};

/// Names that are tried.
const ATTEMPTS: u32 = 100;

/// Makes a scratch file in `directory`, or where temporary files belong.
///
/// # Errors
/// [`ReplayError::NoRoomForScratch`], [`ReplayError::Scratch`], or [`ReplayError::Interrupted`]
/// once `stop` is set.
pub fn make_scratch(
    directory: Option<&Path>,
    needs: ScratchNeeds,
    seed: u64,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Target, ReplayError> {
    let directory = directory.map_or_else(default_directory, Path::to_owned);
    let failed = |source: io::Error| ReplayError::Scratch {
        directory: directory.clone(),
        source,
    };
    let free_bytes = sys::free_bytes(&directory).map_err(failed)?;
    let size = size_of(needs, free_bytes).ok_or_else(|| ReplayError::NoRoomForScratch {
        directory: directory.clone(),
        free_bytes,
        needed_bytes: smallest(needs),
    })?;
    let file = create(&directory).map_err(failed)?;
    fill(&file, size, seed, stop, progress).map_err(|error| match error.kind() {
        io::ErrorKind::Interrupted => ReplayError::Interrupted,
        _ => failed(error),
    })?;
    let facts = sys::file_facts(&file).map_err(failed)?;
    Ok(describe_file(
        file,
        &directory,
        &facts,
        true,
        TargetKind::Scratch,
    ))
}

/// `TMP`, `TEMP`, or the user's profile, as the system resolves them.
pub fn default_directory() -> PathBuf {
    std::env::temp_dir()
}

fn create(directory: &Path) -> io::Result<File> {
    let opening = Opening {
        write: true,
        direct: true,
        temporary: true,
    };
    let mut last = io::Error::from(io::ErrorKind::AlreadyExists);
    for attempt in 0..ATTEMPTS {
        let name = format!("iotape-scratch-{}-{attempt}", std::process::id());
        match sys::open(&directory.join(name), opening) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => last = error,
            other => return other,
        }
    }
    Err(last)
}

/// [`io::ErrorKind::Interrupted`] once `stop` is set.
fn fill(
    file: &File,
    size: u64,
    seed: u64,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(&Progress),
) -> io::Result<()> {
    // Finds out at once whether there is room.
    sys::set_len(file, size)?;
    let chunk = usize::try_from(CHUNK_BYTES).unwrap_or(usize::MAX);
    let mut buffers = Buffers::new(0, 0, chunk)?;
    let mut random = fastrand::Rng::with_seed(seed);
    let mut reported = Instant::now();
    let mut done = 0;
    while done < size {
        if stop.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        random.fill(buffers.payload_bytes());
        write_chunk(file, &buffers, chunk, done)?;
        done += CHUNK_BYTES;
        if reported.elapsed() >= Duration::from_secs(1) {
            reported = Instant::now();
            progress(&Progress::Filling {
                done_bytes: done,
                total_bytes: size,
            });
        }
    }
    sys::flush(file).map_err(io::Error::from_raw_os_error)
}

fn write_chunk(file: &File, buffers: &Buffers, len: usize, offset: u64) -> io::Result<()> {
    let Some(piece) = buffers.payload(0, len) else {
        return Err(io::ErrorKind::OutOfMemory.into());
    };
    match sys::write_at(file, piece, offset, false) {
        Ok(written) if written == len => Ok(()),
        Ok(_) => Err(io::ErrorKind::WriteZero.into()),
        Err(error) => Err(io::Error::from_raw_os_error(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEEDS: ScratchNeeds = ScratchNeeds {
        span_bytes: 3 << 20,
        longest_bytes: 4096,
    };

    #[test]
    fn the_file_is_full_and_gone_once_it_is_closed() {
        let dir = tempfile::tempdir().unwrap();
        let stop = AtomicBool::new(false);
        let made = make_scratch(Some(dir.path()), NEEDS, 9, &stop, &mut |_| {});
        let target = made.unwrap();
        assert_eq!(
            (target.size_bytes, target.facts.kind),
            (3 << 20, TargetKind::Scratch)
        );
        let mut buffers = Buffers::new(0, 0, 3 << 20).unwrap();
        let piece = buffers.payload(0, 3 << 20).unwrap();
        assert_eq!(sys::read_at(&target.file, piece, 0), Ok(3 << 20));
        let mut expected = vec![0; 1 << 20];
        let mut random = fastrand::Rng::with_seed(9);
        for chunk in buffers.payload_bytes().chunks(1 << 20) {
            random.fill(&mut expected);
            assert!(chunk == expected, "not what was written");
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        drop(target);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_stop_ends_the_filling_and_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let stop = AtomicBool::new(true);
        let made = make_scratch(Some(dir.path()), NEEDS, 9, &stop, &mut |_| {});
        assert!(matches!(made, Err(ReplayError::Interrupted)));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_missing_directory_is_named() {
        let stop = AtomicBool::new(false);
        let missing = Path::new(r"C:\nonexistent\directory");
        let made = make_scratch(Some(missing), NEEDS, 9, &stop, &mut |_| {});
        let text = made.unwrap_err().to_string();
        assert!(
            text.starts_with(r"C:\nonexistent\directory: cannot make"),
            "{text}"
        );
    }
}
