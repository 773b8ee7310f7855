//! The unsafe part: `perf_event_open`, its ioctls, and the ring that the kernel shares.
//!
//! Layouts and numbers are those of `linux/perf_event.h` (the ABI up to `PERF_ATTR_SIZE_VER5`, Linux
//! 4.1); `perf_event_open(2)` describes them.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::{AtomicU64, Ordering};

use super::check;

const TYPE_TRACEPOINT: u32 = 2;
const SAMPLE_TID: u64 = 1 << 1;
const SAMPLE_TIME: u64 = 1 << 2;
const SAMPLE_RAW: u64 = 1 << 10;
const FORMAT_LOST: u64 = 1 << 4;
const FLAG_DISABLED: u64 = 1 << 0;
const FLAG_WATERMARK: u64 = 1 << 14;
const FLAG_SAMPLE_ID_ALL: u64 = 1 << 18;
const FLAG_USE_CLOCKID: u64 = 1 << 25;
const OPEN_CLOEXEC: libc::c_ulong = 1 << 3;

const IOC_ENABLE: libc::Ioctl = ioc(0, 0, 0);
const IOC_SET_OUTPUT: libc::Ioctl = ioc(0, 5, 0);
const IOC_SET_FILTER: libc::Ioctl = ioc(1, 6, size_of::<*const libc::c_char>());

/// Where the control page keeps how far the kernel has written and we have read.
pub(in crate::linux) const HEAD_OFFSET: usize = 1024;
pub(in crate::linux) const TAIL_OFFSET: usize = 1032;

/// `_IOC` with the type `$`: direction 1 is "write". Powerpc and MIPS, which number directions
/// differently, are not supported.
const fn ioc(direction: u32, number: u32, size: usize) -> libc::Ioctl {
    (direction << 30 | (size as u32) << 16 | 0x24 << 8 | number) as libc::Ioctl
}

/// `struct perf_event_attr`, first 112 bytes.
#[repr(C)]
#[derive(Default)]
struct Attr {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_watermark: u32,
    bp_type: u32,
    config1: u64,
    config2: u64,
    branch_sample_type: u64,
    sample_regs_user: u64,
    sample_stack_user: u32,
    clockid: i32,
    sample_regs_intr: u64,
    aux_watermark: u32,
    sample_max_stack: u16,
    reserved: u16,
}

const _: () = assert!(size_of::<Attr>() == 112);

/// A tracepoint on one processor.
#[derive(Debug)]
pub(in crate::linux) struct TracepointEvent {
    fd: OwnedFd,
    counts_lost: bool,
    /// Whether each of its samples begins a request of the tape.
    pub begins_requests: bool,
}

impl TracepointEvent {
    /// Opens the tracepoint of this number on a processor, not yet armed. Its samples hold thread,
    /// time on the monotonic clock, and the tracepoint's record.
    pub fn open(tracepoint: u16, cpu: u32, watermark_bytes: u32) -> io::Result<TracepointEvent> {
        match open(tracepoint, cpu, watermark_bytes, FORMAT_LOST) {
            Ok(fd) => Ok(TracepointEvent {
                fd,
                counts_lost: true,
                begins_requests: false,
            }),
            // Before Linux 6.0 a read does not tell how many samples were lost.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                let fd = open(tracepoint, cpu, watermark_bytes, 0)?;
                Ok(TracepointEvent {
                    fd,
                    counts_lost: false,
                    begins_requests: false,
                })
            }
            Err(error) => Err(error),
        }
    }

    /// A stand-in for tests: a file with the layout of a ring.
    #[cfg(test)]
    pub fn of_file(file: OwnedFd) -> TracepointEvent {
        TracepointEvent {
            fd: file,
            counts_lost: false,
            begins_requests: false,
        }
    }

    /// Keeps only records for which the expression holds.
    pub fn filter(&self, expression: &str) -> io::Result<()> {
        let expression = CString::new(expression)?;
        // SAFETY: the ioctl reads a NUL-terminated string, which outlives the call.
        check(unsafe { libc::ioctl(self.fd.as_raw_fd(), IOC_SET_FILTER, expression.as_ptr()) })
    }

    /// Sends the samples to another event's ring.
    pub fn output_to(&self, ring: &Ring) -> io::Result<()> {
        let to = ring.event.fd.as_raw_fd();
        // SAFETY: the ioctl takes a file descriptor by value; both are open.
        check(unsafe { libc::ioctl(self.fd.as_raw_fd(), IOC_SET_OUTPUT, to) })
    }

    /// Arms it.
    pub fn enable(&self) -> io::Result<()> {
        // SAFETY: the ioctl takes a number by value.
        check(unsafe { libc::ioctl(self.fd.as_raw_fd(), IOC_ENABLE, 0) })
    }

    /// Samples lost so far, where the kernel tells.
    pub fn lost(&self) -> Option<u64> {
        if !self.counts_lost {
            return None;
        }
        // With only FORMAT_LOST set, a read gives the count of events and the count of lost ones.
        let mut values = [0u8; 16];
        let got = rustix::io::read(&self.fd, &mut values).ok()?;
        let lost = values.get(8..got)?.first_chunk()?;
        Some(u64::from_ne_bytes(*lost))
    }
}

