//! Opens a block device or a file that the user named, once everything has been checked.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, StatxFlags, fstat, statx};
use rustix::io::Errno;

use super::block_device::BlockDevice;
use super::{Access, Target, facts, fit, in_use};
use crate::engine::Unsplit;
use crate::error::ReplayError;
use crate::result::{self, TargetKind};

const CLAIM_ATTEMPTS: u32 = 20;
const CLAIM_PAUSE: Duration = Duration::from_millis(50);

/// Opens a target and checks it. Nothing is written.
///
/// # Errors
/// A distinct [`ReplayError`] for each reason why it cannot or should not be replayed against.
pub fn open(path: &Path, access: Access) -> Result<Target, ReplayError> {
    let stat = rustix::fs::stat(path).map_err(|error| failed(path, access, "look it up", error))?;
    let target = match FileType::from_raw_mode(stat.st_mode) {
        FileType::BlockDevice => open_block_device(path, access, &stat)?,
        FileType::RegularFile => open_file(path, access, &stat)?,
        FileType::Directory => {
            return Err(ReplayError::Directory {
                path: path.to_owned(),
            });
        }
        FileType::CharacterDevice => {
            return Err(ReplayError::CharacterDevice {
                path: path.to_owned(),
                hint: block_device_hint(path),
            });
        }
        FileType::Fifo => {
            return Err(ReplayError::NotSeekable {
                path: path.to_owned(),
                kind: "FIFO",
            });
        }
        _ => {
            return Err(ReplayError::NotSeekable {
                path: path.to_owned(),
                kind: "socket",
            });
        }
    };
    fit::check(&target, access)?;
    Ok(target)
}

fn open_block_device(path: &Path, access: Access, stat: &Stat) -> Result<Target, ReplayError> {
    let device = BlockDevice::of(stat.st_rdev);
    if let Some(device) = device.as_ref().filter(|_| !access.lenient()) {
        in_use::check_block_device(path, device)?;
    }
    let read_only = device.as_ref().and_then(|device| device.attribute("ro"));
    if access.writes() && read_only.as_deref() == Some("1") {
        return Err(ReplayError::ReadOnly {
            path: path.to_owned(),
        });
    }
    let exclusive = if access.lenient() {
        OFlags::empty()
    } else {
        OFlags::EXCL
    };
    let file =
        open_claimed(path, access, OFlags::DIRECT | exclusive).map_err(|error| match error {
            Errno::INVAL => ReplayError::NoDirectIo {
                path: path.to_owned(),
                source: error.into(),
            },
            other => failed(path, access, "open it", other),
        })?;
    let size = rustix::fs::seek(&file, rustix::fs::SeekFrom::End(0))
        .map_err(|error| failed(path, access, "find its size", error))?;
    let facts = facts::of_device(device.as_ref());
    let sector_bytes = rustix::fs::ioctl_blksszget(&file)
        .ok()
        .or(facts.logical_sector)
        .unwrap_or(512)
        .max(1);
    let number = |name| {
        device
            .as_ref()
            .and_then(|device| device.disk_number::<u64>(name))
    };
    Ok(Target {
        file: Arc::new(file),
        path: path.to_owned(),
        size_bytes: size - size % u64::from(sector_bytes),
        sector_bytes,
        memory_alignment: sector_bytes,
        block_device: true,
        discards: number("queue/discard_max_bytes") != Some(0),
        zeroes: number("queue/write_zeroes_max_bytes") != Some(0),
        flushes: true,
        queue_requests: device
            .as_ref()
            .and_then(|device| device.disk_number("queue/nr_requests")),
        unsplit: Unsplit {
            transfer_bytes: number("queue/max_sectors_kb")
                .map_or(u64::MAX, |kib| kib.saturating_mul(1024)),
            discard_bytes: number("queue/discard_max_bytes").unwrap_or(u64::MAX),
        },
        cached: None,
        facts: result::Target {
            path: Some(path.display().to_string()),
            kind: TargetKind::Block,
            size_bytes: Some(size),
            logical_sector: Some(sector_bytes),
            direct: true,
            ..facts
        },
        notes: Vec::new(),
    })
}

