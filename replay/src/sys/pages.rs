//! Zeroed pages from the kernel.

use std::io;
use std::ptr::NonNull;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// Maps readable and writable memory, all zeros.
///
/// # Errors
/// When the address space does not suffice.
pub fn map(len: usize) -> io::Result<NonNull<u8>> {
    // SAFETY: a new private mapping at an address of the kernel's choice overlaps nothing.
    let mapping = unsafe {
        mmap_anonymous(
            std::ptr::null_mut(),
            len,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::PRIVATE | MapFlags::NORESERVE,
        )?
    };
    NonNull::new(mapping.cast()).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

/// Asks for huge pages. A wish: where the kernel has none, the memory serves as it is.
///
/// # Safety
/// The range must lie within a mapping of [`map`].
pub unsafe fn prefer_huge(start: NonNull<u8>, len: usize) {
    // SAFETY: by the caller; the advice changes no content.
    let _ = unsafe { madvise(start.as_ptr().cast(), len, Advice::LinuxHugepage) };
}

/// Gives memory back.
///
/// # Safety
/// `mapping` and `len` must be a whole mapping of [`map`] that nobody uses any more.
pub unsafe fn unmap(mapping: NonNull<u8>, len: usize) {
    // SAFETY: by the caller.
    let _ = unsafe { munmap(mapping.as_ptr().cast(), len) };
}
