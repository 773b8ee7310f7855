//! Records from any [`Read`]: a file, a pipe, bytes in memory.

use std::io::{ErrorKind, Read};

use crate::damage::Damage;
use crate::decode::{Decoder, Outcome};
use crate::error::Error;
use crate::format::Format;
use crate::record::{Header, Record};

/// Size of the buffer that [`Reader::new`] takes.
const BUFFER_BYTES: usize = 256 * 1024;
/// The least that is worth a call to the system.
const MIN_BUFFER_BYTES: usize = 4096;

/// What [`Reader::peek`] finds.
pub(crate) enum Peeked<'a> {
    /// A header.
    Header(Header<'a>),
    /// The end of the file.
    End,
    /// Bytes that are no record.
    Damaged,
}

/// Reads records one after the other, from chunks of a fixed size.
#[derive(Debug)]
pub struct Reader<R> {
    source: R,
    decoder: Decoder,
    /// Its length is its capacity. It grows only for a record that does not fit, and for notes in a
    /// row: the decoder never asks for more than the longest record and a header behind it.
    buffer: Vec<u8>,
    /// Where the record begins that was found last.
    found: usize,
    /// Where it ends.
    found_end: usize,
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
            found: 0,
            found_end: 0,
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
        Ok(if self.advance()? { self.record() } else { None })
    }

    /// Goes on to the next record; says whether there is one.
    #[inline]
    pub(crate) fn advance(&mut self) -> Result<bool, Error> {
        loop {
            let input = self.buffer.get(self.start..self.end).unwrap_or_default();
            let (outcome, used) = self.decoder.advance(input, self.ended)?;
            self.found = self.start;
            self.start += used;
            self.found_end = self.start;
            match outcome {
                Outcome::Found => return Ok(true),
                Outcome::Skipped => {}
                Outcome::More(bytes) => self.fill(bytes)?,
                Outcome::End => return Ok(false),
            }
        }
    }

    /// The record that [`Reader::advance`] found last.
    #[inline]
    pub(crate) fn record(&self) -> Option<Record<'_>> {
        self.decoder
            .record(self.buffer.get(self.found..self.found_end)?)
    }

    /// The header of the record that [`Reader::advance`] found last.
    #[inline]
    pub(crate) fn header(&self) -> Option<Header<'_>> {
        let format = self.decoder.format()?;
        Header::new(format, self.buffer.get(self.found..self.found_end)?)
    }

    /// Whether the file was left torn by a recorder that was killed, or cut; known at its end.
    pub(crate) fn is_torn(&self) -> bool {
        let damage = self.decoder.damage();
        damage.truncated.is_some() || damage.zero_tail.is_some()
    }

    /// The header that stands `ahead` bytes behind the record that was found last, without going
    /// on to it.
    pub(crate) fn peek(&mut self, ahead: usize) -> Result<Peeked<'_>, Error> {
        let Some(format) = self.decoder.format() else {
            return Ok(Peeked::End);
        };
        self.fill(ahead + format.header_bytes())?;
        let input = self.buffer.get(self.start + ahead..self.end);
        let input = input.unwrap_or_default();
        Ok(match Header::new(format, input) {
            Some(header) if input.starts_with(&format.magic()) => Peeked::Header(header),
            None if input.is_empty() => Peeked::End,
            _ => Peeked::Damaged,
        })
    }

    /// Reads until `wanted` bytes are there for the decoder, or the source ends. Keeps the record
    /// that was found last.
    #[cold]
    fn fill(&mut self, wanted: usize) -> Result<(), Error> {
        if self.end - self.start >= wanted || self.ended {
            return Ok(());
        }
        self.buffer.copy_within(self.found..self.end, 0);
        self.found_end -= self.found;
        self.start -= self.found;
        self.end -= self.found;
        self.found = 0;
        let wanted_end = self.start + wanted;
        if wanted_end > self.buffer.len() {
            self.buffer.resize(wanted_end, 0);
        }
        while self.end < wanted_end && !self.ended {
            let free = self.buffer.get_mut(self.end..).unwrap_or_default();
            match self.source.read(free) {
                Ok(0) => self.ended = true,
                Ok(bytes) => self.end = self.buffer.len().min(self.end + bytes),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(source) => {
                    let unread = (self.end - self.start) as u64;
                    let offset = self.decoder.offset() + unread;
                    return Err(Error::Read { offset, source });
                }
            }
        }
        Ok(())
    }
}
