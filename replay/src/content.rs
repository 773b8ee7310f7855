//! What writes carry where it is more than bytes of the pool: a share of duplicates, or tags that
//! say what was written where, so that it can be checked when it is read.
//!
//! Content comes in units. A unit's bytes follow from its tag, which is at its beginning: whose it
//! is, where it belongs, and its number among all writes. So a unit that reads back says by itself
//! what it should be; the numbers of the last writes say which one it should be.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fastrand::Rng;

use crate::engine::{Action, Io};
use crate::sys::Buffers;

/// Units are as long as requests are aligned, from this on.
pub const SMALLEST_UNIT: u64 = 512;
/// And up to this.
pub const LARGEST_UNIT: u64 = 4_096;
/// Numbers are kept for each written stretch of this length.
pub const REGION_BYTES: u64 = 1 << 20;
/// Memory for them.
const MEMORY_BYTES: u64 = 256 << 20;
const TAG_BYTES: usize = 32;
const MAGIC: u64 = u64::from_le_bytes(*b"iotape\0\x01");

/// Number of a unit of which nothing is known.
const UNKNOWN: u32 = 0;
/// Number of a unit that was zeroed.
const ZEROED: u32 = u32::MAX;

/// How content is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recipe {
    /// Decides every byte.
    pub seed: u64,
    /// Length of a unit: a power of two from [`SMALLEST_UNIT`] to [`LARGEST_UNIT`].
    pub unit_bytes: u64,
    /// Of each unit, this many percent at the end are zeros.
    pub compressible: u8,
    /// Of all units, this many percent are the same.
    pub duplicate: u8,
    /// Whether what is read is checked.
    pub verify: bool,
}

/// What was found when it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Bytes whose content was known and looked at.
    pub bytes: u64,
    /// Units that were not what was written.
    pub wrong: u64,
    /// The first of them, in words.
    pub first_wrong: Option<String>,
    /// Bytes that could not be read back.
    pub unread_bytes: u64,
    /// Bytes written whose content is not known, for want of memory.
    pub untracked_bytes: u64,
}

/// Fills the buffers of writes and looks at those of reads.
#[derive(Debug)]
pub struct Content {
    recipe: Recipe,
    buffers: Arc<Buffers>,
    /// Length of the payload of each slot.
    stride: u64,
    random: Rng,
    /// Of the last write.
    number: u32,
    /// By target and region: the number of each unit.
    regions: HashMap<(u8, u64), Vec<u32>>,
    most_regions: usize,
    scratch: Vec<u8>,
    checked: Checked,
    names: Vec<String>,
}

impl Content {
    /// With the buffers of a run, whose payload has `stride` bytes for each slot. `names` are those
    /// of the targets.
    pub fn new(recipe: Recipe, buffers: Arc<Buffers>, stride: u64, names: Vec<String>) -> Self {
        let units = REGION_BYTES / recipe.unit_bytes;
        let most = MEMORY_BYTES / (units * 4);
        Content {
            recipe,
            buffers,
            stride,
            random: Rng::with_seed(recipe.seed),
            number: UNKNOWN,
            regions: HashMap::new(),
            most_regions: usize::try_from(most).unwrap_or(usize::MAX),
            scratch: Vec::new(),
            checked: Checked::default(),
            names,
        }
    }

    /// What was found so far, if anything was looked for.
    pub fn into_checked(self) -> Option<Checked> {
        self.recipe.verify.then_some(self.checked)
    }

    /// Reads all back whose content is known, with `read`: so many bytes of a target from an
    /// offset, `None` where it fails. `stop` ends it early.
    pub fn read_back(
        &mut self,
        stop: &AtomicBool,
        mut read: impl FnMut(u8, u64, usize) -> Option<Vec<u8>>,
    ) {
        let mut keys: Vec<(u8, u64)> = self.regions.keys().copied().collect();
        keys.sort_unstable();
        for (target, region) in keys {
            if stop.load(Ordering::Relaxed) {
                return;
            }
            let Some((from, length)) = self.known_part(target, region) else {
                continue;
            };
            match read(target, from, length) {
                Some(bytes) => self.check_bytes(target, from, &bytes),
                None => self.checked.unread_bytes += length as u64,
            }
        }
    }

