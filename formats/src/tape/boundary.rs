//! What starts at a place in a tape.

use memchr::memchr3_iter;

use super::wire::{
    HEAD_MAGIC, MAX_BLOCK_BYTES, MAX_METADATA_BYTES, RECORD_HEADER_BYTES, RecordHeader, SYNC,
    TAIL_MAGIC, TRAILER_MAGIC_AT, opcode, parse_trailer,
};

/// What stands at a place.
pub enum Boundary {
    Head,
    Record(RecordHeader),
    /// A trailer behind a footer record of so many bytes.
    Trailer(u64),
    Nothing,
    /// Too few bytes to tell, unless the source has no more.
    Short,
}

impl Boundary {
    /// What starts with `bytes`, which are the last ones when the source has `ended`.
    pub fn of(bytes: &[u8], ended: bool) -> Boundary {
        if bytes.starts_with(&HEAD_MAGIC) {
            return Boundary::Head;
        }
        if let Some(header) = RecordHeader::parse(bytes).filter(|header| plausible(*header)) {
            return Boundary::Record(header);
        }
        if let Some(footer_bytes) = parse_trailer(bytes) {
            return Boundary::Trailer(footer_bytes);
        }
        if bytes.len() < RECORD_HEADER_BYTES && !ended {
            Boundary::Short
        } else {
            Boundary::Nothing
        }
    }
}

/// Whether a record of this kind can be that long.
fn plausible(header: RecordHeader) -> bool {
    match header.opcode {
        0 => false,
        opcode::BLOCK => header.length <= MAX_BLOCK_BYTES,
        opcode::HEADER..=opcode::FOOTER => header.length <= MAX_METADATA_BYTES,
        _ => header.record_bytes().is_some(),
    }
}

/// The first place where something may start, at most where the bytes get too few to tell.
pub fn next_candidate(bytes: &[u8]) -> usize {
    let tail = bytes.len().saturating_sub(RECORD_HEADER_BYTES - 1);
    for found in memchr3_iter(SYNC[0], HEAD_MAGIC[0], TAIL_MAGIC[0], bytes) {
        let in_trailer = bytes[found] == TAIL_MAGIC[0];
        let Some(at) = found.checked_sub(if in_trailer { TRAILER_MAGIC_AT } else { 0 }) else {
            continue;
        };
        if at >= tail {
            break;
        }
        let rest = &bytes[at..];
        if rest.starts_with(&SYNC) || rest.starts_with(&HEAD_MAGIC) || parse_trailer(rest).is_some()
        {
            return at;
        }
    }
    tail
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tape::wire::trailer;

    #[test]
    fn candidates_are_whole_markers_or_the_tail() {
        let filler = [0xb1, 0x89, 0x0a, 0xb1, 0x6f, 0x0c, 0, 0x89, b'I', b'O'].repeat(5);
        assert_eq!(next_candidate(&filler), filler.len() - 20);
        for marker in [&SYNC[..], &HEAD_MAGIC, &trailer(100)] {
            let bytes = [&filler[..], marker, &filler].concat();
            assert_eq!(next_candidate(&bytes), filler.len());
        }
        assert_eq!(next_candidate(&SYNC), 0);
        assert_eq!(next_candidate(&[]), 0);
    }

    #[test]
    fn no_record_is_longer_than_its_kind() {
        for (opcode, longest) in [
            (1, 4 << 20),
            (5, 16 << 20),
            (6, 4 << 20),
            (7, u64::MAX - 25),
            (0xff, u64::MAX - 25),
        ] {
            let at_most = RecordHeader {
                opcode,
                length: longest,
            };
            assert!(
                matches!(Boundary::of(&at_most.to_bytes(), true), Boundary::Record(header) if header == at_most)
            );
            let beyond = RecordHeader {
                opcode,
                length: longest + 1,
            };
            assert!(matches!(
                Boundary::of(&beyond.to_bytes(), true),
                Boundary::Nothing
            ));
        }
        assert!(matches!(
            Boundary::of(
                &RecordHeader {
                    opcode: 0,
                    length: 0
                }
                .to_bytes(),
                true
            ),
            Boundary::Nothing
        ));
    }
}
