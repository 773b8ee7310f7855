//! Headers and payloads, against bytes written down by hand from the kernel's structs.

mod support;

use blktrace_parse::{
    Action, ByteOrder, Categories, DeviceNumber, EncodeError, Format, Kind, Payload, Record, Step,
    Version, encode,
};
use support::{V7, file, issue, note, record, remap_pdu, said, small_file};

/// A write of 16 sectors by thread 17852, issued on CPU 1 of device 8,0.
const ISSUED: Record<'static> = Record {
    sequence: 0x0102_0304,
    time_ns: 0x0000_973c_a940_3cba,
    sector: 0x02cb_a1c8,
    bytes: 0x2000,
    action: Action(0x0142_0007),
    pid: 17_852,
    device: DeviceNumber(0x0080_0000),
    cpu: 1,
    error: 0xfffb,
    cgroup: None,
    pdu: &[],
    order: ByteOrder::Little,
};

#[rustfmt::skip]
const V7_LITTLE: [u8; 48] = [
    0x07, 0x74, 0x61, 0x65,  0x04, 0x03, 0x02, 0x01,
    0xba, 0x3c, 0x40, 0xa9, 0x3c, 0x97, 0, 0,
    0xc8, 0xa1, 0xcb, 0x02, 0, 0, 0, 0,
    0x00, 0x20, 0, 0,  0x07, 0x00, 0x42, 0x01,
    0xbc, 0x45, 0, 0,  0, 0, 0x80, 0,
    1, 0, 0, 0,  0xfb, 0xff,  0, 0,
];

#[rustfmt::skip]
const V7_BIG: [u8; 48] = [
    0x65, 0x61, 0x74, 0x07,  0x01, 0x02, 0x03, 0x04,
    0, 0, 0x97, 0x3c, 0xa9, 0x40, 0x3c, 0xba,
    0, 0, 0, 0, 0x02, 0xcb, 0xa1, 0xc8,
    0, 0, 0x20, 0x00,  0x01, 0x42, 0x00, 0x07,
    0, 0, 0x45, 0xbc,  0, 0x80, 0, 0,
    0, 0, 0, 1,  0xff, 0xfb,  0, 0,
];

#[rustfmt::skip]
const V8_LITTLE: [u8; 64] = [
    0x08, 0x74, 0x61, 0x65,  0x04, 0x03, 0x02, 0x01,
    0xba, 0x3c, 0x40, 0xa9, 0x3c, 0x97, 0, 0,
    0xc8, 0xa1, 0xcb, 0x02, 0, 0, 0, 0,
    0x00, 0x20, 0, 0,  0xbc, 0x45, 0, 0,
    0x07, 0x00, 0x42, 0x01, 0, 0, 0, 0,
    0, 0, 0x80, 0,  1, 0, 0, 0,
    0xfb, 0xff,  0, 0,  0, 0, 0, 0,
    0, 0, 0, 0, 0, 0, 0, 0,
];

#[rustfmt::skip]
const V8_BIG: [u8; 64] = [
    0x65, 0x61, 0x74, 0x08,  0x01, 0x02, 0x03, 0x04,
    0, 0, 0x97, 0x3c, 0xa9, 0x40, 0x3c, 0xba,
    0, 0, 0, 0, 0x02, 0xcb, 0xa1, 0xc8,
    0, 0, 0x20, 0x00,  0, 0, 0x45, 0xbc,
    0, 0, 0, 0, 0x01, 0x42, 0x00, 0x07,
    0, 0x80, 0, 0,  0, 0, 0, 1,
    0xff, 0xfb,  0, 0,  0, 0, 0, 0,
    0, 0, 0, 0, 0, 0, 0, 0,
];

const BYTES: [(Version, ByteOrder, &[u8]); 4] = [
    (Version::V7, ByteOrder::Little, &V7_LITTLE),
    (Version::V7, ByteOrder::Big, &V7_BIG),
    (Version::V8, ByteOrder::Little, &V8_LITTLE),
    (Version::V8, ByteOrder::Big, &V8_BIG),
];

#[test]
fn every_format_decodes_to_the_same_record() {
    for (version, order, bytes) in BYTES {
        let mut decoder = blktrace_parse::Decoder::new();
        let (step, used) = decoder.step(bytes, true).unwrap();
        assert_eq!(step, Step::Record(Record { order, ..ISSUED }));
        assert_eq!(used, bytes.len());
        assert_eq!(decoder.format(), Some(Format::new(version, order)));
        assert_eq!(decoder.step(&[], true).unwrap(), (Step::End, 0));
        assert!(decoder.damage().is_none());
    }
}

