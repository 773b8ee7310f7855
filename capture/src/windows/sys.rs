//! Calls of Windows: event sessions, facts about disks, rights and free space.

use std::ffi::c_void;
use std::fs::{File, OpenOptions};
use std::io;
use std::mem;
use std::os::windows::ffi::OsStrExt;
use std::os::windows::fs::OpenOptionsExt;
use std::os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle};
use std::path::Path;
use std::ptr;

use windows_sys::Win32::Security::{
    GetTokenInformation, TOKEN_ELEVATION, TOKEN_QUERY, TokenElevation,
};
use windows_sys::Win32::Storage::FileSystem::GetDiskFreeSpaceExW;
use windows_sys::Win32::System::Diagnostics::Etw::{
    CONTROLTRACE_HANDLE, ControlTraceW, EVENT_TRACE_CONTROL, EVENT_TRACE_CONTROL_FLUSH,
    EVENT_TRACE_CONTROL_QUERY, EVENT_TRACE_CONTROL_STOP, EVENT_TRACE_CONTROL_UPDATE,
    EVENT_TRACE_FILE_MODE_SEQUENTIAL, EVENT_TRACE_FLAG_DISK_IO, EVENT_TRACE_FLAG_DISK_IO_INIT,
    EVENT_TRACE_FLAG_PROCESS, EVENT_TRACE_FLAG_THREAD, EVENT_TRACE_PROPERTIES,
    EVENT_TRACE_SYSTEM_LOGGER_MODE, QueryAllTracesW, StartTraceW, SystemTraceControlGuid,
    WNODE_FLAG_TRACED_GUID,
};
use windows_sys::Win32::System::IO::DeviceIoControl;
use windows_sys::Win32::System::Ioctl::{
    DISK_GEOMETRY_EX, IOCTL_DISK_GET_DRIVE_GEOMETRY_EX, IOCTL_STORAGE_GET_DEVICE_NUMBER,
    IOCTL_STORAGE_QUERY_PROPERTY, PropertyStandardQuery, STORAGE_DEVICE_DESCRIPTOR,
    STORAGE_DEVICE_NUMBER, STORAGE_PROPERTY_QUERY, StorageDeviceProperty,
};
use windows_sys::Win32::System::Threading::{GetCurrentProcess, OpenProcessToken};

use crate::etw::Lost;

/// Size of the session's buffers.
const BUFFER_KIB: u32 = 256;
/// Memory of the session: at most 64 MiB.
const MAX_BUFFERS: u32 = 256;
/// The session ends its log file there: what a killed recorder leaves behind at most.
const MAX_LOG_MIB: u32 = 256;
/// Buffers are written after this many seconds, full or not.
const FLUSH_SECONDS: u32 = 1;
/// Times of events come from QueryPerformanceCounter.
const CLOCK_QPC: u32 = 1;
/// Longest name of a session or log file, with its NUL.
const NAME_UNITS: usize = 1024;
/// Most sessions that Windows runs at a time.
const MAX_SESSIONS: usize = 64;

/// `EVENT_TRACE_PROPERTIES` and the room for names behind it.
#[repr(C)]
struct Properties {
    base: EVENT_TRACE_PROPERTIES,
    session: [u16; NAME_UNITS],
    log: [u16; NAME_UNITS],
}

impl Properties {
    fn new() -> Box<Properties> {
        let mut properties = Box::new(Properties {
            base: EVENT_TRACE_PROPERTIES::default(),
            session: [0; NAME_UNITS],
            log: [0; NAME_UNITS],
        });
        let base = &mut properties.base;
        base.Wnode.BufferSize = mem::size_of::<Properties>() as u32;
        base.Wnode.Flags = WNODE_FLAG_TRACED_GUID;
        base.LoggerNameOffset = mem::offset_of!(Properties, session) as u32;
        base.LogFileNameOffset = mem::offset_of!(Properties, log) as u32;
        properties
    }

    fn set_log(&mut self, log: &Path) -> io::Result<()> {
        let name = wide(log);
        let room = self.log.get_mut(..name.len()).ok_or_else(|| {
            let text = format!("{}: longer than {NAME_UNITS} characters", log.display());
            io::Error::new(io::ErrorKind::InvalidInput, text)
        })?;
        room.copy_from_slice(&name);
        Ok(())
    }
}

/// A running event session. Dropping it ends it.
#[derive(Debug)]
pub struct Running {
    handle: u64,
    ended: bool,
}

