//! Damaged tapes: everything whole is read, everything else is told, nothing is wrong.

#![allow(clippy::unwrap_used, reason = "a test's helpers fail the test")]

mod common;

use std::io::{self, Cursor, Write};

use common::{Place, blocks_of, devices, header, places, request, small_blocks, tape_of};
use iotape_formats::tape::{
    Anchor, Block, Corrupt, Device, Fault, Header, Level, TapeError, TapeId, TapeReader,
    TapeWriter, check, repair,
};
use iotape_formats::{DeviceIndex, Request};

const HEADER: u8 = 1;
const BLOCK: u8 = 5;
const FOOTER: u8 = 6;

/// A finished tape of three small blocks.
fn tape() -> (Vec<u8>, [Vec<Request>; 3]) {
    let blocks = small_blocks();
    (tape_of(&[&blocks[0], &blocks[1], &blocks[2]], true), blocks)
}

fn block_places(bytes: &[u8]) -> Vec<Place> {
    places(bytes)
        .into_iter()
        .filter(|place| place.opcode == BLOCK)
        .collect()
}

/// Reads a damaged tape, in which the blocks at `lost` cannot be whole, and repairs it.
fn assert_reads_the_rest(damaged: &[u8], blocks: &[Vec<Request>], lost: &[usize], what: &str) {
    let whole: Vec<&Vec<Request>> = blocks
        .iter()
        .enumerate()
        .filter(|(at, _)| !lost.contains(at))
        .map(|(_, block)| block)
        .collect();
    let (read, reader) = blocks_of(damaged);
    assert_eq!(read.iter().collect::<Vec<_>>(), whole, "{what}");
    let clean = reader.damage().is_clean() && reader.has_footer();
    assert!(!clean, "{what}: not noticed");
    if reader.has_footer() {
        let gone: usize = lost.iter().map(|at| blocks[*at].len()).sum();
        assert_eq!(reader.damage().lost_requests, gone as u64, "{what}");
    }
    assert!(!check(Cursor::new(damaged)).unwrap().is_clean(), "{what}");

    let mut repaired = Vec::new();
    let report = repair(Cursor::new(damaged), &mut repaired).unwrap();
    assert_eq!(
        (report.blocks, report.bytes),
        (whole.len() as u64, repaired.len() as u64),
        "{what}"
    );
    let checked = check(Cursor::new(&repaired)).unwrap();
    assert!(checked.is_clean(), "{what}: {checked:?}");
    assert_eq!(
        blocks_of(&repaired).0.iter().collect::<Vec<_>>(),
        whole,
        "{what}"
    );
    assert_eq!(
        checked.id,
        whole.iter().copied().flatten().map(TapeId::of).sum(),
        "{what}"
    );
}

#[test]
fn every_flipped_bit_is_noticed_and_costs_at_most_its_block() {
    let (bytes, blocks) = tape();
    let places = block_places(&bytes);
    for bit in 0..bytes.len() * 8 {
        let mut damaged = bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        let hit = |place: &Place| (place.start..place.end).contains(&(bit / 8));
        let lost: Vec<usize> = (0..places.len()).filter(|at| hit(&places[*at])).collect();
        assert_reads_the_rest(&damaged, &blocks, &lost, &format!("bit {bit}"));
    }
}

#[test]
fn every_cut_costs_at_most_the_block_it_goes_through() {
    let (bytes, blocks) = tape();
    let places = block_places(&bytes);
    // Before the end of the first record there is nothing to read.
    let first = common::places(&bytes)[0].end;
    for length in 0..bytes.len() {
        let opened = TapeReader::open(Cursor::new(&bytes[..length]));
        if length < first {
            let found = bytes[..length.min(8)].to_vec();
            assert!(
                matches!(opened, Err(TapeError::NotATape { found: at_front, .. }) if at_front == found),
                "{length}"
            );
            assert!(repair(Cursor::new(&bytes[..length]), io::sink()).is_err());
            continue;
        }
        let lost: Vec<usize> = (0..places.len())
            .filter(|at| places[*at].end > length)
            .collect();
        assert_reads_the_rest(&bytes[..length], &blocks, &lost, &format!("{length} bytes"));
    }
}

