//! Bounded time ordering: requests leave in the order in which they began, although they complete
//! in another.
//!
//! A request takes its place when it begins and keeps it until it is done. Requests leave from the
//! front. One that is not done holds the others back, but only for a bounded time: then it steps
//! aside, the others go on, and it leaves when it is done, *late*. So a device that answers one
//! request after a minute costs memory for a second of requests, not for a minute.

use std::collections::{BTreeMap, VecDeque};
use std::mem;

use crate::request::Request;

/// A place in an [`OrderWindow`], given out in the order of beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(u64);

/// Requests that began and have not left yet.
#[derive(Debug)]
pub struct OrderWindow {
    places: VecDeque<Place>,
    /// Ticket of the first place.
    first: u64,
    /// Requests that were not done in time, oldest first.
    aside: BTreeMap<Ticket, Place>,
    /// Requests that stepped aside and are done now.
    done_aside: Vec<Request>,
    hold_ns: u64,
    capacity: usize,
    /// Latest beginning among the requests that left.
    left_to_ns: u64,
}

#[derive(Debug)]
struct Place {
    state: State,
    request: Request,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Not done; the number is its owner's.
    Open(u32),
    Done,
    /// Will never leave.
    Empty,
}

impl OrderWindow {
    /// A window in which a request holds back others for `hold_ns` at most, and in which at most
    /// about `capacity` requests wait.
    pub fn new(hold_ns: u64, capacity: usize) -> OrderWindow {
        OrderWindow {
            places: VecDeque::new(),
            first: 0,
            aside: BTreeMap::new(),
            done_aside: Vec::new(),
            hold_ns,
            capacity,
            left_to_ns: 0,
        }
    }

    /// Takes a place for a request that begins now. `owner` comes back from
    /// [`OrderWindow::oldest_before`] and [`OrderWindow::oldest`].
    pub fn begin(&mut self, owner: u32, request: Request) -> Ticket {
        let ticket = Ticket(self.first + self.places.len() as u64);
        self.places.push_back(Place {
            state: State::Open(owner),
            request,
        });
        ticket
    }

    /// A request that has not left, to complete it. `None` if it is done or gone.
    pub fn open_mut(&mut self, ticket: Ticket) -> Option<&mut Request> {
        let place = self.place_mut(ticket)?;
        matches!(place.state, State::Open(_)).then_some(&mut place.request)
    }

    /// The request is done: it leaves when its turn comes.
    pub fn done(&mut self, ticket: Ticket) {
        if let Some(place) = self.aside.remove(&ticket) {
            self.done_aside.push(place.request);
        } else if let Some(place) = self.place_mut(ticket) {
            place.state = State::Done;
        }
    }

    /// The request gives up its place and does not leave. Returns it, unless it is done or gone.
    pub fn withdraw(&mut self, ticket: Ticket) -> Option<Request> {
        if let Some(place) = self.aside.remove(&ticket) {
            return Some(place.request);
        }
        let place = self.place_mut(ticket)?;
        if !matches!(place.state, State::Open(_)) {
            return None;
        }
        place.state = State::Empty;
        Some(mem::take(&mut place.request))
    }

    /// Owner of the oldest request that is not done, if it began before `time_ns`.
    ///
    /// Only requests that have been waited for in vain count: those that hold others back are
    /// younger than the window holds.
    pub fn oldest_before(&self, time_ns: u64) -> Option<u32> {
        let (_, place) = self.aside.first_key_value()?;
        match place.state {
            State::Open(owner) if place.request.time_ns < time_ns => Some(owner),
            _ => None,
        }
    }

    /// Owner of the oldest request that is not done.
    pub fn oldest(&self) -> Option<u32> {
        self.aside
            .values()
            .chain(&self.places)
            .find_map(|place| match place.state {
                State::Open(owner) => Some(owner),
                State::Done | State::Empty => None,
            })
    }

    /// Lets out what may leave at `now_ns`, in the order of beginning, and returns how many of
    /// them are late: began before one that had left.
    pub fn release(&mut self, now_ns: u64, out: &mut Vec<Request>) -> u64 {
        let from = out.len();
        out.append(&mut self.done_aside);
        while let Some(place) = self.places.front() {
            let holds = matches!(place.state, State::Open(_));
            let patient = place.request.time_ns.saturating_add(self.hold_ns) > now_ns;
            if holds && patient && self.places.len() <= self.capacity {
                break;
            }
            let Some(place) = self.places.pop_front() else {
                break;
            };
            match place.state {
                State::Done => out.push(place.request),
                State::Open(_) => drop(self.aside.insert(Ticket(self.first), place)),
                State::Empty => {}
            }
            self.first += 1;
        }
        self.put_in_order(&mut out[from..])
    }

