//! Disk reads, writes and flushes, `DiskIo_TypeGroup1` to `3`.
//!
//! A completion tells the whole request; its time is that of the completion, and the request was
//! issued [`Response`] before. Layouts by version; pointers are 4 or 8 bytes and aligned:
//!
//! | 64-bit | 32-bit | versions | read, write |
//! |---|---|---|---|
//! | 00 | 00 | all | u32 DiskNumber |
//! | 04 | 04 | all | u32 IrpFlags |
//! | 08 | 08 | all | u32 TransferSize, bytes |
//! | 10 | 10 | all | i64 ByteOffset, from the start of the disk |
//! | 18 | 18 | all | ptr FileObject |
//! | 20 | 1c | 2, 3 | ptr Irp |
//! | 20 | 1c | 1 | u64 HighResResponseTime |
//! | 28 | 20 | 2, 3 | u64 HighResResponseTime |
//! | 30 | 28 | 3 | u32 IssuingThreadId |
//!
//! | 64-bit | 32-bit | versions | flush |
//! |---|---|---|---|
//! | 00 | 00 | 2, 3 | u32 DiskNumber |
//! | 04 | 04 | 2, 3 | u32 IrpFlags |
//! | 08 | 08 | 2, 3 | u64 HighResResponseTime |
//! | 10 | 10 | 2, 3 | ptr Irp |
//! | 18 | 14 | 3 | u32 IssuingThreadId |
//!
//! An Init event has the Irp and, from version 3 on, the thread behind it. Later versions append
//! fields: they are read as version 3.

use crate::bytes::{PointerWidth, i64_at, pointer_at, u32_at, u64_at};
use crate::event::Event;

use super::hook;

/// The provider `Microsoft-Windows-Kernel-Disk`: its events are those of version 2, without Inits.
pub const KERNEL_DISK: crate::Guid = crate::Guid::new(
    0xc7bd_e69a,
    0xe1e0,
    0x4177,
    [0xb6, 0xef, 0x28, 0x3a, 0xd1, 0x52, 0x52, 0x71],
);

/// How long a request took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Response {
    /// Version 0 does not say.
    Unknown,
    /// In ticks of the performance counter ([`crate::Clock::perf_span_ns`]), whatever the trace's
    /// clock is.
    PerfTicks(u64),
}

/// A read or write that is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskTransfer {
    /// Whether it is a write.
    pub is_write: bool,
    /// Number of the physical disk.
    pub disk: u32,
    /// `IRP_…` flags; bits 17 to 19 are the I/O priority plus one.
    pub irp_flags: u32,
    /// Bytes that were asked for.
    pub bytes: u32,
    /// First byte, from the start of the disk.
    pub offset: u64,
    /// Key of the file.
    pub file_object: u64,
    /// Address of the request packet; reused at once when it is done.
    pub irp: Option<u64>,
    /// How long it took.
    pub response: Response,
    /// The thread that asked.
    pub thread_id: Option<u32>,
}

/// A flush that is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskFlush {
    /// Number of the physical disk.
    pub disk: u32,
    /// `IRP_…` flags.
    pub irp_flags: u32,
    /// Address of the request packet.
    pub irp: u64,
    /// How long it took.
    pub response: Response,
    /// The thread that asked.
    pub thread_id: Option<u32>,
}

/// A request that begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskInit {
    /// Address of the request packet.
    pub irp: u64,
    /// The thread that asked.
    pub thread_id: Option<u32>,
}

/// A disk event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskIo {
    /// A read or write is done.
    Transfer(DiskTransfer),
    /// A flush is done.
    Flush(DiskFlush),
    /// A read, write or flush begins.
    Init(DiskInit),
    /// One of these whose payload is too short for its version, or whose offset is negative.
    Malformed,
}

