//! Writing a recording's tapes within their bounds.
//!
//! How large a block becomes is known once it is encoded, and then it is too late to write less. So
//! the open block never holds more requests than would fit if they compressed as badly as possible,
//! and what its real size leaves over is filled by further, smaller blocks, until little is left.
//!
//! Every segment begins with the recording's own time 0: the times of all segments are on one
//! clock, whatever becomes of the wall clock meanwhile, and joining them shifts nothing.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use foldhash::HashSet;
use iotape_formats::Request;
use iotape_formats::tape::{
    Anchor, BLOCK_REQUESTS, Counters, Device, Header, Level, Loss, NameKind, Names, Summary,
    TapeError, TapeWriter,
};

use crate::{Bounds, Destination, Ended, Rotate};

/// A block is closed when its first request has waited for so long.
pub(super) const BLOCK_AGE: Duration = Duration::from_secs(2);
/// How often the free space is looked at.
const LOOK_AT_SPACE: Duration = Duration::from_secs(1);

/// How long the work on a block goes on at least before others may have the processor. Each time costs
/// the scheduler's slice where they want it.
const PIECE: Duration = Duration::from_micros(500);

/// No request takes more in a block: 71 bytes of columns, and a process of its own.
const LARGEST_REQUEST: u64 = 128;
/// What a block takes without requests, at most.
const BLOCK_BYTES: u64 = 2048;
/// What an anchor or a loss takes, at most.
const RECORD_BYTES: u64 = 128;
/// What a name takes besides its bytes, at most.
const NAME_BYTES: u64 = 64;
/// Most groups without a name that are kept in mind.
const MOST_UNNAMED: usize = 4096;
/// What a footer takes, at most: by itself, for each device, and for each record before it.
const FOOTER_BYTES: u64 = 2048;
const FOOTER_DEVICE_BYTES: u64 = 64;
const FOOTER_RECORD_BYTES: u64 = 64;
/// Space that is not worth another block.
const LEFTOVER_BYTES: u64 = 256 << 10;

/// What a tape begins with.
#[derive(Debug)]
pub(super) struct Beginning {
    pub header: Header,
    pub devices: Vec<Device>,
    /// Time 0 of the recording.
    pub anchor: Anchor,
}

/// How much was written, for those who watch.
#[derive(Debug, Default)]
pub(super) struct Watched {
    pub bytes: AtomicU64,
    pub segments: AtomicU32,
}

/// Why no more is written.
#[derive(Debug)]
pub(super) enum Stop {
    Bound(Ended),
    Failed(TapeError),
}

impl From<TapeError> for Stop {
    fn from(error: TapeError) -> Stop {
        Stop::Failed(error)
    }
}

/// What was written.
#[derive(Debug, Default)]
pub(super) struct Written {
    pub summary: Summary,
    pub bytes: u64,
    pub segments: u32,
    pub removed: u32,
}

/// The tapes of a recording.
pub(super) struct Segments<'a, D: Destination> {
    destination: &'a mut D,
    bounds: Bounds,
    beginning: Beginning,
    watched: Arc<Watched>,
    open: Option<Open<D::Sink>>,
    latest_anchor: Anchor,
    /// Of control groups, for every segment whose requests name them.
    names: Names,
    /// Bytes of the segments that are ended and still there, the oldest first.
    kept: VecDeque<u64>,
    written: Written,
    looked_at_space: Instant,
}

/// The segment that is being written.
struct Open<S> {
    tape: TapeWriter<Counted<S>>,
    since: Instant,
    /// Most bytes that it may have.
    limit: u64,
    /// Requests in the open block, and how many there may be.
    pending: usize,
    allowed: usize,
    /// Since when the open block's first request waits.
    waiting_since: Option<Instant>,
    /// Records that the footer lists.
    listed: u64,
    /// Control groups whose names the segment has.
    named: HashSet<u64>,
    /// Control groups that occurred and had no name then.
    unnamed: HashSet<u64>,
    /// The latest group that needs no more to be done, since requests of one group come together.
    settled: Option<u64>,
    /// What names take that may not have been written yet.
    name_bytes: u64,
}

