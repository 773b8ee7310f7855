//! What the files of a recording need of the system.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::fstatvfs;

use super::sys;

/// New files are readable by their owner only.
pub fn keep_private(options: &mut OpenOptions) {
    options.mode(0o600);
}

/// Bytes that an ordinary user may still write to the file system of a file, which is at `path`.
pub fn free_bytes(file: &File, _path: &Path) -> Option<u64> {
    let space = fstatvfs(file).ok()?;
    Some(space.f_bavail.saturating_mul(space.f_frsize))
}

/// Begins to write a range of a file to its device, on behalf of the calling thread, and does not wait.
pub fn begin_writeback(file: &File, from: u64, length: u64) -> io::Result<()> {
    sys::begin_writeback(file, from, length)
}
