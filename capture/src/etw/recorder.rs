//! From log files to the tape, while the session goes on.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use iotape_formats::import::etl::{ImportError, LogEnd, Stream};
use iotape_formats::sort::TimeSorter;
use iotape_formats::tape::{Anchor, Counters, Device, Header, Loss, LossReason, TapeError};
use iotape_formats::{DeviceIndex, Op, Request};

use super::{Control, Lost};
use crate::segments::{Beginning, Segments, Stop, Watched};
use crate::{Bounds, CaptureError, Destination, Ended, Observer, Progress, Report, Warning};

/// How often the stop flag is looked at.
const LOOK: Duration = Duration::from_millis(50);
/// For how long a request waits for others that were issued earlier and took longer.
const WINDOW_NS: u64 = 1_000_000_000;
/// Most requests that wait.
const WINDOW_REQUESTS: usize = 1 << 17;

/// A disk that is recorded.
#[derive(Clone, Debug)]
pub struct Disk {
    /// Its number, as in `PhysicalDrive0`.
    pub number: u32,
    /// How the tape describes it.
    pub device: Device,
}

/// What to record, from a session that runs.
pub struct Recording<'a, C> {
    /// The session.
    pub control: &'a mut C,
    /// What the tape says about itself.
    pub header: Header,
    /// Disks that are recorded; others of the same session are left out.
    pub disks: Vec<Disk>,
    /// How long a log file is written.
    pub roll_every: Duration,
    /// When the recording ends; `None` records until it is stopped.
    pub duration: Option<Duration>,
    /// Whether it ends as soon as events were lost.
    pub fail_on_loss: bool,
    /// How much may be written.
    pub bounds: Bounds,
    /// What is known before it runs.
    pub warnings: Vec<Warning>,
}

impl<C: Control> Recording<'_, C> {
    /// Records until `stop` is set, the duration is over or a bound is reached. The session is
    /// ended in each case, and what it had written by then is in the tape.
    ///
    /// # Errors
    /// When the session cannot be controlled or read, or the tape cannot be written. What was
    /// written until then is a readable tape.
    pub fn run(
        self,
        destination: &mut impl Destination,
        stop: &AtomicBool,
        observer: &mut dyn Observer,
    ) -> Result<Report, CaptureError> {
        let started = Instant::now();
        let Recording {
            control,
            mut header,
            disks,
            roll_every,
            duration,
            fail_on_loss,
            bounds,
            warnings,
        } = self;
        let mut intake = Intake::new(&disks, duration);
        // The first log file tells when the session began, which is the tape's zero.
        let end = End {
            stop,
            started,
            duration,
        };
        let ended = wait(roll_every, &end);
        let first = control.roll().map_err(session_failed)?;
        intake.take(&first);
        header.os = intake.stream.system().map(str::to_owned);
        header.clock.resolution_ns = intake.stream.resolution_ns().unwrap_or(100);
        let anchor = Anchor {
            time_ns: 0,
            wall_ns: intake.stream.start_wall_ns().unwrap_or(0),
        };
        let devices = disks.into_iter().map(|disk| disk.device).collect();
        let beginning = Beginning {
            header,
            devices,
            anchor,
        };
        let watched = Arc::new(Watched::default());
        let segments = Segments::begin(destination, bounds, beginning, Arc::clone(&watched))?;
        let mut under_way = UnderWay {
            control,
            intake,
            segments,
            watched,
            known: Lost::default(),
            fail_on_loss,
        };
        let outcome = match ended {
            Some(ended) => Ok(ended),
            None => under_way.record(&end, roll_every, observer),
        };
        under_way.finish(outcome, started, warnings, observer)
    }
}

/// Why a recording cannot go on.
enum Halt {
    /// It has a bound.
    Bound(Ended),
    /// The tape cannot be written.
    Tape(TapeError),
    /// The session cannot be controlled.
    Session(io::Error),
}

impl From<Stop> for Halt {
    fn from(stop: Stop) -> Halt {
        match stop {
            Stop::Bound(ended) => Halt::Bound(ended),
            Stop::Failed(error) => Halt::Tape(error),
        }
    }
}

/// When a recording is to end.
struct End<'a> {
    stop: &'a AtomicBool,
    started: Instant,
    duration: Option<Duration>,
}

