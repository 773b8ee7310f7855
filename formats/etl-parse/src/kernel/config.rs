//! Disks and partitions: `SystemConfig_V2_PhyDisk` and `SystemConfig_V2_LogDisk`, 568 and 112
//! bytes and more. The kernel tells them when a session ends.

use crate::bytes::{u8_at, u32_at, u64_at, utf16_at};
use crate::event::Event;
use crate::storport::ScsiAddress;

use super::hook;

/// Name of the traced host, from `SystemConfig_CPU`; `None` if the event is another or too short.
pub fn host_name(event: &Event<'_>) -> Option<String> {
    const NAME_AT: usize = 20;
    const NAME_END: usize = NAME_AT + 512;
    if event.hook()? != hook::CPU {
        return None;
    }
    let (name, _) = utf16_at(event.payload.get(..NAME_END)?, NAME_AT);
    (!name.is_empty()).then_some(name)
}

/// A physical disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PhyDisk {
    /// Its number: `\\.\PhysicalDrive0` and so on.
    pub disk: u32,
    /// Bytes of a sector.
    pub sector_bytes: u32,
    /// Sectors of a track.
    pub sectors_per_track: u32,
    /// Tracks of a cylinder.
    pub tracks_per_cylinder: u32,
    /// Whole cylinders: the disk is up to one larger.
    pub cylinders: u64,
    /// Where it is attached; `None` if its numbers are beyond 8 bits.
    pub address: Option<ScsiAddress>,
    /// Vendor and model.
    pub model: String,
    /// How many partitions it has.
    pub partitions: u32,
    /// Whether its write cache is on.
    pub write_cache: bool,
}

/// A partition with a drive letter or mount point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogDisk {
    /// Its first byte, from the start of the disk.
    pub start_offset: u64,
    /// Its bytes.
    pub bytes: u64,
    /// Number of the physical disk.
    pub disk: u32,
    /// Its letter, such as `C:`.
    pub letter: String,
}

impl PhyDisk {
    /// Reads a physical disk; `None` if the event is none or too short.
    pub fn parse(event: &Event<'_>) -> Option<PhyDisk> {
        const MODEL_AT: usize = 40;
        const MODEL_END: usize = 552;
        if event.hook()? != hook::PHY_DISK {
            return None;
        }
        let payload = event.payload;
        let (model, _) = utf16_at(payload.get(..MODEL_END)?, MODEL_AT);
        let number = |at| u8::try_from(u32_at(payload, at)?).ok();
        let address = || {
            Some(ScsiAddress {
                port: number(24)?,
                bus: number(28)?,
                target: number(32)?,
                lun: number(36)?,
            })
        };
        Some(PhyDisk {
            disk: u32_at(payload, 0)?,
            sector_bytes: u32_at(payload, 4)?,
            sectors_per_track: u32_at(payload, 8)?,
            tracks_per_cylinder: u32_at(payload, 12)?,
            cylinders: u64_at(payload, 16)?,
            address: address(),
            model: model.trim().to_owned(),
            partitions: u32_at(payload, MODEL_END)?,
            write_cache: u8_at(payload, MODEL_END + 4)? != 0,
        })
    }

    /// Bytes of the whole cylinders: the least that the disk holds. `None` if they are beyond 64
    /// bits.
    pub fn geometry_bytes(&self) -> Option<u64> {
        self.cylinders
            .checked_mul(u64::from(self.tracks_per_cylinder))?
            .checked_mul(u64::from(self.sectors_per_track))?
            .checked_mul(u64::from(self.sector_bytes))
    }
}

impl LogDisk {
    /// Reads a partition; `None` if the event is none or too short.
    pub fn parse(event: &Event<'_>) -> Option<LogDisk> {
        const LETTER_AT: usize = 28;
        const LETTER_END: usize = 36;
        if event.hook()? != hook::LOG_DISK {
            return None;
        }
        let payload = event.payload;
        let (letter, _) = utf16_at(payload.get(..LETTER_END)?, LETTER_AT);
        Some(LogDisk {
            start_offset: u64_at(payload, 0)?,
            bytes: u64_at(payload, 8)?,
            disk: u32_at(payload, 16)?,
            letter,
        })
    }
}
