//! Writes event trace logs: for tests, benchmarks and simulated sessions.
//!
//! [`Encoder`] fills one buffer a processor as a session does, compresses it if asked, and writes it
//! when it is full; [`event()`] writes one event with any header. What a session would lose or damage
//! is left to the caller, who has the bytes.

mod compress;
mod event;
mod huffman;
pub mod payload;

pub use compress::compress;
pub use event::{EncodeError, event};

use std::collections::BTreeMap;
use std::io::{self, Write};

use crate::buffer::{HEADER_BYTES, buffer_type, flag};
use crate::bytes::PointerWidth;
use crate::decompress::Compression;
use crate::event::{Event, EventId, HeaderKind};
use crate::kernel::hook;
use crate::log_header::{LogHeader, mode};

/// State of a written buffer (`EtwBufferStateFlush`); in the first buffer of a compressed file the
/// compression stands there instead.
const STATE_FLUSHED: u32 = 3;

/// Writes a trace into a sink.
#[derive(Debug)]
pub struct Encoder<W> {
    sink: W,
    buffer_bytes: usize,
    compression: Option<Compression>,
    open: BTreeMap<u16, Open>,
    sequence: i64,
    written: u64,
}

/// A buffer that is being filled.
#[derive(Debug)]
struct Open {
    events: Vec<u8>,
    sequence: i64,
    last_ticks: i64,
}

impl<W: Write> Encoder<W> {
    /// Begins a trace with its first buffer, which holds `header`.
    ///
    /// # Errors
    ///
    /// When the header does not fit a buffer, or the sink fails.
    pub fn start(
        sink: W,
        header: &LogHeader,
        compression: Option<Compression>,
    ) -> io::Result<Encoder<W>> {
        let mut encoder = Encoder {
            sink,
            buffer_bytes: header.buffer_size as usize,
            compression,
            open: BTreeMap::new(),
            sequence: 1,
            written: 0,
        };
        let mut header = header.clone();
        if compression.is_some() {
            header.mode |= mode::COMPRESSED;
        }
        let mut events = Vec::new();
        let first = Event {
            kind: HeaderKind::System,
            id: EventId::Kernel {
                hook: hook::LOG_HEADER,
            },
            version: 2,
            ticks: Some(header.start_ticks),
            processor: 0,
            process_id: Some(4),
            thread_id: Some(8),
            pointers: header.pointers,
            payload: &payload::log_header(&header),
            extended: &[],
        };
        event(&first, &mut events)?;
        let state = compression.map_or(STATE_FLUSHED, |found| u32::from(found.number()));
        let bytes = buffer(&Written {
            events: &events,
            used: events.len(),
            size: match compression {
                Some(_) => (HEADER_BYTES + events.len()).next_multiple_of(512),
                None => encoder.buffer_bytes,
            },
            state,
            flags: flag::FLUSH_MARKER,
            buffer_type: buffer_type::HEADER,
            ..Written::default()
        });
        encoder.write(&bytes)?;
        Ok(encoder)
    }

    /// Adds an event to the buffer of its processor; writes the buffer if it does not fit.
    ///
    /// # Errors
    ///
    /// When the event fits no buffer, or the sink fails.
    pub fn push(&mut self, new: &Event<'_>) -> io::Result<()> {
        let mut bytes = Vec::new();
        event(new, &mut bytes)?;
        let room = self.buffer_bytes.saturating_sub(HEADER_BYTES);
        if bytes.len() > room {
            return Err(EncodeError::TooLong { bytes: bytes.len() }.into());
        }
        let open = self.open.get(&new.processor);
        if open.is_some_and(|open| open.events.len() + bytes.len() > room) {
            self.flush(new.processor)?;
        }
        let sequence = &mut self.sequence;
        let open = self.open.entry(new.processor).or_insert_with(|| {
            *sequence += 1;
            Open {
                events: Vec::new(),
                sequence: *sequence - 1,
                last_ticks: 0,
            }
        });
        open.events.extend_from_slice(&bytes);
        open.last_ticks = new.ticks.unwrap_or(open.last_ticks);
        Ok(())
    }

