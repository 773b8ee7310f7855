//! How large tables and rings are, and what the programs know of the devices.

use crate::linux::devices::BlockDevice;
use iotape_formats::tape::Layer;

use super::record::WORDS;

/// Devices that the programs tell apart.
const MOST: usize = 64;
/// Slots for bios: those that wait for a request are many.
const BIO_SLOTS: usize = 1 << 16;
const QUEUE_LAYER: u8 = 1;
const WITHOUT_FUA: u8 = 2;

/// What the programs are to know.
#[derive(Debug)]
pub(super) struct Layout {
    /// By the number with which they are reported: a disk and its partitions are one.
    pub devices: Vec<Recorded>,
    pub processors: usize,
    /// Powers of two.
    pub bio_slots: usize,
    pub ring_slots: usize,
}

#[derive(Debug)]
pub(super) struct Recorded {
    pub dev: u32,
    pub queue_layer: bool,
    has_fua: bool,
}

impl Layout {
    pub fn new(devices: &[BlockDevice], processors: usize, ring_bytes: usize) -> Layout {
        let mut recorded: Vec<Recorded> = Vec::new();
        for device in devices {
            let dev = device.reported.in_kernel();
            if recorded.iter().any(|known| known.dev == dev) || recorded.len() == MOST {
                continue;
            }
            recorded.push(Recorded {
                dev,
                queue_layer: device.layer == Layer::Queue,
                has_fua: device.has_fua(),
            });
        }
        Layout {
            devices: recorded,
            processors,
            bio_slots: BIO_SLOTS,
            ring_slots: ring_bytes / (8 * WORDS),
        }
    }

    /// Whether bios are recorded.
    pub fn has_queue_layer(&self) -> bool {
        self.devices.iter().any(|device| device.queue_layer)
    }

    pub fn numbers(&self) -> [u32; MOST] {
        let mut numbers = [0; MOST];
        for (number, device) in numbers.iter_mut().zip(&self.devices) {
            *number = device.dev;
        }
        numbers
    }

    pub fn modes(&self) -> [u8; MOST] {
        let mut modes = [0; MOST];
        for (mode, device) in modes.iter_mut().zip(&self.devices) {
            *mode = if device.queue_layer { QUEUE_LAYER } else { 0 }
                | if device.has_fua { 0 } else { WITHOUT_FUA };
        }
        modes
    }
}
