//! What becomes of each request of the tape: an operation, or a reason to leave it out.

use fastrand::Rng;
use iotape_formats::{Flags, Op};

use crate::engine::{Action, Io};
use crate::map::{Mapping, Volume};
use crate::source::Row;

/// Writes at least this long begin on a page of the payload, so that they take no more pages than
/// they must and stay one bio.
const PAGE_ALIGNED_FROM: u64 = 64 << 10;
const PAGE: u32 = 4096;

/// Why a request is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SkipReason {
    /// Zone operations and pass-through commands.
    NotReplayable,
    /// It changes data, and the user wants none changed.
    ChangesData,
    /// The target has no such operation.
    NotOnTarget,
    /// It has a range by its operation, and none by its length.
    NoLength,
    /// It reaches behind what the tape's own summary says, or is longer.
    BeyondEnd,
    /// It is longer than the target.
    LongerThanTarget,
    /// Erasing for good cannot be had from a discard.
    SecureErase,
    /// The user wants other operations.
    NotAsked,
    /// It was recorded before or after what the user wants.
    OutsideTimes,
}

impl SkipReason {
    /// In words.
    pub fn text(self) -> &'static str {
        match self {
            SkipReason::NotReplayable => "this operation is not replayed",
            SkipReason::ChangesData => "it changes data (--skip-writes)",
            SkipReason::NotOnTarget => "the target does not support it",
            SkipReason::NoLength => "it has no length",
            SkipReason::BeyondEnd => "it lies beyond what the tape's summary says",
            SkipReason::LongerThanTarget => "it is longer than the target",
            SkipReason::SecureErase => "secure erase is not replayed",
            SkipReason::NotAsked => "it was not asked for (--only)",
            SkipReason::OutsideTimes => "it lies outside --from and --to",
        }
    }
}

/// What the target and the user allow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Leaves out all other operations, if any is named here.
    pub only: OpSet,
    /// Leaves out what was recorded earlier.
    pub from_ns: u64,
    /// Leaves out what was recorded at this time or later.
    pub to_ns: Option<u64>,
    /// Leaves out what changes data.
    pub skip_writes: bool,
    /// Leaves out discards.
    pub no_discard: bool,
    /// Leaves out write-zeroes.
    pub no_write_zeroes: bool,
    /// Leaves out flushes.
    pub no_flush: bool,
}

impl Filter {
    /// Why a request of this operation would be left out, whatever its range.
    pub fn refuses(&self, op: Op) -> Option<SkipReason> {
        match op {
            Op::ZoneAppend | Op::ZoneReset | Op::Other => Some(SkipReason::NotReplayable),
            _ if !self.wants(op) => Some(SkipReason::NotAsked),
            _ if op.changes_data() && self.skip_writes => Some(SkipReason::ChangesData),
            Op::Discard if self.no_discard => Some(SkipReason::NotOnTarget),
            Op::WriteZeroes if self.no_write_zeroes => Some(SkipReason::NotOnTarget),
            Op::Flush if self.no_flush => Some(SkipReason::NotOnTarget),
            _ => None,
        }
    }
}

impl Filter {
    /// Whether the user wants this operation.
    pub fn wants(&self, op: Op) -> bool {
        self.only.is_empty() || self.only.has(op)
    }

    /// Whether a time of the tape lies outside what is wanted.
    #[inline]
    pub fn is_outside(&self, time_ns: u64) -> bool {
        time_ns < self.from_ns || self.to_ns.is_some_and(|to_ns| time_ns >= to_ns)
    }
}

/// Some operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpSet(u8);

impl OpSet {
    /// The operations of a list.
    pub fn of(ops: &[Op]) -> OpSet {
        OpSet(ops.iter().fold(0, |bits, op| bits | 1 << op.number()))
    }

    /// Whether none is in it.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether an operation is in it.
    #[inline]
    pub fn has(self, op: Op) -> bool {
        self.0 & (1 << op.number()) != 0
    }
}

/// Everything that decides what a row becomes.
#[derive(Clone, Debug)]
pub struct Rules {
    /// What is left out.
    pub filter: Filter,
    /// Where the rest goes.
    pub mapping: Mapping,
    /// What offsets and lengths are widened to a multiple of; 1: nothing is.
    pub align_bytes: u64,
    /// Longest transfer that the buffers hold.
    pub longest_bytes: u64,
    /// Length of the payload that writes are cut from.
    pub payload_bytes: u32,
    /// Alignment of a write's data in memory.
    pub payload_step: u32,
}

/// What became of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planned {
    /// To be submitted, and whether the mapping changed its offset.
    Submit(Io, bool),
    /// Left out.
    Skip(SkipReason),
}

impl Rules {
    /// Longest transfer on a target.
    pub fn longest_part_bytes(&self) -> u64 {
        let stripe_bytes = self
            .mapping
            .striping()
            .map(|striping| striping.stripe_bytes);
        self.longest_bytes.min(stripe_bytes.unwrap_or(u64::MAX))
    }

