//! One record, and what its payload means.

use std::fmt;

use crate::action::{Action, Kind};
use crate::format::{ByteOrder, Format, Version};
use crate::layout::{self, CGROUP_ID, NUMBER, common, remap, v7, v8, wall_clock};

/// A device as the kernel numbers it: 12 bits of major, 20 bits of minor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceNumber(pub u32);

impl DeviceNumber {
    const MINOR_BITS: u32 = 20;

    /// The device's driver.
    pub fn major(self) -> u32 {
        self.0 >> Self::MINOR_BITS
    }

    /// The device among its driver's.
    pub fn minor(self) -> u32 {
        self.0 & ((1 << Self::MINOR_BITS) - 1)
    }
}

/// `major,minor`, as in `ls -l /dev` and blkparse.
impl fmt::Display for DeviceNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{}", self.major(), self.minor())
    }
}

/// One record.
///
/// Two records of files of different version or byte order that say the same are equal but for
/// [`Record::order`] and, in a wall-clock note, the bytes of [`Record::pdu`]; compare
/// [`Record::payload`] instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Number of the event on its CPU, from 1, modulo 2^32; 0 in notes.
    pub sequence: u32,
    /// When, in nanoseconds of the kernel's monotonic clock.
    pub time_ns: u64,
    /// First 512-byte sector, from the start of the whole disk.
    pub sector: u64,
    /// Length in bytes.
    pub bytes: u32,
    /// What happened, and to what.
    pub action: Action,
    /// Thread that was running, or that a note is about. At an issue or a completion it is
    /// often not the one that asked.
    pub pid: u32,
    /// The traced device.
    pub device: DeviceNumber,
    /// CPU on which it happened. It may differ from the number in the file's name.
    pub cpu: u32,
    /// Outcome of a completion as the kernel stores it: the low 16 bits of a negative errno.
    pub error: u16,
    /// Id of the control group, where the record has one.
    pub cgroup: Option<u64>,
    /// The payload behind the control group's id.
    pub pdu: &'a [u8],
    /// Byte order of the kernel's own numbers in the payload.
    pub order: ByteOrder,
}

/// What a payload means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload<'a> {
    /// There is none.
    Empty,
    /// Of [`Kind::Process`]: the name, up to its first zero byte; at most 16 bytes by now.
    Process(&'a [u8]),
    /// Of [`Kind::WallClock`]: the real-time clock at [`Record::time_ns`].
    WallClock {
        /// Seconds since 1970-01-01 UTC, modulo 2^32.
        seconds: u32,
        /// And nanoseconds, below 1,000,000,000.
        nanoseconds: u32,
    },
    /// Of [`Kind::Message`]: text in no particular encoding.
    Message(&'a [u8]),
    /// Of [`Kind::Remap`]: where the bio came from.
    Remap {
        /// Device that the bio was sent to.
        from: DeviceNumber,
        /// Device that it went on to: the traced one, or a partition of it.
        to: DeviceNumber,
        /// First sector on the device it was sent to.
        from_sector: u64,
    },
    /// Of [`Kind::Unplug`], [`Kind::UnplugTimer`] and [`Kind::ZoneUnplug`]: how many requests
    /// went on.
    Unplugged(u64),
    /// Of [`Kind::Split`]: the sector at which the second part begins.
    SplitAt(u64),
    /// Anything else: a driver's data, a pass-through command, an unknown action's.
    Other(&'a [u8]),
    /// Too short or out of range for its kind.
    Malformed(&'a [u8]),
}

impl<'a> Record<'a> {
    /// The payload, decoded.
    pub fn payload(&self) -> Payload<'a> {
        let decoded = match self.action.kind() {
            Kind::Process => Some(Payload::Process(until_zero(self.pdu))),
            Kind::Message => Some(Payload::Message(self.pdu)),
            Kind::WallClock => self.wall_clock(),
            Kind::Remap => self.remap(),
            Kind::Unplug | Kind::UnplugTimer | Kind::ZoneUnplug => {
                self.number().map(Payload::Unplugged)
            }
            Kind::Split => self.number().map(Payload::SplitAt),
            _ if self.pdu.is_empty() => Some(Payload::Empty),
            _ => Some(Payload::Other(self.pdu)),
        };
        decoded.unwrap_or(Payload::Malformed(self.pdu))
    }

    /// The outcome as a positive errno; 0 for success.
    pub fn errno(&self) -> u32 {
        // Kernels store the negative number's low half; very old ones stored it positive.
        u32::from((self.error as i16).unsigned_abs())
    }

    fn wall_clock(&self) -> Option<Payload<'a>> {
        let (seconds, nanoseconds) = self.wall_clock_words()?;
        let clock = Payload::WallClock {
            seconds,
            nanoseconds,
        };
        (nanoseconds < 1_000_000_000).then_some(clock)
    }

    /// The two numbers of a wall-clock note's payload, in range or not.
    pub(crate) fn wall_clock_words(&self) -> Option<(u32, u32)> {
        let pdu: &[u8; wall_clock::SIZE] = self.pdu.first_chunk()?;
        let word = |at| match self.order {
            ByteOrder::Little => u32_at::<false>(pdu, at),
            ByteOrder::Big => u32_at::<true>(pdu, at),
        };
        Some((word(wall_clock::SECONDS), word(wall_clock::NANOSECONDS)))
    }

    fn remap(&self) -> Option<Payload<'a>> {
        let pdu: &[u8; remap::SIZE] = self.pdu.first_chunk()?;
        Some(Payload::Remap {
            from: DeviceNumber(u32_at::<true>(pdu, remap::DEVICE_FROM)),
            to: DeviceNumber(u32_at::<true>(pdu, remap::DEVICE_TO)),
            from_sector: u64_at::<true>(pdu, remap::SECTOR_FROM),
        })
    }

    fn number(&self) -> Option<u64> {
        let pdu: &[u8; NUMBER] = self.pdu.first_chunk()?;
        Some(u64_at::<true>(pdu, 0))
    }
}