#[test]
fn every_missing_front_costs_at_most_the_block_it_ends_in() {
    let (bytes, blocks) = tape();
    let places = block_places(&bytes);
    for start in 1..places[2].end {
        let lost: Vec<usize> = (0..places.len())
            .filter(|at| places[*at].start < start)
            .collect();
        assert_reads_the_rest(
            &bytes[start..],
            &blocks,
            &lost,
            &format!("from byte {start}"),
        );
    }
}

#[test]
fn every_hole_and_every_insertion_costs_at_most_its_blocks() {
    let (bytes, blocks) = tape();
    let places = block_places(&bytes);
    for start in (8..bytes.len() - 40).step_by(7) {
        let end = start + 33;
        let hit = |place: &Place| place.start < end && start < place.end;
        let lost: Vec<usize> = (0..places.len()).filter(|at| hit(&places[*at])).collect();
        let hole = [&bytes[..start], &bytes[end..]].concat();
        assert_reads_the_rest(
            &hole,
            &blocks,
            &lost,
            &format!("bytes {start} to {end} cut out"),
        );

        let within = |place: &Place| place.start < start && start < place.end;
        let lost: Vec<usize> = (0..places.len())
            .filter(|at| within(&places[*at]))
            .collect();
        let inserted = [
            &bytes[..start],
            b"\xb1\x6f\x0c\xe7 something else \x89IOTAP",
            &bytes[start..],
        ]
        .concat();
        assert_reads_the_rest(
            &inserted,
            &blocks,
            &lost,
            &format!("bytes put in at {start}"),
        );
    }
}

/// With a whole record cut out, every record that is left is as it was written.
#[test]
fn every_missing_record_is_noticed() {
    let (bytes, blocks) = tape();
    let records = places(&bytes);
    let footer = records.last().unwrap().start as u64;
    let mut block = 0;
    for place in &records {
        let what = format!("record of opcode {} at {}", place.opcode, place.start);
        let lost: Vec<usize> = (place.opcode == BLOCK)
            .then_some(block)
            .into_iter()
            .collect();
        block += lost.len();
        let without = [&bytes[..place.start], &bytes[place.end..]].concat();
        assert_reads_the_rest(&without, &blocks, &lost, &what);
        let damage = check(Cursor::new(&without)).unwrap().damage;
        assert_eq!(
            damage.missing_headers,
            u64::from(place.opcode == HEADER),
            "{what}"
        );
        if place.opcode != FOOTER {
            let gone = (place.end - place.start) as u64;
            let told = damage.listed.last().map(|bad| &bad.fault);
            let displaced = Fault::Content(Corrupt::Displaced {
                found: footer - gone,
                expected: footer,
            });
            assert_eq!(told, Some(&displaced), "{what}");
        }
    }
}

#[test]
fn a_bad_block_says_where_it_is_what_is_wrong_and_what_is_lost() {
    let (mut bytes, blocks) = tape();
    let second = block_places(&bytes)[1];
    bytes[second.end - 5] ^= 0x10;
    let stored = u32::from_le_bytes(bytes[second.end - 4..second.end].try_into().unwrap());
    let computed = crc32c(&bytes[second.start + 21..second.end - 4]);
    let report = check(Cursor::new(&bytes)).unwrap();
    assert_eq!((report.blocks, report.requests), (2, 6));
    assert!(report.finished && !report.totals_agree);
    let [bad] = &report.damage.listed[..] else {
        panic!("{:?}", report.damage)
    };
    assert_eq!(
        (bad.offset, bad.bytes),
        (second.start as u64, (second.end - second.start) as u64)
    );
    assert_eq!(
        (bad.opcode, bad.requests),
        (Some(BLOCK), Some(blocks[1].len() as u64))
    );
    assert_eq!(bad.fault, Fault::Checksum { stored, computed });
    assert_eq!(
        (report.damage.bad_records, report.damage.lost_requests),
        (1, 6)
    );
}

