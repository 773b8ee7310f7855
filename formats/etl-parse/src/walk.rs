//! From buffer to buffer, by their headers alone.
//!
//! Each header says where the next buffer begins. Where no header stands there, or none that can
//! be, one of three things is damaged:
//!
//! - *The size is wrong*: another header is found inside the buffer or behind its end. The buffer is
//!   kept up to there.
//! - *The bytes are no buffer*: they are skipped up to the next header.
//! - *The file ends inside a buffer*: what is there is kept.
//!
//! What is taken for a header when searching has possible fields, and ends where another possible
//! header or the end of the file is. Zeroes up to the end are room that the session did not use.

use std::io::{Read, Seek};

use crate::buffer::{BufferHeader, HEADER_BYTES, MAX_BUFFER_BYTES};
use crate::damage::{Damage, Region};
use crate::error::Error;
use crate::source::Source;

/// Bytes that are searched at a time.
const WINDOW_BYTES: usize = 64 << 10;

/// Where a buffer stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub offset: u64,
    /// Bytes that belong to it, header included.
    pub bytes: u32,
}

/// A walk over the buffers of a file, in the order in which they were written.
#[derive(Clone, Debug)]
pub(crate) struct Walk {
    at: u64,
    end: u64,
    /// Where it goes on behind the end: the newer part of a circular file stands before the older.
    then: Option<(u64, u64)>,
    len: u64,
    /// The last search: from where, and what it found.
    searched: Option<(u64, Found)>,
}

#[derive(Clone, Copy, Debug)]
struct Found {
    /// The next buffer.
    header: Option<u64>,
    /// Behind the last byte before it that is not zero.
    nonzero_end: u64,
}

impl Walk {
    /// From the first buffer to the end of a file.
    pub fn new(len: u64) -> Walk {
        Walk {
            at: 0,
            end: len,
            then: None,
            len,
            searched: None,
        }
    }

    /// From the oldest buffer of a circular file, behind its first one, to the newest.
    pub fn circular(len: u64, first_end: u64, oldest: u64) -> Walk {
        Walk {
            at: oldest,
            end: len,
            then: (oldest > first_end).then_some((first_end, oldest)),
            len,
            searched: None,
        }
    }

    /// The next buffer.
    pub fn next<R: Read + Seek>(
        &mut self,
        source: &mut Source<R>,
        damage: &mut Damage,
    ) -> Result<Option<(Place, BufferHeader)>, Error> {
        loop {
            if self.at >= self.end {
                let Some((at, end)) = self.then.take() else {
                    return Ok(None);
                };
                (self.at, self.end, self.searched) = (at, end, None);
                continue;
            }
            let header = source.header_at(self.at)?;
            match header.filter(BufferHeader::is_plausible) {
                Some(header) => return self.buffer(header, source, damage).map(Some),
                None => self.skip(source, damage)?,
            }
        }
    }

    /// Finds out how much belongs to the buffer at hand, and goes on behind it.
    fn buffer<R: Read + Seek>(
        &mut self,
        header: BufferHeader,
        source: &mut Source<R>,
        damage: &mut Damage,
    ) -> Result<(Place, BufferHeader), Error> {
        let offset = self.at;
        let by_size = offset + u64::from(header.size);
        let mut end = by_size;
        if by_size > self.end || !self.leads_on(by_size, source)? {
            let inside = offset + HEADER_BYTES as u64;
            match self.search(inside, source)?.header {
                Some(next) if next < by_size => {
                    damage.wrong_sizes += 1;
                    end = next;
                }
                _ if by_size > self.end => {
                    let bytes = self.end - offset;
                    damage.torn_tail = Some(Region { offset, bytes });
                    end = self.end;
                }
                _ => {}
            }
        }
        self.at = end;
        let bytes = u32::try_from(end - offset).unwrap_or(MAX_BUFFER_BYTES);
        Ok((Place { offset, bytes }, header))
    }

    /// Whether a buffer can begin at `offset`, or the file ends there.
    fn leads_on<R: Read + Seek>(&self, offset: u64, source: &mut Source<R>) -> Result<bool, Error> {
        if offset == self.len || offset == self.end {
            return Ok(true);
        }
        let header = source.header_at(offset)?;
        Ok(header.is_some_and(|header| header.is_plausible()))
    }

    /// Goes on to the next buffer; what stands before it is damage or unused room.
    fn skip<R: Read + Seek>(
        &mut self,
        source: &mut Source<R>,
        damage: &mut Damage,
    ) -> Result<(), Error> {
        let from = self.at;
        let found = self.search(from, source)?;
        self.at = found.header.unwrap_or(self.end).min(self.end);
        let skipped_to = match found.header {
            Some(_) => self.at,
            None => found.nonzero_end.clamp(from, self.end),
        };
        damage.skip(from..skipped_to);
        if skipped_to < self.at {
            damage.zero_tail = Some(Region {
                offset: skipped_to,
                bytes: self.at - skipped_to,
            });
        }
        Ok(())
    }

    /// The first buffer that begins at `from` or behind.
    fn search<R: Read + Seek>(
        &mut self,
        from: u64,
        source: &mut Source<R>,
    ) -> Result<Found, Error> {
        // What an earlier search went over holds for this one.
        if let Some((start, found)) = self.searched
            && start <= from
            && found.header.is_none_or(|header| header >= from)
        {
            return Ok(found);
        }
        let mut found = Found {
            header: None,
            nonzero_end: from,
        };
        let mut window = Vec::new();
        let mut at = from;
        while at < self.end && found.header.is_none() {
            source.read_to(at, WINDOW_BYTES + HEADER_BYTES, &mut window)?;
            let fresh = window.len().min(WINDOW_BYTES);
            if fresh == 0 {
                break;
            }
            found.header = self.search_window(at, &window, fresh, source)?;
            let nonzero = window.iter().take(fresh).rposition(|byte| *byte != 0);
            if let Some(last) = nonzero {
                found.nonzero_end = at + last as u64 + 1;
            }
            at += fresh as u64;
        }
        self.searched = Some((from, found));
        Ok(found)
    }

    /// The first buffer that begins in the first `starts` bytes of `window`, which stands at `at`.
    fn search_window<R: Read + Seek>(
        &self,
        at: u64,
        window: &[u8],
        starts: usize,
        source: &mut Source<R>,
    ) -> Result<Option<u64>, Error> {
        for (index, bytes) in window.windows(HEADER_BYTES).take(starts).enumerate() {
            // Sizes below 16 MiB have a zero on top: most places fail here.
            if bytes[3] > 1 || (bytes[1] == 0 && bytes[2] == 0 && bytes[0] < HEADER_BYTES as u8) {
                continue;
            }
            let Some(header) = BufferHeader::parse(bytes).filter(is_likely) else {
                continue;
            };
            let offset = at + index as u64;
            let end = offset + u64::from(header.size);
            if end <= self.end && self.leads_on(end, source)? {
                return Ok(Some(offset));
            }
        }
        Ok(None)
    }
}

/// Whether this is a header where there need not be one.
fn is_likely(header: &BufferHeader) -> bool {
    let used = HEADER_BYTES as u32..=MAX_BUFFER_BYTES;
    let fits = header.is_compressed() || header.offset <= header.size;
    header.is_plausible() && used.contains(&header.offset) && fits
}
