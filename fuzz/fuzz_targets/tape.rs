//! Any bytes as a tape, and any payloads in records whose checksums are right: reading, checking
//! and repairing end without a panic, and what a repair wrote is whole.
//!
//! The first byte chooses. 0: the rest is the file. Else the rest is a row of records, each an
//! opcode, a length (u16, little-endian) and a payload; markers and checksums are put around them,
//! since no fuzzer guesses a CRC.
#![no_main]

use std::io::Cursor;

use iotape_formats::tape::{Block, NameKind, Names, TapeReader, check, repair};
use libfuzzer_sys::fuzz_target;

const MAGIC: [u8; 8] = *b"\x89IOTAPE\n";
const SYNC: [u8; 8] = [0xb1, 0x6f, 0x0c, 0xe7, 0x52, 0x9d, 0x38, 0xfa];
const BLOCK: u8 = 5;

fuzz_target!(|data: &[u8]| {
    let [kind, rest @ ..] = data else { return };
    let file = if *kind == 0 { rest.to_vec() } else { framed(rest) };
    if let Ok(mut tape) = TapeReader::open(Cursor::new(&file)) {
        let mut block = Block::new();
        while tape.next_block(&mut block).expect("memory does not fail") {
            for request in block.requests() {
                assert!(request.end_bytes().is_some());
                assert!(usize::from(request.device.0) < tape.devices().len());
                let name = |kind, id: Option<u64>| tape.names().get(kind, id?);
                let names = [
                    name(NameKind::Cgroup, request.cgroup),
                    name(NameKind::File, request.file),
                ];
                assert!(names.into_iter().flatten().all(|name| name.len() <= Names::LONGEST));
            }
            assert!(tape.names().len() <= Names::MOST);
        }
    }
    let _ = check(Cursor::new(&file));
    let mut repaired = Vec::new();
    if repair(Cursor::new(&file), &mut repaired).is_ok() {
        let report = check(Cursor::new(&repaired)).expect("a tape");
        // Records of a later version that hold requests are kept, and stay unread.
        assert!(
            report.is_clean() || report.damage.lacks_essentials(),
            "{report:?}"
        );
    }
});

fn framed(mut rest: &[u8]) -> Vec<u8> {
    let mut file = MAGIC.to_vec();
    while let [opcode, low, high, tail @ ..] = rest {
        let length = usize::from(u16::from_le_bytes([*low, *high])).min(tail.len());
        let (payload, tail) = tail.split_at(length);
        rest = tail;
        let payload = if *opcode == BLOCK { with_header_crc(payload) } else { payload.to_vec() };
        let mut head = SYNC.to_vec();
        head.push(*opcode);
        head.extend((payload.len() as u64).to_le_bytes());
        file.extend(&head);
        file.extend(crc32c::crc32c(&head).to_le_bytes());
        file.extend(&payload);
        file.extend(crc32c::crc32c(&payload).to_le_bytes());
    }
    file
}

/// Sets the checksum behind a block's header, if there is room for one.
fn with_header_crc(payload: &[u8]) -> Vec<u8> {
    let mut payload = payload.to_vec();
    if let Some(length) = payload.get(2..6).and_then(|bytes| bytes.first_chunk()) {
        let at = 6 + u32::from_le_bytes(*length) as usize;
        if let Some(end) = at.checked_add(4).filter(|end| *end <= payload.len()) {
            let crc = crc32c::crc32c(&payload[..at]);
            payload[at..end].copy_from_slice(&crc.to_le_bytes());
        }
    }
    payload
}
