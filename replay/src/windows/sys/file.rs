//! Open targets, and operations on them that block.
//!
//! Every handle is for overlapped I/O, so that several threads can use one at once: on a
//! synchronous handle the system lets one operation run at a time. A blocking operation is an
//! overlapped one that is waited for.

use std::fs::OpenOptions;
use std::io;
use std::mem::zeroed;
use std::os::windows::ffi::OsStrExt;
use std::os::windows::fs::OpenOptionsExt;
use std::os::windows::io::{AsHandle, AsRawHandle, BorrowedHandle, FromRawHandle, OwnedHandle};
use std::path::{Path, PathBuf};

use windows_sys::Win32::Foundation::{
    ERROR_CALL_NOT_IMPLEMENTED, ERROR_HANDLE_EOF, ERROR_INVALID_FUNCTION, ERROR_IO_PENDING,
    GENERIC_READ, GENERIC_WRITE, HANDLE,
};
use windows_sys::Win32::Storage::FileSystem::{
    BY_HANDLE_FILE_INFORMATION, DELETE, FILE_END_OF_FILE_INFO, FILE_FLAG_DELETE_ON_CLOSE,
    FILE_FLAG_NO_BUFFERING, FILE_FLAG_OVERLAPPED, FILE_FLAG_WRITE_THROUGH,
    FILE_INFO_BY_HANDLE_CLASS, FILE_SHARE_DELETE, FILE_SHARE_READ, FILE_SHARE_WRITE,
    FILE_STANDARD_INFO, FILE_STORAGE_INFO, FILE_TYPE_CHAR, FILE_TYPE_DISK, FileEndOfFileInfo,
    FileStandardInfo, FileStorageInfo, FlushFileBuffers, GetDiskFreeSpaceExW,
    GetFileInformationByHandle, GetFileInformationByHandleEx, GetFileType,
    GetVolumeInformationByHandleW, ReadFile, SetFileInformationByHandle, WriteFile,
};
use windows_sys::Win32::System::IO::{DeviceIoControl, GetOverlappedResult, OVERLAPPED};
use windows_sys::Win32::System::Ioctl::{
    DEVICE_DATA_SET_RANGE, DEVICE_MANAGE_DATA_SET_ATTRIBUTES, FILE_LEVEL_TRIM,
    FILE_LEVEL_TRIM_RANGE, FILE_ZERO_DATA_INFORMATION, FSCTL_FILE_LEVEL_TRIM, FSCTL_SET_ZERO_DATA,
    IOCTL_STORAGE_MANAGE_DATA_SET_ATTRIBUTES,
};
use windows_sys::Win32::System::Threading::CreateEventW;

use super::memory::Piece;
use super::{Transferred, code, last_error};

/// `DeviceDsmAction_Trim` of winioctl.h.
const TRIM: u32 = 1;

/// How a target is opened, once and again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Opening {
    /// For writing too.
    pub write: bool,
    /// Past the system's cache.
    pub direct: bool,
    /// A new file, which is deleted when its last handle is closed.
    pub temporary: bool,
}

/// An open target.
#[derive(Debug)]
pub struct File {
    handle: OwnedHandle,
    /// Writes through it are durable on completion. Absent where nothing is written.
    durable: Option<OwnedHandle>,
    path: PathBuf,
    opening: Opening,
    /// Locked volumes of the disk; a lock ends with its handle.
    claims: Vec<OwnedHandle>,
}

impl File {
    /// Opens the target once more: a handle belongs to one completion port for good. Nobody can
    /// have put another file in its place, since this one shares neither deleting nor renaming, or
    /// has a name of its own.
    ///
    /// # Errors
    /// The system's.
    pub fn reopen(&self, durable: bool) -> io::Result<OwnedHandle> {
        open_handle(&self.path, self.opening, false, durable)
    }

    /// Whether it is open for writing.
    pub fn writable(&self) -> bool {
        self.opening.write
    }