fn open(tracepoint: u16, cpu: u32, watermark_bytes: u32, read_format: u64) -> io::Result<OwnedFd> {
    let flags = FLAG_DISABLED | FLAG_WATERMARK | FLAG_SAMPLE_ID_ALL | FLAG_USE_CLOCKID;
    let attr = Attr {
        kind: TYPE_TRACEPOINT,
        size: size_of::<Attr>() as u32,
        config: u64::from(tracepoint),
        sample_period: 1,
        sample_type: SAMPLE_TID | SAMPLE_TIME | SAMPLE_RAW,
        read_format,
        // C bit fields begin at the other end on big-endian machines.
        flags: if cfg!(target_endian = "big") {
            flags.reverse_bits()
        } else {
            flags
        },
        wakeup_watermark: watermark_bytes,
        clockid: libc::CLOCK_MONOTONIC,
        ..Attr::default()
    };
    let any_process: libc::pid_t = -1;
    let no_group: libc::c_int = -1;
    let cpu = libc::c_int::try_from(cpu).map_err(io::Error::other)?;
    // SAFETY: `attr` has the size that it tells and outlives the call; the kernel only reads it.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            ptr::from_ref(&attr),
            any_process,
            cpu,
            no_group,
            OPEN_CLOEXEC,
        )
    };
    let fd = libc::c_int::try_from(fd).map_err(io::Error::other)?;
    check(fd)?;
    // SAFETY: the kernel just gave us this descriptor, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A ring of records that the kernel writes and we read.
///
/// Positions count bytes since the ring began and never wrap.
#[derive(Debug)]
pub(in crate::linux) struct Ring {
    event: TracepointEvent,
    base: NonNull<u8>,
    page: usize,
    size: usize,
    /// Up to here the kernel has written, as far as we have looked.
    head: u64,
    /// Up to here we have given the space back.
    tail: u64,
}

// SAFETY: the mapping belongs to the process, not to a thread, and `Ring` has no shared access to
// it other than through `&mut self` and the atomics of the control page.
unsafe impl Send for Ring {}

impl Ring {
    /// Maps a ring of `size` bytes (a power of two of pages) for an event.
    pub fn map(event: TracepointEvent, size: usize) -> io::Result<Ring> {
        let page = rustix::param::page_size();
        if !size.is_power_of_two() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let length = size.checked_add(page).ok_or(io::ErrorKind::InvalidInput)?;
        // SAFETY: a new shared mapping at an address of the kernel's choice touches nothing that
        // exists; the descriptor is open.
        let base = unsafe {
            libc::mmap(
                ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                event.fd.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Ring {
            event,
            base,
            page,
            size,
            head: 0,
            tail: 0,
        })
    }

    /// The event that owns the ring.
    pub fn event(&self) -> &TracepointEvent {
        &self.event
    }

    /// Size in bytes.
    pub fn size(&self) -> u64 {
        self.size as u64
    }

    /// Looks how far the kernel has written.
    pub fn refresh(&mut self) -> u64 {
        self.head = self.control(HEAD_OFFSET).load(Ordering::Acquire);
        self.head
    }

    /// How far the kernel had written at the last look.
    pub fn head(&self) -> u64 {
        self.head
    }

    /// Up to where the space has been given back.
    pub fn tail(&self) -> u64 {
        self.tail
    }

    /// Gives the space before `position` back to the kernel.
    pub fn release(&mut self, position: u64) {
        self.tail = position.clamp(self.tail, self.head);
        self.control(TAIL_OFFSET)
            .store(self.tail, Ordering::Release);
    }

    /// The `length` bytes at a position, as one or, where the ring wraps, two pieces. `None` if the
    /// kernel has not written them or has them back.
    pub fn bytes(&self, position: u64, length: usize) -> Option<(&[u8], &[u8])> {
        let end = position.checked_add(length as u64)?;
        if position < self.tail || end > self.head || length > self.size {
            return None;
        }
        // The size is a power of two.
        let start = position as usize & (self.size - 1);
        let first = length.min(self.size - start);
        let data = self.base.as_ptr().wrapping_add(self.page);
        // SAFETY: the mapping has `size` bytes of data behind the control page, and both pieces
        // lie in them. The kernel does not write between tail and head, which `release` (that
        // needs `&mut self`, when no piece is borrowed) alone moves.
        unsafe {
            Some((
                slice::from_raw_parts(data.wrapping_add(start), first),
                slice::from_raw_parts(data, length - first),
            ))
        }
    }

    fn control(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: the control page is mapped as long as `self` lives, both offsets lie in it and
        // are multiples of 8, and the kernel accesses these words atomically too.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().wrapping_add(offset).cast()) }
    }
}

impl std::os::fd::AsFd for Ring {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.event.fd.as_fd()
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: this is the mapping that `map` made, and no piece of it is borrowed any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.size + self.page) };
    }
}
