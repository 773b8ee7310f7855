//! The tape's devices.

use std::collections::{BTreeMap, HashMap};

use etl_parse::kernel::PhyDisk;
use etl_parse::storport::ScsiAddress;

use super::MAX_DEVICES;
use crate::request::DeviceIndex;
use crate::tape::{Device, Layer};

/// Sizes of sectors that are believed.
const SECTOR_BYTES: std::ops::RangeInclusive<u32> = 512..=1 << 20;

/// How a trace names a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Disk {
    /// The number of the physical disk.
    Number(u32),
    /// Where it is attached.
    At(ScsiAddress),
}

/// The devices that have requests are in the tape.
#[derive(Debug)]
pub(super) struct Devices {
    known: BTreeMap<u32, PhyDisk>,
    indexes: HashMap<Disk, DeviceIndex>,
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
    pub fn index(&mut self, disk: Disk) -> Option<(DeviceIndex, Option<Device>)> {
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

    fn describe(&self, disk: Disk, index: DeviceIndex) -> Device {
        let (known, name) = match disk {
            Disk::Number(number) => (self.known.get(&number), format!("PhysicalDrive{number}")),
            Disk::At(address) => self.attached_at(address),
        };
        let sector_bytes = known.map(|known| known.sector_bytes);
        let model = known.map(|known| known.model.clone());
        Device {
            index,
            name,
            layer: Layer::Device,
            logical_sector_bytes: sector_bytes
                .filter(|bytes| SECTOR_BYTES.contains(bytes) && bytes.is_power_of_two()),
            model: model.filter(|model| !model.is_empty()),
            ..Device::default()
        }
    }

    /// The disk at an address, if the trace tells of just one there, and a name.
    fn attached_at(&self, address: ScsiAddress) -> (Option<&PhyDisk>, String) {
        let mut at = self.known.values();
        let mut next = || at.find(|disk| disk.address == Some(address));
        match (next(), next()) {
            (Some(only), None) => (Some(only), format!("PhysicalDrive{}", only.disk)),
            _ => {
                let ScsiAddress {
                    port,
                    bus,
                    target,
                    lun,
                } = address;
                (None, format!("Scsi{port}:{bus}:{target}:{lun}"))
            }
        }
    }
}
