//! Any bytes as a table of Windows' tools: what is imported can be read back.
#![no_main]

use std::io::Cursor;

use iotape_formats::import::text::{Options, TextFormat, import};
use iotape_formats::tape::{Block, TapeReader};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let [which, text @ ..] = data else {
        return;
    };
    let formats = [TextFormat::Xperf, TextFormat::Wpa, TextFormat::Msr];
    let options = Options {
        without_offsets: which & 4 != 0,
        ..Options::default()
    };
    let format = formats[usize::from(which & 3) % formats.len()];
    let Ok((tape, report)) = import(text, format, &options, Vec::new(), &mut |_| ()) else {
        return;
    };
    let mut tape = TapeReader::open(Cursor::new(tape)).expect("a tape");
    let mut block = Block::new();
    let mut requests = 0;
    while tape.next_block(&mut block).expect("a tape") {
        for request in block.requests() {
            requests += 1;
            assert!(request.end_bytes().is_some());
        }
    }
    assert!(tape.has_footer() && tape.damage().is_clean());
    assert_eq!(requests, report.summary.requests);
});
