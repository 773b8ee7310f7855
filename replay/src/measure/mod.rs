//! What a run measures: latencies per operation, and the run in slices of time.

mod latency;
mod recorder;

pub use latency::Latencies;
pub use recorder::{OpRecord, Recorder};