impl<'a, D: Destination> Segments<'a, D> {
    /// Begins the first tape.
    pub fn begin(
        destination: &'a mut D,
        bounds: Bounds,
        beginning: Beginning,
        watched: Arc<Watched>,
    ) -> Result<Self, TapeError> {
        let mut segments = Segments {
            destination,
            bounds,
            latest_anchor: beginning.anchor,
            beginning,
            watched,
            open: None,
            names: Names::default(),
            kept: VecDeque::new(),
            written: Written::default(),
            looked_at_space: Instant::now(),
        };
        segments.begin_next()?;
        Ok(segments)
    }

    /// How long the open block may still wait.
    #[cfg(target_os = "linux")]
    pub fn patience(&self) -> Duration {
        let waiting = self.open.as_ref().and_then(|open| open.waiting_since);
        waiting.map_or(BLOCK_AGE, |since| BLOCK_AGE.saturating_sub(since.elapsed()))
    }

    #[cfg(any(target_os = "linux", test))]
    pub fn anchor(&mut self, anchor: Anchor) -> Result<(), Stop> {
        self.latest_anchor = anchor;
        self.listed(|tape| tape.anchor(anchor))
    }

    pub fn loss(&mut self, loss: Loss) -> Result<(), Stop> {
        self.listed(|tape| tape.loss(loss))
    }

    pub fn count(&mut self, counters: &Counters) -> Result<(), Stop> {
        self.open()?.tape.count(counters);
        Ok(())
    }

    /// Takes the name of a control group. It is written before the requests that name it, in each
    /// segment that has any; where they came earlier, at once.
    #[cfg(any(target_os = "linux", test))]
    pub fn name(&mut self, name: &iotape_formats::tape::Name) -> Result<(), Stop> {
        self.names.insert(name.kind, name.id, &name.name);
        self.open()?.settled = None;
        if self.open()?.unnamed.remove(&name.id) {
            self.write_name(name.id)?;
        }
        Ok(())
    }

    pub fn push(&mut self, request: &Request) -> Result<(), Stop> {
        if self.open()?.is_full() {
            self.close_block()?;
        }
        if let Some(id) = request.cgroup
            && self.open()?.settled != Some(id)
        {
            self.write_name(id)?;
        }
        let open = self.open()?;
        open.tape.push(request)?;
        open.pending += 1;
        open.waiting_since.get_or_insert_with(Instant::now);
        // The tape closes a full block itself.
        if open.pending >= BLOCK_REQUESTS {
            self.block_closed()?;
        }
        Ok(())
    }

    /// Does what is due: closes a block that is old, ends a segment that is, looks at the space.
    pub fn tick(&mut self) -> Result<(), Stop> {
        let open = self.open()?;
        if open
            .waiting_since
            .is_some_and(|since| since.elapsed() >= BLOCK_AGE)
        {
            self.close_block()?;
        }
        if let Some(Rotate::Every(time)) = self.bounds.rotate
            && self.open()?.since.elapsed() >= time
        {
            self.rotate()?;
        }
        if self.looked_at_space.elapsed() >= LOOK_AT_SPACE {
            self.look_at_space()?;
        }
        Ok(())
    }

    /// Ends the last tape.
    pub fn finish(mut self) -> Result<Written, TapeError> {
        self.end()?;
        Ok(self.written)
    }

    /// The tape cannot be written any further: takes a torn record away. Answers how many requests
    /// waited to be written.
    pub fn give_up(mut self) -> usize {
        let Some(open) = self.open.take() else {
            return 0;
        };
        // Where even that fails, the tape ends with a torn record, which readers know.
        let _ = self.destination.end(open.tape.bytes_written());
        open.pending
    }

    /// Writes a record that the footer lists too.
    fn listed(
        &mut self,
        write: impl FnOnce(&mut TapeWriter<Counted<D::Sink>>) -> Result<(), TapeError>,
    ) -> Result<(), Stop> {
        if self.open()?.has_no_room_for_record() {
            self.close_block()?;
            if self.open()?.has_no_room_for_record() {
                self.rotate()?;
            }
        }
        let devices = self.beginning.devices.len();
        let open = self.open()?;
        write(&mut open.tape)?;
        open.listed += 1;
        open.allow(devices);
        Ok(())
    }

