//! `iotape check`: read a whole tape and verify every record; make a new tape of what is whole.

use std::path::Path;

use iotape_formats::tape::{self, BadRecord, CheckReport, Fault};
use serde::Serialize;

use crate::cli::CheckArgs;
use crate::commands::{print, print_json};
use crate::exit::{Failure, Outcome, warn};
use crate::files::{NewFile, TapeFile, open_file};
use crate::render::text::wrapped;
use crate::render::units;

/// Faults that are listed in the text; JSON has more.
const LISTED: usize = 20;

/// What `check --json` prints.
#[derive(Debug, Serialize)]
struct Verdict {
    /// Ended by its recorder, every byte as it was written, every total right.
    whole: bool,
    finished: bool,
    id: String,
    requests: u64,
    blocks: u64,
    parts: usize,
    totals_agree: bool,
    /// Requests that were in the tape and could not be read, as far as the tape tells.
    lost_requests: u64,
    skipped_bytes: u64,
    bad_records: u64,
    missing_magics: u64,
    missing_headers: u64,
    undescribed_devices: u64,
    /// Records of kinds that this program does not know.
    unknown_records: u64,
    /// The first faults, in the order of the file.
    faults: Vec<FaultAt>,
    repaired: Option<Repaired>,
}

#[derive(Debug, Serialize)]
struct FaultAt {
    byte: u64,
    bytes: u64,
    /// `header`, `device`, `anchor`, `loss`, `block`, `footer`; null where not even that is known.
    record: Option<String>,
    fault: String,
    lost_requests: Option<u64>,
}

#[derive(Debug, Serialize)]
struct Repaired {
    path: String,
    requests: u64,
    blocks: u64,
    bytes: u64,
}

pub fn run(args: &CheckArgs) -> Result<Outcome, Failure> {
    let report =
        tape::check(open_file(&args.tape)?).map_err(|e| Failure::at(args.tape.display(), e))?;
    let mut verdict = Verdict::of(&report);
    if let Some(path) = &args.repair {
        verdict.repaired = Some(repair(&args.tape, path)?);
    }
    if args.json {
        print_json(&verdict)?;
    } else {
        print(&verdict.to_text(&args.tape))?;
    }
    Ok(Outcome::flawed_if(!verdict.whole))
}

fn repair(from: &Path, to: &Path) -> Result<Repaired, Failure> {
    let (tape, sink) = NewFile::begin(to, false)?;
    let what = format!("{} into {}", from.display(), to.display());
    let report = tape::repair(open_file(from)?, sink).map_err(|error| Failure::at(what, error))?;
    tape.keep()?;
    Ok(Repaired {
        path: to.display().to_string(),
        requests: report.requests,
        blocks: report.blocks,
        bytes: report.bytes,
    })
}

impl Verdict {
    fn of(report: &CheckReport) -> Verdict {
        let damage = &report.damage;
        Verdict {
            whole: report.is_clean(),
            finished: report.finished,
            id: report.id.to_string(),
            requests: report.requests,
            blocks: report.blocks,
            parts: report.parts,
            totals_agree: report.totals_agree,
            lost_requests: damage.lost_requests,
            skipped_bytes: damage.skipped_bytes,
            bad_records: damage.bad_records,
            missing_magics: damage.missing_magics,
            missing_headers: damage.missing_headers,
            undescribed_devices: damage.undescribed_devices,
            unknown_records: damage.unknown.values().sum(),
            faults: damage.listed.iter().map(FaultAt::of).collect(),
            repaired: None,
        }
    }

    fn to_text(&self, path: &Path) -> String {
        let mut text = wrapped(
            "",
            &format!(
                "{}: {}: {} requests in {} blocks read",
                path.display(),
                if self.whole { "whole" } else { "NOT whole" },
                units::count(self.requests),
                units::count(self.blocks)
            ),
        );
        if !self.finished {
            text.push_str(&wrapped(
                "  ",
                "cut off: no footer after the last byte; what came behind is unknown",
            ));
        }
        if self.lost_requests > 0 {
            let lost = units::count(self.lost_requests);
            text.push_str(&format!("  {lost} requests are lost\n"));
        }
        for fault in self.faults.iter().take(LISTED) {
            text.push_str(&wrapped("  ", &fault.to_text()));
        }
        if self.faults.len() > LISTED {
            text.push_str(&format!(
                "  … {} more (--json)\n",
                self.faults.len() - LISTED
            ));
        }
        if let Some(repaired) = &self.repaired {
            text.push_str(&wrapped(
                "",
                &format!(
                    "{}: {} requests in {} blocks written",
                    repaired.path,
                    units::count(repaired.requests),
                    units::count(repaired.blocks)
                ),
            ));
        }
        text
    }
}

impl FaultAt {
    fn of(bad: &BadRecord) -> FaultAt {
        FaultAt {
            byte: bad.offset,
            bytes: bad.bytes,
            record: bad.opcode.map(tape::record_name),
            fault: fault(&bad.fault),
            lost_requests: bad.requests,
        }
    }

    fn to_text(&self) -> String {
        let record = self
            .record
            .as_ref()
            .map(|name| format!("{name}: "))
            .unwrap_or_default();
        let lost = match self.lost_requests {
            Some(lost) if lost > 0 => format!("; {} requests lost with it", units::count(lost)),
            _ => String::new(),
        };
        format!(
            "byte {}: {record}{}, {} bytes skipped{lost}",
            units::count(self.byte),
            self.fault,
            units::count(self.bytes)
        )
    }
}

fn fault(fault: &Fault) -> String {
    match fault {
        Fault::NoRecord => "no record starts here".to_owned(),
        Fault::NoMagic => "the magic of a tape is missing".to_owned(),
        Fault::NoHeader => "the header of a tape is missing".to_owned(),
        Fault::StrayTrailer { footer_bytes } => {
            format!("a trailer that is not behind a footer record of {footer_bytes} bytes")
        }
        Fault::Truncated { expected, found } => {
            format!("{expected} bytes expected, {found} found")
        }
        Fault::Checksum { stored, computed } => {
            format!("checksum {stored:#010x} stored, {computed:#010x} computed")
        }
        Fault::Content(corrupt) => corrupt.to_string(),
        other => format!("{other:?}"),
    }
}

/// Says what was wrong with a tape that has been read to its end; answers whether anything was.
pub fn warn_of_damage(path: &Path, tape: &TapeFile) -> bool {
    let damage = tape.damage();
    let whole = tape.has_footer() && damage.is_clean();
    if !whole {
        let first = match damage.listed.first() {
            Some(bad) => format!(", first at byte {}", units::count(bad.offset)),
            None => String::new(),
        };
        warn(format_args!(
            "{}: {}: {} bytes skipped, {} bad records{first}; {} requests lost; \
             `iotape check` says more",
            path.display(),
            if tape.has_footer() {
                "damaged"
            } else {
                "cut off"
            },
            units::count(damage.skipped_bytes),
            units::count(damage.bad_records),
            units::count(damage.lost_requests),
        ));
    }
    !whole
}
