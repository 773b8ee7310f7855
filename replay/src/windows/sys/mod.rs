//! All unsafe code of this crate on Windows: memory that the system fills, the completion port, and
//! the system calls that have no safe wrapper.

mod affinity;
mod clock;
mod disk;
mod file;
#[path = "../../sys/memory.rs"]
mod memory;
mod pages;
mod port;
mod version;
mod volumes;

pub use affinity::pin_to_processor;
pub use clock::{CpuTime, monotonic_ns};
pub use disk::{DiskFacts, disk_facts};
pub use file::{
    File, FileFacts, Opening, discard_blocks, discard_in_file, file_facts, flush, free_bytes, open,
    read_at, set_len, write_at, write_zeroes,
};
pub use memory::Buffers;
pub use port::{Port, PortOptions, Signal, Transfer};
pub use version::windows_version;
pub use volumes::{claim, volumes};

/// Numbers of errors that this crate itself reports.
pub mod code {
    use windows_sys::Win32::Foundation;

    /// The device failed.
    pub const IO: i32 = Foundation::ERROR_IO_DEVICE.cast_signed();
    /// There is no such device.
    pub const NO_DEVICE: i32 = Foundation::ERROR_DEV_NOT_EXIST.cast_signed();
    /// A range outside of the buffers.
    pub const BAD_BUFFER: i32 = Foundation::ERROR_NOACCESS.cast_signed();
    /// A range that no target can have.
    pub const INVALID: i32 = Foundation::ERROR_INVALID_PARAMETER.cast_signed();
    /// The target has no such operation.
    pub const UNSUPPORTED: i32 = Foundation::ERROR_NOT_SUPPORTED.cast_signed();
    /// The target is not open for writing.
    #[cfg(test)]
    pub const NOT_WRITABLE: i32 = Foundation::ERROR_ACCESS_DENIED.cast_signed();
}

/// Bytes transferred, or the number of the error.
pub type Transferred = Result<usize, i32>;

/// The number of the error of the call before.
fn last_error() -> i32 {
    std::io::Error::last_os_error()
        .raw_os_error()
        .unwrap_or(code::IO)
}
