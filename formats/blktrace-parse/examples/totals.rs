//! Merges files and prints how many requests were issued, and how fast it read:
//! `totals sda.blktrace.0 sda.blktrace.1`.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs::File;
use std::time::Instant;

use blktrace_parse::{Kind, Merged, Reader, SequenceTracker};

fn main() -> Result<(), Box<dyn Error>> {
    let files: std::io::Result<Vec<File>> = std::env::args().skip(1).map(File::open).collect();
    let files = files?;
    let bytes = files
        .iter()
        .map(|file| Ok(file.metadata()?.len()))
        .sum::<std::io::Result<u64>>()?;
    let start = Instant::now();
    let mut trackers = vec![SequenceTracker::new(); files.len()];
    let mut merged = Merged::new(files.into_iter().map(Reader::new).collect())?;
    let (mut records, mut lost) = (0_u64, 0);
    let mut issued: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    while let Some((file, record)) = merged.next_record()? {
        records += 1;
        let gap = trackers
            .get_mut(file)
            .and_then(|tracker| tracker.observe(&record).gap);
        lost += gap.map_or(0, |gap| gap.records);
        if record.action.kind() == Kind::Issue {
            let total = issued.entry(record.action.categories().0).or_default();
            total.0 += 1;
            total.1 += u64::from(record.bytes) / 512;
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    for (categories, (requests, sectors)) in issued {
        println!("categories {categories:#x}: {requests} requests, {sectors} sectors issued");
    }
    let speed = bytes as f64 / 1e6 / seconds;
    println!("{records} records, {lost} lost; {bytes} bytes in {seconds:.3} s: {speed:.0} MB/s");
    Ok(())
}
