//! The loop that drains the kernel, pairs, and feeds the writer.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use iotape_formats::Request;
use iotape_formats::pairing::Pairing;
use iotape_formats::tape::{Anchor, LossReason};
use rustix::event::Timespec;

use super::arm::Plan;
use super::clock;
use super::intake::Intake;
use super::session::Session;
use super::source::{Lost, Source};
use super::writer::{Batch, Writer, WriterGone};
use crate::{Ended, Observer, Progress, Warning};

/// How much older than the moment of looking a record must be to be handed on.
const MARGIN_NS: u64 = 1_000_000;
/// How long the rings may lie untouched while they fill slowly.
const PATIENCE: Duration = Duration::from_millis(50);
/// The same while nothing happens.
const IDLE_PATIENCE: Duration = Duration::from_millis(500);
/// How long requests in flight are waited for at the end.
const GRACE_NS: u64 = 1_000_000_000;
/// How often devices that went away are looked for.
const SECOND_NS: u64 = 1_000_000_000;
/// How often processors that come online are looked for.
const LOOK_NS: u64 = 100_000_000;
/// Progress is told no more often.
const LEAST_INTERVAL_NS: u64 = 50_000_000;
/// How often both clocks are read.
const ANCHOR_NS: u64 = 10_000_000_000;

/// A running recording.
pub(super) struct Recorder<'a, 'scope> {
    plan: Plan,
    source: Box<dyn Source>,
    intake: Intake,
    writer: &'a Writer<'scope>,
    batch: Batch,
    warnings: Vec<Warning>,
    duration_ns: Option<u64>,
    fail_on_loss: bool,
    start_ns: u64,
    /// When the recording ended for its requests, and why.
    ending: Option<(u64, Ended)>,
    /// How long the rings may lie untouched now.
    patience: Duration,
    told_ns: u64,
    found_ns: u64,
    looked_ns: u64,
    anchored_ns: u64,
    totals: Totals,
}

/// A recording that is over.
#[derive(Debug)]
pub(super) struct Over {
    pub elapsed: Duration,
    pub lost_requests: Option<u64>,
    pub warnings: Vec<Warning>,
}

#[derive(Default)]
struct Totals {
    requests: u64,
    bytes: u64,
    lost_events: u64,
}