    /// Writes the name of a control group, if it has one that the segment lacks.
    fn write_name(&mut self, id: u64) -> Result<(), Stop> {
        let Some(name) = self.names.get(NameKind::Cgroup, id).map(Arc::clone) else {
            let open = self.open()?;
            if open.unnamed.len() < MOST_UNNAMED {
                open.unnamed.insert(id);
            }
            open.settled = Some(id);
            return Ok(());
        };
        if self.open()?.named.contains(&id) {
            self.open()?.settled = Some(id);
            return Ok(());
        }
        let devices = self.beginning.devices.len();
        let bytes = NAME_BYTES + name.len() as u64;
        if self.open()?.has_no_room_for_name(devices, bytes) {
            // Goes on in the next segment, unless enough is left.
            self.close_block()?;
        }
        let open = self.open()?;
        if open.has_no_room_for_name(devices, bytes) {
            return Ok(());
        }
        open.tape.name(NameKind::Cgroup, id, &name)?;
        open.named.insert(id);
        open.name_bytes += bytes;
        open.allow(devices);
        Ok(())
    }

    fn close_block(&mut self) -> Result<(), Stop> {
        self.open()?.tape.close_block()?;
        self.block_closed()
    }

    /// A block was written: is there room for another?
    fn block_closed(&mut self) -> Result<(), Stop> {
        let devices = self.beginning.devices.len();
        let open = self.open()?;
        open.pending = 0;
        open.name_bytes = 0;
        open.waiting_since = None;
        open.listed += 1;
        open.allow(devices);
        if open.room(devices) < LEFTOVER_BYTES.min(open.limit / 8) {
            self.rotate()?;
        }
        self.look_at_space()
    }

    /// Goes on in the next segment, if there is one.
    fn rotate(&mut self) -> Result<(), Stop> {
        self.end()?;
        if self.bounds.rotate.is_none() || self.left() < Bounds::LEAST_BYTES {
            return Err(Stop::Bound(Ended::MaxBytes));
        }
        Ok(self.begin_next()?)
    }

    /// Bytes that further segments may have.
    fn left(&self) -> u64 {
        match (self.bounds.max_bytes, self.bounds.keep) {
            // Each has its share, and there are never more than that.
            (_, Some(_)) | (None, None) => u64::MAX,
            (Some(most), None) => most.saturating_sub(self.kept.iter().sum()),
        }
    }

    fn begin_next(&mut self) -> Result<(), TapeError> {
        while let Some(keep) = self.bounds.keep
            && self.kept.len() >= keep as usize
        {
            self.remove_oldest().map_err(of_system)?;
        }
        let sink = self.destination.begin().map_err(of_system)?;
        let sink = Counted {
            sink,
            watched: Arc::clone(&self.watched),
        };
        let mut header = self.beginning.header.clone();
        if self.bounds.rotate.is_some() {
            header
                .options
                .push(format!("segment={}", self.written.segments + 1));
        }
        let devices = &self.beginning.devices;
        let mut tape = TapeWriter::create(sink, &header, devices, Level::Live)?;
        // What is recorded runs on the same processors, and would wait for a whole block.
        tape.pause_with(in_pieces(thread::yield_now));
        tape.anchor(self.beginning.anchor)?;
        let limit = self.bounds.segment_bytes().unwrap_or(u64::MAX);
        let mut open = Open {
            tape,
            since: Instant::now(),
            limit: limit.min(self.left()),
            pending: 0,
            allowed: 0,
            waiting_since: None,
            listed: 1,
            named: HashSet::default(),
            unnamed: HashSet::default(),
            settled: None,
            name_bytes: 0,
        };
        if self.latest_anchor != self.beginning.anchor {
            open.tape.anchor(self.latest_anchor)?;
            open.listed += 1;
        }
        open.allow(devices.len());
        self.open = Some(open);
        self.written.segments += 1;
        self.watched
            .segments
            .store(self.written.segments, Ordering::Relaxed);
        Ok(())
    }

