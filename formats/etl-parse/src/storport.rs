//! Requests as the port driver of Windows sees them: the provider `Microsoft-Windows-StorPort`.
//!
//! A dispatch tells which blocks a request is for, its completion which device it went to, how many
//! bytes it was and how long the layers below took. Neither is a request alone: they share the
//! address of the packet. Layouts are those of version 2 of the provider's manifest, as
//! `etl/parsers/etw/Microsoft_Windows_StorPort.py` of airbus-cert/etl-parser lists them (Apache-2.0);
//! fields follow each other without gaps, pointers are 4 or 8 bytes:
//!
//! | 64-bit | 32-bit | dispatch: events 202 to 207 |
//! |---|---|---|
//! | 00 | 00 | ptr Irp |
//! | 08 | 04 | u8 Command: the SCSI operation code |
//! | 09 | 05 | u64 LengthOfTransferinblocks |
//! | 11 | 0d | u64 LBA |
//! | 19 | 15 | ptr OriginalIrp |
//! | 21 | 19 | u8 NvCachePriority |
//!
//! | 64-bit | 32-bit | completion: event 201 |
//! |---|---|---|
//! | 00 | 00 | u64 RequestDuration_100ns |
//! | 08 | 08 | ptr Irp |
//! | 10 | 0c | u8 Command |
//! | 11 | 0d | u8 SrbStatus |
//! | 12 | 0e | ptr OriginalIrp |
//! | 1a | 12 | u8 Port, Bus, Target, LUN |
//! | 1e | 16 | u8 ScsiStatus |
//! | 1f | 17 | u32 ByteLengthOfTransfer |
//! | 23 | 1b | u64 BuildIoDuration_100ns, StartIoDuration_100ns |
//!
//! Event 200 is laid out like 201 and tells of the same requests: it is left alone, as are the
//! completions 208 and 211, which name no device.

use crate::bytes::{pointer_at, u8_at, u32_at, u64_at};
use crate::event::{Event, EventId};
use crate::guid::Guid;

/// The provider.
pub const PROVIDER: Guid = Guid::new(
    0xc463_6a1e,
    0x7986,
    0x4646,
    [0xbf, 0x10, 0x7b, 0xc3, 0xb4, 0xa7, 0x6e, 0x8e],
);

/// The version whose layouts are known.
pub const VERSION: u8 = 2;

/// Event of a completion.
pub const COMPLETION: u16 = 201;
/// Events of a dispatch: read, write, and both again for paging and for low memory.
pub const DISPATCHES: std::ops::RangeInclusive<u16> = 202..=207;

/// Where a device is attached: `SCSI_ADDRESS`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ScsiAddress {
    /// Number of the adapter.
    pub port: u8,
    /// Its bus, also called path.
    pub bus: u8,
    /// The target on it.
    pub target: u8,
    /// The logical unit of the target.
    pub lun: u8,
}

/// A request is handed down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dispatch {
    /// Address of the request packet.
    pub irp: u64,
    /// SCSI operation code.
    pub command: u8,
    /// Length in blocks of the device.
    pub blocks: u64,
    /// First block.
    pub lba: u64,
}

/// A request is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// How long the layers below took, in steps of 100 ns.
    pub duration_100ns: u64,
    /// Address of the request packet; reused when it is done.
    pub irp: u64,
    /// SCSI operation code.
    pub command: u8,
    /// `SRB_STATUS_…`; bits 6 and 7 are flags.
    pub srb_status: u8,
    /// The device's status; 0 is good.
    pub scsi_status: u8,
    /// The device.
    pub device: ScsiAddress,
    /// Length in bytes.
    pub bytes: u32,
}

/// An event that tells of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StorPort {
    /// A read or write is handed down.
    Dispatch(Dispatch),
    /// A request is done.
    Completion(Completion),
    /// One of these in a version whose layout is not known.
    OtherVersion,
    /// One of these that is too short.
    Malformed,
}

impl StorPort {
    /// Reads an event; `None` if it is of another provider or tells of no request.
    #[inline]
    pub fn parse(event: &Event<'_>) -> Option<StorPort> {
        let EventId::Provider { provider, id, .. } = event.id else {
            return None;
        };
        if provider != PROVIDER {
            return None;
        }
        let read: fn(&Event<'_>) -> Option<StorPort> = match id {
            COMPLETION => completion,
            id if DISPATCHES.contains(&id) => dispatch,
            _ => return None,
        };
        Some(match event.version {
            VERSION => read(event).unwrap_or(StorPort::Malformed),
            _ => StorPort::OtherVersion,
        })
    }
}

impl Completion {
    /// Whether the request was carried out.
    pub fn is_success(&self) -> bool {
        const SRB_STATUS_MASK: u8 = 0x3f;
        const SRB_STATUS_SUCCESS: u8 = 0x01;
        self.srb_status & SRB_STATUS_MASK == SRB_STATUS_SUCCESS && self.scsi_status == 0
    }
}

fn dispatch(event: &Event<'_>) -> Option<StorPort> {
    let (payload, pointer) = (event.payload, event.pointers.bytes());
    let cache_priority_at = 2 * pointer + 17;
    payload.get(cache_priority_at)?;
    Some(StorPort::Dispatch(Dispatch {
        irp: pointer_at(payload, 0, event.pointers)?,
        command: u8_at(payload, pointer)?,
        blocks: u64_at(payload, pointer + 1)?,
        lba: u64_at(payload, pointer + 9)?,
    }))
}

fn completion(event: &Event<'_>) -> Option<StorPort> {
    let (payload, pointer) = (event.payload, event.pointers.bytes());
    let command_at = 8 + pointer;
    let address_at = command_at + 2 + pointer;
    let start_io_at = address_at + 17;
    u64_at(payload, start_io_at)?;
    Some(StorPort::Completion(Completion {
        duration_100ns: u64_at(payload, 0)?,
        irp: pointer_at(payload, 8, event.pointers)?,
        command: u8_at(payload, command_at)?,
        srb_status: u8_at(payload, command_at + 1)?,
        device: ScsiAddress {
            port: u8_at(payload, address_at)?,
            bus: u8_at(payload, address_at + 1)?,
            target: u8_at(payload, address_at + 2)?,
            lun: u8_at(payload, address_at + 3)?,
        },
        scsi_status: u8_at(payload, address_at + 4)?,
        bytes: u32_at(payload, address_at + 5)?,
    }))
}
