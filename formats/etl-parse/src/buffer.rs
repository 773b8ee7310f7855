//! The header of a buffer, `WMI_BUFFER_HEADER`.
//!
//! A file is a chain of buffers, each behind the one before; it has no header of its own and no
//! index. Layout and names are those of `ntwmi.h` of phnt, checked against real files:
//!
//! | at | field | |
//! |---|---|---|
//! | 00 | u32 BufferSize | from this buffer to the next, header included |
//! | 04 | u32 SavedOffset | end of the used bytes, sometimes too small |
//! | 08 | u32 CurrentOffset | may exceed the buffer; not used |
//! | 10 | i64 TimeStamp | when it was written, on one clock or another; not used |
//! | 18 | i64 SequenceNumber | 0 for the first buffer; a number that is missing is a lost buffer |
//! | 28 | u16 ProcessorIndex | with flag 20h; else u8 ProcessorNumber |
//! | 2a | u16 LoggerId | |
//! | 2c | u32 State | lower half in the first buffer of a compressed file: the compression |
//! | 30 | u32 Offset | end of the used bytes, before compression |
//! | 34 | u16 BufferFlag | [`flag`] |
//! | 36 | u16 BufferType | 0 events, 1 rundown, 4 first buffer, … |

use crate::bytes::{i64_at, u8_at, u16_at, u32_at};

/// Bytes of a buffer's header: its events begin behind them.
pub const HEADER_BYTES: usize = 72;
/// Longest buffer that is believed. Windows allows 16 MiB at most.
pub const MAX_BUFFER_BYTES: u32 = 16 << 20;

const BUFFER_SIZE_AT: usize = 0x00;
const SAVED_OFFSET_AT: usize = 0x04;
const SEQUENCE_AT: usize = 0x18;
const PROCESSOR_AT: usize = 0x28;
const STATE_AT: usize = 0x2c;
const OFFSET_AT: usize = 0x30;
const FLAG_AT: usize = 0x34;
const TYPE_AT: usize = 0x36;

const PROCESSOR_MASK: u16 = 0x7ff;
/// Highest type that Windows defines (`ETW_BUFFER_TYPE_DBG_INFO`), with room for later ones.
const MAX_TYPE: u16 = 15;

/// Bits of [`BufferHeader::flags`], `ETW_BUFFER_FLAG_…`.
pub mod flag {
    /// Written before it was full.
    pub const FLUSH_MARKER: u16 = 0x01;
    /// Events were lost before this buffer.
    pub const EVENTS_LOST: u16 = 0x02;
    /// Buffers were lost before this one.
    pub const BUFFER_LOST: u16 = 0x04;
    /// A real-time session's backup file was damaged.
    pub const RTBACKUP_CORRUPT: u16 = 0x08;
    /// From a real-time session's backup file.
    pub const RTBACKUP: u16 = 0x10;
    /// The processor has 16 bits.
    pub const PROC_INDEX: u16 = 0x20;
    /// The events are compressed.
    pub const COMPRESSED: u16 = 0x40;
    /// All that are known.
    pub const KNOWN: u16 = 0x7f;
}

/// Types of buffers, `ETW_BUFFER_TYPE_…`.
pub mod buffer_type {
    /// Events.
    pub const GENERIC: u16 = 0;
    /// The first buffer of a file.
    pub const HEADER: u16 = 4;
}

/// The header of a buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BufferHeader {
    /// Bytes from this buffer to the next, header included.
    pub size: u32,
    /// End of the used bytes by the field that is sometimes too small.
    pub saved_offset: u32,
    /// End of the used bytes, header included, before compression.
    pub offset: u32,
    /// Number of the buffer in its session; 0 for the first of a file.
    pub sequence: i64,
    /// Processor whose events it holds.
    pub processor: u16,
    /// The field State.
    pub state: u32,
    /// [`flag`].
    pub flags: u16,
    /// [`buffer_type`].
    pub buffer_type: u16,
}