impl End<'_> {
    fn reached(&self) -> Option<Ended> {
        if self.stop.load(Ordering::Relaxed) {
            return Some(Ended::Stopped);
        }
        let over = self.duration? <= self.started.elapsed();
        over.then_some(Ended::Duration)
    }
}

/// Waits for so long, or until the recording is to end.
fn wait(time: Duration, end: &End<'_>) -> Option<Ended> {
    let until = Instant::now() + time;
    loop {
        let ended = end.reached();
        let left = until.saturating_duration_since(Instant::now());
        if ended.is_some() || left.is_zero() {
            return ended;
        }
        thread::sleep(left.min(LOOK));
    }
}

/// A recording whose tape has begun.
struct UnderWay<'a, 'd, C, D: Destination> {
    control: &'a mut C,
    intake: Intake,
    segments: Segments<'d, D>,
    watched: Arc<Watched>,
    /// Losses that the tape has.
    known: Lost,
    fail_on_loss: bool,
}

impl<C: Control, D: Destination> UnderWay<'_, '_, C, D> {
    fn record(
        &mut self,
        end: &End<'_>,
        roll_every: Duration,
        observer: &mut dyn Observer,
    ) -> Result<Ended, Halt> {
        loop {
            self.put(observer)?;
            self.losses()?;
            self.report(end.started.elapsed(), observer);
            if self.fail_on_loss && self.known != Lost::default() {
                return Ok(Ended::Lost);
            }
            if let Some(ended) = wait(roll_every, end) {
                return Ok(ended);
            }
            let log = self.control.roll().map_err(Halt::Session)?;
            self.intake.take(&log);
        }
    }

    /// Writes the requests whose turn has come, and what was counted.
    fn put(&mut self, observer: &mut dyn Observer) -> Result<(), Halt> {
        while let Some(request) = self.intake.sorter.pop() {
            self.segments.push(&request)?;
            observer.requests(std::slice::from_ref(&request));
        }
        self.segments
            .count(&std::mem::take(&mut self.intake.counters))?;
        for loss in self.intake.losses.drain(..) {
            self.segments.loss(loss)?;
        }
        Ok(self.segments.tick()?)
    }

    /// Writes what the session has lost since it was looked at last.
    fn losses(&mut self) -> Result<(), Halt> {
        let lost = self.control.lost().map_err(Halt::Session)?;
        let known = std::mem::replace(&mut self.known, lost);
        let (from_ns, to_ns) = (self.intake.told_to_ns, self.intake.end_ns);
        self.intake.told_to_ns = to_ns;
        let all = [
            (
                lost.events.saturating_sub(known.events),
                LossReason::RingFull,
            ),
            (
                lost.buffers.saturating_sub(known.buffers),
                LossReason::SequenceGap,
            ),
        ];
        for (events, reason) in all.into_iter().filter(|(events, _)| *events > 0) {
            self.segments.loss(Loss {
                from_ns,
                to_ns,
                events,
                requests: None,
                reason,
            })?;
        }
        Ok(())
    }

    fn report(&self, elapsed: Duration, observer: &mut dyn Observer) {
        observer.progress(&Progress {
            elapsed,
            requests: self.intake.requests,
            bytes: self.intake.bytes,
            lost_events: self.known.events + self.known.buffers,
            lost_requests: None,
            tape_bytes: self.watched.bytes.load(Ordering::Relaxed),
            in_flight_by_device: Vec::new(),
            segments: self.watched.segments.load(Ordering::Relaxed),
        });
    }

    /// Ends the session, takes what it left, and ends the tape.
    fn finish(
        mut self,
        outcome: Result<Ended, Halt>,
        started: Instant,
        mut warnings: Vec<Warning>,
        observer: &mut dyn Observer,
    ) -> Result<Report, CaptureError> {
        let elapsed = started.elapsed();
        let outcome = outcome.and_then(|ended| self.take_rest(observer).map(|()| ended));
        let failed = match outcome {
            Err(Halt::Tape(error)) => {
                let requests = self.segments.give_up() + self.intake.sorter.waiting();
                return Err(CaptureError::TapeCutShort { error, requests });
            }
            Err(Halt::Session(error)) => {
                self.take_waiting(observer);
                Err(session_failed(error))
            }
            Ok(ended) | Err(Halt::Bound(ended)) => Ok(ended),
        };
        let written = self.segments.finish()?;
        let ended = failed?;
        let events = written.summary.counters.lost_events;
        if events > 0 {
            warnings.push(Warning::EventsLost { events });
        }
        Ok(Report {
            summary: written.summary,
            tape_bytes: written.bytes,
            segments: written.segments,
            removed: written.removed,
            lost_requests: None,
            elapsed,
            ended,
            warnings,
        })
    }

