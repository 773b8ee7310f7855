//! Other tools' files into tapes.
//!
//! An importer reads a file front to back and writes the tape while it reads, in bounded memory.
//! What the file does not have is absent in the tape; what cannot be understood is counted.

pub mod blktrace;
pub mod csv;
pub mod etl;
mod events;
mod inits;
pub mod perf_data;
mod sorted;
pub mod text;
pub mod tracing;
