//! From the tape to operations that are ready to be submitted, on a thread of its own.

mod feed;
mod planner;
mod rules;

pub use feed::{Feed, channel};
pub use planner::{Planner, Tally};
pub use rules::{Filter, Planned, Rules};
