//! One stream of the records of several files, by time.
//!
//! blktrace writes one file per CPU, each in order of time; a request is mostly issued on one CPU
//! and completed on another. Merging takes one buffer per file and a heap of one entry per file,
//! however long the files are.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::Read;

use thiserror::Error;

use crate::error::Error;
use crate::read::{Peeked, Reader};
use crate::record::{Header, Record};

/// How many notes are skipped to find the next number.
const MAX_NOTES: usize = 16;

/// A record this far ahead of both its neighbours in its file has a damaged time.
const FAR_NS: u64 = 3600 * 1_000_000_000;

/// What went wrong, and in which of the merged files.
#[derive(Debug, Error)]
#[error("{error}")]
pub struct SourceError {
    /// Which of the files, from 0, in the order they were given.
    pub source_index: usize,
    /// What went wrong.
    #[source]
    pub error: Error,
}

/// What comes behind a record in its own file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Continuation {
    /// The next event of its CPU, an event of another CPU, or the file's end.
    Whole,
    /// Events of its CPU are missing before the next one: the kernel dropped them, or the file is
    /// damaged.
    Gap,
    /// The file ends torn: cut inside a record, or left by a recorder that was killed. Events of
    /// its CPU may be missing from here on.
    Torn,
}

/// Records of several files in the order of their times; those of the same time in the order of
/// the files.
///
/// A file that is not in order of time itself is passed on as it is; what comes late is counted.
#[derive(Debug)]
pub struct Merged<R> {
    files: Vec<File<R>>,
    /// The files that have a next record, but for the current one.
    waiting: BinaryHeap<Reverse<(u64, usize)>>,
    /// The file whose record was given out last.
    current: Option<usize>,
    /// Its reader went on to its next record already, of this time; `None` at its end.
    prepared: Option<Option<u64>>,
    last_ns: u64,
    late: u64,
}

#[derive(Debug)]
struct File<R> {
    reader: Reader<R>,
    /// The reader has a next record.
    has_next: bool,
    /// A time behind this is looked at twice.
    far_ns: u64,
    damaged_times: u64,
}

impl SourceError {
    fn of(source_index: usize, error: Error) -> SourceError {
        SourceError {
            source_index,
            error,
        }
    }
}

impl<R: Read> Merged<R> {
    /// Merges these files. Reads the first record of each.
    ///
    /// # Errors
    ///
    /// When a file cannot be read, or is not blktrace's.
    pub fn new(readers: Vec<Reader<R>>) -> Result<Merged<R>, SourceError> {
        let mut merged = Merged {
            waiting: BinaryHeap::with_capacity(readers.len()),
            files: readers.into_iter().map(File::new).collect(),
            current: None,
            prepared: None,
            last_ns: 0,
            late: 0,
        };
        for index in 0..merged.files.len() {
            if let Some(time_ns) = merged.advance(index)? {
                merged.waiting.push(Reverse((time_ns, index)));
            }
        }
        Ok(merged)
    }

    /// The files, in the order they were given.
    pub fn readers(&self) -> impl Iterator<Item = &Reader<R>> {
        self.files.iter().map(|file| &file.reader)
    }

    /// Records of a file that were left out, because they are more than an hour ahead of both
    /// their neighbours: held until their time, they would hold up all others of the file.
    pub fn damaged_times(&self, source_index: usize) -> u64 {
        self.files
            .get(source_index)
            .map_or(0, |file| file.damaged_times)
    }

    /// How many records were older than the one before them.
    pub fn late(&self) -> u64 {
        self.late
    }

    /// The next record and the file it is from; `None` at the end of all.
    ///
    /// # Errors
    ///
    /// When a file cannot be read.
    #[inline]
    pub fn next_record(&mut self) -> Result<Option<(usize, Record<'_>)>, SourceError> {
        let Some(index) = self.next_source()? else {
            return Ok(None);
        };
        let Some(record) = self.files.get(index).and_then(|file| file.reader.record()) else {
            return Ok(None);
        };
        if record.time_ns < self.last_ns {
            self.late += 1;
        }
        self.last_ns = record.time_ns;
        Ok(Some((index, record)))
    }

    /// Looks at what comes behind the record that was given out last, in its own file.
    ///
    /// A gap in a CPU's numbering shows only at the record behind it. Up to then, events of other
    /// CPUs come by while this one's are missing: who pairs events needs to know before.
    ///
    /// # Errors
    ///
    /// When the file cannot be read.
    #[inline]
    pub fn continuation(&mut self) -> Result<Continuation, SourceError> {
        let Some(index) = self.current.filter(|_| self.prepared.is_none()) else {
            return Ok(Continuation::Whole);
        };
        let Some((cpu, sequence, is_note)) = self.number_of_next(index) else {
            return Ok(Continuation::Whole);
        };
        self.prepare(index)?;
        match self.number_of_next(index) {
            Some((next_cpu, next, false)) => {
                let is_gap = !is_note && cpu == next_cpu && is_gap(sequence, next);
                Ok(if is_gap {
                    Continuation::Gap
                } else {
                    Continuation::Whole
                })
            }
            _ if is_note => Ok(Continuation::Whole),
            _ => self.continuation_behind_notes(index, cpu, sequence),
        }
    }

