//! The three compressions, other way round: a plain search for matches, and three notations.

use crate::decompress::Compression;

use super::huffman;

/// Shortest match that is worth its notation.
const MIN_MATCH: usize = 3;
/// Distances that two bytes of XPRESS can tell.
const XPRESS_DISTANCE: usize = 1 << 13;
const LZNT1_CHUNK: usize = 4096;
const HASH_BITS: u32 = 13;

/// A step of an encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token {
    Literal(u8),
    Match { distance: usize, length: usize },
}

/// Compresses bytes: [`crate::decompress()`] makes them again.
pub fn compress(compression: Compression, bytes: &[u8]) -> Vec<u8> {
    match compression {
        Compression::Lznt1 => lznt1(bytes),
        Compression::Xpress => xpress(bytes),
        Compression::XpressHuffman => huffman::compress(bytes),
    }
}

/// Goes over the bytes and takes the latest place where the next three stood before.
pub(super) fn tokens(bytes: &[u8], max_distance: usize, max_length: usize) -> Vec<Token> {
    let mut latest = vec![usize::MAX; 1 << HASH_BITS];
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let found = hash(bytes, at).and_then(|hash| {
            let candidate = std::mem::replace(&mut latest[hash], at);
            let distance = at
                .checked_sub(candidate)
                .filter(|distance| *distance <= max_distance)?;
            let length = common(bytes, candidate, at).min(max_length);
            (length >= MIN_MATCH).then_some(Token::Match { distance, length })
        });
        let token = found.unwrap_or(Token::Literal(*byte));
        tokens.push(token);
        at += match token {
            Token::Literal(_) => 1,
            Token::Match { length, .. } => length,
        };
    }
    tokens
}

fn hash(bytes: &[u8], at: usize) -> Option<usize> {
    let three = bytes.get(at..at + MIN_MATCH)?;
    let number = u32::from(three[0]) | u32::from(three[1]) << 8 | u32::from(three[2]) << 16;
    Some((number.wrapping_mul(0x9e37_79b1) >> (u32::BITS - HASH_BITS)) as usize)
}

fn common(bytes: &[u8], before: usize, at: usize) -> usize {
    let pairs = bytes.iter().skip(before).zip(bytes.iter().skip(at));
    pairs.take_while(|(a, b)| a == b).count()
}

fn xpress(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut half: Option<usize> = None;
    for group in tokens(bytes, XPRESS_DISTANCE, 1 << 20).chunks(32) {
        let mut flags = 0u32;
        let flags_at = out.len();
        out.extend_from_slice(&[0; 4]);
        for (bit, token) in group.iter().enumerate() {
            match *token {
                Token::Literal(byte) => out.push(byte),
                Token::Match { distance, length } => {
                    flags |= 1 << (31 - bit);
                    xpress_match(distance, length - 3, &mut half, &mut out);
                }
            }
        }
        // Flags beyond the last token are ones.
        if group.len() < 32 {
            flags |= u32::MAX >> group.len();
        }
        out[flags_at..flags_at + 4].copy_from_slice(&flags.to_le_bytes());
    }
    out
}

fn xpress_match(distance: usize, length: usize, half: &mut Option<usize>, out: &mut Vec<u8>) {
    let pair = ((distance - 1) << 3 | length.min(7)) as u16;
    out.extend_from_slice(&pair.to_le_bytes());
    let Some(beyond) = length.checked_sub(7) else {
        return;
    };
    let nibble = beyond.min(15) as u8;
    match half.take() {
        Some(at) => out[at] |= nibble << 4,
        None => {
            *half = Some(out.len());
            out.push(nibble);
        }
    }
    let Some(beyond) = beyond.checked_sub(15) else {
        return;
    };
    if beyond < 255 {
        out.push(beyond as u8);
        return;
    }
    out.push(255);
    match u16::try_from(length) {
        Ok(length) => out.extend_from_slice(&length.to_le_bytes()),
        Err(_) => {
            out.extend_from_slice(&[0; 2]);
            out.extend_from_slice(&(length as u32).to_le_bytes());
        }
    }
}

fn lznt1(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for chunk in bytes.chunks(LZNT1_CHUNK) {
        let packed = lznt1_chunk(chunk);
        let (flag, data) = match packed.len() < chunk.len() {
            true => (0xb000, packed.as_slice()),
            false => (0x3000, chunk),
        };
        let header = flag | (data.len() - 1) as u16;
        out.extend_from_slice(&header.to_le_bytes());
        out.extend_from_slice(data);
    }
    out
}

fn lznt1_chunk(chunk: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let (mut done, mut flags_at, mut bit) = (0usize, 0, 8);
    // A match of 18 bytes fits everywhere in a chunk.
    for token in tokens(chunk, LZNT1_CHUNK, 18) {
        if bit == 8 {
            (flags_at, bit) = (out.len(), 0);
            out.push(0);
        }
        match token {
            Token::Literal(byte) => {
                out.push(byte);
                done += 1;
            }
            Token::Match { distance, length } => {
                let mut length_bits = 12;
                while length_bits > 4 && (1 << (16 - length_bits)) < done {
                    length_bits -= 1;
                }
                let pair = ((distance - 1) << length_bits | (length - 3)) as u16;
                out.extend_from_slice(&pair.to_le_bytes());
                out[flags_at] |= 1 << bit;
                done += length;
            }
        }
        bit += 1;
    }
    out
}
