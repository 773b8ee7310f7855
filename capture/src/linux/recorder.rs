//! The loop that drains the kernel, pairs, and feeds the writer.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use iotape_formats::pairing::Pairing;
use iotape_formats::tape::{Anchor, LossReason};
use rustix::event::Timespec;

use super::arm::Plan;
use super::clock;
use super::intake::Intake;
use super::outlet::Outlet;
use super::session::Session;
use super::source::{Lost, Source};
use super::writer::{Writer, WriterGone};
use crate::{Ended, Observer, Progress, Warning};

/// How much older than the moment of looking a record must be to be handed on.
const MARGIN_NS: u64 = 1_000_000;
/// How long the rings may lie untouched while they fill slowly.
const PATIENCE: Duration = Duration::from_millis(50);
/// The same while nothing happens.
const IDLE_PATIENCE: Duration = Duration::from_millis(500);
/// Requests that are handed on at once.
const MOST_AT_ONCE: usize = 16 << 10;
/// Requests a second that are much.
const RUSH: u64 = 50_000;
/// How long requests in flight are waited for at the end.
const GRACE_NS: u64 = 1_000_000_000;
/// Devices that went away are looked for every second.
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
    outlet: Outlet<'a, 'scope>,
    warnings: Vec<Warning>,
    duration_ns: Option<u64>,
    fail_on_loss: bool,
    start_ns: u64,
    /// When the recording ended for its requests, and why.
    ending: Option<(u64, Ended)>,
    /// How long the rings may lie untouched now.
    patience: Duration,
    round_ns: u64,
    told_ns: u64,
    found_ns: u64,
    looked_ns: u64,
    anchored_ns: u64,
}

/// A recording that is over.
#[derive(Debug)]
pub(super) struct Over {
    pub elapsed: Duration,
    pub lost_requests: Option<u64>,
    pub warnings: Vec<Warning>,
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
            outlet: Outlet::new(writer),
            warnings,
            duration_ns,
            fail_on_loss: options.fail_on_loss,
            start_ns,
            ending: None,
            patience: PATIENCE,
            round_ns: start_ns,
            told_ns: start_ns,
            found_ns: start_ns,
            looked_ns: start_ns,
            anchored_ns: start_ns,
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
            if self.outlet.writer.is_gone() {
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
        } else if self.fail_on_loss && self.outlet.totals.lost_events > 0 {
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
        let before = self.outlet.totals.requests;
        let mut idle = !self.source.is_pressing();
        let (intake, plan, outlet) = (&mut self.intake, &self.plan, &mut self.outlet);
        let mut sent = Ok(());
        self.source.drain(until_ns, &mut |told| {
            idle = false;
            intake.take(plan, told);
            if intake.finished.len() >= MOST_AT_ONCE && sent.is_ok() {
                sent = outlet.send(intake, observer);
            }
        });
        sent?;
        idle &= self.intake.pairing.in_flight() == 0;
        let released_ns = until_ns.saturating_sub(self.intake.zero_ns);
        self.intake
            .pairing
            .release(released_ns, &mut self.outlet.batch.requests);
        self.outlet.send(&mut self.intake, observer)?;
        let requests = self.outlet.totals.requests - before;
        self.patience = match self.source.patience_in_a_rush() {
            _ if idle => (self.patience * 2).min(IDLE_PATIENCE),
            Some(longer) if per_second(requests, now_ns - self.round_ns) >= RUSH => longer,
            _ => PATIENCE,
        };
        self.round_ns = now_ns;
        Ok(())
    }

    fn last_round(&mut self, observer: &mut dyn Observer) -> Result<(), WriterGone> {
        let now_ns = clock::monotonic_ns();
        self.round(now_ns, observer)?;
        let (source, intake, plan) = (&mut self.source, &mut self.intake, &self.plan);
        source.settle(now_ns, &mut |told| intake.take(plan, told));
        self.intake.pairing.finish(&mut self.outlet.batch.requests);
        self.outlet.batch.anchor = Some(self.anchor());
        self.outlet.send(&mut self.intake, observer)
    }

    /// Requests of each device that began and are not done.
    fn in_flight(&mut self) -> Vec<u64> {
        self.intake.in_flight(self.source.as_mut())
    }

    fn look_around(&mut self, now_ns: u64) {
        if now_ns.saturating_sub(self.anchored_ns) >= ANCHOR_NS {
            self.anchored_ns = now_ns;
            self.outlet.batch.anchor = Some(self.anchor());
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
            requests: self.outlet.totals.requests,
            bytes: self.outlet.totals.bytes,
            lost_events: self.outlet.totals.lost_events,
            lost_requests: self.intake.lost_requests,
            tape_bytes: self.outlet.writer.bytes(),
            in_flight_by_device,
            segments: self.outlet.writer.segments(),
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

fn per_second(requests: u64, since_ns: u64) -> u64 {
    requests.saturating_mul(SECOND_NS) / since_ns.max(1)
}
