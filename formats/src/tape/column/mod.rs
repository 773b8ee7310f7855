//! Columns: the values of one field in one block, as bytes.
//!
//! A column goes through four steps, each of which is chosen by the size of what comes out
//! (`docs/format.md`, "Columns"):
//!
//! 1. *Order*: the rows are taken as they come, or grouped by operation, device or process, since
//!    what one group does resembles what it did before ([`order`]).
//! 2. *Prediction*: a value is replaced by its distance from the value before it, or from the end
//!    of the request before it; the distances are brought down to small numbers ([`transform`]).
//! 3. *Layout*: the numbers become streams of bytes that compress well ([`layout`], [`classes`]),
//!    or are packed as numbers ([`pco`]).
//! 4. *Codec*: each stream is compressed, or kept as it is ([`stream`]).

use crate::request::{Flags, Op};

pub mod choice;
pub mod classes;
pub mod layout;
pub mod order;
pub mod pco;
pub mod sequence;
pub mod stream;
pub mod transform;

/// Number of a column. Frozen; 0x80 and above are private.
pub mod number {
    /// `time_ns`.
    pub const TIME: u8 = 0;
    /// Operation and flags.
    pub const OP_FLAGS: u8 = 1;
    /// `device`.
    pub const DEVICE: u8 = 2;
    /// `offset_bytes`.
    pub const OFFSET: u8 = 3;
    /// `length_bytes`.
    pub const LENGTH: u8 = 4;
    /// `latency_ns`.
    pub const LATENCY: u8 = 5;
    /// `queue_ns`.
    pub const QUEUE: u8 = 6;
    /// `process`.
    pub const PROCESS: u8 = 7;
    /// `cgroup`.
    pub const CGROUP: u8 = 8;
    /// `cpu`.
    pub const CPU: u8 = 9;
    /// `error`.
    pub const ERROR: u8 = 10;
    /// `file`.
    pub const FILE: u8 = 11;
    /// Columns that this version knows.
    pub const COUNT: usize = 12;
    /// First private number.
    pub const FIRST_PRIVATE: u8 = 0x80;
}

/// Operation and flags as one value: the operation in the low byte, flags above it.
pub fn op_flags(op: Op, flags: Flags) -> u64 {
    u64::from(op.number()) | u64::from(flags.bits()) << 8
}

/// A set of columns: which ones a reader decodes.
///
/// Time, operation, flags, device, offset and length are always decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Columns(u16);

impl Columns {
    /// Time, operation, flags, device, offset, length.
    pub const CORE: Columns = Columns(0b1_1111);
    /// `latency_ns`.
    pub const LATENCY: Columns = Columns(1 << number::LATENCY);
    /// `queue_ns`.
    pub const QUEUE: Columns = Columns(1 << number::QUEUE);
    /// `process`.
    pub const PROCESS: Columns = Columns(1 << number::PROCESS);
    /// `cgroup`.
    pub const CGROUP: Columns = Columns(1 << number::CGROUP);
    /// `cpu`.
    pub const CPU: Columns = Columns(1 << number::CPU);
    /// `error`.
    pub const ERROR: Columns = Columns(1 << number::ERROR);
    /// `file`.
    pub const FILE: Columns = Columns(1 << number::FILE);
    /// All that this version knows.
    pub const ALL: Columns = Columns((1 << number::COUNT) - 1);

    /// Whether all of `other` is in the set.
    pub fn contains(self, other: Columns) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether the column of this number is in the set; the core ones are in every set.
    pub(super) fn has(self, column: u8) -> bool {
        u32::from(column) < u16::BITS && (self.0 | Columns::CORE.0) & (1 << column) != 0
    }
}

impl Default for Columns {
    fn default() -> Self {
        Columns::ALL
    }
}

impl std::ops::BitOr for Columns {
    type Output = Columns;

    fn bitor(self, other: Columns) -> Columns {
        Columns(self.0 | other.0)
    }
}
