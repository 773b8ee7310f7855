//! The arm for systems without a recorder: compiles everywhere, answers with a typed error.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use iotape_formats::tape::Device;

use crate::{CaptureError, Destination, Finding, Observer, Options, Report, Status, Warning};

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

    /// The devices that are recorded.
    pub fn devices(&self) -> Vec<Device> {
        match *self {}
    }

    /// Runs until stopped.
    ///
    /// # Errors
    /// Never returns: no session exists here.
    pub fn run(
        self,
        _destination: &mut impl Destination,
        _stop: &AtomicBool,
        _observer: &mut dyn Observer,
    ) -> Result<Report, CaptureError> {
        match self {}
    }

    /// Runs until stopped, without a tape.
    ///
    /// # Errors
    /// Never returns: no session exists here.
    pub fn watch(
        self,
        _stop: &AtomicBool,
        _observer: &mut dyn Observer,
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

/// Files of a recording that cannot exist here.
#[derive(Debug)]
pub enum TapeFiles {}

impl TapeFiles {
    /// Answers [`CaptureError::Unsupported`].
    ///
    /// # Errors
    /// Always.
    pub fn create(
        _name: &Path,
        _segments: bool,
        _replace: bool,
    ) -> Result<TapeFiles, CaptureError> {
        Err(CaptureError::Unsupported)
    }

    /// The files that are there, the oldest first.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        match *self {}
        #[allow(unreachable_code, reason = "gives the return type its form")]
        std::iter::empty()
    }

    /// The file that is being written, or was last.
    pub fn file(&self) -> Option<&File> {
        match *self {}
    }
}

impl Destination for TapeFiles {
    type Sink = File;

    fn begin(&mut self) -> io::Result<File> {
        match *self {}
    }

    fn end(&mut self, _bytes: u64) -> io::Result<()> {
        match *self {}
    }

    fn remove_oldest(&mut self) -> io::Result<()> {
        match *self {}
    }

    fn free_bytes(&self) -> Option<u64> {
        match *self {}
    }
}
