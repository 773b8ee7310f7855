//! What a run measures: latencies per operation, and the run in slices of time.

mod collector;
mod delays;
mod latency;
mod record;
mod recorder;
mod run_log;
mod size;

pub use collector::Totals;
pub use delays::Delays;
pub use latency::Latencies;
pub use record::OpRecord;
pub use recorder::Recorder;
pub use run_log::RunLog;
pub use size::{SIZES, longest_of, size_class};