/// Starts a session that writes disk, process and thread events to `log`: the kernel's only one if
/// `classic`, else one of its own.
pub fn start_session(name: &str, log: &Path, classic: bool) -> io::Result<Running> {
    let mut properties = Properties::new();
    properties.set_log(log)?;
    let base = &mut properties.base;
    base.Wnode.ClientContext = CLOCK_QPC;
    base.BufferSize = BUFFER_KIB;
    base.MaximumBuffers = MAX_BUFFERS;
    base.MaximumFileSize = MAX_LOG_MIB;
    base.FlushTimer = FLUSH_SECONDS;
    base.LogFileMode = EVENT_TRACE_FILE_MODE_SEQUENTIAL;
    base.EnableFlags = EVENT_TRACE_FLAG_DISK_IO
        | EVENT_TRACE_FLAG_DISK_IO_INIT
        | EVENT_TRACE_FLAG_PROCESS
        | EVENT_TRACE_FLAG_THREAD;
    if classic {
        base.Wnode.Guid = SystemTraceControlGuid;
    } else {
        base.LogFileMode |= EVENT_TRACE_SYSTEM_LOGGER_MODE;
    }
    let name = wide(Path::new(name));
    let mut handle = CONTROLTRACE_HANDLE { Value: 0 };
    // SAFETY: the handle is written to a local; the name ends with NUL; the properties are as large as
    // they say, names included, and live through the call.
    let status = unsafe { StartTraceW(&mut handle, name.as_ptr(), &mut properties.base) };
    check(status)?;
    Ok(Running {
        handle: handle.Value,
        ended: false,
    })
}

impl Running {
    /// Goes on in another log file; the one before is whole then.
    pub fn switch_to(&self, log: &Path) -> io::Result<()> {
        self.control(EVENT_TRACE_CONTROL_FLUSH, &mut Properties::new())?;
        let mut properties = Properties::new();
        properties.set_log(log)?;
        self.control(EVENT_TRACE_CONTROL_UPDATE, &mut properties)
    }

    /// What was lost since it began.
    pub fn lost(&self) -> io::Result<Lost> {
        let mut properties = Properties::new();
        self.control(EVENT_TRACE_CONTROL_QUERY, &mut properties)?;
        Ok(Lost {
            events: u64::from(properties.base.EventsLost),
            buffers: u64::from(properties.base.LogBuffersLost),
        })
    }

    /// Ends it; the log file is whole then.
    pub fn stop(mut self) -> io::Result<()> {
        self.ended = true;
        self.control(EVENT_TRACE_CONTROL_STOP, &mut Properties::new())
    }

    fn control(&self, code: EVENT_TRACE_CONTROL, properties: &mut Properties) -> io::Result<()> {
        let handle = CONTROLTRACE_HANDLE { Value: self.handle };
        // SAFETY: without a name the handle tells the session; the properties are as large as they
        // say and live through the call.
        check(unsafe { ControlTraceW(handle, ptr::null(), &mut properties.base, code) })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.ended {
            // Nothing can be done if the system refuses: somebody else has ended it.
            let _ = self.control(EVENT_TRACE_CONTROL_STOP, &mut Properties::new());
        }
    }
}

/// Names of the sessions that run.
pub fn sessions() -> io::Result<Vec<String>> {
    let mut all: Vec<Box<Properties>> = (0..MAX_SESSIONS).map(|_| Properties::new()).collect();
    let mut pointers: Vec<*mut EVENT_TRACE_PROPERTIES> = all
        .iter_mut()
        .map(|properties| ptr::from_mut(&mut **properties).cast())
        .collect();
    let mut count = 0;
    // SAFETY: each pointer is to properties that are as large as they say; all live through the call.
    let status = unsafe { QueryAllTracesW(pointers.as_mut_ptr(), MAX_SESSIONS as u32, &mut count) };
    check(status)?;
    let named = all.iter().take(count as usize);
    Ok(named.map(|properties| text(&properties.session)).collect())
}

/// What Windows says of a disk.
#[derive(Clone, Debug)]
pub struct DiskFacts {
    pub bytes: u64,
    pub sector_bytes: u32,
    pub model: Option<String>,
}

/// Facts about a physical disk. Needs no rights to its content.
pub fn disk_facts(number: u32) -> io::Result<DiskFacts> {
    let disk = open(&format!(r"\\.\PhysicalDrive{number}"))?;
    // SAFETY: all bits zero is a valid value of these numbers.
    let mut geometry: DISK_GEOMETRY_EX = unsafe { mem::zeroed() };
    // SAFETY: the control code answers with this structure, which is plain numbers.
    unsafe { ask(&disk, IOCTL_DISK_GET_DRIVE_GEOMETRY_EX, &[], &mut geometry)? };
    Ok(DiskFacts {
        bytes: u64::try_from(geometry.DiskSize).unwrap_or(0),
        sector_bytes: geometry.Geometry.BytesPerSector,
        model: model(&disk),
    })
}

/// Number of the physical disk that a volume is on.
pub fn disk_of_volume(letter: char) -> io::Result<u32> {
    let volume = open(&format!(r"\\.\{letter}:"))?;
    let mut number = STORAGE_DEVICE_NUMBER::default();
    // SAFETY: the control code answers with this structure, which is plain numbers.
    unsafe { ask(&volume, IOCTL_STORAGE_GET_DEVICE_NUMBER, &[], &mut number)? };
    Ok(number.DeviceNumber)
}

