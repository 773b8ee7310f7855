//! The event session of a recording, and the folder of its log files.

use std::io;
use std::path::PathBuf;

use super::sys::{self, Running};
use crate::CaptureError;
use crate::etw::{Control, Lost};

/// Name of the session: one recording runs at a time.
const NAME: &str = "iotape recorder";
/// Of Windows 7 and before, where the kernel has but one.
const CLASSIC_NAME: &str = "NT Kernel Logger";

const ERROR_ACCESS_DENIED: i32 = 5;
const ERROR_INVALID_PARAMETER: i32 = 87;
const ERROR_ALREADY_EXISTS: i32 = 183;
const ERROR_NO_SYSTEM_RESOURCES: i32 = 1450;

/// A running session. Dropping it ends the session and removes its log files.
#[derive(Debug)]
pub struct Trace {
    running: Option<Running>,
    classic: bool,
    folder: PathBuf,
    /// Number of the log file that is being written.
    number: u32,
}

impl Trace {
    /// Starts the session: of its own on Windows 8 and later, else the kernel's only one.
    pub fn start() -> Result<Trace, CaptureError> {
        let folder = std::env::temp_dir().join(format!("iotape-{}", std::process::id()));
        std::fs::create_dir_all(&folder).map_err(|source| CaptureError::System {
            action: format!("making {} for log files", folder.display()),
            source,
        })?;
        let mut trace = Trace {
            running: None,
            classic: false,
            folder,
            number: 1,
        };
        let log = trace.log(1);
        let started = sys::start_session(NAME, &log, false).or_else(|error| {
            if error.raw_os_error() != Some(ERROR_INVALID_PARAMETER) {
                return Err(error);
            }
            trace.classic = true;
            sys::start_session(CLASSIC_NAME, &log, true)
        });
        let name = trace.name();
        trace.running = Some(started.map_err(|error| refused(name, error))?);
        Ok(trace)
    }

    /// Which kind of session it is.
    pub fn kind(&self) -> &'static str {
        if self.classic { "kernel" } else { "system" }
    }

    fn name(&self) -> &'static str {
        if self.classic { CLASSIC_NAME } else { NAME }
    }

    fn log(&self, number: u32) -> PathBuf {
        self.folder.join(format!("{number}.etl"))
    }

    fn running(&self) -> io::Result<&Running> {
        let over = || io::Error::other("the session has ended");
        self.running.as_ref().ok_or_else(over)
    }
}

impl Control for Trace {
    fn roll(&mut self) -> io::Result<PathBuf> {
        let next = self.number.wrapping_add(1);
        self.running()?.switch_to(&self.log(next))?;
        let whole = self.log(self.number);
        self.number = next;
        Ok(whole)
    }

    fn stop(&mut self) -> io::Result<Option<PathBuf>> {
        let Some(running) = self.running.take() else {
            return Ok(None);
        };
        running.stop()?;
        Ok(Some(self.log(self.number)))
    }

    fn lost(&mut self) -> io::Result<Lost> {
        self.running()?.lost()
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        // Dropping the session ends it; only then its last file can go.
        drop(self.running.take());
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn refused(name: &str, error: io::Error) -> CaptureError {
    let action = format!("starting the event session \"{name}\"");
    let help = match error.raw_os_error() {
        Some(ERROR_ACCESS_DENIED) => {
            return CaptureError::Permission {
                action: "starting an event session",
                missing: "membership in Administrators, with elevation".to_owned(),
                remedy: "run it from a prompt that was opened with \"Run as administrator\""
                    .to_owned(),
            };
        }
        Some(ERROR_ALREADY_EXISTS) => {
            format!(
                "another recording runs, or one was killed; to end it: logman stop \"{name}\" -ets"
            )
        }
        Some(ERROR_NO_SYSTEM_RESOURCES) => {
            "Windows runs at most 8 sessions of the kernel's; to see them: logman query -ets"
                .to_owned()
        }
        _ => {
            return CaptureError::System {
                action,
                source: error,
            };
        }
    };
    CaptureError::System {
        action,
        source: io::Error::new(error.kind(), format!("{error}; {help}")),
    }
}
