//! Between the values that the program works with and their stored form.

use super::forms::{
    AnchorV1, CountersV1, DeviceExtentV1, DeviceV1, FooterV1, FooterV2, HeaderV1, IndexEntryV1,
    LossV1, LossV2, NameV1, NamesV1, OpTotalsV1, SummaryV1,
};
use super::{Footer, IndexEntry, Stored, V2, fields, put_fields};
use crate::request::{DeviceIndex, Op};
use crate::tape::error::{Corrupt, TapeError};
use crate::tape::id::TapeId;
use crate::tape::model::{
    Anchor, Clock, Counters, Device, DeviceExtent, ErrorCodes, Header, Layer, Loss, LossReason,
    Name, NameKind, OpTotals, Summary,
};

impl Stored for Header {
    type Form = HeaderV1;
    const NAME: &'static str = "header";

    fn to_form(&self) -> HeaderV1 {
        HeaderV1 {
            tool: self.tool.clone(),
            host: self.host.clone(),
            os: self.os.clone(),
            clock_source: self.clock.source.clone(),
            clock_resolution_ns: self.clock.resolution_ns,
            backend: self.backend.clone(),
            options: self.options.clone(),
            error_codes: match self.error_codes {
                ErrorCodes::Errno => 0,
                ErrorCodes::NtStatus => 1,
            },
            notes: self.notes.clone(),
        }
    }

    fn from_form(form: HeaderV1) -> Result<Header, Corrupt> {
        Ok(Header {
            tool: form.tool,
            host: form.host,
            os: form.os,
            clock: Clock {
                source: form.clock_source,
                resolution_ns: form.clock_resolution_ns,
            },
            backend: form.backend,
            options: form.options,
            error_codes: match form.error_codes {
                0 => ErrorCodes::Errno,
                1 => ErrorCodes::NtStatus,
                number => return Err(Corrupt::number("error code set", number)),
            },
            notes: form.notes,
        })
    }
}

impl Stored for Device {
    type Form = DeviceV1;
    const NAME: &'static str = "device";

    fn to_form(&self) -> DeviceV1 {
        DeviceV1 {
            index: self.index.0,
            name: self.name.clone(),
            layer: match self.layer {
                Layer::Queue => 0,
                Layer::Device => 1,
            },
            size_bytes: self.size_bytes,
            logical_sector_bytes: self.logical_sector_bytes,
            physical_sector_bytes: self.physical_sector_bytes,
            model: self.model.clone(),
            rotational: self.rotational,
            parents: self.parents.clone(),
        }
    }

    fn from_form(form: DeviceV1) -> Result<Device, Corrupt> {
        Ok(Device {
            index: DeviceIndex(form.index),
            name: form.name,
            layer: match form.layer {
                0 => Layer::Queue,
                1 => Layer::Device,
                number => return Err(Corrupt::number("layer", number)),
            },
            size_bytes: form.size_bytes,
            logical_sector_bytes: form.logical_sector_bytes,
            physical_sector_bytes: form.physical_sector_bytes,
            model: form.model,
            rotational: form.rotational,
            parents: form.parents,
        })
    }
}

impl Stored for Anchor {
    type Form = AnchorV1;
    const NAME: &'static str = "anchor";

    fn to_form(&self) -> AnchorV1 {
        AnchorV1 {
            time_ns: self.time_ns,
            wall_ns: self.wall_ns,
        }
    }

    fn from_form(form: AnchorV1) -> Result<Anchor, Corrupt> {
        Ok(Anchor {
            time_ns: form.time_ns,
            wall_ns: form.wall_ns,
        })
    }
}

impl Stored for Loss {
    type Form = LossV1;
    const NAME: &'static str = "loss";
    const LATEST: u16 = V2;

    fn to_form(&self) -> LossV1 {
        LossV1 {
            from_ns: self.from_ns,
            to_ns: self.to_ns,
            events: self.events,
            reason: reason_to_number(self.reason),
        }
    }

    fn from_form(form: LossV1) -> Result<Loss, Corrupt> {
        Ok(Loss {
            from_ns: form.from_ns,
            to_ns: form.to_ns,
            events: form.events,
            requests: None,
            reason: reason_from_number(form.reason),
        })
    }

    fn put_later(&self, max: u64, out: &mut Vec<u8>) -> Result<bool, TapeError> {
        if self.requests.is_some() {
            out.extend_from_slice(&V2.to_le_bytes());
            put_fields(Self::NAME, &loss_to_v2(self), max, out)?;
        }
        Ok(self.requests.is_some())
    }

