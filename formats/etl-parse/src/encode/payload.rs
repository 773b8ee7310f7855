//! Payloads, field by field in the order in which they stand.

use crate::bytes::PointerWidth;
use crate::kernel::{
    DiskFlush, DiskInit, DiskTransfer, FileName, LogDisk, PhyDisk, ProcessInfo, Response,
    ThreadInfo,
};
use crate::log_header::LogHeader;
use crate::storport::{Completion, Dispatch, ScsiAddress};

/// A payload under way.
struct Fields {
    bytes: Vec<u8>,
    pointers: PointerWidth,
}

impl Fields {
    fn new(pointers: PointerWidth) -> Fields {
        Fields {
            bytes: Vec::new(),
            pointers,
        }
    }

    fn u8(mut self, value: u8) -> Fields {
        self.bytes.push(value);
        self
    }

    fn u32(mut self, value: u32) -> Fields {
        self.bytes.extend_from_slice(&value.to_le_bytes());
        self
    }

    fn u64(mut self, value: u64) -> Fields {
        self.bytes.extend_from_slice(&value.to_le_bytes());
        self
    }

    fn i64(mut self, value: i64) -> Fields {
        self.bytes.extend_from_slice(&value.to_le_bytes());
        self
    }

    /// A pointer; its lower half, where pointers have 32 bits.
    fn pointer(self, value: u64) -> Fields {
        match self.pointers {
            PointerWidth::Bits32 => self.u32(value as u32),
            PointerWidth::Bits64 => self.u64(value),
        }
    }

    fn zeroes(mut self, bytes: usize) -> Fields {
        self.bytes.resize(self.bytes.len() + bytes, 0);
        self
    }

    /// Text in UTF-16, cut or filled up to `units`.
    fn utf16(self, text: &str, units: usize) -> Fields {
        let units_of_text = text.encode_utf16().chain(std::iter::repeat(0)).take(units);
        units_of_text.fold(self, |mut fields, unit| {
            fields.bytes.extend_from_slice(&unit.to_le_bytes());
            fields
        })
    }

    /// Port, path, target and LUN in 32 bits each; one that cannot be where there is none.
    fn address(self, address: Option<ScsiAddress>) -> Fields {
        let numbers = address.map(|address| {
            let ScsiAddress {
                port,
                bus,
                target,
                lun,
            } = address;
            [port, bus, target, lun].map(u32::from)
        });
        let numbers = numbers.unwrap_or([u32::MAX; 4]);
        numbers.into_iter().fold(self, Fields::u32)
    }

    fn optional(self, value: Option<u32>) -> Fields {
        match value {
            Some(value) => self.u32(value),
            None => self,
        }
    }
}

fn ticks(response: Response) -> u64 {
    match response {
        Response::PerfTicks(ticks) => ticks,
        Response::Unknown => 0,
    }
}

/// `TRACE_LOGFILE_HEADER`.
pub fn log_header(header: &LogHeader) -> Vec<u8> {
    let (major, minor) = header.os_version;
    let names = |text: &str| text.encode_utf16().count() + 1;
    Fields::new(header.pointers)
        .u32(header.buffer_size)
        .u8(major)
        .u8(minor)
        .u8(1)
        .u8(5)
        .u32(header.os_build)
        .u32(header.processors)
        .i64(header.end_filetime)
        .u32(156_250) // TimerResolution
        .u32(0) // MaximumFileSize
        .u32(header.mode)
        .u32(header.buffers_written)
        .u32(1) // StartBuffers
        .u32(header.pointers.bytes() as u32)
        .u32(header.events_lost)
        .u32(header.cpu_mhz)
        .pointer(0)
        .pointer(0)
        .zeroes(172 + 4) // TimeZone
        .i64(header.boot_filetime)
        .i64(header.perf_frequency)
        .i64(header.start_filetime)
        .u32(header.clock_type)
        .u32(header.buffers_lost)
        .utf16(&header.session, names(&header.session))
        .utf16(&header.file, names(&header.file))
        .bytes
}

/// A read or write that is done. Version 0 has no response, no version below 2 an Irp and none
/// below 3 a thread: these are left out.
pub fn disk_transfer(done: &DiskTransfer, version: u8, pointers: PointerWidth) -> Vec<u8> {
    let fields = Fields::new(pointers)
        .u32(done.disk)
        .u32(done.irp_flags)
        .u32(done.bytes)
        .u32(0) // Reserved
        .u64(done.offset)
        .pointer(done.file_object);
    let fields = match version {
        0 => fields,
        1 => fields.u64(ticks(done.response)),
        _ => fields
            .pointer(done.irp.unwrap_or_default())
            .u64(ticks(done.response)),
    };
    match version {
        0..=2 => fields.bytes,
        _ => fields.optional(done.thread_id).bytes,
    }
}

