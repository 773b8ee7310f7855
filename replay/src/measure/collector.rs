//! Adds up what was recorded in slices of time, on a thread of its own: to add histograms takes
//! longer than requests are apart.

use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::{Builder, JoinHandle};
use std::{io, mem};

use super::run_log::RunLog;
use super::{Latencies, OpRecord};
use crate::engine::Action;
use crate::result::Interval;
use crate::tokens::Area;

/// Slices that wait to be added.
const SLICES_AHEAD: usize = 4;

/// What was recorded in a slice of time.
#[derive(Debug, Default)]
pub struct Slice {
    /// Per action.
    pub ops: [OpRecord; Action::ALL.len()],
    /// The tokens at its start.
    pub start: Area,
    /// And at its end.
    pub end: Area,
}

/// All that was recorded.
#[derive(Debug, Default)]
pub struct Totals {
    /// Per action.
    pub ops: [OpRecord; Action::ALL.len()],
    /// In slices of time.
    pub intervals: Vec<Interval>,
}

/// See the module.
#[derive(Debug)]
pub struct Collector {
    slices: SyncSender<Slice>,
    used: Receiver<Slice>,
    thread: JoinHandle<Totals>,
}

impl Collector {
    /// Starts the thread; `log` is given each slice too.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(log: Option<RunLog>) -> io::Result<Self> {
        let (slices, to_add) = sync_channel(SLICES_AHEAD);
        let (give_back, used) = channel();
        let thread = Builder::new()
            .name("iotape-figures".to_owned())
            .spawn(move || collect(&to_add, &give_back, log))?;
        Ok(Collector {
            slices,
            used,
            thread,
        })
    }

    /// Takes a slice and leaves an empty one.
    pub fn take(&self, slice: &mut Slice) {
        let empty = self.used.try_recv().unwrap_or_default();
        // Fails only when the thread has died, which the end will tell.
        let _ = self.slices.send(mem::replace(slice, empty));
    }

    /// What was recorded.
    ///
    /// # Errors
    /// When the thread has died.
    pub fn finish(self) -> io::Result<Totals> {
        drop(self.slices);
        self.thread
            .join()
            .map_err(|_| io::Error::other("the thread that adds up figures died"))
    }
}

fn collect(slices: &Receiver<Slice>, used: &Sender<Slice>, mut log: Option<RunLog>) -> Totals {
    let mut totals = Totals::default();
    let mut start_ns = None;
    for mut slice in slices {
        let start_ns = *start_ns.get_or_insert(slice.start.at_ns);
        if let Some(log) = &mut log {
            log.write(&slice, start_ns);
        }
        totals.intervals.push(interval(&slice, start_ns));
        for (total, record) in totals.ops.iter_mut().zip(&mut slice.ops) {
            if record.requests > 0 {
                total.add(record);
                record.clear();
            }
        }
        // Nobody waits for it after the end.
        let _ = used.send(slice);
    }
    totals
}

fn interval(slice: &Slice, start_ns: u64) -> Interval {
    let (mut service, mut response, mut lag) = <(Latencies, Latencies, Latencies)>::default();
    for record in slice.ops.iter().filter(|record| record.requests > 0) {
        record.service.iter().for_each(|class| service.add(class));
        response.add(&record.response);
        lag.add(&record.lag);
    }
    let moved = [Action::Read, Action::Write].map(|action| slice.ops[action.index()].bytes);
    let service_ns = service.figures();
    Interval {
        elapsed_ns: slice.end.at_ns.saturating_sub(start_ns),
        requests: slice.ops.iter().map(|record| record.requests).sum(),
        bytes: moved.into_iter().fold(0, u64::saturating_add),
        outstanding_mean: slice.end.since(slice.start).mean(),
        service_ns,
        response_ns: response.figures().or(service_ns),
        lag_ns: lag.figures(),
    }
}
