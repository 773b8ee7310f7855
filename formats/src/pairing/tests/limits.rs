//! Losses, bounds, and what is left out.

use super::*;

#[test]
fn a_loss_puts_in_doubt_what_is_open() {
    let paired = pair(
        Layer::Queue,
        "10 Q W 100 + 8 [7]
         11 Q R 200 + 8 [7]
         12 C R 200 + 8 [0]
         20 lost
         30 C W 100 + 8 [0]
         31 Q W 100 + 8 [7]
         40 C W 100 + 8 [0]",
    );
    assert_rows(
        &paired,
        "10 write - 100+8 ? pid=7
         11 read - 200+8 1 pid=7
         31 write - 100+8 9 pid=7",
    );
    assert_eq!(
        paired.counters,
        Counters {
            ambiguous: 1,
            ..Counters::default()
        }
    );
}

#[test]
fn a_lost_completion_gives_no_wrong_latency_later() {
    let paired = pair(
        Layer::Queue,
        "10 Q W 100 + 8 [7]
         20 lost
         31 Q W 100 + 8 [7]
         40 C W 100 + 8 [0]",
    );
    assert_rows(
        &paired,
        "10 write - 100+8 ? pid=7
         31 write - 100+8 ? pid=7",
    );
    assert_eq!(
        paired.counters,
        Counters {
            ambiguous: 1,
            unpaired_issues: 1,
            ..Counters::default()
        }
    );
}

#[test]
fn in_a_gap_completions_prove_nothing() {
    // The second write of the same place may have lost its begin, and the first its end.
    let paired = pair(
        Layer::Queue,
        "10 Q W 100 + 8 [7]
         15 gap
         20 C W 100 + 8 [0]
         25 gap-over
         30 Q W 100 + 8 [7]
         40 C W 100 + 8 [0]",
    );
    assert_rows(
        &paired,
        "10 write - 100+8 ? pid=7
         30 write - 100+8 10 pid=7",
    );
}

#[test]
fn after_a_loss_flushes_are_in_doubt_for_a_while() {
    let paired = pair(
        Layer::Queue,
        "10 lost
         20 Q FWS 0 + 0 [7]
         30 C WS 0 + 0 [0]
         5000000010 Q FWS 0 + 0 [7]
         5000000020 C WS 0 + 0 [0]",
    );
    assert_rows(
        &paired,
        "20 flush sync 0+0 ? pid=7
         5000000010 flush sync 0+0 10 pid=7",
    );
}

#[test]
fn on_a_busy_device_the_first_flushes_are_in_doubt() {
    let text = "20 Q FWS 0 + 0 [7]
                21 Q W 100 + 8 [7]
                30 C WS 0 + 0 [0]
                31 C W 100 + 8 [0]";
    let busy = DeviceRules {
        busy_at_start: true,
        ..rules(Layer::Queue)
    };
    assert_rows(
        &pair_with(busy, Limits::default(), text),
        "20 flush sync 0+0 ? pid=7
         21 write - 100+8 10 pid=7",
    );
}

#[test]
fn after_a_loss_a_waiting_operation_tells_nothing() {
    let paired = pair(
        Layer::Device,
        "10 Q W 100 + 8 [7]
         20 lost
         30 D W 100 + 8
         40 C W 100 + 8 [0]",
    );
    assert_rows(&paired, "30 write - 100+8 10");
}

#[test]
fn what_takes_too_long_is_given_up_and_its_end_is_unpaired() {
    let limits = Limits {
        hold_ns: 100,
        give_up_ns: 1000,
        open: 10,
    };
    let paired = pair_with(
        rules(Layer::Queue),
        limits,
        "10 Q W 100 + 8 [7]
         20 Q W 200 + 8 [7]
         30 C W 200 + 8 [0]
         109 release
         110 release
         1010 release
         1011 release
         1012 C W 100 + 8 [0]",
    );
    assert_rows(
        &paired,
        "20 write - 200+8 10 pid=7
         10 write - 100+8 ? pid=7",
    );
    assert_eq!(
        paired.counters,
        Counters {
            unpaired_issues: 1,
            unpaired_completions: 1,
            late: 1,
            ..Counters::default()
        }
    );
}

