//! `iotape check`: read a whole tape and verify every record; make a new tape of what is whole.

use std::path::Path;

use iotape_formats::tape::{BadRecord, Block, Damage, Fault};
use serde::Serialize;

use crate::cli::CheckArgs;
use crate::commands::{print, print_json};
use crate::exit::{Failure, Outcome, warn};
use crate::files::{TapeFile, open_tape};
use crate::render::units;

/// What `check --json` prints.
#[derive(Debug, Serialize)]
struct Verdict {
    /// Every byte was understood, and the recorder ended the tape.
    whole: bool,
    has_footer: bool,
    requests: u64,
    blocks: u64,
    /// Requests that the tape's own totals count and that could not be read.
    lost_requests: u64,
    skipped_bytes: u64,
    bad_records: u64,
    /// The first of them.
    faults: Vec<FaultAt>,
    repaired: Option<String>,
}

#[derive(Debug, Serialize)]
struct FaultAt {
    byte: u64,
    bytes: u64,
    record: Option<u8>,
    fault: String,
    lost_requests: Option<u64>,
}

pub fn run(args: &CheckArgs) -> Result<Outcome, Failure> {
    let mut tape = open_tape(&args.tape)?;
    let (mut requests, mut blocks) = (0, 0);
    let mut block = Block::default();
    while tape
        .next_block(&mut block)
        .map_err(|e| Failure::at(args.tape.display(), e))?
    {
        requests += block.len() as u64;
        blocks += 1;
    }
    let damage = tape.damage();
    let verdict = Verdict {
        whole: tape.has_footer() && damage.is_clean(),
        has_footer: tape.has_footer(),
        requests,
        blocks,
        lost_requests: damage.lost_requests,
        skipped_bytes: damage.skipped_bytes,
        bad_records: damage.bad_records,
        faults: damage.listed.iter().map(FaultAt::of).collect(),
        repaired: None,
    };
    if args.json {
        print_json(&verdict)?;
    } else {
        print(&verdict.to_text(&args.tape))?;
    }
    Ok(Outcome::flawed_if(!verdict.whole))
}

impl FaultAt {
    fn of(bad: &BadRecord) -> FaultAt {
        FaultAt {
            byte: bad.offset,
            bytes: bad.bytes,
            record: bad.opcode,
            fault: fault_text(&bad.fault),
            lost_requests: bad.requests,
        }
    }
}

impl Verdict {
    fn to_text(&self, path: &Path) -> String {
        let mut text = format!(
            "{}: {}, {} requests in {} blocks\n",
            path.display(),
            if self.whole { "whole" } else { "NOT whole" },
            units::count(self.requests),
            units::count(self.blocks)
        );
        for fault in &self.faults {
            text.push_str(&format!(
                "  byte {}: {} bytes: {}\n",
                units::count(fault.byte),
                units::count(fault.bytes),
                fault.fault
            ));
        }
        text
    }
}

fn fault_text(fault: &Fault) -> String {
    format!("{fault:?}")
}

/// Says what was wrong with a tape that has been read to its end; answers whether anything was.
pub fn warn_of_damage(path: &Path, tape: &TapeFile) -> bool {
    let damage: &Damage = tape.damage();
    let whole = tape.has_footer() && damage.is_clean();
    if !whole {
        warn(format_args!(
            "{}: damaged at byte {}: {} bytes skipped, {} bad records",
            path.display(),
            damage.listed.first().map_or(0, |bad| bad.offset),
            damage.skipped_bytes,
            damage.bad_records,
        ));
    }
    !whole
}
