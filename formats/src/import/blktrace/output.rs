//! From records to the tape: events are paired, requests written; notes become anchors and names.

use std::io::Write;
use std::sync::Arc;

use blktrace_parse::{DeviceNumber, Gap, Kind, Payload, Record};
use foldhash::HashMap;

use super::devices::Devices;
use super::header::header;
use super::origins::Origins;
use super::report::Report;
use super::survey::Survey;
use super::{ImportError, Options};
use crate::blktrace::{event_of, step_of};
use crate::event::Step;
use crate::pairing::{Limits, Pairing};
use crate::request::{DeviceIndex, Process, Request};
use crate::tape::{Anchor, Counters, Loss, LossReason, TapeWriter};

/// Most names of processes that are remembered.
const MAX_PROCESSES: usize = 1 << 16;
/// Longest name of a process: the kernel's `TASK_COMM_LEN`.
const MAX_NAME_BYTES: usize = 16;

/// The tape that is being written.
pub(super) struct Output<W: Write> {
    writer: TapeWriter<W>,
    pairing: Pairing,
    devices: Devices,
    origins: Origins,
    names: HashMap<u32, Arc<str>>,
    unnamed: Arc<str>,
    /// Time of the tape's zero, on the trace's clock.
    start_ns: u64,
    /// Time of the latest record, on the tape's clock.
    now_ns: u64,
    report: Report,
    released: Vec<Request>,
}

impl<W: Write> Output<W> {
    /// Begins the tape: its header, and the devices that are known.
    pub fn start(survey: &Survey, options: &Options, sink: W) -> Result<Output<W>, ImportError> {
        let devices = Devices::new(options, survey);
        let header = header(options, survey, &devices);
        let for_tape = devices.for_tape(survey);
        Ok(Output {
            writer: TapeWriter::create(sink, &header, &for_tape, options.level)?,
            pairing: Pairing::new(devices.rules(), Limits::default(), 0, None),
            devices,
            origins: Origins::default(),
            names: HashMap::default(),
            unnamed: Arc::from(""),
            start_ns: survey.start_ns,
            now_ns: 0,
            report: Report::default(),
            released: Vec::new(),
        })
    }

    /// Requests written so far.
    pub fn requests(&self) -> u64 {
        self.writer.requests()
    }

    /// Takes the next record.
    pub fn take(&mut self, record: &Record<'_>) -> Result<(), ImportError> {
        let Some(time_ns) = record.time_ns.checked_sub(self.start_ns) else {
            return self.take_early(record);
        };
        self.now_ns = self.now_ns.max(time_ns);
        if let Some(step) = step_of(record) {
            return self.event(record, step, time_ns);
        }
        if record.action.is_note() || record.action.kind() == Kind::Remap {
            self.payload(record)?;
        }
        if !record.action.kind().is_known() {
            self.report.unknown_actions += 1;
            self.undecodable();
        }
        Ok(())
    }

    /// A note may be written before the trace begins on another CPU; anything else cannot.
    fn take_early(&mut self, record: &Record<'_>) -> Result<(), ImportError> {
        if record.action.is_note() {
            return self.payload(record);
        }
        self.report.before_start += 1;
        self.undecodable();
        Ok(())
    }

    fn event(&mut self, record: &Record<'_>, step: Step, time_ns: u64) -> Result<(), ImportError> {
        let Some(device) = self.device(record.device)? else {
            self.malformed();
            return Ok(());
        };
        let process = || process_of(&self.names, &self.unnamed, record.pid);
        let Some(event) = event_of(record, step, time_ns, device, process) else {
            self.malformed();
            return Ok(());
        };
        self.devices.count(device, step);
        self.pairing.event(event);
        Ok(())
    }

    /// The device's index in the tape; it is added if it is new. `None` if there are too many.
    #[inline]
    fn device(&mut self, number: DeviceNumber) -> Result<Option<DeviceIndex>, ImportError> {
        match self.devices.index(number) {
            Some(index) => Ok(Some(index)),
            None => self.add_device(number),
        }
    }

    #[cold]
    fn add_device(&mut self, number: DeviceNumber) -> Result<Option<DeviceIndex>, ImportError> {
        let Some((index, rules)) = self.devices.find_late(number) else {
            return Ok(None);
        };
        self.pairing.add_device(rules, self.now_ns);
        if let Some(device) = self.devices.for_tape_at(index) {
            self.writer.device(&device)?;
        }
        Ok(Some(index))
    }

