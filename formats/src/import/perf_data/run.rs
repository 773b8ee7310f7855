//! The pass over all records.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::sync::Arc;

use super::attr::Attrs;
use super::error::PerfDataError;
use super::features::{Features, feature};
use super::formats::Formats;
use super::head::{MAX_TRACING_BYTES, Start};
use super::names::Names;
use super::records::{Record, Records, kind};
use super::report::Report;
use super::rounds::Rounds;
use super::sample::{sample, time_of_record};
use super::{Options, Progress};
use crate::byte_order::ByteOrder;
use crate::event::{Event, Step};
use crate::import::events::EventTape;
use crate::request::Process;
use crate::shared_names::SharedNames;
use crate::tape::{Clock, Header, TapeError};
use crate::tracepoint::BlockTracepoint;

/// Records between two calls of the progress callback.
const PROGRESS_EVERY: u64 = 1 << 16;
/// `dev_t` of the kernel: the minor number has 20 bits.
const MINOR_BITS: u32 = 20;

/// What waits for its turn.
#[derive(Debug)]
enum Item {
    Event((u32, u32), Event),
    Lost(u64),
    Called(u32, Arc<str>),
    Forked(u32, u32),
}

/// Reads everything.
pub(super) fn run<R: Read, W: Write>(
    source: R,
    start: Start,
    options: &Options,
    sink: W,
    progress: &mut dyn FnMut(&Progress),
) -> Result<(W, Report), PerfDataError> {
    let Start {
        order,
        mut attrs,
        mut features,
        records_bytes,
        offset,
    } = start;
    let mut records = Records::new(source, order, records_bytes, offset);
    let mut report = Report::default();
    // In a pipe, what is needed to understand samples comes in records before them.
    let mut first = records.next()?;
    while let Some(record) = first {
        if !take_head(record, &mut records, &mut attrs, &mut features, order)? {
            break;
        }
        report.records += 1;
        first = records.next()?;
    }
    let formats = usable(&attrs, features.formats.take())?;
    let tape = EventTape::begin(
        sink,
        &header(options, &attrs, &features),
        options.level,
        options.layer,
    )?;
    let mut run = Run {
        order,
        attrs,
        tracepoints: formats.block,
        rounds: Rounds::new(),
        names: Names::new(),
        shared_names: SharedNames::new(),
        tape,
        lost: 0,
        lost_samples: 0,
        report: Report {
            unusable: formats.unusable,
            ..report
        },
    };
    while let Some(record) = first {
        run.record(record, &mut records)?;
        if run.report.records.is_multiple_of(PROGRESS_EVERY) {
            progress(&Progress {
                bytes: records.offset(),
                events: run.report.events,
            });
        }
        first = records.next()?;
    }
    run.report.damage = records.damage;
    run.finish(&features, &formats.others)
}

/// What the samples are read by.
fn usable(attrs: &Attrs, formats: Option<Formats>) -> Result<Formats, PerfDataError> {
    let formats = match formats {
        Some(formats) => formats,
        None if attrs.len() > 0 && !attrs.have_tracepoints() => {
            return Err(PerfDataError::NoBlockEvents {
                found: "no tracepoints".to_owned(),
            });
        }
        None => return Err(PerfDataError::NoFormats),
    };
    if formats.block.is_empty() && formats.unusable.is_empty() {
        return Err(PerfDataError::NoBlockEvents {
            found: formats.others.join(", "),
        });
    }
    if !attrs.can_be_told_apart() {
        return Err(PerfDataError::Ambiguous);
    }
    Ok(formats)
}

