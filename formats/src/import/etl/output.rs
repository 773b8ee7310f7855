//! Requests into the tape, in the order of their times.

use std::io::Write;

use super::devices::Devices;
use super::error::ImportError;
use super::requests::Traced;
use crate::request::Request;
use crate::sort::TimeSorter;
use crate::tape::{Anchor, Counters, Header, Level, Loss, Summary, TapeWriter};

/// For how long a request waits for others that were issued earlier and took longer.
const WINDOW_NS: u64 = 1_000_000_000;
/// Most requests that wait.
const WINDOW_REQUESTS: usize = 1 << 17;
/// Added to times while they are sorted: a request may be issued before the trace began.
const BIAS_NS: u64 = 1 << 62;

/// The tape that is being written.
pub(super) struct Output<W: Write> {
    writer: TapeWriter<W>,
    sorter: TimeSorter,
    devices: Devices,
    /// Time of day at the start of the trace.
    start_wall_ns: i128,
    /// The tape's zero, biased; known when the first request leaves.
    zero: Option<u64>,
    /// Requests that were issued before the tape's zero.
    pub before_zero: u64,
    /// Requests of more devices than are believed.
    pub refused: u64,
}

impl<W: Write> Output<W> {
    pub fn start(
        sink: W,
        header: &Header,
        level: Level,
        devices: Devices,
        start_wall_ns: i128,
    ) -> Result<Output<W>, ImportError> {
        Ok(Output {
            writer: TapeWriter::create(sink, header, &[], level)?,
            sorter: TimeSorter::new(WINDOW_NS, WINDOW_REQUESTS),
            devices,
            start_wall_ns,
            zero: None,
            before_zero: 0,
            refused: 0,
        })
    }

    /// Requests written so far.
    pub fn requests(&self) -> u64 {
        self.writer.requests()
    }

    /// Takes the next request, and writes those whose turn has come.
    pub fn take(&mut self, traced: Traced) -> Result<(), ImportError> {
        let Some((index, new)) = self.devices.index(traced.disk) else {
            self.refused += 1;
            return Ok(());
        };
        if let Some(device) = new {
            self.writer.device(&device)?;
        }
        self.sorter.push(Request {
            time_ns: BIAS_NS.saturating_add_signed(traced.time_ns),
            device: index,
            ..traced.request
        });
        while let Some(request) = self.sorter.pop() {
            self.write(request)?;
        }
        Ok(())
    }

    /// The trace's losses, whose times are since its start.
    pub fn lost(&mut self, loss: Loss, from_ns: i64, to_ns: i64) -> Result<(), ImportError> {
        self.writer.loss(Loss {
            from_ns: self.since_zero(from_ns),
            to_ns: self.since_zero(to_ns),
            ..loss
        })?;
        Ok(())
    }

    /// Adds to the tape's counters.
    pub fn count(&mut self, counters: &Counters) {
        self.writer.count(counters);
    }

    /// Writes the requests that still wait.
    pub fn drain(&mut self) -> Result<(), ImportError> {
        while let Some(request) = self.sorter.leave() {
            self.write(request)?;
        }
        let counters = Counters {
            late: self.sorter.late(),
            ..Counters::default()
        };
        self.count(&counters);
        Ok(())
    }

    /// Writes the tape's end.
    pub fn finish(self) -> Result<(W, Summary), ImportError> {
        Ok(self.writer.finish()?)
    }

    fn since_zero(&self, time_ns: i64) -> u64 {
        let zero = self.zero.unwrap_or(BIAS_NS);
        BIAS_NS.saturating_add_signed(time_ns).saturating_sub(zero)
    }

    fn write(&mut self, mut request: Request) -> Result<(), ImportError> {
        let zero = match self.zero {
            Some(zero) => zero,
            None => self.set_zero(request.time_ns)?,
        };
        match request.time_ns.checked_sub(zero) {
            Some(time_ns) => request.time_ns = time_ns,
            None => {
                // Its time cannot be told, so that its latency would be too long.
                self.before_zero += 1;
                request.time_ns = 0;
                request.latency_ns = None;
            }
        }
        self.writer.push(&request)?;
        Ok(())
    }

    /// The tape's zero is the start of the trace, or the first issue if that is earlier.
    fn set_zero(&mut self, first_ns: u64) -> Result<u64, ImportError> {
        let zero = first_ns.min(BIAS_NS);
        let wall_ns = self.start_wall_ns - i128::from(BIAS_NS - zero);
        let clamped = wall_ns.clamp(i128::from(i64::MIN), i128::from(i64::MAX));
        self.writer.anchor(Anchor {
            time_ns: 0,
            wall_ns: clamped as i64,
        })?;
        self.zero = Some(zero);
        Ok(zero)
    }
}
