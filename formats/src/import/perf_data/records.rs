//! From bytes to records.
//!
//! A record is u32 type, u16 flags, u16 size with these 8 bytes, and a body. Records may be compressed:
//! `PERF_RECORD_COMPRESSED` holds the next piece of a zstd stream of records, of which one may begin in
//! one piece and end in another.
//!
//! Records have no marker. Where one is impossible, the next place is searched at which two possible
//! ones follow each other; what is between is counted.

use std::io::Read;

use zstd::stream::raw::{Decoder, InBuffer, Operation, OutBuffer};

use super::error::PerfDataError;
use crate::byte_order::ByteOrder;

const HEADER_BYTES: usize = 8;
const PIECE_BYTES: usize = 256 << 10;
/// Highest type that is believed: 22 of the kernel's and 20 of perf's own are known.
const MAX_TYPE: u32 = 127;

/// Types of records, `PERF_RECORD_…`.
pub(super) mod kind {
    pub const LOST: u32 = 2;
    pub const COMM: u32 = 3;
    pub const FORK: u32 = 7;
    pub const SAMPLE: u32 = 9;
    pub const LOST_SAMPLES: u32 = 13;
    pub const HEADER_ATTR: u32 = 64;
    pub const HEADER_TRACING_DATA: u32 = 66;
    pub const FINISHED_ROUND: u32 = 68;
    pub const AUXTRACE: u32 = 71;
    pub const HEADER_FEATURE: u32 = 80;
    pub const COMPRESSED: u32 = 81;
    pub const COMPRESSED2: u32 = 83;
}

/// What was no record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Damage {
    /// Bytes between records.
    pub skipped_bytes: u64,
    /// Where the first of them stands.
    pub first_offset: Option<u64>,
    /// Bytes of a record that the file ends in.
    pub torn_bytes: u64,
    /// Bytes of records that the header promises and the file does not have.
    pub missing_bytes: u64,
    /// Pieces of compressed records that could not be decompressed.
    pub bad_pieces: u64,
}

impl Damage {
    /// Whether there is none.
    pub fn is_none(&self) -> bool {
        *self == Damage::default()
    }
}

/// A record: its type and flags; its body is in [`Records::body`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub kind: u32,
    pub flags: u16,
}

/// What stands at the beginning of bytes.
enum Step {
    /// A record of that length.
    Record(Record, usize),
    /// No record before that many bytes.
    Skip(usize),
    /// More bytes are needed.
    Short,
}

/// Reads records.
pub(super) struct Records<R> {
    source: R,
    order: ByteOrder,
    /// What was read of the file.
    outer: Bytes,
    /// Bytes of records that are not read yet; `None` where they go on to the end.
    left: Option<u64>,
    /// Where `outer` ends in the file.
    offset: u64,
    body: Vec<u8>,
    inflater: Option<Inflater>,
    pub damage: Damage,
}

impl<R: Read> Records<R> {
    /// From a source that stands at the first record, at `offset`.
    pub fn new(source: R, order: ByteOrder, bytes: Option<u64>, offset: u64) -> Records<R> {
        Records {
            source,
            order,
            outer: Bytes::default(),
            left: bytes,
            offset,
            body: Vec::new(),
            inflater: None,
            damage: Damage::default(),
        }
    }

    /// The body of the record at hand.
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// How many bytes of the file were read.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The next record, decompressed; `None` at the end.
    pub fn next(&mut self) -> Result<Option<Record>, PerfDataError> {
        loop {
            if let Some(record) = self.next_inflated() {
                return Ok(Some(record));
            }
            let Some(record) = self.next_outer()? else {
                return Ok(None);
            };
            let piece = match record.kind {
                kind::COMPRESSED => &self.body[..],
                kind::COMPRESSED2 => {
                    let length = self.order.u64_at(&self.body, 0).unwrap_or(0);
                    let length = usize::try_from(length).unwrap_or(usize::MAX);
                    let rest = self.body.get(8..).unwrap_or_default();
                    &rest[..length.min(rest.len())]
                }
                _ => return Ok(Some(record)),
            };
            match Inflater::begin_piece(&mut self.inflater, piece) {
                Some(()) => {}
                None => self.damage.bad_pieces += 1,
            }
        }
    }

    /// The next `bytes` bytes of the file, which belong to no record; all of them, up to `longest`.
    pub fn payload(&mut self, bytes: u64, longest: u64) -> Result<Vec<u8>, PerfDataError> {
        let mut out = Vec::new();
        let mut left = bytes;
        while left > 0 {
            if self.outer.rest().is_empty() && !self.fill()? {
                break;
            }
            let rest = self.outer.rest();
            let count = usize::try_from(left).unwrap_or(usize::MAX).min(rest.len());
            if out.len() as u64 <= longest {
                out.extend_from_slice(&rest[..count]);
            }
            self.outer.at += count;
            left -= count as u64;
        }
        Ok(out)
    }

