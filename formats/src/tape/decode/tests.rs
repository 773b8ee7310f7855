//! Payloads that no writer makes.

use std::io::Cursor;

use super::*;
use crate::request::Request;
use crate::tape::column::transform::Transform;
use crate::tape::encode::{BlockEncoder, put_header};
use crate::tape::encoder::Level;
use crate::tape::metadata::ColumnV1;
use crate::tape::{TapeError, TapeReader};

/// A block that uses every column, with and without absent values.
fn block(rows: u64) -> Block {
    let mut block = Block::new();
    for pid in 0..3u32 {
        block.process_table.push(Process {
            pid: 100 + pid,
            name: format!("worker/{pid}").into(),
        });
    }
    for row in 0..rows {
        let request = Request {
            time_ns: row * 1000 + row % 7,
            device: DeviceIndex((row % 2) as u16),
            op: Op::ALL[(row % 3) as usize],
            flags: Flags::from_bits((row % 5) as u32),
            offset_bytes: row * row % 97 * 4096,
            length_bytes: (1 + row % 4) * 4096,
            latency_ns: (row % 3 > 0).then_some(row * 977 % 5000),
            queue_ns: Some(row % 11),
            process: None,
            cgroup: (row % 9 > 0).then_some((1 << 40) | (row % 4)),
            cpu: Some((row % 8) as u32),
            error: (row % 10 == 0).then_some(5),
            file: (row % 4 > 0).then_some(u64::MAX - row % 4),
        };
        block.push(&request, (row % 6 > 0).then_some((row % 3) as u32));
    }
    block
}

fn payload(rows: u64, level: Level) -> Vec<u8> {
    payload_of(&block(rows), level)
}

fn payload_of(block: &Block, level: Level) -> Vec<u8> {
    let mut out = Vec::new();
    BlockEncoder::new(level)
        .unwrap()
        .put(block, &Summary::of_rows(block), 0, &mut out)
        .unwrap();
    out
}

fn decode(payload: &[u8], columns: Columns) -> Result<Block, Corrupt> {
    let mut block = Block::new();
    BlockDecoder::new()
        .unwrap()
        .get(payload, columns, &mut block)
        .map(|_| block)
}

/// A block whose numbers are of one, two, four and eight bytes and mostly the same: less than a bit
/// each, which only pco makes of them.
fn uneven_block(rows: u64) -> Block {
    let mut block = Block::new();
    for row in 0..rows {
        let one_of = |numbers: [u64; 3]| {
            // The high bits of a multiple of the golden ratio's: spread without a pattern.
            match (row * row).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32 & 0xf {
                0 => numbers[2],
                1 => numbers[1],
                _ => numbers[0],
            }
        };
        let request = Request {
            time_ns: row,
            latency_ns: Some(one_of([5, 6, 5 + (1 << 32)])),
            queue_ns: Some(one_of([1 << 40, 1 + (1 << 40), (1 << 40) + (1 << 16)])),
            cgroup: (row % 9 > 0).then_some(one_of([7, 8, 1000])),
            cpu: Some(one_of([3, 0, 255]) as u32),
            error: Some(one_of([0, 5, 701]) as u32),
            ..Request::default()
        };
        block.push(&request, None);
    }
    block
}

/// Number, layout, and the byte behind the layout of each column without a bitmap.
fn layouts(payload: &[u8]) -> Vec<[u8; 3]> {
    let header = BlockHeader::parse(payload).unwrap();
    let bodies = bodies(&header, &payload[header.bodies_at..]).unwrap();
    let layout = |(column, body): (u8, &Option<&[u8]>)| {
        let (presence, mut rest) = body.as_ref()?.split_first()?;
        assert!(sequence::peek_order(rest).is_ok());
        rest = &rest[1..];
        Transform::get(&mut rest).ok()?;
        (*presence == PRESENT_ALL).then(|| [column, rest[0], rest[1]])
    };
    (0..).zip(&bodies).filter_map(layout).collect()
}

