//! The buffers of each processor, in the order in which they were filled.
//!
//! The order of the buffers in a file is that in which they were written: one of a processor that has
//! little to do is written late. Those of one processor never go back in time, so each processor
//! has a stream of its own. A stream knows the places of its next buffers, a bounded number; when it
//! has used them up, it walks over the headers again from where it stopped.

use std::collections::VecDeque;
use std::io::{Read, Seek};

use crate::buffer::{BufferHeader, buffer_type};
use crate::damage::Damage;
use crate::error::Error;
use crate::event::{Frame, frame_at};
use crate::source::Source;
use crate::walk::{Place, Walk};

/// Most places that a stream knows.
const PLACES: usize = 1024;

/// What the buffers of a stream have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Key {
    /// The first buffer of the file. Its events may be older or newer than those of the others.
    First,
    /// The buffers of one type and processor.
    Of { buffer_type: u16, processor: u16 },
}

impl Key {
    /// The stream of a buffer.
    pub fn of(place: Place, header: &BufferHeader) -> Key {
        match header.buffer_type {
            _ if place.offset == 0 => Key::First,
            buffer_type::HEADER => Key::Of {
                buffer_type: buffer_type::GENERIC,
                processor: header.processor,
            },
            buffer_type => Key::Of {
                buffer_type,
                processor: header.processor,
            },
        }
    }
}

/// The buffers of one processor.
#[derive(Debug)]
pub(crate) struct Stream {
    key: Key,
    places: VecDeque<Place>,
    /// Where to look for more places, when there may be more.
    resume: Option<Walk>,
    pub processor: u16,
    /// Events of the buffer at hand.
    pub events: Vec<u8>,
    /// The event at hand.
    pub frame: Option<Frame>,
    /// Its time; that of the one before it, if it has none.
    pub ticks: i64,
}

impl Stream {
    pub fn new(key: Key, processor: u16, start_ticks: i64) -> Stream {
        Stream {
            key,
            places: VecDeque::new(),
            resume: None,
            processor,
            events: Vec::new(),
            frame: None,
            ticks: start_ticks,
        }
    }

    /// Takes note of the stream's next buffer; `walk` stands behind it.
    pub fn found(&mut self, place: Place, walk: &Walk) {
        if self.resume.is_some() {
            return;
        }
        self.places.push_back(place);
        if self.places.len() == PLACES {
            self.resume = Some(walk.clone());
        }
    }

    /// The place of the stream's next buffer.
    pub fn next_place<R: Read + Seek>(
        &mut self,
        source: &mut Source<R>,
    ) -> Result<Option<Place>, Error> {
        if self.places.is_empty()
            && let Some(mut walk) = self.resume.take()
        {
            // The damage was counted when the walk came here for the first time.
            let mut known = Damage::default();
            while self.resume.is_none()
                && let Some((place, header)) = walk.next(source, &mut known)?
            {
                if Key::of(place, &header) == self.key {
                    self.found(place, &walk);
                }
            }
        }
        Ok(self.places.pop_front())
    }

    /// Goes on to the event at `start` of the buffer at hand; says whether there is one.
    #[inline]
    pub fn take_frame(&mut self, start: usize, damage: &mut Damage) -> bool {
        self.frame = match frame_at(&self.events, start) {
            None => None,
            Some(Ok(frame)) => {
                self.ticks = frame.ticks.unwrap_or(self.ticks);
                Some(frame)
            }
            Some(Err(_)) => {
                damage.bad_events += 1;
                damage.bad_event_bytes += self.events.len().saturating_sub(start) as u64;
                None
            }
        };
        self.frame.is_some()
    }
}
