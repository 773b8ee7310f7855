//! How offsets of the tape become offsets of the target.
//!
//! The tape's devices are laid one behind the other, each as long as its requests reach, so that
//! neighbours stay neighbours. A tape of one device keeps its offsets.

use iotape_formats::DeviceIndex;
use iotape_formats::tape::Summary;

use crate::options::MappingMode;

/// Each device starts on a multiple of this, so that alignment within a device is kept.
const DEVICE_ALIGNMENT: u64 = 1 << 20;

/// Where the requests of a tape lie when its devices are laid one behind the other.
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
    /// The layout of a tape; `None` when its devices together reach beyond 2^64 bytes.
    pub fn of(summary: &Summary) -> Option<Layout> {
        let mut layout = Layout::default();
        for extent in &summary.devices {
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

/// A layout put onto a target.
#[derive(Clone, Debug)]
pub struct Mapping {
    layout: Layout,
    mode: MappingMode,
    /// Where the target ends: its size, for wrapping rounded down to the tape's own alignment.
    end_bytes: u64,
}

/// Wrapping keeps alignments up to this.
const LARGEST_KEPT_ALIGNMENT: u64 = 1 << 20;

/// Why a request has no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BeyondEnd;

impl Mapping {
    /// Lays a tape onto a target of `target_bytes`.
    pub fn new(layout: Layout, mode: MappingMode, target_bytes: u64) -> Self {
        let end_bytes = match mode {
            MappingMode::Identity => target_bytes,
            MappingMode::Wrap => wrap_end(&layout, target_bytes),
        };
        Mapping {
            layout,
            mode,
            end_bytes,
        }
    }

    /// The target's end as wrapping sees it, or its size.
    pub fn end_bytes(&self) -> u64 {
        self.end_bytes
    }

    /// Where a request goes on the target.
    ///
    /// # Errors
    /// When it would end behind the target's end and may not be moved, or is longer than the
    /// target.
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
}

/// A multiple of the tape's alignment, so that a wrapped offset is as aligned as it was.
fn wrap_end(layout: &Layout, target_bytes: u64) -> u64 {
    let alignment = 1u64
        .checked_shl(layout.alignment_bits.trailing_zeros())
        .unwrap_or(LARGEST_KEPT_ALIGNMENT)
        .min(LARGEST_KEPT_ALIGNMENT);
    let rounded = target_bytes - target_bytes % alignment;
    // A target smaller than the alignment keeps its size: one request of it fits at the start.
    if rounded == 0 { target_bytes } else { rounded }
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

    fn mapping(mode: MappingMode, end: u64, target: u64) -> Mapping {
        Mapping::new(
            Layout::of(&summary(&[(0, end)], 4096)).unwrap(),
            mode,
            target,
        )
    }

    const DEVICE: DeviceIndex = DeviceIndex(0);

    #[test]
    fn identity_keeps_offsets_and_refuses_what_ends_behind_the_target() {
        let map = mapping(MappingMode::Identity, 40_960, 40_960);
        assert_eq!(map.place(DEVICE, 36_864, 4_096), Ok(36_864));
        assert_eq!(map.place(DEVICE, 36_864, 8_192), Err(BeyondEnd));
        assert_eq!(map.place(DEVICE, u64::MAX, 1), Err(BeyondEnd));
        assert_eq!(map.place(DeviceIndex(1), 0, 4_096), Err(BeyondEnd));
    }

    #[test]
    fn wrap_is_modulo_and_moves_back_what_crosses_the_end() {
        // 10 pages and a sector: the end is rounded down to the tape's alignment of 4,096.
        let map = mapping(MappingMode::Wrap, 1 << 30, 41_472);
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
        let map = Mapping::new(layout, MappingMode::Identity, 1 << 30);
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
            let map = Mapping::new(layout, MappingMode::Wrap, target);
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