/// The payload with other bodies; sizes that differ go to the last column.
fn with_bodies(payload: &[u8], bodies: &[u8]) -> Vec<u8> {
    let header = BlockHeader::parse(payload).unwrap();
    let mut columns: Vec<ColumnV1> = header
        .columns
        .iter()
        .map(|(column, bytes)| ColumnV1 {
            column: *column,
            bytes: *bytes as u32,
        })
        .collect();
    let before: u32 = columns.iter().map(|column| column.bytes).sum();
    columns.last_mut().unwrap().bytes -= before - bodies.len() as u32;
    let form = BlockHeaderV1 {
        requests_before: 0,
        summary: header.summary.to_form(),
        columns,
    };
    let mut out = Vec::new();
    put_header(&form, &mut out).unwrap();
    out.extend_from_slice(bodies);
    out
}

/// Whatever a body holds, decoding ends with rows that fit the header, or with an error.
#[test]
fn any_byte_of_a_body_may_be_anything() {
    for (block, level) in [
        (block(1), Level::Live),
        (block(60), Level::Live),
        (block(500), Level::Archive),
        (uneven_block(300), Level::Live),
    ] {
        let rows = block.len();
        let payload = payload_of(&block, level);
        let start = BlockHeader::parse(&payload).unwrap().bodies_at;
        assert_eq!(decode(&payload, Columns::ALL).unwrap().len(), rows);
        let mut decoder = BlockDecoder::new().unwrap();
        let mut block = Block::new();
        for at in start..payload.len() {
            for change in [0x01, 0x80, 0xff, payload[at] ^ 0x7f, payload[at]] {
                let mut mutated = payload.clone();
                mutated[at] ^= change;
                if decoder.get(&mutated, Columns::ALL, &mut block).is_ok() {
                    assert_eq!(block.len(), rows);
                    block.verify().unwrap();
                    assert_eq!(block.requests().count(), rows);
                } else {
                    assert!(block.is_empty());
                }
            }
        }
        let bodies = &payload[start..];
        for length in (0..bodies.len()).rev().take(2000) {
            let last = BlockHeader::parse(&payload)
                .unwrap()
                .columns
                .last()
                .unwrap()
                .1;
            if bodies.len() - length > last {
                break;
            }
            assert!(decode(&with_bodies(&payload, &bodies[..length]), Columns::ALL).is_err());
        }
    }
}

/// Decoding takes memory by the number of requests, not by what the bytes claim.
#[test]
fn any_byte_of_a_body_takes_bounded_memory() {
    let payloads = [
        payload(60, Level::Live),
        payload_of(&uneven_block(300), Level::Live),
    ];
    let used = allocation_counter::measure(|| {
        for payload in &payloads {
            let start = BlockHeader::parse(payload).unwrap().bodies_at;
            for at in start..payload.len() {
                let mut mutated = payload.clone();
                mutated[at..]
                    .iter_mut()
                    .take(9)
                    .for_each(|byte| *byte = 0xff);
                drop(decode(&mutated, Columns::ALL));
            }
        }
    });
    // A process table may claim 4 MiB; everything else is smaller.
    assert!(used.bytes_max < 5 << 20, "{} bytes", used.bytes_max);
}

#[test]
fn pco_is_chosen_where_it_is_smallest() {
    const PCO: u8 = 4;
    for level in [Level::Live, Level::Archive] {
        let block = uneven_block(3000);
        let payload = payload_of(&block, level);
        let packed = layouts(&payload)
            .into_iter()
            .filter(|[column, ..]| *column > 4);
        // Column, layout, bytes of a number.
        assert_eq!(
            packed.collect::<Vec<_>>(),
            [[5, PCO, 8], [6, PCO, 4], [9, PCO, 1], [10, PCO, 2]]
        );
        let decoded = decode(&payload, Columns::ALL).unwrap();
        assert!(decoded.requests().eq(block.requests()));
    }
}

#[test]
fn columns_do_not_depend_on_others_being_wanted() {
    for level in [Level::Live, Level::Archive] {
        let payload = payload(500, level);
        let all = decode(&payload, Columns::ALL).unwrap();
        for columns in [
            Columns::CORE,
            Columns::LATENCY,
            Columns::CPU | Columns::ERROR,
            Columns::CGROUP,
        ] {
            let some = decode(&payload, columns).unwrap();
            assert_eq!(
                (&some.times, &some.offsets, &some.lengths),
                (&all.times, &all.offsets, &all.lengths)
            );
            let wanted = columns.contains(Columns::CPU);
            assert_eq!(some.cpus().get(3), all.cpus().get(3).filter(|_| wanted));
            assert_eq!(
                (some.processes().count(), some.request(1).process),
                (0, None)
            );
        }
    }
}

