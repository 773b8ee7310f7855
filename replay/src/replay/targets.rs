//! Opens all targets of a replay, each allowed only what the user has allowed for it.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use iotape_formats::Op;
use iotape_formats::tape::Summary;

use super::{changes_data, replayable, volumes};
use crate::error::ReplayError;
use crate::map::Layout;
use crate::options::{Arrangement, Options, Progress, TargetSpec, Unsupported, WritePolicy};
use crate::plan::Filter;
use crate::sim_spec::SimSpec;
use crate::target::{self, Access, ScratchNeeds, Target};

/// Checks what can be checked without looking at the system.
///
/// # Errors
/// When the number of targets does not suit the arrangement, or a target may be overwritten that
/// is none.
pub fn check(options: &Options) -> Result<(), ReplayError> {
    let found = options.targets.len();
    let expected = match &options.arrangement {
        Arrangement::Single if found != 1 => {
            "one; several need --stripe SIZE, or --device DEVICE=TARGET for each device of the tape"
        }
        Arrangement::Striped { .. } if found < 2 => "at least two to lay stripes over",
        _ if found > Options::MAX_TARGETS => "at most 64",
        _ if found == 0 => "at least one",
        _ if found > 1 && !options.all_alike() => {
            "paths of block devices and files when there are several"
        }
        _ => "",
    };
    if !expected.is_empty() {
        return Err(ReplayError::TargetCount { found, expected });
    }
    check_workers(options)?;
    volumes::check_stripe(&options.arrangement, volumes::STRIPE_UNIT)?;
    let WritePolicy::Overwrite(named) = &options.write_policy else {
        return Ok(());
    };
    match named
        .iter()
        .find(|path| !options.paths().any(|p| p == *path))
    {
        None => Ok(()),
        Some(path) => Err(ReplayError::OverwriteNamesNoTarget { path: path.clone() }),
    }
}

fn check_workers(options: &Options) -> Result<(), ReplayError> {
    let Some(workers) = options.workers else {
        return Ok(());
    };
    let (max, with) = match options.simulated() {
        Some(_) => (1, " with a simulated target"),
        None => (Options::MAX_WORKERS, ""),
    };
    if (1..=max).contains(&workers) {
        return Ok(());
    }
    Err(ReplayError::Workers { workers, max, with })
}

/// Opens the targets; none when they are null.
///
/// # Errors
/// Any [`ReplayError`] of opening a target.
pub fn open(
    options: &Options,
    summary: &Summary,
    filter: Filter,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Vec<Target>, ReplayError> {
    if let Some(directory) = options.scratch() {
        let layout = Layout::of(summary).ok_or_else(|| volumes::out_of_range(summary))?;
        let needs = ScratchNeeds {
            span_bytes: layout.end_bytes,
            longest_bytes: layout.longest_transfer_bytes,
        };
        let made = target::make_scratch(directory, needs, options.seed, stop, progress)?;
        return Ok(vec![made]);
    }
    refuse_twins(options)?;
    options
        .paths()
        .map(|path| target::open(path, access(options, path, summary, filter)))
        .collect()
}

/// The filter that leaves out what a target does not have.
///
/// # Errors
/// [`ReplayError::Unsupported`], unless that is what the user wants.
pub fn supported(
    options: &Options,
    summary: &Summary,
    filter: Filter,
    targets: &[Target],
) -> Result<Filter, ReplayError> {
    let lacks = |op: Op, has: fn(&Target) -> bool| {
        let requests = summary.by_op[usize::from(op.number())].requests;
        let target = targets.iter().find(|target| !has(target))?;
        (requests > 0 && filter.refuses(op).is_none()).then(|| ReplayError::Unsupported {
            target: target.name(),
            op,
            requests,
        })
    };
    let discard = lacks(Op::Discard, |target| target.discards);
    let zeroes = lacks(Op::WriteZeroes, |target| target.zeroes);
    let filter = Filter {
        no_discard: discard.is_some(),
        no_write_zeroes: zeroes.is_some(),
        // Where a target that is only read cannot be flushed, there is nothing to flush either.
        no_flush: targets.iter().any(|target| !target.flushes),
        ..filter
    };
    match (discard.or(zeroes), options.unsupported) {
        (Some(error), Unsupported::Fail) => Err(error),
        _ if replayable(summary, filter) == 0 => Err(ReplayError::NothingToReplay {
            requests: summary.requests,
            why: " on this target",
        }),
        _ => Ok(filter),
    }
}

impl Options {
    /// Targets that have a path.
    fn paths(&self) -> impl Iterator<Item = &PathBuf> {
        self.targets.iter().filter_map(|target| match target {
            TargetSpec::Path(path) => Some(path),
            TargetSpec::Scratch { .. } | TargetSpec::Null | TargetSpec::Sim(_) => None,
        })
    }

    /// Whether the targets can be several: paths, or nothing at all.
    fn all_alike(&self) -> bool {
        let paths = self.paths().count();
        let nulls = self.targets.iter().filter(|t| **t == TargetSpec::Null);
        paths.max(nulls.count()) == self.targets.len()
    }

    /// The device that is simulated, if one is.
    pub(super) fn simulated(&self) -> Option<&SimSpec> {
        match self.targets.first() {
            Some(TargetSpec::Sim(spec)) => Some(spec),
            _ => None,
        }
    }

    /// Where to make a scratch file, if one is to be made.
    pub(super) fn scratch(&self) -> Option<Option<&Path>> {
        self.targets.iter().find_map(|target| match target {
            TargetSpec::Scratch { directory } => Some(directory.as_deref()),
            TargetSpec::Path(_) | TargetSpec::Null | TargetSpec::Sim(_) => None,
        })
    }
}

/// The same device twice would only be found when it is in use by ourselves.
fn refuse_twins(options: &Options) -> Result<(), ReplayError> {
    let mut seen: Vec<(target::Identity, &PathBuf)> = Vec::new();
    for path in options.paths() {
        // Who cannot be looked up has an error of his own when he is opened.
        let Some(identity) = target::identity(path) else {
            continue;
        };
        if let Some((_, other)) = seen.iter().find(|(other, _)| *other == identity) {
            return Err(ReplayError::SameTarget {
                path: path.clone(),
                other: (*other).clone(),
            });
        }
        seen.push((identity, path));
    }
    Ok(())
}

fn access(options: &Options, path: &PathBuf, summary: &Summary, filter: Filter) -> Access {
    if filter.skip_writes {
        return Access::SkipWrites;
    }
    if !changes_data(summary, filter) {
        return Access::Read;
    }
    let count = |op: Op| match filter.wants(op) {
        true => summary.by_op[usize::from(op.number())].requests,
        false => 0,
    };
    match &options.write_policy {
        WritePolicy::Overwrite(named) if named.contains(path) => Access::Overwrite,
        _ => Access::Forbidden {
            writes: count(Op::Write),
            discards: count(Op::Discard),
            write_zeroes: count(Op::WriteZeroes),
        },
    }
}