    fn end(&mut self) -> Result<(), TapeError> {
        let Some(open) = self.open.take() else {
            return Ok(());
        };
        let whole = open.tape.bytes_written();
        let before = self.written.bytes;
        let ended = open.tape.finish();
        let bytes = self.watched.bytes.load(Ordering::Relaxed) - before;
        match ended {
            Ok((_, summary)) => {
                self.written.summary.merge(&summary);
                self.written.bytes += bytes;
                self.kept.push_back(bytes);
                self.destination.end(bytes).map_err(of_system)
            }
            Err(error) => {
                let _ = self.destination.end(whole);
                Err(error)
            }
        }
    }

    fn remove_oldest(&mut self) -> io::Result<()> {
        self.destination.remove_oldest()?;
        self.kept.pop_front();
        self.written.removed += 1;
        Ok(())
    }

    /// Keeps the floor of free space.
    fn look_at_space(&mut self) -> Result<(), Stop> {
        self.looked_at_space = Instant::now();
        while let Some(free) = self.destination.free_bytes()
            && free < self.bounds.min_free_bytes
        {
            let may_remove = self.bounds.keep.is_some() && !self.kept.is_empty();
            if !may_remove {
                self.end()?;
                return Err(Stop::Bound(Ended::LowSpace));
            }
            self.remove_oldest().map_err(of_system)?;
        }
        Ok(())
    }

    fn open(&mut self) -> Result<&mut Open<D::Sink>, Stop> {
        let over = || Stop::Failed(of_system(io::Error::other("the tape has ended")));
        self.open.as_mut().ok_or_else(over)
    }
}

impl<D: Destination> std::fmt::Debug for Segments<'_, D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Segments")
            .field("bounds", &self.bounds)
            .field("written", &self.written)
            .finish_non_exhaustive()
    }
}

impl<S: Write> Open<S> {
    /// Bytes that blocks and other records may still take.
    fn room(&self, devices: usize) -> u64 {
        let footer = FOOTER_BYTES
            + FOOTER_DEVICE_BYTES * devices as u64
            + FOOTER_RECORD_BYTES * (self.listed + 1);
        self.limit
            .saturating_sub(self.tape.bytes_written())
            .saturating_sub(self.name_bytes)
            .saturating_sub(footer)
    }

    /// Decides how many requests the open block may have.
    fn allow(&mut self, devices: usize) {
        let room = self.room(devices).saturating_sub(BLOCK_BYTES);
        let allowed = usize::try_from(room / LARGEST_REQUEST).unwrap_or(usize::MAX);
        // At least one, so that it goes on whatever was estimated.
        self.allowed = allowed.clamp(1, BLOCK_REQUESTS);
    }

    fn is_full(&self) -> bool {
        self.pending >= self.allowed
    }

    /// Whether a name of so many bytes would take the room of requests that wait, or of the next.
    fn has_no_room_for_name(&self, devices: usize, bytes: u64) -> bool {
        let requests = (self.pending as u64 + 1).saturating_mul(LARGEST_REQUEST);
        self.room(devices) < bytes.saturating_add(BLOCK_BYTES).saturating_add(requests)
    }

    /// Whether another record would take the room of requests that wait.
    fn has_no_room_for_record(&self) -> bool {
        let needed = RECORD_BYTES.div_ceil(LARGEST_REQUEST) as usize + 1;
        self.allowed < self.pending + needed
    }
}

/// `pause` as often as it is worth it: the work never takes more than three times as long for it,
/// however many want the processor.
fn in_pieces(pause: fn()) -> impl FnMut() + Send + 'static {
    let (mut since, mut piece) = (Instant::now(), PIECE);
    move || {
        let now = Instant::now();
        if now.saturating_duration_since(since) >= piece {
            pause();
            since = Instant::now();
            piece = PIECE.max(since.saturating_duration_since(now) / 2);
        }
    }
}

fn of_system(error: io::Error) -> TapeError {
    TapeError::Io { offset: 0, error }
}

/// Counts what a sink has taken.
struct Counted<S> {
    sink: S,
    watched: Arc<Watched>,
}

impl<S: Write> Write for Counted<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.sink.write(bytes)?;
        self.watched
            .bytes
            .fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.sink.flush()
    }
}

#[cfg(test)]
mod tests;
