//! Numbers of a block's columns, and sets of them.

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
    /// Columns that this version knows.
    pub const COUNT: usize = 11;
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
    /// All that this version knows.
    pub const ALL: Columns = Columns((1 << number::COUNT) - 1);

    /// Whether all of `other` is in the set.
    pub fn contains(self, other: Columns) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether the column of this number is in the set.
    pub(super) fn has(self, column: u8) -> bool {
        u32::from(column) < u16::BITS && self.0 & (1 << column) != 0
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
