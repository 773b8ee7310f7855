//! Access to debugfs, where blktrace's buffers are read.
//!
//! Where it is not mounted, a mount that belongs to no directory is made, as for tracefs.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, openat};

use super::tracefs::detached_mount;

/// Where debugfs usually is.
const MOUNT_POINT: &str = "/sys/kernel/debug";

/// Access to debugfs.
#[derive(Debug)]
pub(super) enum DebugFs {
    /// Mounted by the system.
    Mounted(PathBuf),
    /// Our own mount.
    Detached(OwnedFd),
}

impl DebugFs {
    /// Finds the mounted debugfs, or makes a mount.
    pub fn open() -> io::Result<DebugFs> {
        match std::fs::metadata(Path::new(MOUNT_POINT).join("block")) {
            Ok(_) => Ok(DebugFs::Mounted(MOUNT_POINT.into())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Ok(DebugFs::Detached(detached_mount("debugfs")?))
            }
            Err(denied) => match detached_mount("debugfs") {
                Ok(mount) => Ok(DebugFs::Detached(mount)),
                Err(_) => Err(denied),
            },
        }
    }

    /// Opens one of its folders.
    pub fn folder(&self, path: &str) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = match self {
            DebugFs::Mounted(root) => openat(CWD, root.join(path), flags, Mode::empty()),
            DebugFs::Detached(mount) => openat(mount, path, flags, Mode::empty()),
        };
        Ok(opened?)
    }
}
