//! The pass over all records: in order of time, with an eye on what is missing.

use std::io::{Read, Write};

use blktrace_parse::{Continuation, Merged, Reader, SequenceTracker, SourceError};

use super::output::Output;
use super::report::{FileReport, Report};
use super::survey::{Rewound, Surveyed};
use super::{ImportError, Options, Progress};

/// Memory for reading, shared by all files.
const BUFFERS_BYTES: usize = 16 << 20;
/// Most memory for reading one file.
const MAX_BUFFER_BYTES: usize = 128 << 10;
/// Records between two looks at what may leave the ordering window.
const RELEASE_EVERY: u64 = 512;
/// Records between two calls of the progress callback.
const PROGRESS_EVERY: u64 = 1 << 18;

/// An import under way.
pub(super) struct Run<R, W: Write> {
    merged: Merged<Rewound<R>>,
    files: Vec<FileState>,
    /// How many files are in a gap.
    gaps: usize,
    records: u64,
    output: Output<W>,
}

/// What is kept of one file.
struct FileState {
    name: String,
    tracker: SequenceTracker,
    in_gap: bool,
}

impl<R: Read, W: Write> Run<R, W> {
    /// Begins the tape.
    pub fn start(
        surveyed: Surveyed<R>,
        options: &Options,
        sink: W,
    ) -> Result<Run<R, W>, ImportError> {
        let Surveyed { sources, survey } = surveyed;
        let buffer = (BUFFERS_BYTES / sources.len().max(1)).min(MAX_BUFFER_BYTES);
        let mut files = Vec::with_capacity(sources.len());
        let mut readers = Vec::with_capacity(sources.len());
        for source in sources {
            files.push(FileState {
                name: source.name,
                tracker: SequenceTracker::new(),
                in_gap: false,
            });
            readers.push(Reader::with_buffer(source.reader, buffer));
        }
        Ok(Run {
            merged: Merged::new(readers).map_err(|error| read_error(&files, error))?,
            files,
            gaps: 0,
            records: 0,
            output: Output::start(&survey, options, sink)?,
        })
    }

    /// Reads everything and finishes the tape.
    pub fn run(mut self, progress: &mut dyn FnMut(&Progress)) -> Result<(W, Report), ImportError> {
        while self.next()? {
            if self.records.is_multiple_of(RELEASE_EVERY) {
                self.output.release()?;
            }
            if self.records.is_multiple_of(PROGRESS_EVERY) {
                progress(&Progress {
                    bytes: self.merged.readers().map(Reader::offset).sum(),
                    records: self.records,
                    requests: self.output.requests(),
                });
            }
        }
        self.finish()
    }

    /// Takes the next record; says whether there was one.
    fn next(&mut self) -> Result<bool, ImportError> {
        let next = self.merged.next_record();
        let Some((index, record)) = next.map_err(|error| read_error(&self.files, error))? else {
            return Ok(false);
        };
        self.records += 1;
        if let Some(file) = self.files.get_mut(index) {
            let seen = file.tracker.observe(&record);
            if let Some(gap) = seen.gap {
                self.output.lost(&gap)?;
            }
            let ends_gap = file.in_gap && !record.action.is_note();
            if seen.jumped {
                self.output.doubt(record.time_ns);
            }
            if ends_gap {
                file.in_gap = false;
                self.gaps -= 1;
                if self.gaps == 0 {
                    self.output.gap_ends();
                }
            }
        }
        self.output.take(&record)?;
        self.look_ahead(index)?;
        Ok(true)
    }

    /// Looks at what comes behind the record that was taken.
    fn look_ahead(&mut self, index: usize) -> Result<(), ImportError> {
        let continuation = self.merged.continuation();
        let (file, output) = (self.files.get_mut(index), &mut self.output);
        match (continuation, file) {
            (Ok(Continuation::Whole), _) | (Ok(_), None) => {}
            (Ok(Continuation::Gap), Some(file)) => {
                if !file.in_gap {
                    file.in_gap = true;
                    self.gaps += 1;
                    output.gap_begins();
                }
            }
            (Ok(Continuation::Torn), Some(_)) => output.doubt_from_now(),
            (Err(error), _) => return Err(read_error(&self.files, error)),
        }
        Ok(())
    }

    fn finish(mut self) -> Result<(W, Report), ImportError> {
        for file in &mut self.files {
            for gap in file.tracker.finish() {
                self.output.lost(&gap)?;
            }
        }
        let out_of_order = self.merged.late();
        let damaged_times = |index| self.merged.damaged_times(index);
        let files = self
            .files
            .into_iter()
            .zip(self.merged.readers())
            .enumerate();
        let files = files.map(|(index, (file, reader))| FileReport {
            name: file.name,
            bytes: reader.offset(),
            format: reader.format(),
            damage: reader.damage().clone(),
            numbering: file.tracker.numbering(),
            damaged_times: damaged_times(index),
        });
        let files: Vec<FileReport> = files.collect();
        let (sink, report) = self.output.finish()?;
        let report = Report {
            records: self.records,
            files,
            out_of_order,
            ..report
        };
        Ok((sink, report))
    }
}

fn read_error(files: &[FileState], error: SourceError) -> ImportError {
    let file = files.get(error.source_index);
    ImportError::Read {
        file: file.map_or_else(String::new, |file| file.name.clone()),
        error: error.error,
    }
}
