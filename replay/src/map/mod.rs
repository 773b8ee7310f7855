//! How offsets of the tape become offsets of the targets.
//!
//! A *volume* is a range of bytes that requests are laid on: one target, or several in stripes. The
//! devices of a tape that share a volume are laid one behind the other, each as long as its requests
//! reach, so that neighbours stay neighbours. A device that is alone keeps its offsets.

mod permutation;
mod stripe;

use iotape_formats::DeviceIndex;
use iotape_formats::tape::Summary;

use crate::engine::Io;
use crate::options::MappingMode;

use permutation::Permutation;
pub use stripe::Striping;

/// Each device starts on a multiple of this, so that alignment within a device is kept.
const DEVICE_ALIGNMENT: u64 = 1 << 20;

/// Where the requests of some devices of a tape lie when these are laid one behind the other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// Start of each device, by its index; `None` of a device without requests.
    bases: Vec<Option<u64>>,
    /// First byte of any request; `None` when there is none.
    pub first_bytes: Option<u64>,
    /// First byte behind the last request.
    pub end_bytes: u64,
    /// Longest request with a range, of any device. A lower bound: the summary knows only that of
    /// requests that transfer data.
    pub longest_transfer_bytes: u64,
    /// Devices with requests.
    pub devices: usize,
    /// Every offset and length, OR-ed.
    pub alignment_bits: u64,
}

impl Layout {
    /// The layout of all devices of a tape; `None` when they together reach beyond 2^64 bytes.
    pub fn of(summary: &Summary) -> Option<Layout> {
        Layout::of_some(summary, |_| true)
    }

    /// The layout of the devices that are `wanted`.
    pub fn of_some(summary: &Summary, wanted: impl Fn(DeviceIndex) -> bool) -> Option<Layout> {
        let mut layout = Layout::default();
        for extent in &summary.devices {
            if !wanted(extent.device) {
                continue;
            }
            let index = usize::from(extent.device.0);
            if layout.bases.len() <= index {
                layout.bases.resize(index + 1, None);
            }
            let base = layout
                .end_bytes
                .checked_next_multiple_of(DEVICE_ALIGNMENT)?;
            layout.bases[index] = Some(base);
            if extent.min_offset_bytes <= extent.end_bytes && layout.first_bytes.is_none() {
                layout.first_bytes = base.checked_add(extent.min_offset_bytes);
            }
            layout.end_bytes = base.checked_add(extent.end_bytes)?;
            layout.longest_transfer_bytes = layout
                .longest_transfer_bytes
                .max(extent.longest_transfer_bytes);
            layout.alignment_bits |= extent.alignment_bits;
            layout.devices += 1;
        }
        Some(layout)
    }

    fn position(&self, device: DeviceIndex, offset: u64) -> Option<u64> {
        let base = *self.bases.get(usize::from(device.0))?;
        base?.checked_add(offset)
    }
}

/// What a volume consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Members {
    /// One target, by its index.
    One(u8),
    /// All targets, in stripes.
    Stripes(Striping),
}

/// How offsets are changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// The kind of change.
    pub mode: MappingMode,
    /// Added to each offset, with [`MappingMode::Offset`].
    pub offset_bytes: i64,
    /// Length of what stays together, with [`MappingMode::Scale`] and [`MappingMode::Hash`].
    pub region_bytes: u64,
    /// What decides where a region goes, with [`MappingMode::Hash`].
    pub seed: u64,
}

/// A volume with the devices of a tape laid onto it.
#[derive(Clone, Debug)]
pub struct Volume {
    layout: Layout,
    change: Change,
    members: Members,
    size_bytes: u64,
    /// Where it ends: its size, for wrapping rounded down to the tape's own alignment, or to whole
    /// regions.
    end_bytes: u64,
}

/// A [`Rule`], worked out for a volume.
#[derive(Clone, Copy, Debug)]
enum Change {
    Nothing,
    Add(i64),
    Wrap,
    /// Regions go to proportional ones.
    Scale(Regions),
    /// Regions go to any.
    Hash(Regions, Permutation),
}