    /// Writes what was read before the session was gone, as far as there is room.
    fn take_waiting(&mut self, observer: &mut dyn Observer) {
        if self.intake.drain(&mut self.segments, observer).is_ok() {
            let _ = self.put(observer);
        }
    }

    /// Ends the session and writes what it left.
    fn take_rest(&mut self, observer: &mut dyn Observer) -> Result<(), Halt> {
        self.losses()?;
        if let Some(log) = self.control.stop().map_err(Halt::Session)? {
            self.intake.take(&log);
        }
        self.intake.drain(&mut self.segments, observer)?;
        self.put(observer)
    }
}

/// What log files go through.
struct Intake {
    stream: Stream,
    indexes: BTreeMap<u32, DeviceIndex>,
    sorter: TimeSorter,
    counters: Counters,
    losses: Vec<Loss>,
    /// Requests that were issued later are left out.
    until_ns: u64,
    /// Up to this time log files were read.
    end_ns: u64,
    /// Up to this time losses were told.
    told_to_ns: u64,
    malformed: u64,
    requests: u64,
    bytes: u64,
}

impl Intake {
    fn new(disks: &[Disk], duration: Option<Duration>) -> Intake {
        let indexes = disks.iter().map(|disk| (disk.number, disk.device.index));
        let until = duration.and_then(|time| u64::try_from(time.as_nanos()).ok());
        Intake {
            stream: Stream::new(),
            indexes: indexes.collect(),
            sorter: TimeSorter::new(WINDOW_NS, WINDOW_REQUESTS),
            counters: Counters::default(),
            losses: Vec::new(),
            until_ns: until.unwrap_or(u64::MAX),
            end_ns: 0,
            told_to_ns: 0,
            malformed: 0,
            requests: 0,
            bytes: 0,
        }
    }

    /// Takes a log file that is whole, and removes it. One that cannot be read is a loss: what it
    /// held is not known.
    fn take(&mut self, log: &Path) {
        let read = File::open(log).map(|file| self.read(file));
        match read {
            Ok(Ok(end)) => self.log_ended(&end),
            Ok(Err(_)) | Err(_) => self.losses.push(Loss {
                from_ns: self.end_ns,
                to_ns: self.end_ns,
                events: 1,
                requests: None,
                reason: LossReason::Unknown,
            }),
        }
        // One that stays behind is removed with its folder.
        let _ = fs::remove_file(log);
    }

    fn read(&mut self, file: File) -> Result<LogEnd, ImportError> {
        let Intake {
            stream,
            indexes,
            sorter,
            counters,
            until_ns,
            requests,
            bytes,
            ..
        } = self;
        let mut log = stream.open(file)?;
        while let Some(done) = log.next_request()? {
            let Some(device) = indexes.get(&done.disk) else {
                continue;
            };
            // In flight when the session began: nobody saw it issued.
            let Ok(time_ns) = u64::try_from(done.time_ns) else {
                counters.unpaired_completions += 1;
                continue;
            };
            if time_ns >= *until_ns {
                continue;
            }
            *requests += 1;
            if matches!(done.request.op, Op::Read | Op::Write) {
                *bytes += done.request.length_bytes;
            }
            sorter.push(Request {
                time_ns,
                device: *device,
                ..done.request
            });
        }
        Ok(log.end())
    }

    fn log_ended(&mut self, end: &LogEnd) {
        self.end_ns = self.end_ns.max(u64::try_from(end.end_ns).unwrap_or(0));
        let malformed = self.stream.counts().malformed;
        self.counters.undecodable += end.damage.count() + (malformed - self.malformed);
        self.malformed = malformed;
    }

    /// Writes everything that waits.
    fn drain<D: Destination>(
        &mut self,
        segments: &mut Segments<'_, D>,
        observer: &mut dyn Observer,
    ) -> Result<(), Stop> {
        while let Some(request) = self.sorter.leave() {
            segments.push(&request)?;
            observer.requests(std::slice::from_ref(&request));
        }
        self.counters.late += self.sorter.late();
        Ok(())
    }
}

fn session_failed(source: io::Error) -> CaptureError {
    CaptureError::System {
        action: "controlling the event session".to_owned(),
        source,
    }
}
