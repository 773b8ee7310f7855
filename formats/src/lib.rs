#![forbid(unsafe_code)]
pub mod csv;
pub mod event;
pub mod request;
pub mod sort;
pub mod tape;
pub mod tracepoint;
pub use request::{DeviceIndex, Flags, Op, Process, Request};
