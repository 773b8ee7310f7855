//! A progress line on standard error: redrawn in place on a terminal, now and then elsewhere.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// Work that is done sooner shows no progress.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often a line is printed where it cannot be redrawn.
const BETWEEN_LINES: Duration = Duration::from_secs(10);

/// The line.
pub struct ProgressLine {
    shown: bool,
    redraw: bool,
    drawn: bool,
    begun: Instant,
    printed: Option<Instant>,
}

impl ProgressLine {
    /// A line that shows nothing when `quiet`.
    pub fn new(quiet: bool) -> ProgressLine {
        let redraw = std::io::stderr().is_terminal();
        ProgressLine {
            shown: !quiet,
            redraw,
            drawn: false,
            begun: Instant::now(),
            printed: None,
        }
    }

    /// Shows this text.
    pub fn show(&mut self, text: &str) {
        if !self.shown || self.begun.elapsed() < PATIENCE {
            return;
        }
        let mut stderr = std::io::stderr().lock();
        // Progress is a courtesy: a closed standard error must not end a recording.
        if self.redraw {
            let _ = write!(stderr, "\r\x1b[K{text}");
            let _ = stderr.flush();
            self.drawn = true;
        } else if self
            .printed
            .is_none_or(|printed| printed.elapsed() >= BETWEEN_LINES)
        {
            let _ = writeln!(stderr, "{text}");
            self.printed = Some(Instant::now());
        }
    }

    /// Takes the line away, so that other text can be printed.
    pub fn clear(&mut self) {
        if std::mem::take(&mut self.drawn) {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        self.clear();
    }
}
