//! `iotape info`: what a tape is, from its header and footer.

mod by;

use std::collections::BTreeMap;
use std::time::Duration;

use iotape_formats::Op;
use iotape_formats::tape::{Anchor, Device, DeviceExtent, ErrorCodes, Header, Loss, Summary};
use serde::Serialize;

use crate::cli::InfoArgs;
use crate::commands::{print, print_json};
use crate::exit::{Failure, Outcome, warn};
use crate::files::{TapeFile, open_tape};
use crate::render::table::{Table, fit};
use crate::render::text::wrapped;
use crate::render::units;

/// What `info --json` prints. Fields are added, none is renamed.
#[derive(Debug, Serialize)]
pub struct Info {
    pub id: String,
    pub requests: u64,
    /// Bytes that crossed the bus (read, write, zone_append).
    pub bytes: u64,
    pub duration_ns: u64,
    pub by_op: BTreeMap<&'static str, OpInfo>,
    pub devices: Vec<DeviceInfo>,
    pub lost_events: u64,
    /// How many of them began a request; null when that is not known of all.
    pub lost_requests: Option<u64>,
    pub unpaired: u64,
    pub unpaired_issues: u64,
    pub unpaired_completions: u64,
    pub ambiguous: u64,
    pub late: u64,
    pub merges: u64,
    pub splits: u64,
    pub requeues: u64,
    pub coalesced_flushes: u64,
    pub undecodable: u64,
    /// Ended by its recorder, and undamaged as far as was read.
    pub complete: bool,
    pub skipped_bytes: u64,
    pub tape_bytes: u64,
    pub started_unix_ns: Option<i64>,
    /// Steps of the wall clock while it was recorded; the tape's times do not have them.
    pub wall_clock_steps: Vec<WallClockStep>,
    pub tool: String,
    pub host: Option<String>,
    pub os: Option<String>,
    pub clock: ClockInfo,
    pub backend: String,
    pub options: Vec<String>,
    pub error_codes: &'static str,
    pub notes: Vec<String>,
    pub losses: Vec<LossInfo>,
}

#[derive(Debug, Serialize)]
pub struct OpInfo {
    pub requests: u64,
    pub bytes: u64,
}

#[derive(Debug, Serialize)]
pub struct DeviceInfo {
    pub name: String,
    pub layer: String,
    pub size_bytes: Option<u64>,
    pub logical_sector_bytes: Option<u32>,
    pub physical_sector_bytes: Option<u32>,
    pub model: Option<String>,
    pub rotational: Option<bool>,
    pub parents: Vec<String>,
    pub requests: u64,
    pub end_bytes: u64,
    pub longest_transfer_bytes: u64,
    /// Largest power of two that divides every offset and length; null without any.
    pub alignment_bytes: Option<u64>,
}

#[derive(Debug, Serialize)]
pub struct ClockInfo {
    pub source: String,
    pub resolution_ns: u32,
}

#[derive(Debug, Serialize)]
pub struct LossInfo {
    pub from_ns: u64,
    pub to_ns: u64,
    pub events: u64,
    pub requests: Option<u64>,
    pub reason: String,
}

/// The wall clock was set, somewhere between two times of the tape.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct WallClockStep {
    pub from_ns: u64,
    pub to_ns: u64,
    /// By how much; negative is back.
    pub step_ns: i64,
}

pub fn run(args: &InfoArgs) -> Result<Outcome, Failure> {
    if let Some(by) = args.by {
        return by::run(args, by);
    }
    let tape = open_tape(&args.tape)?;
    let tape_bytes = std::fs::metadata(&args.tape).map_or(0, |metadata| metadata.len());
    let info = Info::of(&tape, tape_bytes);
    if args.json {
        print_json(&info)?;
    } else {
        print(&info.to_text())?;
    }
    if !info.complete {
        warn(format_args!(
            "{}: not complete ({}); `iotape check` says what is missing",
            args.tape.display(),
            if tape.has_footer() {
                "damaged"
            } else {
                "its recorder did not end it"
            },
        ));
    }
    Ok(Outcome::flawed_if(!info.complete))
}

