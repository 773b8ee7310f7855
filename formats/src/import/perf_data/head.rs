//! The beginning of a file: its byte order, and where its parts stand.
//!
//! | at | field | |
//! |---|---|---|
//! | 00 | u64 magic | `PERFILE2`, in the byte order of the recording machine |
//! | 08 | u64 size | 104; 16 in a pipe, whose records follow at once |
//! | 10 | u64 attr_size | of an attribute and the place of its ids |
//! | 18 | u64 offset, size | attributes |
//! | 28 | u64 offset, size | records |
//! | 38 | u64 offset, size | unused |
//! | 48 | 256 bits | which features there are; their places stand behind the records |

use std::io::{BufReader, Read, Seek, SeekFrom};

use super::attr::{Attr, Attrs, MAX_IDS};
use super::error::PerfDataError;
use super::features::{Features, feature};
use crate::byte_order::ByteOrder;

const PIPE_HEAD_BYTES: u64 = 16;
const HEAD_BYTES: usize = 104;
/// Bytes of the place of a section: offset and size.
const SECTION_BYTES: usize = 16;
/// Longest attribute that is believed: it had 64 bytes in 2009 and has 136 now.
const MAX_ATTR_BYTES: u64 = 4096;
/// Most attributes that are read.
const MAX_ATTRS: u64 = 4096;
/// Longest description of the tracepoints.
pub(super) const MAX_TRACING_BYTES: u64 = 64 << 20;
/// Longest of the other features that are read.
const MAX_FEATURE_BYTES: u64 = 64 << 10;
const BUFFER_BYTES: usize = 256 << 10;

/// What is known before the first record.
#[derive(Debug)]
pub(super) struct Start {
    pub order: ByteOrder,
    pub attrs: Attrs,
    pub features: Features,
    /// Bytes of records; `None` where they go on to the end.
    pub records_bytes: Option<u64>,
    /// Where they begin.
    pub offset: u64,
}

/// The byte order of what begins so; `None` if it is no `perf.data`.
pub(super) fn byte_order(start: &[u8]) -> Option<ByteOrder> {
    match start.first_chunk::<8>()? {
        b"PERFILE2" => Some(ByteOrder::Little),
        b"2ELIFREP" => Some(ByteOrder::Big),
        _ => None,
    }
}

/// Opens a file; the source stands at its first record then.
pub(super) fn open<R: Read + Seek>(source: R) -> Result<(BufReader<R>, Start), PerfDataError> {
    let mut source = BufReader::with_capacity(BUFFER_BYTES, source);
    let (order, size) = begin(&mut source)?;
    if size == PIPE_HEAD_BYTES {
        return Ok((source, in_pipe(order)));
    }
    let mut file = File { source, order };
    let start = file.start(size)?;
    file.seek(start.offset)?;
    Ok((file.source, start))
}

/// Opens what was written into a pipe.
pub(super) fn open_stream<R: Read>(source: R) -> Result<(BufReader<R>, Start), PerfDataError> {
    let mut source = BufReader::with_capacity(BUFFER_BYTES, source);
    match begin(&mut source)? {
        (order, PIPE_HEAD_BYTES) => Ok((source, in_pipe(order))),
        _ => Err(PerfDataError::NeedsFile),
    }
}

fn in_pipe(order: ByteOrder) -> Start {
    Start {
        order,
        attrs: Attrs::default(),
        features: Features::default(),
        records_bytes: None,
        offset: PIPE_HEAD_BYTES,
    }
}

/// Byte order and length of the header.
fn begin(source: &mut impl Read) -> Result<(ByteOrder, u64), PerfDataError> {
    let start = read_to(source, 0, PIPE_HEAD_BYTES)?;
    let order = byte_order(&start);
    match order.and_then(|order| Some((order, order.u64_at(&start, 8)?))) {
        Some(begun) => Ok(begun),
        None => Err(PerfDataError::NotPerfData {
            found: match start.len() {
                0 => "nothing".to_owned(),
                _ => format!("{:?}", String::from_utf8_lossy(&start)),
            },
        }),
    }
}

/// Up to `bytes` bytes, as many as there are. Room grows with what comes.
fn read_to(source: &mut impl Read, offset: u64, bytes: u64) -> Result<Vec<u8>, PerfDataError> {
    let mut out = Vec::new();
    let read = source.take(bytes).read_to_end(&mut out);
    read.map_err(|source| PerfDataError::Read { offset, source })?;
    Ok(out)
}

/// Where a part stands.
#[derive(Clone, Copy, Debug)]
struct Section {
    offset: u64,
    size: u64,
}

struct File<R> {
    source: BufReader<R>,
    order: ByteOrder,
}

