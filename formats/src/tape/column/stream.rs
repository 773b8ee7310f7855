//! Streams: runs of bytes, compressed or not.

use std::io;

use zstd::bulk::{Compressor, Decompressor};
use zstd::zstd_safe::CParameter;

use super::super::error::Corrupt;

/// Number of a codec. 2 is reserved.
mod codec {
    /// The bytes themselves.
    pub const RAW: u8 = 0;
    /// One zstd frame.
    pub const ZSTD: u8 = 1;
    /// One byte, repeated.
    pub const FILL: u8 = 3;
}

/// Appends `value` in groups of seven bits, lowest first; the high bit says that more follow.
pub fn put_varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Takes a varint off the front of `bytes`.
///
/// `None` when the bytes end within it, or it exceeds 64 bits.
pub fn get_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..u64::BITS).step_by(7) {
        let byte = get_byte(bytes)?;
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

/// Takes a byte off the front of `bytes`.
pub fn get_byte(bytes: &mut &[u8]) -> Option<u8> {
    let (byte, rest) = bytes.split_first()?;
    *bytes = rest;
    Some(*byte)
}

/// Takes a stream off the front of `bytes` without looking into it.
pub fn skip_stream(bytes: &mut &[u8]) -> Result<(), Corrupt> {
    take_stream(bytes).map(|_| ())
}

/// Takes codec and stored bytes off the front of `bytes`.
fn take_stream<'a>(bytes: &mut &'a [u8]) -> Result<(u8, &'a [u8]), Corrupt> {
    let short = Corrupt::Short {
        what: "stream",
        bytes: bytes.len(),
    };
    let codec = get_byte(bytes).ok_or(short.clone())?;
    let stored = get_varint(bytes).and_then(|stored| usize::try_from(stored).ok());
    let (stored, rest) = stored
        .and_then(|stored| bytes.split_at_checked(stored))
        .ok_or(short)?;
    *bytes = rest;
    Ok((codec, stored))
}

/// How hard to try to make bytes few.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Level of zstd, 1 to 22.
    pub zstd: i32,
    /// The shortest repetition that zstd looks for, 4 to 7; 0 leaves it to the level. The longer, the
    /// less noise is taken for repetition, and the faster.
    pub match_bytes: u32,
    /// Level of pco, 0 to 12.
    pub pco: usize,
}

/// Compresses streams.
pub struct Packer {
    effort: Effort,
    zstd: Compressor<'static>,
    packed: Vec<u8>,
}

impl Packer {
    /// A packer that tries so hard.
    pub fn new(effort: Effort) -> io::Result<Packer> {
        let mut zstd = Compressor::new(effort.zstd)?;
        if effort.match_bytes != 0 {
            zstd.set_parameter(CParameter::MinMatch(effort.match_bytes))?;
        }
        Ok(Packer {
            effort,
            zstd,
            packed: Vec::new(),
        })
    }

    /// How hard it tries.
    pub fn effort(&self) -> Effort {
        self.effort
    }

    /// Appends a stream: codec, stored size, stored bytes; whichever codec makes it smallest.
    pub fn put(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        if let [first, rest @ ..] = bytes
            && !rest.is_empty()
            && rest.iter().all(|byte| byte == first)
        {
            out.extend_from_slice(&[codec::FILL, 1, *first]);
            return Ok(());
        }
        self.packed.clear();
        self.packed
            .reserve(zstd::zstd_safe::compress_bound(bytes.len()));
        self.zstd.compress_to_buffer(bytes, &mut self.packed)?;
        let (codec, stored) = if self.packed.len() < bytes.len() {
            (codec::ZSTD, &self.packed[..])
        } else {
            (codec::RAW, bytes)
        };
        out.push(codec);
        put_varint(stored.len() as u64, out);
        out.extend_from_slice(stored);
        Ok(())
    }
}

/// Decompresses streams. Never makes more bytes than the reader expects.
pub struct Unpacker {
    zstd: Decompressor<'static>,
}

impl Unpacker {
    /// An unpacker.
    pub fn new() -> io::Result<Unpacker> {
        Ok(Unpacker {
            zstd: Decompressor::new()?,
        })
    }

