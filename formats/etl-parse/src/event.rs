//! Events: one of ten headers, and a payload.
//!
//! Byte 2 of a header is its type, byte 3 has flags. Layout and names are those of `ntwmi.h` of
//! phnt; lengths include the header and are rounded up to 8 for the next event:
//!
//! | type | name | header | length | |
//! |---|---|---|---|---|
//! | 01, 02 | SYSTEM 32, 64 | 32 | u16 at 4 | Version 0, Type 6, Group 7, thread 8, process 12, time 16 |
//! | 03, 04 | COMPACT 32, 64 | 24 | u16 at 4 | the same |
//! | 10, 11 | PERFINFO 32, 64 | 16 | u16 at 4 | Version 0, Type 6, Group 7, time 8 |
//! | 0a, 14 | FULL 32, 64 | 48 | u16 at 0 | Type 4, Level 5, Version 6, thread 8, process 12, time 16, GUID 24 |
//! | 0b, 15 | INSTANCE 32, 64 | 72 | u16 at 0 | as FULL |
//! | 12, 13 | EVENT_HEADER 32, 64 | 80 | u16 at 0 | Flags 4, thread 8, process 12, time 16, provider 24, Id 40, Version 42, Level 44, Opcode 45, Keyword 48 |
//! | – | MESSAGE (byte 3: 90) | 8 | u16 at 0 | number 4, flags 6 |

use crate::bytes::{PointerWidth, i64_at, u8_at, u16_at, u32_at, u64_at};
use crate::guid::Guid;
use crate::kernel;

/// Header of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HeaderKind {
    /// `SYSTEM_TRACE_HEADER`: kernel events with process and thread.
    System,
    /// `SYSTEM_TRACE_HEADER` without processor times.
    Compact,
    /// `PERFINFO_TRACE_HEADER`: kernel events without process and thread.
    PerfInfo,
    /// `EVENT_TRACE_HEADER`: events of a class with a GUID.
    Full,
    /// `EVENT_INSTANCE_GUID_HEADER`.
    Instance,
    /// `EVENT_HEADER`: events of providers with a manifest or with self-describing events.
    Event,
    /// `MESSAGE_TRACE_HEADER`: WPP messages.
    Message,
    /// A header of another type, of which only the length is known.
    Other(u8),
}

/// What kind of event it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventId {
    /// A kernel event: its group in the upper byte, its type in the lower.
    Kernel {
        /// Such as `0x010a`: a disk read.
        hook: u16,
    },
    /// An event of a class that is known by a GUID.
    Class {
        /// Which class.
        class: Guid,
        /// Which event of the class.
        event_type: u8,
    },
    /// An event of a provider.
    Provider {
        /// Which provider.
        provider: Guid,
        /// Number of the event in the provider's manifest.
        id: u16,
        /// Its operation.
        opcode: u8,
        /// Its keywords.
        keyword: u64,
    },
    /// A WPP message.
    Message {
        /// The GUID of the message's source file, if it is there.
        source: Option<Guid>,
        /// Number of the message in that file.
        number: u16,
    },
    /// Of a header that is not known.
    Other,
    /// The header contradicts the length of the event.
    Malformed,
}

/// An event.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Event<'a> {
    /// Its header's form.
    pub kind: HeaderKind,
    /// What it is.
    pub id: EventId,
    /// Version of its payload.
    pub version: u8,
    /// When, in ticks of the trace's clock ([`crate::Clock`]); `None` where the header has no time.
    pub ticks: Option<i64>,
    /// Processor on which it was reported.
    pub processor: u16,
    /// Process that was running, if the header says so.
    pub process_id: Option<u32>,
    /// Thread that was running, if the header says so.
    pub thread_id: Option<u32>,
    /// Width of the pointers in the payload.
    pub pointers: PointerWidth,
    /// The payload.
    pub payload: &'a [u8],
    /// The extended data of an [`HeaderKind::Event`] header: a chain of items.
    pub extended: &'a [u8],
}

/// Why bytes are no event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadEvent;

const FLAGS_AT: usize = 3;
const HEADER_TYPE_AT: usize = 2;
/// Set in byte 3 of every event.
const FLAG_TRACE_HEADER: u8 = 0x80;
/// And of every one but messages and bare times.
const FLAG_EVENT_TRACE: u8 = 0x40;
const FLAG_MESSAGE: u8 = 0x10;
const SYSTEM_SIZE_AT: usize = 4;
/// What a field of process or thread holds where there is none.
const NOBODY: u32 = u32::MAX;
const END_MARKER: u32 = u32::MAX;

/// Where an event stands in a buffer: all that is needed to put events in order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame {
    pub start: usize,
    pub bytes: usize,
    kind: HeaderKind,
    pointers: PointerWidth,
    header_bytes: usize,
    pub ticks: Option<i64>,
}

impl Frame {
    /// Where the next event begins.
    pub fn next(&self) -> usize {
        self.start + self.bytes.next_multiple_of(8)
    }
}

