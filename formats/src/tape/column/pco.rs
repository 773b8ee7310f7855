//! The layout pco: numbers by the ranges that they gather in (`docs/format.md`, "Pco").
//!
//! Of the library's format only what is between its counts is stored, so that the rows of the block
//! say how many numbers there are, and only with the mode and the delta encoding that ask for no
//! memory.

use std::io;

use pco::data_types::Number;
use pco::errors::PcoError;
use pco::wrapped::{FileCompressor, FileDecompressor};
use pco::{ChunkConfig, DecompressorScratch, DeltaSpec, FULL_BATCH_N, ModeSpec};

use super::super::error::Corrupt;
use super::stream::{get_byte, get_varint, put_varint};

/// Major version of pco's format.
const FORMAT: u8 = 4;
/// First byte of a chunk's metadata: classic mode, no delta encoding.
const CLASSIC: u8 = 0;
/// Numbers that are decompressed at once: whole batches of pco.
const BATCH: usize = 4 * FULL_BATCH_N;

/// Appends width, length and packed bytes of the numbers, of which there is at least one.
///
/// `level` says how thoroughly ranges are looked for, 0 to 12.
pub fn put(numbers: &[u64], level: usize, out: &mut Vec<u8>) -> io::Result<()> {
    let bits = numbers.iter().fold(0, |bits, number| bits | number);
    let mut packed = Vec::new();
    let width = match bits {
        0..=0xff => pack(numbers, |number| number as u8, level, &mut packed),
        0x100..=0xffff => pack(numbers, |number| number as u16, level, &mut packed),
        0x1_0000..=0xffff_ffff => pack(numbers, |number| number as u32, level, &mut packed),
        _ => pack(numbers, |number| number, level, &mut packed),
    }
    .map_err(io::Error::other)?;
    out.push(width as u8);
    put_varint(packed.len() as u64, out);
    out.extend_from_slice(&packed);
    Ok(())
}

/// Appends what pco makes of the narrowed numbers; returns how many bytes wide they are.
fn pack<T: Number>(
    numbers: &[u64],
    narrow: impl Fn(u64) -> T,
    level: usize,
    packed: &mut Vec<u8>,
) -> Result<usize, PcoError> {
    let narrow: Vec<T> = numbers.iter().map(|number| narrow(*number)).collect();
    let config = ChunkConfig::default()
        .with_compression_level(level)
        .with_mode_spec(ModeSpec::Classic)
        .with_delta_spec(DeltaSpec::NoOp)
        .with_enable_8_bit(true);
    let file = FileCompressor::default();
    file.write_header(&mut *packed)?;
    let mut chunk = file.chunk_compressor(&narrow, &config)?;
    chunk.write_meta(&mut *packed)?;
    chunk.write_page(0, &mut *packed)?;
    Ok(size_of::<T>())
}

/// Takes what [`put`] made of `count` numbers off the front of `bytes`, and appends the numbers.
pub fn get(
    bytes: &mut &[u8],
    count: usize,
    scratch: &mut DecompressorScratch,
    numbers: &mut Vec<u64>,
) -> Result<(), Corrupt> {
    let short = Corrupt::Short {
        what: "pco numbers",
        bytes: bytes.len(),
    };
    let width = get_byte(bytes).ok_or(short.clone())?;
    let length = get_varint(bytes).and_then(|length| usize::try_from(length).ok());
    let (packed, rest) = length
        .and_then(|length| bytes.split_at_checked(length))
        .ok_or(short.clone())?;
    *bytes = rest;
    match *packed {
        [FORMAT, _, CLASSIC, ..] => (),
        [FORMAT, _, encoding, ..] => return Err(Corrupt::number("pco encoding", encoding)),
        [format, ..] => return Err(Corrupt::number("pco format", format)),
        [] => return Err(short),
    }
    if count == 0 {
        return Err(Corrupt::Inconsistent {
            what: "pco bytes without numbers",
        });
    }
    let left_over = match width {
        1 => unpack::<u8>(packed, count, scratch, numbers),
        2 => unpack::<u16>(packed, count, scratch, numbers),
        4 => unpack::<u32>(packed, count, scratch, numbers),
        8 => unpack::<u64>(packed, count, scratch, numbers),
        _ => return Err(Corrupt::number("width of pco numbers", width)),
    }
    .map_err(|error| Corrupt::Codec {
        reason: error.to_string(),
    })?;
    if left_over == 0 {
        Ok(())
    } else {
        Err(Corrupt::Inconsistent {
            what: "pco bytes are left over",
        })
    }
}