    fn next_outer(&mut self) -> Result<Option<Record>, PerfDataError> {
        loop {
            match step(self.outer.rest(), self.order) {
                Step::Record(record, length) => {
                    self.outer.take_body(length, &mut self.body);
                    return Ok(Some(record));
                }
                Step::Skip(bytes) => {
                    let at = self.offset - self.outer.rest().len() as u64;
                    self.skip(at, bytes);
                    self.outer.at += bytes;
                }
                Step::Short if self.fill()? => {}
                Step::Short => {
                    self.damage.torn_bytes += self.outer.rest().len() as u64;
                    self.damage.missing_bytes += self.left.take().unwrap_or(0);
                    self.outer.at = self.outer.bytes.len();
                    return Ok(None);
                }
            }
        }
    }

    fn next_inflated(&mut self) -> Option<Record> {
        loop {
            let inflater = self.inflater.as_mut()?;
            match step(inflater.plain.rest(), self.order) {
                Step::Record(record, length) => {
                    inflater.plain.take_body(length, &mut self.body);
                    return Some(record);
                }
                Step::Skip(bytes) => {
                    inflater.plain.at += bytes;
                    self.skip(self.offset, bytes);
                }
                Step::Short => match inflater.more() {
                    Some(true) => {}
                    Some(false) => return None,
                    None => {
                        self.damage.bad_pieces += 1;
                        // The rest of the stream refers to what is lost.
                        self.inflater = None;
                    }
                },
            }
        }
    }

    fn skip(&mut self, at: u64, bytes: usize) {
        self.damage.skipped_bytes += bytes as u64;
        self.damage.first_offset.get_or_insert(at);
    }

    /// Reads more of the file; says whether there was more.
    fn fill(&mut self) -> Result<bool, PerfDataError> {
        let most = self
            .left
            .map_or(PIECE_BYTES as u64, |left| left.min(PIECE_BYTES as u64));
        self.outer.forget();
        let read = (&mut self.source)
            .take(most)
            .read_to_end(&mut self.outer.bytes);
        let read = read.map_err(|source| PerfDataError::Read {
            offset: self.offset,
            source,
        })? as u64;
        self.offset += read;
        self.left = self.left.map(|left| left - read);
        Ok(read > 0)
    }
}

/// Bytes, and how many of them are used.
#[derive(Debug, Default)]
struct Bytes {
    bytes: Vec<u8>,
    at: usize,
}

impl Bytes {
    fn rest(&self) -> &[u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }

    /// Lets go of what is used.
    fn forget(&mut self) {
        self.bytes.drain(..self.at);
        self.at = 0;
    }

    fn take_body(&mut self, length: usize, body: &mut Vec<u8>) {
        body.clear();
        let record = self.rest().get(HEADER_BYTES..length);
        body.extend_from_slice(record.unwrap_or_default());
        self.at += length;
    }
}

/// Decompresses, piece by piece.
struct Inflater {
    decoder: Decoder<'static>,
    piece: Bytes,
    plain: Bytes,
}

impl Inflater {
    /// Takes the next piece; the one before is used up. `None` if there is no decoder for it.
    fn begin_piece(inflater: &mut Option<Inflater>, piece: &[u8]) -> Option<()> {
        if inflater.is_none() {
            *inflater = Some(Inflater {
                decoder: Decoder::new().ok()?,
                piece: Bytes::default(),
                plain: Bytes::default(),
            });
        }
        let inflater = inflater.as_mut()?;
        inflater.piece.bytes.clear();
        inflater.piece.bytes.extend_from_slice(piece);
        inflater.piece.at = 0;
        Some(())
    }

    /// Decompresses more; says whether there was more in the piece. `None` if it is damaged.
    fn more(&mut self) -> Option<bool> {
        self.plain.forget();
        let before = self.plain.bytes.len();
        self.plain.bytes.resize(before + PIECE_BYTES, 0);
        let mut input = InBuffer::around(self.piece.rest());
        let mut output = OutBuffer::around(&mut self.plain.bytes[before..]);
        let result = self.decoder.run(&mut input, &mut output);
        let (read, written) = (input.pos(), output.pos());
        self.piece.at += read;
        self.plain.bytes.truncate(before + written);
        result.ok()?;
        Some(read > 0 || written > 0)
    }
}

fn step(bytes: &[u8], order: ByteOrder) -> Step {
    let Some((record, length)) = header(bytes, order) else {
        return match bytes.len() {
            0..HEADER_BYTES => Step::Short,
            _ => search(bytes, order),
        };
    };
    match length <= bytes.len() {
        true => Step::Record(record, length),
        false => Step::Short,
    }
}

