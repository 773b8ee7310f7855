//! Damaged, cut and foreign files: nothing panics, and everything whole is kept.

mod support;

use blktrace_parse::{
    Categories, Damage, Decoder, Error, Format, Kind, Reader, Record, Region, Truncated,
};
use support::{V7, V8, decode, decode_in, file, issue, note, record, said, small_file};

fn region(offset: u64, bytes: u64) -> Region {
    Region { offset, bytes }
}

fn error_of(bytes: &[u8]) -> String {
    let mut decoder = Decoder::new();
    let mut rest = bytes;
    loop {
        match decoder.step(rest, true) {
            Ok((blktrace_parse::Step::End, _)) => panic!("no error"),
            Ok((_, used)) => rest = &rest[used..],
            Err(error) => return error.to_string(),
        }
    }
}

#[test]
fn the_size_of_the_pieces_does_not_matter() {
    for format in Format::ALL {
        let mut bytes = small_file(format);
        bytes[5 * 64] ^= 0xff; // damage somewhere
        bytes.extend([0; 1000]);
        let whole = decode(&bytes);
        for chunk in [1, 2, 3, 7, 47, 48, 49, 100, 1000] {
            assert_eq!(decode_in(chunk, &bytes), whole, "{format}, {chunk}");
        }
    }
}

#[test]
fn an_empty_file_has_no_records() {
    assert_eq!(decode(&[]).damage, Damage::default());
}

#[test]
fn zeroes_at_the_end_are_a_clean_stop() {
    let mut bytes = file(V7, &[issue(1), issue(2)]);
    bytes.extend([0; 4096]);
    let decoded = decode(&bytes);
    assert_eq!(decoded.records, [said(&issue(1)), said(&issue(2))]);
    assert_eq!(decoded.damage.zero_tail, Some(region(96, 4096)));
    assert!(decoded.damage.is_none());
    assert_eq!(decode(&[0; 8192]).damage.zero_tail, Some(region(0, 8192)));
}

#[test]
fn zeroes_in_the_middle_are_skipped_and_counted() {
    let mut bytes = file(V8, &[issue(1)]);
    bytes.extend([0; 5000]);
    bytes.extend(file(V8, &[issue(2)]));
    let decoded = decode(&bytes);
    assert_eq!(decoded.records, [said(&issue(1)), said(&issue(2))]);
    assert_eq!(decoded.damage.regions, [region(64, 5000)]);
    assert_eq!(decoded.damage.zero_tail, None);
}

#[test]
fn every_truncation_is_told_and_keeps_what_is_whole() {
    for format in Format::ALL {
        let bytes = small_file(format);
        let whole = decode(&bytes).records;
        let mut ends = Vec::new(); // of the records
        let mut decoder = Decoder::new();
        while decoder.offset() < bytes.len() as u64 {
            decoder
                .step(&bytes[decoder.offset() as usize..], true)
                .unwrap();
            ends.push(decoder.offset() as usize);
        }
        // Shorter ones are no blktrace file.
        for length in 4..bytes.len() {
            let decoded = decode(&bytes[..length]);
            let kept = ends.iter().filter(|end| **end <= length).count();
            let start = ends[..kept].last().copied().unwrap_or(0);
            assert_eq!(decoded.records[..kept], whole[..kept], "{format}, {length}");
            assert_eq!(decoded.damage.skipped_bytes, 0, "{format}, {length}");
            let header = format.header_bytes();
            let expected = if length - start < header {
                header
            } else {
                ends[kept] - start
            };
            let truncated = (start < length).then_some(Truncated {
                offset: start as u64,
                expected_bytes: expected as u64,
                found_bytes: (length - start) as u64,
            });
            assert_eq!(decoded.damage.truncated, truncated, "{format}, {length}");
            // A whole header is kept, whatever is missing of its payload.
            let expected = kept + usize::from(length - start >= header);
            assert_eq!(decoded.records.len(), expected, "{format}, {length}");
        }
    }
}

#[test]
fn a_damaged_magic_costs_one_record() {
    let records: Vec<Record<'_>> = (1..=5).map(issue).collect();
    for format in Format::ALL {
        let header = format.header_bytes();
        for byte in 0..4 {
            let mut bytes = file(format, &records);
            bytes[2 * header + byte] ^= 0x10;
            let decoded = decode(&bytes);
            let expected = [1, 2, 4, 5].map(|sequence| said(&issue(sequence)));
            assert_eq!(decoded.records, expected);
            let skipped = region(2 * header as u64, header as u64);
            assert_eq!(decoded.damage.regions, [skipped]);
            assert_eq!(decoded.damage.skipped_bytes, header as u64);
        }
    }
}