/// Without its header a block is only bytes; its neighbour tells how many requests it had.
#[test]
fn a_neighbour_says_how_many_requests_are_lost() {
    let blocks = small_blocks();
    let mut bytes = tape_of(&[&blocks[0], &blocks[1], &blocks[2]], false);
    let second = block_places(&bytes)[1];
    bytes[second.start] ^= 1;
    let report = check(Cursor::new(&bytes)).unwrap();
    let [bad] = &report.damage.listed[..] else {
        panic!("{:?}", report.damage)
    };
    assert_eq!(
        (bad.opcode, &bad.fault, bad.requests),
        (None, &Fault::NoRecord, Some(6))
    );
    assert_eq!(
        (report.damage.skipped_bytes, report.damage.lost_requests),
        ((second.end - second.start) as u64, 6)
    );
}

#[test]
fn a_lost_device_gets_a_stand_in_and_its_requests_are_read() {
    let (mut bytes, blocks) = tape();
    let sdb = places(&bytes)[2];
    assert_eq!(sdb.opcode, 2);
    bytes[sdb.start + 30] ^= 1;
    let (read, reader) = blocks_of(&bytes);
    assert_eq!(read, blocks);
    assert_eq!(
        (
            reader.devices()[0].name.as_str(),
            reader.devices()[1].name.as_str()
        ),
        ("sda", "undescribed-1")
    );
    assert_eq!(reader.damage().undescribed_devices, 1);
}

#[test]
fn a_foreign_file_is_told_from_a_tape() {
    for foreign in [
        &b""[..],
        b"x",
        b"#!/bin/sh\necho hello\n",
        &[0; 100_000],
        b"\x89PNG\r\n\x1a\n",
    ] {
        let error = TapeReader::open(Cursor::new(foreign)).unwrap_err();
        assert!(
            matches!(&error, TapeError::NotATape { bytes, .. } if *bytes == foreign.len() as u64),
            "{error}"
        );
        assert!(error.to_string().starts_with("not a tape"));
    }
}

/// A file may be large; after 64 MiB without a record it is not searched further, except to repair
/// it.
#[test]
fn a_tape_behind_a_long_foreign_part_is_found_by_a_repair() {
    let (bytes, _) = tape();
    let buried = [vec![0; 65 << 20], bytes.clone()].concat();
    let error = TapeReader::open(Cursor::new(&buried)).unwrap_err();
    assert!(
        matches!(
            error,
            TapeError::NotATape {
                bytes: 67_108_865..=68_157_440,
                ..
            }
        ),
        "{error}"
    );
    let mut repaired = Vec::new();
    let report = repair(Cursor::new(&buried), &mut repaired).unwrap();
    assert_eq!((repaired, report.left_out.skipped_bytes), (bytes, 65 << 20));
}

/// A recording that goes on in a second file, an hour and a half later, on a machine that lists
/// its disks in another order.
fn second_tape() -> (Vec<u8>, Vec<Request>) {
    let mut devices = devices();
    devices.reverse();
    let sdc = Device {
        name: "sdc".into(),
        ..Device::default()
    };
    devices.push(sdc);
    for (index, device) in (0..).zip(&mut devices) {
        device.index = DeviceIndex(index);
    }
    let requests: Vec<Request> = (0..9)
        .map(|number| Request {
            device: DeviceIndex((number % 3) as u16),
            ..request(number)
        })
        .collect();
    let mut writer =
        TapeWriter::create(Vec::new(), &Header::default(), &devices, Level::Live).unwrap();
    let wall_ns = common::ANCHOR.wall_ns + 5_400_000_000_000;
    writer
        .anchor(Anchor {
            time_ns: 0,
            wall_ns,
        })
        .unwrap();
    for request in &requests {
        writer.push(request).unwrap();
    }
    (writer.finish().unwrap().0, requests)
}

/// What the second tape's requests are in a file whose first tape is `tape()`.
fn joined(requests: &[Request]) -> Vec<Request> {
    let devices = [1, 0, 2].map(DeviceIndex);
    let join = |request: &Request| Request {
        time_ns: request.time_ns + 5_400_000_000_000,
        device: devices[usize::from(request.device.0)],
        ..request.clone()
    };
    requests.iter().map(join).collect()
}