    /// Keeps volumes locked as long as this is open.
    pub fn keep(&mut self, claims: Vec<OwnedHandle>) {
        self.claims = claims;
    }
}

impl AsHandle for File {
    fn as_handle(&self) -> BorrowedHandle<'_> {
        self.handle.as_handle()
    }
}

/// Opens a target.
///
/// # Errors
/// The system's.
pub fn open(path: &Path, opening: Opening) -> io::Result<File> {
    // The current directory may change; a device's name is absolute.
    let path = std::path::absolute(path)?;
    let handle = open_handle(&path, opening, opening.temporary, false)?;
    let durable = opening
        .write
        .then(|| open_handle(&path, opening, false, true))
        .transpose()?;
    Ok(File {
        handle,
        durable,
        path,
        opening,
        claims: Vec::new(),
    })
}

fn open_handle(
    path: &Path,
    opening: Opening,
    create: bool,
    durable: bool,
) -> io::Result<OwnedHandle> {
    let flag = |wanted: bool, flag: u32| if wanted { flag } else { 0 };
    let access = GENERIC_READ | flag(opening.write, GENERIC_WRITE) | flag(create, DELETE);
    let share = FILE_SHARE_READ | FILE_SHARE_WRITE | flag(opening.temporary, FILE_SHARE_DELETE);
    let flags = FILE_FLAG_OVERLAPPED
        | flag(opening.direct, FILE_FLAG_NO_BUFFERING)
        | flag(durable, FILE_FLAG_WRITE_THROUGH)
        | flag(create, FILE_FLAG_DELETE_ON_CLOSE);
    let mut options = OpenOptions::new();
    options
        .read(true)
        .write(opening.write)
        .create_new(create)
        .access_mode(access)
        .share_mode(share)
        .custom_flags(flags);
    options.open(path).map(OwnedHandle::from)
}

/// Reads from an offset into a buffer; 0 bytes at the end.
pub fn read_at(file: &File, buffer: Piece<'_>, offset: u64) -> Transferred {
    let length = u32::try_from(buffer.len()).map_err(|_| code::INVALID)?;
    waited(file.as_handle(), offset, |handle, overlapped| {
        // SAFETY: a piece points to that many writable bytes, which live as long as it does and to
        // which no reference exists; the operation is over before `waited` returns.
        unsafe {
            ReadFile(
                handle,
                buffer.pointer(),
                length,
                std::ptr::null_mut(),
                overlapped,
            )
        }
    })
}

/// Writes a buffer at an offset; durable on return if asked.
pub fn write_at(file: &File, buffer: Piece<'_>, offset: u64, durable: bool) -> Transferred {
    let length = u32::try_from(buffer.len()).map_err(|_| code::INVALID)?;
    let through = file.durable.as_ref().filter(|_| durable);
    let handle = through.map_or(file.as_handle(), AsHandle::as_handle);
    waited(handle, offset, |handle, overlapped| {
        // SAFETY: as above; the system only reads.
        unsafe {
            WriteFile(
                handle,
                buffer.pointer(),
                length,
                std::ptr::null_mut(),
                overlapped,
            )
        }
    })
}

/// Makes completed writes durable.
pub fn flush(file: &File) -> Result<(), i32> {
    // SAFETY: the handle is open as long as the file.
    match unsafe { FlushFileBuffers(file.handle.as_raw_handle()) } {
        0 => Err(last_error()),
        _ => Ok(()),
    }
}

/// A data set command with one range, as the system wants it: the ranges behind the header.
#[repr(C)]
struct Trim {
    header: DEVICE_MANAGE_DATA_SET_ATTRIBUTES,
    range: DEVICE_DATA_SET_RANGE,
}