fn open_file(path: &Path, access: Access, stat: &Stat) -> Result<Target, ReplayError> {
    if !access.lenient() {
        in_use::check_file(path)?;
    }
    let (file, direct) = match open_with(path, access, OFlags::DIRECT) {
        Err(Errno::INVAL) => (open_with(path, access, OFlags::empty()), false),
        other => (other, true),
    };
    let file = file.map_err(|error| failed(path, access, "open it", error))?;
    let mut target = describe_file(file, path, direct, TargetKind::File)
        .map_err(|error| failed(path, access, "examine it", error))?;
    let allocated = u64::try_from(stat.st_blocks)
        .unwrap_or(0)
        .saturating_mul(512);
    if allocated < target.size_bytes {
        target.notes.push(format!(
            "the file has holes: only {allocated} of its {} bytes are allocated; reads of the rest reach no device",
            target.size_bytes
        ));
    }
    Ok(target)
}

/// What is to be known of an open regular file.
pub(super) fn describe_file(
    file: OwnedFd,
    path: &Path,
    direct: bool,
    kind: TargetKind,
) -> Result<Target, Errno> {
    let stat = fstat(&file)?;
    let size = u64::try_from(stat.st_size).unwrap_or(0);
    let device = BlockDevice::of(stat.st_dev);
    let facts = facts::of_device(device.as_ref());
    let filesystem = facts::filesystem(&file, path);
    let name = filesystem.name.as_deref().unwrap_or("its filesystem");
    let alignment = direct_alignment(file.as_fd());
    let cached = if filesystem.in_memory {
        Some(format!("{name} keeps its files in memory"))
    } else if !direct || alignment == Some((0, 0)) {
        Some(format!(
            "{name} refuses direct I/O, requests go through the page cache"
        ))
    } else {
        None
    };
    let (sector_bytes, memory_alignment) = match (&cached, alignment) {
        (Some(_), _) => (1, 1),
        (None, Some((offset, memory))) => (offset.max(1), memory.max(1)),
        // Before Linux 6.1 nobody says: the device's sector is what most filesystems want.
        (None, None) => {
            let sector = facts.logical_sector.unwrap_or(4096).max(1);
            (sector, sector)
        }
    };
    Ok(Target {
        file: Arc::new(file),
        path: path.to_owned(),
        size_bytes: size - size % u64::from(sector_bytes),
        sector_bytes,
        memory_alignment,
        block_device: false,
        discards: true,
        zeroes: true,
        flushes: true,
        queue_requests: None,
        unsplit: Unsplit::ANY,
        facts: result::Target {
            path: Some(path.display().to_string()),
            kind,
            size_bytes: Some(size),
            direct: cached.is_none(),
            filesystem: filesystem.name,
            ..facts
        },
        cached,
        notes: Vec::new(),
    })
}

/// Alignment of offsets and of memory for direct I/O, (0, 0) when there is none; `None` when the
/// kernel does not say.
fn direct_alignment(file: impl AsFd) -> Option<(u32, u32)> {
    let found = statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).ok()?;
    let known = found.stx_mask & StatxFlags::DIOALIGN.bits() != 0;
    known.then_some((found.stx_dio_offset_align, found.stx_dio_mem_align))
}

fn open_with(path: &Path, access: Access, flags: OFlags) -> Result<OwnedFd, Errno> {
    let mode = if access.writes() {
        OFlags::RDWR
    } else {
        OFlags::RDONLY
    };
    rustix::fs::open(path, mode | OFlags::CLOEXEC | flags, Mode::empty())
}

/// Opens a device whose last user may only just be leaving it: a program that has ended while the
/// kernel still cleans up behind it, or udev looking at what has changed.
fn open_claimed(path: &Path, access: Access, flags: OFlags) -> Result<OwnedFd, Errno> {
    for _ in 0..CLAIM_ATTEMPTS {
        match open_with(path, access, flags) {
            Err(Errno::BUSY) => std::thread::sleep(CLAIM_PAUSE),
            other => return other,
        }
    }
    open_with(path, access, flags)
}

/// The error that a failed system call stands for.
fn failed(path: &Path, access: Access, action: &'static str, error: Errno) -> ReplayError {
    let path = path.to_owned();
    match error {
        Errno::NOENT | Errno::NXIO | Errno::NODEV => ReplayError::NotFound { path },
        Errno::ACCESS | Errno::PERM => ReplayError::PermissionDenied {
            path,
            access: if access.writes() {
                "reading and writing"
            } else {
                "reading"
            },
        },
        Errno::ROFS => ReplayError::ReadOnly { path },
        Errno::BUSY => ReplayError::Busy { path },
        other => ReplayError::Target {
            path,
            action,
            source: other.into(),
        },
    }
}

