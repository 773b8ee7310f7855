//! A tape and targets that fit each other, and the runs on them.

mod contents;
mod targets;
mod volumes;

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use iotape_formats::Op;
use iotape_formats::tape::Summary;

use crate::engine::null::NullEngine;
use crate::engine::sim::SimEngine;
use crate::engine::threads::ThreadsEngine;
use crate::engine::{Engine, Io, Medium, SystemEngine};
use crate::error::ReplayError;
use crate::measure::RunLog;
use crate::options::{EngineChoice, Options, Profile, Progress, RunOptions, WritePolicy};
use crate::plan::{self, Filter, OpSet, Pacing, Planned, Planner, Rules, Tally};
use crate::report::{self, Circumstances};
use crate::result;
use crate::run::{self, Attached, Bounds, Ended};
use crate::source::{Row, Source, SourceError};
use crate::sys::CpuTime;
use crate::target::Target;

/// A tape with targets that have been found fit for it. Several runs can follow one another on the
/// same targets; a scratch file lives as long as this.
#[derive(Debug)]
pub struct Replay<S> {
    source: S,
    options: Options,
    /// None, when the target is null.
    targets: Vec<Target>,
    rules: Rules,
}

impl<S: Source> Replay<S> {
    /// Opens the targets and checks everything that can be checked before the first write: safety,
    /// size, alignment. A scratch file is made and filled, with `progress` about once a second;
    /// `stop` ends that early.
    ///
    /// The beginning and the end of a target are read, 256 KiB with one request each, to look for
    /// signatures, unless its writes are skipped.
    ///
    /// # Errors
    /// Any [`ReplayError`]; no target has been written to.
    pub fn prepare(
        source: S,
        options: Options,
        stop: &AtomicBool,
        progress: &mut dyn FnMut(&Progress),
    ) -> Result<Self, ReplayError> {
        let skip_writes = options.write_policy == WritePolicy::SkipWrites;
        let filter = Filter {
            skip_writes,
            only: OpSet::of(&options.only),
            from_ns: options.from.map_or(0, whole_ns),
            to_ns: options.to.map(whole_ns),
            ..Filter::default()
        };
        targets::check(&options)?;
        contents::check(&options)?;
        let summary = source.summary();
        if replayable(summary, filter) == 0 {
            return Err(ReplayError::NothingToReplay {
                requests: summary.requests,
                why: match (skip_writes, options.only.is_empty()) {
                    (true, _) => " without changing data",
                    (false, false) => " of the operations asked for",
                    (false, true) => "",
                },
            });
        }
        let places = volumes::places(&options.arrangement, &source)?;
        let targets = targets::open(&options, summary, filter, stop, progress)?;
        let filter = targets::supported(&options, summary, filter, &targets)?;
        let rules = volumes::rules(&options, filter, summary, places, &targets)?;
        contents::check_alignment(&options, &rules)?;
        let mut replay = Replay {
            source,
            options,
            targets,
            rules,
        };
        replay.check_alignment()?;
        Ok(replay)
    }

    /// The tape.
    pub fn source(&self) -> &S {
        &self.source
    }

