//! Any bytes as a `perf.data`, in a file and in a pipe: what is imported can be read back.
#![no_main]

#[path = "../reads_back.rs"]
mod reads_back;

use std::io::Cursor;

use iotape_formats::import::perf_data::{Options, import, import_stream};
use iotape_formats::tape::Layer;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let [layer, data @ ..] = data else {
        return;
    };
    let options = Options {
        layer: [Layer::Queue, Layer::Device][usize::from(*layer) % 2],
        ..Options::default()
    };
    let from_file = import(Cursor::new(data), &options, Vec::new(), &mut |_| ());
    if let Ok((tape, _)) = import_stream(data, &options, Vec::new(), &mut |_| ()) {
        // A pipe's content is read the same way from a file.
        assert!(from_file.as_ref().is_ok_and(|(same, _)| *same == tape));
    }
    let Ok((tape, report)) = from_file else {
        return;
    };
    report.warnings();
    reads_back::check(tape, &report.summary);
});