/// `/dev/nvme0` and `/dev/ng0n1` are names that people try.
fn block_device_hint(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let block = if let Some(rest) = name.strip_prefix("ng") {
        format!("/dev/nvme{rest}")
    } else if name
        .strip_prefix("nvme")
        .is_some_and(|rest| rest.parse::<u32>().is_ok())
    {
        format!("/dev/{name}n1")
    } else {
        return String::new();
    };
    format!(", such as {block}")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const FORBIDDEN: Access = Access::Forbidden {
        writes: 3,
        discards: 2,
        write_zeroes: 1,
    };

    fn directory() -> tempfile::TempDir {
        tempfile::tempdir().unwrap()
    }

    #[test]
    fn each_unfit_path_has_its_own_error() {
        let dir = directory();
        let fifo = dir.path().join("fifo");
        let mode = Mode::RUSR | Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, FileType::Fifo, mode, 0).unwrap();
        let empty = dir.path().join("empty");
        fs::write(&empty, "").unwrap();
        let error = |path: &Path| open(path, Access::Read).unwrap_err();
        assert!(matches!(
            error(&dir.path().join("no")),
            ReplayError::NotFound { .. }
        ));
        assert!(matches!(error(dir.path()), ReplayError::Directory { .. }));
        assert!(matches!(
            error(&fifo),
            ReplayError::NotSeekable { kind: "FIFO", .. }
        ));
        assert!(matches!(error(&empty), ReplayError::Empty { .. }));
        assert!(matches!(
            error(Path::new("/dev/null")),
            ReplayError::CharacterDevice { hint, .. } if hint.is_empty()
        ));
    }

    #[test]
    fn nvme_character_devices_hint_at_their_block_device() {
        assert_eq!(
            block_device_hint(Path::new("/dev/ng0n1")),
            ", such as /dev/nvme0n1"
        );
        assert_eq!(
            block_device_hint(Path::new("/dev/nvme3")),
            ", such as /dev/nvme3n1"
        );
        assert_eq!(block_device_hint(Path::new("/dev/sg0")), "");
    }

    #[test]
    fn a_file_with_a_signature_is_only_read() {
        let dir = directory();
        let path = dir.path().join("image");
        let mut content = vec![0; 1 << 20];
        content[..4].copy_from_slice(b"XFSB");
        fs::write(&path, &content).unwrap();
        for access in [Access::Read, Access::Overwrite, FORBIDDEN] {
            let error = open(&path, access).unwrap_err();
            assert!(
                matches!(
                    error,
                    ReplayError::Signature {
                        offset_bytes: 0,
                        ..
                    }
                ),
                "{error}"
            );
        }
        assert_eq!(open(&path, Access::SkipWrites).unwrap().size_bytes, 1 << 20);
        assert_eq!(fs::read(&path).unwrap(), content);
    }

    #[test]
    fn a_tape_that_changes_data_needs_permission_by_name() {
        let dir = directory();
        let path = dir.path().join("file");
        fs::write(&path, vec![7; 8192]).unwrap();
        let text = open(&path, FORBIDDEN).unwrap_err().to_string();
        assert!(
            text.contains("3 writes, 2 discards, 1 write-zeroes"),
            "{text}"
        );
        assert!(
            text.contains(&format!("--overwrite {}", path.display())),
            "{text}"
        );
        assert_eq!(
            open(&path, Access::Overwrite).unwrap().facts.kind,
            TargetKind::File
        );
    }

    #[test]
    fn holes_are_noted() {
        let dir = directory();
        let path = dir.path().join("sparse");
        fs::File::create(&path).unwrap().set_len(1 << 20).unwrap();
        let notes = open(&path, Access::Read).unwrap().notes;
        assert!(
            notes.iter().any(|note| note.contains("has holes")),
            "{notes:?}"
        );
    }

    #[test]
    fn files_in_memory_are_told_apart() {
        let shm = Path::new("/dev/shm");
        let Ok(file) = tempfile::NamedTempFile::new_in(shm) else {
            eprintln!("skipped: no writable {}", shm.display());
            return;
        };
        file.as_file().set_len(8192).unwrap();
        let target = open(file.path(), Access::Read).unwrap();
        if target.facts.filesystem.as_deref() == Some("tmpfs") {
            assert!(target.cached.unwrap().contains("memory"));
            assert!(!target.facts.direct);
        } else {
            eprintln!(
                "skipped: {} is {:?}",
                shm.display(),
                target.facts.filesystem
            );
        }
    }
}