#[derive(Clone, Copy, Debug)]
struct Regions {
    bytes: u64,
    of_tape: u64,
    of_volume: u64,
}

/// The whole tape laid onto its volumes: one, or one for each target.
#[derive(Clone, Debug)]
pub struct Mapping {
    volumes: Vec<Volume>,
    /// By the device's index, where there is more than one volume.
    of_device: Vec<Option<u8>>,
}

/// Wrapping keeps alignments up to this.
const LARGEST_KEPT_ALIGNMENT: u64 = 1 << 20;

/// Why a request has no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BeyondEnd;

impl Volume {
    /// Lays devices onto a volume of `size_bytes`.
    pub fn new(layout: Layout, rule: Rule, members: Members, size_bytes: u64) -> Self {
        let regions = Regions::new(rule.region_bytes, layout.end_bytes, size_bytes);
        let (change, end_bytes) = match rule.mode {
            MappingMode::Identity => (Change::Nothing, size_bytes),
            MappingMode::Offset => (Change::Add(rule.offset_bytes), size_bytes),
            MappingMode::Wrap => (Change::Wrap, wrap_end(&layout, size_bytes)),
            MappingMode::Scale => (Change::Scale(regions), regions.end_bytes()),
            MappingMode::Hash => {
                let permutation = Permutation::new(regions.of_volume, rule.seed);
                (Change::Hash(regions, permutation), regions.end_bytes())
            }
        };
        Volume {
            layout,
            change,
            members,
            size_bytes,
            end_bytes,
        }
    }

    /// First byte behind the tape where its offsets are only shifted: it has to fit as it is.
    /// `None` where it is folded onto the volume, whatever its size; an error when it begins
    /// before the volume.
    pub fn needed_bytes(&self) -> Result<Option<u64>, i128> {
        let shift = match self.change {
            Change::Nothing => 0,
            Change::Add(offset) => i128::from(offset),
            Change::Wrap | Change::Scale(_) | Change::Hash(..) => return Ok(None),
        };
        let first = i128::from(self.layout.first_bytes.unwrap_or(0)) + shift;
        if first < 0 {
            return Err(first);
        }
        let end = i128::from(self.layout.end_bytes) + shift;
        Ok(Some(u64::try_from(end.max(0)).unwrap_or(u64::MAX)))
    }

    /// What it consists of.
    pub fn members(&self) -> Members {
        self.members
    }

    /// Its size.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// The volume's end as wrapping sees it, or its size.
    pub fn end_bytes(&self) -> u64 {
        self.end_bytes
    }

    /// What is laid on it.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Where a request goes on the volume.
    ///
    /// # Errors
    /// When it would end behind the volume's end and may not be moved, or is longer than the
    /// volume.
    #[inline]
    pub fn place(&self, device: DeviceIndex, offset: u64, length: u64) -> Result<u64, BeyondEnd> {
        let position = self.layout.position(device, offset).ok_or(BeyondEnd)?;
        let last_start = self.end_bytes.checked_sub(length).ok_or(BeyondEnd)?;
        let place = match self.change {
            Change::Nothing => position,
            Change::Add(shift) => position.checked_add_signed(shift).ok_or(BeyondEnd)?,
            Change::Wrap if position <= last_start => position,
            // Not empty: a request with a length fits, or `last_start` were none.
            Change::Wrap => position
                .checked_rem(self.end_bytes)
                .ok_or(BeyondEnd)?
                .min(last_start),
            Change::Scale(regions) => regions.scaled(position).min(last_start),
            Change::Hash(regions, permutation) => {
                regions.permuted(position, permutation).min(last_start)
            }
        };
        if place > last_start {
            return Err(BeyondEnd);
        }
        Ok(place)
    }

    /// The target of what is laid on it, or [`Io::STRIPED`].
    #[inline]
    pub fn target(&self) -> u8 {
        match self.members {
            Members::One(target) => target,
            Members::Stripes(_) => Io::STRIPED,
        }
    }

