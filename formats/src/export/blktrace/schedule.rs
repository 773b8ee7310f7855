//! From requests in the order of the tape to events in the order of time.
//!
//! A request stands in a heap once, at its next step: queued, then issued, then done. The heap holds
//! what is held back for order, and what is in flight.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::{io, vec};

use blktrace_parse::{Kind, Record};

use super::numbers::Numbers;
use super::survey::Survey;
use super::traced::Traced;
use super::{Report, START_NS, Source};
use crate::export::Losses;
use crate::request::Request;
use crate::tape::{ErrorCodes, Layer};

/// Most requests in flight; what is issued beyond has no completion.
const MAX_IN_FLIGHT: usize = 1 << 18;
/// Earliest time of an event.
const FIRST_NS: u64 = 1;

/// An event, and the name of its process if the tape has it.
#[derive(Clone, Copy, Debug)]
pub(in crate::export) struct Event<'a> {
    pub record: Record<'static>,
    pub name: Option<&'a Arc<str>>,
}

/// What takes the events.
type Emit<'a> = dyn FnMut(&Event<'_>) -> io::Result<()> + 'a;

/// The requests on their way through the trace.
#[derive(Debug)]
pub(in crate::export) struct Schedule {
    numbers: Numbers,
    codes: ErrorCodes,
    /// The tape's zero on the trace's clock.
    origin_ns: u64,
    heap: BinaryHeap<Reverse<Entry>>,
    /// How many in the heap are held back for order.
    held: usize,
    look_ahead: usize,
    in_flight: usize,
    /// Number of the next entry.
    entries: u64,
    /// Rows of the tape that were taken before their turn.
    early_rows: vec::IntoIter<u64>,
    next_early: Option<u64>,
    rows: u64,
    /// Time of the latest event.
    now_ns: u64,
    /// Number of the latest event of each CPU.
    sequences: Vec<u32>,
    report: Report,
}

/// A request at its next step.
#[derive(Debug)]
struct Entry {
    at_ns: u64,
    number: u64,
    step: Step,
    issue_ns: u64,
    latency_ns: Option<u64>,
    /// Counts in [`Schedule::held`] until it is queued.
    is_held: bool,
    was_moved: bool,
    traced: Traced,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Queued,
    Issued,
    Done,
}

impl Entry {
    /// Events of one CPU at one time stay together, as blkparse prints them.
    fn turn(&self) -> (u64, u32, u64) {
        (self.at_ns, self.traced.cpu, self.number)
    }
}

impl Schedule {
    /// The schedule of the requests that `survey` has looked at.
    pub fn new(survey: Survey, source: &Source<'_>) -> Schedule {
        let look_ahead = survey.look_ahead();
        let Survey { lead_ns, early, .. } = survey;
        let rows: Vec<u64> = early.iter().map(|(row, _)| *row).collect();
        let mut early_rows = rows.into_iter();
        let mut schedule = Schedule {
            numbers: Numbers::new(source.devices),
            codes: source.error_codes,
            origin_ns: START_NS + lead_ns,
            heap: BinaryHeap::new(),
            held: 0,
            look_ahead,
            in_flight: 0,
            entries: 0,
            next_early: early_rows.next(),
            early_rows,
            rows: 0,
            now_ns: 0,
            sequences: Vec::new(),
            report: Report::default(),
        };
        for (_, request) in &early {
            schedule.begin(request, false);
        }
        schedule
    }

    /// Counts something that the trace cannot say.
    pub fn lose(&mut self, shortcoming: &'static str) {
        self.report.losses.count(shortcoming);
    }

    /// Takes the next request of the tape; emits what comes before all that may follow.
    pub fn push(&mut self, request: &Request, emit: &mut Emit<'_>) -> io::Result<()> {
        let row = self.rows;
        self.rows += 1;
        if self.next_early == Some(row) {
            self.next_early = self.early_rows.next();
            return Ok(());
        }
        self.begin(request, true);
        while self.held > self.look_ahead {
            self.step(emit)?;
        }
        Ok(())
    }

    /// Emits everything.
    pub fn finish(mut self, emit: &mut Emit<'_>) -> io::Result<Report> {
        while self.step(emit)? {}
        Ok(self.report)
    }

