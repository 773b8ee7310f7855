//! The tape's devices and what was seen of them.

use std::collections::HashMap;

use blktrace_parse::DeviceNumber;

use super::names::name_of;
use super::report::DeviceReport;
use super::survey::Survey;
use super::{MAX_DEVICES, Options};
use crate::event::Step;
use crate::pairing::DeviceRules;
use crate::request::DeviceIndex;
use crate::tape::{Device, Layer};

/// The devices, by number and by index.
#[derive(Debug)]
pub(super) struct Devices {
    layer: Option<Layer>,
    reports: Vec<DeviceReport>,
    indexes: HashMap<DeviceNumber, DeviceIndex>,
    /// The one that was asked for last: mostly the next, too.
    last: Option<(DeviceNumber, DeviceIndex)>,
}

impl Devices {
    /// The devices that were seen at the beginning, in the order of their numbers.
    pub fn new(options: &Options, survey: &Survey) -> Devices {
        let mut devices = Devices {
            layer: options.layer,
            reports: Vec::new(),
            indexes: HashMap::new(),
            last: None,
        };
        for (number, seen) in &survey.devices {
            let layer = options.layer.unwrap_or_else(|| seen.layer());
            devices.add(*number, name_of(*number, seen.set.as_deref()), layer);
        }
        devices
    }

    /// The devices as the tape has them. What a device is built on is known if it is traced, too.
    pub fn for_tape(&self, survey: &Survey) -> Vec<Device> {
        let indexes = 0..self.reports.len() as u16;
        let devices = indexes.filter_map(|index| self.for_tape_at(DeviceIndex(index)));
        devices
            .zip(&self.reports)
            .map(|(device, report)| {
                let below = survey.origins.below(report.number);
                let parents = below.iter().filter_map(|number| self.name(*number));
                Device {
                    parents: parents.collect(),
                    ..device
                }
            })
            .collect()
    }

    /// One of the devices as the tape has it.
    pub fn for_tape_at(&self, index: DeviceIndex) -> Option<Device> {
        let report = self.reports.get(usize::from(index.0))?;
        Some(Device {
            index,
            name: report.name.clone(),
            layer: report.layer,
            ..Device::default()
        })
    }

    /// How requests of each device are paired.
    pub fn rules(&self) -> Vec<DeviceRules> {
        self.reports
            .iter()
            .map(|report| rules(report.layer))
            .collect()
    }

    pub fn reports(&self) -> &[DeviceReport] {
        &self.reports
    }

    pub fn into_reports(self) -> Vec<DeviceReport> {
        self.reports
    }

    /// The device's index, if it is known.
    #[inline]
    pub fn index(&mut self, number: DeviceNumber) -> Option<DeviceIndex> {
        match self.last {
            Some((last, index)) if last == number => Some(index),
            _ => {
                let index = *self.indexes.get(&number)?;
                self.last = Some((number, index));
                Some(index)
            }
        }
    }

    /// Adds a device that was not seen at the beginning; `None` if there are too many.
    pub fn find_late(&mut self, number: DeviceNumber) -> Option<(DeviceIndex, DeviceRules)> {
        let layer = self.layer.unwrap_or_default();
        let index = self.add(number, number.to_string(), layer)?;
        Some((index, rules(layer)))
    }

    /// Counts an event.
    #[inline]
    pub fn count(&mut self, index: DeviceIndex, step: Step) {
        let Some(report) = self.reports.get_mut(usize::from(index.0)) else {
            return;
        };
        match step {
            Step::Queued => report.queued += 1,
            Step::Issued => report.issued += 1,
            Step::RequestCompleted | Step::BioCompleted => report.completed += 1,
            _ => {}
        }
    }

    fn add(&mut self, number: DeviceNumber, name: String, layer: Layer) -> Option<DeviceIndex> {
        if self.reports.len() >= MAX_DEVICES {
            return None;
        }
        let index = DeviceIndex(self.reports.len() as u16);
        self.reports.push(DeviceReport {
            number,
            name,
            layer,
            queued: 0,
            issued: 0,
            completed: 0,
        });
        self.indexes.insert(number, index);
        Some(index)
    }

    fn name(&self, number: DeviceNumber) -> Option<String> {
        let index = self.indexes.get(&number)?;
        let report = self.reports.get(usize::from(index.0))?;
        Some(report.name.clone())
    }
}

/// A trace can begin at any moment, and does not tell whether a device takes discards of several
/// ranges.
fn rules(layer: Layer) -> DeviceRules {
    DeviceRules {
        layer,
        scattered_discards: true,
        busy_at_start: true,
        single_queue: false,
    }
}