#[test]
fn joined_tapes_read_as_one() {
    let (first, blocks) = tape();
    let (second, requests) = second_tape();
    let both = [first, second].concat();
    let (read, reader) = blocks_of(&both);
    assert_eq!(read, [&blocks[..], &[joined(&requests)]].concat());
    assert!(reader.damage().is_clean(), "{:?}", reader.damage());
    assert!(reader.has_footer());
    assert_eq!(reader.header(), &header());
    let names: Vec<&str> = reader
        .devices()
        .iter()
        .map(|device| device.name.as_str())
        .collect();
    assert_eq!(names, ["sda", "sdb", "sdc"]);
    assert_eq!(reader.parts().len(), 2);
    assert_eq!(
        (reader.parts()[1].shift_ns, reader.parts()[1].by_clock),
        (5_400_000_000_000, true)
    );
    assert_eq!(reader.anchors()[1].time_ns, 5_400_000_000_000);
    let totals = reader.summary();
    assert_eq!((totals.requests, totals.last_ns), (21, 5_400_000_008_000));
    assert_eq!(
        totals
            .devices
            .iter()
            .map(|extent| extent.requests)
            .collect::<Vec<_>>(),
        [9, 9, 3]
    );
    let checked = check(Cursor::new(&both)).unwrap();
    assert!(checked.is_clean(), "{checked:?}");

    let mut repaired = Vec::new();
    repair(Cursor::new(&both), &mut repaired).unwrap();
    assert_eq!(repaired, both);
}

#[test]
fn a_torn_tape_with_another_behind_it_loses_only_what_is_torn() {
    let (first, blocks) = tape();
    let (second, requests) = second_tape();
    let places = block_places(&first);
    for length in places[1].start..places[2].end {
        let both = [&first[..length], &second].concat();
        let whole = blocks
            .iter()
            .zip(&places)
            .filter(|(_, place)| place.end <= length)
            .map(|(block, _)| block.clone());
        let expected: Vec<Vec<Request>> = whole.chain([joined(&requests)]).collect();
        let (read, reader) = blocks_of(&both);
        assert_eq!(read, expected, "{length}");
        let cut_between = places
            .iter()
            .any(|place| [place.start, place.end].contains(&length));
        assert_eq!(
            reader.damage().is_clean(),
            cut_between,
            "{length}: {:?}",
            reader.damage()
        );
        assert_eq!(reader.parts().len(), 2);
    }
}

/// The second tape's magic and header are both damaged: its devices must not become the first's.
#[test]
fn a_joined_tape_without_its_magic_keeps_its_own_devices() {
    let (first, blocks) = tape();
    let (second, requests) = second_tape();
    for damaged in [vec![2], vec![2, 40]] {
        let mut both = [first.clone(), second.clone()].concat();
        damaged.iter().for_each(|at| both[first.len() + at] ^= 1);
        let (read, reader) = blocks_of(&both);
        assert_eq!(read, [&blocks[..], &[joined(&requests)]].concat());
        assert!(!reader.damage().is_clean());
    }
}

/// A hole over the end of one tape and the start of the next: the rows of both keep their devices,
/// or lose their names, and never get those of others.
#[test]
fn a_hole_over_a_seam_renames_no_device() {
    let (first, blocks) = tape();
    let (second, requests) = second_tape();
    let both = [first.clone(), second.clone()].concat();
    let footer = places(&first).last().unwrap().start;
    let front = block_places(&second)[0].start;
    for start in (footer..first.len()).step_by(11) {
        for end in (first.len() + 1..=first.len() + front).step_by(3) {
            let hole = [&both[..start], &both[end..]].concat();
            assert_keeps_devices(&hole, &blocks, &requests, &format!("{start} to {end}"));
        }
    }
    // With nothing left but a device that the first tape does not have.
    let devices: Vec<Place> = places(&second)
        .into_iter()
        .filter(|p| p.opcode == 2)
        .collect();
    let bare = [
        &first[..footer],
        &second[devices[2].start..devices[2].end],
        &second[front..],
    ];
    assert_keeps_devices(&bare.concat(), &blocks, &requests, "bare");
}

