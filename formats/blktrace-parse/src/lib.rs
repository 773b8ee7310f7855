//! The records of Linux block traces (`blktrace`), from bytes.
//!
//! `blktrace` and the kernel's `blk` tracer write binary records: one header of 48 bytes
//! (version 7) or 64 bytes (version 8, Linux 6.19 and later) per event, some with a payload behind
//! it. This crate reads both versions in both byte orders, and writes them.
//!
//! - [`Decoder`] turns bytes into [`Record`]s. It does no I/O: files, pipes, tests and fuzzers feed
//!   the same core. Damage never stops it; it skips to the next record and accounts for each byte
//!   ([`Damage`]).
//! - [`Reader`] feeds a decoder from anything that is [`Read`](std::io::Read).
//! - [`Merged`] puts the records of several files, one per CPU, in order of time.
//! - [`SequenceTracker`] finds the records that the kernel had to drop.
//! - [`encode()`] writes a record.
//!
//! Memory does not depend on the size of the files: one buffer per file, and what a record borrows
//! from it.
//!
//! ```no_run
//! use blktrace_parse::{Kind, Merged, Reader};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut readers = Vec::new();
//! for cpu in 0..4 {
//!     let file = std::fs::File::open(format!("sda.blktrace.{cpu}"))?;
//!     readers.push(Reader::new(file));
//! }
//! let mut merged = Merged::new(readers)?;
//! let mut issued_bytes = 0;
//! while let Some((_, record)) = merged.next_record()? {
//!     if record.action.kind() == Kind::Issue {
//!         issued_bytes += u64::from(record.bytes);
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! What a record means is left as the kernel wrote it: pairing issues with completions, naming
//! operations and attributing them is the caller's.

#![forbid(unsafe_code)]

mod action;
mod damage;
mod decode;
mod encode;
mod error;
mod format;
mod layout;
mod merge;
mod read;
mod record;
mod sequence;

pub use action::{Action, Categories, Kind};
pub use damage::{Damage, Region, Truncated};
pub use decode::{Decoder, Step};
pub use encode::{EncodeError, encode};
pub use error::Error;
pub use format::{ByteOrder, Format, Version};
pub use merge::{Continuation, Merged, SourceError};
pub use read::Reader;
pub use record::{DeviceNumber, Payload, Record};
pub use sequence::{Gap, Numbering, Observation, SequenceTracker};
