//! Bytes in, records and damage out.

use super::boundary::{Boundary, next_candidate};
use super::damage::{BadRecord, Fault};
use super::decode::{BlockHeader, header_bytes};
use super::wire::{
    BLOCK_HEADER_AT, HEAD_MAGIC, MAX_BLOCK_BYTES, PAYLOAD_CRC_BYTES, RECORD_HEADER_BYTES,
    RecordHeader, SYNC, TRAILER_BYTES, opcode, read_u32,
};

/// Most bytes that are asked for at once.
const CHUNK_BYTES: usize = 1 << 20;

/// Bytes that are asked for while looking for the next record.
const SEARCH_BYTES: usize = 256 << 10;

/// What a scanner says next.
#[derive(Debug)]
pub enum Step<'a> {
    /// Feed about this many bytes more, or say that there are none.
    Need(usize),
    /// Go on feeding from this offset of the source. What was fed and not used is forgotten.
    Seek(u64),
    /// A tape starts at this offset.
    Head(u64),
    /// The trailer of a tape stands at this offset, behind a footer record of so many bytes.
    Tail {
        /// Where it starts, in bytes from the start of the source.
        offset: u64,
        /// Size of the footer record, as the trailer says.
        footer_bytes: u64,
    },
    /// A record.
    Record(Record<'a>),
    /// A part that could not be used.
    Bad(BadRecord),
    /// Nothing follows.
    End,
}

/// A record whose checksums are right.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// Where it starts, in bytes from the start of the source.
    pub offset: u64,
    /// Which record.
    pub opcode: u8,
    /// Its payload. A skimming scanner may give only the header of a block, whose payload is then
    /// unchecked; that of an unknown record is empty when it is longer than any known one.
    pub payload: &'a [u8],
    /// Length of the whole payload.
    pub payload_bytes: u64,
}

/// Finds the records in the bytes that it is fed.
///
/// A record is believed when both of its checksums are right. Where none starts, or one fails, the
/// scanner looks for the next from there on, byte by byte: so a damaged length, a torn record or a
/// tape in the middle of another hides nothing that is whole.
#[derive(Debug)]
pub struct Scanner {
    buffer: Vec<u8>,
    /// Bytes at the front of the buffer that are used up.
    used: usize,
    /// Where the first unused byte stands in the source.
    offset: u64,
    ended: bool,
    skim: bool,
    /// A block that must be read whole though skimming, since what follows it is no record.
    distrusted: Option<u64>,
    state: State,
    /// Header of the block that was skimmed last.
    skimmed: Vec<u8>,
}

/// What the scanner is in the middle of.
#[derive(Debug)]
enum State {
    /// At a place where a record should start.
    Boundary,
    /// Looking for the next record.
    Lost(Lost),
    /// The columns of the block at `record` were passed over; checking what follows them.
    Skimmed { record: u64, payload_bytes: u64 },
    /// Within the payload of an unknown record that is too long to hold.
    Passing {
        record: u64,
        header: RecordHeader,
        left: u64,
        crc: u32,
    },
}

/// A part that cannot be used, so far.
#[derive(Debug)]
struct Lost {
    from: u64,
    opcode: Option<u8>,
    fault: Fault,
    requests: Option<u64>,
}

/// The header of a block, at the front of its payload.
enum Front {
    /// In so many bytes of the payload.
    Here(usize),
    /// Once there are so many unused bytes.
    Need(usize),
    /// Damaged, or cut off.
    Nowhere,
}

/// A [`Step`] that does not borrow, or the wish to go on at once.
enum Found {
    Again,
    Need(usize),
    Seek(u64),
    Head(u64),
    Tail {
        offset: u64,
        footer_bytes: u64,
    },
    /// A record with `held` bytes of payload before the checksum that was used last.
    Record {
        offset: u64,
        header: RecordHeader,
        held: usize,
    },
    Skimmed {
        offset: u64,
        payload_bytes: u64,
    },
    Bad(BadRecord),
    End,
}