fn assert_keeps_devices(bytes: &[u8], first: &[Vec<Request>], second: &[Request], what: &str) {
    const SECOND: [&str; 3] = ["sdb", "sda", "sdc"];
    let right = |bytes: &[u8]| {
        let (read, reader) = blocks_of(bytes);
        let (last, before) = read.split_last().unwrap();
        assert_eq!((before, last.len()), (first, second.len()), "{what}");
        for (row, own) in last.iter().zip(second) {
            assert_eq!(row.offset_bytes, own.offset_bytes, "{what}");
            let name = &reader.devices()[usize::from(row.device.0)].name;
            let own = SECOND[usize::from(own.device.0)];
            assert!(
                name == own || name.starts_with("undescribed-"),
                "{what}: {name} is {own}"
            );
        }
        assert_eq!(reader.parts().len(), 2, "{what}");
    };
    right(bytes);
    assert!(!check(Cursor::new(bytes)).unwrap().is_clean(), "{what}");
    let mut repaired = Vec::new();
    repair(Cursor::new(bytes), &mut repaired).unwrap();
    right(&repaired);
    let checked = check(Cursor::new(&repaired)).unwrap();
    assert!(checked.is_clean(), "{what}: {checked:?}");
}

/// The devices of joined tapes may be more than there are numbers for.
#[test]
fn devices_beyond_the_last_number_are_counted_as_lost() {
    let device = |index: u16, name: String| Device {
        index: DeviceIndex(index),
        name,
        ..Device::default()
    };
    let many: Vec<Device> = (0..u16::MAX)
        .map(|at| device(at, format!("a{at}")))
        .collect();
    let two = [device(0, "b0".into()), device(1, "b1".into())];
    let on = |at: u16| Request {
        device: DeviceIndex(at),
        ..request(1)
    };
    let mut bytes = Vec::new();
    for (devices, blocks) in [(&many[..], [on(7), on(65_534)]), (&two[..], [on(0), on(1)])] {
        let mut writer =
            TapeWriter::create(Vec::new(), &Header::default(), devices, Level::Live).unwrap();
        for request in &blocks {
            writer.push(request).unwrap();
            writer.close_block().unwrap();
        }
        bytes.extend(writer.finish().unwrap().0);
    }
    let (read, reader) = blocks_of(&bytes);
    let named: Vec<u16> = read.iter().flatten().map(|r| r.device.0).collect();
    assert_eq!(named, [7, 65_534, 65_535]);
    assert_eq!(reader.devices()[65_535].name, "b0");
    let damage = reader.damage();
    // The device record and the block, told one by one, and the request that the footer misses.
    assert_eq!((damage.bad_records, damage.lost_requests), (2, 1));
    let excess = Corrupt::Excess {
        what: "devices",
        found: 65_537,
        max: 65_536,
    };
    for bad in &damage.listed {
        assert_eq!(bad.fault, Fault::Content(excess.clone()));
    }
}

/// So many tapes of a header each, and one with requests behind them.
#[test]
fn parts_beyond_the_last_are_counted_and_not_taken_for_it() {
    let (second, requests) = second_tape();
    let empty = &second[..places(&second)[0].end];
    for (parts, whole) in [(65_535, true), (65_536, false)] {
        let joined = [empty.repeat(parts), second.clone()].concat();
        let (read, reader) = blocks_of(&joined);
        let rows = read.iter().flatten().count();
        assert_eq!(rows, if whole { requests.len() } else { 0 });
        assert_eq!(reader.parts().len(), 65_536);
        let bad = if whole {
            0
        } else {
            places(&second).len() as u64
        };
        assert_eq!(reader.damage().bad_records, bad);
    }
}

#[test]
fn a_tape_that_says_it_is_earlier_follows_the_one_before_it() {
    let (first, _) = tape();
    let (second, requests) = second_tape();
    let both = [second, first].concat();
    let (read, reader) = blocks_of(&both);
    assert_eq!(read[0], requests);
    // The second tape's last request is at 8 µs.
    assert_eq!(read[1][0].time_ns, 8000);
    assert_eq!(
        (reader.parts()[1].shift_ns, reader.parts()[1].by_clock),
        (8000, false)
    );
}

