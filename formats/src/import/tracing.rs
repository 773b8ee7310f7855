//! The kernel's block events as text: what `trace_pipe` gives, and what `perf script` prints of a
//! `perf.data`.
//!
//! ```text
//! jbd2/loop1-8-27282  [000] ..... 5098.921094605: block_rq_issue: 7,1 WSM 24576 () 2164544 + 48 be,0,3 [jbd2]
//!         fio 27282   [000]       5098.921094605: block:block_rq_issue: 7,1 WSM 24576 () 2164544 + 48 [fio]
//! ```
//!
//! Lines become events, and these requests, as those of a live recording do. Lines of other events are
//! left out. A line of a block event that cannot be understood is counted.

use std::io::{BufRead, Write};

use thiserror::Error;

use crate::event::{Event, SECTOR_BYTES, Step, parse_rwbs};
use crate::import::events::EventTape;
use crate::request::{DeviceIndex, Op, Process};
use crate::shared_names::SharedNames;
use crate::tape::{Clock, Header, Layer, Level, Summary, TapeError};
use crate::tracepoint::BLOCK_TRACEPOINTS;

/// Longest line that is read.
const LONGEST_LINE: u64 = 64 << 10;
/// Lines between two calls of the progress callback.
const PROGRESS_EVERY: u64 = 512;

/// How to import.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Program and version for the tape's header, such as `iotape 0.1.0`.
    pub tool: String,
    /// How hard to try to make the tape small.
    pub level: Level,
    /// Where requests are to be seen.
    pub layer: Layer,
    /// Rate of a trace clock that counts ticks, in kHz. Times with a fraction are seconds and need
    /// none.
    pub tick_khz: Option<u64>,
}

/// Why such a text could not be imported.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TracingError {
    /// The source cannot be read.
    #[error("cannot read behind line {line}: {source}")]
    Read {
        /// The last line that was read.
        line: u64,
        /// The system's reason.
        source: std::io::Error,
    },
    /// Times are ticks of an unknown length.
    #[error(
        "line {line}: time {found} is a count of ticks (trace_clock was x86-tsc or counter): say how many kHz they have (--tick-khz)"
    )]
    Ticks {
        /// Line, from 1.
        line: u64,
        /// The time.
        found: String,
    },
    /// No line is a block event.
    #[error("no line is a block event, such as block_rq_issue")]
    Empty,
    /// The tape could not be written.
    #[error(transparent)]
    Tape(#[from] TapeError),
}

/// Whether a text with this beginning has block events, be it others than those that are read; 4,096
/// bytes are enough to tell.
pub fn is_trace(start: &[u8]) -> bool {
    let text = String::from_utf8_lossy(start);
    text.lines().any(|line| Line::split(line).is_some())
}

/// Writes the tape of such a text, in bounded memory. `progress` is told now and then how many lines
/// were read.
///
/// # Errors
/// When the source cannot be read, has no block event, or has times that cannot be understood; or when
/// the sink fails.
pub fn import<W: Write>(
    mut source: impl BufRead,
    options: &Options,
    sink: W,
    progress: &mut dyn FnMut(u64),
) -> Result<(W, Summary), TracingError> {
    let mut run = Run::begin(options, sink)?;
    let mut bytes = Vec::new();
    let mut number = 0u64;
    loop {
        bytes.clear();
        let mut limited = std::io::Read::take(&mut source, LONGEST_LINE);
        let read = limited.read_until(b'\n', &mut bytes);
        let count = read.map_err(|source| TracingError::Read {
            line: number,
            source,
        })?;
        if count == 0 {
            break;
        }
        number += 1;
        run.line(&String::from_utf8_lossy(&bytes), number)?;
        if number.is_multiple_of(PROGRESS_EVERY) {
            progress(number);
        }
    }
    run.finish()
}

/// An import under way.
struct Run<'a, W: Write> {
    options: &'a Options,
    tape: EventTape<W>,
    names: SharedNames,
}

