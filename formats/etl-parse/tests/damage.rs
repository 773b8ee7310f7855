//! Damaged traces: what is whole is read, what is not is counted, and nothing panics.

#![allow(clippy::unwrap_used, reason = "a test's helpers fail the test")]

use std::io::Cursor;

use etl_parse::encode::{Encoder, usual_header};
use etl_parse::{
    Compression, Error, Event, EventId, HEADER_BYTES, HeaderKind, LogHeader, PointerWidth, Reader,
    Region, flag, is_trace,
};

const BUFFER: usize = 1024;
/// Events of 32 + 8 bytes in a buffer.
const PER_BUFFER: usize = (BUFFER - HEADER_BYTES) / 40;

const COMPRESSIONS: [Option<Compression>; 4] = [
    None,
    Some(Compression::Lznt1),
    Some(Compression::Xpress),
    Some(Compression::XpressHuffman),
];

fn header() -> LogHeader {
    LogHeader {
        buffer_size: BUFFER as u32,
        start_ticks: 0,
        ..usual_header()
    }
}

/// `buffers` full buffers of one processor; event `n` is at tick `n`, from 1.
fn trace(buffers: usize, compression: Option<Compression>) -> Vec<u8> {
    let mut encoder = Encoder::start(Vec::new(), &header(), compression).unwrap();
    for number in 1..=buffers * PER_BUFFER {
        let event = Event {
            kind: HeaderKind::System,
            id: EventId::Kernel { hook: 0x0524 },
            version: 2,
            ticks: Some(number as i64),
            processor: 0,
            process_id: None,
            thread_id: None,
            pointers: PointerWidth::Bits64,
            payload: &(number as u64 * 0x1234_5678_9abc).to_le_bytes(),
            extended: &[],
        };
        encoder.push(&event).unwrap();
    }
    encoder.finish().unwrap()
}

struct Outcome {
    /// Numbers of the events that were read.
    events: Vec<i64>,
    trace: Reader<Cursor<Vec<u8>>>,
}

fn read(bytes: Vec<u8>) -> Outcome {
    let mut trace = Reader::open(Cursor::new(bytes)).unwrap();
    let mut events = Vec::new();
    while let Some(event) = trace.next_event().unwrap() {
        if event.hook() == Some(0x0524) {
            let number = event.ticks.unwrap();
            let payload = (number as u64 * 0x1234_5678_9abc).to_le_bytes();
            assert_eq!(event.payload, payload, "no wrong event");
            events.push(number);
        }
    }
    Outcome { events, trace }
}

/// All events but those of these buffers, from 0.
fn without(buffers: usize, missing: &[usize]) -> Vec<i64> {
    let per_buffer = PER_BUFFER as i64;
    let numbers = 1..=buffers as i64 * per_buffer;
    let in_missing = |number: &i64| missing.contains(&(((number - 1) / per_buffer) as usize));
    numbers.filter(|number| !in_missing(number)).collect()
}

/// Where buffer `index` begins, from 0, behind the first one.
fn at(index: usize) -> usize {
    (index + 1) * BUFFER
}

fn put32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

#[test]
fn buffers_that_are_missing_are_counted_by_their_numbers() {
    let mut bytes = trace(10, None);
    bytes.drain(at(6)..at(8));
    bytes.drain(at(2)..at(3));
    let outcome = read(bytes);
    assert_eq!(outcome.events, without(10, &[2, 6, 7]));
    assert_eq!(outcome.trace.losses().missing_numbers, 3);
    assert!(outcome.trace.damage().is_none());
}

#[test]
fn a_loss_that_a_buffer_tells_of_lies_between_its_neighbours() {
    let mut bytes = trace(3, None);
    bytes[at(1) + 0x34] |= flag::EVENTS_LOST as u8;
    let outcome = read(bytes);
    let losses = outcome.trace.losses();
    assert_eq!(losses.flagged_buffers, 1);
    let last = PER_BUFFER as i64;
    assert_eq!(losses.flagged_span, Some((last, last + 1)));
    assert_eq!(outcome.events, without(3, &[]));
}

