//! LZ77 and Huffman, `[MS-XCA]` 2.1.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::compress::{Token, tokens};

const SYMBOLS: usize = 512;
const MAX_BITS: u32 = 15;
const BLOCK_BYTES: usize = 1 << 16;
const END_OF_STREAM: usize = 256;

pub(super) fn compress(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let blocks = bytes.len().div_ceil(BLOCK_BYTES).max(1);
    for (index, block) in bytes.chunks(BLOCK_BYTES).enumerate() {
        block_of(
            &tokens(block, BLOCK_BYTES - 1, BLOCK_BYTES),
            index + 1 == blocks,
            &mut out,
        );
    }
    out
}

/// Symbol, and how many bits of which distance follow.
fn symbol_of(token: Token) -> (usize, u32, usize) {
    match token {
        Token::Literal(byte) => (usize::from(byte), 0, 0),
        Token::Match { distance, length } => {
            let bits = distance.ilog2();
            let symbol = 256 + (bits as usize) * 16 + (length - 3).min(15);
            (symbol, bits, distance - (1 << bits))
        }
    }
}

fn block_of(tokens: &[Token], is_last: bool, out: &mut Vec<u8>) {
    let mut counts = [0u64; SYMBOLS];
    for token in tokens {
        counts[symbol_of(*token).0] += 1;
    }
    if is_last {
        counts[END_OF_STREAM] += 1;
    }
    let lengths = lengths_of(&counts);
    for pair in lengths.chunks(2) {
        out.push((pair[0] | pair[1] << 4) as u8);
    }
    let codes = codes_of(&lengths);
    let mut bits = Bits::start(out);
    for token in tokens {
        let (symbol, distance_bits, distance) = symbol_of(*token);
        bits.put(codes[symbol], lengths[symbol]);
        if let Token::Match { length, .. } = token {
            bits.length_behind(length - 3);
        }
        bits.put(distance as u32, distance_bits);
    }
    if is_last {
        bits.put(codes[END_OF_STREAM], lengths[END_OF_STREAM]);
    }
    bits.finish();
}

/// Lengths of codes, at most 15; rarer symbols get longer ones.
fn lengths_of(counts: &[u64; SYMBOLS]) -> [u32; SYMBOLS] {
    let mut counts = *counts;
    loop {
        let lengths = tree(&counts);
        if lengths.iter().all(|length| *length <= MAX_BITS) {
            return lengths;
        }
        // Rare symbols come nearer to frequent ones.
        for count in counts.iter_mut().filter(|count| **count > 0) {
            *count = *count / 2 + 1;
        }
    }
}

fn tree(counts: &[u64; SYMBOLS]) -> [u32; SYMBOLS] {
    let mut lengths = [0; SYMBOLS];
    let mut heap: BinaryHeap<Reverse<(u64, Vec<usize>)>> = (0..SYMBOLS)
        .filter(|symbol| counts[*symbol] > 0)
        .map(|symbol| Reverse((counts[symbol], vec![symbol])))
        .collect();
    if let (1, Some(Reverse((_, symbols)))) = (heap.len(), heap.peek()) {
        lengths[symbols[0]] = 1;
    }
    while let (Some(Reverse((a, mut left))), Some(Reverse((b, right)))) = (heap.pop(), heap.pop()) {
        left.extend(right);
        for symbol in &left {
            lengths[*symbol] += 1;
        }
        heap.push(Reverse((a + b, left)));
        if heap.len() == 1 {
            break;
        }
    }
    lengths
}

/// Codes are given out by length, then by symbol.
fn codes_of(lengths: &[u32; SYMBOLS]) -> [u32; SYMBOLS] {
    let mut codes = [0; SYMBOLS];
    let mut next = 0;
    for bits in 1..=MAX_BITS {
        for symbol in 0..SYMBOLS {
            if lengths[symbol] == bits {
                codes[symbol] = next;
                next += 1;
            }
        }
        next <<= 1;
    }
    codes
}

/// A stream of 16-bit words with bytes in between: a word is written where the decoder reads it,
/// two ahead of its use.
struct Bits<'a> {
    out: &'a mut Vec<u8>,
    word: u32,
    free: u32,
    /// Places of the word under way and the one behind it.
    places: (usize, usize),
}

impl Bits<'_> {
    fn start(out: &mut Vec<u8>) -> Bits<'_> {
        let at = out.len();
        out.extend_from_slice(&[0; 4]);
        Bits {
            out,
            word: 0,
            free: 16,
            places: (at, at + 2),
        }
    }

    fn put(&mut self, value: u32, bits: u32) {
        if bits <= self.free {
            self.free -= bits;
            self.word = self.word << bits | value;
            return;
        }
        let rest = bits - self.free;
        let word = self.word << self.free | value >> rest;
        self.write(self.places.0, word);
        self.places = (self.places.1, self.out.len());
        self.out.extend_from_slice(&[0; 2]);
        self.free = 16 - rest;
        self.word = value & ((1 << rest) - 1);
    }

    /// What of a length does not fit the symbol.
    fn length_behind(&mut self, length: usize) {
        let Some(beyond) = length.checked_sub(15) else {
            return;
        };
        if beyond < 255 {
            self.out.push(beyond as u8);
            return;
        }
        self.out.push(255);
        self.out.extend_from_slice(&(length as u16).to_le_bytes());
    }

    fn write(&mut self, at: usize, word: u32) {
        self.out[at..at + 2].copy_from_slice(&(word as u16).to_le_bytes());
    }

    fn finish(mut self) {
        let word = self.word << self.free;
        self.write(self.places.0, word);
    }
}
