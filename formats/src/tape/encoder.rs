//! Requests in, bytes out.

use std::collections::HashMap;

use super::block::Block;
use super::encode::put_block;
use super::error::TapeError;
use super::id::TapeId;
use super::metadata;
use super::model::{Anchor, Counters, Device, Header, Loss, Summary};
use super::tally::Tally;
use super::wire::{HEAD_MAGIC, MAX_BLOCK_REQUESTS, MAX_NAME_BYTES, opcode, put_record, trailer};
use crate::request::{Process, Request};

/// Bytes of process names after which a block is closed early.
const NAMES_PER_BLOCK: usize = 1 << 20;

/// How hard to try to make the tape small.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Level {
    /// Fast enough for a recorder beside a busy server.
    #[default]
    Live,
    /// As small as possible.
    Archive,
}

impl Level {
    fn zstd(self) -> i32 {
        match self {
            Level::Live => 3,
            Level::Archive => 19,
        }
    }
}

/// Turns requests into the bytes of a tape. Does no I/O: each call appends whole records to `out`.
#[derive(Debug)]
pub struct Encoder {
    level: Level,
    devices: usize,
    open: Block,
    processes: HashMap<Process, u32>,
    name_bytes: usize,
    id: TapeId,
    counters: Counters,
    tally: Tally,
    position: u64,
    requests: u64,
}

impl Encoder {
    /// Begins a tape: appends its magic, header and devices.
    ///
    /// # Errors
    ///
    /// When the devices' indexes do not count from 0, or a text is too long to store.
    pub fn start(
        header: &Header,
        devices: &[Device],
        level: Level,
        out: &mut Vec<u8>,
    ) -> Result<Encoder, TapeError> {
        let mut encoder = Encoder {
            level,
            devices: 0,
            open: Block::new(),
            processes: HashMap::new(),
            name_bytes: 0,
            id: TapeId::default(),
            counters: Counters::default(),
            tally: Tally::default(),
            position: HEAD_MAGIC.len() as u64,
            requests: 0,
        };
        out.extend_from_slice(&HEAD_MAGIC);
        encoder.put(opcode::HEADER, out, |out| metadata::put(header, out))?;
        for device in devices {
            encoder.device(device, out)?;
        }
        Ok(encoder)
    }

    /// Appends a device that requests from here on may name.
    ///
    /// # Errors
    ///
    /// When its index is not the next one, or a text is too long to store.
    pub fn device(&mut self, device: &Device, out: &mut Vec<u8>) -> Result<(), TapeError> {
        if usize::from(device.index.0) != self.devices {
            return Err(TapeError::DeviceOrder {
                name: device.name.clone(),
                found: device.index.0,
                expected: self.devices,
            });
        }
        self.put(opcode::DEVICE, out, |out| metadata::put(device, out))?;
        self.devices += 1;
        Ok(())
    }

    /// Adds a request; appends a block when that fills it.
    ///
    /// # Errors
    ///
    /// When the request cannot be stored; the tape goes on without it.
    pub fn push(&mut self, request: &Request, out: &mut Vec<u8>) -> Result<(), TapeError> {
        self.check(request)?;
        let process = request
            .process
            .as_ref()
            .map(|process| self.process(process));
        self.open.push(request, process);
        self.id = self.id.combine(TapeId::of(request));
        self.requests += 1;
        if self.open.len() >= MAX_BLOCK_REQUESTS || self.name_bytes >= NAMES_PER_BLOCK {
            self.close_block(out)?;
        }
        Ok(())
    }

    /// Adds to the counters of the open block.
    pub fn count(&mut self, counters: &Counters) {
        self.counters.add(counters);
    }

    /// Appends a clock anchor.
    ///
    /// # Errors
    ///
    /// None today.
    pub fn anchor(&mut self, anchor: Anchor, out: &mut Vec<u8>) -> Result<(), TapeError> {
        self.put(opcode::ANCHOR, out, |out| metadata::put(&anchor, out))?;
        self.tally.anchor(anchor);
        Ok(())
    }

    /// Appends a loss, and counts its events.
    ///
    /// # Errors
    ///
    /// None today.
    pub fn loss(&mut self, loss: Loss, out: &mut Vec<u8>) -> Result<(), TapeError> {
        self.put(opcode::LOSS, out, |out| metadata::put(&loss, out))?;
        self.tally.loss(loss);
        self.counters.lost_events = self.counters.lost_events.saturating_add(loss.events);
        Ok(())
    }

    /// Appends the open block, unless it has neither requests nor counts.
    ///
    /// # Errors
    ///
    /// When compressing fails.
    pub fn close_block(&mut self, out: &mut Vec<u8>) -> Result<(), TapeError> {
        if self.open.is_empty() && self.counters == Counters::default() {
            return Ok(());
        }
        let mut summary = Summary::of_rows(&self.open);
        summary.counters = std::mem::take(&mut self.counters);
        summary.id = std::mem::take(&mut self.id);
        let offset = self.position;
        let open = std::mem::take(&mut self.open);
        let level = self.level.zstd();
        self.put(opcode::BLOCK, out, |out| {
            put_block(&open, &summary, level, out)
        })?;
        self.tally.block(offset, &summary);
        self.open = open;
        self.open.clear();
        self.processes.clear();
        self.name_bytes = 0;
        Ok(())
    }

    /// Appends what is open, the footer and the trailer; returns the tape's totals.
    ///
    /// # Errors
    ///
    /// When compressing fails.
    pub fn finish(mut self, out: &mut Vec<u8>) -> Result<Summary, TapeError> {
        self.close_block(out)?;
        let mut footer = std::mem::take(&mut self.tally).into_footer();
        footer.tape_bytes = self.position;
        self.put(opcode::FOOTER, out, |out| metadata::put(&footer, out))?;
        out.extend_from_slice(&trailer(self.position - footer.tape_bytes));
        Ok(footer.summary)
    }

    /// Requests taken so far.
    pub fn requests(&self) -> u64 {
        self.requests
    }

    fn check(&self, request: &Request) -> Result<(), TapeError> {
        let time_ns = request.time_ns;
        if request.end_bytes().is_none() {
            let Request {
                offset_bytes,
                length_bytes,
                ..
            } = *request;
            return Err(TapeError::RangeOverflow {
                time_ns,
                offset_bytes,
                length_bytes,
            });
        }
        if usize::from(request.device.0) >= self.devices {
            let (device, devices) = (request.device.0, self.devices);
            return Err(TapeError::UnknownDevice {
                time_ns,
                device,
                devices,
            });
        }
        match &request.process {
            Some(process) if process.name.len() > MAX_NAME_BYTES => Err(TapeError::NameTooLong {
                time_ns,
                bytes: process.name.len(),
            }),
            _ => Ok(()),
        }
    }

    /// The place of a process in the open block's table.
    fn process(&mut self, process: &Process) -> u32 {
        if let Some(at) = self.processes.get(process) {
            return *at;
        }
        let at = self.open.process_table.len() as u32;
        self.open.process_table.push(process.clone());
        self.processes.insert(process.clone(), at);
        self.name_bytes += process.name.len();
        at
    }

    fn put(
        &mut self,
        opcode: u8,
        out: &mut Vec<u8>,
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), TapeError>,
    ) -> Result<(), TapeError> {
        let before = out.len();
        put_record(out, opcode, write)?;
        self.position += (out.len() - before) as u64;
        Ok(())
    }
}
