//! Requests in, bytes out.

use std::fmt;
use std::sync::Arc;

use foldhash::{HashMap, HashSet};

use super::block::Block;
use super::chain::Chain;
use super::encode::BlockEncoder;
use super::error::TapeError;
use super::id::{IdSum, name_of};
use super::model::{Anchor, Counters, Device, Header, Loss, Name, NameKind, Summary};
use super::names::Names;
use super::pause::Pause;
use super::wire::{MAX_BLOCK_REQUESTS, MAX_NAME_BYTES, opcode};
use crate::request::{Process, Request};

/// Bytes of process names after which a block is closed early.
const NAMES_PER_BLOCK: usize = 1 << 20;
/// Bytes of names of control groups and files after which their record is written early.
const NAMES_PER_RECORD: usize = 1 << 20;
/// Processes that are known again by their name's place in memory.
const RECENT: usize = 16;

/// How hard to try to make the tape small.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Level {
    /// Fast enough for a recorder beside a busy server.
    #[default]
    Live,
    /// As small as possible.
    Archive,
}

/// Turns requests into the bytes of a tape. Does no I/O: each call appends whole records to `out`.
pub struct Encoder {
    blocks: BlockEncoder,
    devices: usize,
    open: Block,
    processes: HashMap<Process, u32>,
    recent: [Option<(Process, u32)>; RECENT],
    name_bytes: usize,
    named: Named,
    id: IdSum,
    counters: Counters,
    chain: Chain,
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
            blocks: BlockEncoder::new(level).map_err(|error| TapeError::Compress { error })?,
            devices: 0,
            open: Block::new(),
            processes: HashMap::default(),
            recent: Default::default(),
            name_bytes: 0,
            named: Named::default(),
            id: IdSum::default(),
            counters: Counters::default(),
            chain: Chain::start(out),
            requests: 0,
        };
        encoder.chain.metadata(opcode::HEADER, header, out)?;
        for device in devices {
            encoder.device(device, out)?;
        }
        Ok(encoder)
    }

    /// Calls `pause` within the making of a block, after pieces of work that take well below a
    /// millisecond as a rule: a place to let others have the processor. It changes no byte.
    pub fn pause_with(&mut self, pause: impl FnMut() + Send + 'static) {
        self.blocks.pause_with(Pause::with(pause));
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
        self.chain.metadata(opcode::DEVICE, device, out)?;
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
        let process = process.and_then(|at| self.open.process_table.get(at as usize));
        self.id.add(request, name_of(process));
        self.requests += 1;
        if self.open.len() >= MAX_BLOCK_REQUESTS || self.name_bytes >= NAMES_PER_BLOCK {
            self.close_block(out)?;
        }
        Ok(())
    }

    /// Names a control group or a file, for the requests of the open block and of all behind it.
    /// Naming it again changes nothing. `false` when the name is too long or one too many for
    /// readers to keep ([`Names`]): it is left out.
    ///
    /// # Errors
    ///
    /// None today.
    pub fn name(
        &mut self,
        kind: NameKind,
        id: u64,
        name: &str,
        out: &mut Vec<u8>,
    ) -> Result<bool, TapeError> {
        let taken = self.named.take(kind, id, name);
        if self.named.waiting_bytes >= NAMES_PER_RECORD {
            self.put_names(out)?;
        }
        Ok(taken)
    }

    /// Appends the names that no record holds yet.
    fn put_names(&mut self, out: &mut Vec<u8>) -> Result<(), TapeError> {
        if self.named.waiting.is_empty() {
            return Ok(());
        }
        self.named.waiting_bytes = 0;
        let names = std::mem::take(&mut self.named.waiting);
        self.chain.metadata(opcode::NAMES, &names, out)
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
        self.chain.anchor(anchor, out)
    }

    /// Appends a loss, and counts its events.
    ///
    /// # Errors
    ///
    /// None today.
    pub fn loss(&mut self, loss: Loss, out: &mut Vec<u8>) -> Result<(), TapeError> {
        self.chain.loss(loss, out)?;
        self.counters.lost_events = self.counters.lost_events.saturating_add(loss.events);
        Ok(())
    }

    /// Appends the open block, unless it has neither requests nor counts.
    ///
    /// # Errors
    ///
    /// When compressing fails.
    pub fn close_block(&mut self, out: &mut Vec<u8>) -> Result<(), TapeError> {
        self.put_names(out)?;
        if self.open.is_empty() && self.counters == Counters::default() {
            return Ok(());
        }
        let mut summary = Summary::of_rows(&self.open);
        summary.counters = std::mem::take(&mut self.counters);
        summary.id = self.id.take();
        let Encoder {
            blocks,
            chain,
            open,
            ..
        } = self;
        let before = chain.requests();
        chain.block(&summary, out, |out| blocks.put(open, &summary, before, out))?;
        self.open.clear();
        self.processes.clear();
        self.recent = Default::default();
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
        self.chain.finish(out)
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
        let slot = process.pid as usize % RECENT;
        if let Some((recent, at)) = &self.recent[slot]
            && recent.pid == process.pid
            && Arc::ptr_eq(&recent.name, &process.name)
        {
            return *at;
        }
        let at = match self.processes.get(process) {
            Some(at) => *at,
            None => self.add_process(process),
        };
        self.recent[slot] = Some((process.clone(), at));
        at
    }

    fn add_process(&mut self, process: &Process) -> u32 {
        let at = self.open.process_table.len() as u32;
        // A copy of the name: beside the one at hand another thread may be counting its holders.
        let process = Process {
            pid: process.pid,
            name: Arc::from(&*process.name),
        };
        self.open.process_table.push(process.clone());
        self.processes.insert(process.clone(), at);
        self.name_bytes += process.name.len();
        at
    }
}

/// What has been named.
#[derive(Default)]
struct Named {
    ids: HashSet<(NameKind, u64)>,
    bytes: usize,
    /// Names that no record holds yet.
    waiting: Vec<Name>,
    waiting_bytes: usize,
}

impl Named {
    fn take(&mut self, kind: NameKind, id: u64, name: &str) -> bool {
        if self.ids.contains(&(kind, id)) {
            return true;
        }
        let bytes = self.bytes + name.len();
        let fits = self.ids.len() < Names::MOST && bytes <= Names::MOST_BYTES;
        if !fits || name.len() > Names::LONGEST {
            return false;
        }
        self.ids.insert((kind, id));
        self.bytes = bytes;
        self.waiting_bytes += name.len();
        self.waiting.push(Name {
            kind,
            id,
            name: Arc::from(name),
        });
        true
    }
}

impl fmt::Debug for Encoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Encoder")
            .field("requests", &self.requests)
            .field("open", &self.open.len())
            .finish_non_exhaustive()
    }
}
