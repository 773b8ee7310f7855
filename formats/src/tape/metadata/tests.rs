//! The bytes of every version, worked out from `docs/format.md`, and hostile ones.

use super::forms::{BlockHeaderV1, ColumnV1};
use super::{Footer, IndexEntry, Stored, fields, get, put, put_fields};
use crate::request::{DeviceIndex, Op};
use crate::tape::error::Corrupt;
use crate::tape::id::TapeId;
use crate::tape::model::{
    Anchor, Clock, Counters, Device, DeviceExtent, ErrorCodes, Header, Layer, Loss, LossReason,
    Name, NameKind, OpTotals, Summary,
};

const HEADER_V1: &str = "01000c00000000000000696f7461706520302e312e300104000000000000006d\
     61696c000f00000000000000434c4f434b5f4d4f4e4f544f4e49430100000004\
     000000000000007065726602000000000000000c000000000000006c61796572\
     3d6465766963650700000000000000666f723d36307301010000000000000009\
     000000000000006e6f206367726f7570";
const DEVICE_V1: &str = "0100030003000000000000007364620001000000000001000001000200000100\
     1000000104000000000000004449534b01010100000000000000030000000000\
     00006d6430";
const ANCHOR_V1: &str = "01000807060504030201feffffffffffffff";
const LOSS_V1: &str = "0100050000000000000009000000000000000b0000000000000001";
const LOSS_V2: &str = "0200050000000000000009000000000000000b00000000000000\
     01010400000000000000";
const NAMES_V1: &str = "0100020000000000000000070000000000000001000000000000002f010f00000000\
     0000000200000000000000433a";
const FOOTER_V1: &str = "0100341200000000000003000000000000000a000000000000001e0000000000\
     0000020000000000000000020000000000000000200000000000000301000000\
     0000000000100000000000000200000000000000000001000000000000000000\
     0000000000000010000000000000001000000000000000100000000000000700\
     0200000000000000000200000000000000220000000000000010000000000000\
     0012000000000000010100000000000000020000000000000003000000000000\
     0004000000000000000500000000000000060000000000000007000000000000\
     00080000000000000009000000000000000a00000000000000ffeeddccbbaa99\
     8877665544332211000100000000000000000000000000000000002a36fe9c97\
     170100000000000000050000000000000009000000000000000b000000000000\
     000302000000000000000100000000000000c800000000000000020000000300\
     0000000000000a000000000000001e00000000000000";
const BLOCK_HEADER_V1: &str = "0000010000000000010000000000000007000000000000000700000000000000\
     0100000000000000020100000000000000000000000000000001000000000000\
     0000000100000000000000000000000000000000000000000000000000000000\
     0000000000000000000000000100000000000000000000000000000002000000\
     00000000000c0000000a2c010000";

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
        .collect()
}

fn assert_golden<T: Stored + PartialEq + std::fmt::Debug>(value: &T, golden: &str) {
    let mut stored = Vec::new();
    put(value, &mut stored).unwrap();
    assert_eq!(stored, bytes(golden));
    assert_eq!(&get::<T>(&bytes(golden)).unwrap(), value);
}

fn header() -> Header {
    Header {
        tool: "iotape 0.1.0".into(),
        host: Some("mail".into()),
        os: None,
        clock: Clock {
            source: "CLOCK_MONOTONIC".into(),
            resolution_ns: 1,
        },
        backend: "perf".into(),
        options: vec!["layer=device".into(), "for=60s".into()],
        error_codes: ErrorCodes::NtStatus,
        notes: vec!["no cgroup".into()],
    }
}

fn summary() -> Summary {
    let extent = |device, requests, min_offset_bytes, end_bytes, alignment_bits| DeviceExtent {
        device: DeviceIndex(device),
        requests,
        min_offset_bytes,
        end_bytes,
        longest_transfer_bytes: 4096,
        alignment_bits,
    };
    let mut summary = Summary {
        requests: 3,
        first_ns: 10,
        last_ns: 30,
        devices: vec![extent(0, 1, 0, 4096, 4096), extent(7, 2, 512, 8704, 4608)],
        counters: Counters {
            lost_events: 1,
            unpaired_issues: 2,
            unpaired_completions: 3,
            ambiguous: 4,
            late: 5,
            merges: 6,
            splits: 7,
            requeues: 8,
            coalesced_flushes: 9,
            undecodable: 10,
        },
        id: TapeId(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff),
        ..Summary::default()
    };
    summary.by_op[usize::from(Op::Read.number())] = OpTotals {
        requests: 2,
        bytes: 8192,
    };
    summary.by_op[usize::from(Op::Discard.number())] = OpTotals {
        requests: 1,
        bytes: 4096,
    };
    summary
}

#[test]
fn header_v1() {
    assert_golden(&header(), HEADER_V1);
}

#[test]
fn device_v1() {
    let device = Device {
        index: DeviceIndex(3),
        name: "sdb".into(),
        layer: Layer::Queue,
        size_bytes: Some(1 << 40),
        logical_sector_bytes: Some(512),
        physical_sector_bytes: Some(4096),
        model: Some("DISK".into()),
        rotational: Some(true),
        parents: vec!["md0".into()],
    };
    assert_golden(&device, DEVICE_V1);
}

#[test]
fn anchor_v1() {
    assert_golden(
        &Anchor {
            time_ns: 0x0102_0304_0506_0708,
            wall_ns: -2,
        },
        ANCHOR_V1,
    );
}

