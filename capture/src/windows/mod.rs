//! The recorder on Windows: a kernel event session that reports disk I/O into log files.

mod disks;
mod doctor;
pub mod files;
mod session;
mod sys;
mod trace;

pub use doctor::doctor;
pub use session::Session;