/// Appends `count` numbers, at least one; returns how many bytes are left over.
fn unpack<T: Number + Into<u64>>(
    packed: &[u8],
    count: usize,
    scratch: &mut DecompressorScratch,
    numbers: &mut Vec<u64>,
) -> Result<usize, PcoError> {
    let (file, rest) = FileDecompressor::new(packed)?;
    let (chunk, rest) = file.chunk_decompressor::<T, _>(rest)?;
    let mut page = chunk.page_decompressor_with_scratch(rest, count, scratch)?;
    let mut batch = [T::default(); BATCH];
    loop {
        let progress = page.read(&mut batch)?;
        let read = &batch[..progress.n_processed];
        numbers.extend(read.iter().map(|number| (*number).into()));
        if progress.finished {
            return Ok(page.into_src().len());
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn packed(numbers: &[u64], level: usize) -> Vec<u8> {
        let mut out = Vec::new();
        put(numbers, level, &mut out).unwrap();
        out
    }

    fn unpacked(bytes: &[u8], count: usize) -> Result<Vec<u64>, Corrupt> {
        let mut numbers = Vec::new();
        let mut rest = bytes;
        get(
            &mut rest,
            count,
            &mut DecompressorScratch::default(),
            &mut numbers,
        )?;
        assert!(rest.is_empty());
        Ok(numbers)
    }

    /// Width and length, then what pcodec 1.1 in Python made of 1, 2, 3, 200 in numbers of as many
    /// bytes.
    const GOLDEN: [&[u8]; 4] = [
        b"\x01\x0b\x04\x01\0\x22\0\x30\x40\x40\x06\x6a\x90",
        b"\x02\x0c\x04\x01\0\x10\0\x08\0\x40\0\x01\x02\xc7",
        b"\x04\x0f\x04\x01\0\x10\0\x08\0\0\0\x40\0\0\x01\x02\xc7",
        b"\x08\x13\x04\x01\0\x10\0\x08\0\0\0\0\0\0\0\x40\0\0\x01\x02\xc7",
    ];

    #[test]
    fn what_another_program_packed_is_unpacked() {
        for golden in GOLDEN {
            assert_eq!(unpacked(golden, 4).unwrap(), [1, 2, 3, 200]);
        }
    }

    #[test]
    fn what_no_writer_makes_is_refused() {
        let [_, golden, ..] = GOLDEN;
        let changed = |at: usize, byte: u8| {
            let mut bytes = golden.to_vec();
            bytes[at] = byte;
            unpacked(&bytes, 4)
        };
        for (at, byte, what) in [
            (0, 3, "width of pco numbers"),
            (2, 3, "pco format"),
            (2, 5, "pco format"),
            // An integer multiple; a dictionary; consecutive deltas; a lookback.
            (4, 1, "pco encoding"),
            (4, 4, "pco encoding"),
            (4, 0x10, "pco encoding"),
            (4, 0x20, "pco encoding"),
        ] {
            let error = changed(at, byte).unwrap_err();
            assert!(error.to_string().starts_with(what), "{at}: {error}");
        }
        assert!(matches!(changed(1, 13), Err(Corrupt::Short { .. })));
        assert!(matches!(unpacked(&[1, 0], 4), Err(Corrupt::Short { .. })));
        assert!(matches!(
            unpacked(&[1, 1, 4], 4),
            Err(Corrupt::Number { .. })
        ));
        assert!(matches!(
            unpacked(golden, 0),
            Err(Corrupt::Inconsistent { .. })
        ));
        assert!(matches!(
            unpacked(golden, 2),
            Err(Corrupt::Inconsistent { .. })
        ));
        assert!(matches!(
            unpacked(golden, 65_536),
            Err(Corrupt::Codec { .. })
        ));
        let mut longer = golden.to_vec();
        longer[1] += 1;
        longer.push(0);
        assert!(matches!(
            unpacked(&longer, 4),
            Err(Corrupt::Inconsistent { .. })
        ));
    }

    /// The most that a chunk can claim: 16,384 ranges, all of which must be in its bytes.
    #[test]
    fn the_largest_table_of_ranges_takes_less_than_a_mebibyte() {
        const RANGES: usize = 1 << 14;
        // The logarithm of the table's size in 4 bits, the number of ranges in 15; then of each range
        // its weight less one in 14 bits, its start in 64 and its size in 7, here all 0.
        let sizes = (14 | (RANGES as u32) << 4).to_le_bytes();
        let mut packed = [&[FORMAT, 1, CLASSIC][..], &sizes[..3]].concat();
        packed.resize(3 + (19 + RANGES * (14 + 64 + 7)).div_ceil(8), 0);
        // Four states of 14 bits, and 14 bits for each of 100 numbers.
        packed.resize(packed.len() + 7 + 175, 0);
        let mut bytes = vec![8];
        put_varint(packed.len() as u64, &mut bytes);
        bytes.extend_from_slice(&packed);
        let used = allocation_counter::measure(|| {
            let mut rest = &bytes[..];
            let mut numbers = Vec::new();
            let mut scratch = DecompressorScratch::default();
            get(&mut rest, 100, &mut scratch, &mut numbers).unwrap();
            assert_eq!(numbers, [0; 100]);
        });
        assert!(used.bytes_max < 1 << 20, "{} bytes", used.bytes_max);
    }

    fn numbers() -> impl Strategy<Value = Vec<u64>> {
        let shifted = |bits: u32| any::<u64>().prop_map(move |number| number >> (64 - bits));
        (1..65u32).prop_flat_map(move |bits| {
            proptest::collection::vec(prop_oneof![shifted(bits), 0..3u64], 1..700)
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_numbers_come_back(numbers in numbers(), level in 0..13usize) {
            prop_assert_eq!(unpacked(&packed(&numbers, level), numbers.len()).unwrap(), numbers);
        }

        #[test]
        fn any_damage_is_an_error_or_as_many_numbers(
            numbers in numbers(),
            damage in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..4),
        ) {
            let mut bytes = packed(&numbers, 8);
            for (at, byte) in damage {
                // Width and length stay.
                let at = 3 + at.index(bytes.len() - 3);
                bytes[at] = byte;
            }
            if let Ok(read) = unpacked(&bytes, numbers.len()) {
                prop_assert_eq!(read.len(), numbers.len());
            }
        }
    }
}
