//! The pass over all events, in the order of their times.

use std::io::{Read, Seek, Write};

use etl_parse::storport::StorPort;
use etl_parse::{Event, EventId, Reader};

use super::devices::{Devices, Disk};
use super::error::ImportError;
use super::files::{Files, FirstFiles};
use super::header::header;
use super::people::People;
use super::providers::Tally;
use super::report::Report;
use super::requests::{Origin, Requests, Traced};
use super::storports::StorPorts;
use super::survey::survey;
use super::{Options, Progress};
use crate::import::sorted::{SortedTape, WINDOW_NS};
use crate::tape::{Counters, Loss, LossReason, TapeError, name_id};

/// Events between two calls of the progress callback.
const PROGRESS_EVERY: u64 = 1 << 18;

/// An import under way.
pub(super) struct Run<R, W: Write> {
    reader: Reader<R>,
    people: People,
    named: Option<Named>,
    requests: Requests,
    storports: StorPorts,
    tally: Tally,
    malformed: u64,
    /// Time of the latest event, since the start of the trace.
    end_ticks: i64,
    devices: Devices,
    /// Requests of more devices than are believed.
    refused: u64,
    output: SortedTape<W>,
}

impl<R: Read + Seek, W: Write> Run<R, W> {
    /// Opens the trace and begins the tape.
    pub fn start(source: R, options: &Options, sink: W) -> Result<Run<R, W>, ImportError> {
        let mut reader = Reader::open(source)?;
        let survey = survey(&mut reader, options.file_names)?;
        let clock = *reader.clock();
        let header = header(options, reader.header(), &clock, &survey, survey.origin);
        let wall_ns = Some(clock.start_wall_ns());
        Ok(Run {
            people: survey.people,
            named: survey.files.map(Named::new),
            requests: Requests::new(clock, survey.origin),
            storports: StorPorts::default(),
            tally: Tally::default(),
            malformed: 0,
            end_ticks: reader.header().start_ticks,
            devices: Devices::new(survey.disks),
            refused: 0,
            output: SortedTape::start(sink, &header, options.level, wall_ns, WINDOW_NS)?,
            reader,
        })
    }

    /// Reads everything and finishes the tape.
    pub fn run(mut self, progress: &mut dyn FnMut(&Progress)) -> Result<(W, Report), ImportError> {
        while let Some(event) = self.reader.next_event()? {
            self.tally.add(&event);
            self.end_ticks = self.end_ticks.max(event.ticks.unwrap_or(i64::MIN));
            if let Some(named) = &mut self.named {
                named.files.learn(&event);
            }
            if is_of_interest(&event) {
                self.malformed += u64::from(event.id == EventId::Malformed);
                self.people.learn(&event);
                let traced = self.requests.take(&event, &self.people);
                let traced = traced.map(|(number, traced)| (Disk::Number(number), traced));
                let traced =
                    traced.or_else(|| storport(&event, &mut self.requests, &mut self.storports));
                if let Some((disk, mut traced)) = traced {
                    if let Some(named) = &mut self.named {
                        named.name(&mut traced, &mut self.output)?;
                    }
                    write(
                        disk,
                        traced,
                        &mut self.devices,
                        &mut self.refused,
                        &mut self.output,
                    )?;
                }
            }
            if self.tally.events().is_multiple_of(PROGRESS_EVERY) {
                progress(&Progress {
                    bytes: self.reader.bytes_read(),
                    of_bytes: self.reader.file_bytes(),
                    events: self.tally.events(),
                    requests: self.output.requests(),
                });
            }
        }
        self.finish()
    }

    fn finish(mut self) -> Result<(W, Report), ImportError> {
        self.output.drain()?;
        self.requests.inits.finish();
        self.storports.finish();
        if self.requests.origin().is_none() {
            return Err(ImportError::NoDiskIo {
                tally: Box::new(self.tally),
                lost_events: u64::from(self.reader.losses().events),
            });
        }
        if self.requests.origin() == Some(Origin::StorPort) && self.output.requests() == 0 {
            return Err(ImportError::StorPortWithoutPlace {
                counts: self.storports.counts,
            });
        }
        self.losses()?;
        let mut report = self.report();
        self.output.count(&counters(&report));
        let (sink, summary) = self.output.finish()?;
        report.summary = summary;
        Ok((sink, report))
    }

