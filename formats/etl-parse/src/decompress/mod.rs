//! The three compressions of Windows that event trace logs use, as `[MS-XCA]` specifies them.
//!
//! Each decoder is given the size of the output and never makes more: a buffer's header says how
//! long its events are. What was decoded before a fault stays in the output, so that the events at
//! the start of a torn buffer are not lost.

mod huffman;
mod lznt1;
mod xpress;

use thiserror::Error;

/// How a file's buffers are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Compression {
    /// LZNT1 (`COMPRESSION_FORMAT_LZNT1`, 2): `[MS-XCA]` 2.5.
    Lznt1,
    /// Plain LZ77 (`COMPRESSION_FORMAT_XPRESS`, 3): `[MS-XCA]` 2.3 and 2.4.
    Xpress,
    /// LZ77 and Huffman (`COMPRESSION_FORMAT_XPRESS_HUFF`, 4): `[MS-XCA]` 2.1 and 2.2.
    XpressHuffman,
}

impl Compression {
    /// The compression of a Windows number (`COMPRESSION_FORMAT_…`).
    pub fn from_number(number: u16) -> Option<Compression> {
        match number {
            2 => Some(Compression::Lznt1),
            3 => Some(Compression::Xpress),
            4 => Some(Compression::XpressHuffman),
            _ => None,
        }
    }

    /// Its Windows number.
    pub fn number(self) -> u16 {
        match self {
            Compression::Lznt1 => 2,
            Compression::Xpress => 3,
            Compression::XpressHuffman => 4,
        }
    }
}

/// Why compressed bytes could not be decoded to their end.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum DecompressError {
    /// The input ends too soon.
    #[error("the compressed data ends after {produced} of {expected} bytes")]
    Ends {
        /// Bytes decoded.
        produced: usize,
        /// Bytes expected.
        expected: usize,
    },
    /// A match refers to bytes before the first.
    #[error(
        "compressed byte {input}: a match {distance} bytes back, where only {produced} bytes stand"
    )]
    Distance {
        /// Where in the input.
        input: usize,
        /// How far back.
        distance: usize,
        /// Bytes decoded.
        produced: usize,
    },
    /// A length or a table of codes contradicts the format.
    #[error("compressed byte {input}: {what}")]
    Malformed {
        /// Where in the input.
        input: usize,
        /// What is wrong.
        what: &'static str,
    },
}

/// Replaces what is in `output` by the `output_bytes` bytes that `input` decodes to. Input behind
/// them is not looked at.
///
/// # Errors
///
/// When the input is damaged or too short; `output` then holds what was decoded before.
pub fn decompress(
    compression: Compression,
    input: &[u8],
    output_bytes: usize,
    output: &mut Vec<u8>,
) -> Result<(), DecompressError> {
    // What stands in it from the buffer before is overwritten: only what grows is cleared.
    output.resize(output_bytes, 0);
    let mut decoded = Output {
        bytes: output,
        len: 0,
    };
    let result = match compression {
        Compression::Lznt1 => lznt1::decompress(input, &mut decoded),
        Compression::Xpress => xpress::decompress(input, &mut decoded),
        Compression::XpressHuffman => huffman::decompress(input, &mut decoded),
    };
    let result = result.and(match decoded.is_full() {
        true => Ok(()),
        false => Err(decoded.ends()),
    });
    let len = decoded.len;
    if len < output_bytes {
        // The size was the word of damaged data: no room is kept for it.
        output.truncate(len);
        output.shrink_to_fit();
    }
    result
}

/// Bytes that are copied at once where there is room for them: most literals and matches are shorter.
const CHUNK_BYTES: usize = 32;

/// The output, of the expected size from the start; `len` bytes of it are decoded.
struct Output<'a> {
    bytes: &'a mut [u8],
    len: usize,
}

impl Output<'_> {
    fn len(&self) -> usize {
        self.len
    }

    #[inline]
    fn is_full(&self) -> bool {
        self.len >= self.bytes.len()
    }

    fn ends(&self) -> DecompressError {
        DecompressError::Ends {
            produced: self.len,
            expected: self.bytes.len(),
        }
    }

    /// A byte; there is room for it.
    #[inline]
    fn literal(&mut self, byte: u8) {
        if let Some(place) = self.bytes.get_mut(self.len) {
            *place = byte;
            self.len += 1;
        }
    }

    /// Bytes as they are, as many as there is room for.
    fn literals(&mut self, bytes: &[u8]) {
        let count = bytes.len().min(self.bytes.len() - self.len);
        self.bytes[self.len..self.len + count].copy_from_slice(&bytes[..count]);
        self.len += count;
    }

    /// The first `count` bytes of `input`, as many as there are and there is room for; returns
    /// how many. `count` is at most [`CHUNK_BYTES`].
    #[inline]
    fn few_literals(&mut self, input: &[u8], count: usize) -> usize {
        let place = self.bytes.get_mut(self.len..);
        let place = place.and_then(|place| place.first_chunk_mut::<CHUNK_BYTES>());
        if let (Some(place), Some(chunk)) = (place, input.first_chunk::<CHUNK_BYTES>()) {
            *place = *chunk;
            self.len += count;
            return count;
        }
        let before = self.len;
        self.literals(&input[..count.min(input.len())]);
        self.len - before
    }

    /// Repeats `length` bytes from `distance` back, as many as there is room for; the two ranges
    /// may overlap. `input` is for the error.
    #[inline]
    fn repeat(
        &mut self,
        distance: usize,
        length: usize,
        input: usize,
    ) -> Result<(), DecompressError> {
        let produced = self.len;
        let Some(start) = produced.checked_sub(distance).filter(|_| distance > 0) else {
            return Err(DecompressError::Distance {
                input,
                distance,
                produced,
            });
        };
        if length <= CHUNK_BYTES && distance >= CHUNK_BYTES {
            let (done, free) = self.bytes.split_at_mut(produced);
            let source = done[start..].first_chunk::<CHUNK_BYTES>();
            if let (Some(source), Some(place)) = (source, free.first_chunk_mut::<CHUNK_BYTES>()) {
                *place = *source;
                self.len += length;
                return Ok(());
            }
        }
        self.repeat_slowly(start, length);
        Ok(())
    }

    fn repeat_slowly(&mut self, start: usize, length: usize) {
        let end = self.bytes.len().min(self.len.saturating_add(length));
        // What is repeated grows with each round: its period is the distance.
        while self.len < end {
            let round = (end - self.len).min(self.len - start);
            self.bytes.copy_within(start..start + round, self.len);
            self.len += round;
        }
    }
}