impl Scanner {
    /// A scanner of a source from its first byte, which checks every payload.
    pub fn new() -> Scanner {
        Scanner {
            buffer: Vec::new(),
            used: 0,
            offset: 0,
            ended: false,
            skim: false,
            distrusted: None,
            state: State::Boundary,
            skimmed: Vec::new(),
        }
    }

    /// A scanner that passes over the columns of blocks, and so does not check them.
    pub fn skimming() -> Scanner {
        Scanner {
            skim: true,
            ..Scanner::new()
        }
    }

    /// Where the next unused byte stands in the source.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Takes the next bytes of the source.
    pub fn feed(&mut self, bytes: &[u8]) {
        if self.used > 0 {
            self.buffer.drain(..self.used);
            self.used = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// Takes it that the source has no more bytes.
    pub fn end(&mut self) {
        self.ended = true;
    }

    /// What comes next.
    pub fn step(&mut self) -> Step<'_> {
        loop {
            let found = match std::mem::replace(&mut self.state, State::Boundary) {
                State::Boundary => self.at_boundary(),
                State::Lost(lost) => self.search(lost),
                State::Skimmed {
                    record,
                    payload_bytes,
                } => self.behind_skimmed(record, payload_bytes),
                State::Passing {
                    record,
                    header,
                    left,
                    crc,
                } => self.pass(record, header, left, crc),
            };
            return match found {
                Found::Again => continue,
                Found::Need(bytes) => Step::Need(bytes.clamp(1, CHUNK_BYTES)),
                Found::Seek(offset) => Step::Seek(offset),
                Found::Head(offset) => Step::Head(offset),
                Found::Tail {
                    offset,
                    footer_bytes,
                } => Step::Tail {
                    offset,
                    footer_bytes,
                },
                Found::Bad(bad) => Step::Bad(bad),
                Found::End => Step::End,
                Found::Skimmed {
                    offset,
                    payload_bytes,
                } => Step::Record(Record {
                    offset,
                    opcode: opcode::BLOCK,
                    payload: &self.skimmed,
                    payload_bytes,
                }),
                Found::Record {
                    offset,
                    header: RecordHeader { opcode, length },
                    held,
                } => {
                    let end = self.used - PAYLOAD_CRC_BYTES;
                    let payload = &self.buffer[end - held..end];
                    Step::Record(Record {
                        offset,
                        opcode,
                        payload,
                        payload_bytes: length,
                    })
                }
            };
        }
    }

    fn unused(&self) -> &[u8] {
        &self.buffer[self.used..]
    }

    fn consume(&mut self, bytes: usize) {
        self.used += bytes;
        self.offset += bytes as u64;
    }

    /// Goes to an offset: within the buffer at once, else by asking for it.
    fn go_to(&mut self, offset: u64) -> Found {
        let ahead = offset
            .checked_sub(self.offset)
            .and_then(|ahead| usize::try_from(ahead).ok());
        if let Some(ahead) = ahead.filter(|ahead| *ahead <= self.unused().len()) {
            self.consume(ahead);
            return Found::Again;
        }
        self.buffer.clear();
        self.used = 0;
        self.offset = offset;
        self.ended = false;
        Found::Seek(offset)
    }

    fn boundary(&self) -> Boundary {
        Boundary::of(self.unused(), self.ended)
    }

    fn at_boundary(&mut self) -> Found {
        let offset = self.offset;
        match self.boundary() {
            Boundary::Head => {
                self.consume(HEAD_MAGIC.len());
                Found::Head(offset)
            }
            Boundary::Trailer(footer_bytes) => {
                self.consume(TRAILER_BYTES);
                Found::Tail {
                    offset,
                    footer_bytes,
                }
            }
            Boundary::Record(header) if header.length > MAX_BLOCK_BYTES => {
                self.consume(RECORD_HEADER_BYTES);
                self.state = State::Passing {
                    record: offset,
                    header,
                    left: header.length,
                    crc: 0,
                };
                Found::Again
            }
            Boundary::Record(header) => {
                let skim =
                    self.skim && header.opcode == opcode::BLOCK && self.distrusted != Some(offset);
                if skim {
                    self.skim_block(header)
                } else {
                    self.whole_record(header)
                }
            }
            Boundary::Short => self.need(RECORD_HEADER_BYTES),
            Boundary::Nothing if self.unused().is_empty() => Found::End,
            Boundary::Nothing => {
                let fault = Fault::NoRecord;
                self.state = State::Lost(Lost {
                    from: offset,
                    opcode: None,
                    fault,
                    requests: None,
                });
                self.consume(1);
                Found::Again
            }
        }
    }

    /// Asks for what is missing to `bytes` unused ones.
    fn need(&self, bytes: usize) -> Found {
        Found::Need(bytes - self.unused().len())
    }

    fn whole_record(&mut self, header: RecordHeader) -> Found {
        let payload_end = RECORD_HEADER_BYTES + header.length as usize;
        let record_bytes = payload_end + PAYLOAD_CRC_BYTES;
        let there = self.unused().len();
        if there < record_bytes {
            if !self.ended {
                return self.need(record_bytes);
            }
            return self.lose(
                header,
                Fault::Truncated {
                    expected: record_bytes as u64,
                    found: there as u64,
                },
            );
        }
        let computed = crc32c::crc32c(&self.unused()[RECORD_HEADER_BYTES..payload_end]);
        let stored = read_u32(self.unused(), payload_end).unwrap_or_default();
        if stored != computed {
            return self.lose(header, Fault::Checksum { stored, computed });
        }
        let offset = self.offset;
        self.consume(record_bytes);
        Found::Record {
            offset,
            header,
            held: header.length as usize,
        }
    }

    /// Gives up the record here, and looks for the next one within it.
    fn lose(&mut self, header: RecordHeader, fault: Fault) -> Found {
        let payload = &self.unused()[RECORD_HEADER_BYTES..];
        let block = (header.opcode == opcode::BLOCK)
            .then(|| BlockHeader::parse(payload).ok())
            .flatten();
        let requests = block.map(|block| block.summary.requests);
        self.state = State::Lost(Lost {
            from: self.offset,
            opcode: Some(header.opcode),
            fault,
            requests,
        });
        self.consume(SYNC.len());
        Found::Again
    }

    /// Takes the header of a block and passes over its columns.
    fn skim_block(&mut self, header: RecordHeader) -> Found {
        let record = self.offset;
        let front = match self.block_front(header) {
            Front::Here(bytes) => self.unused()[RECORD_HEADER_BYTES..][..bytes].to_vec(),
            Front::Need(bytes) => return self.need(bytes),
            Front::Nowhere => {
                self.distrusted = Some(record);
                return Found::Again;
            }
        };
        self.skimmed = front;
        self.state = State::Skimmed {
            record,
            payload_bytes: header.length,
        };
        let bytes = RECORD_HEADER_BYTES as u64 + header.length + PAYLOAD_CRC_BYTES as u64;
        self.go_to(record + bytes)
    }

    /// Looks for the header of the block whose record starts here.
    fn block_front(&self, header: RecordHeader) -> Front {
        let payload = &self.unused()[RECORD_HEADER_BYTES..];
        let bytes = match header_bytes(payload) {
            Some(Ok(bytes)) => bytes,
            Some(Err(_)) => return Front::Nowhere,
            None => BLOCK_HEADER_AT,
        };
        if bytes as u64 > header.length || (payload.len() < bytes && self.ended) {
            return Front::Nowhere;
        }
        if payload.len() < bytes {
            Front::Need(RECORD_HEADER_BYTES + bytes)
        } else {
            Front::Here(bytes)
        }
    }

    /// Gives out the skimmed block when the block that goes on where it ends follows it; else it
    /// must be read whole: what follows may belong to another tape, joined to a torn one.
    fn behind_skimmed(&mut self, record: u64, payload_bytes: u64) -> Found {
        let needed = match self.boundary() {
            Boundary::Short => RECORD_HEADER_BYTES,
            Boundary::Record(header) if header.opcode == opcode::BLOCK => {
                match self.block_front(header) {
                    Front::Need(bytes) => bytes,
                    Front::Here(bytes)
                        if self.goes_on(&self.unused()[RECORD_HEADER_BYTES..][..bytes]) =>
                    {
                        return Found::Skimmed {
                            offset: record,
                            payload_bytes,
                        };
                    }
                    Front::Here(_) | Front::Nowhere => 0,
                }
            }
            _ => 0,
        };
        if needed > 0 {
            self.state = State::Skimmed {
                record,
                payload_bytes,
            };
            return self.need(needed);
        }
        self.distrusted = Some(record);
        self.go_to(record)
    }

    /// Whether a block's header counts on from the skimmed one.
    fn goes_on(&self, front: &[u8]) -> bool {
        let headers = BlockHeader::parse(&self.skimmed)
            .ok()
            .zip(BlockHeader::parse(front).ok());
        headers.is_some_and(|(skimmed, next)| {
            skimmed
                .requests_before
                .checked_add(skimmed.summary.requests)
                == Some(next.requests_before)
        })
    }

    /// Checks the payload of an unknown record piece by piece.
    fn pass(&mut self, record: u64, header: RecordHeader, left: u64, crc: u32) -> Found {
        let take = usize::try_from(left)
            .unwrap_or(usize::MAX)
            .min(self.unused().len());
        let crc = crc32c::crc32c_append(crc, &self.unused()[..take]);
        self.consume(take);
        let left = left - take as u64;
        let fault = if left == 0 && self.unused().len() >= PAYLOAD_CRC_BYTES {
            let stored = read_u32(self.unused(), 0).unwrap_or_default();
            if stored == crc {
                self.consume(PAYLOAD_CRC_BYTES);
                return Found::Record {
                    offset: record,
                    header,
                    held: 0,
                };
            }
            Fault::Checksum {
                stored,
                computed: crc,
            }
        } else if self.ended {
            let found = self.offset - record + self.unused().len() as u64;
            Fault::Truncated {
                expected: header.record_bytes().unwrap_or(u64::MAX),
                found,
            }
        } else {
            self.state = State::Passing {
                record,
                header,
                left,
                crc,
            };
            return Found::Need(
                usize::try_from(left)
                    .unwrap_or(usize::MAX)
                    .saturating_add(PAYLOAD_CRC_BYTES),
            );
        };
        self.state = State::Lost(Lost {
            from: record,
            opcode: Some(header.opcode),
            fault,
            requests: None,
        });
        self.go_to(record + SYNC.len() as u64)
    }

    /// Looks for the next place where a tape, a record or a trailer starts.
    fn search(&mut self, lost: Lost) -> Found {
        loop {
            match self.boundary() {
                Boundary::Short => {
                    self.state = State::Lost(lost);
                    return Found::Need(SEARCH_BYTES);
                }
                Boundary::Nothing if !self.unused().is_empty() => {
                    let ahead = 1 + next_candidate(&self.unused()[1..]);
                    self.consume(ahead);
                }
                _ => {
                    let Lost {
                        from,
                        opcode,
                        fault,
                        requests,
                    } = lost;
                    return Found::Bad(BadRecord {
                        offset: from,
                        bytes: self.offset - from,
                        opcode,
                        fault,
                        requests,
                    });
                }
            }
        }
    }
}

impl Default for Scanner {
    fn default() -> Self {
        Scanner::new()
    }
}
