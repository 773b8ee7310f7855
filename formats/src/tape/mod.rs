//! The tape: requests and what is known about their capture, in one file.
//!
//! A tape is written front to back by a recorder that may die at any moment, and read years later
//! by somebody who has a damaged copy and the specification (`docs/format.md`). So it is a chain of
//! records, each found by a marker and proved by checksums; requests lie in blocks that need nothing
//! from each other; and the footer only repeats, in one place, what the records say.
//!
//! Within a block each field is a column of its own, since the values of one field resemble each
//! other more than they resemble their neighbours in the same request.
//!
//! [`Encoder`] and [`Scanner`] do no I/O; [`TapeWriter`] and [`TapeReader`] put a sink and a source
//! behind them.

mod block;
mod boundary;
mod catalog;
mod chain;
mod check;
mod column;
mod damage;
mod decode;
mod encode;
mod encoder;
mod error;
mod id;
mod metadata;
mod model;
mod names;
mod pause;
mod reader;
mod repair;
mod scanner;
mod seam;
mod source;
mod tally;
mod wire;
mod writer;

pub use block::{Block, OptionalColumn};
pub use catalog::Part;
pub use check::{CheckReport, check};
pub use column::Columns;
pub use damage::{BadRecord, Damage, Fault};
pub use encoder::{Encoder, Level};
pub use error::{Corrupt, TapeError};
pub use id::{InvalidTapeId, TapeId};
pub use model::*;
pub use names::{Names, name_id};
pub use reader::TapeReader;
pub use repair::{RepairReport, repair};
pub use scanner::{Record, Scanner, Step};
pub use wire::record_name;
pub use writer::TapeWriter;

/// Whether a file with this beginning is a tape; 16 bytes are enough to tell.
pub fn is_tape(start: &[u8]) -> bool {
    start.starts_with(&wire::HEAD_MAGIC)
}

/// Most requests in a block.
pub const BLOCK_REQUESTS: usize = wire::MAX_BLOCK_REQUESTS;
