//! Lays the tape's devices onto the targets, and refuses what does not fit.

use iotape_formats::DeviceIndex;
use iotape_formats::tape::Summary;

use crate::error::ReplayError;
use crate::map::{Layout, Mapping, Members, Rule, Striping, Volume};
use crate::options::{Arrangement, DeviceTarget, MappingMode, Options};
use crate::plan::{Filter, Rules};
use crate::result;
use crate::source::{Source, SourceError};
use crate::target::Target;

/// The payload is this much longer than the longest write, for writes to differ.
const PAYLOAD_WINDOW_BYTES: u64 = 4 << 20;
/// Stripes are a multiple of this, and of every target's sector.
pub const STRIPE_UNIT: u64 = 4096;
const LONGEST_STRIPE: u64 = 1 << 30;
/// Size of the null target: as large as a file can be.
const NULL_BYTES: u64 = i64::MAX.cast_unsigned();

/// The target of each of the tape's devices, by the device's index; `None`: all on one volume.
pub type Places = Option<Vec<Option<u8>>>;

/// Looks up which device goes where.
///
/// # Errors
/// When the arrangement names a device that the tape does not have, or one twice, or leaves one
/// with requests out.
pub fn places<S: Source>(arrangement: &Arrangement, source: &S) -> Result<Places, ReplayError> {
    let Arrangement::Devices(named) = arrangement else {
        return Ok(None);
    };
    let mut places: Vec<Option<u8>> = Vec::new();
    for DeviceTarget { device, target } in named {
        let index = usize::from(device_of(device, source)?.0);
        if places.len() <= index {
            places.resize(index + 1, None);
        }
        if places[index].is_some() {
            let device = device.clone();
            return Err(ReplayError::DeviceTwice { device });
        }
        places[index] = u8::try_from(*target).ok();
    }
    let place = |device: DeviceIndex| *places.get(usize::from(device.0))?;
    let used = source.summary().devices.iter();
    let homeless = used
        .filter(|extent| extent.requests > 0)
        .find(|extent| place(extent.device).is_none());
    match homeless {
        None => Ok(Some(places)),
        Some(extent) => Err(ReplayError::DeviceWithoutTarget {
            device: extent.device.0,
            requests: extent.requests,
        }),
    }
}

/// A device by its name or its index.
fn device_of<S: Source>(named: &str, source: &S) -> Result<DeviceIndex, ReplayError> {
    let devices = source.devices();
    let by_name = devices.iter().find(|device| device.name == named);
    let by_index = || {
        let index = DeviceIndex(named.parse().ok()?);
        devices.iter().find(|device| device.index == index)
    };
    let found = by_name.or_else(by_index).map(|device| device.index);
    found.ok_or_else(|| {
        let names: Vec<String> = devices
            .iter()
            .map(|device| format!("{} ({})", device.index.0, device.name))
            .collect();
        ReplayError::NoSuchDevice {
            device: named.to_owned(),
            devices: names.join(", "),
        }
    })
}

/// Refuses stripes that no request can be cut at.
///
/// # Errors
/// [`ReplayError::Stripe`].
pub fn check_stripe(arrangement: &Arrangement, unit_bytes: u64) -> Result<(), ReplayError> {
    let &Arrangement::Striped { stripe_bytes } = arrangement else {
        return Ok(());
    };
    if stripe_bytes == 0 || stripe_bytes > LONGEST_STRIPE || stripe_bytes % unit_bytes.max(1) != 0 {
        return Err(ReplayError::Stripe {
            stripe_bytes,
            unit_bytes,
        });
    }
    Ok(())
}

/// What becomes of the tape's requests on these targets.
///
/// # Errors
/// When the tape does not fit.
pub fn rules(
    options: &Options,
    filter: Filter,
    summary: &Summary,
    places: Places,
    targets: &[Target],
) -> Result<Rules, ReplayError> {
    let mapping = mapping(options, summary, places, targets)?;
    check_regions(options)?;
    for volume in mapping.volumes() {
        check_fit(volume, options, targets)?;
    }
    let longest = mapping.volumes().iter();
    let longest_bytes = longest
        .map(|volume| volume.layout().longest_transfer_bytes)
        .max()
        .unwrap_or(0);
    let sectors = targets.iter().map(|target| target.sector_bytes);
    let align_bytes = match sectors.max() {
        Some(sector) if options.align => u64::from(sector),
        _ => 1,
    };
    // A sector is added at most at each end.
    let longest_bytes = longest_bytes.saturating_add(2 * (align_bytes - 1));
    let payload_bytes = longest_bytes
        .checked_next_multiple_of(4096)
        .and_then(|bytes| u32::try_from(bytes.checked_add(PAYLOAD_WINDOW_BYTES)?).ok());
    let steps = targets
        .iter()
        .map(|target| target.memory_alignment.max(target.sector_bytes));
    Ok(Rules {
        filter,
        mapping,
        align_bytes,
        longest_bytes,
        // A tape with longer requests fails on its buffers.
        payload_bytes: payload_bytes.unwrap_or(u32::MAX),
        payload_step: steps.max().unwrap_or(512).max(512),
    })
}

