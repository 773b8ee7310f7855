//! From the tape to operations that are ready to be submitted, on a thread of its own.

mod dependency;
mod feed;
mod order;
mod planner;
mod rules;
mod timeline;

#[cfg(test)]
mod tests;

pub use dependency::{CELLS, Cell, Due};
#[cfg(test)]
pub use feed::Batch;
pub use feed::{Feed, channel};
pub use planner::{Pacing, Planner, Tally};
#[cfg(test)]
pub use rules::SkipReason;
pub use rules::{Filter, OpSet, Planned, Rules};