    /// Writes what the session lost. When it lost it, it tells at best for all losses together.
    fn losses(&mut self) -> Result<(), ImportError> {
        let losses = *self.reader.losses();
        let clock = self.reader.clock();
        let time_ns = |ticks: i64| {
            let ns = clock.since_start_ns(ticks);
            ns.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64
        };
        let start_ticks = self.reader.header().start_ticks;
        let (from, to) = losses.flagged_span.unwrap_or((start_ticks, self.end_ticks));
        let (from_ns, to_ns) = (time_ns(from), time_ns(to));
        let buffers = u64::from(losses.buffers).max(losses.missing_numbers);
        let unexplained = match losses.events == 0 && buffers == 0 {
            true => losses.flagged_buffers,
            false => 0,
        };
        let all = [
            (u64::from(losses.events), LossReason::RingFull),
            // At least one event each.
            (buffers, LossReason::SequenceGap),
            (unexplained, LossReason::Unknown),
        ];
        for (events, reason) in all.into_iter().filter(|(events, _)| *events > 0) {
            let loss = Loss {
                from_ns: 0,
                to_ns: 0,
                events,
                requests: None,
                reason,
            };
            self.output.lost(loss, from_ns, to_ns)?;
        }
        Ok(())
    }

    fn report(&self) -> Report {
        let counts = self.requests.counts;
        let inits = &self.requests.inits;
        Report {
            events: self.tally.events(),
            damage: self.reader.damage().clone(),
            losses: *self.reader.losses(),
            malformed: self.malformed + counts.malformed + self.storports.counts.malformed,
            without_latency: counts.without_response,
            before_zero: self.output.before_zero,
            unfinished: inits.unfinished + self.storports.counts.unfinished,
            storport: self.storports.counts,
            inits_agreed: inits.agreed,
            inits_contradicted: inits.contradicted,
            other_source: counts.other_origin,
            refused: self.refused,
            named_files: self.named.as_ref().map_or(0, |named| named.requests),
            unnamed_files: self.named.as_ref().map_or(0, |named| named.unnamed),
            ..Report::default()
        }
    }
}

/// Names of files, when they are asked for.
struct Named {
    files: Files,
    /// Requests with a name, and reads and writes without.
    requests: u64,
    unnamed: u64,
}

impl Named {
    fn new(first: FirstFiles) -> Named {
        Named {
            files: first.into_files(),
            requests: 0,
            unnamed: 0,
        }
    }

    /// Tells a request's file, if its name is known and the tape takes it.
    fn name<W: Write>(
        &mut self,
        traced: &mut Traced,
        output: &mut SortedTape<W>,
    ) -> Result<(), TapeError> {
        let Some(key) = traced.file_key else {
            return Ok(());
        };
        if let Some(name) = self.files.name(key) {
            let id = name_id(name);
            if output.name_file(id, name)? {
                traced.request.file = Some(id);
            }
        }
        let named = u64::from(traced.request.file.is_some());
        self.requests += named;
        self.unnamed += 1 - named;
        Ok(())
    }
}

/// Adds a request to the tape; before it, its device if that is new.
fn write<W: Write>(
    disk: Disk,
    traced: Traced,
    devices: &mut Devices,
    refused: &mut u64,
    output: &mut SortedTape<W>,
) -> Result<(), ImportError> {
    let Some((index, new)) = devices.index(disk) else {
        *refused += 1;
        return Ok(());
    };
    if let Some(device) = new {
        output.device(&device)?;
    }
    output.push(index, traced.time_ns, traced.request)?;
    Ok(())
}

/// The request of an event of the port driver, if these are read.
#[inline]
fn storport(
    event: &Event<'_>,
    requests: &mut Requests,
    storports: &mut StorPorts,
) -> Option<(Disk, Traced)> {
    let seen = StorPort::parse(event)?;
    if !requests.is_read(Origin::StorPort) {
        return None;
    }
    let Some(now_ns) = event.ticks.and_then(|ticks| requests.time_ns(ticks)) else {
        storports.counts.malformed += 1;
        return None;
    };
    let (address, traced) = storports.take(seen, now_ns)?;
    Some((Disk::At(address), traced))
}

/// What the tape counts besides requests.
fn counters(report: &Report) -> Counters {
    Counters {
        unpaired_issues: report.unfinished,
        undecodable: report.damage.count()
            + report.malformed
            + report.refused
            + report.storport.other_version,
        unpaired_completions: report.storport.without_place,
        ..Counters::default()
    }
}

/// Whether the event may tell of a request, a process or a thread: most of a trace does not.
#[inline]
pub(super) fn is_of_interest(event: &Event<'_>) -> bool {
    match event.id {
        EventId::Kernel { hook } => matches!(hook >> 8, 0x01 | 0x03 | 0x05),
        EventId::Class { .. } | EventId::Provider { .. } | EventId::Malformed => true,
        EventId::Message { .. } | EventId::Other => false,
    }
}