#[test]
fn unknown_records_are_counted_and_kept_by_a_repair() {
    let (bytes, blocks) = tape();
    let at = block_places(&bytes)[1].start;
    let essential = record(0x40, b"from the future");
    let private = record(0x80, b"somebody's own");
    let more = [&bytes[..at], &private, &essential, &private, &bytes[at..]].concat();
    let (read, reader) = blocks_of(&more);
    assert_eq!(read, blocks);
    assert_eq!(
        reader.damage().unknown.iter().collect::<Vec<_>>(),
        [(&0x40, &1), (&0x80, &2)]
    );
    assert!(reader.damage().lacks_essentials() && !reader.damage().is_clean());
    let mut repaired = Vec::new();
    repair(Cursor::new(&more), &mut repaired).unwrap();
    assert_eq!(
        check(Cursor::new(&repaired))
            .unwrap()
            .damage
            .unknown
            .get(&0x80),
        Some(&2)
    );
}

/// A long unknown record is passed over without being held; a damaged one hides nothing.
#[test]
fn long_unknown_records_are_passed_over() {
    let (bytes, blocks) = tape();
    let at = block_places(&bytes)[1].start;
    let long = record(0x80, &vec![7; (16 << 20) + 1]);
    let more = [&bytes[..at], &long, &bytes[at..]].concat();
    let (read, reader) = blocks_of(&more);
    assert_eq!(read, blocks);
    assert_eq!(reader.damage().unknown.get(&0x80), Some(&1));
    let mut damaged = more;
    damaged[at + 1000] = 0;
    let (read, reader) = blocks_of(&damaged);
    assert_eq!(read, blocks);
    assert_eq!(
        (
            reader.damage().bad_records,
            reader.damage().listed[0].offset
        ),
        (2, at as u64),
        "the record, and the footer that it displaces"
    );
}

/// A record that claims to be as long as can be.
#[test]
fn a_record_without_an_end_hides_nothing_behind_it() {
    let (bytes, blocks) = tape();
    let at = block_places(&bytes)[1].start;
    for length in [u64::MAX, u64::MAX - 25, 1 << 62, 1 << 30] {
        let endless = [&bytes[..at], &record_header(0x90, length), &bytes[at..]].concat();
        let (read, reader) = blocks_of(&endless);
        assert_eq!(read, blocks, "{length}");
        assert_eq!(
            reader.damage().bad_records + reader.damage().skipped_bytes.min(1),
            2,
            "{length}: that record, and the footer that it displaces"
        );
    }
}

#[test]
fn a_later_header_asks_for_a_later_program() {
    let (bytes, _) = tape();
    let place = places(&bytes)[0];
    assert_eq!(place.opcode, HEADER);
    let mut payload = bytes[place.start + 21..place.end - 4].to_vec();
    payload[0] = 2;
    let later = [&bytes[..8], &record(HEADER, &payload), &bytes[place.end..]].concat();
    let error = TapeReader::open(Cursor::new(&later)).unwrap_err();
    assert!(
        matches!(
            error,
            TapeError::TooNew {
                what: "header",
                offset: 8,
                found: 2,
                known: 1
            }
        ),
        "{error}"
    );
}

fn trailer(footer_bytes: u64) -> Vec<u8> {
    let size = footer_bytes.to_le_bytes();
    let tail = *b"\nEPATOI\x89";
    [&size[..], &crc32c(&size).to_le_bytes(), &tail].concat()
}

#[test]
fn a_trailer_that_belongs_to_no_footer_is_noticed() {
    let (bytes, blocks) = tape();
    let records = places(&bytes);
    let footer = *records.last().unwrap();
    let right = (footer.end - footer.start) as u64;
    assert_eq!(bytes[footer.end..], trailer(right));
    // Between records, and a second one behind the right one.
    let mut strays: Vec<usize> = records.iter().map(|place| place.start).collect();
    strays.push(bytes.len());
    for at in strays {
        let stray = [&bytes[..at], &trailer(right), &bytes[at..]].concat();
        assert_reads_the_rest(&stray, &blocks, &[], &format!("a trailer at {at}"));
        let damage = check(Cursor::new(&stray)).unwrap().damage;
        let fault = Fault::StrayTrailer {
            footer_bytes: right,
        };
        let told = (damage.skipped_bytes, damage.listed[0].offset);
        assert_eq!(told, (20, at as u64));
        assert_eq!(damage.listed[0].fault, fault);
    }
    for size in [right - 1, right + 1, 0, u64::MAX] {
        let wrong = [&bytes[..footer.end], &trailer(size)].concat();
        assert_reads_the_rest(&wrong, &blocks, &[], &format!("a trailer of {size}"));
        let report = check(Cursor::new(&wrong)).unwrap();
        assert!(!report.finished && report.damage.skipped_bytes == 20);
    }
}