    /// From the first to the last unit of a region whose content is known.
    fn known_part(&self, target: u8, region: u64) -> Option<(u64, usize)> {
        let numbers = self.regions.get(&(target, region))?;
        let first = numbers.iter().position(|number| *number != UNKNOWN)?;
        let last = numbers.iter().rposition(|number| *number != UNKNOWN)?;
        let unit = self.recipe.unit_bytes;
        let length = (last - first + 1) as u64 * unit;
        Some((
            region * REGION_BYTES + first as u64 * unit,
            usize::try_from(length).ok()?,
        ))
    }

    /// Fills the payload of a write that goes into a slot, and says where it is.
    pub fn prepare(&mut self, slot: u32, io: &Io) -> u32 {
        let Ok(start) = u32::try_from(u64::from(slot) * self.stride) else {
            return 0;
        };
        if self.recipe.verify {
            // Numbers begin again after 2^32 writes.
            self.number = match self.number {
                number if number >= ZEROED - 1 => 1,
                number => number + 1,
            };
        }
        let length = usize::try_from(io.length).unwrap_or(0);
        let mut bytes = std::mem::take(&mut self.scratch);
        bytes.resize(length, 0);
        let unit_bytes = usize::try_from(self.recipe.unit_bytes).unwrap_or(usize::MAX);
        for (index, unit) in bytes.chunks_mut(unit_bytes).enumerate() {
            let offset = io.offset + index as u64 * self.recipe.unit_bytes;
            let number = if self.recipe.verify {
                self.number
            } else {
                self.random.u32(1..ZEROED)
            };
            let tag = if self.random.u8(..100) < self.recipe.duplicate {
                Tag::default()
            } else {
                Tag {
                    target: io.target,
                    offset,
                    number,
                }
            };
            self.recipe.fill(unit, tag);
        }
        // False only where the slot has no payload; the write then fails by itself.
        let _ = self.buffers.copy_to_payload(start, &bytes);
        self.scratch = bytes;
        if self.recipe.verify {
            // Until it is done nobody knows.
            self.remember(io, UNKNOWN);
        }
        start
    }

    /// An operation of a slot is done: what it wrote is known, what it read is looked at.
    pub fn done(&mut self, slot: u32, io: &Io, succeeded: bool) {
        if !self.recipe.verify {
            return;
        }
        match io.action {
            Action::Read if succeeded => self.check(slot, io),
            Action::Read | Action::Flush => {}
            Action::Write if succeeded => {
                let number = self.number_in(slot, io);
                self.remember(io, number);
            }
            Action::WriteZeroes if succeeded => self.remember(io, ZEROED),
            Action::Write | Action::WriteZeroes | Action::Discard => self.remember(io, UNKNOWN),
        }
    }

    /// The number that a slot's payload was written with.
    fn number_in(&self, slot: u32, io: &Io) -> u32 {
        let start = u32::try_from(u64::from(slot) * self.stride).unwrap_or(u32::MAX);
        let mut tag = [0; TAG_BYTES];
        let read = io.length >= TAG_BYTES as u64 && self.buffers.copy_from_payload(start, &mut tag);
        if read {
            Tag::read(&tag).number
        } else {
            UNKNOWN
        }
    }

    fn remember(&mut self, io: &Io, number: u32) {
        let unit = self.recipe.unit_bytes;
        let units_in_region = REGION_BYTES / unit;
        let mut at = io.offset / unit;
        let end = (io.offset + io.length) / unit;
        while at < end {
            let region = at / units_in_region;
            let next = ((region + 1) * units_in_region).min(end);
            let key = (io.target, region);
            let room = self.regions.len() < self.most_regions;
            if number != UNKNOWN && room || self.regions.contains_key(&key) {
                let numbers = self.regions.entry(key).or_insert_with(|| {
                    vec![UNKNOWN; usize::try_from(units_in_region).unwrap_or(0)]
                });
                let inside = |at: u64| usize::try_from(at - region * units_in_region).unwrap_or(0);
                numbers[inside(at)..inside(next)].fill(number);
            } else if number != UNKNOWN {
                self.checked.untracked_bytes += (next - at) * unit;
            }
            at = next;
        }
    }

    fn check(&mut self, slot: u32, io: &Io) {
        let mut bytes = std::mem::take(&mut self.scratch);
        bytes.resize(usize::try_from(io.length).unwrap_or(0), 0);
        if self.buffers.copy_from_slot(slot, &mut bytes) {
            self.check_bytes(io.target, io.offset, &bytes);
        }
        self.scratch = bytes;
    }

