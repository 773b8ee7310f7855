//! LZNT1, `[MS-XCA]` 2.5.
//!
//! Chunks of up to 4,096 bytes of output, each behind a header of 16 bits: length minus one in the
//! lower twelve, the top bit for a compressed chunk. In one, groups of eight flags, lowest bit
//! first: 0 a byte as it is, 1 a match of two bytes. How these divide into distance and length
//! depends on how much of the chunk is decoded.

use super::{DecompressError, Output};
use crate::bytes::u16_at;

const CHUNK_BYTES: usize = 4096;
const HEADER_BYTES: usize = 2;
const COMPRESSED: u16 = 0x8000;

pub(super) fn decompress(input: &[u8], output: &mut Output<'_>) -> Result<(), DecompressError> {
    let mut at = 0;
    while !output.is_full() {
        let header = u16_at(input, at).ok_or_else(|| output.ends())?;
        if header == 0 {
            return Ok(());
        }
        let start = at + HEADER_BYTES;
        let end = start + usize::from(header & 0xfff) + 1;
        // The last chunk of torn data is decoded as far as it goes.
        let data = input.get(start..end.min(input.len())).unwrap_or_default();
        if header & COMPRESSED == 0 {
            output.literals(data);
        } else {
            chunk(data, start, output)?;
        }
        at = end;
    }
    Ok(())
}

/// One compressed chunk, which stands at `start` in the input.
fn chunk(data: &[u8], start: usize, output: &mut Output<'_>) -> Result<(), DecompressError> {
    let chunk_start = output.len();
    let mut at = 0;
    while at < data.len() && !output.is_full() {
        let flags = data[at];
        at += 1;
        for bit in 0..8 {
            if at >= data.len() || output.is_full() {
                break;
            }
            if flags & (1 << bit) == 0 {
                output.literal(data[at]);
                at += 1;
                continue;
            }
            let pair = u16_at(data, at).ok_or_else(|| output.ends())?;
            let done = output.len() - chunk_start;
            let length_bits = length_bits(done);
            let length = usize::from(pair) & ((1 << length_bits) - 1);
            let distance = (usize::from(pair) >> length_bits) + 1;
            if distance > done || done + length + 3 > CHUNK_BYTES {
                return Err(DecompressError::Malformed {
                    input: start + at,
                    what: "a match that leaves its chunk",
                });
            }
            output.repeat(distance, length + 3, start + at)?;
            at += 2;
        }
    }
    Ok(())
}

/// How many bits of a match are its length, when `done` bytes of the chunk are decoded: the rest is
/// just enough for every distance.
fn length_bits(done: usize) -> u32 {
    let distance_bits = usize::BITS - done.saturating_sub(1).leading_zeros();
    16 - distance_bits.clamp(4, 12)
}

#[cfg(test)]
mod tests {
    use super::super::{Compression, decompress};
    use super::length_bits;

    #[test]
    fn the_bits_of_a_distance_grow_with_the_chunk() {
        let expected = [
            (0, 12),
            (1, 12),
            (16, 12),
            (17, 11),
            (32, 11),
            (33, 10),
            (4096, 4),
        ];
        for (done, bits) in expected {
            assert_eq!(length_bits(done), bits, "{done}");
        }
    }

    /// `F# F# G A` and so on: the example of `[MS-XCA]` 3.3.
    #[test]
    fn example_of_the_specification() {
        let input = [
            0x38, 0xb0, 0x88, 0x46, 0x23, 0x20, 0x00, 0x20, 0x47, 0x20, 0x41, 0x00, 0x10, 0xa2,
            0x47, 0x01, 0xa0, 0x45, 0x20, 0x44, 0x00, 0x08, 0x45, 0x01, 0x50, 0x79, 0x00, 0xc0,
            0x45, 0x20, 0x05, 0x24, 0x13, 0x88, 0x05, 0xb4, 0x02, 0x4a, 0x44, 0xef, 0x03, 0x58,
            0x02, 0x8c, 0x09, 0x16, 0x01, 0x48, 0x45, 0x00, 0xbe, 0x00, 0x9e, 0x00, 0x04, 0x01,
            0x18, 0x90, 0x00,
        ];
        let expected = b"F# F# G A A G F# E D D E F# F# E E F# F# G A A G F# E D D E F# E D D E E \
                         F# D E F# G F# D E F# G F# E D E A F# F# G A A G F# E D D E F# E D D\0";
        let mut output = Vec::new();
        decompress(Compression::Lznt1, &input, expected.len(), &mut output).unwrap();
        assert_eq!(
            String::from_utf8_lossy(&output),
            String::from_utf8_lossy(expected)
        );
    }
}
