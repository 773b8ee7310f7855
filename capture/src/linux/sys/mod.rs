//! The unsafe part: system calls that no safe library offers.

mod blktrace;
#[cfg(feature = "bpf")]
mod mapped;
mod perf;
mod process;
mod scheduler;

use std::io;
use std::os::fd::AsRawFd;

pub(super) use blktrace::{TraceWanted, set_up_traces, start_trace};
#[cfg(feature = "bpf")]
pub(super) use mapped::MappedArray;
#[cfg(test)]
pub(super) use perf::{HEAD_OFFSET, TAIL_OFFSET};
pub(super) use perf::{Ring, TracepointEvent};
pub(super) use process::{Janitor, become_user};
pub(super) use scheduler::lengthen_slice;

/// Begins to write a range of a file to its device, on behalf of the calling thread, and does not wait.
pub(super) fn begin_writeback(file: &std::fs::File, from: u64, length: u64) -> io::Result<()> {
    let offset = |bytes| libc::off64_t::try_from(bytes).map_err(io::Error::other);
    let (from, length) = (offset(from)?, offset(length)?);
    // SAFETY: the call takes numbers and an open descriptor by value.
    check(unsafe {
        libc::sync_file_range(file.as_raw_fd(), from, length, libc::SYNC_FILE_RANGE_WRITE)
    })
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}
