//! How the recording kernel lays out its tracepoints: the feature TRACING_DATA.
//!
//! It is what `trace-cmd` begins its files with: 17 08 44 `tracing`, a version, byte order and size of a
//! long, two descriptions of the ring, those of ftrace's own events, and those of the tracepoints by
//! system. Each description stands behind its length in 64 bits. Only the block tracepoints are kept.

use std::collections::HashMap;

use super::error::PerfDataError;
use crate::byte_order::ByteOrder;
use crate::tracepoint::{BLOCK_TRACEPOINTS, BlockTracepoint};

const MAGIC: &[u8] = b"\x17\x08\x44tracing";
/// Most names that are kept for the user.
const MAX_NAMES: usize = 16;

/// The tracepoints of a file.
#[derive(Debug, Default)]
pub(super) struct Formats {
    /// The block tracepoints by `common_type`.
    pub block: HashMap<u16, BlockTracepoint>,
    /// Names of others, as `system:name`.
    pub others: Vec<String>,
    /// Block tracepoints whose description lacks what is needed, and what.
    pub unusable: Vec<String>,
}

impl Formats {
    /// Reads a description.
    pub fn parse(bytes: &[u8]) -> Result<Formats, PerfDataError> {
        let mut cursor = Cursor {
            bytes,
            at: 0,
            order: ByteOrder::Little,
        };
        let formats = cursor.read();
        let at = cursor.at;
        formats.ok_or(PerfDataError::BadFormats {
            at,
            problem: match at {
                0 => "it does not begin as one",
                _ => "it ends too soon",
            },
        })
    }

    fn add(&mut self, system: &str, text: &str, order: ByteOrder) {
        let mut names = text.lines().filter_map(|line| line.strip_prefix("name:"));
        let name = names.next().unwrap_or_default().trim();
        let known = BLOCK_TRACEPOINTS.iter().find(|(known, _)| *known == name);
        match known.filter(|_| system == "block") {
            Some((_, step)) => match BlockTracepoint::parse_of(order, *step, text) {
                Ok(tracepoint) => {
                    self.block.insert(tracepoint.id(), tracepoint);
                }
                Err(error) => self.unusable.push(format!("{name}: {error}")),
            },
            None if self.others.len() < MAX_NAMES => self.others.push(format!("{system}:{name}")),
            None => {}
        }
    }
}

struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
    order: ByteOrder,
}

impl<'a> Cursor<'a> {
    fn read(&mut self) -> Option<Formats> {
        if !self.bytes.starts_with(MAGIC) {
            return None;
        }
        self.at = MAGIC.len();
        self.text()?; // version
        if self.take(1)? != [0] {
            self.order = ByteOrder::Big;
        }
        self.take(1 + 4)?; // bytes of a long, bytes of a page
        for _ in ["header_page", "header_event"] {
            self.text()?;
            self.sized()?;
        }
        for _ in 0..self.u32()? {
            self.sized()?;
        }
        let mut formats = Formats::default();
        for _ in 0..self.u32()? {
            let system = String::from_utf8_lossy(self.text()?).into_owned();
            for _ in 0..self.u32()? {
                let text = String::from_utf8_lossy(self.sized()?);
                formats.add(&system, &text, self.order);
            }
        }
        Some(formats)
    }

    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let taken = self.bytes.get(self.at..)?.get(..count)?;
        self.at += count;
        Some(taken)
    }

    fn u32(&mut self) -> Option<u32> {
        let number = self.order.u32_at(self.bytes, self.at)?;
        self.at += 4;
        Some(number)
    }

    /// Bytes behind their length in 64 bits.
    fn sized(&mut self) -> Option<&'a [u8]> {
        let length = self.order.u64_at(self.bytes, self.at)?;
        self.at += 8;
        self.take(usize::try_from(length).ok()?)
    }

    /// Bytes up to a NUL, which is passed.
    fn text(&mut self) -> Option<&'a [u8]> {
        let rest = self.bytes.get(self.at..)?;
        let length = rest.iter().position(|byte| *byte == 0)?;
        self.at += length + 1;
        rest.get(..length)
    }
}
