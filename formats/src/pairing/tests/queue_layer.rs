//! The queue layer: a request is what its submitter handed over.

use super::*;

fn queue(text: &str) -> Paired {
    pair(Layer::Queue, text)
}

#[test]
fn a_read_and_a_write() {
    let paired = queue(
        "10 Q R 100 + 8 [7]
         12 Q WS 200 + 16 [8]
         20 C WS 200 + 16 [0]
         30 C R 100 + 8 [0]",
    );
    assert_rows(
        &paired,
        "10 read - 100+8 20 pid=7
         12 write sync 200+16 8 pid=8",
    );
    assert_eq!(paired.counters, Counters::default());
}

#[test]
fn merged_operations_are_done_together() {
    // Three writes and a front merge complete as one request.
    let paired = queue(
        "10 Q W 108 + 8 [7]
         11 Q W 116 + 8 [7]
         12 Q W 100 + 8 [8]
         13 Q W 124 + 8 [7]
         50 C W 100 + 32 [0]",
    );
    assert_rows(
        &paired,
        "10 write - 108+8 40 pid=7
         11 write - 116+8 39 pid=7
         12 write - 100+8 38 pid=8
         13 write - 124+8 37 pid=7",
    );
    assert_eq!(paired.counters, Counters::default());
}

#[test]
fn a_split_operation_is_done_with_its_last_part() {
    let paired = queue(
        "10 Q R 0 + 2056 [7]
         40 C R 1032 + 1024 [0]
         60 C R 0 + 1032 [0]",
    );
    assert_rows(&paired, "10 read - 0+2056 50 pid=7");
}

#[test]
fn a_part_may_be_merged_with_a_neighbour() {
    // As seen on a loop device: the tail of one read and the head of the next in one request.
    let paired = queue(
        "10 Q R 0 + 2056 [7]
         11 Q R 2056 + 1000 [7]
         40 C R 0 + 1032 [0]
         60 C R 1032 + 2024 [0]",
    );
    assert_rows(
        &paired,
        "10 read - 0+2056 50 pid=7
         11 read - 2056+1000 49 pid=7",
    );
}

#[test]
fn a_request_done_in_parts_keeps_its_first_error() {
    let paired = queue(
        "10 Q W 100 + 24 [7]
         20 C W 100 + 8 [0]
         30 C W 108 + 8 [5]
         40 C W 116 + 8 [6]",
    );
    assert_rows(&paired, "10 write - 100+24 30 pid=7 error=5");
}

#[test]
fn reads_and_writes_of_the_same_place_are_apart() {
    let paired = queue(
        "10 Q R 100 + 8 [7]
         11 Q W 100 + 8 [8]
         12 Q D 100 + 8 [9]
         20 C W 100 + 8 [0]
         30 C D 100 + 8 [0]
         40 C R 100 + 8 [0]",
    );
    assert_rows(
        &paired,
        "10 read - 100+8 30 pid=7
         11 write - 100+8 9 pid=8
         12 discard - 100+8 18 pid=9",
    );
}

#[test]
fn write_zeroes_and_discard_and_secure_erase() {
    let paired = queue(
        "10 Q NS 0 + 2048 [7]
         11 Q DS 4096 + 128 [7]
         12 Q DE 8192 + 128 [7]
         20 C NS 0 + 2048 [0]
         21 C DS 4096 + 128 [0]
         22 C DE 8192 + 128 [95]",
    );
    assert_rows(
        &paired,
        "10 write_zeroes sync 0+2048 10 pid=7
         11 discard sync 4096+128 10 pid=7
         12 discard secure 8192+128 10 pid=7 error=95",
    );
}

#[test]
fn a_flush_is_done_when_its_sequence_is() {
    // FF is the kernel's own flush; WS 0 + 0 tells the end of the submitted one.
    let paired = queue(
        "10 Q FWS 0 + 0 [7]
         40 C FF - + 0 [0]
         41 C WS 0 + 0 [0]",
    );
    assert_rows(&paired, "10 flush sync 0+0 31 pid=7");
    assert_eq!(paired.counters, Counters::default());
}

#[test]
fn flushes_in_flight_together_are_kept_without_latency() {
    let paired = queue(
        "10 Q FWS 0 + 0 [7]
         11 Q FWS 0 + 0 [8]
         40 C FF - + 0 [0]
         41 C WS 0 + 0 [0]
         42 C WS 0 + 0 [0]
         50 Q FWS 0 + 0 [9]
         60 C WS 0 + 0 [0]",
    );
    assert_rows(
        &paired,
        "10 flush sync 0+0 ? pid=7
         11 flush sync 0+0 ? pid=8
         50 flush sync 0+0 10 pid=9",
    );
    assert_eq!(
        paired.counters,
        Counters {
            ambiguous: 2,
            ..Counters::default()
        }
    );
}