/// The event that begins at `start`; `None` where there are no more.
#[inline]
pub(crate) fn frame_at(buffer: &[u8], start: usize) -> Option<Result<Frame, BadEvent>> {
    let event = buffer.get(start..)?;
    if event.len() < 8 || u32_at(event, 0) == Some(END_MARKER) {
        return None;
    }
    Some(frame(event, start).ok_or(BadEvent))
}

/// Whether these are the first bytes of the event that every file begins with.
pub(crate) fn is_log_header(event: &[u8]) -> bool {
    let start = |range: std::ops::Range<usize>| event.get(range).unwrap_or_default();
    let is_system = matches!(start(2..4), [0x01 | 0x02, 0xc0]);
    is_system && start(6..8) == [0, 0]
}

#[inline]
fn frame(event: &[u8], start: usize) -> Option<Frame> {
    let flags = u8_at(event, FLAGS_AT)?;
    if flags & FLAG_TRACE_HEADER == 0 {
        return None;
    }
    let (kind, pointers, header_bytes, size_at, ticks_at) = match flags & FLAG_EVENT_TRACE {
        0 => message_form(flags),
        _ => form(u8_at(event, HEADER_TYPE_AT)?),
    };
    let bytes = usize::from(u16_at(event, size_at)?);
    if bytes < header_bytes || bytes > event.len() {
        return None;
    }
    let ticks = match ticks_at {
        0 => message_ticks(kind, event),
        at => i64_at(event, at),
    };
    Some(Frame {
        start,
        bytes,
        kind,
        pointers,
        header_bytes,
        ticks,
    })
}

/// Kind, width of pointers, bytes of the header, place of the length and place of the time.
type Form = (HeaderKind, PointerWidth, usize, usize, usize);

#[inline]
fn form(header_type: u8) -> Form {
    use HeaderKind::{Compact, Event, Full, Instance, Other, PerfInfo, System};
    use PointerWidth::{Bits32, Bits64};
    match header_type {
        0x01 => (System, Bits32, 32, SYSTEM_SIZE_AT, 16),
        0x02 => (System, Bits64, 32, SYSTEM_SIZE_AT, 16),
        0x03 => (Compact, Bits32, 24, SYSTEM_SIZE_AT, 16),
        0x04 => (Compact, Bits64, 24, SYSTEM_SIZE_AT, 16),
        0x10 => (PerfInfo, Bits32, 16, SYSTEM_SIZE_AT, 8),
        0x11 => (PerfInfo, Bits64, 16, SYSTEM_SIZE_AT, 8),
        0x0a => (Full, Bits32, 48, 0, 16),
        0x14 => (Full, Bits64, 48, 0, 16),
        0x0b => (Instance, Bits32, 72, 0, 16),
        0x15 => (Instance, Bits64, 72, 0, 16),
        0x12 => (Event, Bits32, 80, 0, 16),
        0x13 => (Event, Bits64, 80, 0, 16),
        other => (Other(other), Bits64, 8, 0, 0),
    }
}

fn message_form(flags: u8) -> Form {
    let kind = match flags {
        flags if flags & (FLAG_MESSAGE | 0x20) == FLAG_MESSAGE => HeaderKind::Message,
        other => HeaderKind::Other(other),
    };
    (kind, PointerWidth::Bits64, 8, 0, 0)
}

/// What a message has between its header and its arguments, by flags in this order:
/// `TRACE_MESSAGE_…` of `evntrace.h`.
#[derive(Default)]
struct MessageParts {
    source: Option<usize>,
    ticks: Option<usize>,
    thread: Option<usize>,
    end: usize,
}

impl MessageParts {
    fn of(event: &[u8]) -> MessageParts {
        let flags = u16_at(event, 6).unwrap_or_default();
        let mut parts = MessageParts {
            end: 8,
            ..MessageParts::default()
        };
        let mut take = |bit: u16, bytes: usize| {
            (flags & bit != 0).then(|| {
                parts.end += bytes;
                parts.end - bytes
            })
        };
        take(0x01, 4); // a number
        let source = take(0x02, 16);
        if source.is_none() {
            take(0x04, 4); // a component instead
        }
        let ticks = take(0x08, 8);
        let thread = take(0x20, 8); // and process
        MessageParts {
            source,
            ticks,
            thread,
            end: parts.end,
        }
    }
}

fn message_ticks(kind: HeaderKind, event: &[u8]) -> Option<i64> {
    match kind {
        HeaderKind::Message => i64_at(event, MessageParts::of(event).ticks?),
        _ => None,
    }
}

