//! From the tape to operations that are ready to be submitted, on a thread of its own.

mod feed;
mod planner;
mod rules;

#[cfg(test)]
mod tests;

#[cfg(test)]
pub use feed::Batch;
pub use feed::{Feed, channel};
pub use planner::{Planner, Tally};
#[cfg(test)]
pub use rules::SkipReason;
pub use rules::{Filter, Planned, Rules};
