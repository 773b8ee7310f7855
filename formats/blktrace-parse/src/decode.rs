//! From bytes to records, without I/O.
//!
//! The decoder is fed the bytes of one file, in order, in pieces of any size. It goes from header
//! to header by their lengths and checks that the next magic number stands where it should. When
//! it does not, one of three things is damaged:
//!
//! - *The length of a payload is too long*: a header stands inside the payload. The payload ends
//!   there.
//! - *The bytes behind a record are no header*: they are skipped up to the next plausible one, that
//!   is, the file's own magic number followed by a known action.
//! - *The file ends inside a record*: what is there is kept if the header is whole.
//!
//! Zeroes up to the end are no damage: blktrace grows its files ahead of its writes, and one that
//! is killed leaves the rest empty.

use crate::damage::{Damage, Truncated};
use crate::error::Error;
use crate::format::{self, Format};
use crate::record::{Header, Record};

/// How far into a file without a valid start a record is looked for.
const SEARCH_BYTES: u64 = 1 << 20;

/// Length of the magic number.
const MAGIC_BYTES: usize = 4;

/// Decodes the records of one file.
///
/// ```
/// use blktrace_parse::{Decoder, Step};
///
/// # fn main() -> Result<(), blktrace_parse::Error> {
/// let file: &[u8] = &[0; 512]; // of a recorder that was killed at once
/// let mut decoder = Decoder::new();
/// let mut rest = file;
/// loop {
///     let (step, used) = decoder.step(rest, true)?;
///     rest = &rest[used..];
///     match step {
///         Step::Record(record) => println!("{} {}", record.time_ns, record.sector),
///         Step::Skipped => {}
///         Step::More(_) | Step::End => break,
///     }
/// }
/// assert_eq!(decoder.damage().zero_tail.map(|tail| tail.bytes), Some(512));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Default)]
pub struct Decoder {
    format: Option<Format>,
    /// Bytes of the file before the next input.
    offset: u64,
    /// Bytes without a record that have not come to an end yet.
    skip: Option<Skip>,
    /// The file's first bytes, for the error that it is something else.
    start: Vec<u8>,
    damage: Damage,
}

/// Bytes that are being skipped.
#[derive(Clone, Copy, Debug)]
struct Skip {
    start: u64,
    /// Behind the last byte that is not zero; the start if there is none.
    nonzero_end: u64,
}

/// What [`Decoder::step`] found at the start of its input.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step<'a> {
    /// A record.
    Record(Record<'a>),
    /// Bytes that no record can be made of.
    Skipped,
    /// Too little to go on: at least this many bytes from the same place on are needed, or the
    /// word that there are no more.
    More(usize),
    /// The end of the file.
    End,
}

/// The same without borrowing the input, so that the caller's buffer is free to move.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Outcome {
    /// A record: all the bytes that the decoder is done with.
    Found,
    Skipped,
    More(usize),
    End,
}

impl Decoder {
    /// Starts at the beginning of a file of either version and byte order.
    pub fn new() -> Decoder {
        Decoder::default()
    }

    /// Version and byte order; `None` before the first record.
    pub fn format(&self) -> Option<Format> {
        self.format
    }

    /// How many bytes of the file are done with.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// What was not as it should be, so far.
    pub fn damage(&self) -> &Damage {
        &self.damage
    }