#[test]
fn doubt_lasts_as_long_as_one_of_the_doubtful_is_open() {
    // After the completion at 40 it is not known which of the first two is open: the third can be
    // taken for it.
    let paired = queue(
        "10 Q FWS 0 + 0 [7]
         11 Q FWS 0 + 0 [8]
         40 C WS 0 + 0 [0]
         41 Q FWS 0 + 0 [9]
         42 C WS 0 + 0 [0]
         43 C WS 0 + 0 [0]",
    );
    assert_rows(
        &paired,
        "10 flush sync 0+0 ? pid=7
         11 flush sync 0+0 ? pid=8
         41 flush sync 0+0 ? pid=9",
    );
    assert_eq!(paired.counters.ambiguous, 3);
}

#[test]
fn a_durable_write_without_fua_is_done_after_its_flush() {
    // O_DSYNC on a loop device: data done at 30, the sequence at 50.
    let paired = queue(
        "10 Q WFS 100 + 8 [7]
         11 Q WFS 300 + 8 [7]
         30 C WS 100 + 8 [0]
         31 C WS 300 + 8 [0]
         49 C FF - + 0 [0]
         50 C WS 100 + 0 [0]
         51 C WS 300 + 0 [0]",
    );
    assert_rows(
        &paired,
        "10 write sync+fua 100+8 40 pid=7
         11 write sync+fua 300+8 40 pid=7",
    );
    assert_eq!(paired.counters, Counters::default());
}

#[test]
fn a_durable_write_with_fua_is_done_with_its_data() {
    let paired = queue(
        "10 Q WFS 100 + 8 [7]
         30 C WFS 100 + 8 [0]",
    );
    assert_rows(&paired, "10 write sync+fua 100+8 20 pid=7");
}

#[test]
fn a_write_with_a_flush_before_it_ends_with_its_sequence() {
    // A journal commit with FUA in the device: flush, data with FUA, end of the sequence.
    let paired = queue(
        "10 Q FWFSM 100 + 8 [7]
         20 C FF - + 0 [0]
         30 C WFSM 100 + 8 [0]
         31 C WFSM 100 + 0 [0]",
    );
    assert_rows(&paired, "10 write sync+fua+preflush+meta 100+8 21 pid=7");
}

#[test]
fn each_part_of_a_split_durable_write_has_its_own_sequence() {
    let paired = queue(
        "10 Q WFS 0 + 2048 [7]
         30 C WS 0 + 1024 [0]
         31 C WS 1024 + 1024 [0]
         40 C WS 1024 + 0 [0]
         50 C WS 0 + 0 [0]",
    );
    assert_rows(&paired, "10 write sync+fua 0+2048 40 pid=7");
}

#[test]
fn a_sequence_at_sector_0_is_told_from_a_flush_by_its_flags() {
    // The superblock's write and a flush of somebody else, both at sector 0.
    let paired = queue(
        "10 Q WFSM 0 + 8 [7]
         11 Q FWS 0 + 0 [8]
         20 C WSM 0 + 8 [0]
         30 C WS 0 + 0 [0]
         40 C WSM 0 + 0 [0]",
    );
    assert_rows(
        &paired,
        "10 write sync+fua+meta 0+8 30 pid=7
         11 flush sync 0+0 19 pid=8",
    );
}

#[test]
fn a_sequence_at_sector_0_with_the_flags_of_a_flush_is_ambiguous() {
    let paired = queue(
        "10 Q WFS 0 + 8 [7]
         11 Q FWS 0 + 0 [8]
         20 C WS 0 + 8 [0]
         30 C WS 0 + 0 [0]
         40 C WS 0 + 0 [0]",
    );
    assert_rows(
        &paired,
        "10 write sync+fua 0+8 ? pid=7
         11 flush sync 0+0 ? pid=8",
    );
    assert_eq!(paired.counters.ambiguous, 2);
}

#[test]
fn overlapping_operations_are_kept_without_latency() {
    let paired = queue(
        "10 Q W 100 + 8 [7]
         11 Q W 100 + 8 [8]
         12 Q W 500 + 8 [9]
         20 C W 100 + 8 [0]
         30 C W 100 + 8 [0]
         40 C W 500 + 8 [0]",
    );
    assert_rows(
        &paired,
        "10 write - 100+8 ? pid=7
         11 write - 100+8 ? pid=8
         12 write - 500+8 28 pid=9",
    );
    assert_eq!(
        paired.counters,
        Counters {
            ambiguous: 2,
            ..Counters::default()
        }
    );
}

#[test]
fn one_inside_another_is_ambiguous_too() {
    // 104+4 may be the small write or a part of the large one.
    let paired = queue(
        "10 Q W 100 + 16 [7]
         11 Q W 104 + 4 [8]
         20 C W 104 + 4 [0]
         30 C W 100 + 16 [0]",
    );
    assert_rows(
        &paired,
        "10 write - 100+16 ? pid=7
         11 write - 104+4 ? pid=8",
    );
    assert_eq!(
        paired.counters,
        Counters {
            ambiguous: 2,
            ..Counters::default()
        }
    );
}

