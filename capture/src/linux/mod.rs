//! The recorder on Linux: block tracepoints through `perf_event_open`.
//!
//! This path needs neither a mounted tracefs nor debugfs, and works under kernel lockdown, where
//! blktrace's relay files are closed. All that it arms hangs on file descriptors.

mod arm;
mod clock;
mod devices;
mod doctor;
pub mod files;
mod processes;
mod recorder;
mod rights;
mod rings;
mod session;
mod sys;
mod tracefs;
mod writer;

pub use doctor::doctor;
pub use session::Session;