    fn begin(&mut self, request: &Request, is_held: bool) {
        let losses = &mut self.report.losses;
        let Some(device) = self.numbers.get(request.device) else {
            losses.count("left out: the tape does not have its device");
            return;
        };
        let Some(traced) = Traced::new(request, device, self.codes, losses) else {
            return;
        };
        let Some(issue_ns) = self.origin_ns.checked_add(request.time_ns) else {
            losses.count("left out: later than a record can say");
            return;
        };
        count_additions(request, traced.layer, &mut self.report.additions);
        let queue_ns = request.queue_ns.unwrap_or(0);
        self.held += usize::from(is_held);
        self.insert(Entry {
            at_ns: issue_ns.saturating_sub(queue_ns).max(FIRST_NS),
            number: 0,
            step: Step::Queued,
            issue_ns,
            latency_ns: request.latency_ns,
            is_held,
            was_moved: false,
            traced,
        });
    }

    fn insert(&mut self, entry: Entry) {
        let number = self.entries;
        self.entries += 1;
        self.heap.push(Reverse(Entry { number, ..entry }));
    }

    /// Emits the next step; says whether there was one.
    fn step(&mut self, emit: &mut Emit<'_>) -> io::Result<bool> {
        let Some(Reverse(mut entry)) = self.heap.pop() else {
            return Ok(false);
        };
        if entry.at_ns < self.now_ns {
            if !entry.was_moved {
                self.lose("moved to a later time: too far from its place in the tape");
            }
            entry.was_moved = true;
            entry.at_ns = self.now_ns;
        }
        self.now_ns = entry.at_ns;
        match entry.step {
            Step::Queued => self.queued(entry, emit),
            Step::Issued => self.issued(entry, emit),
            Step::Done => self.done(&entry, emit),
        }?;
        Ok(true)
    }

    fn queued(&mut self, entry: Entry, emit: &mut Emit<'_>) -> io::Result<()> {
        self.held -= usize::from(entry.is_held);
        self.emit(&entry, Kind::Queue, emit)?;
        if entry.traced.layer == Layer::Device {
            self.emit(&entry, Kind::GetRequest, emit)?;
            if !entry.traced.is_flush_sequence() {
                self.emit(&entry, Kind::Insert, emit)?;
            }
        }
        self.insert(Entry {
            at_ns: entry.issue_ns,
            step: Step::Issued,
            ..entry
        });
        Ok(())
    }

    fn issued(&mut self, entry: Entry, emit: &mut Emit<'_>) -> io::Result<()> {
        self.emit(&entry, Kind::Issue, emit)?;
        let Some(latency_ns) = entry.latency_ns else {
            return Ok(());
        };
        let Some(at_ns) = entry.issue_ns.checked_add(latency_ns) else {
            self.lose("completion left out: later than a record can say");
            return Ok(());
        };
        if self.in_flight >= MAX_IN_FLIGHT {
            self.lose("completion left out: more than 262144 requests in flight");
            return Ok(());
        }
        self.in_flight += 1;
        self.insert(Entry {
            at_ns,
            step: Step::Done,
            ..entry
        });
        Ok(())
    }

    fn done(&mut self, entry: &Entry, emit: &mut Emit<'_>) -> io::Result<()> {
        self.in_flight -= 1;
        self.emit(entry, Kind::Complete, emit)?;
        if entry.traced.is_flush_sequence() {
            let end = entry.traced.sequence_end(entry.at_ns);
            self.emit_record(end, None, emit)?;
        }
        Ok(())
    }

    fn emit(&mut self, entry: &Entry, kind: Kind, emit: &mut Emit<'_>) -> io::Result<()> {
        let record = entry.traced.record(kind, entry.at_ns);
        self.emit_record(record, entry.traced.name.as_ref(), emit)
    }

    fn emit_record(
        &mut self,
        mut record: Record<'static>,
        name: Option<&Arc<str>>,
        emit: &mut Emit<'_>,
    ) -> io::Result<()> {
        let cpu = record.cpu as usize;
        if self.sequences.len() <= cpu {
            self.sequences.resize(cpu + 1, 0);
        }
        if let Some(sequence) = self.sequences.get_mut(cpu) {
            *sequence = sequence.wrapping_add(1);
            record.sequence = *sequence;
        }
        emit(&Event { record, name })
    }
}

fn count_additions(request: &Request, layer: Layer, additions: &mut Losses) {
    match layer {
        Layer::Queue => {
            additions.count("an issue (D) added when it was queued: recorded at the queue layer");
        }
        Layer::Device if request.queue_ns.is_none() => {
            additions.count("queued (Q) when it was issued: the tape has no queue time");
        }
        Layer::Device => {}
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.turn() == other.turn()
    }
}

impl Eq for Entry {}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.turn().cmp(&other.turn())
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
