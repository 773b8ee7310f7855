//! The tape's devices.

use std::collections::{BTreeMap, HashMap};

use etl_parse::kernel::PhyDisk;

use super::MAX_DEVICES;
use crate::request::DeviceIndex;
use crate::tape::{Device, Layer};

/// Sizes of sectors that are believed.
const SECTOR_BYTES: std::ops::RangeInclusive<u32> = 512..=1 << 20;

/// Devices by the number of the physical disk. Those that have requests are in the tape.
#[derive(Debug)]
pub(super) struct Devices {
    known: BTreeMap<u32, PhyDisk>,
    indexes: HashMap<u32, DeviceIndex>,
}

impl Devices {
    pub fn new(known: BTreeMap<u32, PhyDisk>) -> Devices {
        Devices {
            known,
            indexes: HashMap::new(),
        }
    }

    /// Index of a disk; with its description, if it is new. `None` if there are too many.
    #[inline]
    pub fn index(&mut self, disk: u32) -> Option<(DeviceIndex, Option<Device>)> {
        if let Some(index) = self.indexes.get(&disk) {
            return Some((*index, None));
        }
        if self.indexes.len() >= MAX_DEVICES {
            return None;
        }
        let index = DeviceIndex(self.indexes.len() as u16);
        self.indexes.insert(disk, index);
        Some((index, Some(self.describe(disk, index))))
    }

    fn describe(&self, disk: u32, index: DeviceIndex) -> Device {
        let known = self.known.get(&disk);
        let sector_bytes = known.map(|known| known.sector_bytes);
        let model = known.map(|known| known.model.clone());
        Device {
            index,
            name: format!("PhysicalDrive{disk}"),
            layer: Layer::Device,
            logical_sector_bytes: sector_bytes
                .filter(|bytes| SECTOR_BYTES.contains(bytes) && bytes.is_power_of_two()),
            model: model.filter(|model| !model.is_empty()),
            ..Device::default()
        }
    }
}
