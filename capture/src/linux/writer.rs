//! The writer thread: encodes and writes, off the path that drains the kernel.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::{Scope, ScopedJoinHandle};

use iotape_formats::Request;
use iotape_formats::tape::{Anchor, Counters, Loss, Name};

use super::cgroups::Groups;
use crate::segments::{Beginning, Segments, Stop, Watched, Written};
use crate::{Bounds, CaptureError, Destination, Ended};

/// Batches that may wait for the writer. A full channel makes the drain wait.
const WAITING_BATCHES: usize = 16;

/// What a round of draining yields.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub requests: Vec<Request>,
    pub counters: Counters,
    pub losses: Vec<Loss>,
    pub anchor: Option<Anchor>,
    /// Control groups that requests of this batch or of later ones are of.
    pub groups: Vec<u64>,
}

impl Batch {
    fn is_empty(&self) -> bool {
        self.requests.is_empty()
            && self.losses.is_empty()
            && self.anchor.is_none()
            && self.groups.is_empty()
            && self.counters == Counters::default()
    }
}

/// The thread, and the way to it.
#[derive(Debug)]
pub(super) struct Writer<'scope> {
    batches: SyncSender<Batch>,
    /// Requests that are written.
    used: Receiver<Vec<Request>>,
    thread: ScopedJoinHandle<'scope, Result<(Written, Option<Ended>), CaptureError>>,
    watched: Arc<Watched>,
}

/// The writer ended before the recording: [`Writer::finish`] tells why.
#[derive(Debug)]
pub(super) struct WriterGone;

impl<'scope> Writer<'scope> {
    /// Starts the thread.
    pub fn spawn<D: Destination>(
        scope: &'scope Scope<'scope, '_>,
        destination: &'scope mut D,
        bounds: Bounds,
        beginning: Beginning,
    ) -> Writer<'scope> {
        let (batches, incoming) = sync_channel(WAITING_BATCHES);
        let (give_back, used) = sync_channel(WAITING_BATCHES);
        let watched = Arc::new(Watched::default());
        let seen = Arc::clone(&watched);
        let thread = scope.spawn(move || {
            let mut segments = Segments::begin(destination, bounds, beginning, seen)?;
            match write(&mut segments, &incoming, &give_back) {
                Ok(()) => Ok((segments.finish()?, None)),
                Err(Stop::Bound(ended)) => Ok((segments.finish()?, Some(ended))),
                Err(Stop::Failed(error)) => match segments.give_up() {
                    0 => Err(error.into()),
                    requests => Err(CaptureError::TapeCutShort { error, requests }),
                },
            }
        });
        Writer {
            batches,
            used,
            thread,
            watched,
        }
    }

    /// Starts a thread that counts what it is handed, and writes nothing.
    pub fn spawn_without_tape(scope: &'scope Scope<'scope, '_>) -> Writer<'scope> {
        let (batches, incoming) = sync_channel::<Batch>(WAITING_BATCHES);
        let (give_back, used) = sync_channel(WAITING_BATCHES);
        let thread = scope.spawn(move || {
            let mut written = Written::default();
            for batch in incoming {
                let summary = &mut written.summary;
                summary.requests += batch.requests.len() as u64;
                summary.counters.add(&batch.counters);
                let lost = batch.losses.iter().map(|loss| loss.events);
                summary.counters.lost_events += lost.sum::<u64>();
                // If nobody takes it back, a new one is allocated there.
                let _ = give_back.try_send(batch.requests);
            }
            Ok((written, None))
        });
        Writer {
            batches,
            used,
            thread,
            watched: Arc::default(),
        }
    }

    /// Hands a batch over and leaves an empty one. Waits while the channel is full.
    pub fn send(&self, batch: &mut Batch) -> Result<(), WriterGone> {
        if batch.is_empty() {
            return Ok(());
        }
        let mut requests = self.used.try_recv().unwrap_or_default();
        // Here, and not in the writer's thread: both would count the holders of the same names,
        // each waiting for the other's memory.
        requests.clear();
        let next = Batch {
            requests,
            ..Batch::default()
        };
        self.batches
            .send(std::mem::replace(batch, next))
            .map_err(|_| WriterGone)
    }

    /// Whether the thread has ended.
    pub fn is_gone(&self) -> bool {
        self.thread.is_finished()
    }

    /// Bytes of tape so far.
    pub fn bytes(&self) -> u64 {
        self.watched.bytes.load(Ordering::Relaxed)
    }

    /// Tapes begun so far.
    pub fn segments(&self) -> u32 {
        self.watched.segments.load(Ordering::Relaxed)
    }

    /// Waits until everything is written. If the writing ended before the recording: why.
    pub fn finish(self) -> Result<(Written, Option<Ended>), CaptureError> {
        drop(self.batches);
        match self.thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

fn write<D: Destination>(
    segments: &mut Segments<'_, D>,
    incoming: &Receiver<Batch>,
    give_back: &SyncSender<Vec<Request>>,
) -> Result<(), Stop> {
    let mut groups = Groups::default();
    loop {
        let patience = segments.patience();
        let patience = groups.patience().map_or(patience, |due| patience.min(due));
        match incoming.recv_timeout(patience) {
            Ok(batch) => {
                groups.want(&batch.groups);
                // Before their requests, if it may be.
                name(segments, &groups.look_if_due())?;
                let used = put(segments, batch)?;
                // If nobody takes it back, a new one is allocated there.
                if let Err(TrySendError::Disconnected(_)) = give_back.try_send(used) {}
            }
            Err(RecvTimeoutError::Timeout) => name(segments, &groups.look_if_due())?,
            Err(RecvTimeoutError::Disconnected) => return name(segments, &groups.look()),
        }
        segments.tick()?;
    }
}

fn name<D: Destination>(segments: &mut Segments<'_, D>, names: &[Name]) -> Result<(), Stop> {
    names.iter().try_for_each(|name| segments.name(name))
}

fn put<D: Destination>(segments: &mut Segments<'_, D>, batch: Batch) -> Result<Vec<Request>, Stop> {
    if let Some(anchor) = batch.anchor {
        segments.anchor(anchor)?;
    }
    for loss in batch.losses {
        segments.loss(loss)?;
    }
    segments.count(&batch.counters)?;
    for request in &batch.requests {
        segments.push(request)?;
    }
    Ok(batch.requests)
}