/// Takes a record of what stands in a file's header; says whether it is one.
fn take_head<R: Read>(
    record: Record,
    records: &mut Records<R>,
    attrs: &mut Attrs,
    features: &mut Features,
    order: ByteOrder,
) -> Result<bool, PerfDataError> {
    let body = records.body();
    match record.kind {
        kind::HEADER_ATTR => {
            let size = order.u32_at(body, 4).unwrap_or(0) as usize;
            let size = size.min(body.len());
            attrs.add(&body[..size], &body[size..], order);
        }
        kind::HEADER_FEATURE => {
            let number = order.u64_at(body, 0).unwrap_or(0);
            features.take(number, body.get(8..).unwrap_or_default(), order)?;
        }
        kind::HEADER_TRACING_DATA => {
            let bytes = u64::from(order.u32_at(body, 0).unwrap_or(0));
            let tracing = records.payload(bytes, MAX_TRACING_BYTES)?;
            features.take(feature::TRACING_DATA, &tracing, order)?;
        }
        // Others that stand before the samples, but for what is of the samples' time.
        kind::SAMPLE | kind::LOST | kind::COMM | kind::FORK | kind::LOST_SAMPLES => {
            return Ok(false);
        }
        kind::FINISHED_ROUND => return Ok(false),
        kind::AUXTRACE => {
            let bytes = order.u64_at(body, 0).unwrap_or(0);
            records.payload(bytes, 0)?;
        }
        _ => {}
    }
    Ok(true)
}

fn header(options: &Options, attrs: &Attrs, features: &Features) -> Header {
    let source = match attrs.clock() {
        None => "perf clock".to_owned(),
        Some(0) => "CLOCK_REALTIME".to_owned(),
        Some(1) => "CLOCK_MONOTONIC".to_owned(),
        Some(4) => "CLOCK_MONOTONIC_RAW".to_owned(),
        Some(7) => "CLOCK_BOOTTIME".to_owned(),
        Some(11) => "CLOCK_TAI".to_owned(),
        Some(other) => format!("clock {other}"),
    };
    let wall = match features.moment {
        Some(_) => "",
        None => "the wall clock and ",
    };
    Header {
        tool: options.tool.clone(),
        host: features.host.clone(),
        os: features
            .release
            .as_ref()
            .map(|release| format!("Linux {release}")),
        clock: Clock {
            source,
            resolution_ns: 1,
        },
        backend: "import:perf".to_owned(),
        notes: vec![format!(
            "imported from a perf.data, which does not tell {wall}the devices' names; recorded at the {} layer",
            options.layer
        )],
        ..Header::default()
    }
}

/// An import under way.
struct Run<W: Write> {
    order: ByteOrder,
    attrs: Attrs,
    tracepoints: HashMap<u16, BlockTracepoint>,
    rounds: Rounds<Item>,
    names: Names,
    shared_names: SharedNames,
    tape: EventTape<W>,
    /// Events that were lost by what the rings say.
    lost: u64,
    /// And by what the counters say, which count the same ones.
    lost_samples: u64,
    report: Report,
}

impl<W: Write> Run<W> {
    fn record<R: Read>(
        &mut self,
        record: Record,
        records: &mut Records<R>,
    ) -> Result<(), PerfDataError> {
        self.report.records += 1;
        let (body, order) = (records.body(), self.order);
        let number = |at| order.u32_at(body, at);
        match record.kind {
            kind::SAMPLE => {
                self.sample(body);
                return Ok(self.release()?);
            }
            kind::FINISHED_ROUND => {
                self.rounds.end_round();
                return Ok(self.release()?);
            }
            kind::LOST => match order.u64_at(body, 8) {
                Some(events) => {
                    self.lost = self.lost.saturating_add(events);
                    self.rounds.push(self.time(body), Item::Lost(events));
                }
                None => self.malformed(),
            },
            kind::LOST_SAMPLES => {
                // Set where a program of BPF left samples out.
                const FILTERED: u16 = 1 << 15;
                let events = order
                    .u64_at(body, 0)
                    .filter(|_| record.flags & FILTERED == 0);
                self.lost_samples = self.lost_samples.saturating_add(events.unwrap_or(0));
            }
            kind::COMM => {
                if let (Some(thread), Some(name)) = (number(4), body.get(8..)) {
                    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
                    let item = Item::Called(thread, self.shared_names.share(name));
                    self.rounds.push(self.time(body), item);
                }
            }
            kind::FORK => {
                if let (Some(child), Some(parent)) = (number(8), number(12)) {
                    let time = order.u64_at(body, 16).filter(|time| *time > 0);
                    self.rounds.push(time, Item::Forked(parent, child));
                }
            }
            _ => {
                let mut none = Features::default();
                let mut attrs = std::mem::take(&mut self.attrs);
                let taken = take_head(record, records, &mut attrs, &mut none, order);
                self.attrs = attrs;
                taken?;
            }
        }
        Ok(())
    }

