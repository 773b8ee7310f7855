//! Targets: what is replayed against, found fit and safe before anything is written.

mod access;
#[cfg(target_os = "linux")]
mod block_device;
#[cfg(test)]
#[cfg(target_os = "linux")]
mod device_tests;
#[cfg(target_os = "linux")]
mod facts;
mod fit;
#[cfg(target_os = "linux")]
mod identity;
#[cfg(target_os = "linux")]
mod in_use;
#[cfg(target_os = "linux")]
mod open;
#[cfg(target_os = "linux")]
mod scratch;
mod scratch_size;
mod signature;
#[cfg(any(windows, test))]
mod windows;

use std::path::PathBuf;
use std::sync::Arc;

use crate::engine::{Disk, Unsplit};
use crate::result;
use crate::sys;

pub use access::Access;
pub use scratch_size::ScratchNeeds;

#[cfg(windows)]
pub use windows::{Identity, Volume, default_directory, identity, make_scratch, open};

#[cfg(target_os = "linux")]
pub use facts::filesystem;
#[cfg(target_os = "linux")]
pub use identity::{Identity, identity};
#[cfg(target_os = "linux")]
pub use open::open;
#[cfg(target_os = "linux")]
pub use scratch::{default_directory, make_scratch};

/// An open target.
#[derive(Debug)]
pub struct Target {
    /// The open file.
    pub file: Arc<sys::File>,
    /// As the user named it.
    pub path: PathBuf,
    /// Size, rounded down to whole sectors.
    pub size_bytes: u64,
    /// Offsets and lengths must be multiples of this.
    pub sector_bytes: u32,
    /// Addresses in memory must be multiples of this.
    pub memory_alignment: u32,
    /// Whether it is a block device.
    pub block_device: bool,
    /// Whether it discards. Known of block devices only; a file tries.
    pub discards: bool,
    /// Whether it zeroes a range without being sent the zeroes. Known of block devices only.
    pub zeroes: bool,
    /// Whether it takes flushes as it is open.
    pub flushes: bool,
    /// Why requests end in memory rather than on a device.
    pub cached: Option<String>,
    /// Longest requests that the kernel does not split.
    pub unsplit: Unsplit,
    /// Requests that the device's queue holds at once. Known of block devices only.
    pub queue_requests: Option<u32>,
    /// What the result says of it.
    pub facts: result::Target,
    /// What a reader of the result should know.
    pub notes: Vec<String>,
}

impl Target {
    /// As an engine sees it.
    pub fn disk(&self) -> Disk {
        Disk {
            file: Arc::clone(&self.file),
            block_device: self.block_device,
            unsplit: self.unsplit,
        }
    }

    /// As named in messages.
    pub fn name(&self) -> String {
        self.path.display().to_string()
    }
}