#[test]
fn a_payload_length_that_swallows_records_is_cut() {
    let records: Vec<Record<'_>> = (1..=5).map(issue).collect();
    // Ends at a record, inside one, at the end of the file, behind it.
    for wrong in [48, 100, 144, 40_000_u16] {
        let mut bytes = file(V7, &records);
        bytes[48 + 46..][..2].copy_from_slice(&wrong.to_le_bytes());
        let decoded = decode(&bytes);
        let expected = [1, 2, 3, 4, 5].map(|sequence| said(&issue(sequence)).header);
        let found: Vec<_> = decoded.records.iter().map(|record| record.header).collect();
        assert_eq!(found, expected, "{wrong}");
        assert_eq!(decoded.damage.cut_payloads, 1, "{wrong}");
        assert_eq!(decoded.damage.skipped_bytes, 0, "{wrong}");
    }
}

#[test]
fn a_payload_length_that_is_too_short_costs_the_payload() {
    let name = note(Kind::Process, b"0123456789abcdef");
    let mut bytes = file(V7, &[issue(1), name, issue(2)]);
    bytes[48 + 46] = 10;
    let decoded = decode(&bytes);
    let payloads: Vec<&str> = decoded
        .records
        .iter()
        .map(|record| record.payload.as_str())
        .collect();
    assert_eq!(
        payloads,
        [
            "Empty",
            "Process([48, 49, 50, 51, 52, 53, 54, 55, 56, 57])",
            "Empty"
        ]
    );
    assert_eq!(decoded.damage.regions, [region(48 + 48 + 10, 6)]);
}

#[test]
fn long_payloads_are_whole() {
    let text = vec![b'x'; 65_535];
    for format in Format::ALL {
        let records = [issue(1), note(Kind::Message, &text), issue(2)];
        let bytes = file(format, &records);
        let decoded = decode(&bytes);
        assert_eq!(decoded.records, records.map(|record| said(&record)));
        assert!(decoded.damage.is_none());
        let mut reader = Reader::with_buffer(bytes.as_slice(), 0);
        let mut lengths = Vec::new();
        while let Some(record) = reader.next_record().unwrap() {
            lengths.push(record.pdu.len());
        }
        assert_eq!(lengths, [0, 65_535, 0]);
    }
}

#[test]
fn garbage_before_between_and_behind_is_skipped() {
    let mut bytes = vec![0xee; 1000];
    bytes.extend(file(V8, &[issue(1)]));
    bytes.extend([0x65; 333]);
    bytes.extend(file(V8, &[issue(2)]));
    bytes.extend([7; 50]);
    bytes.extend([0; 10]);
    let decoded = decode(&bytes);
    assert_eq!(decoded.records, [said(&issue(1)), said(&issue(2))]);
    let regions = [region(0, 1000), region(1064, 333), region(1461, 50)];
    assert_eq!(decoded.damage.regions, regions);
    assert_eq!(decoded.damage.skipped_regions, 3);
    assert_eq!(decoded.damage.zero_tail, Some(region(1511, 10)));
}

#[test]
fn a_first_record_is_found_wherever_a_piece_ends() {
    for garbage in 0..200 {
        let mut bytes = vec![0xee; garbage];
        bytes.extend(file(V7, &[issue(1), issue(2)]));
        let whole = decode(&bytes);
        assert_eq!(whole.records, [said(&issue(1)), said(&issue(2))]);
        for chunk in 1..70 {
            assert_eq!(decode_in(chunk, &bytes), whole, "{garbage}, {chunk}");
        }
    }
}

#[test]
fn records_of_another_format_are_not_taken_for_the_files_own() {
    let mut bytes = file(V7, &[issue(1)]);
    bytes.extend(file(V8, &[issue(2)]));
    bytes.extend(file(V7, &[issue(3)]));
    let decoded = decode(&bytes);
    assert_eq!(decoded.records, [said(&issue(1)), said(&issue(3))]);
    assert_eq!(decoded.damage.regions, [region(48, 64)]);
}

