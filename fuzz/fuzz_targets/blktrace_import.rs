//! Any bytes as the two files of a blktrace set: what is imported can be read back, and no latency
//! or range is impossible.
#![no_main]

use std::io::Cursor;

use iotape_formats::import::blktrace::{Options, Source, import};
use iotape_formats::tape::{Block, Layer, TapeReader};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let [layer, cut, rest @ ..] = data else {
        return;
    };
    let (first, second) = rest.split_at(rest.len() * usize::from(*cut) / 256);
    let source = |reader| Source {
        name: "sda.blktrace.0".to_owned(),
        reader,
    };
    let options = Options {
        layer: [None, Some(Layer::Queue), Some(Layer::Device)][usize::from(*layer) % 3],
        ..Options::default()
    };
    let sources = vec![source(first), source(second)];
    let Ok((tape, report)) = import(sources, &options, Vec::new(), &mut |_| ()) else {
        return;
    };
    report.warnings();
    let mut tape = TapeReader::open(Cursor::new(tape)).expect("a tape");
    let mut block = Block::new();
    let mut requests = 0;
    while tape.next_block(&mut block).expect("a tape") {
        for request in block.requests() {
            requests += 1;
            assert!(request.end_bytes().is_some());
            let done_ns = request.time_ns.checked_add(request.latency_ns.unwrap_or(0));
            assert!(done_ns.is_some());
        }
    }
    assert!(tape.has_footer() && tape.damage().is_clean());
    assert_eq!(requests, report.summary.requests);
    assert_eq!(tape.summary(), &report.summary);
});