impl<'a, W: Write> Run<'a, W> {
    fn begin(options: &'a Options, sink: W) -> Result<Self, TracingError> {
        let header = Header {
            tool: options.tool.clone(),
            clock: Clock {
                source: "trace clock".to_owned(),
                resolution_ns: 1,
            },
            backend: "import:tracing".to_owned(),
            notes: vec![format!(
                "imported from text, which does not tell the wall clock and the devices' names; recorded \
                 at the {} layer",
                options.layer
            )],
            ..Header::default()
        };
        Ok(Run {
            tape: EventTape::begin(sink, &header, options.level, options.layer)?,
            options,
            names: SharedNames::new(),
        })
    }

    fn line(&mut self, text: &str, number: u64) -> Result<(), TracingError> {
        if let Some(events) = lost(text) {
            return Ok(self.tape.lost(events)?);
        }
        let Some(line) = Line::split(text) else {
            return Ok(());
        };
        let Some(step) = line.step else {
            return Ok(());
        };
        let time_ns = self.time_ns(&line, number)?;
        let said = time_ns.zip(Said::read(line.rest, step));
        let Some((time_ns, said)) = said else {
            self.tape.undecodable();
            return Ok(());
        };
        let process = (step == Step::Queued).then(|| Process {
            pid: line.thread,
            name: self.names.share(said.last.as_bytes()),
        });
        let is_end = matches!(step, Step::RequestCompleted | Step::BioCompleted);
        let (op, flags) = said.op;
        let event = Event {
            time_ns,
            step,
            device: DeviceIndex(0),
            op,
            flags,
            offset_bytes: said.offset_bytes,
            length_bytes: said.length_bytes,
            cpu: line.cpu,
            error: is_end.then(|| said.last.trim_start_matches('-').parse().unwrap_or(0)),
            process,
            cgroup: None,
        };
        Ok(self.tape.event(said.device, event)?)
    }

    /// Time in nanoseconds on the trace's clock; `None` if it is none.
    fn time_ns(&self, line: &Line<'_>, number: u64) -> Result<Option<u64>, TracingError> {
        if let Some((seconds, fraction)) = line.time.split_once('.') {
            return Ok(nanoseconds(seconds, fraction));
        }
        let Ok(ticks) = line.time.parse::<u128>() else {
            return Ok(None);
        };
        let khz = self.options.tick_khz.filter(|khz| *khz > 0);
        let khz = khz.ok_or_else(|| TracingError::Ticks {
            line: number,
            found: line.time.to_owned(),
        })?;
        Ok(u64::try_from(ticks.saturating_mul(1_000_000) / u128::from(khz)).ok())
    }

    fn finish(self) -> Result<(W, Summary), TracingError> {
        match self.tape.events() {
            0 => Err(TracingError::Empty),
            _ => Ok(self.tape.finish()?),
        }
    }
}

/// `CPU:1 [LOST 123 EVENTS]`, as `trace_pipe` says it.
fn lost(text: &str) -> Option<u64> {
    let rest = text.trim().strip_prefix("CPU:")?;
    let (_, rest) = rest.split_once("[LOST ")?;
    rest.split_once(' ')?.0.parse().ok()
}

fn nanoseconds(seconds: &str, fraction: &str) -> Option<u64> {
    let digits = u32::try_from(fraction.len())
        .ok()
        .filter(|digits| *digits <= 9)?;
    let part = fraction.parse::<u64>().ok()? * 10u64.pow(9 - digits);
    seconds
        .parse::<u64>()
        .ok()?
        .checked_mul(1_000_000_000)?
        .checked_add(part)
}

/// A line of a block event.
struct Line<'a> {
    thread: u32,
    cpu: Option<u32>,
    time: &'a str,
    /// `None` for another event of the block layer.
    step: Option<Step>,
    rest: &'a str,
}

