//! What the recorder hands on: to the writer, and to whoever watches.

use iotape_formats::Request;

use super::intake::Intake;
use super::writer::{Batch, Writer, WriterGone};
use crate::Observer;

/// The way to the writer.
pub(super) struct Outlet<'a, 'scope> {
    pub writer: &'a Writer<'scope>,
    /// Goes next.
    pub batch: Batch,
    pub totals: Totals,
}

/// What was handed on until now.
#[derive(Default)]
pub(super) struct Totals {
    pub requests: u64,
    pub bytes: u64,
    pub lost_events: u64,
}

impl<'a, 'scope> Outlet<'a, 'scope> {
    pub fn new(writer: &'a Writer<'scope>) -> Self {
        Outlet {
            writer,
            batch: Batch::default(),
            totals: Totals::default(),
        }
    }

    /// Hands on the batch with what the intake has.
    pub fn send(
        &mut self,
        intake: &mut Intake,
        observer: &mut dyn Observer,
    ) -> Result<(), WriterGone> {
        let batch = &mut self.batch;
        if batch.requests.is_empty() {
            std::mem::swap(&mut batch.requests, &mut intake.finished);
        } else {
            batch.requests.append(&mut intake.finished);
        }
        batch.counters = intake.pairing.take_counters();
        batch.counters.add(&std::mem::take(&mut intake.counters));
        batch.losses.append(&mut intake.losses);
        batch.groups.append(&mut intake.groups);
        self.totals.add(batch);
        if !batch.requests.is_empty() {
            observer.requests(&batch.requests);
        }
        self.writer.send(batch)
    }
}

impl Totals {
    fn add(&mut self, batch: &Batch) {
        let transferred = |request: &&Request| request.op.transfers_data();
        let data = batch.requests.iter().filter(transferred);
        self.requests += batch.requests.len() as u64;
        self.bytes += data.map(|request| request.length_bytes).sum::<u64>();
        self.lost_events += batch.losses.iter().map(|loss| loss.events).sum::<u64>();
    }
}
