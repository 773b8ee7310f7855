//! Zeroed pages from the system.

use std::io;
use std::ptr::NonNull;

use windows_sys::Win32::System::Memory::{
    MEM_COMMIT, MEM_RELEASE, MEM_RESERVE, PAGE_READWRITE, VirtualAlloc, VirtualFree,
};

/// Maps readable and writable memory, all zeros.
///
/// # Errors
/// When memory or the page file does not suffice.
pub fn map(len: usize) -> io::Result<NonNull<u8>> {
    // SAFETY: new pages at an address of the system's choice overlap nothing.
    let mapping = unsafe {
        VirtualAlloc(
            std::ptr::null(),
            len,
            MEM_COMMIT | MEM_RESERVE,
            PAGE_READWRITE,
        )
    };
    NonNull::new(mapping.cast()).ok_or_else(io::Error::last_os_error)
}

/// Does nothing: large pages take a privilege that a user does not have.
///
/// # Safety
/// Always.
pub unsafe fn prefer_huge(_start: NonNull<u8>, _len: usize) {}

/// Gives memory back.
///
/// # Safety
/// `mapping` must be a mapping of [`map`] that nobody uses any more.
pub unsafe fn unmap(mapping: NonNull<u8>, _len: usize) {
    // SAFETY: by the caller. A release takes the whole allocation and wants a size of 0.
    unsafe { VirtualFree(mapping.as_ptr().cast(), 0, MEM_RELEASE) };
}
