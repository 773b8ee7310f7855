//! One event, with any header.

use std::io;

use thiserror::Error;

use crate::bytes::PointerWidth;
use crate::event::{Event, EventId, HeaderKind};

/// Why an event cannot be written.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum EncodeError {
    /// Its length does not fit its header, or its buffer.
    #[error("an event of {bytes} bytes fits neither 16 bits nor its buffer")]
    TooLong {
        /// Header and payload.
        bytes: usize,
    },
    /// Its header cannot hold such an id.
    #[error("a header of kind {kind:?} cannot hold {id:?}")]
    Header {
        /// The header.
        kind: HeaderKind,
        /// What it is to hold.
        id: EventId,
    },
}

impl From<EncodeError> for io::Error {
    fn from(error: EncodeError) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidInput, error)
    }
}

/// Appends an event, filled up to a multiple of 8 bytes. What the header has no room for (a time in
/// messages, process and thread in PERFINFO) is left out.
///
/// # Errors
///
/// When the event is too long, or its header cannot hold its id.
pub fn event(event: &Event<'_>, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let start = out.len();
    let unfit = EncodeError::Header {
        kind: event.kind,
        id: event.id,
    };
    match (event.kind, event.id) {
        (
            HeaderKind::System | HeaderKind::Compact | HeaderKind::PerfInfo,
            EventId::Kernel { hook },
        ) => {
            system(event, hook, out);
        }
        (HeaderKind::Full | HeaderKind::Instance, EventId::Class { .. }) => class(event, out),
        (HeaderKind::Event, EventId::Provider { .. }) => provider(event, out),
        (HeaderKind::Message, EventId::Message { .. }) => message(event, out),
        _ => return Err(unfit),
    }
    out.extend_from_slice(event.extended);
    out.extend_from_slice(event.payload);
    let bytes = out.len() - start;
    let Ok(size) = u16::try_from(bytes) else {
        out.truncate(start);
        return Err(EncodeError::TooLong { bytes });
    };
    let size_at = match event.kind {
        HeaderKind::System | HeaderKind::Compact | HeaderKind::PerfInfo => start + 4,
        _ => start,
    };
    out[size_at..size_at + 2].copy_from_slice(&size.to_le_bytes());
    out.resize(start + bytes.next_multiple_of(8), 0);
    Ok(())
}

fn is_32(event: &Event<'_>) -> bool {
    event.pointers == PointerWidth::Bits32
}

fn system(event: &Event<'_>, hook: u16, out: &mut Vec<u8>) {
    let header_type = match (event.kind, is_32(event)) {
        (HeaderKind::PerfInfo, true) => 0x10,
        (HeaderKind::PerfInfo, false) => 0x11,
        (HeaderKind::Compact, true) => 0x03,
        (HeaderKind::Compact, false) => 0x04,
        (_, true) => 0x01,
        (_, false) => 0x02,
    };
    out.extend_from_slice(&[event.version, 0, header_type, 0xc0, 0, 0]);
    out.extend_from_slice(&hook.to_le_bytes());
    if event.kind != HeaderKind::PerfInfo {
        thread_and_process(event, out);
    }
    out.extend_from_slice(&event.ticks.unwrap_or_default().to_le_bytes());
    if event.kind == HeaderKind::System {
        out.extend_from_slice(&[0; 8]); // processor times
    }
}

fn class(event: &Event<'_>, out: &mut Vec<u8>) {
    let EventId::Class { class, event_type } = event.id else {
        return;
    };
    let (header_type, rest) = match (event.kind, is_32(event)) {
        (HeaderKind::Instance, true) => (0x0b, 32),
        (HeaderKind::Instance, false) => (0x15, 32),
        (_, true) => (0x0a, 8),
        (_, false) => (0x14, 8),
    };
    out.extend_from_slice(&[0, 0, header_type, 0xc0, event_type, 0, event.version, 0]);
    thread_and_process(event, out);
    out.extend_from_slice(&event.ticks.unwrap_or_default().to_le_bytes());
    out.extend_from_slice(&class.to_bytes());
    out.resize(out.len() + rest, 0); // processor time, instances
}

fn provider(event: &Event<'_>, out: &mut Vec<u8>) {
    let EventId::Provider {
        provider,
        id,
        opcode,
        keyword,
    } = event.id
    else {
        return;
    };
    let (header_type, width): (u8, u16) = match is_32(event) {
        true => (0x12, 0x20),
        false => (0x13, 0x40),
    };
    let extended = u16::from(!event.extended.is_empty());
    out.extend_from_slice(&[0, 0, header_type, 0xc0]);
    out.extend_from_slice(&(width | extended).to_le_bytes());
    out.extend_from_slice(&[0; 2]); // EventProperty
    thread_and_process(event, out);
    out.extend_from_slice(&event.ticks.unwrap_or_default().to_le_bytes());
    out.extend_from_slice(&provider.to_bytes());
    out.extend_from_slice(&id.to_le_bytes());
    out.extend_from_slice(&[event.version, 0, 4, opcode, 0, 0]); // channel, level, task
    out.extend_from_slice(&keyword.to_le_bytes());
    out.extend_from_slice(&[0; 24]); // processor time, activity
}

/// With the GUID of its source file, the time and the process.
fn message(event: &Event<'_>, out: &mut Vec<u8>) {
    let EventId::Message { source, number } = event.id else {
        return;
    };
    let flags: u16 = if source.is_some() { 0x02 } else { 0 }
        | if event.ticks.is_some() { 0x08 } else { 0 }
        | if event.thread_id.is_some() { 0x20 } else { 0 };
    out.extend_from_slice(&[0, 0, 0, 0x90]);
    out.extend_from_slice(&number.to_le_bytes());
    out.extend_from_slice(&flags.to_le_bytes());
    if let Some(source) = source {
        out.extend_from_slice(&source.to_bytes());
    }
    if let Some(ticks) = event.ticks {
        out.extend_from_slice(&ticks.to_le_bytes());
    }
    if event.thread_id.is_some() {
        thread_and_process(event, out);
    }
}

fn thread_and_process(event: &Event<'_>, out: &mut Vec<u8>) {
    let id = |id: Option<u32>| id.unwrap_or(u32::MAX).to_le_bytes();
    out.extend_from_slice(&id(event.thread_id));
    out.extend_from_slice(&id(event.process_id));
}