#[test]
fn every_format_encodes_to_the_bytes_by_hand() {
    for (version, order, bytes) in BYTES {
        let mut encoded = Vec::new();
        encode(&ISSUED, Format::new(version, order), &mut encoded).unwrap();
        assert_eq!(encoded, bytes, "{version:?} {order:?}");
    }
}

#[test]
fn devices_and_errors_read_as_users_know_them() {
    assert_eq!(ISSUED.device.to_string(), "8,0");
    assert_eq!(DeviceNumber(0x1030_0003).to_string(), "259,3");
    assert_eq!(ISSUED.errno(), 5); // EIO
    assert_eq!(Record { error: 0, ..ISSUED }.errno(), 0);
    assert_eq!(Record { error: 5, ..ISSUED }.errno(), 5);
}

#[test]
fn payloads_decode_in_every_format() {
    let expected = [
        "WallClock { seconds: 1605518127, nanoseconds: 168810795 }".to_owned(),
        format!("Process({:?})", b"mysqld"),
        format!(
            "Remap {{ from: {:?}, to: {:?}, from_sector: 24391512 }}",
            DeviceNumber(0x0080_0002),
            DeviceNumber(0x0080_0000)
        ),
        "Empty".to_owned(),
        "Unplugged(3)".to_owned(),
        "SplitAt(3)".to_owned(),
        "Empty".to_owned(),
    ];
    for format in Format::ALL {
        let decoded = support::decode(&small_file(format));
        assert_eq!(decoded.records.len(), 19, "{format}");
        for (found, expected) in decoded.records.iter().zip(&expected) {
            assert_eq!(&found.payload, expected, "{format}");
        }
        assert_eq!(
            decoded.records[3].header.cgroup,
            Some(0x1234_5678_9abc),
            "{format}"
        );
        assert!(decoded.damage.is_none());
    }
}

#[test]
fn version_8_holds_categories_that_version_7_has_no_room_for() {
    let zeroes = record(1, Kind::Issue, Categories::WRITE | Categories::WRITE_ZEROES);
    assert_eq!(zeroes.action.0, 0x40_0002_0007);
    for order in [ByteOrder::Little, ByteOrder::Big] {
        let bytes = file(Format::new(Version::V8, order), &[zeroes]);
        assert_eq!(support::decode(&bytes).records, [said(&zeroes)]);
        let mut out = vec![1];
        let error = encode(&zeroes, Format::new(Version::V7, order), &mut out);
        assert_eq!(
            error,
            Err(EncodeError::ActionTooWide {
                action: 0x40_0002_0007
            })
        );
        assert_eq!(out, [1]);
    }
}

#[test]
fn what_does_not_fit_is_not_encoded() {
    let long = vec![0; 65_528];
    let marked = Action::new(Kind::Message, Categories::NOTE, true);
    let mut message = Record {
        cgroup: Some(1),
        action: marked,
        ..note(Kind::Message, &long)
    };
    let mut out = Vec::new();
    assert_eq!(
        encode(&message, V7, &mut out),
        Err(EncodeError::PayloadTooLong { bytes: 65_536 })
    );
    message.cgroup = None;
    let error = encode(&message, V7, &mut out).unwrap_err();
    assert_eq!(
        error,
        EncodeError::CgroupMark {
            action: marked.0,
            cgroup: None
        }
    );
    assert_eq!(out, []);
}

#[test]
fn payloads_that_are_too_short_are_told_apart() {
    let remap = remap_pdu(1, 2, 3);
    let short = [
        Record {
            pdu: &remap[..15],
            ..record(1, Kind::Remap, Categories::QUEUE)
        },
        Record {
            pdu: &remap[..7],
            ..record(2, Kind::Unplug, Categories::QUEUE)
        },
        Record {
            pdu: &[],
            ..record(3, Kind::Split, Categories::WRITE)
        },
        note(Kind::WallClock, &remap[..7]),
    ];
    for record in short {
        assert_eq!(record.payload(), Payload::Malformed(record.pdu));
    }
    let late = [0, 0, 0, 0, 0, 0xca, 0x9a, 0x3b]; // 10^9 nanoseconds
    assert_eq!(
        note(Kind::WallClock, &late).payload(),
        Payload::Malformed(&late)
    );
}

#[test]
fn a_marked_record_without_room_for_the_id_has_no_cgroup() {
    let mut bytes = file(V7, &[issue(1)]);
    bytes[29] = 1; // action, bits 8 to 15
    bytes[46] = 4; // pdu_len
    bytes.extend([1, 2, 3, 4]);
    let decoded = support::decode(&bytes);
    assert_eq!(decoded.records[0].header.cgroup, None);
    assert_eq!(decoded.records[0].header.action.kind(), Kind::Issue);
    assert!(decoded.damage.is_none());
}