impl BufferHeader {
    /// Reads a header; `None` if there are less than [`HEADER_BYTES`].
    pub fn parse(bytes: &[u8]) -> Option<BufferHeader> {
        let bytes = bytes.first_chunk::<HEADER_BYTES>()?;
        let flags = u16_at(bytes, FLAG_AT)?;
        let processor = match flags & flag::PROC_INDEX {
            0 => u16::from(u8_at(bytes, PROCESSOR_AT)?),
            _ => u16_at(bytes, PROCESSOR_AT)? & PROCESSOR_MASK,
        };
        Some(BufferHeader {
            size: u32_at(bytes, BUFFER_SIZE_AT)?,
            saved_offset: u32_at(bytes, SAVED_OFFSET_AT)?,
            offset: u32_at(bytes, OFFSET_AT)?,
            sequence: i64_at(bytes, SEQUENCE_AT)?,
            processor,
            state: u32_at(bytes, STATE_AT)?,
            flags,
            buffer_type: u16_at(bytes, TYPE_AT)?,
        })
    }

    /// Whether its events are compressed.
    pub fn is_compressed(&self) -> bool {
        self.flags & flag::COMPRESSED != 0
    }

    /// Whether it says that events or buffers were lost before it.
    pub fn follows_loss(&self) -> bool {
        self.flags & (flag::EVENTS_LOST | flag::BUFFER_LOST) != 0
    }

    /// Whether such a buffer can be: its size, flags and type are possible.
    pub(crate) fn is_plausible(&self) -> bool {
        self.size as usize >= HEADER_BYTES
            && self.size <= MAX_BUFFER_BYTES
            && self.flags & !flag::KNOWN == 0
            && self.buffer_type <= MAX_TYPE
            && self.sequence >= 0
    }

    /// Bytes of events, before compression, and whether the header says so: where its end of the
    /// used bytes is impossible, all that the buffer may hold. `nominal` is the size of a buffer
    /// by the trace's header.
    pub(crate) fn used(&self, nominal: u32) -> (usize, bool) {
        let limit = match self.is_compressed() {
            true => nominal,
            false => self.size,
        };
        let possible = |end: &u32| (HEADER_BYTES as u32..=limit).contains(end);
        // The first buffer of a merged file has events behind its SavedOffset.
        let end = [self.offset, self.saved_offset].into_iter().find(possible);
        let used = |end: u32| (end as usize).saturating_sub(HEADER_BYTES);
        (used(end.unwrap_or(limit)), end == Some(self.offset))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes() -> Vec<u8> {
        let mut bytes = vec![0xee; HEADER_BYTES];
        bytes[0x00..0x04].copy_from_slice(&65_536u32.to_le_bytes());
        bytes[0x04..0x08].copy_from_slice(&440u32.to_le_bytes());
        bytes[0x18..0x20].copy_from_slice(&7i64.to_le_bytes());
        bytes[0x28..0x2a].copy_from_slice(&0xf803u16.to_le_bytes());
        bytes[0x30..0x34].copy_from_slice(&520u32.to_le_bytes());
        bytes[0x34..0x36].copy_from_slice(&0x61u16.to_le_bytes());
        bytes[0x36..0x38].copy_from_slice(&1u16.to_le_bytes());
        bytes
    }

    #[test]
    fn fields_stand_where_windows_puts_them() {
        let header = BufferHeader::parse(&bytes()).unwrap();
        assert_eq!(
            (header.size, header.saved_offset, header.offset),
            (65_536, 440, 520)
        );
        assert_eq!((header.sequence, header.processor), (7, 3));
        assert!(header.is_compressed() && !header.follows_loss() && header.is_plausible());
        assert_eq!(BufferHeader::parse(&bytes()[1..]), None);
    }

    #[test]
    fn without_its_flag_a_processor_has_8_bits() {
        let mut bytes = bytes();
        bytes[0x34] = 0;
        assert_eq!(BufferHeader::parse(&bytes).unwrap().processor, 3);
        bytes[0x28] = 0xf8;
        assert_eq!(BufferHeader::parse(&bytes).unwrap().processor, 0xf8);
    }

    #[test]
    fn an_impossible_end_gives_way_to_a_possible_one() {
        let mut header = BufferHeader::parse(&bytes()).unwrap();
        header.flags = 0;
        assert_eq!(header.used(0), (520 - 72, true));
        header.offset = 71;
        assert_eq!(header.used(0), (440 - 72, false));
        header.saved_offset = 65_537;
        assert_eq!(header.used(0), (65_536 - 72, false));
    }
}
