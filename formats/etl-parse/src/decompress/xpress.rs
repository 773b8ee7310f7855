//! Plain LZ77 (XPRESS), `[MS-XCA]` 2.4.
//!
//! Groups of 32 flags, highest bit first: 0 a byte as it is, 1 a match of two bytes, `distance - 1`
//! in the upper 13 bits and `length - 3` in the lower three. A length of 7 goes on in a half byte
//! that two matches share, then in a byte, in 16 and in 32 bits.

use super::{DecompressError, Output};
use crate::bytes::{u8_at, u16_at, u32_at};

pub(super) fn decompress(input: &[u8], output: &mut Output<'_>) -> Result<(), DecompressError> {
    let mut source = Source {
        input,
        at: 0,
        half: None,
    };
    while !output.is_full() {
        let mut flags = source.next32().ok_or_else(|| output.ends())?;
        let mut left = u32::BITS;
        while left > 0 && !output.is_full() {
            let literals = flags.leading_zeros().min(left);
            if literals > 0 {
                source.literals(literals as usize, output)?;
                left -= literals;
                flags = flags.checked_shl(literals).unwrap_or(0);
            }
            if left > 0 && !output.is_full() {
                source.repeat(output)?;
                left -= 1;
                flags <<= 1;
            }
        }
    }
    Ok(())
}

struct Source<'a> {
    input: &'a [u8],
    at: usize,
    /// Where a byte stands whose upper half is not used yet.
    half: Option<usize>,
}

impl Source<'_> {
    /// So many bytes as they are; fewer, where the output is full before.
    #[inline]
    fn literals(&mut self, count: usize, output: &mut Output<'_>) -> Result<(), DecompressError> {
        let rest = self.input.get(self.at..).unwrap_or_default();
        let copied = output.few_literals(rest, count);
        self.at += copied;
        match copied == count || output.is_full() {
            true => Ok(()),
            false => Err(output.ends()),
        }
    }

    /// A match.
    #[inline]
    fn repeat(&mut self, output: &mut Output<'_>) -> Result<(), DecompressError> {
        let pair = self.next16().ok_or_else(|| output.ends())?;
        let length = self
            .length(usize::from(pair & 7))
            .map_err(|what| what.map_or_else(|| output.ends(), |what| self.malformed(what)))?;
        output.repeat(usize::from(pair >> 3) + 1, length, self.at)
    }

    /// Length of a match whose three bits are these; the error is `None` at the end of the input.
    #[inline]
    fn length(&mut self, bits: usize) -> Result<usize, Option<&'static str>> {
        if bits < 7 {
            return Ok(bits + 3);
        }
        let half = match self.half.take() {
            Some(at) => u8_at(self.input, at).ok_or(None)? >> 4,
            None => {
                self.half = Some(self.at);
                self.next8().ok_or(None)? & 15
            }
        };
        if half < 15 {
            return Ok(usize::from(half) + 7 + 3);
        }
        let byte = self.next8().ok_or(None)?;
        if byte < 255 {
            return Ok(usize::from(byte) + 15 + 7 + 3);
        }
        let length = match self.next16().ok_or(None)? {
            0 => self.next32().ok_or(None)?,
            length => u32::from(length),
        };
        let long = usize::try_from(length).unwrap_or(usize::MAX);
        match long.checked_add(3) {
            Some(length) if long >= 15 + 7 => Ok(length),
            _ => Err(Some("a long length that is shorter than a short one")),
        }
    }

    fn malformed(&self, what: &'static str) -> DecompressError {
        DecompressError::Malformed {
            input: self.at,
            what,
        }
    }

    #[inline]
    fn next8(&mut self) -> Option<u8> {
        let byte = u8_at(self.input, self.at)?;
        self.at += 1;
        Some(byte)
    }

    #[inline]
    fn next16(&mut self) -> Option<u16> {
        let number = u16_at(self.input, self.at)?;
        self.at += 2;
        Some(number)
    }

    #[inline]
    fn next32(&mut self) -> Option<u32> {
        let number = u32_at(self.input, self.at)?;
        self.at += 4;
        Some(number)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Compression, decompress};

    /// The two examples of `[MS-XCA]` 3.1.
    #[test]
    fn examples_of_the_specification() {
        let mut input = vec![0x3f, 0, 0, 0];
        input.extend(b'a'..=b'z');
        let mut output = Vec::new();
        decompress(Compression::Xpress, &input, 26, &mut output).unwrap();
        assert_eq!(output, b"abcdefghijklmnopqrstuvwxyz");

        let input = [
            0xff, 0xff, 0xff, 0x1f, 0x61, 0x62, 0x63, 0x17, 0x00, 0x0f, 0xff, 0x26, 0x01,
        ];
        decompress(Compression::Xpress, &input, 300, &mut output).unwrap();
        assert_eq!(output, b"abc".repeat(100));
    }
}