/// Tells a disk that a range is no longer in use.
pub fn discard_blocks(disk: &File, offset: u64, length: u64) -> Result<(), i32> {
    let size = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX);
    let command = Trim {
        header: DEVICE_MANAGE_DATA_SET_ATTRIBUTES {
            Size: size(size_of::<DEVICE_MANAGE_DATA_SET_ATTRIBUTES>()),
            Action: TRIM,
            DataSetRangesOffset: size(std::mem::offset_of!(Trim, range)),
            DataSetRangesLength: size(size_of::<DEVICE_DATA_SET_RANGE>()),
            ..DEVICE_MANAGE_DATA_SET_ATTRIBUTES::default()
        },
        range: DEVICE_DATA_SET_RANGE {
            StartingOffset: i64::try_from(offset).map_err(|_| code::INVALID)?,
            LengthInBytes: length,
        },
    };
    // SAFETY: `Trim` is plain old data.
    unsafe { command_with(disk, IOCTL_STORAGE_MANAGE_DATA_SET_ATTRIBUTES, &command) }
}

/// Tells the device below a file that a range is no longer in use.
pub fn discard_in_file(file: &File, offset: u64, length: u64) -> Result<(), i32> {
    let command = FILE_LEVEL_TRIM {
        Key: 0,
        NumRanges: 1,
        Ranges: [FILE_LEVEL_TRIM_RANGE {
            Offset: offset,
            Length: length,
        }],
    };
    writable(file)?;
    // SAFETY: the structure is plain old data.
    unsafe { command_with(file, FSCTL_FILE_LEVEL_TRIM, &command) }
}

/// Zeroes a range of a file.
pub fn write_zeroes(file: &File, offset: u64, length: u64) -> Result<(), i32> {
    let end = offset.checked_add(length).ok_or(code::INVALID)?;
    let command = FILE_ZERO_DATA_INFORMATION {
        FileOffset: i64::try_from(offset).map_err(|_| code::INVALID)?,
        BeyondFinalZero: i64::try_from(end).map_err(|_| code::INVALID)?,
    };
    writable(file)?;
    // SAFETY: the structure is plain old data.
    unsafe { command_with(file, FSCTL_SET_ZERO_DATA, &command) }
}

/// What changes data is refused on a handle for reading, also where a file system forgets to look.
fn writable(file: &File) -> Result<(), i32> {
    let denied = windows_sys::Win32::Foundation::ERROR_ACCESS_DENIED.cast_signed();
    file.writable().then_some(()).ok_or(denied)
}

/// # Safety
/// `T` must have no padding and be what the system wants for `control`.
unsafe fn command_with<T>(file: &File, control: u32, command: &T) -> Result<(), i32> {
    let size = u32::try_from(size_of::<T>()).map_err(|_| code::INVALID)?;
    let done = waited(file.as_handle(), 0, |handle, overlapped| {
        // SAFETY: `command` is `size` bytes that live until `waited` returns; there is no output.
        unsafe {
            DeviceIoControl(
                handle,
                control,
                std::ptr::from_ref(command).cast(),
                size,
                std::ptr::null_mut(),
                0,
                std::ptr::null_mut(),
                overlapped,
            )
        }
    });
    done.map(|_| ()).map_err(unsupported)
}

/// Asks a device, file or volume; how many bytes of the answer it has filled.
///
/// # Errors
/// The number of the system's error.
pub(super) fn ask(
    handle: BorrowedHandle<'_>,
    control: u32,
    question: &[u8],
    answer: &mut [u8],
) -> Transferred {
    let size = |bytes: &[u8]| u32::try_from(bytes.len()).map_err(|_| code::INVALID);
    let (question_len, answer_len) = (size(question)?, size(answer)?);
    waited(handle, 0, |handle, overlapped| {
        // SAFETY: both slices live until `waited` returns, and nobody else uses `answer`.
        unsafe {
            DeviceIoControl(
                handle,
                control,
                question.as_ptr().cast(),
                question_len,
                answer.as_mut_ptr().cast(),
                answer_len,
                std::ptr::null_mut(),
                overlapped,
            )
        }
    })
    .map_err(unsupported)
}

