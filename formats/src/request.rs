//! The request: what one block operation asked for, and how long it took.
//!
//! The numbers of [`Op`] and the bits of [`Flags`] are frozen: they stand in every tape
//! (`docs/format.md`, "Operations and flags"). New ones are added, none is renumbered.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use thiserror::Error;

/// Index of a device in the tape's list of devices, from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceIndex(pub u16);

/// What a request does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Op {
    /// Reads data.
    #[default]
    Read = 0,
    /// Writes data.
    Write = 1,
    /// Makes earlier completed writes durable; carries no data.
    Flush = 2,
    /// Tells the device that a range is no longer in use (trim, unmap).
    Discard = 3,
    /// Zeroes a range without sending the zeroes.
    WriteZeroes = 4,
    /// Appends to a zone of a zoned device.
    ZoneAppend = 5,
    /// Resets a zone of a zoned device.
    ZoneReset = 6,
    /// Anything else, such as a SCSI or NVMe pass-through command.
    Other = 7,
}

impl Op {
    /// All operations, in the order of their numbers.
    pub const ALL: [Op; 8] = [
        Op::Read,
        Op::Write,
        Op::Flush,
        Op::Discard,
        Op::WriteZeroes,
        Op::ZoneAppend,
        Op::ZoneReset,
        Op::Other,
    ];

    /// The operation of a number, if that number is assigned.
    pub fn from_number(number: u8) -> Option<Op> {
        Op::ALL.get(usize::from(number)).copied()
    }

    /// The frozen number.
    pub fn number(self) -> u8 {
        self as u8
    }

    /// The name used in CSV and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Op::Read => "read",
            Op::Write => "write",
            Op::Flush => "flush",
            Op::Discard => "discard",
            Op::WriteZeroes => "write_zeroes",
            Op::ZoneAppend => "zone_append",
            Op::ZoneReset => "zone_reset",
            Op::Other => "other",
        }
    }

    /// Whether data crosses the bus: such requests count towards MB/s.
    pub fn transfers_data(self) -> bool {
        matches!(self, Op::Read | Op::Write | Op::ZoneAppend)
    }

    /// Whether replaying the operation changes what the target holds.
    pub fn changes_data(self) -> bool {
        matches!(
            self,
            Op::Write | Op::Discard | Op::WriteZeroes | Op::ZoneAppend | Op::ZoneReset
        )
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A name that is not an operation.
#[derive(Debug, Error, PartialEq, Eq)]
#[error(
    "unknown operation {0:?}, expected one of read, write, flush, discard, write_zeroes, zone_append, zone_reset, other"
)]
pub struct UnknownOp(pub String);

impl FromStr for Op {
    type Err = UnknownOp;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Op::ALL
            .into_iter()
            .find(|op| op.name() == name)
            .ok_or_else(|| UnknownOp(name.to_owned()))
    }
}

/// How a request asks to be treated: a set of bits beside its [`Op`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Flags(u32);

impl Flags {
    /// No flag.
    pub const NONE: Flags = Flags(0);
    /// Somebody waits for it.
    pub const SYNC: Flags = Flags(1 << 0);
    /// Durable on completion (force unit access).
    pub const FUA: Flags = Flags(1 << 1);
    /// The device's cache is flushed before it.
    pub const PREFLUSH: Flags = Flags(1 << 2);
    /// Filesystem metadata.
    pub const META: Flags = Flags(1 << 3);
    /// Read ahead of demand: may fail without harm.
    pub const READAHEAD: Flags = Flags(1 << 4);
    /// Background work, such as writeback.
    pub const BACKGROUND: Flags = Flags(1 << 5);
    /// Must not block.
    pub const NOWAIT: Flags = Flags(1 << 6);
    /// Paging of memory (swap, or paging I/O of Windows).
    pub const PAGING: Flags = Flags(1 << 7);
    /// All or nothing with respect to power loss.
    pub const ATOMIC: Flags = Flags(1 << 8);
    /// Erased so that it cannot be read back (secure erase discard).
    pub const SECURE: Flags = Flags(1 << 9);

    const NAMES: [(Flags, &'static str); 10] = [
        (Flags::SYNC, "sync"),
        (Flags::FUA, "fua"),
        (Flags::PREFLUSH, "preflush"),
        (Flags::META, "meta"),
        (Flags::READAHEAD, "readahead"),
        (Flags::BACKGROUND, "background"),
        (Flags::NOWAIT, "nowait"),
        (Flags::PAGING, "paging"),
        (Flags::ATOMIC, "atomic"),
        (Flags::SECURE, "secure"),
    ];

    /// The set with these bits; bits without a name are kept.
    pub fn from_bits(bits: u32) -> Flags {
        Flags(bits)
    }

    /// The frozen bits.
    pub fn bits(self) -> u32 {
        self.0
    }

    /// Whether all of `other` is set.
    pub fn contains(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether nothing is set.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl std::ops::BitOr for Flags {
    type Output = Flags;

    fn bitor(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }
}

impl std::ops::BitOrAssign for Flags {
    fn bitor_assign(&mut self, other: Flags) {
        self.0 |= other.0;
    }
}

/// Names joined by `+`, in the order of their bits; a bit without a name is `bitN`.
impl fmt::Display for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for bit in 0..u32::BITS {
            let flag = Flags(1 << bit);
            if !self.contains(flag) {
                continue;
            }
            f.write_str(separator)?;
            separator = "+";
            match Flags::NAMES.iter().find(|(named, _)| *named == flag) {
                Some((_, name)) => f.write_str(name)?,
                None => write!(f, "bit{bit}")?,
            }
        }
        Ok(())
    }
}

/// A word that is not a flag.
#[derive(Debug, Error, PartialEq, Eq)]
#[error(
    "unknown flag {0:?}, expected names such as sync, fua, preflush, meta, readahead joined by '+'"
)]
pub struct UnknownFlag(pub String);

