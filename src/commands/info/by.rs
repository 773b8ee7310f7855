//! `iotape info --by`: who did how much of a tape's I/O.
//!
//! One pass over the requests, in bounded memory: the first [`MOST_KEYS`] keys of a tape are told
//! apart, later ones are counted together with those that are not shown.

use std::collections::HashMap;
use std::path::Path;

use hdrhistogram::Histogram;
use iotape_formats::Op;
use iotape_formats::tape::{Block, Columns, NameKind};
use serde::Serialize;

use crate::cli::{By, InfoArgs};
use crate::commands::check::warn_of_damage;
use crate::commands::{print, print_json};
use crate::exit::{Failure, Outcome};
use crate::files::{TapeFile, open_tape};
use crate::render::table::{Table, fit};
use crate::render::units;

/// Most keys that are told apart: with their latencies they take about 30 MB.
const MOST_KEYS: usize = 1024;
/// Latencies are told to two digits.
const DIGITS: u8 = 2;
/// Widest key in the table.
const KEY_WIDTH: usize = 30;

/// What `info --by --json` prints. Fields are added, none is renamed.
#[derive(Debug, Serialize)]
struct Report {
    by: &'static str,
    requests: u64,
    rows: Vec<Row>,
    /// Everything else, if there is more.
    others: Option<Row>,
}

#[derive(Debug, Serialize)]
struct Row {
    /// Null for requests of which the source does not tell it, and for others.
    key: Option<String>,
    requests: u64,
    /// Share of all requests.
    share: f64,
    /// Bytes that crossed the bus (read, write, zone_append).
    bytes: u64,
    /// Mean length of the requests that did.
    mean_bytes: Option<u64>,
    latency_p50_ns: Option<u64>,
    latency_p99_ns: Option<u64>,
}

/// What one key did.
struct Done {
    requests: u64,
    transfers: u64,
    bytes: u64,
    latency_ns: Histogram<u64>,
}

pub fn run(args: &InfoArgs, by: By) -> Result<Outcome, Failure> {
    let mut tape = open_tape(&args.tape)?;
    let report = report(&mut tape, by, args.top, &args.tape)?;
    if args.json {
        print_json(&report)?;
    } else {
        print(&table(&report).to_string())?;
    }
    Ok(Outcome::flawed_if(warn_of_damage(&args.tape, &tape)))
}

fn report(tape: &mut TapeFile, by: By, top: usize, path: &Path) -> Result<Report, Failure> {
    let at = |error: &dyn std::fmt::Display| Failure::at(path.display(), error);
    let (column, name) = match by {
        By::Process => (Columns::PROCESS, "process"),
        By::Cgroup => (Columns::CGROUP, "cgroup"),
        By::File => (Columns::FILE, "file"),
        By::Device => (Columns::CORE, "device"),
    };
    tape.select(Columns::CORE | Columns::LATENCY | column);
    let mut places: HashMap<Option<String>, usize> = HashMap::new();
    let mut done: Vec<(Option<String>, Done)> = Vec::new();
    let mut others = Done::new().map_err(|error| at(&error))?;
    let mut block = Block::new();
    while tape.next_block(&mut block).map_err(|error| at(&error))? {
        // Within a block a number always means the same.
        let mut known: HashMap<Option<u64>, Option<usize>> = HashMap::new();
        for row in 0..block.len() {
            let number = number(&block, row, by);
            let place = match known.get(&number) {
                Some(place) => *place,
                None => {
                    let key = number.map(|number| key(tape, &block, by, number));
                    let mut place = places.get(&key).copied();
                    if place.is_none() && done.len() < MOST_KEYS {
                        place = Some(done.len());
                        places.insert(key.clone(), done.len());
                        done.push((key, Done::new().map_err(|error| at(&error))?));
                    }
                    known.insert(number, place);
                    place
                }
            };
            let place = place.and_then(|place| done.get_mut(place));
            place.map_or(&mut others, |(_, done)| done).add(&block, row);
        }
    }
    done.sort_by(|(key, a), (other, b)| b.requests.cmp(&a.requests).then(key.cmp(other)));
    for (_, more) in done.drain(top.min(done.len())..) {
        others.merge(&more);
    }
    let all = done.iter().map(|(_, done)| done.requests);
    let requests = all.sum::<u64>() + others.requests;
    let rows = done.into_iter().map(|(key, done)| done.row(key, requests));
    Ok(Report {
        by: name,
        requests,
        rows: rows.collect(),
        others: (others.requests > 0).then(|| others.row(None, requests)),
    })
}

