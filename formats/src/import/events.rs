//! The tape of a source that gives the kernel's block events in the order of their times.

use std::io::Write;

use crate::event::Event;
use crate::pairing::{DeviceRules, Limits, Pairing};
use crate::request::{DeviceIndex, Request};
use crate::tape::{
    Anchor, Counters, Device, Header, Layer, Level, Loss, LossReason, Summary, TapeError,
    TapeWriter,
};

/// Events between two looks at what may leave the ordering window.
const RELEASE_EVERY: u64 = 512;

/// A tape in the making. Its time 0 is that of the first event.
pub(super) struct EventTape<W: Write> {
    writer: TapeWriter<W>,
    pairing: Pairing,
    layer: Layer,
    /// Devices by number, in the order of their indexes.
    devices: Vec<(u32, u32)>,
    zero_ns: Option<u64>,
    now_ns: u64,
    events: u64,
    released: Vec<Request>,
}

impl<W: Write> EventTape<W> {
    /// Begins the tape: requests are to be seen at `layer`.
    pub fn begin(sink: W, header: &Header, level: Level, layer: Layer) -> Result<Self, TapeError> {
        Ok(EventTape {
            writer: TapeWriter::create(sink, header, &[], level)?,
            pairing: Pairing::new(Vec::new(), Limits::default(), 0, None),
            layer,
            devices: Vec::new(),
            zero_ns: None,
            now_ns: 0,
            events: 0,
            released: Vec::new(),
        })
    }

    /// Events so far.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// The next event of the device of that number; the time is that of the source's clock, and the
    /// device's index is still to be set.
    pub fn event(&mut self, device: (u32, u32), event: Event) -> Result<(), TapeError> {
        self.events += 1;
        let zero_ns = *self.zero_ns.get_or_insert(event.time_ns);
        // Events of several processors may be a little out of order at the beginning.
        let time_ns = event.time_ns.saturating_sub(zero_ns);
        self.now_ns = self.now_ns.max(time_ns);
        let Some(device) = self.device(device)? else {
            self.undecodable();
            return Ok(());
        };
        self.pairing.event(Event {
            time_ns,
            device,
            ..event
        });
        if self.events.is_multiple_of(RELEASE_EVERY) {
            self.pairing.release(self.now_ns, &mut self.released);
            self.write()?;
        }
        Ok(())
    }

    /// The source lost so many events before the next one.
    pub fn lost(&mut self, events: u64) -> Result<(), TapeError> {
        self.pairing.lost(self.now_ns);
        self.loss(self.now_ns, events)
    }

    /// The source lost so many events, at a time that it does not tell: to be said behind the last
    /// event.
    pub fn lost_somewhere(&mut self, events: u64) -> Result<(), TapeError> {
        self.loss(0, events)
    }

    fn loss(&mut self, from_ns: u64, events: u64) -> Result<(), TapeError> {
        self.writer.loss(Loss {
            from_ns,
            to_ns: self.now_ns,
            events,
            requests: None,
            reason: LossReason::RingFull,
        })
    }

    /// An event could not be understood.
    pub fn undecodable(&mut self) {
        self.writer.count(&Counters {
            undecodable: 1,
            ..Counters::default()
        });
    }

    /// At `at_ns` of the source's clock it was `wall_ns`, in nanoseconds since 1970.
    pub fn anchor(&mut self, at_ns: u64, wall_ns: u64) -> Result<(), TapeError> {
        let zero_ns = self.zero_ns.unwrap_or(at_ns);
        let wall_ns = i128::from(wall_ns) + i128::from(zero_ns) - i128::from(at_ns);
        match i64::try_from(wall_ns) {
            Ok(wall_ns) => self.writer.anchor(Anchor {
                time_ns: 0,
                wall_ns,
            }),
            Err(_) => Ok(()),
        }
    }

    /// Writes what is still open, and the tape's end.
    pub fn finish(mut self) -> Result<(W, Summary), TapeError> {
        self.pairing.finish(&mut self.released);
        self.write()?;
        self.writer.finish()
    }

    fn device(&mut self, number: (u32, u32)) -> Result<Option<DeviceIndex>, TapeError> {
        let known = self.devices.iter().position(|device| *device == number);
        let at = known.unwrap_or(self.devices.len());
        let Ok(index) = u16::try_from(at) else {
            return Ok(None);
        };
        let index = DeviceIndex(index);
        if known.is_none() {
            self.devices.push(number);
            self.writer.device(&Device {
                index,
                name: format!("{}:{}", number.0, number.1),
                layer: self.layer,
                ..Device::default()
            })?;
            let rules = DeviceRules {
                layer: self.layer,
                scattered_discards: true,
                single_queue: false,
                busy_at_start: true,
            };
            self.pairing.add_device(rules, self.now_ns);
        }
        Ok(Some(index))
    }

    fn write(&mut self) -> Result<(), TapeError> {
        for request in self.released.drain(..) {
            self.writer.push(&request)?;
        }
        self.writer.count(&self.pairing.take_counters());
        Ok(())
    }
}
