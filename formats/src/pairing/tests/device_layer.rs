//! The device layer: a request is what the driver got.

use super::*;

fn device(text: &str) -> Paired {
    pair(Layer::Device, text)
}

#[test]
fn time_in_the_queue_and_in_the_device() {
    let paired = device(
        "10 Q R 100 + 8 [7]
         15 D R 100 + 8
         30 C R 100 + 8 [0]",
    );
    assert_rows(&paired, "15 read - 100+8 15 queue=5 pid=7");
    assert_eq!(paired.counters, Counters::default());
}

#[test]
fn a_merged_request_is_the_doing_of_its_first_operation() {
    let paired = device(
        "10 Q W 108 + 8 [7]
         11 Q W 116 + 8 [8]
         11 M W 116 + 8
         12 Q W 100 + 8 [9]
         12 M W 100 + 8
         13 G W 100 + 24
         20 D W 100 + 24
         50 C W 100 + 24 [0]",
    );
    assert_rows(&paired, "20 write - 100+24 30 queue=10 pid=7");
    assert_eq!(
        paired.counters,
        Counters {
            merges: 3,
            ..Counters::default()
        }
    );
}

#[test]
fn each_part_of_a_split_operation_is_a_request() {
    let paired = device(
        "10 Q R 0 + 4112 [7]
         11 X R 0 + 0
         20 D R 0 + 2072
         25 D R 2072 + 2040
         40 C R 2072 + 2040 [0]
         60 C R 0 + 2072 [0]",
    );
    assert_rows(
        &paired,
        "20 read - 0+2072 40 queue=10 pid=7
         25 read - 2072+2040 15 queue=15 pid=7",
    );
    assert_eq!(
        paired.counters,
        Counters {
            splits: 1,
            ..Counters::default()
        }
    );
}

#[test]
fn a_request_done_in_parts() {
    let paired = device(
        "10 Q W 100 + 24 [7]
         11 D W 100 + 24
         20 C W 100 + 8 [0]
         30 C W 108 + 16 [5]",
    );
    assert_rows(&paired, "11 write - 100+24 19 queue=1 pid=7 error=5");
}

#[test]
fn a_requeued_request_counts_from_its_last_issue() {
    let paired = device(
        "10 Q W 100 + 8 [7]
         11 D W 100 + 8
         12 R W 100 + 8
         20 D W 100 + 8
         21 R W 100 + 8
         30 D W 100 + 8
         50 C W 100 + 8 [0]",
    );
    assert_rows(&paired, "30 write - 100+8 20 queue=20 pid=7");
    assert_eq!(
        paired.counters,
        Counters {
            requeues: 2,
            ..Counters::default()
        }
    );
}

#[test]
fn a_requeued_request_may_grow() {
    let paired = device(
        "10 Q W 100 + 8 [7]
         11 D W 100 + 8
         12 R W 100 + 8
         13 Q W 108 + 8 [8]
         13 M W 108 + 8
         20 D W 100 + 16
         50 C W 100 + 16 [0]",
    );
    assert_rows(&paired, "20 write - 100+16 30 queue=10 pid=7");
}

#[test]
fn a_partly_done_and_requeued_request_keeps_its_range() {
    let paired = device(
        "10 Q W 100 + 24 [7]
         11 D W 100 + 24
         15 C W 100 + 8 [0]
         16 R W 108 + 16
         20 D W 108 + 16
         50 C W 108 + 16 [0]",
    );
    assert_rows(&paired, "20 write - 100+24 30 queue=10 pid=7");
}

#[test]
fn a_requeued_request_that_is_never_issued_again_is_kept() {
    let paired = device(
        "10 Q W 100 + 8 [7]
         11 D W 100 + 8
         12 R W 100 + 8",
    );
    assert_rows(&paired, "11 write - 100+8 ? queue=1 pid=7");
    assert_eq!(
        paired.counters,
        Counters {
            requeues: 1,
            unpaired_issues: 1,
            ..Counters::default()
        }
    );
}

#[test]
fn one_flush_answers_many() {
    // Recorded from four fsyncs: two flushes for four wishes.
    let paired = device(
        "10 Q FWS 0 + 0 [7]
         12 D FF 0 + 0
         20 Q FWS 0 + 0 [7]
         21 Q FWS 0 + 0 [8]
         22 Q FWS 0 + 0 [8]
         30 C FF - + 0 [0]
         31 C WS 0 + 0 [0]
         40 D FF 0 + 0
         50 C FF - + 0 [0]
         51 C WS 0 + 0 [0]
         52 C WS 0 + 0 [0]
         53 C WS 0 + 0 [0]",
    );
    assert_rows(
        &paired,
        "12 flush - 0+0 18 queue=2 pid=7
         40 flush - 0+0 10",
    );
    assert_eq!(
        paired.counters,
        Counters {
            coalesced_flushes: 2,
            ..Counters::default()
        }
    );
}

