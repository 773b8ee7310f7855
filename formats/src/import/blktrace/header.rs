//! What the tape says about where it comes from.

use super::Options;
use super::devices::Devices;
use super::survey::Survey;
use crate::tape::{Clock, Header, Layer};

/// The tape's header.
pub(super) fn header(options: &Options, survey: &Survey, devices: &Devices) -> Header {
    Header {
        tool: options.tool.clone(),
        clock: Clock {
            source: "CLOCK_MONOTONIC".to_owned(),
            resolution_ns: 1,
        },
        backend: "import:blktrace".to_owned(),
        notes: notes(options, survey, devices),
        ..Header::default()
    }
}

fn notes(options: &Options, survey: &Survey, devices: &Devices) -> Vec<String> {
    let mut notes = vec![
        "imported from blktrace, which does not tell the sizes and models of devices; process ids \
         are those of threads"
            .to_owned(),
    ];
    if survey.version_7 {
        notes.push(
            "version 7 of blktrace does not tell write-zeroes from writes, nor secure erases from \
             discards"
                .to_owned(),
        );
    }
    if !survey.numbered {
        notes.push("the trace's records have no numbers: losses cannot be seen".to_owned());
    }
    for device in devices.reports() {
        if device.layer == Layer::Queue && options.layer.is_none() {
            notes.push(format!(
                "{} issues no requests to a driver: it was traced at the queue layer",
                device.name
            ));
        }
        let above = survey.origins.above(device.number);
        if !above.is_empty() {
            let above: Vec<String> = above.iter().map(ToString::to_string).collect();
            notes.push(format!(
                "requests reached {} by way of {} (partitions, dm or md)",
                device.name,
                above.join(", ")
            ));
        }
    }
    notes
}