    /// Turns an operation on the volume's [`Volume::target`] into one on a target, if it can be
    /// one.
    #[cold]
    pub fn lay(&self, io: Io) -> Io {
        match self.members {
            Members::One(_) => io,
            Members::Stripes(striping) => striping.lay(io),
        }
    }
}

impl Regions {
    /// Regions of the length asked for, or of the largest power of two that fits the volume.
    fn new(bytes: u64, tape_bytes: u64, volume_bytes: u64) -> Self {
        let largest = match volume_bytes {
            0 => 1,
            size => 1 << size.ilog2(),
        };
        let bytes = bytes.clamp(1, largest);
        Regions {
            bytes,
            of_tape: tape_bytes.div_ceil(bytes),
            of_volume: volume_bytes / bytes,
        }
    }

    fn end_bytes(self) -> u64 {
        self.of_volume * self.bytes
    }

    /// Region `n` of `t` goes to `n × v / t` of `v`.
    fn scaled(self, position: u64) -> u64 {
        let region = u128::from(position / self.bytes) * u128::from(self.of_volume)
            / u128::from(self.of_tape.max(1));
        self.within(u64::try_from(region).unwrap_or(u64::MAX), position)
    }

    /// Region `n` goes to where the permutation puts `n mod v`.
    fn permuted(self, position: u64, permutation: Permutation) -> u64 {
        let region = (position / self.bytes) % self.of_volume.max(1);
        self.within(permutation.of(region), position)
    }

    fn within(self, region: u64, position: u64) -> u64 {
        region
            .saturating_mul(self.bytes)
            .saturating_add(position % self.bytes)
    }
}

impl Mapping {
    /// Everything on one volume.
    pub fn of_one(volume: Volume) -> Self {
        Mapping {
            volumes: vec![volume],
            of_device: Vec::new(),
        }
    }

    /// Each device on the volume of this index.
    pub fn of_several(volumes: Vec<Volume>, of_device: Vec<Option<u8>>) -> Self {
        Mapping { volumes, of_device }
    }

    /// All volumes.
    pub fn volumes(&self) -> &[Volume] {
        &self.volumes
    }

    /// Most devices of the tape that share a volume.
    pub fn most_devices_together(&self) -> usize {
        let counts = self.volumes.iter().map(|volume| volume.layout.devices);
        counts.max().unwrap_or(0)
    }

    /// How many targets there are.
    pub fn targets(&self) -> usize {
        match self.striping() {
            Some(striping) => usize::from(striping.targets),
            None => self.volumes.len(),
        }
    }

    /// How requests that touch several targets are cut up; `None` when there are none.
    pub fn striping(&self) -> Option<Striping> {
        match self.volumes.first()?.members {
            Members::Stripes(striping) => Some(striping),
            Members::One(_) => None,
        }
    }

    /// The volume that a device of the tape lies on.
    #[inline]
    pub fn volume_of(&self, device: DeviceIndex) -> Option<&Volume> {
        if let [only] = &self.volumes[..] {
            return Some(only);
        }
        let index = *self.of_device.get(usize::from(device.0))?;
        self.volumes.get(usize::from(index?))
    }
}

/// A multiple of the tape's alignment, so that a wrapped offset is as aligned as it was.
fn wrap_end(layout: &Layout, size_bytes: u64) -> u64 {
    let alignment = 1u64
        .checked_shl(layout.alignment_bits.trailing_zeros())
        .unwrap_or(LARGEST_KEPT_ALIGNMENT)
        .min(LARGEST_KEPT_ALIGNMENT);
    let rounded = size_bytes - size_bytes % alignment;
    // A target smaller than the alignment keeps its size: one request of it fits at the start.
    if rounded == 0 { size_bytes } else { rounded }
}

#[cfg(test)]
mod tests {
    use iotape_formats::tape::DeviceExtent;
    use proptest::prelude::*;

    use super::*;