#[test]
fn a_file_that_ends_inside_a_buffer_keeps_its_whole_events() {
    for compression in COMPRESSIONS {
        let whole = trace(4, compression);
        let last = match compression {
            None => at(3),
            // The last buffer's size is in its header; walk to it.
            Some(_) => {
                let size = |at: usize| u32::from_le_bytes(*whole[at..].first_chunk().unwrap());
                let mut at = 0;
                while at + (size(at) as usize) < whole.len() {
                    at += size(at) as usize;
                }
                at
            }
        };
        for cut in [2, 40, 71, 72, 73, 200, whole.len() - last - 1] {
            let outcome = read(whole[..last + cut].to_vec());
            let damage = outcome.trace.damage();
            let whole_buffers = without(3, &[]);
            assert!(
                outcome.events.starts_with(&whole_buffers),
                "{compression:?} {cut}"
            );
            assert!(!damage.is_none(), "{compression:?} {cut}");
            if cut < HEADER_BYTES {
                let zeroes = damage.zero_tail.map_or(0, |tail| tail.bytes);
                assert_eq!(damage.skipped_bytes + zeroes, cut as u64);
                continue;
            }
            let bytes = cut as u64;
            let offset = last as u64;
            assert_eq!(damage.torn_tail, Some(Region { offset, bytes }));
            if compression.is_none() {
                let events = (cut - HEADER_BYTES) / 40;
                assert_eq!(outcome.events.len() - whole_buffers.len(), events);
            }
        }
    }
}

#[test]
fn zeroes_at_the_end_are_no_damage() {
    let mut bytes = trace(2, None);
    let end = bytes.len() as u64;
    bytes.resize(bytes.len() + 100_000, 0);
    let outcome = read(bytes);
    assert_eq!(outcome.events, without(2, &[]));
    let tail = Region {
        offset: end,
        bytes: 100_000,
    };
    assert_eq!(outcome.trace.damage().zero_tail, Some(tail));
    assert!(outcome.trace.damage().is_none());
}

#[test]
fn absurd_sizes_cost_at_most_their_buffer() {
    for size in [
        0,
        1,
        71,
        72,
        80,
        1023,
        1025,
        2000,
        16 << 20,
        17 << 20,
        u32::MAX,
    ] {
        let mut bytes = trace(5, None);
        put32(&mut bytes, at(2), size);
        let outcome = read(bytes);
        let damage = outcome.trace.damage();
        assert!(!damage.is_none(), "{size}");
        let others = without(5, &[2]);
        let kept: Vec<i64> = outcome
            .events
            .iter()
            .copied()
            .filter(|n| others.contains(n))
            .collect();
        assert_eq!(kept, others, "{size}: {damage:?}");
        let skipped = damage.skipped_bytes + 1024 * damage.wrong_sizes;
        assert!(
            (1..=2 * BUFFER as u64).contains(&skipped),
            "{size}: {damage:?}"
        );
    }
}

#[test]
fn a_wrong_end_of_the_used_bytes_loses_nothing() {
    for (offset, saved) in [(0, 0), (71, 5), (1025, u32::MAX), (u32::MAX, 0)] {
        let mut bytes = trace(3, None);
        put32(&mut bytes, at(1) + 0x30, offset);
        put32(&mut bytes, at(1) + 0x04, saved);
        let outcome = read(bytes);
        assert_eq!(outcome.events, without(3, &[]), "{offset} {saved}");
        assert_eq!(outcome.trace.damage().wrong_offsets, 1);
    }
    // As in the first buffers of merged files: the events go on behind SavedOffset.
    let mut bytes = trace(3, None);
    put32(&mut bytes, at(1) + 0x04, 200);
    let outcome = read(bytes);
    assert_eq!(outcome.events, without(3, &[]));
    assert!(outcome.trace.damage().is_none());
}

#[test]
fn bytes_between_buffers_are_skipped_and_counted() {
    for compression in COMPRESSIONS {
        let mut bytes = trace(3, compression);
        let first = u32::from_le_bytes(*bytes.first_chunk().unwrap()) as usize;
        let garbage = vec![0xa5; 3333];
        bytes.splice(first..first, garbage);
        let outcome = read(bytes);
        assert_eq!(outcome.events, without(3, &[]), "{compression:?}");
        let damage = outcome.trace.damage();
        assert_eq!(damage.skipped_bytes, 3333);
        let region = Region {
            offset: first as u64,
            bytes: 3333,
        };
        assert_eq!(damage.regions, [region]);
    }
}