    /// Replays the tape once, or for as long as asked. Once `stop` is set no further request is
    /// submitted, and the figures up to then are returned, marked as not valid.
    ///
    /// # Errors
    /// When the buffers would be too large, or the engine cannot be set up or fails. Failed
    /// requests, and a tape that cannot be read to its end, are no error: the result says so.
    pub fn run(
        &mut self,
        options: &RunOptions,
        stop: &AtomicBool,
        progress: &mut dyn FnMut(&Progress),
    ) -> Result<result::Run, ReplayError> {
        let depth = options.profile.depth;
        if depth == 0 || depth > Profile::MAX_DEPTH {
            return Err(ReplayError::Depth {
                depth,
                max: Profile::MAX_DEPTH,
                with: "",
            });
        }
        let log = options.hdr_log.clone();
        let mut attached = Attached {
            log: log.map(|log| RunLog::new(log, &options.label)),
            guard: None,
            notes: Vec::new(),
        };
        if self.targets.is_empty() {
            attached.guard = self.guard(None, options.order);
            return match self.options.simulated().cloned() {
                Some(spec) => {
                    let start = || Ok(SimEngine::new(depth, &spec));
                    self.run_on(start(), &start, attached, options, stop, progress)
                }
                None => {
                    let start = || Ok(NullEngine::default());
                    self.run_on(start(), &start, attached, options, stop, progress)
                }
            };
        }
        let medium = Medium {
            disks: self.targets.iter().map(Target::disk).collect(),
            buffers: Arc::new(self.buffers(depth)?),
        };
        attached.guard = self.guard(Some(&medium.buffers), options.order);
        let choice = self.options.engine;
        if choice != EngineChoice::Threads {
            let start = || SystemEngine::start(choice, depth, medium.clone());
            match start() {
                Ok(engine) => {
                    let engine = Ok(engine);
                    return self.run_on(engine, &start, attached, options, stop, progress);
                }
                Err(error) if choice == EngineChoice::Auto => {
                    let name = SystemEngine::NAME;
                    let notes = &mut attached.notes;
                    notes.push(format!("engine threads instead of {name}: {error}"));
                }
                Err(source) => {
                    return Err(ReplayError::Engine {
                        engine: choice.name(),
                        source,
                    });
                }
            }
        }
        let workers = self.options.workers.unwrap_or(1);
        if depth.saturating_mul(workers) > ThreadsEngine::MAX_DEPTH {
            return Err(ReplayError::Depth {
                depth,
                max: ThreadsEngine::MAX_DEPTH / workers,
                with: " with the threads engine",
            });
        }
        let start = || ThreadsEngine::new(depth, medium.clone());
        self.run_on(start(), &start, attached, options, stop, progress)
    }

    /// `engine` was made by `start` on this thread, which makes further ones on others.
    fn run_on<E: Engine>(
        &mut self,
        engine: io::Result<E>,
        start: &(dyn Fn() -> io::Result<E> + Sync),
        mut attached: Attached,
        options: &RunOptions,
        stop: &AtomicBool,
        progress: &mut dyn FnMut(&Progress),
    ) -> Result<result::Run, ReplayError> {
        let failed = |source| ReplayError::Engine {
            engine: self.options.engine.name(),
            source,
        };
        let engine = engine.map_err(failed)?;
        let name = engine.name();
        let bounds = Bounds {
            depth: options.profile.depth,
            timing: options.timing,
            warmup: options.warmup,
            repeat_for: options.repeat_for,
            interval: options.interval,
            total_requests: match options.repeat_for {
                Some(_) => None,
                None => Some(replayable(self.source.summary(), self.rules.filter)),
            },
            striping: self.rules.mapping.striping(),
        };
        let notes = std::mem::take(&mut attached.notes);
        let cpu = CpuTime::of_process();
        let submitters = match self.options.workers {
            None => Submitters::This(engine),
            Some(count) => {
                drop(engine);
                Submitters::Workers { count, start }
            }
        };
        let (ended, tally, read) = self
            .play(submitters, attached, &bounds, options, stop, progress)
            .map_err(|source| ReplayError::Engine {
                engine: name,
                source,
            })?;
        let Ended {
            mut outcome,
            submitter_cpu,
            notes: of_engine,
        } = ended;
        let notes = notes.into_iter().chain(of_engine).collect();
        let contents = self.contents(&mut outcome, stop);
        let circumstances = Circumstances {
            options,
            engine: name,
            cpu: CpuTime::of_process().since(cpu),
            workers: self.options.workers.unwrap_or(1),
            submitter_cpu,
            targets: &self.targets,
            simulated: self.options.simulated(),
            write_mode: self.write_mode(),
            payload: self.options.payload_facts(),
            contents,
            mapping: self.options.mapping_facts(),
            summary: self.source.summary(),
            devices: self.rules.mapping.most_devices_together(),
            finished: self.source.finished(),
            damage: self.source.damage(),
            unread: read.err().map(|error| error.to_string()),
            notes,
        };
        Ok(report::run(outcome, &tally, circumstances))
    }

