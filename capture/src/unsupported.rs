//! The arm for systems without a recorder: compiles everywhere, answers with a typed error.

use std::io::Write;
use std::sync::atomic::AtomicBool;

use crate::{CaptureError, Finding, Options, Progress, Report, Status, Warning};

/// A recording that cannot exist here.
#[derive(Debug)]
pub enum Session {}

impl Session {
    /// Answers [`CaptureError::Unsupported`].
    ///
    /// # Errors
    /// Always.
    pub fn start(_options: &Options) -> Result<Session, CaptureError> {
        Err(CaptureError::Unsupported)
    }

    /// What is known before the recording runs.
    pub fn warnings(&self) -> &[Warning] {
        match *self {}
    }

    /// Runs until stopped.
    ///
    /// # Errors
    /// Never returns: no session exists here.
    pub fn run(
        self,
        _sink: impl Write + Send,
        _stop: &AtomicBool,
        _progress: &mut dyn FnMut(&Progress),
    ) -> Result<Report, CaptureError> {
        match self {}
    }
}

/// Says that nothing can be recorded here.
pub fn doctor() -> Vec<Finding> {
    vec![Finding {
        subject: "recording",
        status: Status::Missing,
        detail: "no recorder for this operating system".to_owned(),
        remedy: None,
    }]
}
