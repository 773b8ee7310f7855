//! Device numbers: a trace knows no names.

use std::collections::BTreeSet;

use blktrace_parse::DeviceNumber;

use crate::request::DeviceIndex;
use crate::tape::{Device, Layer};

/// Major number of the devices whose names are no numbers: the kernel's for "any block device".
const BLOCK_EXTENDED: u32 = 259;
const MAX_MAJOR: u32 = (1 << 12) - 1;
const MAX_MINOR: u32 = (1 << 20) - 1;

/// The devices by their index in the tape.
#[derive(Debug)]
pub(super) struct Numbers {
    devices: Vec<(DeviceNumber, Layer)>,
}

impl Numbers {
    pub fn new(devices: &[Device]) -> Numbers {
        let named: BTreeSet<DeviceNumber> = devices
            .iter()
            .filter_map(|device| number_in(&device.name))
            .collect();
        let mut free = (0..=MAX_MINOR)
            .map(|minor| number(BLOCK_EXTENDED, minor))
            .filter(|number| !named.contains(number));
        let devices = devices.iter().map(|device| {
            let number = number_in(&device.name).or_else(|| free.next());
            (number.unwrap_or_default(), device.layer)
        });
        Numbers {
            devices: devices.collect(),
        }
    }

    /// Number and layer of a device; `None` if the tape does not have it.
    pub fn get(&self, index: DeviceIndex) -> Option<(DeviceNumber, Layer)> {
        self.devices.get(usize::from(index.0)).copied()
    }
}

/// The number that a name is, such as `8,16`.
fn number_in(name: &str) -> Option<DeviceNumber> {
    let (major, minor) = name.split_once(',')?;
    let (major, minor) = (major.parse().ok()?, minor.parse().ok()?);
    (major <= MAX_MAJOR && minor <= MAX_MINOR).then(|| number(major, minor))
}

fn number(major: u32, minor: u32) -> DeviceNumber {
    DeviceNumber(major << 20 | minor)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(names: &[&str]) -> Vec<String> {
        let devices: Vec<Device> = names
            .iter()
            .map(|name| Device {
                name: (*name).to_owned(),
                ..Device::default()
            })
            .collect();
        let numbers = Numbers::new(&devices);
        numbers
            .devices
            .iter()
            .map(|(number, _)| number.to_string())
            .collect()
    }

    #[test]
    fn names_that_are_numbers_keep_them_and_others_get_free_ones() {
        assert_eq!(
            numbers(&["sda", "8,16", "259,1", "nvme0n1", "4096,0", "8,x"]),
            ["259,0", "8,16", "259,1", "259,2", "259,3", "259,4"]
        );
    }
}
