//! Events of a file, in the order of their times.

use std::cmp::Reverse;
use std::collections::binary_heap::PeekMut;
use std::collections::hash_map::Entry;
use std::collections::{BinaryHeap, HashMap};
use std::io::{Read, Seek};

use crate::buffer::{BufferHeader, HEADER_BYTES, MAX_BUFFER_BYTES};
use crate::clock::Clock;
use crate::damage::{Damage, Losses};
use crate::decompress::{Compression, decompress};
use crate::error::Error;
use crate::event::{self, Event, frame_at};
use crate::kernel::hook;
use crate::log_header::{LogHeader, mode};
use crate::source::Source;
use crate::streams::{Key, Stream};
use crate::walk::{Place, Walk};

/// Most streams: processors times types of buffers.
const MAX_STREAMS: usize = 4096;
/// Most bytes of events in memory: one buffer of each stream.
const MAX_RESIDENT_BYTES: usize = 512 << 20;

/// Reads the events of a trace in the order of their times; those of the same time in the order in
/// which their processors turn up in the file.
///
/// Opening reads the headers of all buffers, 72 bytes each. Then each buffer is read once. In memory
/// are one buffer for each processor, at most 512 MiB in all, and the places of up to 1,024
/// more for each, however long the file is.
#[derive(Debug)]
pub struct Reader<R> {
    source: Source<R>,
    header: LogHeader,
    clock: Clock,
    compression: Option<Compression>,
    start: Walk,
    streams: Vec<Stream>,
    /// The streams that have a next event, but for the current one.
    waiting: BinaryHeap<Reverse<(i64, usize)>>,
    /// The stream whose event was given out last.
    current: Option<usize>,
    last_ticks: i64,
    resident: usize,
    /// Compressed bytes of a buffer.
    scratch: Vec<u8>,
    buffers: u64,
    bytes: u64,
    damage: Damage,
    losses: Losses,
}

impl<R: Read + Seek> Reader<R> {
    /// Opens a trace.
    ///
    /// # Errors
    ///
    /// When the file is none, its clock or compression is not known, or it cannot be read.
    pub fn open(source: R) -> Result<Reader<R>, Error> {
        let mut source = Source::new(source)?;
        let (first, header) = first_event(&mut source)?;
        let mut reader = Reader {
            clock: Clock::new(&header)?,
            compression: compression(&first, &header)?,
            start: Walk::new(source.len()),
            streams: Vec::new(),
            waiting: BinaryHeap::new(),
            current: None,
            last_ticks: i64::MIN,
            resident: 0,
            scratch: Vec::new(),
            buffers: 0,
            bytes: 0,
            damage: Damage::default(),
            losses: Losses {
                events: header.events_lost,
                buffers: header.buffers_lost,
                ..Losses::default()
            },
            source,
            header,
        };
        if reader.header.is_circular() {
            reader.find_oldest(&first)?;
        }
        reader.find_streams()?;
        for index in 0..reader.streams.len() {
            if reader.next_buffer(index)? {
                reader.wait(index);
            }
        }
        Ok(reader)
    }

    /// What the trace says about itself.
    pub fn header(&self) -> &LogHeader {
        &self.header
    }

    /// The clock of the events' times.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// How many buffers the file has.
    pub fn buffers(&self) -> u64 {
        self.buffers
    }

    /// Length of the file.
    pub fn file_bytes(&self) -> u64 {
        self.source.len()
    }

    /// How many bytes of buffers were read so far.
    pub fn bytes_read(&self) -> u64 {
        self.bytes
    }

    /// What was not as it should be, so far.
    pub fn damage(&self) -> &Damage {
        &self.damage
    }

    /// What the session lost. Buffers that tell of losses are counted as they are read.
    pub fn losses(&self) -> &Losses {
        &self.losses
    }

