//! What the system says of a disk.

use std::io;
use std::os::windows::io::AsHandle;

use windows_sys::Win32::Foundation::ERROR_WRITE_PROTECT;
use windows_sys::Win32::System::Ioctl::{
    IOCTL_DISK_GET_DRIVE_GEOMETRY_EX, IOCTL_DISK_GET_LENGTH_INFO, IOCTL_DISK_IS_WRITABLE,
    IOCTL_STORAGE_QUERY_PROPERTY, PropertyStandardQuery, STORAGE_PROPERTY_ID,
    StorageAccessAlignmentProperty, StorageDeviceProperty, StorageDeviceTrimProperty,
    StorageDeviceWriteCacheProperty,
};

use super::file::{File, ask};

/// Facts of a disk; what the system does not say is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskFacts {
    /// Size.
    pub size_bytes: u64,
    /// Logical and physical sector.
    pub sectors: Option<(u32, u32)>,
    /// Vendor and product.
    pub model: Option<String>,
    /// Revision of the firmware.
    pub firmware: Option<String>,
    /// Whether it takes TRIM.
    pub trims: Option<bool>,
    /// Whether its write cache is on.
    pub write_cache: Option<bool>,
    /// Whether it is write-protected.
    pub read_only: bool,
}

/// Asks for all of it.
///
/// # Errors
/// When the system does not even know its size.
pub fn disk_facts(disk: &File) -> io::Result<DiskFacts> {
    // Layouts of winioctl.h; each structure begins with its version and its size.
    let geometry = query(disk, IOCTL_DISK_GET_DRIVE_GEOMETRY_EX, &[]).ok();
    let sector = geometry.as_deref().and_then(|bytes| u32_at(bytes, 20));
    let size_bytes = match query(disk, IOCTL_DISK_GET_LENGTH_INFO, &[]) {
        Ok(bytes) => u64_at(&bytes, 0),
        // DISK_GEOMETRY_EX, which rounds down to cylinders on some disks.
        Err(_) => geometry.as_deref().and_then(|bytes| u64_at(bytes, 24)),
    };
    let alignment = property(disk, StorageAccessAlignmentProperty);
    let physical = alignment.as_deref().and_then(|bytes| u32_at(bytes, 20));
    let logical = alignment.as_deref().and_then(|bytes| u32_at(bytes, 16));
    let descriptor = property(disk, StorageDeviceProperty);
    let text = |at| descriptor.as_deref().and_then(|bytes| text_at(bytes, at));
    let model: Vec<String> = [text(12), text(16)].into_iter().flatten().collect();
    let writable = query(disk, IOCTL_DISK_IS_WRITABLE, &[]);
    Ok(DiskFacts {
        size_bytes: size_bytes.ok_or(io::ErrorKind::Unsupported)?,
        sectors: logical
            .or(sector)
            .map(|logical| (logical, physical.unwrap_or(logical))),
        model: Some(model.join(" ")).filter(|model| !model.is_empty()),
        firmware: text(20),
        trims: property(disk, StorageDeviceTrimProperty)
            .and_then(|bytes| bytes.get(8).map(|&enabled| enabled != 0)),
        // WRITE_CACHE_ENABLE: 0 unknown, 1 off, 2 on.
        write_cache: property(disk, StorageDeviceWriteCacheProperty)
            .and_then(|bytes| u32_at(&bytes, 12))
            .and_then(|state| (state > 0).then_some(state == 2)),
        read_only: writable.is_err_and(|error| error.cast_unsigned() == ERROR_WRITE_PROTECT),
    })
}

fn query(disk: &File, control: u32, question: &[u8]) -> Result<Vec<u8>, i32> {
    let mut answer = vec![0; 1024];
    let filled = ask(disk.as_handle(), control, question, &mut answer)?;
    answer.truncate(filled);
    Ok(answer)
}

fn property(disk: &File, id: STORAGE_PROPERTY_ID) -> Option<Vec<u8>> {
    // STORAGE_PROPERTY_QUERY: the property, the kind of query, and room for parameters.
    let mut question = [0; 12];
    question[..4].copy_from_slice(&id.to_le_bytes());
    question[4..8].copy_from_slice(&PropertyStandardQuery.to_le_bytes());
    query(disk, IOCTL_STORAGE_QUERY_PROPERTY, &question).ok()
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at.checked_add(4)?)?;
    bytes.try_into().ok().map(u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(8)?)?;
    bytes.try_into().ok().map(u64::from_le_bytes)
}

/// The text whose offset stands at a place; 0 and all ones mean that there is none.
fn text_at(bytes: &[u8], at: usize) -> Option<String> {
    let start = usize::try_from(u32_at(bytes, at)?).ok()?;
    let text = bytes.get(start..).filter(|_| start != 0)?;
    let end = text.iter().position(|&byte| byte == 0)?;
    let text = String::from_utf8_lossy(&text[..end]).trim().to_owned();
    (!text.is_empty()).then_some(text)
}
