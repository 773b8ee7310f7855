//! Pages of the kernel's trace buffers, as `trace_pipe_raw` gives them and `trace.dat` keeps them.
//!
//! A page begins with the time of its first event and the length of its data; then events follow,
//! each with the time since the one before. The layout is that of `include/linux/ring_buffer.h`
//! and `kernel/trace/ring_buffer.c` of Linux; sizes are read from the kernel's own description
//! (`events/header_page` in tracefs). Numbers are in the byte order of this machine.

use thiserror::Error;

/// Set in the length of a page when events were lost before it.
const MISSED_EVENTS: u64 = 1 << 31;
/// Set when the page's data is followed by their number.
const MISSED_STORED: u64 = 1 << 30;

const PADDING: u32 = 29;
const TIME_EXTEND: u32 = 30;
const TIME_STAMP: u32 = 31;
/// Bits of a time in an event's first word.
const DELTA_BITS: u32 = 27;
/// A time stamp of its own has this many bits; the higher ones are the page's.
const STAMP_BITS: u32 = DELTA_BITS + 32;

/// Why the layout of pages cannot be used.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("the layout of trace pages has no usable field {0:?}")]
pub struct PageFormatError(&'static str);

/// The layout of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageLayout {
    length_at: usize,
    /// 4 or 8 bytes.
    length_bytes: usize,
    data_at: usize,
    page_bytes: usize,
}

impl PageLayout {
    /// Reads the layout from the kernel's text, `events/header_page`.
    ///
    /// # Errors
    /// If a field is missing or cannot be.
    pub fn parse(text: &str) -> Result<PageLayout, PageFormatError> {
        let field = |name: &'static str| {
            let of_name = |line: &&str| {
                let declaration = line.split(';').next().unwrap_or_default();
                declaration.split_whitespace().last() == Some(name)
            };
            let line = text.lines().find(of_name);
            let number = |key: &str| {
                let of_key = |part: &str| part.trim().strip_prefix(key)?.parse::<usize>().ok();
                line?.split(';').find_map(of_key)
            };
            let usable = number("offset:").zip(number("size:"));
            usable
                .filter(|(at, size)| *at < 1 << 20 && *size < 1 << 20)
                .ok_or(PageFormatError(name))
        };
        let (_, time_bytes) = field("timestamp")?;
        let (length_at, length_bytes) = field("commit")?;
        let (data_at, data_bytes) = field("data")?;
        if time_bytes != 8 {
            return Err(PageFormatError("timestamp"));
        }
        if !matches!(length_bytes, 4 | 8) {
            return Err(PageFormatError("commit"));
        }
        Ok(PageLayout {
            length_at,
            length_bytes,
            data_at,
            page_bytes: data_at + data_bytes,
        })
    }

    /// Size of a page.
    pub fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    /// Begins to read a page. `None` if it is shorter than it says.
    pub fn open(&self, page: &[u8]) -> Option<Cursor> {
        let time_ns = u64::from_ne_bytes(*page.first_chunk()?);
        let length = match self.length_bytes {
            4 => u64::from(word(page, self.length_at)?),
            _ => u64::from_ne_bytes(*page.get(self.length_at..)?.first_chunk()?),
        };
        let data_bytes = usize::try_from(length & (MISSED_STORED - 1)).ok()?;
        let end = self.data_at.checked_add(data_bytes)?;
        if end > page.len() {
            return None;
        }
        let missed = if length & MISSED_EVENTS == 0 {
            Missed::Nothing
        } else if length & MISSED_STORED == 0 {
            Missed::Unknown
        } else {
            match self.length_bytes {
                4 => Missed::Events(u64::from(word(page, end)?)),
                _ => Missed::Events(u64::from_ne_bytes(*page.get(end..)?.first_chunk()?)),
            }
        };
        let mut cursor = Cursor {
            at: self.data_at,
            end,
            time_ns,
            next: None,
            missed,
        };
        cursor.advance(page);
        Some(cursor)
    }
}

/// Whether events were lost before a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missed {
    /// None were.
    Nothing,
    /// So many were.
    Events(u64),
    /// Some were; the page had no room to tell how many.
    Unknown,
}

/// A place in a page, in front of an event or at its end. The page itself is given to each call.
#[derive(Clone, Copy, Debug)]
pub struct Cursor {
    at: usize,
    end: usize,
    time_ns: u64,
    /// Where the next event's record lies.
    next: Option<(usize, usize)>,
    missed: Missed,
}

impl Cursor {
    /// What was lost before this page.
    pub fn missed(&self) -> Missed {
        self.missed
    }

    /// Time of the next event; `None` at the end.
    pub fn next_ns(&self) -> Option<u64> {
        self.next.map(|_| self.time_ns)
    }

