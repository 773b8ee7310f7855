//! Stands in where there is no engine: the same interface, and a typed error.

use std::sync::atomic::AtomicBool;

use crate::error::ReplayError;
use crate::options::{Options, Progress, RunOptions};
use crate::result;
use crate::source::Source;

/// A tape with a target. Cannot be had on this operating system.
#[derive(Debug)]
pub struct Replay<S> {
    source: S,
}

impl<S: Source> Replay<S> {
    /// Refuses.
    ///
    /// # Errors
    /// Always [`ReplayError::UnsupportedPlatform`].
    pub fn prepare(
        _source: S,
        _options: Options,
        _stop: &AtomicBool,
        _progress: &mut dyn FnMut(&Progress),
    ) -> Result<Self, ReplayError> {
        Err(ReplayError::UnsupportedPlatform)
    }

    /// The tape.
    pub fn source(&self) -> &S {
        &self.source
    }

    /// Refuses.
    ///
    /// # Errors
    /// Always [`ReplayError::UnsupportedPlatform`].
    pub fn run(
        &mut self,
        _options: &RunOptions,
        _stop: &AtomicBool,
        _progress: &mut dyn FnMut(&Progress),
    ) -> Result<result::Run, ReplayError> {
        Err(ReplayError::UnsupportedPlatform)
    }
}

/// What the result document says of this machine.
pub fn host() -> result::Host {
    result::Host {
        kernel: Some(std::env::consts::OS.to_owned()),
        ..result::Host::default()
    }
}