    #[cold]
    fn continuation_behind_notes(
        &mut self,
        index: usize,
        cpu: u32,
        sequence: u32,
    ) -> Result<Continuation, SourceError> {
        let Some(File {
            reader, has_next, ..
        }) = self.files.get_mut(index)
        else {
            return Ok(Continuation::Whole);
        };
        if !*has_next {
            return Ok(if reader.is_torn() {
                Continuation::Torn
            } else {
                Continuation::Whole
            });
        }
        let mut ahead = 0;
        for _ in 0..MAX_NOTES {
            let peeked = reader.peek(ahead);
            match peeked.map_err(|error| SourceError::of(index, error))? {
                Peeked::Header(note) if note.action().is_note() => ahead += note.record_bytes(),
                Peeked::Header(next) if next.cpu() != cpu || !is_gap(sequence, next.sequence()) => {
                    break;
                }
                Peeked::Header(_) | Peeked::Damaged => return Ok(Continuation::Gap),
                Peeked::End => break,
            }
        }
        Ok(Continuation::Whole)
    }

    /// CPU and number of the file's next record, and whether it is a note.
    #[inline]
    fn number_of_next(&self, index: usize) -> Option<(u32, u32, bool)> {
        let file = self.files.get(index).filter(|file| file.has_next)?;
        let header = file.reader.header()?;
        Some((header.cpu(), header.sequence(), header.action().is_note()))
    }

    /// Goes on to the file's next record, once, and tells its time.
    #[inline]
    fn prepare(&mut self, index: usize) -> Result<Option<u64>, SourceError> {
        if let Some(prepared) = self.prepared {
            return Ok(prepared);
        }
        let next = self.advance(index)?;
        self.prepared = Some(next);
        Ok(next)
    }

    /// The file with the earliest record that was not given out yet.
    #[inline]
    fn next_source(&mut self) -> Result<Option<usize>, SourceError> {
        let next = match self.current {
            Some(index) => self.prepare(index)?.map(|time_ns| (time_ns, index)),
            None => None,
        };
        self.prepared = None;
        self.current = match next {
            Some(next) => Some(self.exchange(next)),
            None => self.waiting.pop().map(|Reverse((_, index))| index),
        };
        Ok(self.current)
    }

    /// Puts an entry among the waiting ones and takes the earliest of all.
    #[inline]
    fn exchange(&mut self, next: (u64, usize)) -> usize {
        let Some(mut first) = self.waiting.peek_mut() else {
            return next.1;
        };
        if first.0 > next {
            return next.1;
        }
        let Reverse((_, index)) = std::mem::replace(&mut *first, Reverse(next));
        index
    }

    /// Goes on to a file's next record and tells its time.
    #[inline]
    fn advance(&mut self, index: usize) -> Result<Option<u64>, SourceError> {
        let Some(file) = self.files.get_mut(index) else {
            return Ok(None);
        };
        file.advance()
            .map_err(|error| SourceError::of(index, error))
    }
}

impl<R: Read> File<R> {
    fn new(reader: Reader<R>) -> File<R> {
        File {
            reader,
            has_next: false,
            far_ns: 0,
            damaged_times: 0,
        }
    }

    #[inline]
    fn advance(&mut self) -> Result<Option<u64>, Error> {
        loop {
            self.has_next = self.reader.advance()?;
            let header = self.reader.header().filter(|_| self.has_next);
            let Some(time_ns) = header.map(Header::time_ns) else {
                return Ok(None);
            };
            if time_ns > self.far_ns && self.is_far_ahead(time_ns)? {
                self.damaged_times += 1;
                continue;
            }
            self.far_ns = time_ns.saturating_add(FAR_NS);
            return Ok(Some(time_ns));
        }
    }

    /// Whether the record behind the next one is much older.
    #[cold]
    fn is_far_ahead(&mut self, time_ns: u64) -> Result<bool, Error> {
        Ok(match self.reader.peek(0)? {
            Peeked::Header(behind) => behind.time_ns().saturating_add(FAR_NS) < time_ns,
            Peeked::End | Peeked::Damaged => false,
        })
    }
}

/// Whether events are missing between two with these numbers.
fn is_gap(sequence: u32, next: u32) -> bool {
    // The kernel's `blk` tracer does not number its records.
    next != sequence.wrapping_add(1) && next != 0
}