    /// What becomes of a row.
    pub fn plan(&self, row: &Row, random: &mut Rng) -> Planned {
        let mut planned = Io::default();
        match self.plan_into(row, random, |io| planned = io) {
            Ok(remapped) => Planned::Submit(planned, remapped),
            Err(reason) => Planned::Skip(reason),
        }
    }

    /// Hands what becomes of a row to `put`, and says whether the mapping changed its offset; or
    /// why it is left out. The place of a write's data comes from `random`.
    // Always inlined, as is all that follows, and no copy is made on the way: an operation that is
    // put together in memory and then copied costs the planner half of its speed.
    #[inline(always)]
    pub fn plan_into(
        &self,
        row: &Row,
        random: &mut Rng,
        put: impl FnOnce(Io),
    ) -> Result<bool, SkipReason> {
        if let Some(reason) = self.filter.refuses(row.op) {
            return Err(reason);
        }
        if self.filter.is_outside(row.time_ns) {
            return Err(SkipReason::OutsideTimes);
        }
        let preflush = row.flags.contains(Flags::PREFLUSH);
        let action = match row.op {
            Op::Read => Action::Read,
            // A preflush without data is a flush, however the source called it.
            Op::Write if row.length_bytes == 0 && preflush => Action::Flush,
            Op::Write => Action::Write,
            Op::Flush => Action::Flush,
            Op::Discard if row.flags.contains(Flags::SECURE) => {
                return Err(SkipReason::SecureErase);
            }
            Op::Discard => Action::Discard,
            Op::WriteZeroes => Action::WriteZeroes,
            Op::ZoneAppend | Op::ZoneReset | Op::Other => {
                return Err(SkipReason::NotReplayable);
            }
        };
        let Some(volume) = self.mapping.volume_of(row.device) else {
            return Err(SkipReason::BeyondEnd);
        };
        let (offset, length, remapped) = match action {
            Action::Flush => (0, 0, false),
            _ => self.place(row, volume, action)?,
        };
        let write = action == Action::Write;
        let payload = if write {
            self.payload_place(length, random)
        } else {
            0
        };
        let io = |target| Io {
            offset,
            length,
            payload,
            action,
            fua: write && row.flags.contains(Flags::FUA),
            preflush: write && preflush,
            target,
        };
        match volume.target() {
            Io::STRIPED => put(volume.lay(io(Io::STRIPED))),
            target => put(io(target)),
        }
        Ok(remapped)
    }

    /// Where a request goes: offset, length, and whether the mapping changed its offset.
    #[inline(always)]
    fn place(
        &self,
        row: &Row,
        volume: &Volume,
        action: Action,
    ) -> Result<(u64, u64, bool), SkipReason> {
        let length = row.length_bytes;
        let transfers = matches!(action, Action::Read | Action::Write);
        if length == 0 {
            return Err(SkipReason::NoLength);
        }
        if transfers && length > self.longest_bytes {
            return Err(SkipReason::BeyondEnd);
        }
        if length > volume.end_bytes() {
            return Err(SkipReason::LongerThanTarget);
        }
        let placed = volume
            .place(row.device, row.offset_bytes, length)
            .map_err(|_| SkipReason::BeyondEnd)?;
        let remapped = placed != row.offset_bytes;
        if self.align_bytes > 1 {
            let (offset, length) = self.widened(volume, placed, length)?;
            return Ok((offset, length, remapped));
        }
        Ok((placed, length, remapped))
    }

    /// Offset and length of the whole sectors that a request touches.
    #[cold]
    fn widened(&self, volume: &Volume, offset: u64, length: u64) -> Result<(u64, u64), SkipReason> {
        let unit = self.align_bytes;
        let start = offset - offset % unit;
        let end = offset
            .saturating_add(length)
            .checked_next_multiple_of(unit)
            .filter(|&end| end <= volume.size_bytes())
            .ok_or(SkipReason::BeyondEnd)?;
        Ok((start, end - start))
    }

    fn payload_place(&self, length: u64, random: &mut Rng) -> u32 {
        let step = if length >= PAGE_ALIGNED_FROM {
            self.payload_step.max(PAGE)
        } else {
            self.payload_step
        };
        let room = u64::from(self.payload_bytes).saturating_sub(length);
        let places = u32::try_from(room / u64::from(step.max(1))).unwrap_or(0);
        random.u32(0..=places) * step
    }
}

#[cfg(test)]
mod tests {
    use iotape_formats::DeviceIndex;
    use iotape_formats::tape::{DeviceExtent, Summary};

    use super::*;
    use crate::map::{Layout, Members, Rule};

    fn rules(filter: Filter) -> Rules {
        let extent = DeviceExtent {
            end_bytes: 1 << 20,
            ..DeviceExtent::default()
        };
        let summary = Summary {
            devices: vec![extent],
            ..Summary::default()
        };
        Rules {
            filter,
            mapping: Mapping::of_one(Volume::new(
                Layout::of(&summary).unwrap(),
                Rule::default(),
                Members::One(0),
                1 << 20,
            )),
            align_bytes: 1,
            longest_bytes: 65_536,
            payload_bytes: 131_072,
            payload_step: 512,
        }
    }

