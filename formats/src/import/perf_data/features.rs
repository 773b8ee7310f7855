//! What a file says about itself besides its records.

use super::error::PerfDataError;
use super::formats::Formats;
use crate::byte_order::ByteOrder;

/// Numbers of features, `HEADER_…`.
pub(super) mod feature {
    /// Descriptions of the tracepoints.
    pub const TRACING_DATA: u64 = 1;
    /// Name of the host.
    pub const HOSTNAME: u64 = 3;
    /// Release of the kernel.
    pub const OSRELEASE: u64 = 4;
    /// The wall clock at a moment of the events' clock.
    pub const CLOCK_DATA: u64 = 29;
    /// Those besides the tracepoints that are read.
    pub const READ: [u64; 3] = [HOSTNAME, OSRELEASE, CLOCK_DATA];
}

/// A moment on two clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Moment {
    /// On the clock of the events.
    pub clock_ns: u64,
    /// Since 1970.
    pub wall_ns: u64,
}

/// What is known so far.
#[derive(Debug, Default)]
pub(super) struct Features {
    pub formats: Option<Formats>,
    pub host: Option<String>,
    pub release: Option<String>,
    pub moment: Option<Moment>,
}

impl Features {
    /// Takes a feature; those that are of no use are left out.
    pub fn take(
        &mut self,
        number: u64,
        bytes: &[u8],
        order: ByteOrder,
    ) -> Result<(), PerfDataError> {
        match number {
            feature::TRACING_DATA => self.formats = Some(Formats::parse(bytes)?),
            feature::HOSTNAME => self.host = text(bytes, order),
            feature::OSRELEASE => self.release = text(bytes, order),
            feature::CLOCK_DATA => self.moment = moment(bytes, order),
            _ => {}
        }
        Ok(())
    }
}

/// A text: its length in 32 bits, then itself and NULs.
fn text(bytes: &[u8], order: ByteOrder) -> Option<String> {
    let length = usize::try_from(order.u32_at(bytes, 0)?).ok()?;
    let text = bytes.get(4..)?;
    let text = text.get(..length).unwrap_or(text);
    let text = text.split(|byte| *byte == 0).next()?;
    let text = String::from_utf8_lossy(text).into_owned();
    (!text.is_empty()).then_some(text)
}

/// u32 version, u32 clock, u64 wall clock, u64 events' clock, both in nanoseconds.
fn moment(bytes: &[u8], order: ByteOrder) -> Option<Moment> {
    Some(Moment {
        wall_ns: order.u64_at(bytes, 8)?,
        clock_ns: order.u64_at(bytes, 16)?,
    })
}
