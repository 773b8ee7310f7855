//! Bytes in, records and damage out.

use super::damage::{BadRecord, Fault};
use super::decode::header_bytes;
use super::wire::{
    HEAD_MAGIC, MAX_BLOCK_BYTES, MAX_METADATA_BYTES, PAYLOAD_CRC_BYTES, RECORD_HEADER_BYTES,
    RecordHeader, SYNC, TRAILER_BYTES, opcode, parse_trailer, read_u32,
};

/// Longest part of a payload of an unknown record that is held at once.
const CHUNK_BYTES: usize = 1 << 20;

/// What a scanner says next.
#[derive(Debug)]
pub enum Step<'a> {
    /// Feed at least this many bytes more, or say that there are none.
    Need(usize),
    /// Go on feeding from this offset of the source. What was fed and not used is forgotten.
    Seek(u64),
    /// A tape starts at this offset.
    Head(u64),
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
    /// Its payload. A skimming scanner gives only the header of a block; the payload of an unknown
    /// record is not kept when it is long.
    pub payload: &'a [u8],
    /// Length of the whole payload.
    pub payload_bytes: u64,
}

/// What the scanner is in the middle of.
#[derive(Debug)]
enum State {
    /// At a place where a record should start.
    Boundary,
    /// Looking for the next record; nothing usable since the start of this part.
    Lost {
        from: u64,
        opcode: Option<u8>,
        fault: Fault,
    },
    /// A block's header has been read and its columns passed over; checking what follows.
    Skimmed {
        record: u64,
        payload_bytes: u64,
        header: Vec<u8>,
    },
    /// Within a long payload of an unknown record.
    Passing {
        record: u64,
        header: RecordHeader,
        left: u64,
        crc: u32,
    },
}

/// Finds the records in the bytes that it is fed.
#[derive(Debug)]
pub struct Scanner {
    buffer: Vec<u8>,
    /// Bytes at the front of the buffer that are used up.
    used: usize,
    /// Where the first unused byte stands in the source.
    offset: u64,
    ended: bool,
    skim: bool,
    /// A block that must be read whole though skimming, since what follows it is not a record.
    distrusted: Option<u64>,
    state: State,
    /// Backs the payload of a skimmed record.
    held: Vec<u8>,
}

