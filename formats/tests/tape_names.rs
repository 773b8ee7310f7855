//! Names of control groups and files: written once, found by every request behind them.

#![allow(clippy::unwrap_used, reason = "a test's helpers fail the test")]

mod common;

use std::io::Cursor;

use common::{ANCHOR, devices, header, places, request};
use iotape_formats::Request;
use iotape_formats::tape::{
    Block, Level, NameKind, Names, TapeReader, TapeWriter, check, record_name, repair,
};

const NAMES: u8 = 0x07;

/// A control group's number and its name where its request was read.
type Named = (u64, Option<String>);

fn group(id: u64) -> String {
    format!("/system.slice/{id}.service")
}

fn requests(ids: std::ops::Range<u64>) -> Vec<Request> {
    let in_group = |id| Request {
        cgroup: Some(id),
        ..request(id)
    };
    ids.map(in_group).collect()
}

fn writer() -> TapeWriter<Vec<u8>> {
    TapeWriter::create(Vec::new(), &header(), &devices(), Level::Live).unwrap()
}

/// Two blocks, each behind the names of its groups. Odd groups have none.
fn tape() -> Vec<u8> {
    let mut writer = writer();
    writer.anchor(ANCHOR).unwrap();
    for ids in [0..10, 10..20] {
        for request in requests(ids) {
            let id = request.cgroup.unwrap();
            writer.push(&request).unwrap();
            if id.is_multiple_of(2) {
                assert!(writer.name(NameKind::Cgroup, id, &group(id)).unwrap());
                assert!(writer.name(NameKind::Cgroup, id, "too late").unwrap());
            }
        }
        writer.close_block().unwrap();
    }
    writer.finish().unwrap().0
}

/// Each request with the name that its group has where its block was read.
fn named(bytes: &[u8]) -> (Vec<Named>, TapeReader<Cursor<&[u8]>>) {
    let mut reader = TapeReader::open(Cursor::new(bytes)).unwrap();
    let mut block = Block::new();
    let mut named = Vec::new();
    while reader.next_block(&mut block).unwrap() {
        for request in block.requests() {
            let id = request.cgroup.unwrap();
            let name = reader.names().get(NameKind::Cgroup, id);
            named.push((id, name.map(|name| (**name).to_owned())));
        }
    }
    (named, reader)
}

fn expected() -> Vec<Named> {
    (0..20u64)
        .map(|id| (id, id.is_multiple_of(2).then(|| group(id))))
        .collect()
}

fn repaired(bytes: &[u8]) -> Vec<u8> {
    let mut sink = Vec::new();
    repair(Cursor::new(bytes), &mut sink).unwrap();
    sink
}

#[test]
fn names_come_back_and_outlive_a_repair() {
    let bytes = tape();
    let order: Vec<u8> = places(&bytes).iter().map(|place| place.opcode).collect();
    assert_eq!(order, [1, 2, 2, 3, NAMES, 5, NAMES, 5, 6]);
    assert_eq!(record_name(NAMES), "names");
    for bytes in [&bytes, &repaired(&bytes)] {
        let (named, reader) = named(bytes);
        assert_eq!(named, expected());
        assert_eq!((reader.names().len(), reader.names().left_out()), (10, 0));
        assert!(reader.damage().is_clean());
        assert!(check(Cursor::new(bytes)).unwrap().is_clean());
    }
    assert_eq!(repaired(&bytes), bytes);
}

#[test]
fn names_are_known_again_after_a_rewind() {
    let bytes = tape();
    let mut reader = TapeReader::open(Cursor::new(&bytes)).unwrap();
    let mut block = Block::new();
    for _ in 0..2 {
        assert!(reader.next_block(&mut block).unwrap());
        assert_eq!(reader.names().len(), 5, "those before the first block");
        reader.rewind();
    }
}

#[test]
fn a_damaged_names_record_costs_names_alone() {
    let whole = tape();
    let place = places(&whole)
        .into_iter()
        .find(|place| place.opcode == NAMES);
    let (start, end) = place.map(|place| (place.start, place.end)).unwrap();
    let lost: Vec<_> = expected()
        .into_iter()
        .map(|(id, name)| (id, name.filter(|_| id >= 10)))
        .collect();
    for at in start..end {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x10;
        let (named, reader) = named(&damaged);
        assert_eq!(named, lost, "byte {at}");
        assert_eq!(reader.damage().lost_requests, 0, "byte {at}");
        assert!(!reader.damage().is_clean(), "byte {at}");
        let whole_again = repaired(&damaged);
        assert_eq!(named_only(&whole_again), lost);
        assert!(check(Cursor::new(&whole_again)).unwrap().is_clean());
    }
}

fn named_only(bytes: &[u8]) -> Vec<Named> {
    named(bytes).0
}

#[test]
fn each_of_joined_tapes_has_its_own_names() {
    let part = |name: Option<&str>| {
        let mut writer = writer();
        writer.push(&requests(4..5)[0]).unwrap();
        if let Some(name) = name {
            writer.name(NameKind::Cgroup, 4, name).unwrap();
        }
        writer.finish().unwrap().0
    };
    let joined = [part(Some("/a")), part(None), part(Some("/b"))].concat();
    let expected = [
        (4, Some("/a".to_owned())),
        (4, None),
        (4, Some("/b".to_owned())),
    ];
    assert_eq!(named_only(&joined), expected);
    assert_eq!(named_only(&repaired(&joined)), expected);
}

#[test]
fn a_name_that_is_too_long_or_one_too_many_is_left_out() {
    let mut writer = writer();
    let long = "x".repeat(Names::LONGEST);
    assert!(
        !writer
            .name(NameKind::Cgroup, 0, &format!("{long}y"))
            .unwrap()
    );
    for id in 0..4096 {
        assert!(writer.name(NameKind::Cgroup, id, &long).unwrap());
    }
    assert!(!writer.name(NameKind::Cgroup, 4096, "/").unwrap());
    for request in requests(4095..4097) {
        writer.push(&request).unwrap();
    }
    let bytes = writer.finish().unwrap().0;
    let (named, reader) = named(&bytes);
    assert_eq!(named, [(4095, Some(long)), (4096, None)]);
    assert_eq!(reader.names().left_out(), 0);
    assert!(reader.damage().is_clean());
}