#[test]
fn above_the_limit_the_oldest_is_given_up() {
    let limits = Limits {
        open: 2,
        ..Limits::default()
    };
    let paired = pair_with(
        rules(Layer::Queue),
        limits,
        "10 Q W 100 + 8 [7]
         11 Q W 200 + 8 [7]
         12 Q W 300 + 8 [7]
         20 C W 200 + 8 [0]
         21 C W 300 + 8 [0]
         22 C W 100 + 8 [0]",
    );
    assert_rows(
        &paired,
        "10 write - 100+8 ? pid=7
         11 write - 200+8 9 pid=7
         12 write - 300+8 9 pid=7",
    );
    assert_eq!(
        paired.counters,
        Counters {
            unpaired_issues: 1,
            unpaired_completions: 1,
            ..Counters::default()
        }
    );
}

#[test]
fn the_waiting_are_bounded_too() {
    let limits = Limits {
        open: 1,
        ..Limits::default()
    };
    let paired = pair_with(
        rules(Layer::Device),
        limits,
        "10 Q W 100 + 8 [7]
         11 Q W 200 + 8 [7]
         20 D W 200 + 8
         21 C W 200 + 8 [0]
         22 D W 100 + 8
         23 C W 100 + 8 [0]",
    );
    assert_rows(
        &paired,
        "20 write - 200+8 1
         22 write - 100+8 1 queue=12 pid=7",
    );
}

#[test]
fn the_recorders_own_requests_are_left_out() {
    let text = "10 Q W 100 + 8 [999]
                11 D W 100 + 8
                12 Q W 300 + 8 [7]
                13 D W 300 + 8
                20 C W 100 + 8 [0]
                21 C W 300 + 8 [0]";
    let paired = pair(Layer::Queue, text);
    assert_rows(&paired, "12 write - 300+8 9 pid=7");
    assert_eq!(paired.counters, Counters::default());
    let paired = pair(Layer::Device, text);
    assert_rows(&paired, "13 write - 300+8 8 queue=1 pid=7");
    assert_eq!(paired.counters, Counters::default());
}

#[test]
fn what_begins_after_the_end_is_paired_and_left_out() {
    let paired = pair(
        Layer::Queue,
        "10 Q W 100 + 8 [7]
         20 end
         21 Q W 200 + 8 [7]
         30 C W 200 + 8 [0]
         31 C W 100 + 8 [0]
         32 Q W 300 + 8 [7]",
    );
    assert_rows(&paired, "10 write - 100+8 21 pid=7");
    assert_eq!(paired.counters, Counters::default());
}

#[test]
fn a_range_beyond_64_bits_is_counted_and_left_out() {
    let mut pairing = Pairing::new(vec![rules(Layer::Queue)], Limits::default(), 0, None);
    let mut beyond = event("10 Q W 100 + 8 [7]");
    beyond.offset_bytes = u64::MAX - 100;
    pairing.event(beyond);
    let mut unknown = event("10 Q W 100 + 8 [7]");
    unknown.device = DeviceIndex(1);
    pairing.event(unknown);
    let mut out = Vec::new();
    pairing.finish(&mut out);
    assert_eq!(out, []);
    assert_eq!(
        pairing.take_counters(),
        Counters {
            undecodable: 1,
            ..Counters::default()
        }
    );
}

#[test]
fn what_was_open_at_a_loss_is_not_in_flight_any_more() {
    let queue = rules(Layer::Queue);
    let mut pairing = Pairing::new(vec![queue, queue], Limits::default(), 0, Some(999));
    for line in ["1 Q R 0 + 8 [5]", "2 Q R 8 + 8 [5]", "3 Q R 16 + 8 [999]"] {
        pairing.event(event(line));
    }
    assert_eq!(pairing.in_flight_by_device(), [2, 0]);
    pairing.lost(4);
    assert_eq!(pairing.in_flight(), 0);
    pairing.event(event("5 Q R 24 + 8 [5]"));
    pairing.event(Event {
        device: DeviceIndex(1),
        ..event("6 Q W 24 + 8 [5]")
    });
    assert_eq!(pairing.in_flight_by_device(), [1, 1]);
    // One from before is done after all, and one from behind the loss.
    pairing.event(event("7 B R 0 + 8 [0]"));
    assert_eq!(pairing.in_flight(), 2);
    pairing.event(event("8 B R 24 + 8 [0]"));
    assert_eq!(pairing.in_flight_by_device(), [0, 1]);
}
