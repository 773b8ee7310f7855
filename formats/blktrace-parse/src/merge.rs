//! One stream of the records of several files, by time.
//!
//! blktrace writes one file per CPU, each in order of time; a request is mostly issued on one CPU
//! and completed on another. Merging takes one buffer per file and a heap of one entry per file,
//! however long the files are.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::Read;

use thiserror::Error;

use crate::decode::Found;
use crate::error::Error;
use crate::read::Reader;
use crate::record::Record;

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

/// Records of several files in the order of their times; those of the same time in the order of
/// the files.
///
/// A file that is not in order of time itself is passed on as it is; what comes late is counted.
#[derive(Debug)]
pub struct Merged<R> {
    readers: Vec<Reader<R>>,
    /// The next record of each file, while it has one.
    heads: Vec<Option<Found>>,
    /// The files that have a next record, but for the current one.
    waiting: BinaryHeap<Reverse<(u64, usize)>>,
    /// The file whose head was given out last.
    current: Option<usize>,
    last_ns: u64,
    late: u64,
}

impl<R: Read> Merged<R> {
    /// Merges these files. Reads the first record of each.
    ///
    /// # Errors
    ///
    /// When a file cannot be read, or is not blktrace's.
    pub fn new(readers: Vec<Reader<R>>) -> Result<Merged<R>, SourceError> {
        let mut merged = Merged {
            heads: vec![None; readers.len()],
            waiting: BinaryHeap::with_capacity(readers.len()),
            readers,
            current: None,
            last_ns: 0,
            late: 0,
        };
        for index in 0..merged.readers.len() {
            if let Some(time_ns) = merged.advance(index)? {
                merged.waiting.push(Reverse((time_ns, index)));
            }
        }
        Ok(merged)
    }

    /// The files, in the order they were given.
    pub fn readers(&self) -> &[Reader<R>] {
        &self.readers
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
        let record = match (self.readers.get(index), self.heads.get(index)) {
            (Some(reader), Some(Some(found))) => reader.record(found),
            _ => return Ok(None),
        };
        if record.time_ns < self.last_ns {
            self.late += 1;
        }
        self.last_ns = record.time_ns;
        Ok(Some((index, record)))
    }

    /// The file with the earliest record that was not given out yet.
    #[inline]
    fn next_source(&mut self) -> Result<Option<usize>, SourceError> {
        let next = match self.current {
            Some(index) => self.advance(index)?.map(|time_ns| (time_ns, index)),
            None => None,
        };
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
        let (Some(reader), Some(head)) = (self.readers.get_mut(index), self.heads.get_mut(index))
        else {
            return Ok(None);
        };
        *head = reader.advance().map_err(|error| SourceError {
            source_index: index,
            error,
        })?;
        Ok(head.as_ref().map(|found| found.head.time_ns))
    }
}
