//! From the tape to requests that are ready to be submitted.

mod source;

pub use source::{Row, Source, SourceError};
