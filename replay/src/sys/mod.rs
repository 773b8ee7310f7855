//! All unsafe code of this crate: memory that the kernel fills, the ring, and the system calls
//! that have no safe wrapper.

mod memory;
mod pages;
mod ring;

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::fs::{FallocateFlags, fallocate, fdatasync};

pub use memory::{Buffers, Piece};
pub use ring::{AUXILIARY, Read, Ring, RingError, RingOptions, Write};

/// `BLKDISCARD` of linux/fs.h: `_IO(0x12, 119)`.
const BLKDISCARD: libc::Ioctl = 0x1277;

/// An open target.
pub type File = OwnedFd;

/// Numbers of errors that this crate itself reports.
pub mod code {
    /// The device failed.
    pub const IO: i32 = libc::EIO;
    /// There is no such device.
    pub const NO_DEVICE: i32 = libc::ENODEV;
    /// A range outside of the buffers.
    pub const BAD_BUFFER: i32 = libc::EFAULT;
    /// A range that no target can have.
    pub const INVALID: i32 = libc::EINVAL;
    /// The target has no such operation.
    #[cfg(test)]
    pub const UNSUPPORTED: i32 = libc::EOPNOTSUPP;
    /// The target is not open for writing.
    #[cfg(test)]
    pub const NOT_WRITABLE: i32 = libc::EBADF;
}

/// Bytes transferred, or the number of the error.
pub type Transferred = Result<usize, i32>;

/// Reads from an offset into a buffer.
pub fn read_at(file: &impl AsFd, buffer: Piece<'_>, offset: u64) -> Transferred {
    let Ok(offset) = libc::off_t::try_from(offset) else {
        return Err(libc::EINVAL);
    };
    // SAFETY: a piece points to that many writable bytes, which live as long as it does and to
    // which no reference exists.
    let result = unsafe {
        libc::pread(
            file.as_fd().as_raw_fd(),
            buffer.pointer().cast(),
            buffer.len(),
            offset,
        )
    };
    transferred(result)
}

/// Writes a buffer at an offset; durable on return if asked.
pub fn write_at(file: &impl AsFd, buffer: Piece<'_>, offset: u64, durable: bool) -> Transferred {
    let Ok(offset) = libc::off_t::try_from(offset) else {
        return Err(libc::EINVAL);
    };
    let vector = libc::iovec {
        iov_base: buffer.pointer().cast(),
        iov_len: buffer.len(),
    };
    let flags = if durable { libc::RWF_DSYNC } else { 0 };
    // SAFETY: the vector describes one buffer, which a piece keeps alive; the kernel only reads.
    let result = unsafe {
        libc::pwritev2(
            file.as_fd().as_raw_fd(),
            &raw const vector,
            1,
            offset,
            flags,
        )
    };
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
pub fn discard_blocks(device: &impl AsFd, offset: u64, length: u64) -> Result<(), i32> {
    let range = [offset, length];
    // SAFETY: BLKDISCARD reads two u64 from its argument and nothing else.
    let result = unsafe { libc::ioctl(device.as_fd().as_raw_fd(), BLKDISCARD, range.as_ptr()) };
    if result < 0 {
        Err(last_errno())
    } else {
        Ok(())
    }
}

/// Makes completed writes durable.
pub fn flush(file: &impl AsFd) -> Result<(), i32> {
    fdatasync(file).map_err(rustix::io::Errno::raw_os_error)
}

/// Punches a hole into a file.
pub fn discard_in_file(file: &impl AsFd, offset: u64, length: u64) -> Result<(), i32> {
    let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(file, mode, offset, length).map_err(rustix::io::Errno::raw_os_error)
}

/// Zeroes a range.
pub fn write_zeroes(file: &impl AsFd, offset: u64, length: u64) -> Result<(), i32> {
    let mode = FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE;
    fallocate(file, mode, offset, length).map_err(rustix::io::Errno::raw_os_error)
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

/// Binds the calling thread to one of the processors that it may use: to the one of this number,
/// counted from 0 and around.
///
/// # Errors
/// The system's.
pub fn pin_to_processor(number: u32) -> io::Result<()> {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
    let allowed = sched_getaffinity(None)?;
    let usable: Vec<usize> = (0..CpuSet::MAX_CPU)
        .filter(|&cpu| allowed.is_set(cpu))
        .collect();
    let index = usize::try_from(number).unwrap_or(0) % usable.len().max(1);
    let Some(&cpu) = usable.get(index) else {
        return Err(io::ErrorKind::NotFound.into());
    };
    let mut one = CpuSet::new();
    one.set(cpu);
    Ok(sched_setaffinity(None, &one)?)
}

/// Nanoseconds of `CLOCK_MONOTONIC`, the clock of every time in a run.
pub fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds
        .wrapping_mul(1_000_000_000)
        .wrapping_add(u64::try_from(now.tv_nsec).unwrap_or(0))
}

/// Tells an engine that waits for its target that something else is done.
#[derive(Debug)]
pub struct Signal(OwnedFd);

impl Signal {
    /// The signal of an eventfd, which it outlives.
    ///
    /// # Errors
    /// When there are too many open files.
    pub fn of(event: &impl AsFd) -> io::Result<Self> {
        event.as_fd().try_clone_to_owned().map(Signal)
    }

    /// Fails only when the counter is full, which is as good as signalled.
    pub fn raise(&self) {
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }
}
