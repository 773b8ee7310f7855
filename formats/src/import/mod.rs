//! Other tools' files into tapes.
//!
//! An importer reads a file front to back and writes the tape while it reads, in bounded memory.
//! What the file does not have is absent in the tape; what cannot be understood is counted.

pub mod blktrace;
pub mod csv;
pub mod etl;
mod events;
mod inits;
pub mod perf_data;
mod sorted;
pub mod text;
pub mod tracing;

/// Adds a sentence for each count that is not 0.
fn warn_of_counts(warnings: &mut Vec<String>, counts: &[(u64, &str)]) {
    let met = counts.iter().filter(|(count, _)| *count > 0);
    warnings.extend(met.map(|(count, what)| format!("{count} {what}")));
}
