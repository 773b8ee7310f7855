//! One record, and what its payload means.

use std::fmt;

use crate::action::{Action, Kind};
use crate::format::{ByteOrder, Format, Version};
use crate::layout::{CGROUP_ID, NUMBER, common, remap, v7, v8, wall_clock};

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

/// The header at the start of some bytes, in which each field is read when it is asked for: most
/// records are looked at in one or two fields only.
#[derive(Clone, Copy)]
pub(crate) struct Header<'a> {
    /// At least as many as the header has.
    bytes: &'a [u8],
    format: Format,
}

impl<'a> Header<'a> {
    /// The header at the start of `bytes`, whatever they are; `None` when there are too few.
    #[inline]
    pub fn new(format: Format, bytes: &'a [u8]) -> Option<Header<'a>> {
        (bytes.len() >= format.header_bytes()).then_some(Header { bytes, format })
    }

    #[inline]
    pub fn sequence(self) -> u32 {
        self.u32(common::SEQUENCE)
    }

    #[inline]
    pub fn time_ns(self) -> u64 {
        self.u64(common::TIME)
    }

    #[inline]
    pub fn action(self) -> Action {
        Action(match self.format.version {
            Version::V7 => u64::from(self.u32(v7::ACTION)),
            Version::V8 => self.u64(v8::ACTION),
        })
    }

    #[inline]
    pub fn cpu(self) -> u32 {
        self.u32(self.of_version(v7::CPU, v8::CPU))
    }

    /// Length of the record by its header.
    #[inline]
    pub fn record_bytes(self) -> usize {
        let pdu_len = self.u16(self.of_version(v7::PDU_LEN, v8::PDU_LEN));
        self.format.header_bytes() + usize::from(pdu_len)
    }

    /// The record of this header that consists of `bytes`, which may be fewer or more than the
    /// header says.
    #[inline]
    pub fn record(self, bytes: &[u8]) -> Record<'_> {
        let payload = bytes.get(self.format.header_bytes()..).unwrap_or_default();
        let action = self.action();
        let (cgroup, pdu) = match action.has_cgroup() {
            true => self.split_cgroup(payload),
            false => (None, payload),
        };
        Record {
            sequence: self.sequence(),
            time_ns: self.time_ns(),
            sector: self.u64(common::SECTOR),
            bytes: self.u32(common::BYTES),
            action,
            pid: self.u32(self.of_version(v7::PID, v8::PID)),
            device: DeviceNumber(self.u32(self.of_version(v7::DEVICE, v8::DEVICE))),
            cpu: self.cpu(),
            error: self.u16(self.of_version(v7::ERROR, v8::ERROR)),
            cgroup,
            pdu,
            order: self.format.order,
        }
    }

    fn split_cgroup(self, payload: &[u8]) -> (Option<u64>, &[u8]) {
        let Some((id, pdu)) = payload.split_first_chunk::<CGROUP_ID>() else {
            return (None, &[]);
        };
        let id = match self.format.order {
            ByteOrder::Little => u64::from_le_bytes(*id),
            ByteOrder::Big => u64::from_be_bytes(*id),
        };
        (Some(id), pdu)
    }

    #[inline]
    fn of_version(self, v7: usize, v8: usize) -> usize {
        match self.format.version {
            Version::V7 => v7,
            Version::V8 => v8,
        }
    }

    #[inline]
    fn u16(self, at: usize) -> u16 {
        match self.format.order {
            ByteOrder::Little => u16_at::<false>(self.bytes, at),
            ByteOrder::Big => u16_at::<true>(self.bytes, at),
        }
    }

    #[inline]
    fn u32(self, at: usize) -> u32 {
        match self.format.order {
            ByteOrder::Little => u32_at::<false>(self.bytes, at),
            ByteOrder::Big => u32_at::<true>(self.bytes, at),
        }
    }

    #[inline]
    fn u64(self, at: usize) -> u64 {
        match self.format.order {
            ByteOrder::Little => u64_at::<false>(self.bytes, at),
            ByteOrder::Big => u64_at::<true>(self.bytes, at),
        }
    }
}

/// Copies the field at `at`. Every caller passes a whole struct and the offset of a field in it, so
/// that the field is always there.
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
