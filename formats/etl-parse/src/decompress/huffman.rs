//! LZ77 and Huffman (XPRESS Huffman), `[MS-XCA]` 2.2.
//!
//! Each 64 KiB of output have a table of 512 code lengths, four bits each, in front. The first 256
//! symbols are bytes; the others are matches: the lower four bits are `length - 3`, the next four the
//! number of bits of the distance, which follow the code. Codes and distances come from a stream
//! of 16-bit words, highest bit first; the bytes of longer lengths stand between its words.

use super::{DecompressError, Output};
use crate::bytes::{u8_at, u16_at, u32_at};

const SYMBOLS: usize = 512;
const TABLE_BYTES: usize = SYMBOLS / 2;
const MAX_CODE_BITS: u32 = 15;
const BLOCK_BYTES: usize = 1 << 16;

pub(super) fn decompress(input: &[u8], output: &mut Output<'_>) -> Result<(), DecompressError> {
    let mut codes = Codes::new();
    let mut at = 0;
    while !output.is_full() {
        let table = input
            .get(at..)
            .and_then(|rest| rest.first_chunk::<TABLE_BYTES>())
            .ok_or_else(|| output.ends())?;
        codes
            .set(table)
            .map_err(|what| DecompressError::Malformed { input: at, what })?;
        let mut bits = Bits::start(input, at + TABLE_BYTES).ok_or_else(|| output.ends())?;
        let end = output.len().saturating_add(BLOCK_BYTES);
        while output.len() < end && !output.is_full() {
            symbol(&codes, &mut bits, output)?;
        }
        at = bits.at;
    }
    Ok(())
}

/// Decodes a byte or a match.
#[inline]
fn symbol(
    codes: &Codes,
    bits: &mut Bits<'_>,
    output: &mut Output<'_>,
) -> Result<(), DecompressError> {
    let entry = codes.lookup(bits.peek());
    bits.skip(entry.bits()).ok_or_else(|| output.ends())?;
    let symbol = entry.symbol();
    if let Ok(byte) = u8::try_from(symbol) {
        output.literal(byte);
        return Ok(());
    }
    let length = match symbol & 15 {
        15 => bits.long_length().map_err(|what| match what {
            Some(what) => DecompressError::Malformed {
                input: bits.at,
                what,
            },
            None => output.ends(),
        })?,
        short => usize::from(short) + 3,
    };
    let distance_bits = u32::from((symbol >> 4) & 15);
    let distance = bits.distance(distance_bits).ok_or_else(|| output.ends())?;
    output.repeat(distance, length, bits.at)
}

/// What the next 15 bits mean: the symbol and, in the lower four bits, the length of its code.
#[derive(Clone, Copy)]
struct Entry(u16);

impl Entry {
    fn symbol(self) -> u16 {
        self.0 >> 4
    }

    fn bits(self) -> u32 {
        u32::from(self.0 & 15)
    }
}

/// The symbol of every 15 bits.
struct Codes {
    entries: Vec<Entry>,
}

impl Codes {
    fn new() -> Codes {
        Codes {
            entries: Vec::with_capacity(1 << MAX_CODE_BITS),
        }
    }

    /// Takes the code lengths of a block. Codes are given out by length, then by symbol.
    fn set(&mut self, table: &[u8; TABLE_BYTES]) -> Result<(), &'static str> {
        self.entries.clear();
        for bits in 1..=MAX_CODE_BITS {
            for symbol in 0..SYMBOLS as u16 {
                let byte = table[usize::from(symbol) / 2];
                let length = if symbol % 2 == 0 {
                    byte & 15
                } else {
                    byte >> 4
                };
                if u32::from(length) != bits {
                    continue;
                }
                let end = self.entries.len() + (1 << (MAX_CODE_BITS - bits));
                if end > 1 << MAX_CODE_BITS {
                    return Err("more codes than there are bits");
                }
                self.entries.resize(end, Entry(symbol << 4 | bits as u16));
            }
        }
        match self.entries.len() {
            0 => Err("no code has a length"),
            // A lone symbol leaves the other half of the codes unused.
            _ => {
                let last = self.entries[self.entries.len() - 1];
                self.entries.resize(1 << MAX_CODE_BITS, last);
                Ok(())
            }
        }
    }

    #[inline]
    fn lookup(&self, bits: u32) -> Entry {
        self.entries[(bits >> (u32::BITS - MAX_CODE_BITS)) as usize]
    }
}

/// The stream of bits. `word` holds at least 16 that are not used yet, highest first.
struct Bits<'a> {
    input: &'a [u8],
    at: usize,
    word: u32,
    /// How many bits beyond 16 the word holds.
    extra: u32,
}

impl<'a> Bits<'a> {
    fn start(input: &'a [u8], at: usize) -> Option<Bits<'a>> {
        let first = u32::from(u16_at(input, at)?);
        let second = u32::from(u16_at(input, at + 2)?);
        Some(Bits {
            input,
            at: at + 4,
            word: first << 16 | second,
            extra: 16,
        })
    }

    #[inline]
    fn peek(&self) -> u32 {
        self.word
    }

    /// Goes on by at most 15 bits. The last words of the stream may be past the end of the input:
    /// they are read ahead and not used.
    #[inline]
    fn skip(&mut self, bits: u32) -> Option<()> {
        self.word <<= bits;
        if bits <= self.extra {
            self.extra -= bits;
            return Some(());
        }
        let missing = bits - self.extra;
        let next = match u16_at(self.input, self.at) {
            Some(next) => next,
            None if self.at > self.input.len() + 4 => return None,
            None => 0,
        };
        self.word |= u32::from(next) << missing;
        self.at += 2;
        self.extra = 16 - missing;
        Some(())
    }

    #[inline]
    fn distance(&mut self, bits: u32) -> Option<usize> {
        let low = match bits {
            0 => 0,
            bits => self.word >> (u32::BITS - bits),
        };
        self.skip(bits)?;
        Some((low as usize) + (1 << bits))
    }

    /// A length of 18 and more, from the bytes behind the words that were read; the error is `None`
    /// at the end of the input.
    fn long_length(&mut self) -> Result<usize, Option<&'static str>> {
        let byte = u8_at(self.input, self.at).ok_or(None)?;
        self.at += 1;
        if byte < 255 {
            return Ok(usize::from(byte) + 15 + 3);
        }
        let mut length = u32::from(u16_at(self.input, self.at).ok_or(None)?);
        self.at += 2;
        if length == 0 {
            length = u32_at(self.input, self.at).ok_or(None)?;
            self.at += 4;
        }
        let long = usize::try_from(length).unwrap_or(usize::MAX);
        match long.checked_add(3) {
            Some(length) if long >= 15 => Ok(length),
            _ => Err(Some("a long length that is shorter than a short one")),
        }
    }
}