impl<'a> Line<'a> {
    /// Takes a line apart. A thread's name may hold anything, a bracket and a colon too: what follows it
    /// is looked for from the event on.
    fn split(text: &'a str) -> Option<Line<'a>> {
        let found = text
            .split_once(" block:block")
            .or_else(|| text.split_once(": block"));
        let (head, event) = found?;
        let head = head.trim_end().trim_end_matches(':');
        let (name, rest) = event.split_once(": ")?;
        if !name.starts_with('_') {
            return None;
        }
        let step = BLOCK_TRACEPOINTS
            .iter()
            .find_map(|(known, step)| (known.strip_prefix("block") == Some(name)).then_some(*step));
        let time = head.split_whitespace().last()?;
        let (before, after) = head.rsplit_once('[')?;
        let cpu = after.split_once(']')?.0.trim().parse().ok();
        let thread = before.trim_end().rsplit([' ', '-', '/']).next()?;
        Some(Line {
            thread: thread.parse().ok()?,
            cpu,
            time,
            step,
            rest: rest.trim(),
        })
    }
}

/// What a block event says.
struct Said<'a> {
    device: (u32, u32),
    op: (Op, crate::request::Flags),
    offset_bytes: u64,
    length_bytes: u64,
    /// What stands in brackets at the end: a thread's name, or an error.
    last: &'a str,
}

