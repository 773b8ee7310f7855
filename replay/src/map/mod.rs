//! How offsets of the tape become offsets of the targets.
//!
//! A *volume* is a range of bytes that requests are laid on: one target, or several in stripes. The
//! devices of a tape that share a volume are laid one behind the other, each as long as its requests
//! reach, so that neighbours stay neighbours. A device that is alone keeps its offsets.

mod stripe;

use iotape_formats::DeviceIndex;
use iotape_formats::tape::Summary;

use crate::engine::Io;
use crate::options::MappingMode;

pub use stripe::Striping;

/// Each device starts on a multiple of this, so that alignment within a device is kept.
const DEVICE_ALIGNMENT: u64 = 1 << 20;

/// Where the requests of some devices of a tape lie when these are laid one behind the other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// Start of each device, by its index; `None` of a device without requests.
    bases: Vec<Option<u64>>,
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

/// A volume with the devices of a tape laid onto it.
#[derive(Clone, Debug)]
pub struct Volume {
    layout: Layout,
    mode: MappingMode,
    members: Members,
    size_bytes: u64,
    /// Where it ends: its size, for wrapping rounded down to the tape's own alignment.
    end_bytes: u64,
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
    pub fn new(layout: Layout, mode: MappingMode, members: Members, size_bytes: u64) -> Self {
        let end_bytes = match mode {
            MappingMode::Identity => size_bytes,
            MappingMode::Wrap => wrap_end(&layout, size_bytes),
        };
        Volume {
            layout,
            mode,
            members,
            size_bytes,
            end_bytes,
        }
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
        match self.mode {
            _ if position <= last_start => Ok(position),
            MappingMode::Identity => Err(BeyondEnd),
            // Not empty: a request with a length fits, or `last_start` were none.
            MappingMode::Wrap => Ok(position
                .checked_rem(self.end_bytes)
                .ok_or(BeyondEnd)?
                .min(last_start)),
        }
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
        Volume::new(layout, mode, Members::One(0), size)
    }

    const DEVICE: DeviceIndex = DeviceIndex(0);

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
        let map = Volume::new(layout, MappingMode::Identity, Members::One(0), 1 << 30);
        assert_eq!(
            map.place(DeviceIndex(2), 4_096, 4_096),
            Ok((1 << 20) + 4_096)
        );
        assert_eq!(map.place(DeviceIndex(1), 0, 4_096), Err(BeyondEnd));
        assert_eq!(Layout::of(&summary(&[(0, u64::MAX), (1, 1)], 512)), None);
    }

    proptest! {
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
            let map = Volume::new(layout, MappingMode::Wrap, Members::One(0), target);
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
