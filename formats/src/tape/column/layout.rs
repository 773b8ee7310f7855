//! Layouts: numbers as streams of bytes, or packed as numbers.

use std::io;

use ::pco::DecompressorScratch;
use foldhash::HashMap;

use super::super::error::Corrupt;
use super::super::wire::MAX_BLOCK_REQUESTS;
use super::stream::{Packer, Unpacker, get_byte, get_varint, put_varint};
use super::transform::Signs;
use super::{classes, pco};

/// How numbers become bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// All lowest bytes in one stream, all second bytes in the next, …
    Planes,
    /// Varints in one stream.
    Varint,
    /// A stream with the class of each number, which is its magnitude and its highest bits, and a
    /// stream with its lower bits. The parameter is how many bits below the highest the class
    /// tells, at most [`classes::MAX_BITS`].
    Classes(u8),
    /// The distinct numbers, and a place in that list for each.
    Dictionary,
    /// The range of each number, of ranges that pco finds, and its place in it.
    Pco,
}

const PLANES: u8 = 0;
const VARINT: u8 = 1;
const CLASSES: u8 = 2;
const DICTIONARY: u8 = 3;
const PCO: u8 = 4;

const MAX_VARINT_BYTES: u64 = 10;

/// Buffers for decoding.
#[derive(Debug, Default)]
pub struct Scratch {
    pub(super) bytes: Vec<u8>,
    pub(super) more: Vec<u8>,
    table: Vec<u64>,
    pco: DecompressorScratch,
}

impl Layout {
    /// Which numbers it takes for distances to both sides of zero. Pco finds ranges wherever they
    /// are; all others make more of small numbers.
    pub fn signs(self) -> Signs {
        match self {
            Layout::Pco => Signs::Ascending,
            _ => Signs::Folded,
        }
    }

    /// Appends the layout's number and the streams of `numbers`. `false` with nothing appended
    /// when the layout cannot hold them.
    pub fn put(self, numbers: &[u64], packer: &mut Packer, out: &mut Vec<u8>) -> io::Result<bool> {
        match self {
            Layout::Planes => {
                out.push(PLANES);
                let width = bytes_of(numbers.iter().fold(0, |all, number| all | number));
                out.push(width as u8);
                put_planes(numbers, width, packer, out)?;
            }
            Layout::Varint => {
                out.push(VARINT);
                let mut bytes = Vec::with_capacity(2 * numbers.len());
                numbers
                    .iter()
                    .for_each(|number| put_varint(*number, &mut bytes));
                put_varint(bytes.len() as u64, out);
                packer.put(&bytes, out)?;
            }
            Layout::Classes(bits) if !classes::hold(numbers, bits) => return Ok(false),
            Layout::Classes(bits) => {
                out.push(CLASSES);
                classes::put(numbers, bits, packer, out)?;
            }
            Layout::Dictionary => return put_dictionary(numbers, packer, out),
            Layout::Pco if numbers.is_empty() => return Ok(false),
            Layout::Pco => {
                out.push(PCO);
                pco::put(numbers, packer.effort().pco, out)?;
            }
        }
        Ok(true)
    }
}

/// Takes a layout's number and the streams of `count` numbers off the front of `bytes`.
pub fn get(
    bytes: &mut &[u8],
    count: usize,
    unpacker: &mut Unpacker,
    scratch: &mut Scratch,
    numbers: &mut Vec<u64>,
) -> Result<(), Corrupt> {
    numbers.clear();
    match get_byte(bytes).ok_or(Corrupt::Short {
        what: "layout",
        bytes: 0,
    })? {
        PLANES => {
            let width = get_byte(bytes).ok_or(Corrupt::Short {
                what: "planes",
                bytes: 0,
            })?;
            get_planes(bytes, count, usize::from(width), unpacker, scratch, numbers)
        }
        VARINT => get_varints(bytes, count, unpacker, scratch, numbers),
        CLASSES => classes::get(bytes, count, unpacker, scratch, numbers),
        DICTIONARY => get_dictionary(bytes, count, unpacker, scratch, numbers),
        PCO => pco::get(bytes, count, &mut scratch.pco, numbers),
        number => Err(Corrupt::number("layout", number)),
    }
}

/// How many bytes hold `number`.
fn bytes_of(number: u64) -> usize {
    (u64::BITS - number.leading_zeros()).div_ceil(8) as usize
}

fn put_planes(
    numbers: &[u64],
    width: usize,
    packer: &mut Packer,
    out: &mut Vec<u8>,
) -> io::Result<()> {
    let mut plane = Vec::with_capacity(numbers.len());
    for at in 0..width {
        plane.clear();
        plane.extend(numbers.iter().map(|number| (number >> (8 * at)) as u8));
        packer.put(&plane, out)?;
    }
    Ok(())
}

fn get_planes(
    bytes: &mut &[u8],
    count: usize,
    width: usize,
    unpacker: &mut Unpacker,
    scratch: &mut Scratch,
    numbers: &mut Vec<u64>,
) -> Result<(), Corrupt> {
    if width > size_of::<u64>() {
        return Err(Corrupt::Excess {
            what: "planes",
            found: width as u64,
            max: size_of::<u64>() as u64,
        });
    }
    if width == 0 {
        numbers.resize(count, 0);
    }
    for at in 0..width {
        unpacker.get(bytes, count, &mut scratch.bytes)?;
        if at == 0 {
            numbers.extend(scratch.bytes.iter().map(|byte| u64::from(*byte)));
            continue;
        }
        for (number, byte) in numbers.iter_mut().zip(&scratch.bytes) {
            *number |= u64::from(*byte) << (8 * at);
        }
    }
    Ok(())
}

