//! All unsafe code of this crate: memory that the kernel fills, the ring, and the system calls
//! that have no safe wrapper.

mod memory;
mod ring;

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

pub use memory::{Buffers, Piece};
pub use ring::{AUXILIARY, Read, Ring, RingError, RingOptions, Write};

/// `BLKDISCARD` of linux/fs.h: `_IO(0x12, 119)`.
const BLKDISCARD: libc::Ioctl = 0x1277;

/// Bytes transferred, or the number of the error.
pub type Transferred = Result<usize, i32>;

/// Reads from an offset into a buffer.
pub fn read_at(file: BorrowedFd<'_>, buffer: Piece<'_>, offset: u64) -> Transferred {
    let Ok(offset) = libc::off_t::try_from(offset) else {
        return Err(libc::EINVAL);
    };
    // SAFETY: a piece points to that many writable bytes, which live as long as it does and to
    // which no reference exists.
    let result = unsafe {
        libc::pread(
            file.as_raw_fd(),
            buffer.pointer().cast(),
            buffer.len(),
            offset,
        )
    };
    transferred(result)
}

/// Writes a buffer at an offset; durable on return if asked.
pub fn write_at(
    file: BorrowedFd<'_>,
    buffer: Piece<'_>,
    offset: u64,
    durable: bool,
) -> Transferred {
    let Ok(offset) = libc::off_t::try_from(offset) else {
        return Err(libc::EINVAL);
    };
    let vector = libc::iovec {
        iov_base: buffer.pointer().cast(),
        iov_len: buffer.len(),
    };
    let flags = if durable { libc::RWF_DSYNC } else { 0 };
    // SAFETY: the vector describes one buffer, which a piece keeps alive; the kernel only reads.
    let result = unsafe { libc::pwritev2(file.as_raw_fd(), &raw const vector, 1, offset, flags) };
    transferred(result)
}

fn transferred(result: isize) -> Transferred {
    usize::try_from(result).map_err(|_| last_errno())
}

fn last_errno() -> i32 {
    io::Error::last_os_error()
        .raw_os_error()
        .unwrap_or(libc::EIO)
}

/// Tells a block device that a range is no longer in use.
pub fn discard_blocks(device: BorrowedFd<'_>, offset: u64, length: u64) -> Result<(), i32> {
    let range = [offset, length];
    // SAFETY: BLKDISCARD reads two u64 from its argument and nothing else.
    let result = unsafe { libc::ioctl(device.as_raw_fd(), BLKDISCARD, range.as_ptr()) };
    if result < 0 {
        Err(last_errno())
    } else {
        Ok(())
    }
}

/// Processor time used.
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuTime {
    /// In user mode.
    pub user_ns: u64,
    /// In the kernel.
    pub system_ns: u64,
}

impl CpuTime {
    /// Of all threads of the process, io_uring's kernel threads included.
    pub fn of_process() -> Self {
        Self::of(libc::RUSAGE_SELF)
    }

    /// Of the calling thread.
    pub fn of_thread() -> Self {
        Self::of(libc::RUSAGE_THREAD)
    }

    fn of(who: libc::c_int) -> Self {
        // SAFETY: rusage consists of integers, for which all zeros is a value.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: the pointer is to a whole rusage that lives through the call.
        if unsafe { libc::getrusage(who, &raw mut usage) } != 0 {
            return CpuTime::default();
        }
        CpuTime {
            user_ns: nanoseconds(usage.ru_utime),
            system_ns: nanoseconds(usage.ru_stime),
        }
    }

    /// User and kernel time.
    pub fn total_ns(self) -> u64 {
        self.user_ns.saturating_add(self.system_ns)
    }

    /// What was used since an earlier reading.
    pub fn since(self, earlier: CpuTime) -> CpuTime {
        CpuTime {
            user_ns: self.user_ns.saturating_sub(earlier.user_ns),
            system_ns: self.system_ns.saturating_sub(earlier.system_ns),
        }
    }
}

fn nanoseconds(time: libc::timeval) -> u64 {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let micros = u64::try_from(time.tv_usec).unwrap_or(0);
    seconds
        .saturating_mul(1_000_000_000)
        .saturating_add(micros * 1_000)
}

/// Nanoseconds of `CLOCK_MONOTONIC`, the clock of every time in a run.
pub fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds
        .wrapping_mul(1_000_000_000)
        .wrapping_add(u64::try_from(now.tv_nsec).unwrap_or(0))
}

/// Duplicates a descriptor, so that it can outlive its owner on another thread.
pub fn duplicate(file: &impl AsFd) -> io::Result<std::os::fd::OwnedFd> {
    file.as_fd().try_clone_to_owned()
}
