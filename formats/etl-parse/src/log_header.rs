//! What a trace says about itself: `TRACE_LOGFILE_HEADER`, the payload of the first event.
//!
//! Behind two pointers (a file has no use for them) the fields of a 32-bit trace stand 8 bytes
//! earlier. Times of day are FILETIMEs: 100 ns since 1601-01-01 UTC.

use crate::bytes::{PointerWidth, i64_at, u8_at, u32_at, utf16_at};

/// Bits of [`LogHeader::mode`], `EVENT_TRACE_…_MODE`.
pub mod mode {
    /// The newest events replace the oldest.
    pub const CIRCULAR: u32 = 0x02;
    /// The session goes on to a new file when one is full.
    pub const NEW_FILE: u32 = 0x08;
    /// Events are delivered as they come.
    pub const REAL_TIME: u32 = 0x100;
    /// Written again from other files.
    pub const RELOG: u32 = 0x1_0000;
    /// A session of the kernel's.
    pub const SYSTEM_LOGGER: u32 = 0x0200_0000;
    /// The buffers are compressed.
    pub const COMPRESSED: u32 = 0x0400_0000;
}

const BUFFER_SIZE_AT: usize = 0x00;
const OS_AT: usize = 0x04;
const BUILD_AT: usize = 0x08;
const PROCESSORS_AT: usize = 0x0c;
const END_TIME_AT: usize = 0x10;
const MODE_AT: usize = 0x20;
const BUFFERS_AT: usize = 0x24;
const EVENTS_LOST_AT: usize = 0x30;
const CPU_MHZ_AT: usize = 0x34;
/// Behind this, the places are those of a 64-bit trace.
const POINTERS_AT: usize = 0x38;
const BOOT_TIME_AT: usize = 0xf8;
const FREQUENCY_AT: usize = 0x100;
const START_TIME_AT: usize = 0x108;
const CLOCK_AT: usize = 0x110;
const BUFFERS_LOST_AT: usize = 0x114;
const NAMES_AT: usize = 0x118;

/// A trace's header.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogHeader {
    /// Size of a buffer before compression, header included.
    pub buffer_size: u32,
    /// Version of Windows: 10.0, 6.1 and so on.
    pub os_version: (u8, u8),
    /// Build of Windows.
    pub os_build: u32,
    /// How many processors the traced system had.
    pub processors: u32,
    /// How the session wrote: bits of [`mode`].
    pub mode: u32,
    /// How many buffers were written; 0 or wrong while a session writes.
    pub buffers_written: u32,
    /// Width of the traced system's pointers.
    pub pointers: PointerWidth,
    /// How many events the session lost.
    pub events_lost: u32,
    /// How many buffers the session lost.
    pub buffers_lost: u32,
    /// Speed of the processors.
    pub cpu_mhz: u32,
    /// FILETIME of the system's start.
    pub boot_filetime: i64,
    /// FILETIME of the trace's start.
    pub start_filetime: i64,
    /// FILETIME of the trace's end; 0 while a session writes.
    pub end_filetime: i64,
    /// Ticks of the performance counter in a second.
    pub perf_frequency: i64,
    /// Type of the clock behind the events' times ([`crate::ClockType`]).
    pub clock_type: u32,
    /// Time of the event that carries this header, in ticks of the trace's clock: the start.
    pub start_ticks: i64,
    /// Name of the session; `Relogger` in merged files.
    pub session: String,
    /// The file that the session wrote.
    pub file: String,
}

impl LogHeader {
    /// Reads the header from the first event's payload; `None` if it is too short.
    pub fn parse(payload: &[u8], pointers: PointerWidth, start_ticks: i64) -> Option<LogHeader> {
        let shift = 2 * (8 - pointers.bytes());
        let behind = |at: usize| at - shift;
        debug_assert!(POINTERS_AT > shift);
        let (session, file_at) = utf16_at(payload, behind(NAMES_AT));
        let (file, _) = utf16_at(payload, file_at);
        Some(LogHeader {
            buffer_size: u32_at(payload, BUFFER_SIZE_AT)?,
            os_version: (u8_at(payload, OS_AT)?, u8_at(payload, OS_AT + 1)?),
            os_build: u32_at(payload, BUILD_AT)?,
            processors: u32_at(payload, PROCESSORS_AT)?,
            mode: u32_at(payload, MODE_AT)?,
            buffers_written: u32_at(payload, BUFFERS_AT)?,
            pointers,
            events_lost: u32_at(payload, EVENTS_LOST_AT)?,
            buffers_lost: u32_at(payload, behind(BUFFERS_LOST_AT))?,
            cpu_mhz: u32_at(payload, CPU_MHZ_AT)?,
            boot_filetime: i64_at(payload, behind(BOOT_TIME_AT))?,
            start_filetime: i64_at(payload, behind(START_TIME_AT))?,
            end_filetime: i64_at(payload, END_TIME_AT)?,
            perf_frequency: i64_at(payload, behind(FREQUENCY_AT))?,
            clock_type: u32_at(payload, behind(CLOCK_AT))?,
            start_ticks,
            session,
            file,
        })
    }

    /// Whether the newest events replaced the oldest.
    pub fn is_circular(&self) -> bool {
        self.mode & mode::CIRCULAR != 0
    }
}
