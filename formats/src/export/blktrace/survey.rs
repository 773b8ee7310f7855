//! The first pass over the tape: which requests stand far from their place.
//!
//! A trace is in order of the times at which requests were queued, a tape about in that of their
//! issue, and a request that took very long stands where it was done. Requests are held back until
//! [`LOOK_AHEAD`] later ones are known, which puts nearly all of them right; the few that come later
//! still are found here, and begin the second pass.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::request::Request;

/// How many requests are held back until their turn is certain.
pub(super) const LOOK_AHEAD: usize = 1 << 17;
/// Most requests that are taken out of their place; a tape with more is not in order.
const MAX_EARLY: usize = 1 << 16;
/// By how much the trace can begin before the tape's zero.
const MAX_LEAD_NS: u64 = 3600 * 1_000_000_000;

/// What one pass over all requests tells, in the order in which they will be written.
#[derive(Clone, Debug, Default)]
pub struct Survey {
    /// When those were queued that are held back.
    held: BinaryHeap<Reverse<i128>>,
    left_to_ns: Option<i128>,
    rows: u64,
    pub(super) lead_ns: u64,
    /// Rows that come too late for their place, ascending, and their requests.
    pub(super) early: Vec<(u64, Request)>,
    look_ahead: Option<usize>,
}

impl Survey {
    /// Nothing is known yet.
    pub fn new() -> Survey {
        Survey::default()
    }

    /// Takes the next request of the tape.
    pub fn look_at(&mut self, request: &Request) {
        let queue_ns = request.queue_ns.unwrap_or(0);
        let lead_ns = queue_ns.saturating_sub(request.time_ns).min(MAX_LEAD_NS);
        self.lead_ns = self.lead_ns.max(lead_ns);
        let begin_ns = i128::from(request.time_ns) - i128::from(queue_ns);
        let is_late = self.left_to_ns.is_some_and(|left_ns| begin_ns < left_ns);
        if is_late && self.early.len() < MAX_EARLY {
            self.early.push((self.rows, request.clone()));
        } else {
            self.held.push(Reverse(begin_ns));
        }
        if self.held.len() > self.look_ahead()
            && let Some(Reverse(begin_ns)) = self.held.pop()
        {
            self.left_to_ns = self.left_to_ns.max(Some(begin_ns));
        }
        self.rows += 1;
    }

    pub(super) fn look_ahead(&self) -> usize {
        self.look_ahead.unwrap_or(LOOK_AHEAD)
    }

    #[cfg(test)]
    pub(super) fn with_look_ahead(requests: usize) -> Survey {
        Survey {
            look_ahead: Some(requests),
            ..Survey::default()
        }
    }
}