impl Info {
    /// What an open tape says of itself.
    pub fn of(tape: &TapeFile, tape_bytes: u64) -> Info {
        let (header, summary) = (tape.header(), tape.summary());
        let counters = &summary.counters;
        let damage = tape.damage();
        Info {
            id: summary.id.to_string(),
            requests: summary.requests,
            bytes: transferred_bytes(summary),
            duration_ns: summary.last_ns.saturating_sub(summary.first_ns),
            by_op: by_op(summary),
            devices: devices(tape.devices(), &summary.devices),
            lost_events: counters.lost_events,
            lost_requests: lost_requests(tape.losses(), counters.lost_events),
            unpaired: counters.unpaired(),
            unpaired_issues: counters.unpaired_issues,
            unpaired_completions: counters.unpaired_completions,
            ambiguous: counters.ambiguous,
            late: counters.late,
            merges: counters.merges,
            splits: counters.splits,
            requeues: counters.requeues,
            coalesced_flushes: counters.coalesced_flushes,
            undecodable: counters.undecodable,
            complete: tape.has_footer() && damage.is_clean(),
            skipped_bytes: damage.skipped_bytes,
            tape_bytes,
            started_unix_ns: tape.anchors().first().map(|anchor| anchor.wall_ns),
            wall_clock_steps: wall_clock_steps(tape.anchors()),
            tool: header.tool.clone(),
            host: header.host.clone(),
            os: header.os.clone(),
            clock: clock(header),
            backend: header.backend.clone(),
            options: header.options.clone(),
            error_codes: match header.error_codes {
                ErrorCodes::Errno => "errno",
                ErrorCodes::NtStatus => "ntstatus",
            },
            notes: header.notes.clone(),
            losses: tape.losses().iter().map(loss).collect(),
        }
    }

    fn to_text(&self) -> String {
        let mut text = self.facts().to_string();
        text.push('\n');
        text.push_str(&self.mix().to_string());
        text.push('\n');
        text.push_str(&self.device_table().to_string());
        for note in &self.notes {
            text.push_str(&wrapped("note: ", &fit(note, 1000)));
        }
        text
    }

    fn facts(&self) -> Table {
        let mut table = Table::default();
        let mut fact = |name: &str, value: String| table.row_left([name, &fit(&value, 62)]);
        fact("tape", self.id.clone());
        fact("recorded by", format!("{} ({})", self.tool, self.backend));
        let host = self.host.as_deref().unwrap_or("unnamed host");
        fact(
            "recorded on",
            format!("{host}, {}", self.os.as_deref().unwrap_or("unknown system")),
        );
        fact(
            "duration",
            units::span(Duration::from_nanos(self.duration_ns)),
        );
        for step in &self.wall_clock_steps {
            fact("wall clock", step.to_string());
        }
        fact("requests", units::count(self.requests));
        fact("transferred", units::bytes(self.bytes));
        fact("size", self.size());
        fact("lost events", units::count(self.lost_events));
        let lost_requests = self
            .lost_requests
            .map_or("unknown".to_owned(), units::count);
        fact("lost requests", lost_requests);
        fact("unpaired", units::count(self.unpaired));
        fact("ambiguous", units::count(self.ambiguous));
        fact("late", units::count(self.late));
        fact(
            "complete",
            if self.complete { "yes" } else { "no" }.to_owned(),
        );
        table
    }

    fn size(&self) -> String {
        let size = units::bytes(self.tape_bytes);
        if self.requests == 0 {
            return size;
        }
        let each = self.tape_bytes as f64 / self.requests as f64;
        format!("{size}, {each:.2} bytes a request")
    }

    fn mix(&self) -> Table {
        let mut table = Table::new(["operation", "requests", "share", "bytes", "mean size"]);
        for op in Op::ALL {
            let Some(totals) = self.by_op.get(op.name()) else {
                continue;
            };
            table.row([
                op.name().to_owned(),
                units::count(totals.requests),
                units::percent(totals.requests, self.requests),
                units::bytes(totals.bytes),
                units::bytes(totals.bytes.checked_div(totals.requests).unwrap_or(0)),
            ]);
        }
        table
    }

    fn device_table(&self) -> Table {
        let mut table = Table::new(["device", "layer", "requests", "size", "sector", "reaches"]);
        for device in &self.devices {
            let sector = device
                .logical_sector_bytes
                .map_or("-".to_owned(), |bytes| units::bytes(u64::from(bytes)));
            table.row([
                fit(&device.name, 20),
                device.layer.clone(),
                units::count(device.requests),
                device.size_bytes.map_or("-".to_owned(), units::bytes),
                sector,
                units::bytes(device.end_bytes),
            ]);
        }
        table
    }
}