    fn summary(ends: &[(u16, u64)], alignment_bits: u64) -> Summary {
        let devices = ends
            .iter()
            .map(|&(device, end_bytes)| DeviceExtent {
                device: DeviceIndex(device),
                requests: 1,
                end_bytes,
                alignment_bits,
                ..DeviceExtent::default()
            })
            .collect();
        Summary {
            devices,
            ..Summary::default()
        }
    }

    fn volume(mode: MappingMode, end: u64, size: u64) -> Volume {
        let layout = Layout::of(&summary(&[(0, end)], 4096)).unwrap();
        Volume::new(layout, rule(mode), Members::One(0), size)
    }

    fn volume_of(layout: Layout, mode: MappingMode, size: u64) -> Volume {
        Volume::new(layout, rule(mode), Members::One(0), size)
    }

    fn rule(mode: MappingMode) -> Rule {
        Rule {
            mode,
            region_bytes: 1 << 20,
            seed: 5,
            ..Rule::default()
        }
    }

    const DEVICE: DeviceIndex = DeviceIndex(0);
    const MIB: u64 = 1 << 20;

    #[test]
    fn offset_shifts_and_refuses_what_leaves_the_volume() {
        let shifted = |offset_bytes| {
            let mut summary = summary(&[(0, 40_960)], 4096);
            summary.devices[0].min_offset_bytes = 8_192;
            let rule = Rule {
                offset_bytes,
                ..rule(MappingMode::Offset)
            };
            let layout = Layout::of(&summary).unwrap();
            Volume::new(layout, rule, Members::One(0), 65_536)
        };
        let there = shifted(24_576);
        assert_eq!(there.needed_bytes(), Ok(Some(65_536)));
        assert_eq!(there.place(DEVICE, 8_192, 4_096), Ok(32_768));
        assert_eq!(there.place(DEVICE, 40_960, 4_096), Err(BeyondEnd));
        let back = shifted(-8_192);
        assert_eq!(back.needed_bytes(), Ok(Some(32_768)));
        assert_eq!(back.place(DEVICE, 8_192, 4_096), Ok(0));
        assert_eq!(back.place(DEVICE, 4_096, 4_096), Err(BeyondEnd));
        assert_eq!(shifted(-8_193).needed_bytes(), Err(-1));
    }

    #[test]
    fn scale_puts_regions_in_proportion_and_keeps_what_is_within() {
        // Eight regions on four and a half.
        let map = volume(MappingMode::Scale, 8 * MIB, 4 * MIB + MIB / 2);
        assert_eq!(map.end_bytes(), 4 * MIB);
        let place = |offset, length| map.place(DEVICE, offset, length).unwrap();
        assert_eq!(place(0, 4_096), 0);
        assert_eq!(place(MIB + 4_096, 4_096), 4_096);
        assert_eq!(place(5 * MIB + 8_192, 4_096), 2 * MIB + 8_192);
        // Behind its region it goes on; at the end it is moved back.
        assert_eq!(place(3 * MIB - 4_096, 8_192), 2 * MIB - 4_096);
        assert_eq!(place(8 * MIB - 4_096, 8_192), 4 * MIB - 8_192);
        // Two on four: every second one.
        let spread = volume(MappingMode::Scale, 2 * MIB, 4 * MIB);
        assert_eq!(spread.place(DEVICE, MIB, 4_096), Ok(2 * MIB));
    }

    #[test]
    fn hash_moves_regions_apart_and_none_onto_another_while_there_is_room() {
        let map = volume(MappingMode::Hash, 500 * MIB, 1_000 * MIB);
        let mut regions: Vec<u64> = (0..500)
            .map(|region| {
                let place = map.place(DEVICE, region * MIB + 12_288, 4_096).unwrap();
                assert_eq!(place % MIB, 12_288);
                place / MIB
            })
            .collect();
        assert!(
            regions
                .iter()
                .zip(&regions[1..])
                .filter(|(a, b)| **a + 1 == **b)
                .count()
                < 10
        );
        regions.sort_unstable();
        regions.dedup();
        assert_eq!(regions.len(), 500);
        // More of the tape than of the volume: each region twice.
        let folded = volume(MappingMode::Hash, 8 * MIB, 4 * MIB);
        assert_eq!(
            folded.place(DEVICE, 0, 512),
            folded.place(DEVICE, 4 * MIB, 512)
        );
    }