    /// Looks at bytes that were read from a place of a target.
    fn check_bytes(&mut self, target: u8, offset: u64, bytes: &[u8]) {
        let unit_bytes = self.recipe.unit_bytes;
        let length = usize::try_from(unit_bytes).unwrap_or(usize::MAX);
        let mut expected = vec![0; length];
        for (index, unit) in bytes.chunks_exact(length).enumerate() {
            let place = offset + index as u64 * unit_bytes;
            let number = self.number_at(target, place);
            match number {
                UNKNOWN => continue,
                ZEROED => expected.fill(0),
                number => self.recipe.fill(
                    &mut expected,
                    Tag {
                        target,
                        offset: place,
                        number,
                    },
                ),
            }
            self.checked.bytes += unit_bytes;
            let difference = unit.iter().zip(&expected).position(|(a, b)| a != b);
            if let Some(at) = difference {
                self.checked.wrong += 1;
                if self.checked.first_wrong.is_none() {
                    let name = self.names.get(usize::from(target));
                    let name = name.map_or("target", String::as_str);
                    let byte = place + at as u64;
                    let (wrote, read) = (expected[at], unit[at]);
                    let instead = self.recipe.whose(unit, place);
                    self.checked.first_wrong = Some(format!(
                        "{name}: byte {byte} is {read:#04x}, {wrote:#04x} was written{instead}"
                    ));
                }
            }
        }
    }

    fn number_at(&self, target: u8, offset: u64) -> u32 {
        let key = (target, offset / REGION_BYTES);
        let index = offset % REGION_BYTES / self.recipe.unit_bytes;
        self.regions.get(&key).map_or(UNKNOWN, |numbers| {
            let index = usize::try_from(index).unwrap_or(usize::MAX);
            numbers.get(index).copied().unwrap_or(UNKNOWN)
        })
    }
}

/// Where a unit belongs, and which write wrote it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tag {
    target: u8,
    offset: u64,
    number: u32,
}

impl Tag {
    fn read(bytes: &[u8; TAG_BYTES]) -> Tag {
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(word)
        };
        let last = word(24);
        Tag {
            target: u8::try_from(last >> 32 & 0xff).unwrap_or(0),
            offset: word(16),
            number: u32::try_from(last & u64::from(u32::MAX)).unwrap_or(0),
        }
    }

    fn write(self, seed: u64) -> [u8; TAG_BYTES] {
        let last = u64::from(self.target) << 32 | u64::from(self.number);
        let mut bytes = [0; TAG_BYTES];
        for (place, word) in bytes
            .chunks_exact_mut(8)
            .zip([MAGIC, seed, self.offset, last])
        {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }
}

impl Recipe {
    /// A unit's bytes: its tag, random bytes that follow from it, zeros.
    fn fill(&self, unit: &mut [u8], tag: Tag) {
        let random = unit.len() * usize::from(100 - self.compressible.min(100)) / 100;
        let (head, zeros) = unit.split_at_mut(random.max(TAG_BYTES).min(unit.len()));
        let spread = tag.offset ^ u64::from(tag.number).rotate_left(40) ^ u64::from(tag.target);
        let mut bytes = Rng::with_seed(spread.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ self.seed);
        bytes.fill(head);
        zeros.fill(0);
        let tag = tag.write(self.seed);
        let length = head.len().min(TAG_BYTES);
        head[..length].copy_from_slice(&tag[..length]);
    }

