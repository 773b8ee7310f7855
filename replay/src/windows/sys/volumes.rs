//! The volumes of this machine, and claiming one.

use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::io;
use std::os::windows::fs::OpenOptionsExt;
use std::os::windows::io::{AsHandle, OwnedHandle};

use windows_sys::Win32::Foundation::{
    ERROR_FILE_NOT_FOUND, ERROR_MORE_DATA, ERROR_NO_MORE_FILES, ERROR_NOT_READY, HANDLE,
    INVALID_HANDLE_VALUE,
};
use windows_sys::Win32::Storage::FileSystem::{
    FILE_FLAG_OVERLAPPED, FILE_SHARE_READ, FILE_SHARE_WRITE, FindFirstVolumeW, FindNextVolumeW,
    FindVolumeClose, GetVolumeInformationW, GetVolumePathNamesForVolumeNameW,
    IOCTL_VOLUME_GET_VOLUME_DISK_EXTENTS,
};
use windows_sys::Win32::System::Ioctl::{FSCTL_DISMOUNT_VOLUME, FSCTL_LOCK_VOLUME};

use super::file::{ask, text, wide};
use super::{code, last_error};
use crate::target::Volume;

/// `\\?\Volume{…}\` and its zero; the system asks for 50.
const NAME_LEN: usize = 64;
/// A volume may span this many disks.
const MOST_EXTENTS: usize = 256;
/// ERROR_NO_MEDIA_IN_DRIVE, as an empty drive of removable media says.
const NO_MEDIA: u32 = 1112;

struct Search(HANDLE);

impl Drop for Search {
    fn drop(&mut self) {
        // SAFETY: the search was begun and is not used again.
        unsafe { FindVolumeClose(self.0) };
    }
}

/// All volumes with the disks that they lie on.
///
/// # Errors
/// When the volumes cannot be listed, or it cannot be told where one lies.
pub fn volumes() -> io::Result<Vec<Volume>> {
    let mut name = [0u16; NAME_LEN];
    let room = u32::try_from(NAME_LEN).unwrap_or(0);
    // SAFETY: the buffer is as long as said.
    let search = unsafe { FindFirstVolumeW(name.as_mut_ptr(), room) };
    if search == INVALID_HANDLE_VALUE {
        return match last_error().cast_unsigned() {
            ERROR_NO_MORE_FILES | ERROR_FILE_NOT_FOUND => Ok(Vec::new()),
            _ => Err(io::Error::last_os_error()),
        };
    }
    let search = Search(search);
    let mut volumes = Vec::new();
    loop {
        volumes.push(describe(text(&name))?);
        // SAFETY: as above.
        if unsafe { FindNextVolumeW(search.0, name.as_mut_ptr(), room) } == 0 {
            return match last_error() {
                error if error.cast_unsigned() == ERROR_NO_MORE_FILES => Ok(volumes),
                error => Err(io::Error::from_raw_os_error(error)),
            };
        }
    }
}

fn describe(name: String) -> io::Result<Volume> {
    Ok(Volume {
        disks: disks(&name)?,
        mount_points: mount_points(&name),
        filesystem: filesystem(&name),
        name,
    })
}

/// A volume is opened by its name without the backslash; with it, that is its root directory.
fn open_volume(name: &str, read: bool) -> io::Result<OwnedHandle> {
    let access = if read {
        windows_sys::Win32::Foundation::GENERIC_READ
    } else {
        0
    };
    let opened = OpenOptions::new()
        .access_mode(access)
        .share_mode(FILE_SHARE_READ | FILE_SHARE_WRITE)
        .custom_flags(FILE_FLAG_OVERLAPPED)
        .open(name.trim_end_matches('\\'));
    opened.map(OwnedHandle::from)
}

/// Numbers of the disks that a volume lies on; none for what is on no disk, such as a CD.
fn disks(name: &str) -> io::Result<Vec<u32>> {
    // VOLUME_DISK_EXTENTS: a count, and extents of 24 bytes from byte 8 on.
    let mut answer = vec![0; 8 + 24 * MOST_EXTENTS];
    let volume = match open_volume(name, false) {
        Ok(volume) => volume,
        Err(error) => return nowhere(error),
    };
    let asked = ask(
        volume.as_handle(),
        IOCTL_VOLUME_GET_VOLUME_DISK_EXTENTS,
        &[],
        &mut answer,
    );
    match asked {
        Ok(filled) => answer.truncate(filled),
        Err(error) if error.cast_unsigned() == ERROR_MORE_DATA => {}
        Err(error) => return nowhere(io::Error::from_raw_os_error(error)),
    }
    let extents = answer.get(8..).unwrap_or_default().chunks_exact(24);
    let number = |extent: &[u8]| extent.first_chunk().map(|bytes| u32::from_le_bytes(*bytes));
    let count = answer
        .first_chunk()
        .map_or(0, |bytes| u32::from_le_bytes(*bytes));
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    Ok(extents.take(count).filter_map(number).collect())
}

/// Whether an error means that a volume is on no disk.
fn nowhere(error: io::Error) -> io::Result<Vec<u32>> {
    match error.raw_os_error() {
        Some(code::UNSUPPORTED) => Ok(Vec::new()),
        Some(number)
            if [ERROR_NOT_READY, NO_MEDIA, ERROR_FILE_NOT_FOUND]
                .contains(&number.cast_unsigned()) =>
        {
            Ok(Vec::new())
        }
        _ => Err(error),
    }
}

fn mount_points(name: &str) -> Vec<String> {
    let name = wide(OsStr::new(name));
    let mut points = vec![0u16; 4096];
    let mut filled = 0;
    // SAFETY: the name ends with a zero; the buffer is as long as said.
    let done = unsafe {
        GetVolumePathNamesForVolumeNameW(name.as_ptr(), points.as_mut_ptr(), 4096, &raw mut filled)
    };
    if done == 0 {
        return Vec::new();
    }
    let points = points.split(|&unit| unit == 0).map(text);
    points.take_while(|point| !point.is_empty()).collect()
}

/// `None` for a volume without a filesystem that the system knows.
fn filesystem(name: &str) -> Option<String> {
    let name = wide(OsStr::new(name));
    let mut kind = [0u16; 64];
    // SAFETY: the name ends with a zero; what is not asked for is null.
    let done = unsafe {
        GetVolumeInformationW(
            name.as_ptr(),
            std::ptr::null_mut(),
            0,
            std::ptr::null_mut(),
            std::ptr::null_mut(),
            std::ptr::null_mut(),
            kind.as_mut_ptr(),
            64,
        )
    };
    (done != 0)
        .then(|| text(&kind))
        .filter(|kind| !kind.is_empty() && kind != "RAW")
}

/// Locks a volume for as long as the handle is open, which fails while anybody has something open
/// on it; and dismounts it, so that its disk can be written where it lies.
///
/// # Errors
/// The system's.
pub fn claim(name: &str, dismount: bool) -> io::Result<OwnedHandle> {
    let volume = open_volume(name, true)?;
    let tell = |control| {
        ask(volume.as_handle(), control, &[], &mut [])
            .map(|_| ())
            .map_err(io::Error::from_raw_os_error)
    };
    tell(FSCTL_LOCK_VOLUME)?;
    if dismount {
        tell(FSCTL_DISMOUNT_VOLUME)?;
    }
    Ok(volume)
}