#[test]
fn columns_of_a_later_version_are_left_out() {
    let payload = payload(60, Level::Live);
    let header = BlockHeader::parse(&payload).unwrap();
    let mut columns: Vec<ColumnV1> = vec![
        ColumnV1 {
            column: number::COUNT as u8,
            bytes: 3,
        },
        ColumnV1 {
            column: 200,
            bytes: 1,
        },
    ];
    columns.extend(header.columns.iter().map(|(column, bytes)| ColumnV1 {
        column: *column,
        bytes: *bytes as u32,
    }));
    let form = BlockHeaderV1 {
        requests_before: 0,
        summary: header.summary.to_form(),
        columns,
    };
    let mut later = Vec::new();
    put_header(&form, &mut later).unwrap();
    later.extend_from_slice(&[9, 9, 9, 9]);
    later.extend_from_slice(&payload[header.bodies_at..]);
    let decoded = decode(&later, Columns::ALL).unwrap();
    assert_eq!(
        decoded.requests().collect::<Vec<_>>(),
        decode(&payload, Columns::ALL)
            .unwrap()
            .requests()
            .collect::<Vec<_>>()
    );
    assert_eq!(BlockHeader::parse(&later).unwrap().unknown_columns(), 1);
}

/// The header says something else than the rows: each field of the summary is held to them.
#[test]
fn a_header_that_does_not_fit_the_rows_is_refused() {
    let payload = payload(60, Level::Live);
    let header = BlockHeader::parse(&payload).unwrap();
    let change = |change: &dyn Fn(&mut Summary)| {
        let mut summary = header.summary.clone();
        change(&mut summary);
        let columns = header.columns.iter().map(|(column, bytes)| ColumnV1 {
            column: *column,
            bytes: *bytes as u32,
        });
        let form = BlockHeaderV1 {
            requests_before: 0,
            summary: summary.to_form(),
            columns: columns.collect(),
        };
        let mut out = Vec::new();
        put_header(&form, &mut out).unwrap();
        out.extend_from_slice(&payload[header.bodies_at..]);
        decode(&out, Columns::ALL)
    };
    assert!(change(&|_| ()).is_ok());
    assert!(change(&|summary| summary.requests += 1).is_err());
    assert!(change(&|summary| summary.requests = 65_537).is_err());
    assert!(change(&|summary| summary.first_ns += 1).is_err());
    assert!(change(&|summary| summary.last_ns += 1).is_err());
    assert!(change(&|summary| summary.by_op[0].bytes += 1).is_err());
    assert!(change(&|summary| summary.by_op[7].requests += 1).is_err());
    assert!(change(&|summary| summary.devices[0].longest_transfer_bytes -= 1).is_err());
    assert!(change(&|summary| summary.devices[1].end_bytes += 1).is_err());
    assert!(change(&|summary| summary.devices[1].device = DeviceIndex(7)).is_err());
    assert!(change(&|summary| summary.devices.truncate(1)).is_err());
}

