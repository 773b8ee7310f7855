//! A tape of requests that come almost in the order of their times, some of which may be from before
//! the beginning.

use std::io::Write;

use crate::request::{DeviceIndex, Request};
use crate::sort::TimeSorter;
use crate::tape::{
    Anchor, Counters, Device, Header, Level, Loss, NameKind, Summary, TapeError, TapeWriter,
};

/// For how long a request waits for others that were issued earlier and took longer, in a trace.
pub(super) const WINDOW_NS: u64 = 1_000_000_000;
/// Most requests that wait: with one more, a power of two, up to which a queue grows.
const WINDOW_REQUESTS: usize = (1 << 17) - 1;
/// Added to times while they are sorted: a request may be issued before the trace began.
const BIAS_NS: u64 = 1 << 62;

/// The tape that is being written.
pub(super) struct SortedTape<W: Write> {
    writer: TapeWriter<W>,
    sorter: TimeSorter,
    /// Time of day at the start of the source's clock, if it is known.
    start_wall_ns: Option<i128>,
    /// The tape's zero, biased; known when the first request leaves.
    zero: Option<u64>,
    /// Requests that were issued before the tape's zero: their latency is left empty.
    pub before_zero: u64,
}

impl<W: Write> SortedTape<W> {
    /// Begins the tape. A request waits for others up to `window_ns` later.
    pub fn start(
        sink: W,
        header: &Header,
        level: Level,
        start_wall_ns: Option<i128>,
        window_ns: u64,
    ) -> Result<SortedTape<W>, TapeError> {
        Ok(SortedTape {
            writer: TapeWriter::create(sink, header, &[], level)?,
            sorter: TimeSorter::new(window_ns, WINDOW_REQUESTS),
            start_wall_ns,
            zero: None,
            before_zero: 0,
        })
    }

    /// Requests written so far.
    pub fn requests(&self) -> u64 {
        self.writer.requests()
    }

    /// Adds a device; requests from here on may name it.
    pub fn device(&mut self, device: &Device) -> Result<(), TapeError> {
        self.writer.device(device)
    }

    /// Takes the next request, which was issued at `time_ns` of the source's clock (below 2^61 either
    /// way), and writes those whose turn has come.
    pub fn push(
        &mut self,
        device: DeviceIndex,
        time_ns: i64,
        request: Request,
    ) -> Result<(), TapeError> {
        self.sorter.push(Request {
            time_ns: BIAS_NS.saturating_add_signed(time_ns),
            device,
            ..request
        });
        while let Some(request) = self.sorter.pop() {
            self.write(request)?;
        }
        Ok(())
    }

    /// A loss between two times of the source's clock.
    pub fn lost(&mut self, loss: Loss, from_ns: i64, to_ns: i64) -> Result<(), TapeError> {
        self.writer.loss(Loss {
            from_ns: self.since_zero(from_ns),
            to_ns: self.since_zero(to_ns),
            ..loss
        })
    }

    /// Names a file, before the requests that tell its number.
    pub fn name_file(&mut self, id: u64, name: &str) -> Result<bool, TapeError> {
        self.writer.name(NameKind::File, id, name)
    }

    /// Adds to the tape's counters.
    pub fn count(&mut self, counters: &Counters) {
        self.writer.count(counters);
    }

    /// Writes the requests that still wait.
    pub fn drain(&mut self) -> Result<(), TapeError> {
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
    pub fn finish(self) -> Result<(W, Summary), TapeError> {
        self.writer.finish()
    }

    fn since_zero(&self, time_ns: i64) -> u64 {
        let zero = self.zero.unwrap_or(BIAS_NS);
        BIAS_NS.saturating_add_signed(time_ns).saturating_sub(zero)
    }

    fn write(&mut self, mut request: Request) -> Result<(), TapeError> {
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
        self.writer.push(&request)
    }

    /// The tape's zero is the start of the source's clock, or the first issue if that is earlier.
    fn set_zero(&mut self, first_ns: u64) -> Result<u64, TapeError> {
        let zero = first_ns.min(BIAS_NS);
        if let Some(start_wall_ns) = self.start_wall_ns {
            let wall_ns = start_wall_ns - i128::from(BIAS_NS - zero);
            let clamped = wall_ns.clamp(i128::from(i64::MIN), i128::from(i64::MAX));
            self.writer.anchor(Anchor {
                time_ns: 0,
                wall_ns: clamped as i64,
            })?;
        }
        self.zero = Some(zero);
        Ok(zero)
    }
}