fn get_varints(
    bytes: &mut &[u8],
    count: usize,
    unpacker: &mut Unpacker,
    scratch: &mut Scratch,
    numbers: &mut Vec<u64>,
) -> Result<(), Corrupt> {
    get_sized(
        bytes,
        count as u64 * MAX_VARINT_BYTES,
        unpacker,
        &mut scratch.bytes,
    )?;
    let mut varints = &scratch.bytes[..];
    for _ in 0..count {
        let number = match varints {
            [byte, rest @ ..] if *byte < 0x80 => {
                varints = rest;
                Some(u64::from(*byte))
            }
            _ => get_varint(&mut varints),
        };
        numbers.push(number.ok_or(Corrupt::Inconsistent {
            what: "varints end early",
        })?);
    }
    if varints.is_empty() {
        Ok(())
    } else {
        Err(Corrupt::Inconsistent {
            what: "varints are left over",
        })
    }
}

/// A stream that is preceded by its length, at most `max`.
fn get_sized(
    bytes: &mut &[u8],
    max: u64,
    unpacker: &mut Unpacker,
    into: &mut Vec<u8>,
) -> Result<(), Corrupt> {
    let found = get_varint(bytes).ok_or(Corrupt::Short {
        what: "stream length",
        bytes: bytes.len(),
    })?;
    if found > max {
        return Err(Corrupt::Excess {
            what: "stream length",
            found,
            max,
        });
    }
    unpacker.get(bytes, found as usize, into)
}

fn put_dictionary(numbers: &[u64], packer: &mut Packer, out: &mut Vec<u8>) -> io::Result<bool> {
    let Some(places) = Places::of(numbers) else {
        return Ok(false);
    };
    out.push(DICTIONARY);
    put_varint(places.distinct.len() as u64, out);
    let mut table = Vec::new();
    let mut before = 0;
    for number in &places.distinct {
        put_varint(number - before, &mut table);
        before = *number;
    }
    put_varint(table.len() as u64, out);
    packer.put(&table, out)?;
    let width = bytes_of(places.distinct.len() as u64 - 1);
    put_planes(&places.of_rows, width, packer, out)?;
    Ok(true)
}

fn get_dictionary(
    bytes: &mut &[u8],
    count: usize,
    unpacker: &mut Unpacker,
    scratch: &mut Scratch,
    numbers: &mut Vec<u64>,
) -> Result<(), Corrupt> {
    let short = Corrupt::Short {
        what: "dictionary",
        bytes: bytes.len(),
    };
    let entries = get_varint(bytes).ok_or(short.clone())?;
    if entries == 0 || entries > MAX_BLOCK_REQUESTS as u64 {
        return Err(Corrupt::Excess {
            what: "dictionary",
            found: entries,
            max: MAX_BLOCK_REQUESTS as u64,
        });
    }
    get_sized(
        bytes,
        entries * MAX_VARINT_BYTES,
        unpacker,
        &mut scratch.bytes,
    )?;
    let mut deltas = &scratch.bytes[..];
    scratch.table.clear();
    let mut number = 0u64;
    for _ in 0..entries {
        let delta = get_varint(&mut deltas).ok_or(short.clone())?;
        number = number.checked_add(delta).ok_or(Corrupt::Inconsistent {
            what: "a dictionary exceeds 64 bits",
        })?;
        scratch.table.push(number);
    }
    if !deltas.is_empty() {
        return Err(Corrupt::Inconsistent {
            what: "dictionary entries are left over",
        });
    }
    get_planes(
        bytes,
        count,
        bytes_of(entries - 1),
        unpacker,
        scratch,
        numbers,
    )?;
    for number in numbers.iter_mut() {
        let entry = scratch.table.get(*number as usize);
        *number = *entry.ok_or_else(|| Corrupt::number("dictionary entry", *number))?;
    }
    Ok(())
}

/// Distinct numbers in ascending order, and where each row's is among them.
struct Places {
    distinct: Vec<u64>,
    of_rows: Vec<u64>,
}

impl Places {
    /// Most entries that are worth a dictionary.
    const MAX: usize = 4096;

    /// The places of the numbers; `None` when too many are distinct, or there are none.
    fn of(numbers: &[u64]) -> Option<Places> {
        let mut known: HashMap<u64, u64> = HashMap::default();
        let mut distinct = Vec::new();
        let mut of_rows = Vec::with_capacity(numbers.len());
        let mut last = (*numbers.first()?, 0);
        known.insert(last.0, 0);
        distinct.push(last.0);
        for number in numbers {
            if *number != last.0 {
                let found = *known.entry(*number).or_insert(distinct.len() as u64);
                if found as usize == distinct.len() {
                    if found as usize == Places::MAX {
                        return None;
                    }
                    distinct.push(*number);
                }
                last = (*number, found);
            }
            of_rows.push(last.1);
        }
        // So far they are numbered as they came.
        let mut sorted: Vec<usize> = (0..distinct.len()).collect();
        sorted.sort_unstable_by_key(|found| distinct[*found]);
        let mut ranks = vec![0; distinct.len()];
        for (rank, found) in (0..).zip(&sorted) {
            ranks[*found] = rank;
        }
        for place in &mut of_rows {
            *place = ranks[*place as usize];
        }
        let distinct = sorted.into_iter().map(|found| distinct[found]).collect();
        Some(Places { distinct, of_rows })
    }
}