impl DiskIo {
    /// Reads a disk event of the kernel logger; `None` if the event is none.
    #[inline]
    pub fn parse(event: &Event<'_>) -> Option<DiskIo> {
        let hook = event.hook()?;
        let version = Version::of(event.version, event.pointers);
        DiskIo::with(hook, version, event.payload)
    }

    /// Reads a disk event of the provider [`KERNEL_DISK`]; `None` if the event is none.
    pub fn parse_kernel_disk(event: &Event<'_>) -> Option<DiskIo> {
        let hook = match event.id {
            crate::EventId::Provider { provider, id, .. } if provider == KERNEL_DISK => match id {
                10 => hook::DISK_READ,
                11 => hook::DISK_WRITE,
                14 => hook::DISK_FLUSH,
                _ => return None,
            },
            _ => return None,
        };
        let version = Version::of(event.version.saturating_add(2), event.pointers);
        DiskIo::with(hook, version, event.payload)
    }

    #[inline]
    fn with(hook: u16, version: Version, payload: &[u8]) -> Option<DiskIo> {
        let read = match hook {
            hook::DISK_READ => transfer(payload, version, false),
            hook::DISK_WRITE => transfer(payload, version, true),
            hook::DISK_FLUSH => flush(payload, version),
            hook::DISK_READ_INIT | hook::DISK_WRITE_INIT | hook::DISK_FLUSH_INIT => {
                init(payload, version)
            }
            _ => return None,
        };
        Some(read.unwrap_or(DiskIo::Malformed))
    }
}

/// What a layout depends on.
#[derive(Clone, Copy)]
struct Version {
    number: u8,
    pointers: PointerWidth,
}

impl Version {
    fn of(number: u8, pointers: PointerWidth) -> Version {
        Version { number, pointers }
    }

    fn has_irp(self) -> bool {
        self.number >= 2
    }

    fn thread_id(self, payload: &[u8], at: usize) -> Option<Option<u32>> {
        match self.number {
            0..=2 => Some(None),
            _ => u32_at(payload, at).map(Some),
        }
    }
}

#[inline]
fn transfer(payload: &[u8], version: Version, is_write: bool) -> Option<DiskIo> {
    const POINTERS_AT: usize = 0x18;
    let pointer = version.pointers.bytes();
    let behind_file_at = POINTERS_AT + pointer;
    let (irp, response_at) = match version.has_irp() {
        true => {
            let irp = pointer_at(payload, behind_file_at, version.pointers)?;
            (Some(irp), behind_file_at + pointer)
        }
        false => (None, behind_file_at),
    };
    let response = match version.number {
        0 => Response::Unknown,
        _ => Response::PerfTicks(u64_at(payload, response_at)?),
    };
    Some(DiskIo::Transfer(DiskTransfer {
        is_write,
        disk: u32_at(payload, 0x00)?,
        irp_flags: u32_at(payload, 0x04)?,
        bytes: u32_at(payload, 0x08)?,
        offset: u64::try_from(i64_at(payload, 0x10)?).ok()?,
        file_object: pointer_at(payload, POINTERS_AT, version.pointers)?,
        irp,
        response,
        thread_id: version.thread_id(payload, response_at + 8)?,
    }))
}

fn flush(payload: &[u8], version: Version) -> Option<DiskIo> {
    const IRP_AT: usize = 0x10;
    Some(DiskIo::Flush(DiskFlush {
        disk: u32_at(payload, 0x00)?,
        irp_flags: u32_at(payload, 0x04)?,
        response: Response::PerfTicks(u64_at(payload, 0x08)?),
        irp: pointer_at(payload, IRP_AT, version.pointers)?,
        thread_id: version.thread_id(payload, IRP_AT + version.pointers.bytes())?,
    }))
}

#[inline]
fn init(payload: &[u8], version: Version) -> Option<DiskIo> {
    Some(DiskIo::Init(DiskInit {
        irp: pointer_at(payload, 0, version.pointers)?,
        thread_id: version.thread_id(payload, version.pointers.bytes())?,
    }))
}