#[test]
fn a_damaged_event_costs_the_rest_of_its_buffer() {
    let event = at(1) + HEADER_BYTES + 3 * 40;
    // Its length, too short and too long; its flags; its type.
    for (place, bytes) in [
        (4, [0, 0]),
        (4, [31, 0]),
        (4, [0xff, 0xff]),
        (2, [0x02, 0x00]),
    ] {
        let mut file = trace(3, None);
        file[event + place..event + place + 2].copy_from_slice(&bytes);
        let outcome = read(file);
        let damage = outcome.trace.damage();
        assert_eq!(damage.bad_events, 1);
        assert_eq!(damage.bad_event_bytes as usize, (PER_BUFFER - 3) * 40);
        assert_eq!(outcome.events.len(), 2 * PER_BUFFER + 3);
    }
}

#[test]
fn damaged_compressed_bytes_are_counted() {
    for compression in COMPRESSIONS.into_iter().flatten() {
        let mut bytes = trace(3, Some(compression));
        let first = u32::from_le_bytes(*bytes.first_chunk().unwrap()) as usize;
        // Cut the compressed bytes of the first buffer to a few, and say so in its size.
        let size = u32::from_le_bytes(*bytes[first..].first_chunk().unwrap()) as usize;
        let kept = 300;
        put32(&mut bytes, first, kept as u32);
        bytes.drain(first + kept..first + size);
        let outcome = read(bytes);
        assert_eq!(outcome.trace.damage().bad_compression, 1, "{compression:?}");
        let others = without(3, &[0]);
        assert_eq!(
            outcome.events[outcome.events.len() - others.len()..],
            others
        );
    }
}

#[test]
fn an_event_that_is_older_than_one_before_it_is_counted() {
    let mut bytes = trace(2, None);
    let ticks_at = at(0) + HEADER_BYTES + 16;
    bytes[ticks_at..ticks_at + 8].copy_from_slice(&7i64.to_le_bytes());
    let payload = (7u64 * 0x1234_5678_9abc).to_le_bytes();
    bytes[ticks_at + 16..ticks_at + 24].copy_from_slice(&payload);
    let outcome = read(bytes);
    assert_eq!(outcome.events[0], 7);
    assert_eq!(outcome.trace.damage().out_of_order, 5); // 2 to 6
}

#[test]
fn what_is_no_trace_is_refused_with_what_was_found() {
    let open = |bytes: &[u8]| Reader::open(Cursor::new(bytes.to_vec())).unwrap_err();
    let whole = trace(1, None);
    assert!(is_trace(&whole));
    let cases: [(Vec<u8>, &str); 4] = [
        (vec![], "0 bytes, expected a buffer's header of 72"),
        (
            b"time_ns,device,op".repeat(9),
            "the first buffer is of 1701669236 bytes",
        ),
        (vec![0; 5000], "the first buffer is of 0 bytes"),
        (whole[..80].to_vec(), "does not begin with an event"),
    ];
    for (bytes, expected) in cases {
        let error = open(&bytes).to_string();
        assert!(error.contains(expected), "{error}");
    }
    let mut other = whole.clone();
    other[HEADER_BYTES + 6] = 0x24;
    assert!(open(&other).to_string().contains("expected hook 0"));
    assert!(!is_trace(&other));

    let clockless = LogHeader {
        perf_frequency: 0,
        ..header()
    };
    let bytes = Encoder::start(Vec::new(), &clockless, None)
        .unwrap()
        .finish()
        .unwrap();
    assert!(matches!(
        open(&bytes),
        Error::Clock {
            clock: 1,
            frequency: 0
        }
    ));

    let mut unknown = trace(1, Some(Compression::Xpress));
    put32(&mut unknown, 0x2c, 9);
    assert!(matches!(open(&unknown), Error::Compression { found: 9 }));
}

/// Every byte of a small trace, damaged in three ways: nothing panics, and no event is invented.
#[test]
fn any_damaged_byte_is_survived() {
    for compression in COMPRESSIONS {
        let whole = trace(2, compression);
        let expected = without(2, &[]);
        for at in 0..whole.len() {
            for flip in [0x01, 0x80, 0xff] {
                let mut bytes = whole.clone();
                bytes[at] ^= flip;
                let Ok(mut trace) = Reader::open(Cursor::new(bytes)) else {
                    continue;
                };
                let mut count = 0;
                while let Some(event) = trace.next_event().unwrap() {
                    count += usize::from(event.hook() == Some(0x0524));
                }
                assert!(
                    count <= expected.len() + 1,
                    "{compression:?} {at} {flip:#x}"
                );
            }
        }
    }
}
