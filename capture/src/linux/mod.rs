//! The recorder on Linux: block tracepoints, through `perf_event_open` or an instance of ftrace.
//!
//! Neither path needs a mounted tracefs or debugfs, and both work under kernel lockdown, where
//! blktrace's relay files are closed. What perf arms hangs on file descriptors; an instance is removed
//! by a process of its own.

mod arm;
#[cfg(feature = "bpf")]
mod bpf;
mod clock;
mod devices;
mod doctor;
pub mod files;
mod ftrace;
mod merge;
mod processes;
mod recorder;
mod rights;
mod rings;
mod session;
mod source;
mod sys;
mod threads;
mod tracefs;
mod user;
mod writer;

pub use doctor::doctor;
pub use session::Session;
pub use user::User;
