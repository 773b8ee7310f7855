//! Records from any [`Read`]: a file, a pipe, bytes in memory.

use std::io::{ErrorKind, Read};

use crate::damage::Damage;
use crate::decode::{Decoder, Found, Outcome};
use crate::error::Error;
use crate::format::Format;
use crate::record::Record;

/// Size of the buffer that [`Reader::new`] takes.
const BUFFER_BYTES: usize = 256 * 1024;
/// The least that is worth a call to the system.
const MIN_BUFFER_BYTES: usize = 4096;

/// Reads records one after the other, from chunks of a fixed size.
#[derive(Debug)]
pub struct Reader<R> {
    source: R,
    decoder: Decoder,
    /// Its length is its capacity; it grows only for a record that does not fit: the decoder
    /// never asks for more than the longest record and a header behind it.
    buffer: Vec<u8>,
    /// The bytes in the buffer that the decoder is not done with.
    start: usize,
    end: usize,
    /// The source has no more.
    ended: bool,
}

impl<R: Read> Reader<R> {
    /// Reads from `source` through a buffer of 256 KiB.
    pub fn new(source: R) -> Reader<R> {
        Reader::with_buffer(source, BUFFER_BYTES)
    }

    /// Reads from `source` through a buffer of this many bytes, at least 4 KiB. A longer record
    /// (up to 64 KiB) makes it grow.
    pub fn with_buffer(source: R, bytes: usize) -> Reader<R> {
        Reader {
            source,
            decoder: Decoder::new(),
            buffer: vec![0; bytes.max(MIN_BUFFER_BYTES)],
            start: 0,
            end: 0,
            ended: false,
        }
    }

    /// Version and byte order; `None` before the first record.
    pub fn format(&self) -> Option<Format> {
        self.decoder.format()
    }

    /// How many bytes of the file are done with.
    pub fn offset(&self) -> u64 {
        self.decoder.offset()
    }

    /// What was not as it should be, so far.
    pub fn damage(&self) -> &Damage {
        self.decoder.damage()
    }

    /// The next record; `None` at the end.
    ///
    /// # Errors
    ///
    /// When the source cannot be read, or is not blktrace's.
    #[inline]
    pub fn next_record(&mut self) -> Result<Option<Record<'_>>, Error> {
        Ok(self.advance()?.map(|found| self.record(&found)))
    }

    /// The next record's parts, to be put together by [`Reader::record`].
    #[inline]
    pub(crate) fn advance(&mut self) -> Result<Option<Found>, Error> {
        loop {
            let input = self.buffer.get(self.start..self.end).unwrap_or_default();
            let (outcome, used) = self.decoder.advance(input, self.ended)?;
            let begin = self.start;
            self.start += used;
            match outcome {
                Outcome::Found(mut found) => {
                    found.payload.start += begin;
                    found.payload.end += begin;
                    return Ok(Some(found));
                }
                Outcome::Skipped => {}
                Outcome::More(bytes) => self.fill(bytes)?,
                Outcome::End => return Ok(None),
            }
        }
    }

    /// The record that [`Reader::advance`] found last.
    #[inline]
    pub(crate) fn record(&self, found: &Found) -> Record<'_> {
        found.record(&self.buffer, self.decoder.order())
    }

    /// Reads until `wanted` bytes are there, or the source ends.
    #[cold]
    fn fill(&mut self, wanted: usize) -> Result<(), Error> {
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        if wanted > self.buffer.len() {
            self.buffer.resize(wanted, 0);
        }
        while self.end < wanted && !self.ended {
            let free = self.buffer.get_mut(self.end..).unwrap_or_default();
            match self.source.read(free) {
                Ok(0) => self.ended = true,
                Ok(bytes) => self.end = self.buffer.len().min(self.end + bytes),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(source) => {
                    let offset = self.decoder.offset() + self.end as u64;
                    return Err(Error::Read { offset, source });
                }
            }
        }
        Ok(())
    }
}