#[test]
fn a_joined_tape_is_finished_if_each_part_is() {
    let (bytes, _) = tape();
    let finished = |tape: &[u8]| check(Cursor::new(tape)).unwrap().finished;
    assert!(finished(&[&bytes[..], &bytes].concat()));
    // Cut between two records, or before the trailer: nothing else is wrong with such a part.
    for place in places(&bytes) {
        let cut = &bytes[..place.end];
        assert!(!finished(&[cut, &bytes].concat()), "up to {}", place.end);
        assert!(!finished(&[&bytes, cut].concat()), "up to {}", place.end);
        assert!(!finished(&[&bytes, cut, &bytes].concat()));
    }
}

/// No program ever wrote it: a newer one would not help.
#[test]
fn a_header_of_version_0_is_damage() {
    let (bytes, blocks) = tape();
    let place = places(&bytes)[0];
    let mut payload = bytes[place.start + 21..place.end - 4].to_vec();
    payload[0] = 0;
    let zero = [&bytes[..8], &record(HEADER, &payload), &bytes[place.end..]].concat();
    assert_reads_the_rest(&zero, &blocks, &[], "version 0");
    let damage = check(Cursor::new(&zero)).unwrap().damage;
    let version = Corrupt::Version {
        what: "header",
        found: 0,
        known: 1,
    };
    assert_eq!(damage.listed[0].fault, Fault::Content(version));
}

/// Every checksum is right, and the block says another id than its requests have.
#[test]
fn a_block_that_does_not_hash_to_its_id_is_told_and_left_out_by_a_repair() {
    let (bytes, blocks) = tape();
    let place = block_places(&bytes)[1];
    let mut payload = bytes[place.start + 21..place.end - 4].to_vec();
    let id: TapeId = blocks[1].iter().map(TapeId::of).sum();
    let id = id.0.to_le_bytes();
    let at = payload.windows(16).position(|window| window == id).unwrap();
    payload[at] ^= 1;
    let crc_at = 6 + u32::from_le_bytes(payload[2..6].try_into().unwrap()) as usize;
    let crc = crc32c(&payload[..crc_at]).to_le_bytes();
    payload[crc_at..crc_at + 4].copy_from_slice(&crc);
    let wrong = [
        &bytes[..place.start],
        &record(BLOCK, &payload),
        &bytes[place.end..],
    ]
    .concat();

    let report = check(Cursor::new(&wrong)).unwrap();
    let kept = (blocks[0].len() + blocks[2].len()) as u64;
    assert!(!report.is_clean());
    assert_eq!(report.requests, kept);
    let mut repaired = Vec::new();
    assert_eq!(
        repair(Cursor::new(&wrong), &mut repaired).unwrap().requests,
        kept
    );
    assert!(check(Cursor::new(&repaired)).unwrap().is_clean());
}

/// A footer that is in order but belongs to other blocks.
#[test]
fn a_footer_that_does_not_fit_its_tape_is_not_believed() {
    let blocks = small_blocks();
    let one = tape_of(&[&blocks[0]], true);
    let other = tape_of(&[&blocks[2]], true);
    let footer = |bytes: &[u8]| {
        *places(bytes)
            .iter()
            .find(|place| place.opcode == FOOTER)
            .unwrap()
    };
    let mixed = [&one[..footer(&one).start], &other[footer(&other).start..]].concat();
    let report = check(Cursor::new(&mixed)).unwrap();
    assert!(!report.is_clean(), "{report:?}");
    assert_eq!(report.requests, 4);
}

/// A sink that takes so many bytes, a few at a time, and then fails.
struct FullDisk {
    bytes: Vec<u8>,
    room: usize,
    at_once: usize,
}

