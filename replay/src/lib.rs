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

#[cfg(target_os = "linux")]
mod content;
#[cfg(target_os = "linux")]
mod engine;
#[cfg(target_os = "linux")]
mod host;
#[cfg(target_os = "linux")]
mod map;
#[cfg(target_os = "linux")]
mod measure;
#[cfg(target_os = "linux")]
mod plan;
#[cfg(target_os = "linux")]
mod replay;
#[cfg(target_os = "linux")]
mod report;
#[cfg(target_os = "linux")]
mod run;
#[cfg(target_os = "linux")]
mod slots;
#[cfg(target_os = "linux")]
mod sys;
#[cfg(target_os = "linux")]
mod target;
#[cfg(all(test, target_os = "linux"))]
mod testing;
#[cfg(target_os = "linux")]
mod tokens;
#[cfg(not(target_os = "linux"))]
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

#[cfg(target_os = "linux")]
pub use host::host;
#[cfg(target_os = "linux")]
pub use replay::Replay;
#[cfg(not(target_os = "linux"))]
pub use unsupported::{Replay, host};