    /// Whether a unit that is not what it should be is another write of this run.
    fn whose(&self, unit: &[u8], place: u64) -> String {
        let Some(head) = unit.first_chunk::<TAG_BYTES>() else {
            return String::new();
        };
        let tag = Tag::read(head);
        match tag.write(self.seed) == *head {
            true if tag.offset == place => "; an older write stands there".to_owned(),
            true => format!("; a write to byte {} stands there", tag.offset),
            false => String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECIPE: Recipe = Recipe {
        seed: 7,
        unit_bytes: 512,
        compressible: 0,
        duplicate: 0,
        verify: true,
    };

    fn content(recipe: Recipe) -> Content {
        let buffers = Buffers::new(2, 8_192, 16_384).unwrap();
        Content::new(recipe, Arc::new(buffers), 8_192, vec!["/dev/x".to_owned()])
    }

    fn io(action: Action, offset: u64, length: u64) -> Io {
        Io {
            action,
            offset,
            length,
            ..Io::default()
        }
    }

    /// Writes and returns the bytes.
    fn write(content: &mut Content, slot: u32, offset: u64, length: usize) -> Vec<u8> {
        let write = io(Action::Write, offset, length as u64);
        let start = content.prepare(slot, &write);
        assert_eq!(start, slot * 8_192);
        let mut bytes = vec![0; length];
        assert!(content.buffers.copy_from_payload(start, &mut bytes));
        content.done(slot, &write, true);
        bytes
    }

    fn wrong(content: &mut Content, offset: u64, bytes: &[u8]) -> u64 {
        let before = content.checked.wrong;
        content.check_bytes(0, offset, bytes);
        content.checked.wrong - before
    }

    #[test]
    fn a_corrupted_byte_is_found_and_named() {
        let mut content = content(RECIPE);
        let mut bytes = write(&mut content, 1, 4_096, 2_048);
        assert_eq!(wrong(&mut content, 4_096, &bytes), 0);
        assert_eq!(content.checked.bytes, 2_048);
        bytes[700] ^= 1;
        assert_eq!(wrong(&mut content, 4_096, &bytes), 1);
        let text = content.checked.first_wrong.clone().unwrap();
        assert!(text.starts_with("/dev/x: byte 4796 is 0x"), "{text}");
        // In the tag itself.
        bytes[700] ^= 1;
        bytes[1_024] ^= 0x80;
        assert_eq!(wrong(&mut content, 4_096, &bytes), 1);
    }

    #[test]
    fn writes_that_are_lost_or_misplaced_are_found() {
        let mut content = content(RECIPE);
        let first = write(&mut content, 0, 0, 512);
        let second = write(&mut content, 0, 0, 512);
        assert_eq!(wrong(&mut content, 0, &second), 0);
        assert_eq!(wrong(&mut content, 0, &first), 1);
        let text = content.checked.first_wrong.take().unwrap();
        assert!(text.ends_with("an older write stands there"), "{text}");
        let elsewhere = write(&mut content, 0, 8_192, 512);
        assert_eq!(wrong(&mut content, 0, &elsewhere), 1);
        let text = content.checked.first_wrong.take().unwrap();
        assert!(
            text.ends_with("a write to byte 8192 stands there"),
            "{text}"
        );
    }

    #[test]
    fn zeroed_is_zeros_and_discarded_or_failed_is_anything() {
        let mut content = content(RECIPE);
        let bytes = write(&mut content, 0, 0, 2_048);
        content.done(1, &io(Action::WriteZeroes, 512, 512), true);
        content.done(1, &io(Action::Discard, 1_024, 512), true);
        content.done(1, &io(Action::Write, 1_536, 512), false);
        assert_eq!(wrong(&mut content, 0, &bytes), 1);
        let mut zeroed = bytes;
        zeroed[512..1_024].fill(0);
        zeroed[1_024..].fill(3);
        assert_eq!(wrong(&mut content, 0, &zeroed), 0);
        // Never written: not looked at.
        let before = content.checked.bytes;
        assert_eq!(wrong(&mut content, 1 << 30, &zeroed), 0);
        assert_eq!(content.checked.bytes, before);
    }

    #[test]
    fn memory_is_bounded_and_what_is_left_out_is_counted() {
        let mut content = content(RECIPE);
        content.most_regions = 2;
        for region in 0..5 {
            write(&mut content, 0, region * REGION_BYTES, 1_024);
        }
        assert_eq!(content.regions.len(), 2);
        assert_eq!(content.checked.untracked_bytes, 3 * 1_024);
    }

    #[test]
    fn the_share_of_duplicates_and_of_zeros_is_as_asked() {
        let mut content = content(Recipe {
            duplicate: 30,
            compressible: 60,
            verify: false,
            unit_bytes: 4_096,
            ..RECIPE
        });
        let mut units = HashMap::new();
        for n in 0..2_000u64 {
            let bytes = write(&mut content, 0, n * 8_192, 8_192);
            for unit in bytes.chunks(4_096) {
                let zeros = unit.iter().rev().take_while(|byte| **byte == 0).count();
                assert!((2_457..2_470).contains(&zeros), "{zeros}");
                *units.entry(unit.to_vec()).or_insert(0) += 1;
            }
        }
        // All others once. Of 4,000 units 30 % are 1,200, with a deviation of 29.
        let most = *units.values().max().unwrap();
        assert!((1_100..1_300).contains(&most), "{most}");
        assert_eq!(units.len(), 4_000 - most + 1);
    }
}