impl Write for FullDisk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = bytes.len().min(self.room).min(self.at_once);
        if count == 0 && !bytes.is_empty() {
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        self.bytes.extend_from_slice(&bytes[..count]);
        self.room -= count;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What a dying recorder leaves behind is whole records and at most one torn one.
#[test]
fn each_write_is_one_or_more_whole_records() {
    struct Writes(Vec<usize>);
    impl Write for Writes {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.push(self.0.last().unwrap_or(&0) + bytes.len());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let (bytes, blocks) = tape();
    let mut writes = Writes(Vec::new());
    write_all(&mut writes, &blocks).unwrap();
    let ends: Vec<usize> = places(&bytes).iter().map(|place| place.end).collect();
    // Header and devices; anchor; block; loss; block; block; footer with the trailer.
    assert_eq!(writes.0, [&ends[2..8], &[bytes.len()]].concat());
}

#[test]
fn a_full_disk_keeps_every_block_that_was_closed() {
    let (bytes, blocks) = tape();
    let places = block_places(&bytes);
    for room in 0..bytes.len() {
        let mut disk = FullDisk {
            bytes: Vec::new(),
            room,
            at_once: 100,
        };
        let error = write_all(&mut disk, &blocks).unwrap_err();
        let TapeError::Io { offset, error } = error else {
            panic!("{room}: {error}")
        };
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert!(offset <= room as u64);
        assert_eq!(disk.bytes, bytes[..room]);
        if places.iter().any(|place| place.end <= room) {
            let whole = places.iter().filter(|place| place.end <= room).count();
            assert_eq!(blocks_of(&disk.bytes).0, blocks[..whole], "{room}");
        }
    }
}

fn write_all(sink: &mut impl Write, blocks: &[Vec<Request>]) -> Result<(), TapeError> {
    let mut writer = TapeWriter::create(sink, &header(), &devices(), Level::Live)?;
    writer.anchor(common::ANCHOR)?;
    for (number, block) in blocks.iter().enumerate() {
        block.iter().try_for_each(|request| writer.push(request))?;
        if let Err(error) = writer.close_block() {
            assert!(matches!(
                writer.push(&request(0)),
                Err(TapeError::GivenUp { .. })
            ));
            return Err(error);
        }
        if number == 0 {
            writer.loss(common::LOSS)?;
            writer.count(&iotape_formats::tape::Counters {
                late: 2,
                ..Default::default()
            });
        }
    }
    writer.finish().map(|_| ())
}

/// A source that fails in the middle: that is an error, not the end of the tape.
#[test]
fn a_failing_source_is_an_error() {
    struct Failing(Cursor<Vec<u8>>, u64);
    impl io::Read for Failing {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            if self.0.position() >= self.1 {
                Err(io::Error::other("EIO"))
            } else {
                self.0.read(&mut buffer[..1])
            }
        }
    }
    impl io::Seek for Failing {
        fn seek(&mut self, to: io::SeekFrom) -> io::Result<u64> {
            self.0.seek(to)
        }
    }
    let blocks = small_blocks();
    let bytes = tape_of(&[&blocks[0], &blocks[1], &blocks[2]], false);
    let third = block_places(&bytes)[2];
    let opened = TapeReader::open(Failing(Cursor::new(bytes.clone()), third.start as u64 + 5));
    assert!(matches!(opened, Err(TapeError::Io { .. })));
    let mut reader = TapeReader::open(Failing(Cursor::new(bytes), u64::MAX)).unwrap();
    let mut block = Block::new();
    assert!(reader.next_block(&mut block).unwrap());
}

fn crc32c(bytes: &[u8]) -> u32 {
    let step = |crc: u32| {
        if crc & 1 == 1 {
            crc >> 1 ^ 0x82f6_3b78
        } else {
            crc >> 1
        }
    };
    !bytes.iter().fold(!0, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| step(crc))
    })
}

fn record_header(opcode: u8, length: u64) -> Vec<u8> {
    let mut header = vec![0xb1, 0x6f, 0x0c, 0xe7, 0x52, 0x9d, 0x38, 0xfa, opcode];
    header.extend(length.to_le_bytes());
    header.extend(crc32c(&header).to_le_bytes());
    header
}

fn record(opcode: u8, payload: &[u8]) -> Vec<u8> {
    [
        record_header(opcode, payload.len() as u64),
        payload.to_vec(),
        crc32c(payload).to_le_bytes().to_vec(),
    ]
    .concat()
}
