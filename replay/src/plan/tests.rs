//! The planner and the feed together: what is counted is what was used.

use std::time::Duration;

use iotape_formats::{Flags, Op};

use super::*;
use crate::engine::Action;
use crate::map::{Layout, Mapping, Members, Rule, Volume};
use crate::options::{MappingMode, Speed, Timing};
use crate::source::testing::Rows;
use crate::source::{Row, Source};

/// Reads of a page with latencies 1, 2, 3 …; each tenth row a zone reset instead.
fn rows(count: u64) -> Rows {
    let rows = (0..count).map(|n| Row {
        op: if n % 10 == 9 { Op::ZoneReset } else { Op::Read },
        flags: Flags::NONE,
        offset_bytes: n * 4096,
        length_bytes: 4096,
        latency_ns: Some(n + 1),
        ..Row::default()
    });
    Rows::new(rows.collect())
}

/// Wraps onto half of the tape.
fn rules(source: &Rows, target_bytes: u64) -> Rules {
    let layout = Layout::of(source.summary()).unwrap();
    Rules {
        filter: Filter::default(),
        mapping: Mapping::of_one(Volume::new(
            layout,
            Rule {
                mode: MappingMode::Wrap,
                ..Rule::default()
            },
            Members::One(0),
            target_bytes,
        )),
        align_bytes: 1,
        longest_bytes: 4096,
        payload_bytes: 8192,
        payload_step: 512,
    }
}

/// Runs the planner against a consumer; returns what it tallied.
fn play(source: &mut Rows, repeat: bool, target: u64, consume: impl FnOnce(Feed)) -> Tally {
    let rules = rules(source, target);
    let planner = Planner {
        rules: &rules,
        pacing: Pacing {
            timing: Timing::Asap,
            speed: Speed::RECORDED,
            origin_ns: None,
        },
        seed: 1,
        repeat,
    };
    let (outlet, feed) = channel();
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| planner.run(source, outlet));
        consume(feed);
        let (tally, read) = thread.join().unwrap();
        read.unwrap();
        tally
    })
}

/// Uses `count` operations, or all, and counts from `warm` on.
fn take(feed: &mut Feed, count: usize, warm: usize) -> usize {
    let mut used = 0;
    while used < count {
        feed.wait(Duration::from_secs(60));
        if feed.ended() {
            break;
        }
        if used == warm {
            feed.start_counting();
        }
        let limit = if used < warm { warm } else { count };
        let now = feed.ready().len().min(limit - used);
        feed.advance(now);
        used += now;
    }
    used
}

#[test]
fn a_whole_pass_counts_everything_once() {
    let tally = play(&mut rows(10_000), false, 5_000 * 4096, |mut feed| {
        assert_eq!(take(&mut feed, usize::MAX, 0), 9_000);
    });
    assert_eq!(
        (tally.submitted, tally.with_range, tally.passes),
        (9_000, 9_000, 1)
    );
    assert_eq!(tally.remapped, 4_500);
    let skipped: Vec<_> = tally.skipped.into_iter().collect();
    assert_eq!(
        skipped,
        [(
            (Op::ZoneReset, SkipReason::NotReplayable),
            (1_000, 1_000 * 4096)
        )]
    );
    let recorded = tally.recorded[Action::Read.index()][0].figures().unwrap();
    assert_eq!(
        (recorded.count, recorded.min, recorded.max),
        (9_000, 1, 9_999)
    );
}

#[test]
fn a_part_counts_only_what_was_used_of_it() {
    let tally = play(&mut rows(10_000), false, 1 << 40, |mut feed| {
        assert_eq!(take(&mut feed, 4_500, 900), 4_500);
    });
    // 4,500 operations are rows 0 to 4,998; the 500 skipped among them end at row 4,989.
    assert_eq!((tally.submitted, tally.remapped), (4_500, 0));
    assert_eq!(
        tally
            .skipped
            .values()
            .map(|(requests, _)| requests)
            .sum::<u64>(),
        499
    );
    let recorded = tally.recorded[Action::Read.index()][0].figures().unwrap();
    assert_eq!(
        (recorded.count, recorded.min, recorded.max),
        (3_600, 1_001, 4_999)
    );
}

#[test]
fn repeating_begins_again_until_nobody_takes_more() {
    let tally = play(&mut rows(1_000), true, 1 << 40, |mut feed| {
        assert_eq!(take(&mut feed, 30_000, 0), 30_000);
    });
    // 900 operations a pass: the 30,000th is in the 34th.
    assert_eq!((tally.submitted, tally.passes), (30_000, 34));
    let recorded = tally.recorded[Action::Read.index()][0].figures().unwrap();
    assert_eq!((recorded.count, recorded.max), (30_000, 999));
}

#[test]
fn repeating_a_tape_of_which_nothing_is_submitted_ends() {
    let only_resets = (0..5_000)
        .map(|_| Row {
            op: Op::ZoneReset,
            ..Row::default()
        })
        .collect();
    let tally = play(&mut Rows::new(only_resets), true, 1 << 40, |mut feed| {
        assert_eq!(take(&mut feed, usize::MAX, 0), 0);
    });
    assert_eq!(tally.submitted, 0);
    assert_eq!(
        tally
            .skipped
            .values()
            .map(|(requests, _)| requests)
            .sum::<u64>(),
        5_000
    );
}
