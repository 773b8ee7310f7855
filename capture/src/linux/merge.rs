//! Merging the buffers of processors by time.

/// A buffer whose records follow each other in the order of time.
pub(super) trait Lane {
    /// Time of the next record; `None` when there is none.
    fn next_ns(&self) -> Option<u64>;
}

/// Takes records from several lanes, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Merge {
    /// Lanes that have a record, by its time, the latest first. Where there are few, they are put
    /// in their places in a few steps; where there are many, moving them is one copy of some hundred
    /// bytes, which is less than a heap would take.
    order: Vec<(u64, usize)>,
}

impl Merge {
    /// Takes what is older than `until_ns`. `hand_on` steps a lane over what it has before the time
    /// that it is given, or as much of it as it likes, but something.
    pub fn run<L: Lane>(
        &mut self,
        lanes: &mut [L],
        until_ns: u64,
        mut hand_on: impl FnMut(&mut L, u64),
    ) {
        let next = |(index, lane): (usize, &L)| Some((lane.next_ns()?, index));
        self.order.clear();
        self.order.extend(lanes.iter().enumerate().filter_map(next));
        self.order.sort_unstable_by(|a, b| b.cmp(a));
        while let Some((time_ns, index)) = self.order.pop() {
            if time_ns >= until_ns {
                return;
            }
            let others_ns = self.order.last().map_or(u64::MAX, |(time_ns, _)| *time_ns);
            let lane = &mut lanes[index];
            hand_on(lane, until_ns.min(others_ns.saturating_add(1)));
            if let Some(time_ns) = lane.next_ns() {
                let next = (time_ns, index);
                let place = self.order.partition_point(|other| *other > next);
                self.order.insert(place, next);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    struct Times(VecDeque<u64>);

    impl Lane for Times {
        fn next_ns(&self) -> Option<u64> {
            self.0.front().copied()
        }
    }

    fn merged(lanes: &mut [Times], until_ns: u64) -> Vec<u64> {
        let mut taken = Vec::new();
        Merge::default().run(lanes, until_ns, |lane, limit_ns| {
            while let Some(time_ns) = lane.0.front().filter(|time_ns| **time_ns < limit_ns) {
                taken.push(*time_ns);
                lane.0.pop_front();
            }
        });
        taken
    }

    /// As if all were sorted.
    #[test]
    fn what_is_older_comes_first_from_few_lanes_and_from_many() {
        for count in [0, 1, 2, 3, 128] {
            // Each lane ascends, with times that occur in several.
            let times = |lane: u64| (0..200).map(move |step| step * (lane % 7 + 1) + lane % 5);
            let mut lanes: Vec<Times> = (0..count)
                .map(|lane| Times(times(lane).collect()))
                .collect();
            let mut all: Vec<u64> = (0..count).flat_map(times).collect();
            all.sort_unstable();
            let split = all.partition_point(|time_ns| *time_ns < 300);
            assert_eq!(merged(&mut lanes, 300), all[..split], "{count} lanes");
            assert_eq!(merged(&mut lanes, u64::MAX), all[split..], "{count} lanes");
        }
    }
}