/// What tells a row's key within its block.
fn number(block: &Block, row: usize, by: By) -> Option<u64> {
    match by {
        By::Process => block.processes().get(row).map(u64::from),
        By::Cgroup => block.cgroups().get(row),
        By::File => block.files().get(row),
        By::Device => block.devices().get(row).map(|device| u64::from(device.0)),
    }
}

/// A name, or a number that has none. Processes of one name are one.
fn key(tape: &TapeFile, block: &Block, by: By, number: u64) -> String {
    let named = |kind| {
        tape.names()
            .get(kind, number)
            .map(|name| (**name).to_owned())
    };
    let place = usize::try_from(number).unwrap_or(usize::MAX);
    let name = match by {
        By::Process => {
            block
                .process_table()
                .get(place)
                .map(|process| match process.name.is_empty() {
                    true => format!("pid {}", process.pid),
                    false => (*process.name).to_owned(),
                })
        }
        By::Cgroup => named(NameKind::Cgroup),
        By::File => named(NameKind::File),
        By::Device => tape.devices().get(place).map(|device| device.name.clone()),
    };
    name.unwrap_or_else(|| number.to_string())
}

impl Done {
    fn new() -> Result<Done, hdrhistogram::CreationError> {
        Ok(Done {
            requests: 0,
            transfers: 0,
            bytes: 0,
            latency_ns: Histogram::new(DIGITS)?,
        })
    }

    fn add(&mut self, block: &Block, row: usize) {
        self.requests += 1;
        if block
            .ops()
            .get(row)
            .copied()
            .is_some_and(Op::transfers_data)
        {
            let bytes = block.lengths_bytes().get(row).copied().unwrap_or(0);
            self.transfers += 1;
            self.bytes = self.bytes.saturating_add(bytes);
        }
        if let Some(latency_ns) = block.latencies_ns().get(row) {
            // Above a day none is told apart, so that a damaged one asks for no memory.
            self.latency_ns += latency_ns.min(86_400_000_000_000);
        }
    }

    fn merge(&mut self, more: &Done) {
        self.requests += more.requests;
        self.transfers += more.transfers;
        self.bytes = self.bytes.saturating_add(more.bytes);
        self.latency_ns += &more.latency_ns;
    }

    fn row(&self, key: Option<String>, of_requests: u64) -> Row {
        let latency = |quantile| {
            let known = !self.latency_ns.is_empty();
            known.then(|| self.latency_ns.value_at_quantile(quantile))
        };
        Row {
            key,
            requests: self.requests,
            share: self.requests as f64 / of_requests.max(1) as f64,
            bytes: self.bytes,
            mean_bytes: self.bytes.checked_div(self.transfers),
            latency_p50_ns: latency(0.5),
            latency_p99_ns: latency(0.99),
        }
    }
}

fn table(report: &Report) -> Table {
    let head = [
        report.by,
        "requests",
        "share",
        "MB",
        "mean size",
        "p50",
        "p99",
    ];
    let mut table = Table::new(head);
    let mut show = |key: String, row: &Row| {
        let nanos = |ns: Option<u64>| ns.map_or("-".to_owned(), |ns| units::nanos(ns as f64));
        table.row([
            key,
            units::count(row.requests),
            units::percent(row.requests, report.requests),
            units::significant(row.bytes as f64 / 1e6),
            row.mean_bytes.map_or("-".to_owned(), units::bytes),
            nanos(row.latency_p50_ns),
            nanos(row.latency_p99_ns),
        ]);
    };
    for row in &report.rows {
        let key = row.key.as_deref().map_or("(not told)".to_owned(), end_of);
        show(key, row);
    }
    if let Some(others) = &report.others {
        show("(others)".to_owned(), others);
    }
    table
}

/// The end of a long name tells more than its beginning.
fn end_of(name: &str) -> String {
    let excess = name.chars().count().saturating_sub(KEY_WIDTH);
    if excess == 0 {
        return fit(name, KEY_WIDTH);
    }
    let end: String = name.chars().skip(excess + 1).collect();
    fit(&format!("…{end}"), KEY_WIDTH)
}
