//! Requests in flight that are several operations: one for each stripe that they touch, or a flush
//! of every target.
//!
//! A group starts when there are tokens for all its parts, or for as many as there are tokens at
//! all; then each further part takes the token of one that is done. Parts that wait for others (the
//! writes behind a preflush) start together when those are done, before any new request.

use std::collections::VecDeque;

use super::Failure;
use crate::engine::Io;
use crate::map::Striping;
use crate::slots::{Flight, GroupId};

/// A request that is several operations.
#[derive(Clone, Copy, Debug)]
pub struct Group {
    /// The request, as if it were one.
    pub request: Flight,
    parts: u32,
    /// Parts that were submitted.
    submitted: u32,
    in_flight: u32,
    failure: Option<Failure>,
}

/// What follows when a part is done.
#[derive(Debug)]
pub enum Next {
    /// Its token goes to this part.
    Start(Io),
    /// Its token is free.
    Nothing,
    /// Its token is free and the request is done, with its first failure.
    Done(Flight, Option<Failure>),
}

/// All groups in flight.
#[derive(Debug)]
pub struct Groups {
    striping: Option<Striping>,
    cap: u32,
    groups: Vec<Group>,
    free: Vec<u32>,
    /// Groups whose next parts can start once there are tokens.
    resuming: VecDeque<GroupId>,
}

impl Groups {
    /// None yet. At most `cap` parts of a group are in flight at once.
    pub fn new(striping: Option<Striping>, cap: u32) -> Self {
        Groups {
            striping,
            cap,
            groups: Vec::new(),
            free: Vec::new(),
            resuming: VecDeque::new(),
        }
    }

    /// How many parts of a request start at once, if it has parts.
    pub fn parts_at_once(&self, io: &Io) -> u32 {
        let parts = self.striping.map_or(0, |striping| striping.parts(io));
        self.ready(io, parts, 0)
    }

    /// A new group; its parts are then started.
    pub fn begin(&mut self, request: Flight) -> GroupId {
        let group = Group {
            request,
            parts: self
                .striping
                .map_or(0, |striping| striping.parts(&request.io)),
            submitted: 0,
            in_flight: 0,
            failure: None,
        };
        match self.free.pop() {
            Some(index) => {
                self.groups[index as usize] = group;
                GroupId(index)
            }
            None => {
                self.groups.push(group);
                GroupId(u32::try_from(self.groups.len() - 1).unwrap_or(u32::MAX))
            }
        }
    }

    /// Takes the next part of a group for its submission.
    pub fn take_part(&mut self, id: GroupId) -> Option<Io> {
        let striping = self.striping?;
        let group = self.groups.get_mut(id.0 as usize)?;
        let part = striping.part(&group.request.io, group.submitted);
        group.submitted += 1;
        group.in_flight += 1;
        Some(part)
    }

    /// Whether a group waits for tokens to go on.
    pub fn any_waiting(&self) -> bool {
        !self.resuming.is_empty()
    }

    /// The first group that waits for tokens to go on, and how many parts it starts.
    pub fn waiting(&self) -> Option<(GroupId, u32)> {
        let id = *self.resuming.front()?;
        let group = self.groups.get(id.0 as usize)?;
        Some((
            id,
            self.ready(&group.request.io, group.parts, group.submitted),
        ))
    }

    /// The group of [`Groups::waiting`] has been started.
    pub fn resumed(&mut self) {
        self.resuming.pop_front();
    }

    /// A part of a group is done.
    pub fn part_done(&mut self, id: GroupId, failure: Option<Failure>) -> Next {
        let (Some(striping), Some(group)) = (self.striping, self.groups.get_mut(id.0 as usize))
        else {
            return Next::Nothing;
        };
        group.in_flight -= 1;
        group.failure = group.failure.or(failure);
        let io = group.request.io;
        // What has failed is not continued, as the kernel does not with a write behind a flush.
        if group.failure.is_none() && group.submitted < group.parts {
            if !striping.waits(&io, group.submitted) {
                return self.take_part(id).map_or(Next::Nothing, Next::Start);
            }
            if group.in_flight == 0 {
                self.resuming.push_back(id);
            }
            return Next::Nothing;
        }
        if group.in_flight > 0 {
            return Next::Nothing;
        }
        let done = Next::Done(group.request, group.failure);
        self.free.push(id.0);
        done
    }

    /// Parts that can start together, from one that can: at most as many as there are tokens.
    fn ready(&self, io: &Io, parts: u32, from: u32) -> u32 {
        let Some(striping) = self.striping else {
            return 0;
        };
        let mut end = from + 1;
        while end < parts && end - from < self.cap && !striping.waits(io, end) {
            end += 1;
        }
        end - from
    }
}
