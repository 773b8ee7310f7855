//! A sequence of numbers as bytes.

use super::error::Corrupt;

/// Bytes as they are.
const RAW: u8 = 0;
/// One zstd frame.
const ZSTD: u8 = 1;

/// Appends `value` in groups of seven bits, lowest first; the high bit says that more follow.
pub fn put_varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Takes a varint off the front of `bytes`.
pub fn get_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..u64::BITS).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        let bits = u64::from(byte & 0x7f);
        if bits << shift >> shift != bits {
            return None;
        }
        value |= bits << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// Appends a stream: codec, size, bytes; the smaller of raw and compressed.
pub fn put_stream(bytes: &[u8], level: i32, out: &mut Vec<u8>) -> std::io::Result<()> {
    let packed = zstd::bulk::compress(bytes, level)?;
    let (codec, stored) = if packed.len() < bytes.len() {
        (ZSTD, &packed[..])
    } else {
        (RAW, bytes)
    };
    out.push(codec);
    put_varint(stored.len() as u64, out);
    out.extend_from_slice(stored);
    Ok(())
}

/// Takes a stream of exactly `expected` bytes off the front of `bytes`.
pub fn get_stream(bytes: &mut &[u8], expected: usize, column: u8) -> Result<Vec<u8>, Corrupt> {
    let short = Corrupt::Short {
        what: "stream",
        bytes: bytes.len(),
    };
    let (codec, rest) = bytes.split_first().ok_or(short.clone())?;
    *bytes = rest;
    let stored = get_varint(bytes)
        .and_then(|stored| usize::try_from(stored).ok())
        .ok_or(short.clone())?;
    let (stored, rest) = bytes.split_at_checked(stored).ok_or(short)?;
    *bytes = rest;
    let plain = match *codec {
        RAW => stored.to_vec(),
        ZSTD => zstd::bulk::decompress(stored, expected).map_err(|error| Corrupt::Codec {
            column,
            reason: error.to_string(),
        })?,
        codec => return Err(Corrupt::number("codec", codec)),
    };
    if plain.len() != expected {
        return Err(Corrupt::Excess {
            what: "stream",
            found: plain.len() as u64,
            max: expected as u64,
        });
    }
    Ok(plain)
}

/// Appends numbers as planes: all lowest bytes, then all second bytes, …
pub fn put_numbers(values: &[u64], level: i32, out: &mut Vec<u8>) -> std::io::Result<()> {
    let all = values.iter().fold(0, |all, value| all | value);
    let width = (u64::BITS - all.leading_zeros()).div_ceil(8);
    out.push(width as u8);
    let mut planes = Vec::with_capacity(values.len() * width as usize);
    for plane in 0..width {
        planes.extend(values.iter().map(|value| (value >> (8 * plane)) as u8));
    }
    put_stream(&planes, level, out)
}

/// Takes `count` numbers off the front of `bytes`.
pub fn get_numbers(bytes: &mut &[u8], count: usize, column: u8) -> Result<Vec<u64>, Corrupt> {
    let (width, rest) = bytes.split_first().ok_or(Corrupt::Short {
        what: "numbers",
        bytes: 0,
    })?;
    *bytes = rest;
    let width = usize::from(*width);
    if width > size_of::<u64>() {
        return Err(Corrupt::number("width", width as u64));
    }
    let planes = get_stream(bytes, width * count, column)?;
    let mut values = vec![0; count];
    if count > 0 {
        for (plane, part) in planes.chunks(count).enumerate() {
            for (value, byte) in values.iter_mut().zip(part) {
                *value |= u64::from(*byte) << (8 * plane);
            }
        }
    }
    Ok(values)
}
