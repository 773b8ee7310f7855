//! What a run is asked, and what comes of it.

use std::collections::BTreeMap;
use std::time::Duration;

use super::guard::Seen;
use crate::engine::Action;
use crate::map::Striping;
use crate::measure::{Delays, OpRecord};
use crate::options::Timing;
use crate::result::Interval;
use crate::tokens::Area;

/// How a run is bounded.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Most operations outstanding.
    pub depth: u32,
    /// When requests are due.
    pub timing: Timing,
    /// Left out of the figures at the start.
    pub warmup: Duration,
    /// Submits no more after this long since the end of the warm-up.
    pub repeat_for: Option<Duration>,
    /// Length of an interval.
    pub interval: Duration,
    /// Requests of the tape that will be submitted; `None` when time is the bound.
    pub total_requests: Option<u64>,
    /// How requests that touch several targets are cut up.
    pub striping: Option<Striping>,
}

/// Why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The tape is through, or the time is up.
    Done,
    /// The user stopped it.
    Stopped,
    /// Too many failures in a row.
    Hopeless,
    /// The target completed nothing for too long.
    Stalled,
}

/// How an operation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Failure {
    /// With this error of the system.
    Errno(i32),
    /// It transferred less than asked.
    Short,
}

/// What happened in a run.
#[derive(Debug)]
pub struct Outcome {
    /// Per action, the requests that count.
    pub ops: [OpRecord; Action::ALL.len()],
    /// In slices of time.
    pub intervals: Vec<Interval>,
    /// Failures by position of the action and kind, all of the run.
    pub errors: BTreeMap<(usize, Failure), u64>,
    /// Why it ended.
    pub ending: Ending,
    /// From the first submission that counts to the last completion that counts.
    pub elapsed_ns: u64,
    /// Length of the warm-up.
    pub warmup_ns: u64,
    /// Tokens, over the time that counts.
    pub outstanding: Area,
    /// Most tokens out in that time.
    pub outstanding_max: u32,
    /// Requests completed in the whole run.
    pub completed: u64,
    /// Operations that never completed.
    pub abandoned: u32,
    /// Completions of slots with nothing in flight.
    pub strays: u64,
    /// Time of the whole run.
    pub run_ns: u64,
    /// Of that, with a free token and nothing decoded.
    pub starved_ns: u64,
    /// Of that, looking at the clock until a request was due.
    pub spun_ns: u64,
    /// Of the requests that count.
    pub delays: Delays,
    /// Overlaps and content; `None` where nothing of that mattered.
    pub seen: Option<Seen>,
    /// |Σ tokens × time − Σ service| / Σ service, all operations of the run.
    pub littles_law_error: f64,
}