    /// Writes the buffer of a processor, if it has events.
    ///
    /// # Errors
    ///
    /// When the sink fails.
    pub fn flush(&mut self, processor: u16) -> io::Result<()> {
        let Some(open) = self.open.remove(&processor) else {
            return Ok(());
        };
        let compressed = self
            .compression
            .map(|compression| compress(compression, &open.events));
        let body = compressed.as_deref().unwrap_or(&open.events);
        let bytes = buffer(&Written {
            events: body,
            used: open.events.len(),
            size: match self.compression {
                Some(_) => HEADER_BYTES + body.len(),
                None => self.buffer_bytes,
            },
            state: STATE_FLUSHED,
            flags: match self.compression {
                Some(_) => flag::PROC_INDEX | flag::COMPRESSED,
                None => flag::PROC_INDEX,
            },
            buffer_type: buffer_type::GENERIC,
            sequence: open.sequence,
            processor,
            time: open.last_ticks,
        });
        self.write(&bytes)
    }

    /// How many bytes were written.
    pub fn bytes_written(&self) -> u64 {
        self.written
    }

    /// Writes the buffers that have events, and returns the sink.
    ///
    /// # Errors
    ///
    /// When the sink fails.
    pub fn finish(mut self) -> io::Result<W> {
        while let Some(processor) = self.open.keys().next().copied() {
            self.flush(processor)?;
        }
        self.sink.flush()?;
        Ok(self.sink)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.written += bytes.len() as u64;
        self.sink.write_all(bytes)
    }
}

/// What a buffer says.
#[derive(Default)]
struct Written<'a> {
    events: &'a [u8],
    /// Bytes of events before compression.
    used: usize,
    size: usize,
    state: u32,
    flags: u16,
    buffer_type: u16,
    sequence: i64,
    processor: u16,
    time: i64,
}

/// A whole buffer: header, events, and what fills the rest.
fn buffer(written: &Written<'_>) -> Vec<u8> {
    // Sizes of buffers are far below 32 bits.
    let (size, end) = (written.size as u32, (HEADER_BYTES + written.used) as u32);
    let mut bytes = Vec::with_capacity(written.size);
    bytes.extend_from_slice(&size.to_le_bytes());
    bytes.extend_from_slice(&end.to_le_bytes()); // SavedOffset
    bytes.extend_from_slice(&end.saturating_add(size).to_le_bytes()); // CurrentOffset
    bytes.extend_from_slice(&0u32.to_le_bytes()); // ReferenceCount
    bytes.extend_from_slice(&written.time.to_le_bytes());
    bytes.extend_from_slice(&written.sequence.to_le_bytes());
    bytes.extend_from_slice(&0u64.to_le_bytes()); // ClockType and Frequency
    bytes.extend_from_slice(&written.processor.to_le_bytes());
    bytes.extend_from_slice(&1u16.to_le_bytes()); // LoggerId
    bytes.extend_from_slice(&written.state.to_le_bytes());
    bytes.extend_from_slice(&end.to_le_bytes()); // Offset
    bytes.extend_from_slice(&written.flags.to_le_bytes());
    bytes.extend_from_slice(&written.buffer_type.to_le_bytes());
    bytes.resize(HEADER_BYTES, 0);
    bytes.extend_from_slice(written.events);
    bytes.resize(written.size, 0xff);
    bytes
}

/// The header of a trace with usual values: 64 KiB buffers, 10 MHz performance counter, 64 bits.
pub fn usual_header() -> LogHeader {
    LogHeader {
        buffer_size: 64 << 10,
        os_version: (10, 0),
        os_build: 20_348,
        processors: 4,
        mode: 1, // sequential
        buffers_written: 0,
        pointers: PointerWidth::Bits64,
        cpu_mhz: 2500,
        boot_filetime: 132_000_000_000_000_000,
        start_filetime: 132_000_000_600_000_000,
        end_filetime: 132_000_001_200_000_000,
        perf_frequency: 10_000_000,
        clock_type: 1,
        start_ticks: 600_000_000,
        session: "iotape".to_owned(),
        file: "iotape.etl".to_owned(),
        ..LogHeader::default()
    }
}