    fn payload(&mut self, record: &Record<'_>) -> Result<(), ImportError> {
        match record.payload() {
            Payload::Process(name) => self.name(record.pid, name),
            Payload::WallClock {
                seconds,
                nanoseconds,
            } => self.wall_clock(record.time_ns, seconds, nanoseconds)?,
            Payload::Message(_) => self.report.messages += 1,
            Payload::Remap { from, to, .. } => self.origins.add(from, to),
            Payload::Malformed(_) => self.malformed(),
            _ => {}
        }
        Ok(())
    }

    fn name(&mut self, pid: u32, name: &[u8]) {
        if self.names.len() >= MAX_PROCESSES && !self.names.contains_key(&pid) {
            return;
        }
        let name = name.get(..MAX_NAME_BYTES).unwrap_or(name);
        self.names.insert(pid, String::from_utf8_lossy(name).into());
    }

    /// The wall clock at a moment. The first one gives that of the tape's zero.
    fn wall_clock(
        &mut self,
        time_ns: u64,
        seconds: u32,
        nanoseconds: u32,
    ) -> Result<(), ImportError> {
        let wall_ns = i64::from(seconds) * 1_000_000_000 + i64::from(nanoseconds);
        let is_first = !std::mem::replace(&mut self.report.has_wall_clock, true);
        let anchor = match time_ns.checked_sub(self.start_ns) {
            Some(time_ns) if !is_first => Anchor { time_ns, wall_ns },
            Some(since_zero_ns) => at_zero(wall_ns, -i128::from(since_zero_ns)),
            None => at_zero(wall_ns, i128::from(self.start_ns - time_ns)),
        };
        if anchor.time_ns > 0 || is_first {
            self.writer.anchor(anchor)?;
        }
        Ok(())
    }

    /// Records are missing, which is known by now.
    pub fn lost(&mut self, gap: &Gap) -> Result<(), ImportError> {
        self.writer.loss(Loss {
            from_ns: gap.after_ns.saturating_sub(self.start_ns),
            to_ns: gap.before_ns.saturating_sub(self.start_ns),
            events: gap.records,
            requests: None,
            reason: LossReason::SequenceGap,
        })?;
        Ok(())
    }

    /// Records are missing from here on, until [`Output::gap_ends`].
    pub fn gap_begins(&mut self) {
        self.pairing.gap_begins();
    }

    /// Nothing is missing any more.
    pub fn gap_ends(&mut self) {
        self.pairing.gap_ends();
    }

    /// Records before this one, of the trace's time `time_ns`, are missing: what is open is in
    /// doubt.
    pub fn doubt(&mut self, time_ns: u64) {
        self.pairing.lost(time_ns.saturating_sub(self.start_ns));
    }

    /// Completions may be missing from here on: what is open is in doubt.
    pub fn doubt_from_now(&mut self) {
        self.pairing.lost(self.now_ns);
    }

    /// Writes the requests whose turn has come.
    pub fn release(&mut self) -> Result<(), ImportError> {
        self.pairing.release(self.now_ns, &mut self.released);
        self.write()
    }

    /// Writes everything and the tape's end.
    pub fn finish(mut self) -> Result<(W, Report), ImportError> {
        self.pairing.finish(&mut self.released);
        self.write()?;
        let (sink, summary) = self.writer.finish()?;
        let report = Report {
            summary,
            devices: self.devices.into_reports(),
            remaps: self.origins.into_remaps(),
            ..self.report
        };
        Ok((sink, report))
    }

    fn write(&mut self) -> Result<(), ImportError> {
        for request in self.released.drain(..) {
            self.writer.push(&request)?;
        }
        let counters = self.pairing.take_counters();
        self.writer.count(&counters);
        Ok(())
    }

    fn malformed(&mut self) {
        self.report.malformed += 1;
        self.undecodable();
    }

    fn undecodable(&mut self) {
        self.writer.count(&Counters {
            undecodable: 1,
            ..Counters::default()
        });
    }
}

/// The anchor of the tape's zero, when the wall clock stood at `wall_ns` so long before it.
fn at_zero(wall_ns: i64, until_zero_ns: i128) -> Anchor {
    let wall_ns = i128::from(wall_ns) + until_zero_ns;
    Anchor {
        time_ns: 0,
        wall_ns: i64::try_from(wall_ns).unwrap_or(if wall_ns < 0 { i64::MIN } else { i64::MAX }),
    }
}

fn process_of(names: &HashMap<u32, Arc<str>>, unnamed: &Arc<str>, pid: u32) -> Process {
    Process {
        pid,
        name: Arc::clone(names.get(&pid).unwrap_or(unnamed)),
    }
}