    /// The next event; `None` at the end.
    ///
    /// # Errors
    ///
    /// When the file cannot be read.
    #[inline]
    pub fn next_event(&mut self) -> Result<Option<Event<'_>>, Error> {
        if !self.advance()? {
            return Ok(None);
        }
        let stream = self.current.and_then(|index| self.streams.get(index));
        Ok(stream.and_then(|stream| {
            let frame = stream.frame.as_ref()?;
            Some(Event::new(&stream.events, frame, stream.processor))
        }))
    }

    /// Shows events of about the first and the last `bytes` of the file, buffer by buffer and not in
    /// the order of time: a session describes processes when it begins and disks when it ends. Is
    /// to be called before the first [`Reader::next_event`], or does not matter to it.
    ///
    /// # Errors
    ///
    /// When the file cannot be read.
    pub fn visit_edges(
        &mut self,
        bytes: u64,
        visit: &mut dyn FnMut(&Event<'_>),
    ) -> Result<(), Error> {
        let mut walk = self.start.clone();
        let (mut known, mut events, mut passed) = (Damage::default(), Vec::new(), 0u64);
        let last = self.source.len().saturating_sub(bytes);
        while let Some((place, header)) = walk.next(&mut self.source, &mut known)? {
            passed += u64::from(place.bytes);
            if passed > bytes && passed <= last {
                continue;
            }
            self.load(place, &mut events, &mut known)?;
            let mut at = 0;
            while let Some(Ok(frame)) = frame_at(&events, at) {
                visit(&Event::new(&events, &frame, header.processor));
                at = frame.next();
            }
        }
        Ok(())
    }

    /// Goes on to the next event; says whether there is one.
    #[inline]
    fn advance(&mut self) -> Result<bool, Error> {
        let mut next = None;
        if let Some(index) = self.current.take()
            && self.next_of(index)?
        {
            let ticks = self
                .streams
                .get(index)
                .map_or(i64::MAX, |stream| stream.ticks);
            next = Some((ticks, index));
        }
        let next = match (next, self.waiting.peek_mut()) {
            // To change places with the first costs half of what leaving and queueing does.
            (Some(next), Some(mut first)) if next > first.0 => {
                Some(std::mem::replace(&mut *first, Reverse(next)).0)
            }
            (None, Some(first)) => Some(PeekMut::pop(first).0),
            (next, _) => next,
        };
        Ok(next.is_some_and(|(ticks, index)| self.give_out(index, ticks)))
    }

    #[inline]
    fn give_out(&mut self, index: usize, ticks: i64) -> bool {
        self.damage.out_of_order += u64::from(ticks < self.last_ticks);
        self.last_ticks = self.last_ticks.max(ticks);
        self.current = Some(index);
        true
    }

    /// Goes on to the next event of a stream; says whether there is one.
    #[inline]
    fn next_of(&mut self, index: usize) -> Result<bool, Error> {
        let Some(stream) = self.streams.get_mut(index) else {
            return Ok(false);
        };
        let next = stream.frame.as_ref().map_or(usize::MAX, event::Frame::next);
        if stream.take_frame(next, &mut self.damage) {
            return Ok(true);
        }
        self.next_buffer(index)
    }

    /// Goes on to the first event of a stream's next buffer that has one; says whether there is one.
    fn next_buffer(&mut self, index: usize) -> Result<bool, Error> {
        while let Some(stream) = self.streams.get_mut(index) {
            let before_ticks = stream.ticks;
            let Some(place) = stream.next_place(&mut self.source)? else {
                self.resident -= stream.events.capacity();
                stream.events = Vec::new();
                return Ok(false);
            };
            let mut events = std::mem::take(&mut stream.events);
            self.resident -= events.capacity();
            let mut damage = std::mem::take(&mut self.damage);
            let header = self.load(place, &mut events, &mut damage);
            self.damage = damage;
            let header = header?;
            self.bytes += u64::from(place.bytes);
            self.resident += events.capacity();
            let Some(stream) = self.streams.get_mut(index) else {
                return Ok(false);
            };
            stream.events = events;
            let has_event = stream.take_frame(0, &mut self.damage);
            if header.follows_loss() {
                self.losses.flag(before_ticks, stream.ticks);
            }
            if has_event {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Reads the events of a buffer, without its header, in place of what is in `events`.
    fn load(
        &mut self,
        place: Place,
        events: &mut Vec<u8>,
        damage: &mut Damage,
    ) -> Result<BufferHeader, Error> {
        let Some(header) = self.source.header_at(place.offset)? else {
            events.clear();
            return Ok(BufferHeader::default()); // the file got shorter
        };
        let (used, by_offset) = header.used(self.header.buffer_size);
        damage.wrong_offsets += u64::from(!by_offset);
        if self.resident.saturating_add(used) > MAX_RESIDENT_BYTES {
            damage.refused_buffers += 1;
            events.clear();
            return Ok(header);
        }
        let body_at = place.offset + HEADER_BYTES as u64;
        let body_bytes = (place.bytes as usize).saturating_sub(HEADER_BYTES);
        if !header.is_compressed() {
            self.source.read_to(body_at, used.min(body_bytes), events)?;
            return Ok(header);
        }
        self.source
            .read_to(body_at, body_bytes, &mut self.scratch)?;
        let result = match self.compression {
            Some(compression) => decompress(compression, &self.scratch, used, events).is_ok(),
            None => {
                events.clear();
                false
            }
        };
        damage.bad_compression += u64::from(!result);
        Ok(header)
    }

    fn wait(&mut self, index: usize) {
        if let Some(stream) = self.streams.get(index) {
            self.waiting.push(Reverse((stream.ticks, index)));
        }
    }

    /// Finds the streams and the places of their first buffers, and counts the damage.
    fn find_streams(&mut self) -> Result<(), Error> {
        let mut walk = self.start.clone();
        let mut indexes = HashMap::new();
        let mut numbers = Numbers::default();
        if self.header.is_circular() {
            // The walk begins with the oldest buffer, and leaves out the first one.
            let mut first = Walk::new(self.source.len());
            let mut known = Damage::default();
            if let Some((place, header)) = first.next(&mut self.source, &mut known)? {
                self.add(place, &header, &walk, &mut indexes);
            }
        }
        while let Some((place, header)) = walk.next(&mut self.source, &mut self.damage)? {
            numbers.add(header.sequence);
            self.add(place, &header, &walk, &mut indexes);
        }
        self.losses.missing_numbers = numbers.missing();
        Ok(())
    }

    fn add(
        &mut self,
        place: Place,
        header: &BufferHeader,
        walk: &Walk,
        indexes: &mut HashMap<Key, usize>,
    ) {
        self.buffers += 1;
        let key = Key::of(place, header);
        let known = indexes.len();
        let index = match indexes.entry(key) {
            Entry::Occupied(entry) => *entry.get(),
            Entry::Vacant(_) if known == MAX_STREAMS => {
                self.damage.refused_buffers += 1;
                return;
            }
            Entry::Vacant(entry) => {
                let start_ticks = self.header.start_ticks;
                self.streams
                    .push(Stream::new(key, header.processor, start_ticks));
                *entry.insert(known)
            }
        };
        if let Some(stream) = self.streams.get_mut(index) {
            stream.found(place, walk);
        }
    }

    /// Finds where the oldest buffer of a circular file stands: behind the newest, where the
    /// numbers fall back furthest.
    fn find_oldest(&mut self, first: &BufferHeader) -> Result<(), Error> {
        let mut walk = self.start.clone();
        let mut known = Damage::default();
        let first_end = u64::from(first.size).min(self.source.len());
        let (mut oldest, mut furthest, mut before) = (first_end, 0, None);
        while let Some((place, header)) = walk.next(&mut self.source, &mut known)? {
            if place.offset == 0 {
                continue;
            }
            let fall = before.map_or(0, |before: i64| before.saturating_sub(header.sequence));
            if fall > furthest {
                (oldest, furthest) = (place.offset, fall);
            }
            before = Some(header.sequence);
        }
        self.start = Walk::circular(self.source.len(), first_end, oldest);
        Ok(())
    }
}

/// Whether a file that begins with `start` is a trace; 256 bytes are enough to tell.
pub fn is_trace(start: &[u8]) -> bool {
    let plausible = BufferHeader::parse(start).is_some_and(|header| header.is_plausible());
    let event = start.get(HEADER_BYTES..).unwrap_or_default();
    plausible && event::is_log_header(event)
}

/// The numbers of buffers.
#[derive(Default)]
struct Numbers {
    span: Option<(i64, i64)>,
    count: u64,
}

impl Numbers {
    /// The first buffer and those of tools that number none have 0.
    fn add(&mut self, number: i64) {
        if number > 0 {
            let (first, last) = self.span.unwrap_or((number, number));
            self.span = Some((first.min(number), last.max(number)));
            self.count += 1;
        }
    }

    fn missing(&self) -> u64 {
        let span = |(first, last): (i64, i64)| last.abs_diff(first) + 1;
        self.span.map_or(0, span).saturating_sub(self.count)
    }
}

/// The first buffer's header, and what its first event says about the trace.
fn first_event<R: Read + Seek>(source: &mut Source<R>) -> Result<(BufferHeader, LogHeader), Error> {
    let not_etl = |problem: String| Err(Error::NotEtl { problem });
    let mut bytes = Vec::new();
    source.read_to(0, HEADER_BYTES + (64 << 10), &mut bytes)?;
    let Some(first) = BufferHeader::parse(&bytes) else {
        let found = bytes.len();
        return not_etl(format!("{found} bytes, expected a buffer's header of 72"));
    };
    if !first.is_plausible() || first.is_compressed() {
        let (size, flags) = (first.size, first.flags);
        let what = "expected 72 to 16,777,216 bytes and no compression";
        return not_etl(format!(
            "the first buffer is of {size} bytes, flags {flags:#x}; {what}"
        ));
    }
    let events = bytes.get(HEADER_BYTES..).unwrap_or_default();
    let Some(Ok(frame)) = frame_at(events, 0) else {
        return not_etl("the first buffer does not begin with an event".to_owned());
    };
    let event = Event::new(events, &frame, 0);
    if event.hook() != Some(hook::LOG_HEADER) {
        let id = event.id;
        return not_etl(format!("the first event is {id:?}, expected hook 0"));
    }
    let ticks = event.ticks.unwrap_or_default();
    match LogHeader::parse(event.payload, event.pointers, ticks) {
        Some(mut header) => {
            if !(HEADER_BYTES as u32..=MAX_BUFFER_BYTES).contains(&header.buffer_size) {
                header.buffer_size = MAX_BUFFER_BYTES.min(first.size.max(64 << 10));
            }
            Ok((first, header))
        }
        None => not_etl(format!(
            "its description of the trace is cut after {} bytes",
            event.payload.len()
        )),
    }
}

fn compression(first: &BufferHeader, header: &LogHeader) -> Result<Option<Compression>, Error> {
    let number = first.state as u16;
    let compression = Compression::from_number(number);
    match compression {
        None if header.mode & mode::COMPRESSED != 0 => Err(Error::Compression { found: number }),
        compression => Ok(compression),
    }
}