    fn time(&self, body: &[u8]) -> Option<u64> {
        time_of_record(self.attrs.of_record(body, self.order)?, body, self.order)
    }

    fn sample(&mut self, body: &[u8]) {
        let order = self.order;
        let Some(attr) = self.attrs.of_sample(body, order) else {
            return self.malformed();
        };
        if !attr.is_tracepoint {
            self.report.other_samples += 1;
            return;
        }
        let Some(sample) = sample(attr, body, order) else {
            return self.malformed();
        };
        let tracepoint = order.u16_at(sample.raw, 0);
        let tracepoint = tracepoint.and_then(|id| self.tracepoints.get(&id));
        let Some(tracepoint) = tracepoint else {
            self.report.other_samples += 1;
            return;
        };
        let Some(record) = tracepoint.decode(sample.raw) else {
            return self.malformed();
        };
        let thread = sample.thread.or(record.thread);
        let process = thread
            .filter(|_| record.step == Step::Queued)
            .map(|pid| Process {
                pid,
                name: self.shared_names.share(record.comm),
            });
        let event = Event {
            process,
            ..record.event(sample.time, sample.cpu)
        };
        let device = (
            record.dev >> MINOR_BITS,
            record.dev & ((1 << MINOR_BITS) - 1),
        );
        self.report.events += 1;
        self.report.queued += u64::from(record.step == Step::Queued);
        self.report.issued += u64::from(record.step == Step::Issued);
        self.rounds
            .push(Some(sample.time), Item::Event(device, event));
    }

    fn malformed(&mut self) {
        self.report.malformed += 1;
        self.tape.undecodable();
    }

    /// Lets out what has its turn.
    fn release(&mut self) -> Result<(), TapeError> {
        while let Some(item) = self.rounds.pop() {
            match item {
                Item::Event(device, mut event) => {
                    let unnamed = event
                        .process
                        .as_mut()
                        .filter(|process| process.name.is_empty());
                    if let Some(process) = unnamed {
                        process.name = self.names.of(process.pid);
                    }
                    self.tape.event(device, event)?;
                }
                Item::Lost(events) => self.tape.lost(events)?,
                Item::Called(thread, name) => self.names.called(thread, name),
                Item::Forked(parent, child) => self.names.forked(parent, child),
            }
        }
        Ok(())
    }

    fn finish(
        mut self,
        features: &Features,
        others: &[String],
    ) -> Result<(W, Report), PerfDataError> {
        self.rounds.end();
        self.release()?;
        if self.report.events == 0 {
            return Err(PerfDataError::NoBlockEvents {
                found: match others.is_empty() {
                    true => "block tracepoints without a sample".to_owned(),
                    false => others.join(", "),
                },
            });
        }
        // What the rings told is part of what the counters count, which do not say when.
        let untold = self.lost_samples.saturating_sub(self.lost);
        if untold > 0 {
            self.tape.lost_somewhere(untold)?;
        }
        if let Some(moment) = features.moment {
            self.tape.anchor(moment.clock_ns, moment.wall_ns)?;
        }
        let mut report = self.report;
        report.late_events = self.rounds.late;
        let (sink, summary) = self.tape.finish()?;
        report.summary = summary;
        Ok((sink, report))
    }
}