    /// Plans on a thread of its own and submits on this one, or on others.
    fn play<E: Engine>(
        &mut self,
        submitters: Submitters<'_, E>,
        attached: Attached,
        bounds: &Bounds,
        options: &RunOptions,
        stop: &AtomicBool,
        progress: &mut dyn FnMut(&Progress),
    ) -> io::Result<(Ended, Tally, Result<(), SourceError>)> {
        let (outlet, feed) = plan::channel();
        let planner = Planner {
            rules: &self.rules,
            pacing: Pacing {
                timing: options.timing,
                speed: options.speed,
                origin_ns: self.options.from.map(whole_ns),
            },
            seed: self.options.seed,
            repeat: bounds.repeat_for.is_some(),
        };
        let source = &mut self.source;
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new()
                .name("iotape-plan".to_owned())
                .spawn_scoped(scope, move || planner.run(source, outlet))?;
            let ended = match submitters {
                Submitters::This(engine) => {
                    run::run(engine, feed, bounds, attached, stop, progress)
                }
                Submitters::Workers { count, start } => {
                    run::run_workers(count, start, feed, bounds, attached, stop, progress)
                }
            };
            let (tally, read) = thread
                .join()
                .map_err(|_| io::Error::other("the planning thread died"))?;
            Ok((ended?, tally, read))
        })
    }

    /// Refuses a tape with a request that does not fall on its target's sectors, and names the
    /// first. The tape is only read through when its totals show that there is one.
    fn check_alignment(&mut self) -> Result<(), ReplayError> {
        let sectors = self.targets.iter().map(|t| u64::from(t.sector_bytes));
        let Some(largest) = sectors.max().filter(|_| !self.options.align) else {
            return Ok(());
        };
        let mut volumes = self.rules.mapping.volumes().iter();
        let aligned = |bits: u64| largest.is_power_of_two() && bits.is_multiple_of(largest);
        if volumes.all(|volume| aligned(volume.layout().alignment_bits)) {
            return Ok(());
        }
        let mut random = fastrand::Rng::with_seed(0);
        let mut before = 0u64;
        self.source.rewind();
        while let Some(rows) = self.source.next_block()? {
            for index in 0..rows {
                let row = self.source.row(index);
                if let Planned::Submit(io, _) = self.rules.plan(&row, &mut random) {
                    self.check_sectors(&io, &row, before + index as u64)?;
                }
            }
            before += rows as u64;
        }
        Ok(())
    }

    fn check_sectors(&self, io: &Io, row: &Row, number: u64) -> Result<(), ReplayError> {
        let of_several = self.targets.iter().max_by_key(|target| target.sector_bytes);
        let target = match io.target {
            // Stripes are multiples of the largest sector.
            Io::STRIPED => of_several,
            target => self.targets.get(usize::from(target)),
        };
        let Some(target) = target else {
            return Ok(());
        };
        let sector = u64::from(target.sector_bytes);
        if io.offset.is_multiple_of(sector) && io.length.is_multiple_of(sector) {
            return Ok(());
        }
        Err(ReplayError::Unaligned {
            target: target.name(),
            sector_bytes: target.sector_bytes,
            row: number,
            op: row.op,
            offset_bytes: row.offset_bytes,
            length_bytes: row.length_bytes,
        })
    }

    fn write_mode(&self) -> result::WriteMode {
        if !changes_data(self.source.summary(), self.rules.filter) {
            result::WriteMode::None
        } else if self.rules.filter.skip_writes {
            result::WriteMode::SkipWrites
        } else {
            result::WriteMode::Overwrite
        }
    }
}

fn whole_ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Who submits.
enum Submitters<'a, E> {
    /// The calling thread, with this engine.
    This(E),
    /// Threads that make one each.
    Workers {
        count: u32,
        start: &'a (dyn Fn() -> io::Result<E> + Sync),
    },
}

fn replayable(summary: &Summary, filter: Filter) -> u64 {
    Op::ALL
        .into_iter()
        .filter(|op| filter.refuses(*op).is_none())
        .map(|op| summary.by_op[usize::from(op.number())].requests)
        .fold(0, u64::saturating_add)
}

fn changes_data(summary: &Summary, filter: Filter) -> bool {
    [Op::Write, Op::Discard, Op::WriteZeroes]
        .into_iter()
        .filter(|op| filter.wants(*op))
        .any(|op| summary.by_op[usize::from(op.number())].requests > 0)
}

#[cfg(test)]
mod known_answers;
#[cfg(test)]
mod tests;