impl FromStr for Flags {
    type Err = UnknownFlag;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut flags = Flags::NONE;
        for word in text.split('+').filter(|word| !word.is_empty()) {
            flags |= flag_of(word).ok_or_else(|| UnknownFlag(word.to_owned()))?;
        }
        Ok(flags)
    }
}

fn flag_of(word: &str) -> Option<Flags> {
    if let Some((flag, _)) = Flags::NAMES.iter().find(|(_, name)| *name == word) {
        return Some(*flag);
    }
    let bit: u32 = word.strip_prefix("bit")?.parse().ok()?;
    1u32.checked_shl(bit).map(Flags)
}

/// Who asked: on Linux the submitter's process id (thread-group id) and its thread's name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Process {
    /// Process id.
    pub pid: u32,
    /// Name: `comm` on Linux, the image name on Windows.
    pub name: Arc<str>,
}

/// One block operation.
///
/// Times are in nanoseconds since the tape's first clock anchor. `None` means that the source did
/// not have the value, never zero.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Request {
    /// When the request was seen at its layer: issued to the driver (device layer) or queued by
    /// its submitter (queue layer).
    pub time_ns: u64,
    /// On which device.
    pub device: DeviceIndex,
    /// What it does.
    pub op: Op,
    /// How it asks to be treated.
    pub flags: Flags,
    /// First byte, from the start of the device. 0 for a flush.
    pub offset_bytes: u64,
    /// Bytes read, written, discarded or zeroed. 0 for a flush.
    pub length_bytes: u64,
    /// From [`Request::time_ns`] until the completion.
    pub latency_ns: Option<u64>,
    /// Time spent queued before [`Request::time_ns`] (device layer only).
    pub queue_ns: Option<u64>,
    /// Who asked for it.
    pub process: Option<Process>,
    /// Id of the control group that is charged for it.
    pub cgroup: Option<u64>,
    /// Processor on which it was issued (device layer) or queued (queue layer).
    pub cpu: Option<u32>,
    /// Outcome: 0 for success, else an errno (Linux) or an NTSTATUS (Windows); the tape's header
    /// says which.
    pub error: Option<u32>,
    /// Number of the file whose data it is for, as far as the source tells: that of its name
    /// ([`crate::tape::name_id`]). No part of a tape's id.
    pub file: Option<u64>,
}

impl Request {
    /// First byte behind the request.
    ///
    /// `None` when `offset_bytes + length_bytes` does not fit 64 bits: no such range exists.
    pub fn end_bytes(&self) -> Option<u64> {
        self.offset_bytes.checked_add(self.length_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operation_numbers_and_names_are_frozen() {
        let frozen = [
            (0, "read"),
            (1, "write"),
            (2, "flush"),
            (3, "discard"),
            (4, "write_zeroes"),
            (5, "zone_append"),
            (6, "zone_reset"),
            (7, "other"),
        ];
        for (number, name) in frozen {
            let op = Op::from_number(number).unwrap();
            assert_eq!((op.number(), op.name()), (number, name));
            assert_eq!(name.parse::<Op>().unwrap(), op);
        }
        assert_eq!(Op::from_number(8), None);
    }

    #[test]
    fn flag_bits_and_names_are_frozen() {
        let frozen = [
            (1, "sync"),
            (2, "fua"),
            (4, "preflush"),
            (8, "meta"),
            (16, "readahead"),
            (32, "background"),
            (64, "nowait"),
            (128, "paging"),
            (256, "atomic"),
            (512, "secure"),
        ];
        for (bits, name) in frozen {
            assert_eq!(Flags::from_bits(bits).to_string(), name);
            assert_eq!(name.parse::<Flags>().unwrap().bits(), bits);
        }
    }

    #[test]
    fn flags_join_in_bit_order_and_keep_unnamed_bits() {
        let flags = Flags::FUA | Flags::SYNC | Flags::from_bits(1 << 31);
        assert_eq!(flags.to_string(), "sync+fua+bit31");
        assert_eq!("sync+fua+bit31".parse::<Flags>().unwrap(), flags);
        assert_eq!("".parse::<Flags>().unwrap(), Flags::NONE);
        assert_eq!("bit32".parse::<Flags>(), Err(UnknownFlag("bit32".into())));
        assert_eq!("Sync".parse::<Flags>(), Err(UnknownFlag("Sync".into())));
    }

    #[test]
    fn a_range_past_the_64_bit_space_has_no_end() {
        let request = Request {
            offset_bytes: u64::MAX,
            length_bytes: 1,
            ..Request::default()
        };
        assert_eq!(request.end_bytes(), None);
    }
}