#[test]
fn loss_v1() {
    let loss = |reason| Loss {
        from_ns: 5,
        to_ns: 9,
        events: 11,
        requests: None,
        reason,
    };
    assert_golden(&loss(LossReason::RingFull), LOSS_V1);
    for (number, reason) in [
        (0, LossReason::Unknown),
        (2, LossReason::Throttled),
        (3, LossReason::SequenceGap),
    ] {
        assert_golden(
            &loss(reason),
            &LOSS_V1.replace(
                "0b0000000000000001",
                &format!("0b00000000000000{number:02x}"),
            ),
        );
    }
}

/// With how many requests it took: else version 1 is written.
#[test]
fn loss_v2() {
    let loss = |requests| Loss {
        from_ns: 5,
        to_ns: 9,
        events: 11,
        requests,
        reason: LossReason::RingFull,
    };
    assert_golden(&loss(Some(4)), LOSS_V2);
    let unknown = LOSS_V2.replace("010400000000000000", "00");
    assert_eq!(get::<Loss>(&bytes(&unknown)).unwrap(), loss(None));
    assert_eq!(
        get::<Loss>(&bytes(&LOSS_V2.replacen("02", "03", 1))),
        Err(Corrupt::Version {
            what: "loss",
            found: 3,
            known: 2
        })
    );
}

#[test]
fn names_v1() {
    let name = |kind, id, name: &str| Name {
        kind,
        id,
        name: name.into(),
    };
    let names = vec![
        name(NameKind::Cgroup, 7, "/"),
        name(NameKind::File, 15, "C:"),
    ];
    assert_golden(&names, NAMES_V1);
    // A kind of a later version is passed over.
    let later = NAMES_V1.replacen("0000000000000000070000", "0000000000000002070000", 1);
    assert_eq!(get::<Vec<Name>>(&bytes(&later)).unwrap(), names[1..]);
}

fn footer(requests: Option<u64>) -> Footer {
    Footer {
        tape_bytes: 0x1234,
        summary: summary(),
        anchors: vec![Anchor {
            time_ns: 0,
            wall_ns: 1_700_000_000_000_000_000,
        }],
        losses: vec![Loss {
            from_ns: 5,
            to_ns: 9,
            events: 11,
            requests,
            reason: LossReason::SequenceGap,
        }],
        blocks: 2,
        index: vec![IndexEntry {
            offset: 200,
            blocks: 2,
            requests: 3,
            first_ns: 10,
            last_ns: 30,
        }],
    }
}

#[test]
fn footer_v1() {
    assert_golden(&footer(None), FOOTER_V1);
}

#[test]
fn footer_v2() {
    let (known, more) = ("0b0000000000000003", "010900000000000000");
    let golden =
        FOOTER_V1
            .replacen("0100", "0200", 1)
            .replacen(known, &format!("{known}{more}"), 1);
    assert_golden(&footer(Some(9)), &golden);
}

#[test]
fn block_header_v1() {
    let mut summary = Summary {
        requests: 1,
        first_ns: 7,
        last_ns: 7,
        id: TapeId(1),
        ..Summary::default()
    };
    summary.by_op[usize::from(Op::Flush.number())].requests = 1;
    summary.devices.push(DeviceExtent {
        requests: 1,
        ..DeviceExtent::default()
    });
    let header = BlockHeaderV1 {
        requests_before: 65_536,
        summary: summary.to_form(),
        columns: vec![
            ColumnV1 {
                column: 0,
                bytes: 12,
            },
            ColumnV1 {
                column: 10,
                bytes: 300,
            },
        ],
    };
    let mut stored = Vec::new();
    put_fields("block header", &header, u64::MAX, &mut stored).unwrap();
    assert_eq!(stored, bytes(BLOCK_HEADER_V1));
    assert_eq!(
        fields::<BlockHeaderV1>("block header", &stored).unwrap(),
        header
    );
}

#[test]
fn every_cut_and_every_byte_too_many_is_refused() {
    let golden = bytes(FOOTER_V1);
    for length in 0..golden.len() {
        assert!(get::<Footer>(&golden[..length]).is_err(), "{length} bytes");
    }
    let longer = [golden, vec![0]].concat();
    assert!(matches!(
        get::<Footer>(&longer),
        Err(Corrupt::Fields { what: "footer", .. })
    ));
}

#[test]
fn another_version_and_unassigned_numbers_are_refused() {
    let mut header = bytes(HEADER_V1);
    header[0] = 2;
    assert_eq!(
        get::<Header>(&header),
        Err(Corrupt::Version {
            what: "header",
            found: 2,
            known: 1
        })
    );
    let layer = DEVICE_V1.replacen("73646200", "73646202", 1);
    assert_eq!(
        get::<Device>(&bytes(&layer)),
        Err(Corrupt::number("layer", 2u8))
    );
}

/// A length field may claim anything; what is not there is not allocated.
#[test]
fn hostile_lengths_allocate_no_more_than_a_record_may_hold() {
    let lengths = [
        u64::MAX,
        1 << 63,
        1 << 40,
        1 << 32,
        1 << 24,
        (4 << 20) + 1,
        4 << 20,
        100,
    ];
    for length in lengths {
        // The header's first field is a text, the footer's fourth a list behind the summary.
        let header = [&1u16.to_le_bytes()[..], &length.to_le_bytes()].concat();
        let summary = [&[0; 24][..], &[0; 8], &[0; 8], &[0], &[0; 16]].concat();
        let footer = [
            &1u16.to_le_bytes()[..],
            &[0; 8],
            &summary,
            &length.to_le_bytes(),
        ]
        .concat();
        let used = allocation_counter::measure(|| {
            assert!(get::<Header>(&header).is_err(), "{length}");
            assert!(get::<Footer>(&footer).is_err(), "{length}");
        });
        assert!(
            used.bytes_max <= 5 << 20,
            "{length}: {} bytes",
            used.bytes_max
        );
    }
}
