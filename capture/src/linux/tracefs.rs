//! The kernel's descriptions of tracepoints.
//!
//! They are read from tracefs. Where it is not mounted, a mount that belongs to no directory is
//! made: it needs no place, nobody sees it, and it ends with its file descriptor.

use std::fs;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

/// Where tracefs usually is.
const MOUNT_POINTS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// Larger than any file that is read here.
const LARGEST_READ: usize = 64 << 10;

/// Access to tracefs.
#[derive(Debug)]
pub(super) enum TraceFs {
    /// Mounted by the system.
    Mounted(PathBuf),
    /// Our own mount.
    Detached(OwnedFd),
}

impl TraceFs {
    /// Finds the mounted tracefs, or makes a mount.
    pub fn open() -> io::Result<TraceFs> {
        match TraceFs::mounted() {
            Ok(Some(found)) => Ok(found),
            Ok(None) => TraceFs::detached(),
            // It is there but closed to us: a mount of our own needs more rights, not fewer, but
            // they may be others.
            Err(denied) => TraceFs::detached().map_err(|_| denied),
        }
    }

    /// The mounted tracefs, if there is one.
    pub fn mounted() -> io::Result<Option<TraceFs>> {
        let mut denied = None;
        for point in MOUNT_POINTS {
            match fs::metadata(Path::new(point).join("events/block")) {
                Ok(_) => return Ok(Some(TraceFs::Mounted(point.into()))),
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    denied = Some(error);
                }
                Err(_) => {}
            }
        }
        denied.map_or(Ok(None), Err)
    }

    /// A mount of our own.
    pub fn detached() -> io::Result<TraceFs> {
        Ok(TraceFs::Detached(detached_mount("tracefs")?))
    }

    /// The description of a tracepoint of the block layer.
    pub fn format(&self, tracepoint: &str) -> io::Result<String> {
        self.read(&format!("events/block/{tracepoint}/format"))
    }

    /// Reads one of its files. Some of them give everything to the first read or not at all.
    pub fn read(&self, path: &str) -> io::Result<String> {
        let file = self.open_at(path, OFlags::RDONLY)?;
        let (mut text, mut part) = (Vec::new(), vec![0; LARGEST_READ]);
        loop {
            match rustix::io::read(&file, &mut part[..])? {
                0 => return String::from_utf8(text).map_err(io::Error::other),
                count => text.extend_from_slice(&part[..count]),
            }
        }
    }

    /// Writes one of its files.
    pub fn write(&self, path: &str, text: &str) -> io::Result<()> {
        let file = self.open_at(path, OFlags::WRONLY | OFlags::TRUNC)?;
        fs::File::from(file).write_all(text.as_bytes())
    }

    /// Opens one of its files or folders.
    pub fn open_at(&self, path: &str, flags: OFlags) -> io::Result<OwnedFd> {
        let flags = flags | OFlags::CLOEXEC;
        let opened = match self {
            TraceFs::Mounted(root) => openat(CWD, root.join(path), flags, Mode::empty()),
            TraceFs::Detached(mount) => openat(mount, path, flags, Mode::empty()),
        };
        Ok(opened?)
    }
}

/// A mount of this file system that belongs to no directory.
pub(super) fn detached_mount(filesystem: &str) -> io::Result<OwnedFd> {
    let context = fsopen(filesystem, FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&context)?;
    let (flags, attributes) = (FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty());
    Ok(fsmount(&context, flags, attributes)?)
}