enum Boundary {
    Head,
    Record(RecordHeader),
    Trailer,
    Nothing,
    Short,
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
            held: Vec::new(),
        }
    }

    /// A scanner that asks to seek past the columns of blocks, and so does not check them.
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
            let state = std::mem::replace(&mut self.state, State::Boundary);
            let found = match state {
                State::Boundary => self.at_boundary(),
                State::Lost {
                    from,
                    opcode,
                    fault,
                } => self.search(from, opcode, fault),
                State::Skimmed {
                    record,
                    payload_bytes,
                    header,
                } => self.after_skimmed(record, payload_bytes, header),
                State::Passing {
                    record,
                    header,
                    left,
                    crc,
                } => self.pass(record, header, left, crc),
            };
            match found {
                Found::Again => (),
                Found::Need(bytes) => return Step::Need(bytes),
                Found::Seek(offset) => return Step::Seek(offset),
                Found::Head(offset) => return Step::Head(offset),
                Found::Bad(bad) => return Step::Bad(bad),
                Found::End => return Step::End,
                Found::Skimmed {
                    offset,
                    payload_bytes,
                } => {
                    let payload = &self.held[..];
                    return Step::Record(Record {
                        offset,
                        opcode: opcode::BLOCK,
                        payload,
                        payload_bytes,
                    });
                }
                Found::Record {
                    offset,
                    header,
                    held,
                } => {
                    let end = self.used - PAYLOAD_CRC_BYTES;
                    let payload = if held {
                        &self.buffer[end - header.length as usize..end]
                    } else {
                        &[]
                    };
                    return Step::Record(Record {
                        offset,
                        opcode: header.opcode,
                        payload,
                        payload_bytes: header.length,
                    });
                }
            }
        }
    }

    fn unused(&self) -> &[u8] {
        &self.buffer[self.used..]
    }

    fn consume(&mut self, bytes: usize) {
        self.used += bytes;
        self.offset += bytes as u64;
    }

    fn seek(&mut self, offset: u64) -> Found {
        let ahead = offset
            .checked_sub(self.offset)
            .and_then(|ahead| usize::try_from(ahead).ok());
        match ahead {
            Some(ahead) if ahead <= self.unused().len() => {
                self.consume(ahead);
                Found::Again
            }
            _ => {
                self.buffer.clear();
                self.used = 0;
                self.offset = offset;
                self.ended = false;
                Found::Seek(offset)
            }
        }
    }

    /// What stands at the next byte.
    fn boundary(&self) -> Boundary {
        let bytes = self.unused();
        if bytes.starts_with(&HEAD_MAGIC) {
            return Boundary::Head;
        }
        match RecordHeader::parse(bytes) {
            Some(header) if plausible(header) => return Boundary::Record(header),
            _ => (),
        }
        if parse_trailer(bytes).is_some() {
            return Boundary::Trailer;
        }
        if bytes.len() < RECORD_HEADER_BYTES && !self.ended {
            Boundary::Short
        } else {
            Boundary::Nothing
        }
    }

    fn at_boundary(&mut self) -> Found {
        match self.boundary() {
            Boundary::Head => {
                let offset = self.offset;
                self.consume(HEAD_MAGIC.len());
                Found::Head(offset)
            }
            Boundary::Record(header) => self.at_record(header),
            Boundary::Trailer => {
                self.consume(TRAILER_BYTES);
                Found::Again
            }
            Boundary::Short => Found::Need(RECORD_HEADER_BYTES - self.unused().len()),
            Boundary::Nothing if self.unused().is_empty() => Found::End,
            Boundary::Nothing => {
                self.state = State::Lost {
                    from: self.offset,
                    opcode: None,
                    fault: Fault::NoRecord,
                };
                self.consume(1);
                Found::Again
            }
        }
    }

    fn at_record(&mut self, header: RecordHeader) -> Found {
        if header.length > MAX_BLOCK_BYTES {
            let record = self.offset;
            self.consume(RECORD_HEADER_BYTES);
            self.state = State::Passing {
                record,
                header,
                left: header.length,
                crc: 0,
            };
            return Found::Again;
        }
        if self.skim && header.opcode == opcode::BLOCK && self.distrusted != Some(self.offset) {
            return self.skim_block(header);
        }
        let length = header.length as usize;
        let record_bytes = RECORD_HEADER_BYTES + length + PAYLOAD_CRC_BYTES;
        let there = self.unused().len();
        if there < record_bytes {
            if !self.ended {
                return Found::Need(record_bytes - there);
            }
            let fault = Fault::Truncated {
                expected: record_bytes as u64,
                found: there as u64,
            };
            return self.lose(header, fault);
        }
        let payload = &self.unused()[RECORD_HEADER_BYTES..RECORD_HEADER_BYTES + length];
        let computed = crc32c::crc32c(payload);
        let stored = read_u32(self.unused(), RECORD_HEADER_BYTES + length).unwrap_or_default();
        if stored != computed {
            return self.lose(header, Fault::Checksum { stored, computed });
        }
        let offset = self.offset;
        self.consume(record_bytes);
        Found::Record {
            offset,
            header,
            held: true,
        }
    }

    /// Gives up the record here and looks for the next one within it.
    fn lose(&mut self, header: RecordHeader, fault: Fault) -> Found {
        self.state = State::Lost {
            from: self.offset,
            opcode: Some(header.opcode),
            fault,
        };
        self.consume(SYNC.len());
        Found::Again
    }

    fn skim_block(&mut self, header: RecordHeader) -> Found {
        let record = self.offset;
        let there = self.unused().len();
        let payload = &self.unused()[RECORD_HEADER_BYTES..];
        let needed = match header_bytes(payload) {
            Some(Ok(needed)) if needed as u64 <= header.length => needed,
            None if header.length >= 6 => 6,
            _ => {
                self.distrusted = Some(record);
                return Found::Again;
            }
        };
        if payload.len() < needed {
            if !self.ended {
                return Found::Need(needed - payload.len());
            }
            self.distrusted = Some(record);
            return Found::Again;
        }
        let held = payload[..needed].to_vec();
        debug_assert!(there >= RECORD_HEADER_BYTES + needed);
        self.state = State::Skimmed {
            record,
            payload_bytes: header.length,
            header: held,
        };
        let next = header
            .record_bytes()
            .and_then(|bytes| record.checked_add(bytes));
        self.seek(next.unwrap_or(u64::MAX))
    }

    /// The block was whole if another record, or the end, follows it.
    fn after_skimmed(&mut self, record: u64, payload_bytes: u64, header: Vec<u8>) -> Found {
        match self.boundary() {
            Boundary::Short => {
                self.state = State::Skimmed {
                    record,
                    payload_bytes,
                    header,
                };
                Found::Need(RECORD_HEADER_BYTES - self.unused().len())
            }
            Boundary::Nothing => {
                self.distrusted = Some(record);
                self.seek(record)
            }
            Boundary::Head | Boundary::Record(_) | Boundary::Trailer => {
                self.held = header;
                Found::Skimmed {
                    offset: record,
                    payload_bytes,
                }
            }
        }
    }

    fn pass(&mut self, record: u64, header: RecordHeader, mut left: u64, mut crc: u32) -> Found {
        let take = (self.unused().len() as u64).min(left);
        crc = crc32c::crc32c_append(crc, &self.unused()[..take as usize]);
        self.consume(take as usize);
        left -= take;
        if left == 0 && self.unused().len() >= PAYLOAD_CRC_BYTES {
            let stored = read_u32(self.unused(), 0).unwrap_or_default();
            self.consume(PAYLOAD_CRC_BYTES);
            if stored == crc {
                return Found::Record {
                    offset: record,
                    header,
                    held: false,
                };
            }
            let fault = Fault::Checksum {
                stored,
                computed: crc,
            };
            self.state = State::Lost {
                from: record,
                opcode: Some(header.opcode),
                fault,
            };
            return self.seek(record + SYNC.len() as u64);
        }
        if self.ended {
            let expected = header.record_bytes().unwrap_or(u64::MAX);
            let fault = Fault::Truncated {
                expected,
                found: self.offset - record,
            };
            self.state = State::Lost {
                from: record,
                opcode: Some(header.opcode),
                fault,
            };
            return self.seek(record + SYNC.len() as u64);
        }
        self.state = State::Passing {
            record,
            header,
            left,
            crc,
        };
        Found::Need(
            usize::try_from(left)
                .unwrap_or(usize::MAX)
                .clamp(PAYLOAD_CRC_BYTES, CHUNK_BYTES),
        )
    }

    /// Looks for the next place where a tape, a record or a trailer starts.
    fn search(&mut self, from: u64, opcode: Option<u8>, fault: Fault) -> Found {
        loop {
            match self.boundary() {
                Boundary::Short => {
                    self.state = State::Lost {
                        from,
                        opcode,
                        fault,
                    };
                    return Found::Need(RECORD_HEADER_BYTES - self.unused().len());
                }
                Boundary::Nothing if !self.unused().is_empty() => {
                    let ahead =
                        candidate(&self.unused()[1..]).map_or(self.unused().len(), |at| at + 1);
                    self.consume(ahead);
                }
                _ => {
                    let bytes = self.offset - from;
                    return Found::Bad(BadRecord {
                        offset: from,
                        bytes,
                        opcode,
                        fault,
                        requests: None,
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

enum Found {
    Again,
    Need(usize),
    Seek(u64),
    Head(u64),
    Record {
        offset: u64,
        header: RecordHeader,
        held: bool,
    },
    Skimmed {
        offset: u64,
        payload_bytes: u64,
    },
    Bad(BadRecord),
    End,
}

/// Whether a record of this kind can be that long.
fn plausible(header: RecordHeader) -> bool {
    match header.opcode {
        opcode::BLOCK => header.length <= MAX_BLOCK_BYTES,
        opcode::HEADER..=opcode::FOOTER => header.length <= MAX_METADATA_BYTES,
        _ => header.record_bytes().is_some(),
    }
}

/// The first place where something may start: a whole marker, or what may be the front of one.
fn candidate(bytes: &[u8]) -> Option<usize> {
    let whole = |at: usize| -> bool {
        let rest = &bytes[at..];
        rest.starts_with(&SYNC) || rest.starts_with(&HEAD_MAGIC) || parse_trailer(rest).is_some()
    };
    let tail = bytes.len().saturating_sub(RECORD_HEADER_BYTES);
    (0..tail)
        .find(|at| whole(*at))
        .or_else(|| (tail < bytes.len()).then_some(tail))
}
