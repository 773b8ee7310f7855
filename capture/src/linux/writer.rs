//! The writer thread: encodes and writes, off the path that drains the kernel.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use iotape_formats::Request;
use iotape_formats::tape::{
    Anchor, BLOCK_REQUESTS, Counters, Device, Header, Level, Loss, Summary, TapeError, TapeWriter,
};

/// Batches that may wait for the writer. A full channel makes the drain wait.
const WAITING_BATCHES: usize = 16;
/// A block is closed when its first request has waited for so long.
const BLOCK_AGE: Duration = Duration::from_secs(2);

/// What a round of draining yields.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub requests: Vec<Request>,
    pub counters: Counters,
    pub losses: Vec<Loss>,
    pub anchor: Option<Anchor>,
}

impl Batch {
    fn is_empty(&self) -> bool {
        self.requests.is_empty()
            && self.losses.is_empty()
            && self.anchor.is_none()
            && self.counters == Counters::default()
    }
}

/// What a tape begins with.
#[derive(Debug)]
pub(super) struct Beginning {
    pub header: Header,
    pub devices: Vec<Device>,
    pub anchor: Anchor,
}

/// The thread, and the way to it.
#[derive(Debug)]
pub(super) struct Writer<'scope> {
    batches: SyncSender<Batch>,
    used: Receiver<Vec<Request>>,
    thread: ScopedJoinHandle<'scope, Result<Summary, TapeError>>,
    written: Arc<AtomicU64>,
}

/// The writer ended before the recording: [`Writer::finish`] tells why.
#[derive(Debug)]
pub(super) struct WriterGone;

impl<'scope> Writer<'scope> {
    /// Starts the thread.
    pub fn spawn(
        scope: &'scope Scope<'scope, '_>,
        sink: impl Write + Send + 'scope,
        beginning: Beginning,
    ) -> Writer<'scope> {
        let (batches, incoming) = sync_channel(WAITING_BATCHES);
        let (give_back, used) = sync_channel(WAITING_BATCHES);
        let written = Arc::new(AtomicU64::new(0));
        let sink = Counted {
            sink,
            written: Arc::clone(&written),
        };
        let thread = scope.spawn(move || write(sink, &beginning, &incoming, &give_back));
        Writer {
            batches,
            used,
            thread,
            written,
        }
    }

    /// Hands a batch over and leaves an empty one. Waits while the channel is full.
    pub fn send(&self, batch: &mut Batch) -> Result<(), WriterGone> {
        if batch.is_empty() {
            return Ok(());
        }
        let requests = self.used.try_recv().unwrap_or_default();
        let next = Batch {
            requests,
            ..Batch::default()
        };
        self.batches
            .send(std::mem::replace(batch, next))
            .map_err(|_| WriterGone)
    }

    /// Bytes of tape so far.
    pub fn bytes(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// Waits until everything is written. Returns the tape's totals and its size.
    pub fn finish(self) -> Result<(Summary, u64), TapeError> {
        drop(self.batches);
        let summary = match self.thread.join() {
            Ok(result) => result?,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        Ok((summary, self.written.load(Ordering::Relaxed)))
    }
}

fn write(
    sink: impl Write,
    beginning: &Beginning,
    incoming: &Receiver<Batch>,
    give_back: &SyncSender<Vec<Request>>,
) -> Result<Summary, TapeError> {
    let mut tape = TapeWriter::create(sink, &beginning.header, &beginning.devices, Level::Live)?;
    tape.anchor(beginning.anchor)?;
    let mut block = OpenBlock::default();
    loop {
        match incoming.recv_timeout(block.patience()) {
            Ok(batch) => {
                block.add(&batch);
                let used = put(&mut tape, batch)?;
                // If nobody takes it back, a new one is allocated there.
                if let Err(TrySendError::Disconnected(_)) = give_back.try_send(used) {}
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        if block.is_old() {
            tape.close_block()?;
            block = OpenBlock::default();
        }
    }
    let (_, summary) = tape.finish()?;
    Ok(summary)
}

fn put(tape: &mut TapeWriter<impl Write>, mut batch: Batch) -> Result<Vec<Request>, TapeError> {
    if let Some(anchor) = batch.anchor {
        tape.anchor(anchor)?;
    }
    for loss in batch.losses {
        tape.loss(loss)?;
    }
    tape.count(&batch.counters);
    for request in &batch.requests {
        tape.push(request)?;
    }
    batch.requests.clear();
    Ok(batch.requests)
}

/// The block that the tape has open: since when, and how full.
#[derive(Debug, Default)]
struct OpenBlock {
    since: Option<Instant>,
    requests: usize,
}

impl OpenBlock {
    fn add(&mut self, batch: &Batch) {
        let total = self.requests + batch.requests.len();
        // The tape closes full blocks itself.
        if self.since.is_none() || total >= BLOCK_REQUESTS {
            self.since = Some(Instant::now());
        }
        self.requests = total % BLOCK_REQUESTS;
    }

    fn patience(&self) -> Duration {
        self.since
            .map_or(BLOCK_AGE, |since| BLOCK_AGE.saturating_sub(since.elapsed()))
    }

    fn is_old(&self) -> bool {
        self.since.is_some_and(|since| since.elapsed() >= BLOCK_AGE)
    }
}

/// Counts what a sink has taken.
struct Counted<W> {
    sink: W,
    written: Arc<AtomicU64>,
}

impl<W: Write> Write for Counted<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.sink.write(bytes)?;
        self.written.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.sink.flush()
    }
}