/// Vendor's name of a disk.
fn model(disk: &File) -> Option<String> {
    const ANSWER_BYTES: usize = 1024;
    let query = STORAGE_PROPERTY_QUERY {
        PropertyId: StorageDeviceProperty,
        QueryType: PropertyStandardQuery,
        AdditionalParameters: [0],
    };
    // SAFETY: the query is plain numbers, initialised above; its padding is not read as a value.
    let query = unsafe {
        std::slice::from_raw_parts(
            ptr::from_ref(&query).cast::<u8>(),
            mem::offset_of!(STORAGE_PROPERTY_QUERY, AdditionalParameters) + 1,
        )
    };
    let mut answer = [0u8; ANSWER_BYTES];
    // SAFETY: any bytes are a valid answer.
    let filled = unsafe { ask(disk, IOCTL_STORAGE_QUERY_PROPERTY, query, &mut answer).ok()? };
    let answer = answer.get(..filled)?;
    let field = |at: usize| -> Option<String> {
        let offset = u32::from_le_bytes(*answer.get(at..)?.first_chunk()?);
        let bytes = answer.get(usize::try_from(offset).ok().filter(|at| *at > 0)?..)?;
        let end = bytes.iter().position(|byte| *byte == 0)?;
        Some(String::from_utf8_lossy(&bytes[..end]).trim().to_owned())
    };
    let vendor = field(mem::offset_of!(STORAGE_DEVICE_DESCRIPTOR, VendorIdOffset));
    let product = field(mem::offset_of!(STORAGE_DEVICE_DESCRIPTOR, ProductIdOffset));
    let name = [vendor, product].into_iter().flatten().collect::<Vec<_>>();
    let name = name.join(" ").trim().to_owned();
    (!name.is_empty()).then_some(name)
}

/// Bytes that the user may still write to the volume of a folder.
pub fn free_bytes(folder: &Path) -> io::Result<u64> {
    let folder = wide(folder);
    let mut free = 0;
    // SAFETY: the name ends with NUL, and the number is written to a local.
    let done = unsafe {
        GetDiskFreeSpaceExW(folder.as_ptr(), &mut free, ptr::null_mut(), ptr::null_mut())
    };
    if done == 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(free)
}

/// Whether this process has the rights of an administrator.
pub fn is_elevated() -> io::Result<bool> {
    let mut token = ptr::null_mut();
    // SAFETY: the handle of the own process needs no closing; the token's is written to a local.
    if unsafe { OpenProcessToken(GetCurrentProcess(), TOKEN_QUERY, &mut token) } == 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call succeeded, so that the handle is open, and ours.
    let token = unsafe { OwnedHandle::from_raw_handle(token) };
    let mut elevation = TOKEN_ELEVATION::default();
    let mut filled = 0;
    // SAFETY: this class answers with this structure, whose size is given.
    let done = unsafe {
        GetTokenInformation(
            token.as_raw_handle(),
            TokenElevation,
            ptr::from_mut(&mut elevation).cast::<c_void>(),
            mem::size_of::<TOKEN_ELEVATION>() as u32,
            &mut filled,
        )
    };
    if done == 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(elevation.TokenIsElevated != 0)
}

/// Name of this computer.
pub fn computer_name() -> Option<String> {
    std::env::var("COMPUTERNAME").ok()
}

/// Opens a device without access to its content.
fn open(path: &str) -> io::Result<File> {
    const SHARE_ALL: u32 = 7;
    OpenOptions::new()
        .access_mode(0)
        .share_mode(SHARE_ALL)
        .open(path)
}

/// Sends a control code; how many bytes were answered.
///
/// # Safety
/// Any bytes that the code answers must be a valid `T`.
unsafe fn ask<T>(device: &File, code: u32, question: &[u8], answer: &mut T) -> io::Result<usize> {
    let mut filled = 0;
    let question_bytes = u32::try_from(question.len()).map_err(io::Error::other)?;
    let answer_bytes = u32::try_from(mem::size_of::<T>()).map_err(io::Error::other)?;
    // SAFETY: both buffers are as large as is said and live through the call, which is not
    // overlapped.
    let done = unsafe {
        DeviceIoControl(
            device.as_raw_handle(),
            code,
            question.as_ptr().cast(),
            question_bytes,
            ptr::from_mut(answer).cast(),
            answer_bytes,
            &mut filled,
            ptr::null_mut(),
        )
    };
    if done == 0 {
        return Err(io::Error::last_os_error());
    }
    usize::try_from(filled).map_err(io::Error::other)
}

fn check(status: u32) -> io::Result<()> {
    match status {
        0 => Ok(()),
        status => Err(io::Error::from_raw_os_error(status as i32)),
    }
}

fn wide(path: &Path) -> Vec<u16> {
    path.as_os_str().encode_wide().chain([0]).collect()
}

fn text(units: &[u16]) -> String {
    let end = units.iter().position(|unit| *unit == 0);
    String::from_utf16_lossy(&units[..end.unwrap_or(units.len())])
}
