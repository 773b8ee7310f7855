//! How things are shown: units, tables, the progress line.

pub mod json;
pub mod progress;
pub mod result;
pub mod table;
pub mod text;
pub mod units;
