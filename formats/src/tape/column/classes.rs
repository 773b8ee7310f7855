//! The layout classes: the magnitude and the highest bits of each number in one stream, its lower
//! bits in another (`docs/format.md`, "Classes").

use std::io;

use super::super::error::Corrupt;
use super::layout::Scratch;
use super::stream::{Packer, Unpacker, get_byte};

/// Most bits below the highest that a class can tell.
pub const MAX_BITS: u8 = 4;

/// The class of a number, and how many lower bits it leaves open.
fn class_of(number: u64, bits: u8) -> (u64, u32) {
    let magnitude = u64::BITS - number.leading_zeros();
    let open = magnitude.saturating_sub(u32::from(bits) + 1);
    ((u64::from(open) << bits) + (number >> open), open)
}

/// The lowest number of a class and how many lower bits are open; `None` beyond 64 bits.
fn class_start(class: u8, bits: u8) -> Option<(u64, u32)> {
    let class = u64::from(class);
    if class >> bits < 2 {
        return Some((class, 0));
    }
    let open = (class >> bits) as u32 - 1;
    let top = (class & ((1 << bits) - 1)) | 1 << bits;
    (open + u32::from(bits) < u64::BITS).then(|| (top << open, open))
}

/// Whether the class of each number is a byte.
pub fn hold(numbers: &[u64], bits: u8) -> bool {
    let highest = numbers.iter().copied().max().unwrap_or(0);
    class_of(highest, bits).0 <= u64::from(u8::MAX)
}

/// Classes of all numbers when each tells [`MAX_BITS`] bits.
const FINEST: usize = (u64::BITS as usize - MAX_BITS as usize + 1) << MAX_BITS;

/// What the numbers would take in classes if each stream reached its entropy, in bits: for each count
/// of bits that a class may tell. `None` where classes cannot hold them.
pub fn costs(numbers: &[u64]) -> [Option<f64>; MAX_BITS as usize + 1] {
    // Each coarser class is made of whole finer ones.
    let mut finest = [0u32; FINEST];
    for number in numbers {
        finest[class_of(*number, MAX_BITS).0 as usize] += 1;
    }
    let highest = finest.iter().rposition(|count| *count > 0).unwrap_or(0);
    let total = numbers.len() as f64;
    let cost = |bits| {
        if class_of(start_of_finest(highest as u64), bits).0 > u64::from(u8::MAX) {
            return None;
        }
        let mut counts = [0u32; 256];
        let mut cost = 0.0;
        for (finer, count) in finest.iter().enumerate().filter(|(_, count)| **count > 0) {
            let (class, open) = class_of(start_of_finest(finer as u64), bits);
            counts[usize::from(class as u8)] += count;
            cost += f64::from(open) * f64::from(*count);
        }
        let entropy = |count: &u32| f64::from(*count) * (total / f64::from(*count)).log2();
        let classes = counts.iter().filter(|count| **count > 0).map(entropy);
        Some(cost + classes.sum::<f64>())
    };
    std::array::from_fn(|bits| cost(bits as u8))
}

/// The lowest number of a class that tells [`MAX_BITS`] bits.
fn start_of_finest(class: u64) -> u64 {
    match (class >> MAX_BITS).checked_sub(1) {
        None | Some(0) => class,
        Some(open) => (class & ((1 << MAX_BITS) - 1) | 1 << MAX_BITS) << open,
    }
}

/// Appends the streams of numbers that classes [`hold`].
pub fn put(numbers: &[u64], bits: u8, packer: &mut Packer, out: &mut Vec<u8>) -> io::Result<()> {
    let mut classes = Vec::with_capacity(numbers.len());
    let mut lower = BitWriter::with_capacity(4 * numbers.len());
    for number in numbers {
        let (class, open) = class_of(*number, bits);
        classes.push(class as u8);
        lower.put(number & !(u64::MAX << open), open);
    }
    out.push(bits);
    packer.put(&classes, out)?;
    packer.put(&lower.finish(), out)
}