#[test]
fn a_wish_taken_too_early_is_not_counted_twice() {
    // The wish at 11 comes after the kernel decided on the flush that is issued at 12: the flush
    // at 40 answers it. Three wishes, three flushes: nothing was coalesced over the whole.
    let paired = device(
        "10 Q FWS 0 + 0 [7]
         11 Q FWS 0 + 0 [7]
         12 D FF 0 + 0
         30 C FF - + 0 [0]
         40 D FF 0 + 0
         50 C FF - + 0 [0]
         60 Q FWS 0 + 0 [7]
         61 Q FWS 0 + 0 [7]
         62 D FF 0 + 0
         70 C FF - + 0 [0]
         71 D FF 0 + 0
         80 C FF - + 0 [0]",
    );
    assert_eq!(paired.requests.len(), 4);
    assert_eq!(
        paired.counters.coalesced_flushes, 1,
        "the highest that the sum was"
    );
}

#[test]
fn a_journal_commit_without_fua() {
    // Flush, write, flush: three requests of one submission.
    let paired = device(
        "10 Q FWFSM 100 + 8 [7]
         11 D FF 0 + 0
         20 C FF - + 0 [0]
         21 D WSM 100 + 8
         30 C WSM 100 + 8 [0]
         31 D FF 0 + 0
         40 C FF - + 0 [0]
         41 C WSM 100 + 0 [0]",
    );
    assert_rows(
        &paired,
        "11 flush - 0+0 9 queue=1 pid=7
         21 write sync+meta 100+8 9 queue=11 pid=7
         31 flush - 0+0 9 queue=1 pid=7",
    );
    assert_eq!(paired.counters, Counters::default());
}

#[test]
fn a_durable_write_with_fua_needs_no_flush() {
    let paired = device(
        "10 Q WFS 100 + 8 [7]
         11 D WFS 100 + 8
         30 C WFS 100 + 8 [0]",
    );
    assert_rows(&paired, "11 write sync+fua 100+8 19 queue=1 pid=7");
    assert_eq!(paired.counters, Counters::default());
}

#[test]
fn flushes_of_several_hardware_queues_at_once_are_ambiguous() {
    let paired = device(
        "11 D FF 0 + 0
         12 D FF 0 + 0
         20 C FF - + 0 [0]
         21 C FF - + 0 [0]",
    );
    assert_rows(
        &paired,
        "11 flush - 0+0 ?
         12 flush - 0+0 ?",
    );
    assert_eq!(paired.counters.ambiguous, 2);
}

#[test]
fn same_sector_requests_in_flight_together() {
    let paired = device(
        "10 Q W 100 + 8 [7]
         11 Q W 100 + 8 [8]
         12 D W 100 + 8
         13 D W 100 + 8
         20 C W 100 + 8 [0]
         30 C W 100 + 8 [0]",
    );
    // Neither which bio became which request nor which request is done is certain.
    assert_eq!(paired.requests.len(), 2);
    for request in &paired.requests {
        assert_eq!((request.latency_ns, request.queue_ns), (None, None));
    }
    assert_eq!(paired.requests[0].process, None);
    assert_eq!(
        paired.counters,
        Counters {
            ambiguous: 2,
            ..Counters::default()
        }
    );
}

#[test]
fn the_submitter_is_certain_if_all_have_the_same() {
    let paired = device(
        "10 Q W 100 + 8 [7]
         11 Q W 100 + 8 [7]
         12 D W 100 + 8
         20 C W 100 + 8 [0]",
    );
    assert_rows(&paired, "12 write - 100+8 8 pid=7");
}

#[test]
fn requests_nobody_queued() {
    // In flight at the start, and a pass-through command.
    let paired = device(
        "10 D W 100 + 8
         11 D N 0 + 0
         12 C N - + 0 [0]
         20 C W 100 + 8 [0]
         21 C W 300 + 8 [0]",
    );
    assert_rows(
        &paired,
        "10 write - 100+8 10
         11 other - 0+0 1",
    );
    assert_eq!(
        paired.counters,
        Counters {
            unpaired_completions: 1,
            ..Counters::default()
        }
    );
}

#[test]
fn what_failed_before_it_was_issued_leaves_no_trace() {
    let paired = device(
        "10 Q W 100 + 8 [7]
         11 B W 100 + 8 [5]
         20 Q W 100 + 8 [8]
         21 D W 100 + 8
         30 C W 100 + 8 [0]",
    );
    assert_rows(&paired, "21 write - 100+8 9 queue=1 pid=8");
}

#[test]
fn on_a_single_queue_a_flush_ends_the_one_before() {
    let rules = DeviceRules {
        single_queue: true,
        ..rules(Layer::Device)
    };
    let paired = pair_with(
        rules,
        Limits::default(),
        "11 D FF 0 + 0
         30 D FF 0 + 0
         40 C FF - + 0 [0]
         50 D FF 0 + 0
         51 R FF 0 + 0
         52 D FF 0 + 0
         60 C FF - + 0 [0]",
    );
    assert_rows(
        &paired,
        "11 flush - 0+0 ?
         30 flush - 0+0 10
         52 flush - 0+0 8",
    );
    assert_eq!(
        paired.counters,
        Counters {
            unpaired_issues: 1,
            requeues: 1,
            ..Counters::default()
        }
    );
}