impl<'a> Event<'a> {
    /// The event of a frame that was found in this buffer.
    #[inline]
    pub(crate) fn new(buffer: &'a [u8], frame: &Frame, processor: u16) -> Event<'a> {
        let bytes = buffer.get(frame.start..frame.start + frame.bytes);
        let bytes = bytes.unwrap_or_default();
        let event = Event {
            kind: frame.kind,
            id: EventId::Other,
            version: 0,
            ticks: frame.ticks,
            processor,
            process_id: None,
            thread_id: None,
            pointers: frame.pointers,
            payload: bytes.get(frame.header_bytes..).unwrap_or_default(),
            extended: &[],
        };
        event.with_header(bytes).unwrap_or(Event {
            id: EventId::Malformed,
            ..event
        })
    }

    /// Adds what the header says; `None` if it contradicts its length.
    #[inline]
    fn with_header(self, bytes: &'a [u8]) -> Option<Event<'a>> {
        match self.kind {
            HeaderKind::System | HeaderKind::Compact => self.system(bytes)?.with_thread(bytes),
            HeaderKind::PerfInfo => self.system(bytes),
            HeaderKind::Full | HeaderKind::Instance => self.class(bytes)?.with_thread(bytes),
            HeaderKind::Event => self.provider(bytes)?.with_thread(bytes),
            HeaderKind::Message => self.message(bytes),
            HeaderKind::Other(_) => Some(self),
        }
    }

    /// Group and type of a kernel event; for one that carries the GUID of its class instead, the
    /// same numbers. Such are events that a user's session copied.
    #[inline]
    pub fn hook(&self) -> Option<u16> {
        match self.id {
            EventId::Kernel { hook } => Some(hook),
            EventId::Class { class, event_type } => kernel::hook_of(class, event_type),
            EventId::Provider {
                provider, opcode, ..
            } => kernel::hook_of(provider, opcode),
            EventId::Message { .. } | EventId::Other | EventId::Malformed => None,
        }
    }

    /// Adds what SYSTEM, COMPACT and PERFINFO headers have. Performance counters may stand between
    /// the header and the payload; their number is in the version.
    #[inline]
    fn system(mut self, bytes: &'a [u8]) -> Option<Event<'a>> {
        let version = u16_at(bytes, 0)?;
        let counters = usize::from(version >> 8 & 7) + usize::from(version >> 15);
        if counters > 0 {
            self.payload = self.payload.get(8 * counters..)?;
        }
        self.version = version as u8;
        let hook = u16_at(bytes, 6)?; // Type in the lower byte, Group in the upper
        self.id = EventId::Kernel { hook };
        Some(self)
    }

    fn class(mut self, bytes: &'a [u8]) -> Option<Event<'a>> {
        self.version = u16_at(bytes, 6)? as u8;
        self.id = EventId::Class {
            class: Guid::at(bytes, 24)?,
            event_type: u8_at(bytes, 4)?,
        };
        Some(self)
    }

    fn provider(mut self, bytes: &'a [u8]) -> Option<Event<'a>> {
        const EXTENDED_INFO: u16 = 0x01;
        self.version = u8_at(bytes, 42)?;
        self.id = EventId::Provider {
            provider: Guid::at(bytes, 24)?,
            id: u16_at(bytes, 40)?,
            opcode: u8_at(bytes, 45)?,
            keyword: u64_at(bytes, 48)?,
        };
        if u16_at(bytes, 4)? & EXTENDED_INFO != 0 {
            let extended_bytes = extended_bytes(self.payload)?;
            (self.extended, self.payload) = self.payload.split_at_checked(extended_bytes)?;
        }
        Some(self)
    }

    fn message(mut self, bytes: &'a [u8]) -> Option<Event<'a>> {
        let parts = MessageParts::of(bytes);
        self.id = EventId::Message {
            source: parts.source.and_then(|at| Guid::at(bytes, at)),
            number: u16_at(bytes, 4)?,
        };
        self.thread_id = parts.thread.and_then(|at| u32_at(bytes, at));
        self.process_id = parts.thread.and_then(|at| u32_at(bytes, at + 4));
        self.payload = bytes.get(parts.end..).unwrap_or_default();
        Some(self)
    }

    #[inline]
    fn with_thread(mut self, bytes: &[u8]) -> Option<Event<'a>> {
        let known = |id: u32| (id != NOBODY).then_some(id);
        self.thread_id = known(u32_at(bytes, 8)?);
        self.process_id = known(u32_at(bytes, 12)?);
        Some(self)
    }

    /// Name that a provider of self-describing events gives itself.
    pub fn provider_name(&self) -> Option<String> {
        const PROVIDER_TRAITS: u16 = 12;
        let mut rest = self.extended;
        while let (Some(item_type), Some(bytes)) = (u16_at(rest, 2), u16_at(rest, 6)) {
            let end = 8 + usize::from(bytes);
            if item_type == PROVIDER_TRAITS {
                // Their length in 16 bits, then the name in UTF-8.
                let name = rest.get(8 + 2..end)?.split(|byte| *byte == 0).next()?;
                return Some(String::from_utf8_lossy(name).into_owned());
            }
            rest = rest.get(end.next_multiple_of(8)..)?;
        }
        None
    }
}

/// Length of a chain of extended items: u16 reserved, u16 type, u16 whose lowest bit says that more
/// follow, u16 length, data up to a multiple of 8.
fn extended_bytes(payload: &[u8]) -> Option<usize> {
    const MORE: u16 = 1;
    let mut end = 0usize;
    loop {
        let linkage = u16_at(payload, end + 4)?;
        let bytes = usize::from(u16_at(payload, end + 6)?);
        end = (end + 8 + bytes).next_multiple_of(8);
        if linkage & MORE == 0 {
            return Some(end.min(payload.len()));
        }
    }
}
