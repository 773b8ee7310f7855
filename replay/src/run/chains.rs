//! Requests that wait for the clock or for another request, in a dependent replay.
//!
//! A window of requests is taken from the planner, so that a stream that has to wait holds up no
//! other. In it each request is due at a time, or hangs on the request that it waits for, or is at
//! the target. A completion is kept in the request's cell until another request is given that cell,
//! by which time nothing of the tape refers to the first any more.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::engine::Io;
use crate::plan::{CELLS, Cell, Due};

/// Requests that wait at once: of streams that are further apart on the tape, one holds up the
/// other.
pub const WINDOW: usize = 16_384;

/// A request of the window, by its place in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Link(u32);

impl Default for Link {
    fn default() -> Self {
        Link::NONE
    }
}

impl Link {
    /// No request of the window.
    pub const NONE: Link = Link(u32::MAX);

    fn index(self) -> usize {
        // Beyond every window where it is none.
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

/// See the module.
#[derive(Debug)]
pub struct Chains {
    start_ns: u64,
    entries: Vec<Entry>,
    free: Vec<Link>,
    cells: Vec<Content>,
    /// By time, then by the order of the tape.
    due: BinaryHeap<Reverse<(u64, u64, Link)>>,
    taken: u64,
    /// Not yet at the target.
    waiting: usize,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    io: Io,
    order: u64,
    own: Cell,
    delay_ns: u64,
    first_after: Link,
    next_sibling: Link,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Content {
    Nothing,
    Pending(Link),
    Completed(u64),
}

impl Chains {
    /// An empty window of a run that starts at a time.
    pub fn new(start_ns: u64) -> Self {
        Chains {
            start_ns,
            entries: Vec::new(),
            free: Vec::new(),
            cells: vec![Content::Nothing; CELLS],
            due: BinaryHeap::new(),
            taken: 0,
            waiting: 0,
        }
    }

    /// Whether another request can be taken.
    pub fn has_room(&self) -> bool {
        self.waiting < WINDOW
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// Takes the next request of the tape.
    pub fn take(&mut self, io: Io, due: Due) {
        self.waiting += 1;
        self.taken += 1;
        let link = self.enter(Entry {
            io,
            order: self.taken,
            own: due.own,
            delay_ns: due.ns,
            first_after: Link::NONE,
            next_sibling: Link::NONE,
        });
        match self.content(due.after) {
            Content::Nothing => self.is_due(link, self.start_ns),
            Content::Completed(time_ns) => self.is_due(link, time_ns),
            Content::Pending(parent) => {
                let siblings =
                    std::mem::replace(&mut self.entries[parent.index()].first_after, link);
                self.entries[link.index()].next_sibling = siblings;
            }
        }
        self.fill_cell(due.own, Content::Pending(link));
    }

    /// The request that is due first, and when.
    pub fn first(&self) -> Option<(Io, u64, Link)> {
        let &Reverse((due_ns, _, link)) = self.due.peek()?;
        Some((self.entries.get(link.index())?.io, due_ns, link))
    }

    /// The first request goes to the target.
    pub fn submitted(&mut self) {
        if self.due.pop().is_some() {
            self.waiting -= 1;
        }
    }

    /// A request has completed: those that waited for it get a time.
    pub fn completed(&mut self, link: Link, now_ns: u64) {
        let Some(&entry) = self.entries.get(link.index()) else {
            return;
        };
        if self.content(entry.own) == Content::Pending(link) {
            self.fill_cell(entry.own, Content::Completed(now_ns));
        }
        let mut after = entry.first_after;
        while let Some(waiter) = self.entries.get(after.index()) {
            let next = waiter.next_sibling;
            self.is_due(after, now_ns);
            after = next;
        }
        self.free.push(link);
    }

    fn enter(&mut self, entry: Entry) -> Link {
        match self.free.pop() {
            Some(link) => {
                self.entries[link.index()] = entry;
                link
            }
            None => {
                self.entries.push(entry);
                Link(u32::try_from(self.entries.len() - 1).unwrap_or(u32::MAX))
            }
        }
    }

    fn is_due(&mut self, link: Link, after_ns: u64) {
        let entry = &self.entries[link.index()];
        let due_ns = after_ns.saturating_add(entry.delay_ns);
        self.due.push(Reverse((due_ns, entry.order, link)));
    }

    fn content(&self, cell: Cell) -> Content {
        let content = cell.index().and_then(|index| self.cells.get(index));
        content.copied().unwrap_or(Content::Nothing)
    }

    fn fill_cell(&mut self, cell: Cell, content: Content) {
        if let Some(place) = cell.index().and_then(|index| self.cells.get_mut(index)) {
            *place = content;
        }
    }
}