#[test]
fn a_magic_number_alone_does_not_end_a_skip() {
    let mut bytes = file(V7, &[issue(1)]);
    bytes.extend([0xff; 10]);
    let unknown = record(2, Kind::Unknown(99), Categories::READ);
    bytes.extend(file(V7, &[unknown, issue(3)]));
    let decoded = decode(&bytes);
    assert_eq!(decoded.records, [said(&issue(1)), said(&issue(3))]);
    assert_eq!(decoded.damage.regions, [region(48, 58)]);
}

#[test]
fn unknown_actions_are_passed_on() {
    let unknown = record(1, Kind::Unknown(99), Categories::READ);
    let decoded = decode(&file(V7, &[unknown, issue(2)]));
    assert_eq!(decoded.records, [said(&unknown), said(&issue(2))]);
}

#[test]
fn the_list_of_regions_is_bounded_and_the_count_is_not() {
    let mut bytes = Vec::new();
    for sequence in 1..=100 {
        bytes.extend(file(V7, &[issue(sequence)]));
        bytes.push(b'?');
    }
    let damage = decode(&bytes).damage;
    assert_eq!((damage.skipped_regions, damage.skipped_bytes), (100, 100));
    assert_eq!(damage.regions.len(), 64);
}

#[test]
fn every_flipped_bit_costs_little_and_is_never_a_panic() {
    for format in [V7, V8] {
        let bytes = small_file(format);
        let whole = decode(&bytes).records;
        for bit in 32..8 * bytes.len() {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let decoded = decode(&flipped);
            let same = whole
                .iter()
                .filter(|record| decoded.records.contains(record))
                .count();
            assert!(same + 2 >= whole.len(), "{format}, bit {bit}: {same}");
            assert_eq!(decode_in(13, &flipped), decoded, "{format}, bit {bit}");
        }
    }
}

#[test]
fn foreign_files_are_refused_with_what_they_begin_with() {
    assert_eq!(
        error_of(b"{\"id\": 1}"),
        "not a blktrace file: it begins with [7b, 22, 69, 64], expected the magic number of \
         version 7 or 8 (07 74 61 65 or 08 74 61 65, or the same backwards), and none stands in \
         the first 9 bytes"
    );
    assert!(error_of(b"xy").contains("begins with [78, 79]"));
    assert!(error_of(&vec![b'x'; 3 << 20]).contains("not a blktrace file"));
}

#[test]
fn unknown_versions_are_refused_by_their_number() {
    for start in [b"\x06tae", b"eat\x06"] {
        let mut bytes = start.to_vec();
        bytes.extend([0; 100]);
        let expected = "blktrace version 6, expected 7 or 8: only these can be read";
        assert_eq!(error_of(&bytes), expected);
    }
}

/// Fails after some bytes; gives one byte at a time, and is interrupted before each.
struct Faulty<'a> {
    bytes: &'a [u8],
    interrupt: bool,
    fails: bool,
}

impl std::io::Read for Faulty<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.interrupt = !self.interrupt;
        if self.interrupt {
            return Err(std::io::ErrorKind::Interrupted.into());
        }
        match self.bytes.split_first() {
            Some((byte, rest)) => {
                buffer[0] = *byte;
                self.bytes = rest;
                Ok(1)
            }
            None if self.fails => Err(std::io::Error::other("medium error")),
            None => Ok(0),
        }
    }
}

#[test]
fn short_and_interrupted_reads_are_repeated() {
    let bytes = small_file(V7);
    let source = Faulty {
        bytes: &bytes,
        interrupt: false,
        fails: false,
    };
    let mut reader = Reader::new(source);
    let mut records = Vec::new();
    while let Some(record) = reader.next_record().unwrap() {
        records.push(said(&record));
    }
    assert_eq!(records, decode(&bytes).records);
}

#[test]
fn a_failing_read_says_where() {
    let bytes = file(V7, &[issue(1), issue(2)]);
    let source = Faulty {
        bytes: &bytes,
        interrupt: false,
        fails: true,
    };
    let mut reader = Reader::new(source);
    assert!(reader.next_record().unwrap().is_some());
    match reader.next_record() {
        Err(Error::Read { offset: 96, source }) => {
            assert_eq!(source.to_string(), "medium error");
        }
        other => panic!("{other:?}"),
    }
}