    /// Tickets follow the order in which events were merged, which can differ from that of their
    /// times by the length of an interrupt.
    fn put_in_order(&mut self, requests: &mut [Request]) -> u64 {
        if !requests.is_sorted_by_key(|request| request.time_ns) {
            requests.sort_by_key(|request| request.time_ns);
        }
        let before = self.left_to_ns;
        if let Some(last) = requests.last() {
            self.left_to_ns = before.max(last.time_ns);
        }
        requests
            .iter()
            .take_while(|request| request.time_ns < before)
            .count() as u64
    }

    fn place_mut(&mut self, ticket: Ticket) -> Option<&mut Place> {
        match ticket.0.checked_sub(self.first) {
            Some(index) => self.places.get_mut(usize::try_from(index).ok()?),
            None => self.aside.get_mut(&ticket),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(time_ns: u64) -> Request {
        Request {
            time_ns,
            ..Request::default()
        }
    }

    fn released(window: &mut OrderWindow, now_ns: u64) -> (Vec<u64>, u64) {
        let mut out = Vec::new();
        let late = window.release(now_ns, &mut out);
        (out.iter().map(|request| request.time_ns).collect(), late)
    }

    #[test]
    fn requests_leave_in_the_order_of_beginning() {
        let mut window = OrderWindow::new(1000, 100);
        let tickets: Vec<Ticket> = (1..=4).map(|time| window.begin(0, at(time))).collect();
        window.done(tickets[2]);
        window.done(tickets[1]);
        assert_eq!(
            released(&mut window, 10),
            (vec![], 0),
            "the first is not done"
        );
        window.done(tickets[0]);
        assert_eq!(released(&mut window, 10), (vec![1, 2, 3], 0));
        window.done(tickets[3]);
        assert_eq!(released(&mut window, 10), (vec![4], 0));
    }

    #[test]
    fn one_that_takes_too_long_steps_aside_and_leaves_late() {
        let mut window = OrderWindow::new(1000, 100);
        let slow = window.begin(7, at(1));
        for time in [2, 3] {
            let ticket = window.begin(0, at(time));
            window.done(ticket);
        }
        assert_eq!(released(&mut window, 1000), (vec![], 0));
        assert_eq!(
            window.oldest_before(u64::MAX),
            None,
            "nobody stepped aside yet"
        );
        assert_eq!(released(&mut window, 1001), (vec![2, 3], 0));
        assert_eq!(window.oldest_before(1), None);
        assert_eq!(window.oldest_before(2), Some(7));
        window.open_mut(slow).unwrap().latency_ns = Some(5000);
        window.done(slow);
        assert_eq!(window.open_mut(slow), None);
        let mut out = Vec::new();
        assert_eq!(window.release(6000, &mut out), 1);
        assert_eq!((out[0].time_ns, out[0].latency_ns), (1, Some(5000)));
    }

    #[test]
    fn more_than_the_capacity_do_not_wait() {
        let mut window = OrderWindow::new(u64::MAX, 2);
        window.begin(7, at(1));
        for time in [2, 3] {
            let ticket = window.begin(0, at(time));
            window.done(ticket);
        }
        assert_eq!(released(&mut window, 3), (vec![2, 3], 0));
        assert_eq!(window.oldest(), Some(7));
    }

    #[test]
    fn one_that_withdraws_holds_nobody_back() {
        let mut window = OrderWindow::new(1000, 100);
        let first = window.begin(0, at(1));
        let second = window.begin(0, at(2));
        window.done(second);
        assert_eq!(window.withdraw(first).unwrap().time_ns, 1);
        assert_eq!(window.withdraw(first), None);
        assert_eq!(window.withdraw(second), None, "it is done");
        assert_eq!(released(&mut window, 3), (vec![2], 0));
    }

    #[test]
    fn small_disorder_at_the_beginning_is_put_right() {
        let mut window = OrderWindow::new(1000, 100);
        for time in [5, 4, 6] {
            let ticket = window.begin(0, at(time));
            window.done(ticket);
        }
        assert_eq!(released(&mut window, 10), (vec![4, 5, 6], 0));
        let ticket = window.begin(0, at(5));
        window.done(ticket);
        assert_eq!(released(&mut window, 10), (vec![5], 1), "6 had left");
    }
}
