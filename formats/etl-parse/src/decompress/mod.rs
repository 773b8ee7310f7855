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
    output.clear();
    let mut output = Output {
        bytes: output,
        limit: output_bytes,
    };
    match compression {
        Compression::Lznt1 => lznt1::decompress(input, &mut output)?,
        Compression::Xpress => xpress::decompress(input, &mut output)?,
        Compression::XpressHuffman => huffman::decompress(input, &mut output)?,
    }
    match output.is_full() {
        true => Ok(()),
        false => Err(output.ends()),
    }
}

/// The output, which grows no further than the expected size.
struct Output<'a> {
    bytes: &'a mut Vec<u8>,
    limit: usize,
}

impl Output<'_> {
    fn len(&self) -> usize {
        self.bytes.len()
    }

    fn is_full(&self) -> bool {
        self.bytes.len() >= self.limit
    }

    fn ends(&self) -> DecompressError {
        DecompressError::Ends {
            produced: self.bytes.len(),
            expected: self.limit,
        }
    }

    /// A byte; there is room for it.
    #[inline]
    fn literal(&mut self, byte: u8) {
        self.bytes.push(byte);
    }

    /// Bytes as they are, as many as there is room for.
    fn literals(&mut self, bytes: &[u8]) {
        let room = self.limit.saturating_sub(self.bytes.len());
        self.bytes.extend(bytes.iter().take(room));
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
        let produced = self.bytes.len();
        let Some(start) = produced.checked_sub(distance).filter(|_| distance > 0) else {
            return Err(DecompressError::Distance {
                input,
                distance,
                produced,
            });
        };
        let mut left = length.min(self.limit.saturating_sub(produced));
        // What is repeated grows with each round: its period is the distance.
        while left > 0 {
            let round = left.min(self.bytes.len() - start);
            self.bytes.extend_from_within(start..start + round);
            left -= round;
        }
        Ok(())
    }
}