fn check_regions(options: &Options) -> Result<(), ReplayError> {
    let region_bytes = options.map_region_bytes;
    if region_bytes.is_power_of_two() && region_bytes >= STRIPE_UNIT {
        return Ok(());
    }
    Err(ReplayError::Region { region_bytes })
}

fn mapping(
    options: &Options,
    summary: &Summary,
    places: Places,
    targets: &[Target],
) -> Result<Mapping, ReplayError> {
    let rule = options.rule();
    let size = |index: usize| match (targets.get(index), options.simulated()) {
        (Some(target), _) => target.size_bytes,
        (None, Some(spec)) => spec.size_bytes.min(NULL_BYTES),
        (None, None) => NULL_BYTES,
    };
    let layout = |wanted: &dyn Fn(DeviceIndex) -> bool| {
        Layout::of_some(summary, wanted).ok_or_else(|| out_of_range(summary))
    };
    let Some(places) = places else {
        let all = layout(&|_| true)?;
        let volume = match options.arrangement {
            Arrangement::Striped { stripe_bytes } => {
                let units = targets.iter().map(|target| u64::from(target.sector_bytes));
                check_stripe(&options.arrangement, units.max().unwrap_or(STRIPE_UNIT))?;
                let striping = Striping {
                    stripe_bytes,
                    targets: u8::try_from(options.targets.len()).unwrap_or(u8::MAX),
                };
                let smallest = (0..options.targets.len()).map(size).min().unwrap_or(0);
                let bytes = striping.capacity(smallest).min(NULL_BYTES);
                Volume::new(all, rule, Members::Stripes(striping), bytes)
            }
            _ => Volume::new(all, rule, Members::One(0), size(0)),
        };
        return Ok(Mapping::of_one(volume));
    };
    let mut volumes = Vec::new();
    for (index, number) in (0..options.targets.len()).zip(0u8..) {
        let here = |device: DeviceIndex| {
            places.get(usize::from(device.0)).copied().flatten() == Some(number)
        };
        let layout = layout(&here)?;
        volumes.push(Volume::new(layout, rule, Members::One(number), size(index)));
    }
    Ok(Mapping::of_several(volumes, places))
}

fn check_fit(volume: &Volume, options: &Options, targets: &[Target]) -> Result<(), ReplayError> {
    let names = || match volume.members() {
        Members::One(target) => match (targets.get(usize::from(target)), options.simulated()) {
            (Some(target), _) => target.name(),
            (None, Some(spec)) => spec.to_string(),
            (None, None) => "the null target".to_owned(),
        },
        Members::Stripes(_) => {
            let names: Vec<String> = targets.iter().map(Target::name).collect();
            format!("stripes over {}", names.join(" "))
        }
    };
    let layout = volume.layout();
    match volume.needed_bytes() {
        Ok(Some(needed)) if needed > volume.size_bytes() => {
            return Err(ReplayError::TooSmall {
                target: names(),
                target_bytes: volume.size_bytes(),
                tape_bytes: needed,
            });
        }
        Ok(_) => {}
        Err(first) => {
            return Err(ReplayError::BeforeStart {
                target: names(),
                first_bytes: first,
            });
        }
    }
    if layout.longest_transfer_bytes > volume.end_bytes() {
        return Err(ReplayError::RequestLongerThanTarget {
            target: names(),
            target_bytes: volume.size_bytes(),
            request_bytes: layout.longest_transfer_bytes,
        });
    }
    Ok(())
}

impl Options {
    /// The mapping that is used: a scratch file is wrapped, if nothing else is asked for.
    pub(super) fn mapping_mode(&self) -> MappingMode {
        match (self.scratch(), self.mapping) {
            (Some(_), MappingMode::Identity) => MappingMode::Wrap,
            (_, mode) => mode,
        }
    }

    /// What the result says of it.
    pub(super) fn mapping_facts(&self) -> result::Mapping {
        let mode = self.mapping_mode();
        let regions = matches!(mode, MappingMode::Scale | MappingMode::Hash);
        result::Mapping {
            mode,
            offset_bytes: (mode == MappingMode::Offset).then_some(self.map_offset_bytes),
            region_bytes: regions.then_some(self.map_region_bytes),
            ..result::Mapping::default()
        }
    }

    fn rule(&self) -> Rule {
        Rule {
            mode: self.mapping_mode(),
            offset_bytes: self.map_offset_bytes,
            region_bytes: self.map_region_bytes,
            seed: self.seed,
        }
    }
}

/// The tape's devices do not fit one address space.
pub fn out_of_range(summary: &Summary) -> ReplayError {
    let count = summary.devices.len();
    let text = format!("the ranges of its {count} devices together exceed 2^64 bytes");
    ReplayError::Tape(SourceError(text.into()))
}