    /// Decodes what is at the start of `input`: the file's bytes from [`Decoder::offset`] on, as
    /// many as the caller has. `last` says that the file ends with them.
    ///
    /// Returns how many bytes it is done with: the next input begins behind them. They are none
    /// only with [`Step::More`], which never comes when `last` is set, and [`Step::End`].
    ///
    /// # Errors
    ///
    /// When the file is not blktrace's, or of an unknown version.
    pub fn step<'a>(&mut self, input: &'a [u8], last: bool) -> Result<(Step<'a>, usize), Error> {
        let (outcome, used) = self.advance(input, last)?;
        let step = match outcome {
            Outcome::Found => match self.record(input.get(..used).unwrap_or_default()) {
                Some(record) => Step::Record(record),
                None => Step::Skipped,
            },
            Outcome::Skipped => Step::Skipped,
            Outcome::More(bytes) => Step::More(bytes),
            Outcome::End => Step::End,
        };
        Ok((step, used))
    }

    /// The record that consists of these bytes, which were found to be one.
    #[inline]
    pub(crate) fn record<'a>(&self, bytes: &'a [u8]) -> Option<Record<'a>> {
        Some(Header::new(self.format?, bytes)?.record(bytes))
    }

    /// [`Decoder::step`] without borrowing the input.
    #[inline]
    pub(crate) fn advance(&mut self, input: &[u8], last: bool) -> Result<(Outcome, usize), Error> {
        if self.skip.is_none()
            && let Some(format) = self.format
            && let Some(used) = verified(format, input)
        {
            self.offset += used as u64;
            return Ok((Outcome::Found, used));
        }
        self.advance_with_care(input, last)
    }

    #[cold]
    fn advance_with_care(&mut self, input: &[u8], last: bool) -> Result<(Outcome, usize), Error> {
        let (outcome, used) = match self.format {
            Some(format) => self.settle(format, input, last),
            None => self.begin(input, last)?,
        };
        self.offset += used as u64;
        if matches!(outcome, Outcome::End) {
            self.close_skip(true);
        }
        Ok((outcome, used))
    }

    /// Finds out the format.
    fn begin(&mut self, input: &[u8], last: bool) -> Result<(Outcome, usize), Error> {
        if input.len() < MAGIC_BYTES && !last {
            return Ok((Outcome::More(MAGIC_BYTES), 0));
        }
        if self.offset == 0 {
            if let Some(format) = Format::detect(input) {
                self.format = Some(format);
                return Ok(self.settle(format, input, last));
            }
            if let Some(found) = format::version_of(input) {
                return Err(Error::Version { found });
            }
            self.start = input.iter().copied().take(MAGIC_BYTES).collect();
        }
        let (outcome, used) = self.search(&Format::ALL, input, last);
        if let (Some(format), 0) = (self.format, used) {
            return Ok(self.settle(format, input, last));
        }
        let searched = self.offset + used as u64;
        let foreign = self.skip.is_some_and(|skip| skip.nonzero_end > skip.start);
        if foreign && (matches!(outcome, Outcome::End) || searched > SEARCH_BYTES) {
            return Err(Error::NotBlktrace {
                start: std::mem::take(&mut self.start),
                searched,
            });
        }
        Ok((outcome, used))
    }

    /// Decides what is at the start of `input` where a record and a magic number behind it are
    /// not both in sight.
    fn settle(&mut self, format: Format, input: &[u8], last: bool) -> (Outcome, usize) {
        let header = format.header_bytes();
        let known = self.skip.is_none() && begins_record(format, input);
        if !known && !plausible(format, input) {
            return self.search(&[format], input, last);
        }
        let Some(head) = Header::new(format, input) else {
            if !last {
                return (Outcome::More(header), 0);
            }
            self.truncate(header, input.len());
            return (Outcome::End, input.len());
        };
        let claimed = head.record_bytes();
        if input.len() < claimed + header && !last {
            return (Outcome::More(claimed + header), 0);
        }
        self.close_skip(false);
        (Outcome::Found, self.end_of_record(format, input, claimed))
    }

    /// Where the record at the start of `input` ends: where its length says, or before, at the
    /// next header or the end of the file.
    fn end_of_record(&mut self, format: Format, input: &[u8], claimed: usize) -> usize {
        let header = format.header_bytes();
        let behind = input.get(claimed..);
        let fits = behind.is_some_and(|rest| rest.is_empty() || rest.starts_with(&format.magic()));
        if fits && claimed < 2 * header {
            return claimed;
        }
        // Up to the last byte of a header that begins before the claimed end.
        let inside = input.get(header..input.len().min(claimed + header - 1));
        if let Some((next, _)) = find_header(&[format], inside.unwrap_or_default(), claimed) {
            self.damage.cut_payloads += 1;
            return header + next;
        }
        if behind.is_none() {
            // No next header, so the length may be right.
            self.truncate(claimed, input.len());
        }
        claimed.min(input.len())
    }

    fn truncate(&mut self, expected: usize, found: usize) {
        self.damage.truncated = Some(Truncated {
            offset: self.offset,
            expected_bytes: expected as u64,
            found_bytes: found as u64,
        });
    }

    /// Skips to the next plausible header in one of the formats, or as far as none can begin.
    fn search(&mut self, formats: &[Format], input: &[u8], last: bool) -> (Outcome, usize) {
        let longest = formats.iter().map(|format| format.header_bytes()).max();
        let header = longest.unwrap_or_default();
        if input.len() < header && !last {
            return (Outcome::More(header), 0);
        }
        // Behind that, a header may begin of which not all is there yet.
        let end = if last {
            input.len()
        } else {
            input.len() + 1 - header
        };
        let next = find_header(formats, input, end);
        let used = match next {
            Some((at, format)) => {
                self.format = Some(format);
                at
            }
            None => end,
        };
        self.extend_skip(input.get(..used).unwrap_or(input));
        match next {
            None if last => (Outcome::End, used),
            _ => (Outcome::Skipped, used),
        }
    }

    fn extend_skip(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let start = self.offset;
        let skip = self.skip.get_or_insert(Skip {
            start,
            nonzero_end: start,
        });
        if !all_zero(bytes)
            && let Some(at) = bytes.iter().rposition(|byte| *byte != 0)
        {
            skip.nonzero_end = start + at as u64 + 1;
        }
    }

    /// Accounts for what was skipped up to here. Zeroes at the end of the file are its tail.
    fn close_skip(&mut self, at_end: bool) {
        let Some(skip) = self.skip.take() else {
            return;
        };
        let damage_end = if at_end {
            skip.nonzero_end
        } else {
            self.offset
        };
        self.damage.skip(skip.start..damage_end);
        if at_end {
            self.damage.set_zero_tail(damage_end..self.offset);
        }
    }
}