#[test]
fn one_after_the_other_at_the_same_place_is_certain() {
    let paired = queue(
        "10 Q W 100 + 8 [7]
         20 C W 100 + 8 [0]
         21 Q W 100 + 8 [7]
         35 C W 100 + 8 [0]",
    );
    assert_rows(
        &paired,
        "10 write - 100+8 10 pid=7
         21 write - 100+8 14 pid=7",
    );
}

#[test]
fn a_completion_is_never_taken_for_what_began_after_it() {
    // Rings are merged by time, but an interrupt's event can come late: the completion at 20 is
    // the first one's although the second is open already.
    let paired = queue(
        "10 Q W 100 + 8 [7]
         21 Q W 100 + 8 [7]
         20 C W 100 + 8 [0]
         35 C W 100 + 8 [0]",
    );
    assert_rows(
        &paired,
        "10 write - 100+8 10 pid=7
         21 write - 100+8 14 pid=7",
    );
}

#[test]
fn started_while_requests_were_in_flight() {
    let paired = queue(
        "20 C W 100 + 8 [0]
         21 C WS 0 + 0 [0]
         22 C FF - + 0 [0]
         23 Q W 116 + 8 [7]
         30 C W 108 + 16 [0]",
    );
    // The last completion is of two merged writes, the first of which began before the recording.
    assert_rows(&paired, "23 write - 116+8 7 pid=7");
    assert_eq!(
        paired.counters,
        Counters {
            unpaired_completions: 3,
            ..Counters::default()
        }
    );
}

#[test]
fn never_completed() {
    let paired = queue(
        "10 Q W 100 + 8 [7]
         11 Q R 200 + 8 [7]
         20 C R 200 + 8 [0]",
    );
    assert_rows(
        &paired,
        "10 write - 100+8 ? pid=7
         11 read - 200+8 9 pid=7",
    );
    assert_eq!(
        paired.counters,
        Counters {
            unpaired_issues: 1,
            ..Counters::default()
        }
    );
}

#[test]
fn a_device_without_requests_completes_bios() {
    let paired = queue(
        "10 Q R 63232 + 32 [7]
         11 Q FWS 0 + 0 [7]
         12 Q NS 0 + 2048 [7]
         13 Q FWFS 300 + 8 [7]
         20 B NS 0 + 2048 [0]
         21 B R 63232 + 32 [5]
         22 B FWS 0 + 0 [0]
         23 B FWFS 300 + 8 [0]",
    );
    assert_rows(
        &paired,
        "10 read - 63232+32 11 pid=7 error=5
         11 flush sync 0+0 11 pid=7
         12 write_zeroes sync 0+2048 8 pid=7
         13 write sync+fua+preflush 300+8 10 pid=7",
    );
    assert_eq!(paired.counters, Counters::default());
}

#[test]
fn commands_that_nobody_queued_are_not_counted_as_unpaired() {
    let paired = queue("10 C N - + 0 [0]");
    assert_rows(&paired, "");
    assert_eq!(paired.counters, Counters::default());
}

#[test]
fn zone_appends_are_done_elsewhere() {
    let paired = queue(
        "10 Q ZAS 0 + 8 [7]
         11 Q ZAS 4096 + 16 [7]
         12 Q ZRS 8192 + 0 [7]
         20 C ZAS 24 + 8 [0]
         21 C ZAS 4200 + 16 [0]
         22 C ZRS 8192 + 0 [0]",
    );
    assert_rows(
        &paired,
        "10 zone_append sync 0+8 10 pid=7
         11 zone_append sync 4096+16 10 pid=7
         12 zone_reset sync 8192+0 10 pid=7",
    );
}

#[test]
fn scattered_discards_are_certain_only_as_a_whole() {
    let rules = DeviceRules {
        scattered_discards: true,
        ..rules(Layer::Queue)
    };
    let paired = pair_with(
        rules,
        Limits::default(),
        "10 Q D 0 + 8 [7]
         11 Q D 100 + 8 [7]
         20 C D 100 + 8 [0]
         21 C D 0 + 8 [0]
         30 Q D 0 + 8 [7]
         31 Q D 8 + 8 [7]
         32 Q D 100 + 8 [7]
         40 C D 0 + 16 [0]
         41 C D 8 + 8 [0]",
    );
    // The request that is done at 40 holds 0+8 and 100+8 (or 8+8): its range does not tell.
    assert_rows(
        &paired,
        "10 discard - 0+8 11 pid=7
         11 discard - 100+8 9 pid=7
         30 discard - 0+8 ? pid=7
         31 discard - 8+8 ? pid=7
         32 discard - 100+8 ? pid=7",
    );
    assert_eq!(
        paired.counters.ambiguous + paired.counters.unpaired_issues,
        3
    );
}

#[test]
fn a_lone_discard_is_certain_also_in_parts() {
    let rules = DeviceRules {
        scattered_discards: true,
        ..rules(Layer::Queue)
    };
    let paired = pair_with(
        rules,
        Limits::default(),
        "50 Q D 0 + 64 [7]
         60 C D 0 + 32 [0]
         61 C D 32 + 32 [0]",
    );
    assert_rows(&paired, "50 discard - 0+64 11 pid=7");
}