/// The ways in which drivers and file systems say that they do not know an operation.
fn unsupported(error: i32) -> i32 {
    match error.cast_unsigned() {
        ERROR_INVALID_FUNCTION | ERROR_CALL_NOT_IMPLEMENTED => code::UNSUPPORTED,
        _ => error,
    }
}

/// Starts an overlapped operation and waits for its end.
fn waited(
    handle: BorrowedHandle<'_>,
    offset: u64,
    start: impl FnOnce(HANDLE, *mut OVERLAPPED) -> i32,
) -> Transferred {
    let event = new_event()?;
    let mut overlapped = overlapped_at(offset)?;
    overlapped.hEvent = event.as_raw_handle();
    let started = start(handle.as_raw_handle(), &raw mut overlapped);
    if started == 0 {
        let error = last_error();
        if error.cast_unsigned() != ERROR_IO_PENDING {
            return end_of_file(error);
        }
    }
    let mut transferred = 0;
    // SAFETY: the operation was started on this handle with this structure, which has not moved.
    let done = unsafe {
        GetOverlappedResult(
            handle.as_raw_handle(),
            &raw const overlapped,
            &raw mut transferred,
            1,
        )
    };
    if done == 0 {
        return end_of_file(last_error());
    }
    usize::try_from(transferred).map_err(|_| code::INVALID)
}

/// Reading behind the end is an error here, and 0 bytes elsewhere.
pub(super) fn end_of_file(error: i32) -> Transferred {
    match error.cast_unsigned() {
        ERROR_HANDLE_EOF => Ok(0),
        _ => Err(error),
    }
}

/// An operation at an offset. Beyond 2^63 the system has other meanings for it.
pub(super) fn overlapped_at(offset: u64) -> Result<OVERLAPPED, i32> {
    if i64::try_from(offset).is_err() {
        return Err(code::INVALID);
    }
    let mut overlapped = OVERLAPPED::default();
    // The union's other member is a pointer, which is not used.
    overlapped.Anonymous.Anonymous.Offset = (offset & u64::from(u32::MAX)) as u32;
    overlapped.Anonymous.Anonymous.OffsetHigh = (offset >> 32) as u32;
    Ok(overlapped)
}

fn new_event() -> Result<OwnedHandle, i32> {
    // SAFETY: no attributes, no name: a new event, reset by hand.
    let event = unsafe { CreateEventW(std::ptr::null(), 1, 0, std::ptr::null()) };
    if event.is_null() {
        return Err(last_error());
    }
    // SAFETY: the handle is new and nobody else's.
    Ok(unsafe { OwnedHandle::from_raw_handle(event) })
}

/// What the system says of an open file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileFacts {
    /// `disk`, `character` or `pipe`.
    pub kind: &'static str,
    /// Attributes, as of `GetFileAttributes`.
    pub attributes: u32,
    /// Volume and file number, which no other file has.
    pub identity: (u32, u64),
    /// Length.
    pub size_bytes: u64,
    /// Bytes allocated for it.
    pub allocated_bytes: u64,
    /// Logical and physical sector of what it lies on, where known.
    pub sectors: Option<(u32, u32)>,
    /// Name of its filesystem.
    pub filesystem: Option<String>,
}