impl<'a> Said<'a> {
    fn read(rest: &'a str, step: Step) -> Option<Said<'a>> {
        let (body, last) = rest.rsplit_once(" [")?;
        let last = last.strip_suffix(']')?;
        let (device, body) = body.split_once(' ')?;
        let (major, minor) = device.split_once(',')?;
        let device = (major.parse().ok()?, minor.parse().ok()?);
        let (rwbs, body) = body.trim_start().split_once(' ')?;
        let sign = if step == Step::Split { " / " } else { " + " };
        let (sector, sectors) = body.rsplit_once(sign)?;
        let sector: u64 = sector.split_whitespace().last()?.parse().ok()?;
        let placeless = sector == u64::MAX;
        let sectors: u64 = match step {
            Step::Split => 0,
            _ => sectors.split_whitespace().next()?.parse().ok()?,
        };
        let length_bytes = sectors.checked_mul(SECTOR_BYTES)?;
        let told = if placeless { 0 } else { length_bytes };
        Some(Said {
            device,
            op: parse_rwbs(rwbs.as_bytes(), told)?,
            offset_bytes: match placeless {
                true => 0,
                false => sector.checked_mul(SECTOR_BYTES)?,
            },
            length_bytes,
            last,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Request;
    use crate::tape::{Block, TapeReader};
    use std::io::Cursor;

    fn read(text: &str, options: &Options) -> Result<(Vec<Request>, Summary), TracingError> {
        let (tape, summary) = import(text.as_bytes(), options, Vec::new(), &mut |_| ())?;
        let mut reader = TapeReader::open(Cursor::new(tape)).unwrap();
        let (mut block, mut requests) = (Block::new(), Vec::new());
        while reader.next_block(&mut block).unwrap() {
            requests.extend(block.requests());
        }
        Ok((requests, summary))
    }

    #[test]
    fn lines_of_trace_pipe_and_of_perf_script_give_the_same_requests() {
        let pipe = "CPU:0 [LOST 7 EVENTS]
          my: a[b-1234  [001] d..1. 10.000001: block_bio_queue: 8,16 R 2048 + 8 [my: a[b]
          my: a[b-1234  [001] d..1. 10.000003: block_rq_issue: 8,16 R 4096 () 2048 + 8 be,0,4 [my: a[b]
           <idle>-0     [000] ..s1. 10.000203: block_rq_complete: 8,16 R () 2048 + 8 be,0,4 [-5]
           <idle>-0     [000] ..s1. 10.000204: sched_switch: prev_comm=a
";
        let options = Options::default();
        let (requests, summary) = read(pipe, &options).unwrap();
        let [request] = requests.as_slice() else {
            panic!("{requests:?}");
        };
        assert_eq!(
            (request.offset_bytes, request.length_bytes),
            (1_048_576, 4096)
        );
        assert_eq!((request.time_ns, request.queue_ns), (2000, Some(2000)));
        assert_eq!(
            (request.latency_ns, request.error),
            (Some(200_000), Some(5))
        );
        assert_eq!(request.cpu, Some(1));
        assert_eq!(summary.counters.lost_events, 7);

        let script =
            "      fio  1234 [001]    10.000001000: block:block_bio_queue: 8,16 R 2048 + 8 [fio]
      fio  1234/1236 [001]    10.000003000: block:block_rq_issue: 8,16 R 4096 () 2048 + 8 [fio]
  swapper     0 [000]    10.000203000:   block:block_rq_complete: 8,16 R () 2048 + 8 [0]
";
        let (requests, _) = read(script, &options).unwrap();
        let process = requests[0].process.as_ref().unwrap();
        assert_eq!((process.pid, &*process.name), (1234, "fio"));
        assert_eq!(
            (requests[0].latency_ns, requests[0].error),
            (Some(200_000), Some(0))
        );
        assert!(is_trace(script.as_bytes()) && is_trace(pipe.as_bytes()));
        assert!(!is_trace(b"time_ns,device,op\n1,sda,read\n"));
    }

    #[test]
    fn any_event_of_the_block_layer_tells_what_the_text_is() {
        let plug = "  fio  1234 [001]    10.000001:    block:block_plug: [fio]\n";
        assert!(is_trace(plug.as_bytes()));
        let piped =
            "  fio-1234  [001] ..... 10.000001: block_touch_buffer: 8,1 sector=2 size=4096\n";
        assert!(is_trace(piped.as_bytes()));
        for other in [
            "  fio  1234 [001]    10.000001:    sched:sched_switch: fio:1 [120]\n",
            "  kernel-1  [001] 10.000001: blocked: waits\n",
            "Dec 01 host app[12]: block_plug: failed\n",
        ] {
            assert!(!is_trace(other.as_bytes()), "{other}");
        }
        // It makes a tape only with those that are read.
        assert!(matches!(
            read(plug, &Options::default()),
            Err(TracingError::Empty)
        ));
    }

    #[test]
    fn ticks_need_their_rate() {
        let text = "a-1 [000] ..... 2000000: block_rq_issue: 7,1 W 4096 () 8 + 8 [a]
a-1 [000] ..... 2500000: block_rq_complete: 7,1 W () 8 + 8 [0]
";
        let refused = read(text, &Options::default());
        assert!(matches!(refused, Err(TracingError::Ticks { line: 1, .. })));
        let options = Options {
            tick_khz: Some(2_500_000),
            ..Options::default()
        };
        let (requests, _) = read(text, &options).unwrap();
        assert_eq!(requests[0].latency_ns, Some(200_000));
    }

    #[test]
    fn what_is_not_understood_is_counted_and_nothing_is_refused() {
        let text = "a-1 [000] ..... 1.000000: block_rq_issue: 7,1 W 4096 () 8 + 8 [a]
a-1 [000] ..... 1.000000: block_rq_issue: 7;1 W 4096 () 8 + 8 [a]
a-1 [000] ..... 1.000000: block_rq_issue: 7,1 ? 4096 () 8 + 8 [a]
a-1 [000] ..... 1.x: block_rq_issue: 7,1 W 4096 () 8 + 8 [a]
a-1 [000] ..... 1.000000: block_rq_issue: 7,1 W 4096 () 99999999999999999999 + 8 [a]
";
        let (requests, summary) = read(text, &Options::default()).unwrap();
        assert_eq!((requests.len(), summary.counters.undecodable), (1, 4));
        assert!(matches!(
            read("", &Options::default()),
            Err(TracingError::Empty)
        ));
    }
}
