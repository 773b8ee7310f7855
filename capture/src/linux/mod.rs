//! The recorder on Linux: block tracepoints, through `perf_event_open`, an instance of ftrace or BPF
//! programs (feature `bpf`), or the kernel's own block traces, as blktrace reads them.
//!
//! No path needs a mounted tracefs or debugfs. All but the last work under kernel lockdown (integrity),
//! where blktrace's relay files are closed. What perf arms and BPF programs hang on file descriptors; an
//! instance and a block trace are removed by a process of their own.

mod arm;
mod blktrace;
#[cfg(feature = "bpf")]
mod bpf;
mod cgroups;
mod clock;
mod debugfs;
mod devices;
mod doctor;
pub mod files;
mod ftrace;
mod intake;
mod merge;
mod outlet;
mod processes;
mod recorder;
mod relay;
mod rights;
mod rings;
mod session;
mod source;
mod sys;
mod threads;
mod topology;
mod tracefs;
mod user;
mod writer;

pub use doctor::doctor;
pub use session::Session;
pub use user::User;