    /// Takes a stream off the front of `bytes` that must be exactly `expected` bytes long.
    pub fn get(
        &mut self,
        bytes: &mut &[u8],
        expected: usize,
        into: &mut Vec<u8>,
    ) -> Result<(), Corrupt> {
        let (codec, stored) = take_stream(bytes)?;
        match codec {
            codec::RAW if stored.len() == expected => {
                into.clear();
                into.extend_from_slice(stored);
            }
            codec::FILL if stored.len() == 1 => {
                into.clear();
                into.resize(expected, stored[0]);
            }
            codec::ZSTD => {
                // What is there already is overwritten.
                into.resize(expected, 0);
                let plain = self.zstd.decompress_to_buffer(stored, &mut into[..]);
                let plain = plain.map_err(|error| Corrupt::Codec {
                    reason: error.to_string(),
                })?;
                if plain != expected {
                    return Err(Corrupt::Length {
                        what: "stream",
                        found: plain,
                        expected,
                    });
                }
            }
            codec::RAW | codec::FILL => {
                return Err(Corrupt::Length {
                    what: "stream",
                    found: stored.len(),
                    expected,
                });
            }
            codec => return Err(Corrupt::number("codec", codec)),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unpack(stream: &[u8], expected: usize) -> Result<Vec<u8>, Corrupt> {
        let mut plain = Vec::new();
        Unpacker::new()
            .unwrap()
            .get(&mut &stream[..], expected, &mut plain)?;
        Ok(plain)
    }

    #[test]
    fn varints_are_groups_of_seven_bits() {
        for (value, bytes) in [
            (0, &[0][..]),
            (127, &[0x7f]),
            (128, &[0x80, 1]),
            (300, &[0xac, 2]),
            (u64::MAX, &[255, 255, 255, 255, 255, 255, 255, 255, 255, 1]),
        ] {
            let mut out = Vec::new();
            put_varint(value, &mut out);
            assert_eq!(out, bytes);
            assert_eq!(get_varint(&mut &out[..]), Some(value));
        }
        let too_long = [255, 255, 255, 255, 255, 255, 255, 255, 255, 2];
        assert_eq!(get_varint(&mut &too_long[..]), None);
        assert_eq!(get_varint(&mut &[0x80][..]), None);
    }

    #[test]
    fn each_stream_takes_its_smallest_codec() {
        let mut packer = Packer::new(Effort {
            zstd: 3,
            match_bytes: 0,
            pco: 8,
        })
        .unwrap();
        let cases: [(&[u8], &[u8]); 3] = [
            (b"", &[0, 0]),
            (b"abc", b"\x00\x03abc"),
            (b"aaaaaaaa", b"\x03\x01a"),
        ];
        for (plain, stream) in cases {
            let mut out = Vec::new();
            packer.put(plain, &mut out).unwrap();
            assert_eq!(out, stream);
            assert_eq!(unpack(&out, plain.len()).unwrap(), plain);
        }
        let text = b"tape tape tape tape tape tape tape tape tape tape tape";
        let mut out = Vec::new();
        packer.put(text, &mut out).unwrap();
        assert_eq!((out[0], out.len() < text.len()), (1, true));
        assert_eq!(unpack(&out, text.len()).unwrap(), text);
    }

    #[test]
    fn a_stream_of_another_length_than_expected_is_refused() {
        let mut bomb = Vec::new();
        Packer::new(Effort {
            zstd: 19,
            match_bytes: 0,
            pco: 8,
        })
        .unwrap()
        .put(&[[7; 1000], [8; 1000]].concat(), &mut bomb)
        .unwrap();
        assert_eq!(unpack(&bomb, 2000).unwrap().len(), 2000);
        assert!(matches!(unpack(&bomb, 1999), Err(Corrupt::Codec { .. })));
        assert!(matches!(
            unpack(&bomb, 2001),
            Err(Corrupt::Length { found: 2000, .. })
        ));
        assert!(matches!(
            unpack(b"\x00\x03abc", 4),
            Err(Corrupt::Length { found: 3, .. })
        ));
        assert!(matches!(
            unpack(b"\x00\x04abc", 4),
            Err(Corrupt::Short { .. })
        ));
        assert!(matches!(
            unpack(b"\x02\x03abc", 3),
            Err(Corrupt::Number { number: 2, .. })
        ));
    }
}
