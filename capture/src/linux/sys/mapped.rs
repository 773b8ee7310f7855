//! Memory that BPF programs share with this process.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

/// The values of an array map, mapped.
#[derive(Debug)]
pub(in crate::linux) struct MappedArray {
    words: NonNull<AtomicU64>,
    count: usize,
    mapped_bytes: usize,
}

// SAFETY: the mapping belongs to the process and not to a thread, and all access is by atomic words.
unsafe impl Send for MappedArray {}

impl MappedArray {
    /// Maps `bytes` of an array that was made with `BPF_F_MMAPABLE`.
    pub fn new(map: BorrowedFd<'_>, bytes: usize) -> io::Result<MappedArray> {
        let page = rustix::param::page_size();
        let mapped_bytes = bytes.next_multiple_of(page);
        // SAFETY: a new mapping at a place of the kernel's choice touches no memory of ours.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                mapped_bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                map.as_raw_fd(),
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let words = NonNull::new(start.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(MappedArray {
            words,
            count: bytes / 8,
            mapped_bytes,
        })
    }

    /// All of it, as words. The kernel writes them at any time.
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping begins at a page, spans at least `count` words, and lasts as long as
        // `self`. Its memory is initialised by the kernel and accessed as atomics only.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr(), self.count) }
    }
}

impl Drop for MappedArray {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nothing borrows from it any more.
        unsafe { libc::munmap(self.words.as_ptr().cast(), self.mapped_bytes) };
    }
}
