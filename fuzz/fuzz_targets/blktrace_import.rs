//! Any bytes as the two files of a blktrace set: what is imported can be read back, and no latency
//! or range is impossible.
#![no_main]

#[path = "../reads_back.rs"]
mod reads_back;

use iotape_formats::import::blktrace::{Options, Source, import};
use iotape_formats::tape::Layer;
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
    reads_back::check(tape, &report.summary);
});
