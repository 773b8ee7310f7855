//! A file made for the occasion, filled with random data, without a name: gone when it is closed,
//! however the process ends.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, Mode, OFlags, fallocate, fdatasync, fstatvfs, unlink};
use rustix::io::Errno;

use super::open::describe_file;
use super::scratch_size::{CHUNK_BYTES, ScratchNeeds, size_of, smallest};
use super::{Target, facts};
use crate::error::ReplayError;
use crate::options::Progress;
use crate::result::TargetKind;
use crate::sys::{self, Buffers};

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
    let (file, direct) = create(&directory).map_err(|error| failed(error.into()))?;
    let space = fstatvfs(&file).map_err(|error| failed(error.into()))?;
    let free_bytes = space.f_bavail.saturating_mul(space.f_frsize);
    let size = size_of(needs, free_bytes).ok_or_else(|| ReplayError::NoRoomForScratch {
        directory: directory.clone(),
        free_bytes,
        needed_bytes: smallest(needs),
    })?;
    fill(&file, size, seed, stop, progress).map_err(|error| match error {
        Fill::Stopped => ReplayError::Interrupted,
        Fill::Failed(error) => failed(error),
    })?;
    describe_file(file, &directory, direct, TargetKind::Scratch)
        .map_err(|error| failed(error.into()))
}

/// `TMPDIR` if set; else `/tmp`, or `/var/tmp` if only that is on a device.
pub fn default_directory() -> PathBuf {
    if let Some(named) = std::env::var_os("TMPDIR").filter(|name| !name.is_empty()) {
        return PathBuf::from(named);
    }
    let on_device = |path: &&Path| {
        rustix::fs::open(
            *path,
            OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .is_ok_and(|directory| !facts::filesystem(&directory, path).in_memory)
            && rustix::fs::access(*path, rustix::fs::Access::WRITE_OK).is_ok()
    };
    let candidates = [Path::new("/tmp"), Path::new("/var/tmp")];
    candidates
        .iter()
        .find(|path| on_device(path))
        .unwrap_or(&candidates[0])
        .to_path_buf()
}

/// A file without a name, and whether it does direct I/O.
fn create(directory: &Path) -> Result<(OwnedFd, bool), Errno> {
    match create_with(directory, OFlags::DIRECT) {
        Err(Errno::INVAL) => create_with(directory, OFlags::empty()).map(|file| (file, false)),
        other => other.map(|file| (file, true)),
    }
}

fn create_with(directory: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::RDWR | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR;
    match rustix::fs::open(directory, flags | OFlags::TMPFILE, mode) {
        // Filesystems and kernels without O_TMPFILE.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT) => {
            let name = directory.join(format!(".iotape-scratch-{}", std::process::id()));
            let file = rustix::fs::open(&name, flags | OFlags::CREATE | OFlags::EXCL, mode)?;
            unlink(&name)?;
            Ok(file)
        }
        other => other,
    }
}

enum Fill {
    Stopped,
    Failed(io::Error),
}

impl From<Errno> for Fill {
    fn from(error: Errno) -> Self {
        Fill::Failed(error.into())
    }
}

fn fill(
    file: &OwnedFd,
    size: u64,
    seed: u64,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(&Progress),
) -> Result<(), Fill> {
    // Finds out at once whether there is room. Not all filesystems can.
    match fallocate(file, FallocateFlags::empty(), 0, size) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) | Ok(()) => {}
        Err(error) => return Err(error.into()),
    }
    let chunk = usize::try_from(CHUNK_BYTES).unwrap_or(usize::MAX);
    let mut buffers = Buffers::new(0, 0, chunk).map_err(Fill::Failed)?;
    let mut random = fastrand::Rng::with_seed(seed);
    let mut reported = Instant::now();
    let mut done = 0;
    while done < size {
        if stop.load(Ordering::Relaxed) {
            return Err(Fill::Stopped);
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
    fdatasync(file)?;
    Ok(())
}

fn write_chunk(file: &OwnedFd, buffers: &Buffers, len: usize, offset: u64) -> Result<(), Fill> {
    let Some(piece) = buffers.payload(0, len) else {
        return Err(Fill::Failed(io::ErrorKind::OutOfMemory.into()));
    };
    match sys::write_at(file, piece, offset, false) {
        Ok(written) if written == len => Ok(()),
        Ok(_) => Err(Fill::Failed(io::ErrorKind::WriteZero.into())),
        Err(errno) => Err(Fill::Failed(io::Error::from_raw_os_error(errno))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn needs(span_bytes: u64, longest_bytes: u64) -> ScratchNeeds {
        ScratchNeeds {
            span_bytes,
            longest_bytes,
        }
    }

    #[test]
    fn the_file_is_random_full_and_has_no_name() {
        let dir = tempfile::tempdir().unwrap();
        let stop = AtomicBool::new(false);
        let made = make_scratch(
            Some(dir.path()),
            needs(3 * MIB, 4096),
            9,
            &stop,
            &mut |_| {},
        );
        let target = made.unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        assert_eq!(target.size_bytes, 3 * MIB);
        assert_eq!(target.facts.kind, TargetKind::Scratch);

        let len = 3 * MIB as usize;
        let mut buffers = Buffers::new(0, 0, len).unwrap();
        let piece = buffers.payload(0, len).unwrap();
        assert_eq!(sys::read_at(&target.file, piece, 0), Ok(len));
        let mut counts = [0u32; 256];
        for byte in buffers.payload_bytes() {
            counts[usize::from(*byte)] += 1;
        }
        // 3 MiB / 256 = 12,288 of each value on average, with a deviation of about 111.
        assert!(
            counts.iter().all(|count| (11_500..13_100).contains(count)),
            "{counts:?}"
        );
    }

    #[test]
    fn a_stop_ends_the_filling() {
        let dir = tempfile::tempdir().unwrap();
        let stop = AtomicBool::new(true);
        let made = make_scratch(Some(dir.path()), needs(MIB, 4096), 9, &stop, &mut |_| {});
        assert!(matches!(made, Err(ReplayError::Interrupted)));
    }

    #[test]
    fn a_missing_directory_is_named() {
        let stop = AtomicBool::new(false);
        let missing = Path::new("/nonexistent/directory");
        let made = make_scratch(Some(missing), needs(MIB, 4096), 9, &stop, &mut |_| {});
        assert!(
            made.unwrap_err()
                .to_string()
                .starts_with("/nonexistent/directory: cannot make")
        );
    }
}