    fn get_later(version: u16, stored: &[u8]) -> Option<Result<Loss, Corrupt>> {
        let loss = || fields(Self::NAME, stored).map(|form| loss_from_v2(&form));
        (version == V2).then(loss)
    }
}

fn loss_to_v2(loss: &Loss) -> LossV2 {
    LossV2 {
        from_ns: loss.from_ns,
        to_ns: loss.to_ns,
        events: loss.events,
        reason: reason_to_number(loss.reason),
        requests: loss.requests,
    }
}

fn loss_from_v2(form: &LossV2) -> Loss {
    Loss {
        from_ns: form.from_ns,
        to_ns: form.to_ns,
        events: form.events,
        requests: form.requests,
        reason: reason_from_number(form.reason),
    }
}

fn reason_to_number(reason: LossReason) -> u8 {
    match reason {
        LossReason::Unknown => 0,
        LossReason::RingFull => 1,
        LossReason::Throttled => 2,
        LossReason::SequenceGap => 3,
    }
}

fn reason_from_number(number: u8) -> LossReason {
    match number {
        1 => LossReason::RingFull,
        2 => LossReason::Throttled,
        3 => LossReason::SequenceGap,
        // A reason of a later version: the count matters more.
        _ => LossReason::Unknown,
    }
}

impl Stored for Vec<Name> {
    type Form = NamesV1;
    const NAME: &'static str = "names";

    fn to_form(&self) -> NamesV1 {
        let form = |name: &Name| NameV1 {
            kind: match name.kind {
                NameKind::Cgroup => 0,
                NameKind::File => 1,
            },
            id: name.id,
            name: name.name.as_ref().to_owned(),
        };
        NamesV1 {
            names: self.iter().map(form).collect(),
        }
    }

    /// Names of what a later version numbers are left out.
    fn from_form(form: NamesV1) -> Result<Vec<Name>, Corrupt> {
        let name = |NameV1 { kind, id, name }| {
            let kind = match kind {
                0 => NameKind::Cgroup,
                1 => NameKind::File,
                _ => return None,
            };
            let name = name.into();
            Some(Name { kind, id, name })
        };
        Ok(form.names.into_iter().filter_map(name).collect())
    }
}

impl Stored for Counters {
    type Form = CountersV1;
    const NAME: &'static str = "counters";

    fn to_form(&self) -> CountersV1 {
        CountersV1 {
            lost_events: self.lost_events,
            unpaired_issues: self.unpaired_issues,
            unpaired_completions: self.unpaired_completions,
            ambiguous: self.ambiguous,
            late: self.late,
            merges: self.merges,
            splits: self.splits,
            requeues: self.requeues,
            coalesced_flushes: self.coalesced_flushes,
            undecodable: self.undecodable,
        }
    }

    fn from_form(form: CountersV1) -> Result<Counters, Corrupt> {
        Ok(Counters {
            lost_events: form.lost_events,
            unpaired_issues: form.unpaired_issues,
            unpaired_completions: form.unpaired_completions,
            ambiguous: form.ambiguous,
            late: form.late,
            merges: form.merges,
            splits: form.splits,
            requeues: form.requeues,
            coalesced_flushes: form.coalesced_flushes,
            undecodable: form.undecodable,
        })
    }
}

impl Stored for Summary {
    type Form = SummaryV1;
    const NAME: &'static str = "summary";

    fn to_form(&self) -> SummaryV1 {
        let totals = |op: &Op| {
            let OpTotals { requests, bytes } = self.by_op[usize::from(op.number())];
            (requests > 0).then_some(OpTotalsV1 {
                op: op.number(),
                requests,
                bytes,
            })
        };
        SummaryV1 {
            requests: self.requests,
            first_ns: self.first_ns,
            last_ns: self.last_ns,
            ops: Op::ALL.iter().filter_map(totals).collect(),
            devices: self.devices.iter().map(extent_to_form).collect(),
            counters: (self.counters != Counters::default()).then(|| self.counters.to_form()),
            id: self.id.0,
        }
    }