/// Where the wall clock went another way than the tape's: by more than a tenth of a second, and by more
/// than a clock that is slewed (0.05 %) or runs badly.
fn wall_clock_steps(anchors: &[Anchor]) -> Vec<WallClockStep> {
    const LEAST_NS: i128 = 100_000_000;
    let step = |pair: &[Anchor]| {
        let (before, after) = (pair.first()?, pair.last()?);
        let time_ns = i128::from(after.time_ns) - i128::from(before.time_ns);
        let wall_ns = i128::from(after.wall_ns) - i128::from(before.wall_ns);
        let step_ns = wall_ns - time_ns;
        (step_ns.abs() > LEAST_NS + time_ns.abs() / 1000).then_some(WallClockStep {
            from_ns: before.time_ns,
            to_ns: after.time_ns,
            step_ns: i64::try_from(step_ns).unwrap_or(i64::MAX),
        })
    };
    anchors.windows(2).filter_map(step).collect()
}

impl std::fmt::Display for WallClockStep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "set {} by {} between {} and {}",
            if self.step_ns < 0 { "back" } else { "forward" },
            units::span(Duration::from_nanos(self.step_ns.unsigned_abs())),
            units::span(Duration::from_nanos(self.from_ns)),
            units::span(Duration::from_nanos(self.to_ns)),
        )
    }
}

/// Bytes that crossed the bus.
pub fn transferred_bytes(summary: &Summary) -> u64 {
    let transferring = Op::ALL.into_iter().filter(|op| op.transfers_data());
    transferring
        .map(|op| summary.by_op[usize::from(op.number())].bytes)
        .fold(0, u64::saturating_add)
}

/// How many requests are missing, if each of the lost events stands in a loss that says so.
fn lost_requests(losses: &[Loss], lost_events: u64) -> Option<u64> {
    let told = losses.iter().map(|loss| loss.events);
    if told.fold(0, u64::saturating_add) < lost_events {
        return None;
    }
    losses
        .iter()
        .try_fold(0u64, |sum, loss| Some(sum.saturating_add(loss.requests?)))
}

fn by_op(summary: &Summary) -> BTreeMap<&'static str, OpInfo> {
    let present = Op::ALL
        .into_iter()
        .zip(summary.by_op)
        .filter(|(_, totals)| totals.requests > 0);
    present
        .map(|(op, totals)| {
            (
                op.name(),
                OpInfo {
                    requests: totals.requests,
                    bytes: totals.bytes,
                },
            )
        })
        .collect()
}

fn devices(devices: &[Device], extents: &[DeviceExtent]) -> Vec<DeviceInfo> {
    let info = |device: &Device| {
        let found = extents.iter().find(|extent| extent.device == device.index);
        let extent = found.copied().unwrap_or_default();
        DeviceInfo {
            name: device.name.clone(),
            layer: device.layer.to_string(),
            size_bytes: device.size_bytes,
            logical_sector_bytes: device.logical_sector_bytes,
            physical_sector_bytes: device.physical_sector_bytes,
            model: device.model.clone(),
            rotational: device.rotational,
            parents: device.parents.clone(),
            requests: extent.requests,
            end_bytes: extent.end_bytes,
            longest_transfer_bytes: extent.longest_transfer_bytes,
            alignment_bytes: 1u64.checked_shl(extent.alignment_bits.trailing_zeros()),
        }
    };
    devices.iter().map(info).collect()
}

fn clock(header: &Header) -> ClockInfo {
    ClockInfo {
        source: header.clock.source.clone(),
        resolution_ns: header.clock.resolution_ns,
    }
}

fn loss(loss: &Loss) -> LossInfo {
    LossInfo {
        from_ns: loss.from_ns,
        to_ns: loss.to_ns,
        events: loss.events,
        requests: loss.requests,
        reason: loss.reason.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_set_is_told_from_one_that_drifts() {
        const SECOND: i64 = 1_000_000_000;
        let anchors = |walls_s: &[i64]| -> Vec<Anchor> {
            let anchor = |(index, wall_s): (u64, &i64)| Anchor {
                time_ns: index * 10 * SECOND as u64,
                wall_ns: wall_s * SECOND + index as i64 * 5_000_000,
            };
            (0..).zip(walls_s).map(anchor).collect()
        };
        assert_eq!(wall_clock_steps(&anchors(&[100, 110, 120])), []);
        let steps = wall_clock_steps(&anchors(&[100, 3710, 3720, 130]));
        let found: Vec<_> = steps
            .iter()
            .map(|step| (step.from_ns / 1_000_000_000, step.step_ns / SECOND))
            .collect();
        assert_eq!(found, [(0, 3600), (20, -3599)]);
        assert_eq!(
            steps[0].to_string(),
            "set forward by 1 h 00 m between 0 ns and 10.0 s"
        );
        assert_eq!(wall_clock_steps(&[]), []);
    }
}
