//! The disks to record: by number, by the path of the disk, or by the letter of a volume on it.

use std::io;
use std::path::{Path, PathBuf};

use iotape_formats::DeviceIndex;
use iotape_formats::tape::{Device, Layer};

use super::sys;
use crate::CaptureError;
use crate::etw::{Disk, Named};

/// Most disks of one recording.
const MAX_DISKS: usize = 64;

/// The disks, each once, in the order in which they were named.
pub fn find(names: &[PathBuf]) -> Result<Vec<Disk>, CaptureError> {
    if names.is_empty() {
        return Err(CaptureError::NoDevice);
    }
    if names.len() > MAX_DISKS {
        return Err(CaptureError::TooManyDevices {
            devices: names.len(),
            most: MAX_DISKS,
        });
    }
    let mut disks: Vec<Disk> = Vec::new();
    for name in names {
        let number = number_of(name)?;
        if disks.iter().all(|disk| disk.number != number) {
            let index = DeviceIndex(disks.len() as u16);
            disks.push(describe(number, index, name)?);
        }
    }
    Ok(disks)
}

fn number_of(name: &Path) -> Result<u32, CaptureError> {
    let unknown = |source| CaptureError::UnknownDevice {
        path: name.to_owned(),
        source,
    };
    match name.to_str().and_then(Named::parse) {
        Some(Named::Disk(number)) => Ok(number),
        Some(Named::Volume(letter)) => sys::disk_of_volume(letter).map_err(unknown),
        None => Err(unknown(io::Error::new(
            io::ErrorKind::InvalidInput,
            "expected the number of a physical disk, such as 0, or a volume, such as C:",
        ))),
    }
}

fn describe(number: u32, index: DeviceIndex, name: &Path) -> Result<Disk, CaptureError> {
    let facts = sys::disk_facts(number).map_err(|source| CaptureError::UnknownDevice {
        path: name.to_owned(),
        source,
    })?;
    let device = Device {
        index,
        name: format!("PhysicalDrive{number}"),
        layer: Layer::Device,
        size_bytes: Some(facts.bytes),
        logical_sector_bytes: Some(facts.sector_bytes),
        model: facts.model,
        ..Device::default()
    };
    Ok(Disk { number, device })
}