/// A possible header, and the length of its record.
fn header(bytes: &[u8], order: ByteOrder) -> Option<(Record, usize)> {
    let kind = order.u32_at(bytes, 0)?;
    let flags = order.u16_at(bytes, 4)?;
    let length = usize::from(order.u16_at(bytes, 6)?);
    let is_possible = (1..=MAX_TYPE).contains(&kind) && length >= HEADER_BYTES;
    is_possible.then_some((Record { kind, flags }, length))
}

/// How far the next two records are that follow each other.
fn search(bytes: &[u8], order: ByteOrder) -> Step {
    let is_start = |at: &usize| {
        let rest = &bytes[*at..];
        header(rest, order).is_some_and(|(_, length)| {
            let next = rest.get(length..).unwrap_or_default();
            length.is_multiple_of(8) && header(next, order).is_some()
        })
    };
    // Near the end of what is there, it cannot be told yet.
    let certain = bytes.len().saturating_sub(HEADER_BYTES - 1);
    let found = (1..certain).find(is_start);
    Step::Skip(found.unwrap_or(certain.max(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORDER: ByteOrder = ByteOrder::Little;

    fn record(kind: u32, body: &[u8]) -> Vec<u8> {
        let mut bytes = kind.to_le_bytes().to_vec();
        bytes.extend([0, 0]);
        bytes.extend((8 + body.len() as u16).to_le_bytes());
        bytes.extend(body);
        bytes
    }

    fn read(bytes: &[u8], promised: Option<u64>) -> (Vec<(u32, Vec<u8>)>, Damage) {
        let mut records = Records::new(bytes, ORDER, promised, 0);
        let mut all = Vec::new();
        while let Some(record) = records.next().unwrap() {
            all.push((record.kind, records.body().to_vec()));
        }
        (all, records.damage)
    }

    #[test]
    fn what_stands_between_records_is_skipped_and_counted() {
        let mut bytes = record(9, &[1; 16]);
        bytes.extend([0; 40]);
        bytes.extend(record(9, &[2; 16]));
        bytes.extend(record(68, &[]));
        let (all, damage) = read(&bytes, Some(bytes.len() as u64));
        let expected = [(9, vec![1; 16]), (9, vec![2; 16]), (68, vec![])];
        assert_eq!(all, expected);
        assert_eq!((damage.skipped_bytes, damage.first_offset), (40, Some(24)));
        let (all, damage) = read(&bytes[..bytes.len() - 10], Some(bytes.len() as u64));
        assert_eq!(all.len(), 1);
        assert_eq!(
            (
                damage.skipped_bytes + damage.torn_bytes,
                damage.missing_bytes
            ),
            (62, 10)
        );
    }

    #[test]
    fn records_go_on_from_one_compressed_piece_to_the_next() {
        let mut plain = Vec::new();
        for number in 0..3000u32 {
            plain.extend(record(9, &number.to_le_bytes().repeat(10)));
        }
        let compressed = zstd::encode_all(&plain[..], 3).unwrap();
        let mut bytes = Vec::new();
        for (index, piece) in compressed.chunks(1001).enumerate() {
            if index % 2 == 0 {
                bytes.extend(record(kind::COMPRESSED, piece));
            } else {
                let mut body = (piece.len() as u64).to_le_bytes().to_vec();
                body.extend(piece);
                body.resize(body.len().next_multiple_of(8), 0);
                bytes.extend(record(kind::COMPRESSED2, &body));
            }
        }
        bytes.extend(record(68, &[]));
        let (all, damage) = read(&bytes, None);
        assert_eq!(all.len(), 3001);
        assert!(damage.is_none(), "{damage:?}");
        for (number, (kind, body)) in all[..3000].iter().enumerate() {
            assert_eq!((*kind, &body[..4]), (9, &(number as u32).to_le_bytes()[..]));
        }
        assert_eq!(all[3000].0, 68);
        bytes[20] ^= 0xff;
        assert!(read(&bytes, None).1.bad_pieces > 0);
    }

    #[test]
    fn what_belongs_to_no_record_is_passed() {
        let mut bytes = record(66, &[0; 4]);
        bytes.extend([7; 600_000]);
        bytes.extend(record(68, &[]));
        let mut records = Records::new(&bytes[..], ORDER, None, 0);
        assert_eq!(records.next().unwrap().unwrap().kind, 66);
        assert_eq!(
            records.payload(600_000, u64::MAX).unwrap(),
            vec![7; 600_000]
        );
        assert_eq!(records.next().unwrap().unwrap().kind, 68);
        assert_eq!(records.next().unwrap(), None);
    }
}