    #[test]
    fn identity_keeps_offsets_and_refuses_what_ends_behind_the_target() {
        let map = volume(MappingMode::Identity, 40_960, 40_960);
        assert_eq!(map.place(DEVICE, 36_864, 4_096), Ok(36_864));
        assert_eq!(map.place(DEVICE, 36_864, 8_192), Err(BeyondEnd));
        assert_eq!(map.place(DEVICE, u64::MAX, 1), Err(BeyondEnd));
        assert_eq!(map.place(DeviceIndex(1), 0, 4_096), Err(BeyondEnd));
    }

    #[test]
    fn wrap_is_modulo_and_moves_back_what_crosses_the_end() {
        // 10 pages and a sector: the end is rounded down to the tape's alignment of 4,096.
        let map = volume(MappingMode::Wrap, 1 << 30, 41_472);
        assert_eq!(map.end_bytes(), 40_960);
        assert_eq!(map.place(DEVICE, 36_864, 4_096), Ok(36_864));
        assert_eq!(map.place(DEVICE, 40_960, 4_096), Ok(0));
        assert_eq!(map.place(DEVICE, 40_960 * 7 + 8_192, 4_096), Ok(8_192));
        assert_eq!(map.place(DEVICE, 36_864, 8_192), Ok(32_768));
        assert_eq!(map.place(DEVICE, 8_192, 40_960), Ok(0));
        assert_eq!(map.place(DEVICE, 0, 45_056), Err(BeyondEnd));
    }

    #[test]
    fn devices_lie_one_behind_the_other_on_whole_mebibytes() {
        let layout = Layout::of(&summary(&[(0, 4_096), (2, 8_192)], 4096)).unwrap();
        assert_eq!((layout.end_bytes, layout.devices), ((1 << 20) + 8_192, 2));
        let map = volume_of(layout, MappingMode::Identity, 1 << 30);
        assert_eq!(
            map.place(DeviceIndex(2), 4_096, 4_096),
            Ok((1 << 20) + 4_096)
        );
        assert_eq!(map.place(DeviceIndex(1), 0, 4_096), Err(BeyondEnd));
        assert_eq!(Layout::of(&summary(&[(0, u64::MAX), (1, 1)], 512)), None);
    }

    proptest! {
        #[test]
        fn what_is_folded_fits(
            mode in prop_oneof![Just(MappingMode::Scale), Just(MappingMode::Hash), Just(MappingMode::Wrap)],
            size in 1u64..1 << 40,
            region_bytes in 1u64..1 << 30,
            offset in 0u64..1 << 50,
            length in 1u64..1 << 22,
        ) {
            let layout = Layout::of(&summary(&[(0, offset + length)], 1)).unwrap();
            let rule = Rule { mode, region_bytes, ..Rule::default() };
            let map = Volume::new(layout, rule, Members::One(0), size);
            match map.place(DEVICE, offset, length) {
                Ok(place) => prop_assert!(place + length <= size),
                Err(BeyondEnd) => prop_assert!(length > map.end_bytes()),
            }
        }

        #[test]
        fn a_wrapped_request_fits_and_keeps_its_alignment(
            target in 1u64..1 << 40,
            offset in 0u64..1 << 50,
            length in 1u64..1 << 22,
            shift in 0u32..14,
        ) {
            let unit = 1u64 << shift;
            let (offset, length) = (offset / unit * unit, length.next_multiple_of(unit));
            let target = target.next_multiple_of(unit);
            let layout = Layout::of(&summary(&[(0, offset + length)], unit)).unwrap();
            let map = volume_of(layout, MappingMode::Wrap, target);
            match map.place(DEVICE, offset, length) {
                Ok(place) => {
                    prop_assert_eq!(place % unit, 0);
                    prop_assert!(place + length <= target);
                }
                Err(BeyondEnd) => prop_assert!(length > target),
            }
        }
    }
}
