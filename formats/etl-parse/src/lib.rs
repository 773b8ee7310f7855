//! Windows event trace logs (`.etl`), on any system.
//!
//! Event Tracing for Windows (ETW) writes what the kernel and programs report into buffers, one for
//! each processor, and the buffers into a file, one behind the other. Windows can read such files;
//! this crate needs no Windows. Bytes flow in, events flow out:
//!
//! ```text
//! file → buffers (found, checked, decompressed) → one stream a processor → merge by time → events
//! ```
//!
//! - [`Reader`] does all of that for a file. It reads live, merged, circular, compressed and damaged
//!   files; damage never stops it and is accounted for ([`Damage`], [`Losses`]).
//! - [`Event`] is an event: its header, of whatever form, and its payload.
//! - [`kernel`] reads the payloads of the kernel's disk, process, thread and configuration events.
//! - [`storport`] reads those of the port driver.
//! - [`decompress()`] decodes LZNT1, XPRESS and XPRESS Huffman.
//! - [`encode`] writes traces, for tests.
//!
//! Memory does not depend on the length of the file: one buffer for each processor.
//!
//! ```no_run
//! use etl_parse::Reader;
//! use etl_parse::kernel::DiskIo;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut trace = Reader::open(std::fs::File::open("server.etl")?)?;
//! let clock = *trace.clock();
//! while let Some(event) = trace.next_event()? {
//!     if let (Some(DiskIo::Transfer(done)), Some(ticks)) = (DiskIo::parse(&event), event.ticks) {
//!         let ns = clock.since_start_ns(ticks);
//!         println!("{ns} {} {} {}", done.disk, done.offset, done.bytes);
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! There is no public specification of the file. Each layout here names what it was read from; all
//! that real traces could confirm was checked against them.

#![forbid(unsafe_code)]

mod buffer;
mod bytes;
mod clock;
mod damage;
mod decompress;
pub mod encode;
mod error;
mod event;
mod guid;
pub mod kernel;
mod log_header;
mod read;
mod source;
pub mod storport;
mod streams;
mod walk;

pub use buffer::{BufferHeader, HEADER_BYTES, MAX_BUFFER_BYTES, buffer_type, flag};
pub use bytes::PointerWidth;
pub use clock::{Clock, ClockType};
pub use damage::{Damage, Losses, Region};
pub use decompress::{Compression, DecompressError, decompress};
pub use error::Error;
pub use event::{Event, EventId, HeaderKind};
pub use guid::Guid;
pub use log_header::{LogHeader, mode};
pub use read::{Reader, is_trace};
