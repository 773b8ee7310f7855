//! Recording sessions: what the kernel reports about block I/O becomes a tape, with every loss
//! accounted for.
//!
//! A [`Session`] arms the kernel's block tracepoints for a set of devices and then runs until it is
//! told to stop. Three things happen at the same time:
//!
//! ```text
//! kernel rings, one per processor
//!    │  drained in place, merged by time
//!    ▼
//! pairing (events → requests, `iotape_formats::pairing`)
//!    │  bounded channel
//!    ▼
//! writer thread (tape blocks, compression, file)
//! ```
//!
//! The thread that drains the rings does nothing that can wait on a disk: encoding and writing are
//! the writer thread's. When the writer falls behind, the channel fills, the drain waits, the rings
//! absorb what they can, and the kernel counts what they cannot. That count goes into the tape at
//! the time range where it happened, and every request that was open at that moment loses its
//! latency: a loss never turns into a wrong number.
//!
//! Nothing is printed here. Progress goes to an [`Observer`], notable circumstances are
//! [`Warning`]s, and signals are the caller's business: it sets the stop flag.
//!
//! What is armed in the kernel hangs on file descriptors, or is removed by a process of its own, so
//! that nothing stays behind however this one ends.
//!
//! On Windows an event session of the kernel writes log files, one after another, which become the
//! tape as they close. On other systems the crate compiles and [`Session::start`] answers
//! [`CaptureError::Unsupported`].

mod bounds;
mod destination;
mod doctor;
mod error;
#[cfg(any(windows, test))]
mod etw;
#[cfg(target_os = "linux")]
mod linux;
#[cfg(not(target_os = "linux"))]
mod no_user;
mod observer;
mod options;
mod report;
#[cfg(any(target_os = "linux", windows))]
mod segments;
#[cfg(any(target_os = "linux", windows))]
mod tape_files;
#[cfg(not(any(target_os = "linux", windows)))]
mod unsupported;
#[cfg(windows)]
mod windows;

#[cfg(target_os = "linux")]
use linux as platform;
#[cfg(windows)]
use windows as platform;

pub use bounds::{Bounds, Rotate};
pub use destination::{Destination, Single};
pub use doctor::{Finding, Status};
pub use error::CaptureError;
#[cfg(target_os = "linux")]
pub use linux::User;
#[cfg(not(target_os = "linux"))]
pub use no_user::User;
pub use observer::Observer;
pub use options::{Backend, Options};
#[cfg(any(target_os = "linux", windows))]
pub use platform::{Session, doctor};
pub use report::{Ended, Progress, Report, Warning};
#[cfg(any(target_os = "linux", windows))]
pub use tape_files::TapeFiles;
#[cfg(not(any(target_os = "linux", windows)))]
pub use unsupported::{Session, TapeFiles, doctor};