    /// The next event's record, which is stepped over.
    pub fn take<'a>(&mut self, page: &'a [u8]) -> Option<&'a [u8]> {
        let (from, to) = self.next?;
        self.advance(page);
        page.get(from..to)
    }

    /// Finds the next event. What cannot be read ends the page.
    fn advance(&mut self, page: &[u8]) {
        self.next = None;
        while self.at < self.end && self.next.is_none() {
            if self.step(page).is_none() {
                self.at = self.end;
            }
        }
    }

    fn step(&mut self, page: &[u8]) -> Option<()> {
        let page = page.get(..self.end)?;
        let head = word(page, self.at)?;
        // C bit fields begin at the other end on big-endian machines.
        let (kind, delta) = if cfg!(target_endian = "big") {
            (head >> DELTA_BITS, head & ((1 << DELTA_BITS) - 1))
        } else {
            (head & 31, head >> 5)
        };
        let delta = u64::from(delta);
        let body = self.at + 4;
        match kind {
            // The rest of the page is empty.
            PADDING if delta == 0 => return None,
            PADDING => {
                self.time_ns = self.time_ns.wrapping_add(delta);
                self.at = body.checked_add(word(page, body)? as usize)?;
            }
            TIME_EXTEND => {
                let more = u64::from(word(page, body)?) << DELTA_BITS;
                self.time_ns = self.time_ns.wrapping_add(more + delta);
                self.at = body + 4;
            }
            TIME_STAMP => {
                let stamp = (u64::from(word(page, body)?) << DELTA_BITS) + delta;
                self.time_ns = self.time_ns >> STAMP_BITS << STAMP_BITS | stamp;
                self.at = body + 4;
            }
            0 => {
                let length = word(page, body)? as usize;
                self.found(delta, body + 4, body.checked_add(length)?)?;
            }
            words => self.found(delta, body, body + words as usize * 4)?,
        }
        Some(())
    }

    fn found(&mut self, delta: u64, from: usize, to: usize) -> Option<()> {
        if from > to || to > self.end {
            return None;
        }
        self.time_ns = self.time_ns.wrapping_add(delta);
        self.next = Some((from, to));
        self.at = to.checked_next_multiple_of(4)?;
        Some(())
    }
}

fn word(page: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*page.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Linux 6.18 prints it on a 64-bit machine.
    const HEADER: &str = "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;
\tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;
\tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;
\tfield: char data;\toffset:16;\tsize:4080;\tsigned:0;
";

    fn head(kind: u32, delta: u32) -> [u8; 4] {
        match cfg!(target_endian = "big") {
            true => (kind << 27 | delta).to_ne_bytes(),
            false => (delta << 5 | kind).to_ne_bytes(),
        }
    }

    fn page(time_ns: u64, flags: u64, data: &[u8], behind: &[u8]) -> Vec<u8> {
        let mut page = time_ns.to_ne_bytes().to_vec();
        page.extend((data.len() as u64 | flags).to_ne_bytes());
        page.extend(data);
        page.extend(behind);
        page.resize(4096, 0);
        page
    }

    fn read(page: &[u8]) -> Vec<(u64, Vec<u8>)> {
        let mut cursor = PageLayout::parse(HEADER).unwrap().open(page).unwrap();
        std::iter::from_fn(|| {
            let time_ns = cursor.next_ns()?;
            Some((time_ns, cursor.take(page)?.to_vec()))
        })
        .collect()
    }

    #[test]
    fn the_layout_is_the_kernels() {
        let layout = PageLayout::parse(HEADER).unwrap();
        assert_eq!(layout.page_bytes(), 4096);
        assert!(PageLayout::parse("").is_err());
        assert!(PageLayout::parse(&HEADER.replace("commit", "x")).is_err());
        assert!(
            PageLayout::parse(&HEADER.replace("size:8;\tsigned:1", "size:2;\tsigned:1")).is_err()
        );
    }

    #[test]
    fn events_follow_each_other_in_time() {
        let mut data = Vec::new();
        data.extend(head(1, 0)); // the first, at the page's time
        data.extend(*b"aaaa");
        data.extend(head(TIME_EXTEND, 5));
        data.extend(3u32.to_ne_bytes());
        data.extend(head(2, 7));
        data.extend(*b"bbbbbbbb");
        data.extend(head(PADDING, 1)); // a discarded event of 8 bytes
        data.extend(8u32.to_ne_bytes());
        data.extend([0; 4]);
        data.extend(head(0, 2)); // a length of its own: 4 + 5 bytes
        data.extend(9u32.to_ne_bytes());
        data.extend(*b"ccccc\0\0\0");
        data.extend(head(TIME_STAMP, 1));
        data.extend(16u32.to_ne_bytes());
        data.extend(head(1, 4));
        data.extend(*b"dddd");
        data.extend(head(PADDING, 0));
        data.extend(*b"not an event");
        let (second, third) = (1000 + (3 << 27) + 5 + 7, 1000 + (3 << 27) + 5 + 7 + 1 + 2);
        let expected = [
            (1000, b"aaaa".to_vec()),
            (second, b"bbbbbbbb".to_vec()),
            (third, b"ccccc".to_vec()),
            ((16 << 27) + 1 + 4, b"dddd".to_vec()),
        ];
        assert_eq!(read(&page(1000, 0, &data, &[])), expected);
    }

    #[test]
    fn what_was_missed_is_told() {
        let missed = |flags, behind: &[u8]| {
            let page = page(1, flags, &[], behind);
            PageLayout::parse(HEADER)
                .unwrap()
                .open(&page)
                .unwrap()
                .missed()
        };
        assert_eq!(missed(0, &[]), Missed::Nothing);
        assert_eq!(missed(MISSED_EVENTS, &[]), Missed::Unknown);
        let count = 77u64.to_ne_bytes();
        assert_eq!(
            missed(MISSED_EVENTS | MISSED_STORED, &count),
            Missed::Events(77)
        );
    }

    #[test]
    fn what_cannot_be_ends_the_page() {
        let layout = PageLayout::parse(HEADER).unwrap();
        assert!(layout.open(&[0; 15]).is_none());
        assert!(layout.open(&page(1, 5000, &[], &[])).is_none());
        for data in [
            [head(28, 0), [0; 4]].concat(),
            [head(0, 0), 100u32.to_ne_bytes()].concat(),
            [head(0, 0), 3u32.to_ne_bytes()].concat(),
            [head(PADDING, 1), u32::MAX.to_ne_bytes()].concat(),
            head(TIME_EXTEND, 1).to_vec(),
            vec![1, 2],
        ] {
            assert_eq!(read(&page(1, 0, &data, &[])), [], "{data:?}");
        }
    }
}