    fn row(op: Op, flags: Flags, length_bytes: u64) -> Row {
        Row {
            op,
            flags,
            offset_bytes: 8_192,
            length_bytes,
            ..Row::default()
        }
    }

    fn plan(rules: &Rules, row: &Row) -> Planned {
        rules.plan(row, &mut Rng::with_seed(1))
    }

    #[test]
    fn each_operation_stays_what_it_is() {
        let rules = rules(Filter::default());
        let cases = [
            (
                Op::Read,
                Flags::FUA | Flags::SYNC,
                Action::Read,
                false,
                false,
            ),
            (Op::Write, Flags::NONE, Action::Write, false, false),
            (Op::Write, Flags::FUA, Action::Write, true, false),
            (
                Op::Write,
                Flags::FUA | Flags::PREFLUSH,
                Action::Write,
                true,
                true,
            ),
            (Op::Discard, Flags::NONE, Action::Discard, false, false),
            (
                Op::WriteZeroes,
                Flags::FUA,
                Action::WriteZeroes,
                false,
                false,
            ),
        ];
        for (op, flags, action, fua, preflush) in cases {
            let Planned::Submit(io, remapped) = plan(&rules, &row(op, flags, 4_096)) else {
                panic!("{op} left out");
            };
            assert_eq!(
                (io.action, io.fua, io.preflush),
                (action, fua, preflush),
                "{op} {flags}"
            );
            assert_eq!((io.offset, io.length, remapped), (8_192, 4_096, false));
        }
    }

    #[test]
    fn flushes_have_no_range() {
        let rules = rules(Filter::default());
        let flush = Planned::Submit(
            Io {
                action: Action::Flush,
                ..Io::default()
            },
            false,
        );
        assert_eq!(plan(&rules, &row(Op::Flush, Flags::NONE, 0)), flush);
        assert_eq!(plan(&rules, &row(Op::Write, Flags::PREFLUSH, 0)), flush);
    }

    #[test]
    fn what_cannot_be_replayed_says_why() {
        let everything = rules(Filter::default());
        let nothing = rules(Filter {
            skip_writes: true,
            ..Filter::default()
        });
        let poor = rules(Filter {
            no_discard: true,
            no_write_zeroes: true,
            ..Filter::default()
        });
        let cases = [
            (
                &everything,
                row(Op::ZoneAppend, Flags::NONE, 4_096),
                SkipReason::NotReplayable,
            ),
            (
                &everything,
                row(Op::ZoneReset, Flags::NONE, 4_096),
                SkipReason::NotReplayable,
            ),
            (
                &everything,
                row(Op::Other, Flags::NONE, 4_096),
                SkipReason::NotReplayable,
            ),
            (
                &everything,
                row(Op::Read, Flags::NONE, 0),
                SkipReason::NoLength,
            ),
            (
                &everything,
                row(Op::Write, Flags::NONE, 0),
                SkipReason::NoLength,
            ),
            (
                &everything,
                row(Op::Discard, Flags::SECURE, 4_096),
                SkipReason::SecureErase,
            ),
            (
                &everything,
                row(Op::Read, Flags::NONE, 65_537),
                SkipReason::BeyondEnd,
            ),
            (
                &everything,
                row(Op::Discard, Flags::NONE, 1 << 20),
                SkipReason::BeyondEnd,
            ),
            (
                &everything,
                row(Op::Discard, Flags::NONE, 2 << 20),
                SkipReason::LongerThanTarget,
            ),
            (
                &nothing,
                row(Op::Write, Flags::PREFLUSH, 4_096),
                SkipReason::ChangesData,
            ),
            (
                &nothing,
                row(Op::Discard, Flags::NONE, 4_096),
                SkipReason::ChangesData,
            ),
            (
                &nothing,
                row(Op::WriteZeroes, Flags::NONE, 4_096),
                SkipReason::ChangesData,
            ),
            (
                &poor,
                row(Op::Discard, Flags::NONE, 4_096),
                SkipReason::NotOnTarget,
            ),
            (
                &poor,
                row(Op::WriteZeroes, Flags::NONE, 4_096),
                SkipReason::NotOnTarget,
            ),
        ];
        for (rules, row, reason) in cases {
            assert_eq!(
                plan(rules, &row),
                Planned::Skip(reason),
                "{} of {}",
                row.op,
                row.length_bytes
            );
        }
    }

    #[test]
    fn payload_is_aligned_fits_and_varies() {
        let rules = rules(Filter::default());
        let mut random = Rng::with_seed(7);
        for (length, step) in [(512u64, 512), (65_536, 4_096)] {
            let mut places = std::collections::BTreeSet::new();
            for _ in 0..200 {
                let row = Row {
                    device: DeviceIndex(0),
                    ..row(Op::Write, Flags::NONE, length)
                };
                let Planned::Submit(io, _) = rules.plan(&row, &mut random) else {
                    panic!()
                };
                assert_eq!(io.payload % step, 0);
                assert!(u64::from(io.payload) + length <= 131_072);
                places.insert(io.payload);
            }
            assert!(places.len() > 10, "{} places for {length}", places.len());
        }
    }
}
