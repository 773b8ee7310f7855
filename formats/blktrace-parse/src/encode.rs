//! From records to bytes, in any format.

use thiserror::Error;

use crate::action::Kind;
use crate::format::{ByteOrder, Format, Version};
use crate::layout::{CGROUP_ID, v8, wall_clock};
use crate::record::Record;

/// Why a record cannot be written in a format.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum EncodeError {
    /// Version 7 has 16 bits for the categories.
    #[error("action {action:#x} needs version 8: version 7 stores its lowest 32 bits only")]
    ActionTooWide {
        /// The action.
        action: u64,
    },
    /// The length of a payload is stored in 16 bits.
    #[error("a payload of {bytes} bytes, expected at most 65535 with the control group's id")]
    PayloadTooLong {
        /// Its length, with the control group's id.
        bytes: usize,
    },
    /// The mark in the action and the control group's id must agree.
    #[error("action {action:#x} and control group {cgroup:?} contradict each other")]
    CgroupMark {
        /// The action.
        action: u64,
        /// The control group's id.
        cgroup: Option<u64>,
    },
}

/// Appends `record` to `out` as a kernel of this version and byte order writes it.
///
/// The numbers of a wall-clock note are turned into the byte order of `format`; other payloads
/// are the same in both.
///
/// # Errors
///
/// When the format has no room for the action or the payload; `out` is unchanged then.
pub fn encode(record: &Record<'_>, format: Format, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let action = record.action.0;
    if record.action.has_cgroup() != record.cgroup.is_some() {
        let cgroup = record.cgroup;
        return Err(EncodeError::CgroupMark { action, cgroup });
    }
    let bytes = record
        .pdu
        .len()
        .saturating_add(record.cgroup.map_or(0, |_| CGROUP_ID));
    let pdu_len = u16::try_from(bytes).map_err(|_| EncodeError::PayloadTooLong { bytes })?;
    let narrow = u32::try_from(action);
    let order = format.order;

    let start = out.len();
    out.extend(format.magic());
    put_u32(out, order, record.sequence);
    put_u64(out, order, record.time_ns);
    put_u64(out, order, record.sector);
    put_u32(out, order, record.bytes);
    match (format.version, narrow) {
        (Version::V7, Ok(action)) => {
            put_u32(out, order, action);
            put_u32(out, order, record.pid);
        }
        (Version::V7, Err(_)) => {
            out.truncate(start);
            return Err(EncodeError::ActionTooWide { action });
        }
        (Version::V8, _) => {
            put_u32(out, order, record.pid);
            put_u64(out, order, action);
        }
    }
    put_u32(out, order, record.device.0);
    put_u32(out, order, record.cpu);
    put_u16(out, order, record.error);
    put_u16(out, order, pdu_len);
    if format.version == Version::V8 {
        out.extend([0; v8::PADDING_BYTES]);
    }
    if let Some(cgroup) = record.cgroup {
        put_u64(out, order, cgroup);
    }
    put_payload(out, order, record);
    Ok(())
}

fn put_payload(out: &mut Vec<u8>, order: ByteOrder, record: &Record<'_>) {
    let mut rest = record.pdu;
    if record.action.kind() == Kind::WallClock
        && let Some((seconds, nanoseconds)) = record.wall_clock_words()
    {
        put_u32(out, order, seconds);
        put_u32(out, order, nanoseconds);
        rest = rest.get(wall_clock::SIZE..).unwrap_or_default();
    }
    out.extend_from_slice(rest);
}

macro_rules! put_number {
    ($name:ident, $number:ty) => {
        fn $name(out: &mut Vec<u8>, order: ByteOrder, number: $number) {
            out.extend(match order {
                ByteOrder::Little => number.to_le_bytes(),
                ByteOrder::Big => number.to_be_bytes(),
            });
        }
    };
}

put_number!(put_u16, u16);
put_number!(put_u32, u32);
put_number!(put_u64, u64);