fn until_zero(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().position(|byte| *byte == 0);
    bytes.get(..end.unwrap_or(bytes.len())).unwrap_or(bytes)
}

/// The header's fields, still without a payload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    pub sequence: u32,
    pub time_ns: u64,
    pub sector: u64,
    pub bytes: u32,
    pub action: Action,
    pub pid: u32,
    pub device: DeviceNumber,
    pub cpu: u32,
    pub error: u16,
    /// Length of the payload with the control group's id, as the header has it.
    pub pdu_len: u16,
}

impl Head {
    /// Decodes the header at the start of `bytes`; `None` when there are too few.
    #[inline]
    pub fn decode(format: Format, bytes: &[u8]) -> Option<Head> {
        match (format.version, format.order) {
            (Version::V7, ByteOrder::Little) => bytes.first_chunk().map(decode_v7::<false>),
            (Version::V7, ByteOrder::Big) => bytes.first_chunk().map(decode_v7::<true>),
            (Version::V8, ByteOrder::Little) => bytes.first_chunk().map(decode_v8::<false>),
            (Version::V8, ByteOrder::Big) => bytes.first_chunk().map(decode_v8::<true>),
        }
    }

    /// The record of this header and the payload found behind it, which begins with the control
    /// group's id if the action says so.
    #[inline]
    pub fn with_payload(self, payload: &[u8], order: ByteOrder) -> Record<'_> {
        let (cgroup, pdu) = self.split_cgroup(payload, order);
        Record {
            sequence: self.sequence,
            time_ns: self.time_ns,
            sector: self.sector,
            bytes: self.bytes,
            action: self.action,
            pid: self.pid,
            device: self.device,
            cpu: self.cpu,
            error: self.error,
            cgroup,
            pdu,
            order,
        }
    }

    #[inline]
    fn split_cgroup(self, payload: &[u8], order: ByteOrder) -> (Option<u64>, &[u8]) {
        if !self.action.has_cgroup() {
            return (None, payload);
        }
        let Some((id, pdu)) = payload.split_first_chunk::<CGROUP_ID>() else {
            return (None, &[]);
        };
        let id = match order {
            ByteOrder::Little => u64::from_le_bytes(*id),
            ByteOrder::Big => u64::from_be_bytes(*id),
        };
        (Some(id), pdu)
    }
}

fn decode_v7<const BIG: bool>(bytes: &[u8; layout::v7::HEADER]) -> Head {
    Head {
        sequence: u32_at::<BIG>(bytes, common::SEQUENCE),
        time_ns: u64_at::<BIG>(bytes, common::TIME),
        sector: u64_at::<BIG>(bytes, common::SECTOR),
        bytes: u32_at::<BIG>(bytes, common::BYTES),
        action: Action(u64::from(u32_at::<BIG>(bytes, v7::ACTION))),
        pid: u32_at::<BIG>(bytes, v7::PID),
        device: DeviceNumber(u32_at::<BIG>(bytes, v7::DEVICE)),
        cpu: u32_at::<BIG>(bytes, v7::CPU),
        error: u16_at::<BIG>(bytes, v7::ERROR),
        pdu_len: u16_at::<BIG>(bytes, v7::PDU_LEN),
    }
}

fn decode_v8<const BIG: bool>(bytes: &[u8; layout::v8::HEADER]) -> Head {
    Head {
        sequence: u32_at::<BIG>(bytes, common::SEQUENCE),
        time_ns: u64_at::<BIG>(bytes, common::TIME),
        sector: u64_at::<BIG>(bytes, common::SECTOR),
        bytes: u32_at::<BIG>(bytes, common::BYTES),
        action: Action(u64_at::<BIG>(bytes, v8::ACTION)),
        pid: u32_at::<BIG>(bytes, v8::PID),
        device: DeviceNumber(u32_at::<BIG>(bytes, v8::DEVICE)),
        cpu: u32_at::<BIG>(bytes, v8::CPU),
        error: u16_at::<BIG>(bytes, v8::ERROR),
        pdu_len: u16_at::<BIG>(bytes, v8::PDU_LEN),
    }
}

/// Copies the field at `at`. Every caller passes the whole struct and a constant offset in it, so
/// the field is always there and the check is compiled away.
#[inline(always)]
fn field<const SIZE: usize>(bytes: &[u8], at: usize) -> [u8; SIZE] {
    let found = bytes.get(at..).and_then(<[u8]>::first_chunk);
    found.copied().unwrap_or([0; SIZE])
}

macro_rules! number_at {
    ($name:ident, $number:ty) => {
        #[inline(always)]
        fn $name<const BIG: bool>(bytes: &[u8], at: usize) -> $number {
            let field = field(bytes, at);
            if BIG {
                <$number>::from_be_bytes(field)
            } else {
                <$number>::from_le_bytes(field)
            }
        }
    };
}

number_at!(u16_at, u16);
number_at!(u32_at, u32);
number_at!(u64_at, u64);
