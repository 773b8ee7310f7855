//! What is looked at as a request comes and goes, where a tape changes data: overlaps with others
//! in flight, and content.

use super::overlaps::Overlaps;
use crate::content::Content;
use crate::engine::{Action, Io};
use crate::map::Striping;
use crate::slots::GroupId;

/// See the module.
#[derive(Debug)]
pub struct Guard {
    overlaps: Overlaps,
    order: bool,
    content: Option<Content>,
    /// Requests that met another one in flight.
    overlapping: u64,
    /// Whether the next request waits for one that it overlaps.
    waiting: bool,
}

/// What a guard has seen.
#[derive(Debug, Default)]
pub struct Seen {
    /// Requests that overlapped one in flight when they were due; with ordering they waited for it.
    pub overlapping: u64,
    /// What was written and is still to be read back.
    pub content: Option<Content>,
}

impl Guard {
    /// Overlaps are only counted, or put into order.
    pub fn new(striping: Option<Striping>, order: bool, content: Option<Content>) -> Self {
        Guard {
            overlaps: Overlaps::new(striping),
            order,
            content,
            overlapping: 0,
            waiting: false,
        }
    }

    /// Whether a request, for which there are tokens, may start now.
    pub fn may_start(&mut self, io: &Io) -> bool {
        let meets = self.overlaps.any(io);
        self.overlapping += u64::from(meets && !self.waiting);
        self.waiting = meets && self.order;
        !self.waiting
    }

    /// A request starts in a slot, or as a group.
    pub fn enter(&mut self, slot: u32, group: GroupId, io: &Io) {
        self.overlaps.enter(key(slot, group), io);
    }

    /// All of it is done.
    pub fn leave(&mut self, slot: u32, group: GroupId) {
        self.overlaps.leave(key(slot, group));
    }

    /// What an operation carries, before it is submitted.
    pub fn prepare(&mut self, slot: u32, io: &mut Io) {
        if let Some(content) = self.content.as_mut().filter(|_| io.action == Action::Write) {
            io.payload = content.prepare(slot, io);
        }
    }

    /// An operation is done.
    pub fn done(&mut self, slot: u32, io: &Io, succeeded: bool) {
        if let Some(content) = &mut self.content {
            content.done(slot, io, succeeded);
        }
    }

    /// At the end.
    pub fn into_seen(self) -> Seen {
        Seen {
            overlapping: self.overlapping,
            content: self.content,
        }
    }
}

/// Slots and groups count from 0 each.
fn key(slot: u32, group: GroupId) -> usize {
    let key = if group == GroupId::NONE {
        u64::from(slot) * 2
    } else {
        u64::from(group.0) * 2 + 1
    };
    usize::try_from(key).unwrap_or(0)
}
