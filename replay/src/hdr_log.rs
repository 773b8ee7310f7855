//! Interval logs of HdrHistogram: text, one histogram a line, for its tools to plot and compare.
//!
//! A line is `Tag=NAME,start,length,max,histogram`: seconds since the start of the log, seconds,
//! milliseconds, and a histogram of nanoseconds in the V2 format, compressed, in base64. The layout
//! is that of HdrHistogram's `HistogramLogWriter`, version 1.3.

use std::fmt;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// An interval log that the runs of a replay are written to. Its clones are the same log.
#[derive(Clone)]
pub struct HdrLog {
    shared: Arc<Mutex<Shared>>,
}

struct Shared {
    writer: Box<dyn Write + Send>,
    began: Instant,
    /// The first error; nothing is written after it.
    failed: Option<io::Error>,
}

impl HdrLog {
    /// Begins a log.
    ///
    /// # Errors
    /// When its head cannot be written.
    pub fn new(mut writer: impl Write + Send + 'static) -> io::Result<Self> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let seconds = now.unwrap_or_default().as_secs_f64();
        writeln!(writer, "#[Histogram log format version 1.3]")?;
        writeln!(
            writer,
            "#[Times in nanoseconds; tags are run/operation/figure]"
        )?;
        writeln!(writer, "#[StartTime: {seconds:.3} (seconds since epoch)]")?;
        writeln!(
            writer,
            "\"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\"Interval_Compressed_Histogram\""
        )?;
        Ok(HdrLog {
            shared: Arc::new(Mutex::new(Shared {
                writer: Box::new(writer),
                began: Instant::now(),
                failed: None,
            })),
        })
    }

    /// Writes what is buffered.
    ///
    /// # Errors
    /// The first that occurred since the log was begun.
    pub fn finish(&self) -> io::Result<()> {
        let mut shared = self.lock();
        match shared.failed.take() {
            Some(error) => Err(error),
            None => shared.writer.flush(),
        }
    }

    /// Seconds since the log was begun.
    #[cfg_attr(
        not(any(target_os = "linux", windows)),
        expect(dead_code, reason = "no runs there")
    )]
    pub(crate) fn elapsed_s(&self) -> f64 {
        self.lock().began.elapsed().as_secs_f64()
    }

    /// Adds a line.
    #[cfg_attr(
        not(any(target_os = "linux", windows)),
        expect(dead_code, reason = "no runs there")
    )]
    pub(crate) fn line(&self, text: &str) {
        let mut shared = self.lock();
        if shared.failed.is_none()
            && let Err(error) = writeln!(shared.writer, "{text}")
        {
            shared.failed = Some(error);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for HdrLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HdrLog").finish_non_exhaustive()
    }
}
