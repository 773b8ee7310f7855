//! What operations act on: the open targets and the buffers of a run.

use std::sync::Arc;

use super::Io;
use crate::sys::{self, Buffers};

/// What operations act on.
#[derive(Clone, Debug)]
pub struct Medium {
    /// The open targets, in the order of [`Io::target`].
    pub disks: Arc<[Disk]>,
    /// Buffers of the run.
    pub buffers: Arc<Buffers>,
}

/// An open target, as an engine sees it.
#[derive(Clone, Debug)]
pub struct Disk {
    /// The open file.
    pub file: Arc<sys::File>,
    /// Whether the target is a block device, which discards otherwise than a file.
    pub block_device: bool,
    /// Longest requests that the kernel passes on to the device whole.
    #[cfg_attr(windows, expect(dead_code, reason = "io_uring asks"))]
    pub unsplit: Unsplit,
}

/// Longest requests that the kernel does not split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsplit {
    /// Reads and writes.
    pub transfer_bytes: u64,
    /// Discards.
    pub discard_bytes: u64,
}

impl Unsplit {
    /// No limit known.
    pub const ANY: Unsplit = Unsplit {
        transfer_bytes: u64::MAX,
        discard_bytes: u64::MAX,
    };
}

impl Medium {
    /// The target of an operation.
    pub fn disk(&self, io: &Io) -> Option<&Disk> {
        self.disks.get(usize::from(io.target))
    }
}
