//! The recorder on Linux: block tracepoints through `perf_event_open`.
//!
//! This path needs neither a mounted tracefs nor debugfs, and works under kernel lockdown, where
//! blktrace's relay files are closed. All that it arms hangs on file descriptors.

mod arm;
mod clock;
mod devices;
mod doctor;
mod processes;
mod recorder;
mod rights;
mod rings;
mod segments;
mod session;
mod sys;
mod tape_files;
mod tracefs;
mod writer;

pub use doctor::doctor;
pub use session::Session;
pub use tape_files::TapeFiles;
