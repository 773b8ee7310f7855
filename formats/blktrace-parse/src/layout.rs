//! Where each field of a record stands.
//!
//! Source: `struct blk_io_trace` (version 7), `struct blk_io_trace2` (version 8) and
//! `struct blk_io_trace_remap` in Linux `include/uapi/linux/blktrace_api.h`; version 8 came with
//! Linux 6.19. Every offset is the one before plus its size, and the structs have no holes.

/// The magic number without the version, which is its lowest byte.
pub(crate) const MAGIC: u32 = 0x6561_7400;

const U16: usize = size_of::<u16>();
const U32: usize = size_of::<u32>();
const U64: usize = size_of::<u64>();

/// What both versions begin with.
pub(crate) mod common {
    use super::{U32, U64};

    pub const MAGIC: usize = 0;
    pub const SEQUENCE: usize = MAGIC + U32;
    pub const TIME: usize = SEQUENCE + U32;
    pub const SECTOR: usize = TIME + U64;
    pub const BYTES: usize = SECTOR + U64;
    pub const END: usize = BYTES + U32;
}

/// Version 7: the action has 32 bits and stands before the process id.
pub(crate) mod v7 {
    use super::{U16, U32, common};

    pub const ACTION: usize = common::END;
    pub const PID: usize = ACTION + U32;
    pub const DEVICE: usize = PID + U32;
    pub const CPU: usize = DEVICE + U32;
    pub const ERROR: usize = CPU + U32;
    pub const PDU_LEN: usize = ERROR + U16;
    pub const HEADER: usize = PDU_LEN + U16;
}

/// Version 8: the action has 64 bits and stands behind the process id; padding at the end.
pub(crate) mod v8 {
    use super::{U16, U32, U64, common};

    pub const PID: usize = common::END;
    pub const ACTION: usize = PID + U32;
    pub const DEVICE: usize = ACTION + U64;
    pub const CPU: usize = DEVICE + U32;
    pub const ERROR: usize = CPU + U32;
    pub const PDU_LEN: usize = ERROR + U16;
    pub const PADDING: usize = PDU_LEN + U16;
    pub const PADDING_BYTES: usize = 12;
    pub const HEADER: usize = PADDING + PADDING_BYTES;
}

/// The payload of a remap, big-endian whatever the kernel.
pub(crate) mod remap {
    use super::{U32, U64};

    pub const DEVICE_FROM: usize = 0;
    pub const DEVICE_TO: usize = DEVICE_FROM + U32;
    pub const SECTOR_FROM: usize = DEVICE_TO + U32;
    pub const SIZE: usize = SECTOR_FROM + U64;
}

/// The payload of a wall-clock note, in the kernel's byte order.
pub(crate) mod wall_clock {
    use super::U32;

    pub const SECONDS: usize = 0;
    pub const NANOSECONDS: usize = SECONDS + U32;
    pub const SIZE: usize = NANOSECONDS + U32;
}

/// The control group's id that stands before the payload proper and counts in its length.
pub(crate) const CGROUP_ID: usize = U64;

/// The payload of unplugs and splits: one number, big-endian whatever the kernel.
pub(crate) const NUMBER: usize = U64;

// The sizes that the structs are known to have.
const _: () = assert!(v7::HEADER == 48 && v8::HEADER == 64 && remap::SIZE == 16);