impl<R: Read + Seek> File<R> {
    fn start(&mut self, size: u64) -> Result<Start, PerfDataError> {
        if size < HEAD_BYTES as u64 {
            return Err(PerfDataError::Header {
                what: "size",
                found: size,
                expected: "104, or 16 in a pipe",
            });
        }
        let head = self.read(
            Section {
                offset: 0,
                size: HEAD_BYTES as u64,
            },
            "header",
        )?;
        let order = self.order;
        let number = |at| order.u64_at(&head, at).unwrap_or_default();
        let section = |at| Section {
            offset: number(at),
            size: number(at + 8),
        };
        let (attrs, records) = (section(0x18), section(0x28));
        let attrs = self.attrs(number(0x10), attrs)?;
        let features = match records.offset.checked_add(records.size) {
            // A recorder that was killed wrote no sizes, and no features.
            Some(at) if records.size > 0 => self.features(&head[0x48..], at)?,
            _ => return Err(PerfDataError::NoFormats),
        };
        Ok(Start {
            order,
            attrs,
            features,
            records_bytes: Some(records.size),
            offset: records.offset,
        })
    }

    fn attrs(&mut self, attr_bytes: u64, all: Section) -> Result<Attrs, PerfDataError> {
        let ids_bytes = SECTION_BYTES as u64;
        if !(Attr::MIN_BYTES + ids_bytes..=MAX_ATTR_BYTES).contains(&attr_bytes) {
            return Err(PerfDataError::Header {
                what: "attr_size",
                found: attr_bytes,
                expected: "80 to 4096",
            });
        }
        let count = all.size / attr_bytes;
        if count > MAX_ATTRS {
            return Err(PerfDataError::Header {
                what: "number of attributes",
                found: count,
                expected: "up to 4096",
            });
        }
        let size = count * attr_bytes;
        let bytes = self.read(Section { size, ..all }, "attributes")?;
        let mut attrs = Attrs::default();
        for bytes in bytes.chunks_exact(attr_bytes as usize) {
            let (attr, place) = bytes.split_at(bytes.len() - SECTION_BYTES);
            let number = |at| self.order.u64_at(place, at).unwrap_or_default();
            let place = Section {
                offset: number(0),
                size: number(8).min(8 * MAX_IDS as u64),
            };
            let ids = self.read(place, "ids of events")?;
            attrs.add(attr, &ids, self.order);
        }
        Ok(attrs)
    }

    /// Reads those of the features that are of use. `bits` says which there are.
    fn features(&mut self, bits: &[u8], at: u64) -> Result<Features, PerfDataError> {
        let is_set = |number: usize| {
            let word = self.order.u64_at(bits, number / 64 * 8).unwrap_or_default();
            word >> (number % 64) & 1 == 1
        };
        let numbers: Vec<usize> = (0..256).filter(|number| is_set(*number)).collect();
        let size = (numbers.len() * SECTION_BYTES) as u64;
        let table = self.read(Section { offset: at, size }, "table of features")?;
        let mut features = Features::default();
        for (place, number) in table.chunks_exact(SECTION_BYTES).zip(numbers) {
            let field = |at| self.order.u64_at(place, at).unwrap_or_default();
            let (section, number) = (
                Section {
                    offset: field(0),
                    size: field(8),
                },
                number as u64,
            );
            let longest = match number {
                feature::TRACING_DATA => MAX_TRACING_BYTES,
                number if feature::READ.contains(&number) => MAX_FEATURE_BYTES,
                _ => continue,
            };
            if section.size > longest {
                return Err(PerfDataError::Header {
                    what: "size of a feature",
                    found: section.size,
                    expected: "up to 64 MiB of TRACING_DATA, 64 KiB of others",
                });
            }
            let bytes = self.read(section, "features")?;
            features.take(number, &bytes, self.order)?;
        }
        Ok(features)
    }

    fn read(&mut self, section: Section, what: &'static str) -> Result<Vec<u8>, PerfDataError> {
        let Section { offset, size } = section;
        if size == 0 {
            return Ok(Vec::new());
        }
        self.seek(offset)?;
        let bytes = read_to(&mut self.source, offset, size)?;
        match bytes.len() as u64 == size {
            true => Ok(bytes),
            false => Err(PerfDataError::Ends { what, offset }),
        }
    }

    fn seek(&mut self, offset: u64) -> Result<(), PerfDataError> {
        // Beyond what a file can be: a seek would fail with the system's own words.
        if offset > i64::MAX as u64 {
            return Err(PerfDataError::Ends {
                what: "parts",
                offset,
            });
        }
        let sought = self.source.seek(SeekFrom::Start(offset));
        sought.map_err(|source| PerfDataError::Read { offset, source })?;
        Ok(())
    }
}