/// A flush that is done: versions 2 and 3.
pub fn disk_flush(done: &DiskFlush, version: u8, pointers: PointerWidth) -> Vec<u8> {
    let fields = Fields::new(pointers)
        .u32(done.disk)
        .u32(done.irp_flags)
        .u64(ticks(done.response))
        .pointer(done.irp);
    match version {
        0..=2 => fields.bytes,
        _ => fields.optional(done.thread_id).bytes,
    }
}

/// A request that begins: versions 2 and 3.
pub fn disk_init(init: &DiskInit, version: u8, pointers: PointerWidth) -> Vec<u8> {
    let fields = Fields::new(pointers).pointer(init.irp);
    match version {
        0..=2 => fields.bytes,
        _ => fields.optional(init.thread_id).bytes,
    }
}

/// The name of a file.
pub fn file_name(file: &FileName, pointers: PointerWidth) -> Vec<u8> {
    let units = file.name.encode_utf16().count() + 1;
    Fields::new(pointers)
        .pointer(file.key)
        .utf16(&file.name, units)
        .bytes
}

/// A process, owned by nobody: versions 0 to 4.
pub fn process(process: &ProcessInfo, version: u8, pointers: PointerWidth) -> Vec<u8> {
    let fields = Fields::new(pointers);
    let fields = match version {
        0 => fields.pointer(u64::from(process.process_id)).pointer(0),
        // Key, process, parent, session, exit status.
        _ => fields
            .pointer(1)
            .u32(process.process_id)
            .u32(0)
            .u32(0)
            .u32(0),
    };
    let fields = match version {
        0..=2 => fields,
        3 => fields.pointer(0), // DirectoryTableBase
        _ => fields.pointer(0).u32(0),
    };
    let mut bytes = fields.u32(0).bytes; // no SID
    bytes.extend_from_slice(process.image.as_bytes());
    bytes.extend_from_slice(&[0; 3]); // end of the name, empty command line
    bytes
}

/// The beginning of a thread event: versions 0 to 3.
pub fn thread(thread: &ThreadInfo, version: u8, pointers: PointerWidth) -> Vec<u8> {
    let (first, second) = match version {
        0 => (thread.thread_id, thread.process_id),
        _ => (thread.process_id, thread.thread_id),
    };
    Fields::new(pointers)
        .u32(first)
        .u32(second)
        .zeroes(56)
        .bytes
}

/// A physical disk.
pub fn phy_disk(disk: &PhyDisk, pointers: PointerWidth) -> Vec<u8> {
    Fields::new(pointers)
        .u32(disk.disk)
        .u32(disk.sector_bytes)
        .u32(disk.sectors_per_track)
        .u32(disk.tracks_per_cylinder)
        .u64(disk.cylinders)
        .address(disk.address)
        .utf16(&disk.model, 256)
        .u32(disk.partitions)
        .u8(u8::from(disk.write_cache))
        .zeroes(1 + 6 + 4) // boot drive
        .bytes
}

/// A dispatch of StorPort, version 2; its original packet is none.
pub fn storport_dispatch(dispatch: &Dispatch, pointers: PointerWidth) -> Vec<u8> {
    Fields::new(pointers)
        .pointer(dispatch.irp)
        .u8(dispatch.command)
        .u64(dispatch.blocks)
        .u64(dispatch.lba)
        .pointer(0)
        .u8(0) // NvCachePriority
        .bytes
}

/// A completion of StorPort, version 2; its original packet is none.
pub fn storport_completion(done: &Completion, pointers: PointerWidth) -> Vec<u8> {
    let ScsiAddress {
        port,
        bus,
        target,
        lun,
    } = done.device;
    Fields::new(pointers)
        .u64(done.duration_100ns)
        .pointer(done.irp)
        .u8(done.command)
        .u8(done.srb_status)
        .pointer(0)
        .u8(port)
        .u8(bus)
        .u8(target)
        .u8(lun)
        .u8(done.scsi_status)
        .u32(done.bytes)
        .u64(0) // BuildIoDuration
        .u64(0) // StartIoDuration
        .bytes
}

/// A partition.
pub fn log_disk(disk: &LogDisk, pointers: PointerWidth) -> Vec<u8> {
    Fields::new(pointers)
        .u64(disk.start_offset)
        .u64(disk.bytes)
        .u32(disk.disk)
        .u32(112)
        .u32(3) // DriveType
        .utf16(&disk.letter, 4)
        .zeroes(76)
        .bytes
}