/// Takes the streams of `count` numbers off the front of `bytes`, and appends the numbers.
pub fn get(
    bytes: &mut &[u8],
    count: usize,
    unpacker: &mut Unpacker,
    scratch: &mut Scratch,
    numbers: &mut Vec<u64>,
) -> Result<(), Corrupt> {
    let bits = get_byte(bytes).ok_or(Corrupt::Short {
        what: "classes",
        bytes: 0,
    })?;
    if bits > MAX_BITS {
        return Err(Corrupt::number("class bits", bits));
    }
    unpacker.get(bytes, count, &mut scratch.bytes)?;
    let mut starts = [(0u64, 0u32); 256];
    for (class, start) in (0..=u8::MAX).zip(&mut starts) {
        *start = class_start(class, bits).unwrap_or((0, u32::MAX));
    }
    let open: u64 = scratch
        .bytes
        .iter()
        .map(|class| u64::from(starts[usize::from(*class)].1))
        .sum();
    if open > count as u64 * u64::from(u64::BITS) {
        return Err(Corrupt::Inconsistent {
            what: "a class exceeds 64 bits",
        });
    }
    unpacker.get(bytes, open.div_ceil(8) as usize, &mut scratch.more)?;
    // Reading past the last bit finds zeroes.
    scratch.more.extend_from_slice(&[0; BitReader::SLACK_BYTES]);
    let mut lower = BitReader {
        bytes: &scratch.more,
        at: 0,
    };
    numbers.extend(scratch.bytes.iter().map(|class| {
        let (start, open) = starts[usize::from(*class)];
        start | lower.get(open)
    }));
    Ok(())
}

/// Bits from the lowest of each byte upwards.
struct BitWriter {
    bytes: Vec<u8>,
    pending: u64,
    used: u32,
}

impl BitWriter {
    fn with_capacity(bytes: usize) -> BitWriter {
        BitWriter {
            bytes: Vec::with_capacity(bytes),
            pending: 0,
            used: 0,
        }
    }

    /// Appends the `count` bits of `bits`, whose other bits are 0.
    fn put(&mut self, bits: u64, count: u32) {
        self.pending |= bits << self.used;
        if self.used + count < u64::BITS {
            self.used += count;
            return;
        }
        self.bytes.extend_from_slice(&self.pending.to_le_bytes());
        let written = u64::BITS - self.used;
        self.pending = bits.checked_shr(written).unwrap_or(0);
        self.used = count - written;
    }

    fn finish(mut self) -> Vec<u8> {
        let left = self.used.div_ceil(8) as usize;
        self.bytes
            .extend_from_slice(&self.pending.to_le_bytes()[..left]);
        self.bytes
    }
}

struct BitReader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl BitReader<'_> {
    /// Bytes that must follow the last one that holds bits.
    const SLACK_BYTES: usize = 9;

    /// Takes `count` bits, at most 63.
    fn get(&mut self, count: u32) -> u64 {
        let (byte, bit) = (self.at / 8, self.at as u32 % 8);
        self.at += count as usize;
        let Some(chunk) = self
            .bytes
            .get(byte..)
            .and_then(|rest| rest.first_chunk::<9>())
        else {
            return 0;
        };
        let [low @ .., high] = *chunk;
        let low = u64::from_le_bytes(low) >> bit;
        // Two shifts, since one by 64 is not defined.
        let high = u64::from(high) << 1 << (63 - bit);
        (low | high) & !(u64::MAX << count)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Each class counted for itself, and its entropy added up number by number.
        #[test]
        fn the_costs_of_all_classes_are_found_at_once(
            width in 1u32..=64,
            numbers in proptest::collection::vec(any::<u64>(), 1..200),
        ) {
            let numbers: Vec<u64> = numbers.iter().map(|number| number >> (64 - width)).collect();
            let total = numbers.len() as f64;
            for (bits, found) in (0..).zip(costs(&numbers)) {
                prop_assert_eq!(found.is_some(), hold(&numbers, bits));
                let classes: Vec<_> = numbers.iter().map(|number| class_of(*number, bits)).collect();
                let cost = |(class, open): &(u64, u32)| {
                    let same = classes.iter().filter(|(other, _)| other == class).count();
                    f64::from(*open) + (total / same as f64).log2()
                };
                let expected: f64 = classes.iter().map(cost).sum();
                prop_assert!(found.is_none_or(|found| (found - expected).abs() < 1e-6 * total * 64.0));
            }
        }
    }
}
