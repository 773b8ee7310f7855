#![forbid(unsafe_code)]
pub mod csv;
pub mod request;
pub mod tape;
pub use request::{DeviceIndex, Flags, Op, Process, Request};