impl<'a, 'scope> Recorder<'a, 'scope> {
    pub fn new(session: Session, pairing: Pairing, writer: &'a Writer<'scope>) -> Self {
        let Session {
            options,
            devices,
            plan,
            source,
            zero,
            start_ns,
            warnings,
        } = session;
        let duration_ns = options
            .duration
            .map(|time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        Recorder {
            plan,
            source,
            intake: Intake::new(devices, pairing, zero.time_ns, start_ns),
            writer,
            batch: Batch::default(),
            warnings,
            duration_ns,
            fail_on_loss: options.fail_on_loss,
            start_ns,
            ending: None,
            patience: PATIENCE,
            told_ns: start_ns,
            found_ns: start_ns,
            looked_ns: start_ns,
            anchored_ns: start_ns,
            totals: Totals::default(),
        }
    }

    /// Records until it ends.
    pub fn record(
        &mut self,
        stop: &AtomicBool,
        observer: &mut dyn Observer,
    ) -> Result<Ended, WriterGone> {
        let interval_ns = u64::try_from(observer.interval().as_nanos()).unwrap_or(u64::MAX);
        let interval_ns = interval_ns.max(LEAST_INTERVAL_NS);
        loop {
            self.wait(interval_ns);
            let now_ns = clock::monotonic_ns();
            self.look_for_end(now_ns, stop);
            self.round(now_ns, observer)?;
            self.look_around(now_ns);
            self.tell(now_ns, interval_ns, observer);
            if self.writer.is_gone() {
                return Err(WriterGone);
            }
            if let Some((end_ns, ended)) = self.ending {
                let all_taken = now_ns > end_ns.saturating_add(2 * MARGIN_NS);
                let idle = all_taken && self.in_flight().iter().all(|open| *open == 0);
                if idle || now_ns > end_ns.saturating_add(GRACE_NS) {
                    self.last_round(observer)?;
                    return Ok(ended);
                }
            }
        }
    }

    /// What there is to know about the recording.
    pub fn end(self) -> Over {
        let end_ns = self
            .ending
            .map_or_else(clock::monotonic_ns, |(end_ns, _)| end_ns);
        Over {
            elapsed: Duration::from_nanos(end_ns.saturating_sub(self.start_ns)),
            lost_requests: self.intake.lost_requests,
            warnings: self.warnings,
        }
    }

    /// Waits until a ring fills, or for a moment.
    fn wait(&mut self, interval_ns: u64) {
        let mut patience = self.patience;
        if self.ending.is_some() {
            patience = Duration::from_nanos(2 * MARGIN_NS);
        } else {
            // The next progress, or the end.
            let mut due_ns = self.told_ns.saturating_add(interval_ns);
            if let Some(duration_ns) = self.duration_ns {
                due_ns = due_ns.min(self.start_ns.saturating_add(duration_ns));
            }
            let left = due_ns.saturating_sub(clock::monotonic_ns());
            patience = patience.min(Duration::from_nanos(left));
        }
        let Ok(timeout) = Timespec::try_from(patience) else {
            return;
        };
        self.source.wait(&timeout);
    }

    fn look_for_end(&mut self, now_ns: u64, stop: &AtomicBool) {
        if self.ending.is_some() {
            return;
        }
        let elapsed_ns = now_ns.saturating_sub(self.start_ns);
        let ended = if stop.load(Ordering::Relaxed) {
            Ended::Stopped
        } else if self
            .duration_ns
            .is_some_and(|duration_ns| elapsed_ns >= duration_ns)
        {
            Ended::Duration
        } else if self.fail_on_loss && self.totals.lost_events > 0 {
            Ended::Lost
        } else if self.intake.gone.iter().all(|gone| *gone) {
            Ended::DevicesGone
        } else {
            return;
        };
        let end_ns = match (ended, self.duration_ns) {
            (Ended::Duration, Some(duration_ns)) => self.start_ns.saturating_add(duration_ns),
            _ => now_ns,
        };
        self.intake
            .end_at(end_ns.saturating_sub(self.intake.zero_ns));
        self.ending = Some((end_ns, ended));
    }

    /// Takes what the kernel has, and hands on what is complete.
    fn round(&mut self, now_ns: u64, observer: &mut dyn Observer) -> Result<(), WriterGone> {
        let until_ns = now_ns.saturating_sub(MARGIN_NS);
        let (source, intake, plan) = (&mut self.source, &mut self.intake, &self.plan);
        let mut idle = !source.is_pressing();
        source.drain(until_ns, &mut |told| {
            idle = false;
            intake.take(plan, told);
        });
        idle &= self.intake.pairing.in_flight() == 0;
        self.patience = match idle {
            true => (self.patience * 2).min(IDLE_PATIENCE),
            false => PATIENCE,
        };
        let released_ns = until_ns.saturating_sub(self.intake.zero_ns);
        self.intake
            .pairing
            .release(released_ns, &mut self.batch.requests);
        self.send(observer)
    }

    fn last_round(&mut self, observer: &mut dyn Observer) -> Result<(), WriterGone> {
        let now_ns = clock::monotonic_ns();
        self.round(now_ns, observer)?;
        let (source, intake, plan) = (&mut self.source, &mut self.intake, &self.plan);
        source.settle(now_ns, &mut |told| intake.take(plan, told));
        self.intake.pairing.finish(&mut self.batch.requests);
        self.batch.anchor = Some(self.anchor());
        self.send(observer)
    }

    /// Requests of each device that began and are not done.
    fn in_flight(&mut self) -> Vec<u64> {
        self.intake.in_flight(self.source.as_mut())
    }

    fn send(&mut self, observer: &mut dyn Observer) -> Result<(), WriterGone> {
        if self.batch.requests.is_empty() {
            std::mem::swap(&mut self.batch.requests, &mut self.intake.finished);
        } else {
            self.batch.requests.append(&mut self.intake.finished);
        }
        self.batch.counters = self.intake.pairing.take_counters();
        self.batch
            .counters
            .add(&std::mem::take(&mut self.intake.counters));
        self.batch.losses.append(&mut self.intake.losses);
        self.batch.groups.append(&mut self.intake.groups);
        self.totals.add(&self.batch);
        if !self.batch.requests.is_empty() {
            observer.requests(&self.batch.requests);
        }
        self.writer.send(&mut self.batch)
    }

    fn look_around(&mut self, now_ns: u64) {
        if now_ns.saturating_sub(self.anchored_ns) >= ANCHOR_NS {
            self.anchored_ns = now_ns;
            self.batch.anchor = Some(self.anchor());
        }
        if now_ns.saturating_sub(self.looked_ns) >= LOOK_NS {
            self.add_processors(now_ns);
            self.looked_ns = now_ns;
        }
        if now_ns.saturating_sub(self.found_ns) >= SECOND_NS {
            self.found_ns = now_ns;
            self.intake.find_gone(&mut self.warnings);
        }
    }

    fn tell(&mut self, now_ns: u64, interval_ns: u64, observer: &mut dyn Observer) {
        let since_ns = now_ns.saturating_sub(self.told_ns);
        // What comes after the end belongs to it.
        if since_ns < interval_ns || self.ending.is_some() {
            return;
        }
        // In step with the start, however late this time is.
        self.told_ns = now_ns - since_ns % interval_ns;
        let in_flight_by_device = self.in_flight();
        observer.progress(&Progress {
            elapsed: Duration::from_nanos(now_ns.saturating_sub(self.start_ns)),
            requests: self.totals.requests,
            bytes: self.totals.bytes,
            lost_events: self.totals.lost_events,
            lost_requests: self.intake.lost_requests,
            tape_bytes: self.writer.bytes(),
            in_flight_by_device,
            segments: self.writer.segments(),
        });
    }

    /// Records on processors that came online. What they did before is missing.
    fn add_processors(&mut self, now_ns: u64) {
        for cpu in self.source.add_processors(&self.plan, now_ns) {
            self.warnings.push(Warning::ProcessorAdded { cpu });
            // How many nobody counted.
            self.intake.lost(Lost {
                from_ns: self.looked_ns,
                to_ns: now_ns,
                events: 0,
                requests: None,
                reason: LossReason::Unknown,
            });
        }
    }

    fn anchor(&self) -> Anchor {
        let moment = clock::moment();
        Anchor {
            time_ns: moment.time_ns.saturating_sub(self.intake.zero_ns),
            ..moment
        }
    }
}

impl Totals {
    fn add(&mut self, batch: &Batch) {
        let transferred = |request: &&Request| request.op.transfers_data();
        let data = batch.requests.iter().filter(transferred);
        self.requests += batch.requests.len() as u64;
        self.bytes += data.map(|request| request.length_bytes).sum::<u64>();
        self.lost_events += batch.losses.iter().map(|loss| loss.events).sum::<u64>();
    }
}