/// Length of the record at the start of `input`, if another header's magic number stands right behind
/// it and its payload is too short to hide a record.
#[inline]
fn verified(format: Format, input: &[u8]) -> Option<usize> {
    let magic = format.magic();
    if !input.starts_with(&magic) {
        return None;
    }
    let end = Header::new(format, input)?.record_bytes();
    let is_long = end >= 2 * format.header_bytes();
    (!is_long && input.get(end..)?.starts_with(&magic)).then_some(end)
}

/// Whether `input` begins with the magic number, or with as much of it as there is.
fn begins_record(format: Format, input: &[u8]) -> bool {
    let magic = format.magic();
    !input.is_empty()
        && input
            .iter()
            .zip(magic)
            .all(|(found, expected)| *found == expected)
}

/// Whether a header of a known action stands at the start of `input`.
fn plausible(format: Format, input: &[u8]) -> bool {
    input.starts_with(&format.magic())
        && Header::new(format, input).is_some_and(|head| head.action().kind().is_known())
}

/// Where in `input` the first plausible header stands that begins before `end`.
fn find_header(formats: &[Format], input: &[u8], end: usize) -> Option<(usize, Format)> {
    if all_zero(input) {
        return None;
    }
    // Every magic number has these two in the middle, one way or the other.
    let middle = |window: &&[u8]| matches!(window.get(1..3), Some(b"ta" | b"at"));
    let candidates = input.windows(MAGIC_BYTES).take(end).enumerate();
    candidates
        .filter(|(_, window)| middle(window))
        .find_map(|(at, _)| {
            let rest = input.get(at..)?;
            let format = formats.iter().find(|format| plausible(**format, rest))?;
            Some((at, *format))
        })
}

/// Whether there is nothing but zeroes; fast, as the tails of files can be long.
fn all_zero(bytes: &[u8]) -> bool {
    let is_zero = |chunk: &[u8]| chunk.iter().fold(0, |all, byte| all | byte) == 0;
    bytes.chunks(4096).all(is_zero)
}
