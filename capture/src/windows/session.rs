//! A recording: its disks, and the event session that reports them.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use iotape_formats::tape::{Clock, Device, ErrorCodes, Header, Layer};

use super::trace::Trace;
use super::{disks, sys};
use crate::etw::{Disk, Recording};
use crate::{Backend, CaptureError, Destination, Observer, Options, Report, Single, Warning};

/// How long a log file is written before it becomes part of the tape: what a killed recorder loses.
const ROLL_EVERY: Duration = Duration::from_secs(1);

/// A recording that is armed: from here on the kernel writes events to a log file.
#[derive(Debug)]
pub struct Session {
    options: Options,
    disks: Vec<Disk>,
    trace: Trace,
}

impl Session {
    /// Starts an event session for the disks of `options`.
    ///
    /// # Errors
    /// When a disk is not there, rights are missing, or the system refuses the session. The error
    /// says which, and what helps.
    pub fn start(options: &Options) -> Result<Session, CaptureError> {
        options.bounds.check()?;
        if options.backend != Backend::Auto {
            return Err(CaptureError::NoBackend {
                backend: options.backend.name(),
            });
        }
        if options.layer == Some(Layer::Queue) {
            return Err(CaptureError::NoQueueLayer);
        }
        let disks = disks::find(&options.devices)?;
        let trace = Trace::start()?;
        Ok(Session {
            options: options.clone(),
            disks,
            trace,
        })
    }

    /// What is known before the recording runs. The report has these too.
    pub fn warnings(&self) -> &[Warning] {
        &[]
    }

    /// The devices that are recorded, in the order of their indexes.
    pub fn devices(&self) -> Vec<Device> {
        self.disks.iter().map(|disk| disk.device.clone()).collect()
    }

    /// Records into `destination` until `stop` is set, the duration is over or a bound is reached.
    ///
    /// `observer` is called on the calling thread, about once a second. Whether there is room to begin is
    /// the caller's to ask ([`crate::Bounds::check_space`]).
    ///
    /// # Errors
    /// When the session cannot be controlled, or the tape cannot be written. What was written until
    /// then is a readable tape.
    pub fn run(
        mut self,
        destination: &mut impl Destination,
        stop: &AtomicBool,
        observer: &mut dyn Observer,
    ) -> Result<Report, CaptureError> {
        let bounds = self.options.bounds;
        let header = self.header();
        let recording = Recording {
            control: &mut self.trace,
            header,
            disks: self.disks,
            roll_every: ROLL_EVERY,
            duration: self.options.duration,
            fail_on_loss: self.options.fail_on_loss,
            bounds,
            warnings: Vec::new(),
        };
        recording.run(destination, stop, observer)
    }

    /// The same without a tape: only the observer sees what happens.
    ///
    /// # Errors
    /// When the session cannot be controlled.
    pub fn watch(
        self,
        stop: &AtomicBool,
        observer: &mut dyn Observer,
    ) -> Result<Report, CaptureError> {
        self.run(&mut Single::new(std::io::sink()), stop, observer)
    }

    fn header(&self) -> Header {
        let hide = self.options.hide_host;
        Header {
            tool: self.options.tool.clone(),
            host: sys::computer_name().filter(|_| !hide),
            // The first log file tells.
            os: None,
            clock: Clock {
                source: "QueryPerformanceCounter".to_owned(),
                resolution_ns: 100,
            },
            backend: "etw".to_owned(),
            options: vec![format!("session={}", self.trace.kind())],
            error_codes: ErrorCodes::NtStatus,
            notes: vec![
                "an event session of Windows does not tell the outcome of requests and the time that \
                 they waited in queues above the disk driver"
                    .to_owned(),
            ],
        }
    }
}