/// A sequence in each order, with each prediction and layout, written by hand: rows of two
/// operations, offsets 0, 100, 8192, 300 with lengths 8192, 100, 4096, 50.
#[test]
fn hand_written_sequences_decode() {
    let mut keys = Keys::default();
    keys.op_flags = vec![0, 1, 0, 1];
    keys.devices = vec![0; 4];
    let lengths = [8192, 100, 4096, 50];
    let mut get = |bytes: &[u8]| {
        let mut values = Vec::new();
        let mut target = Target {
            rows: 4,
            present: &[],
            count: 4,
            lengths: &lengths,
            values: &mut values,
        };
        let mut rest = bytes;
        Decoder::new()
            .unwrap()
            .get(&mut rest, &mut keys, &mut target)?;
        assert!(rest.is_empty());
        Ok::<_, Corrupt>(values)
    };
    // Order 0, prediction 0, unsigned, start 0, base 100, step 1: planes; 0 - 100 does not fit one
    // byte, so the values are 100 + {0, 0, 92, 200} instead.
    assert_eq!(
        get(&[0, 0, 0, 0, 100, 1, 0, 1, 0, 4, 0, 0, 92, 200]).unwrap(),
        [100, 100, 192, 300]
    );
    // Order 1 groups rows 0, 2, 1, 3. Prediction 2, signed, start 0, step 100 (0x64): the first
    // group is sequential: 0, then 0 + 8192; the second starts 121.88 steps before the end at
    // 12,288, so step 4 (12188 = 3047 * 4): numbers 0, 0, -3047, 25: offset 300 = 200 + 100.
    let varints = [0, 0, 0xcd, 0x2f, 50];
    let sequence = [&[1, 2, 1, 0, 0, 4, 1, 5, 0, 5][..], &varints].concat();
    assert_eq!(get(&sequence).unwrap(), [0, 100, 8192, 300]);
    // Prediction 1 with classes of m = 1: distances 0, 1, 6, 7 from 10: class of 6 is (1 << 1) + 3
    // with 1 open bit, 0; that of 7 the same with 1. Lower bits: 0, 1 = 0b10.
    let sequence = [0, 1, 0, 10, 0, 1, 2, 1, 0, 4, 0, 1, 5, 5, 0, 1, 0b10];
    assert_eq!(get(&sequence).unwrap(), [10, 11, 17, 24]);
    // A dictionary of 512 and 4096.
    let sequence = [
        0, 0, 0, 0, 0, 1, 3, 2, 4, 0, 4, 0x80, 0x04, 0x80, 0x1c, 0, 4, 1, 0, 0, 1,
    ];
    assert_eq!(get(&sequence).unwrap(), [4096, 512, 512, 4096]);
    // What pcodec in Python makes of 1, 2, 3, 200 in one byte each: 16 times them from 100 on.
    let packed = b"\x04\x01\0\x22\0\x30\x40\x40\x06\x6a\x90";
    let sequence = [&[0, 0, 0, 0, 100, 16, 4, 1, 11][..], packed].concat();
    assert_eq!(get(&sequence).unwrap(), [116, 132, 148, 3300]);
    // Reserved and impossible numbers.
    let plain = [0, 0, 0, 0, 100, 1, 0, 1, 0, 4, 0, 0, 92, 200];
    for (at, number) in [
        (0, 7),
        (0, 3),
        (1, 3),
        (2, 2),
        (5, 0),
        (6, 4),
        (6, 5),
        (7, 9),
        (8, 2),
        (8, 4),
        (9, 3),
    ] {
        let mut wrong = plain;
        wrong[at] = number;
        if (at, number) != (0, 3) {
            assert!(get(&wrong).is_err(), "{at}: {number}");
        }
    }
}

#[test]
fn a_row_that_names_no_process_of_the_table_is_refused() {
    let mut block = block(60);
    block.process_table.truncate(2);
    let mut out = Vec::new();
    BlockEncoder::new(Level::Live)
        .unwrap()
        .put(&block, &Summary::of_rows(&block), 0, &mut out)
        .unwrap();
    assert!(matches!(
        decode(&out, Columns::ALL),
        Err(Corrupt::Number {
            what: "process table entry",
            number: 2
        })
    ));
    assert!(decode(&out, Columns::CORE).is_ok());
}

/// A range that does not exist, as no writer lets it through.
#[test]
fn a_request_beyond_64_bits_is_refused() {
    let mut block = Block::new();
    block.push(
        &Request {
            offset_bytes: u64::MAX,
            length_bytes: 1,
            ..Request::default()
        },
        None,
    );
    let mut out = Vec::new();
    BlockEncoder::new(Level::Live)
        .unwrap()
        .put(&block, &Summary::of_rows(&block), 0, &mut out)
        .unwrap();
    let error = decode(&out, Columns::ALL).unwrap_err();
    assert!(
        matches!(
            error,
            Corrupt::Inconsistent {
                what: "a request ends beyond 2^64 bytes"
            }
        ),
        "{error}"
    );
}

#[test]
fn nothing_is_no_tape() {
    assert!(matches!(
        TapeReader::open(Cursor::new(&[])),
        Err(TapeError::NotATape { bytes: 0, .. })
    ));
}
