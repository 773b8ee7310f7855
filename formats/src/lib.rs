//! Block I/O requests: what they are, how kernel events become them, and the files they live in.
//!
//! Bytes and events flow in, requests flow out, and the other way round:
//!
//! ```text
//! kernel or foreign records → event → pairing → order → Request → tape | csv
//! ```
//!
//! Nothing here opens a device, starts a thread or prints: the same code serves a live recorder,
//! an importer, a test and a fuzzer, which differ only in where the bytes come from. There is no
//! unsafe code, every size is checked before it is believed, and what cannot be understood is
//! counted rather than dropped.

#![forbid(unsafe_code)]
pub mod arrivals;
pub mod blktrace;
pub mod byte_order;
pub mod csv;
pub mod edit;
pub mod event;
pub mod export;
pub mod ftrace;
pub mod import;
pub mod order;
pub mod pairing;
pub mod request;
mod shared_names;
pub mod sort;
pub mod tape;
pub mod tracepoint;
pub use request::{DeviceIndex, Flags, Op, Process, Request};
