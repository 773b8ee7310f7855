//! What the files of a recording need of the system.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;

use super::sys;

/// New files have the rights of their folder: Windows has no other default.
pub fn keep_private(_options: &mut OpenOptions) {}

/// Bytes that the user may still write where `path` is.
pub fn free_bytes(_file: &File, path: &Path) -> Option<u64> {
    let folder = path.parent().filter(|folder| *folder != Path::new(""));
    sys::free_bytes(folder.unwrap_or(Path::new("."))).ok()
}

/// The system writes in its own time.
///
/// # Errors
/// None.
pub fn begin_writeback(_file: &File, _from: u64, _length: u64) -> io::Result<()> {
    Ok(())
}
