//! Writes small `perf.data` files for the fuzzer: `perf_data_seeds DIRECTORY`. In front of each stands
//! the byte that chooses the layer.

#[path = "../tests/common/perf_data.rs"]
mod perf_data;

use std::error::Error;
use std::path::PathBuf;

use perf_data::{Block, COMPLETE, ISSUE, PerfData, QUEUE};

fn main() -> Result<(), Box<dyn Error>> {
    let usage = "usage: perf_data_seeds DIRECTORY";
    let directory = PathBuf::from(std::env::args().nth(1).ok_or(usage)?);
    std::fs::create_dir_all(&directory)?;
    for is_big in [false, true] {
        let data = requests(is_big);
        let name = if is_big { "big" } else { "little" };
        for (kind, bytes) in [
            ("file", data.file()),
            ("pipe", data.pipe()),
            ("compressed", data.compressed().file()),
        ] {
            let seed = [&[1], &bytes[..]].concat();
            std::fs::write(directory.join(format!("{name}-{kind}")), seed)?;
        }
    }
    Ok(())
}

/// Two requests, a loss and the name of a thread.
fn requests(is_big: bool) -> PerfData {
    let event = |id, time| Block {
        id,
        time,
        cpu: 0,
        thread: 7,
        sector: time / 100 * 8,
        sectors: 8,
        error: 0,
        rwbs: "W",
        comm: "a",
    };
    let mut data = PerfData::new(is_big);
    let name = data.fields().u32(7).u32(7).text("seed", 8);
    let name = name.put(&data.trailer(1)).bytes;
    data.record(3, 0, &name);
    for time in [100, 200] {
        for (id, later) in [(QUEUE, 0), (ISSUE, 1), (COMPLETE, 50)] {
            data.sample(event(id, time + later));
        }
        data.round();
    }
    let lost = data.fields().u64(70).u64(5).put(&data.trailer(260)).bytes;
    data.record(2, 0, &lost);
    data
}