/// Asks for all of it.
///
/// # Errors
/// When the system does not even know its length.
pub fn file_facts(file: &File) -> io::Result<FileFacts> {
    let handle = file.handle.as_raw_handle();
    // SAFETY: the handle is open.
    let kind = match unsafe { GetFileType(handle) } {
        FILE_TYPE_DISK => "disk",
        FILE_TYPE_CHAR => "character",
        _ => "pipe",
    };
    if kind != "disk" {
        return Ok(FileFacts {
            kind,
            ..FileFacts::default()
        });
    }
    let mut info = BY_HANDLE_FILE_INFORMATION::default();
    // SAFETY: the pointer is to a whole structure.
    if unsafe { GetFileInformationByHandle(handle, &raw mut info) } == 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: each structure is what its class fills.
    let standard: Option<FILE_STANDARD_INFO> = unsafe { information(file, FileStandardInfo) };
    // SAFETY: as above.
    let storage: Option<FILE_STORAGE_INFO> = unsafe { information(file, FileStorageInfo) };
    let wide = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
    let size_bytes = wide(info.nFileSizeHigh, info.nFileSizeLow);
    Ok(FileFacts {
        kind,
        attributes: info.dwFileAttributes,
        identity: (
            info.dwVolumeSerialNumber,
            wide(info.nFileIndexHigh, info.nFileIndexLow),
        ),
        size_bytes,
        allocated_bytes: standard.map_or(size_bytes, |standard| {
            u64::try_from(standard.AllocationSize).unwrap_or(0)
        }),
        sectors: storage.map(|storage| {
            (
                storage.LogicalBytesPerSector,
                storage.PhysicalBytesPerSectorForPerformance,
            )
        }),
        filesystem: filesystem(file),
    })
}

/// # Safety
/// `T` must be the structure of `class`, for which all zeros is a value.
unsafe fn information<T>(file: &File, class: FILE_INFO_BY_HANDLE_CLASS) -> Option<T> {
    // SAFETY: by the caller.
    let mut value: T = unsafe { zeroed() };
    let size = u32::try_from(size_of::<T>()).ok()?;
    // SAFETY: the pointer is to `size` writable bytes.
    let done = unsafe {
        GetFileInformationByHandleEx(
            file.handle.as_raw_handle(),
            class,
            (&raw mut value).cast(),
            size,
        )
    };
    (done != 0).then_some(value)
}

fn filesystem(file: &File) -> Option<String> {
    let mut name = [0u16; 64];
    // SAFETY: the buffer is as long as said; what is not asked for is null.
    let done = unsafe {
        GetVolumeInformationByHandleW(
            file.handle.as_raw_handle(),
            std::ptr::null_mut(),
            0,
            std::ptr::null_mut(),
            std::ptr::null_mut(),
            std::ptr::null_mut(),
            name.as_mut_ptr(),
            64,
        )
    };
    (done != 0)
        .then(|| text(&name))
        .filter(|name| !name.is_empty())
}

/// Text up to the first zero.
pub(super) fn text(wide: &[u16]) -> String {
    let end = wide.iter().position(|&unit| unit == 0);
    String::from_utf16_lossy(&wide[..end.unwrap_or(wide.len())])
}

/// With a zero at its end.
pub(super) fn wide(text: &std::ffi::OsStr) -> Vec<u16> {
    text.encode_wide().chain([0]).collect()
}

/// Sets a file's length, and allocates it.
///
/// # Errors
/// When there is no room.
pub fn set_len(file: &File, bytes: u64) -> io::Result<()> {
    let info = FILE_END_OF_FILE_INFO {
        EndOfFile: i64::try_from(bytes).map_err(|_| io::ErrorKind::InvalidInput)?,
    };
    let size = u32::try_from(size_of::<FILE_END_OF_FILE_INFO>()).unwrap_or(u32::MAX);
    // SAFETY: the structure is that of the class.
    let done = unsafe {
        SetFileInformationByHandle(
            file.handle.as_raw_handle(),
            FileEndOfFileInfo,
            (&raw const info).cast(),
            size,
        )
    };
    match done {
        0 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Bytes that the user may still use where a directory lies.
///
/// # Errors
/// When there is no such directory.
pub fn free_bytes(directory: &Path) -> io::Result<u64> {
    let name = wide(directory.as_os_str());
    let mut free = 0;
    // SAFETY: the name ends with a zero; the pointer is to a u64.
    let done = unsafe {
        GetDiskFreeSpaceExW(
            name.as_ptr(),
            &raw mut free,
            std::ptr::null_mut(),
            std::ptr::null_mut(),
        )
    };
    match done {
        0 => Err(io::Error::last_os_error()),
        _ => Ok(free),
    }
}