    fn from_form(form: SummaryV1) -> Result<Summary, Corrupt> {
        let mut summary = Summary {
            requests: form.requests,
            first_ns: form.first_ns,
            last_ns: form.last_ns,
            devices: form.devices.iter().map(extent_from_form).collect(),
            counters: form
                .counters
                .map(Counters::from_form)
                .transpose()?
                .unwrap_or_default(),
            id: TapeId(form.id),
            ..Summary::default()
        };
        if !form.ops.is_sorted_by(|a, b| a.op < b.op) {
            return Err(Corrupt::Inconsistent {
                what: "operations of a summary are not in order",
            });
        }
        for OpTotalsV1 {
            op,
            requests,
            bytes,
        } in form.ops
        {
            let totals = summary
                .by_op
                .get_mut(usize::from(op))
                .ok_or(Corrupt::number("operation", op))?;
            *totals = OpTotals { requests, bytes };
        }
        if !summary.devices.is_sorted_by(|a, b| a.device < b.device) {
            return Err(Corrupt::Inconsistent {
                what: "devices of a summary are not in order",
            });
        }
        Ok(summary)
    }
}

fn extent_to_form(extent: &DeviceExtent) -> DeviceExtentV1 {
    DeviceExtentV1 {
        device: extent.device.0,
        requests: extent.requests,
        min_offset_bytes: extent.min_offset_bytes,
        end_bytes: extent.end_bytes,
        longest_transfer_bytes: extent.longest_transfer_bytes,
        alignment_bits: extent.alignment_bits,
    }
}

fn extent_from_form(form: &DeviceExtentV1) -> DeviceExtent {
    DeviceExtent {
        device: DeviceIndex(form.device),
        requests: form.requests,
        min_offset_bytes: form.min_offset_bytes,
        end_bytes: form.end_bytes,
        longest_transfer_bytes: form.longest_transfer_bytes,
        alignment_bits: form.alignment_bits,
    }
}

impl Stored for IndexEntry {
    type Form = IndexEntryV1;
    const NAME: &'static str = "index entry";

    fn to_form(&self) -> IndexEntryV1 {
        IndexEntryV1 {
            offset: self.offset,
            blocks: self.blocks,
            requests: self.requests,
            first_ns: self.first_ns,
            last_ns: self.last_ns,
        }
    }

    fn from_form(form: IndexEntryV1) -> Result<IndexEntry, Corrupt> {
        Ok(IndexEntry {
            offset: form.offset,
            blocks: form.blocks,
            requests: form.requests,
            first_ns: form.first_ns,
            last_ns: form.last_ns,
        })
    }
}

impl Stored for Footer {
    type Form = FooterV1;
    const NAME: &'static str = "footer";
    const LATEST: u16 = V2;

    fn to_form(&self) -> FooterV1 {
        FooterV1 {
            tape_bytes: self.tape_bytes,
            summary: self.summary.to_form(),
            anchors: self.anchors.iter().map(Stored::to_form).collect(),
            losses: self.losses.iter().map(Stored::to_form).collect(),
            blocks: self.blocks,
            index: self.index.iter().map(Stored::to_form).collect(),
        }
    }

    fn from_form(form: FooterV1) -> Result<Footer, Corrupt> {
        Ok(Footer {
            tape_bytes: form.tape_bytes,
            summary: Summary::from_form(form.summary)?,
            anchors: all_from_forms(form.anchors)?,
            losses: all_from_forms(form.losses)?,
            blocks: form.blocks,
            index: all_from_forms(form.index)?,
        })
    }

    fn put_later(&self, max: u64, out: &mut Vec<u8>) -> Result<bool, TapeError> {
        if self.losses.iter().all(|loss| loss.requests.is_none()) {
            return Ok(false);
        }
        let form = FooterV2 {
            tape_bytes: self.tape_bytes,
            summary: self.summary.to_form(),
            anchors: self.anchors.iter().map(Stored::to_form).collect(),
            losses: self.losses.iter().map(loss_to_v2).collect(),
            blocks: self.blocks,
            index: self.index.iter().map(Stored::to_form).collect(),
        };
        out.extend_from_slice(&V2.to_le_bytes());
        put_fields(Self::NAME, &form, max, out)?;
        Ok(true)
    }

    fn get_later(version: u16, stored: &[u8]) -> Option<Result<Footer, Corrupt>> {
        let footer = || {
            let form: FooterV2 = fields(Self::NAME, stored)?;
            Ok(Footer {
                tape_bytes: form.tape_bytes,
                summary: Summary::from_form(form.summary)?,
                anchors: all_from_forms(form.anchors)?,
                losses: form.losses.iter().map(loss_from_v2).collect(),
                blocks: form.blocks,
                index: all_from_forms(form.index)?,
            })
        };
        (version == V2).then(footer)
    }
}

fn all_from_forms<T: Stored>(forms: Vec<T::Form>) -> Result<Vec<T>, Corrupt> {
    forms.into_iter().map(T::from_form).collect()
}
