//! What makes two paths the same target.

use std::path::Path;

use rustix::fs::FileType;

/// Of a block device its number, of a file its filesystem and inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    block_device: bool,
    device: u64,
    inode: u64,
}

/// Looks a target up; `None` where there is nothing of this name, which is an error once it is
/// opened.
pub fn identity(path: &Path) -> Option<Identity> {
    let stat = rustix::fs::stat(path).ok()?;
    let block_device = FileType::from_raw_mode(stat.st_mode).is_block_device();
    let (device, inode) = match block_device {
        true => (stat.st_rdev, 0),
        false => (stat.st_dev, stat.st_ino),
    };
    Some(Identity {
        block_device,
        device,
        inode,
    })
}
