//! Replays a tape against a target under a cap of the operations outstanding, and measures what
//! the target does.
//!
//! `tape → plan (own thread) → depth tokens → engine → times → result`. The plan turns blocks of
//! the tape into batches of operations that are ready to be submitted, so that the loop that
//! submits never decodes. That loop takes a token per operation before it submits, and gives it
//! back when it reaps the completion: the cap cannot be exceeded, and what is outstanding is known
//! at every moment.
//!
//! Nothing is printed: progress goes to a callback, everything worth knowing stands in the
//! [`result::Run`].

pub mod result;

mod doctor;
mod error;
mod hdr_log;
mod options;
mod sim_spec;
mod source;

#[cfg(any(target_os = "linux", windows))]
mod content;
#[cfg(any(target_os = "linux", windows))]
mod engine;
#[cfg(target_os = "linux")]
mod host;
#[cfg(windows)]
#[path = "windows/host.rs"]
mod host;
#[cfg(any(target_os = "linux", windows))]
mod map;
#[cfg(any(target_os = "linux", windows))]
mod measure;
#[cfg(any(target_os = "linux", windows))]
mod plan;
#[cfg(any(target_os = "linux", windows))]
mod replay;
#[cfg(any(target_os = "linux", windows))]
mod report;
#[cfg(any(target_os = "linux", windows))]
mod run;
#[cfg(any(target_os = "linux", windows))]
mod slots;
#[cfg(target_os = "linux")]
mod sys;
#[cfg(windows)]
#[path = "windows/sys/mod.rs"]
mod sys;
#[cfg(any(target_os = "linux", windows))]
mod target;
#[cfg(all(test, target_os = "linux"))]
mod testing;
#[cfg(any(target_os = "linux", windows))]
mod tokens;
#[cfg(not(any(target_os = "linux", windows)))]
mod unsupported;

pub use doctor::{Finding, doctor};
pub use error::ReplayError;
pub use hdr_log::HdrLog;
pub use options::{
    Arrangement, DeviceTarget, EngineChoice, MappingMode, Options, Profile, Progress, RunOptions,
    Speed, SpeedError, TargetSpec, Timing, Unsupported, WritePolicy,
};
pub use sim_spec::{Distribution, SimSpec, SimSpecError, Stall};

pub use source::{Row, Source, SourceError, TapeSource};

#[cfg(any(target_os = "linux", windows))]
pub use host::host;
#[cfg(any(target_os = "linux", windows))]
pub use replay::Replay;
#[cfg(not(any(target_os = "linux", windows)))]
pub use unsupported::{Replay, host};
