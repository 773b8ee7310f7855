//! What stops an import of a table.

use thiserror::Error;

use crate::tape::TapeError;

/// Why a table could not be imported.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TextError {
    /// The source cannot be read.
    #[error("cannot read behind line {line}: {source}")]
    Read {
        /// The last line that was read.
        line: u64,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The bytes are no CSV.
    #[error("{0}")]
    Csv(#[from] ::csv::Error),
    /// A field does not hold what its column says.
    #[error("line {line}: {column} is {found:?}: {problem}")]
    Field {
        /// Line, from 1.
        line: u64,
        /// Column.
        column: String,
        /// What stands there.
        found: String,
        /// What was expected.
        problem: String,
    },
    /// A line has too few fields.
    #[error("line {line}: no column {column}: {fields} fields, expected {expected} or more")]
    Short {
        /// Line, from 1.
        line: u64,
        /// The column that is missing.
        column: String,
        /// How many fields there are.
        fields: usize,
        /// How many there should be.
        expected: usize,
    },
    /// The table does not tell something that a tape needs.
    #[error("line {line}: no column named {missing}; {advice} (found: {found})")]
    MissingColumn {
        /// Line that names the columns, from 1.
        line: u64,
        /// What was looked for.
        missing: &'static str,
        /// What to do.
        advice: &'static str,
        /// The columns that there are.
        found: String,
    },
    /// More devices than a tape can name.
    #[error("line {line}: more than 65,536 different devices")]
    TooManyDevices {
        /// Line, from 1.
        line: u64,
    },
    /// The table has no requests.
    #[error("no requests in this table ({format}): there is nothing to import")]
    Empty {
        /// What it was taken for.
        format: &'static str,
    },
    /// The tape could not be written.
    #[error(transparent)]
    Tape(#[from] TapeError),
}

impl TextError {
    /// A field that is wrong.
    pub(super) fn field(
        line: u64,
        column: &str,
        found: &str,
        problem: impl std::fmt::Display,
    ) -> TextError {
        TextError::Field {
            line,
            column: column.to_owned(),
            found: found.chars().take(80).collect(),
            problem: problem.to_string(),
        }
    }
}
