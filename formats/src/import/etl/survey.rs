//! A look at the beginning and the end of a trace, before it is read in order.

use std::collections::BTreeMap;
use std::io::{Read, Seek};

use etl_parse::kernel::{DiskIo, LogDisk, PhyDisk};
use etl_parse::{Event, EventId, Reader};

use super::error::ImportError;
use super::files::FirstFiles;
use super::people::People;
use super::requests::Origin;
use super::storports::tells_of_request;

/// How much is looked at, at either end.
const EDGE_BYTES: u64 = 32 << 20;
/// Most disks and partitions that are remembered.
const MAX_DISKS: usize = 1024;

/// What a trace says of its system.
#[derive(Clone, Debug, Default)]
pub(super) struct Survey {
    /// Physical disks by number.
    pub disks: BTreeMap<u32, PhyDisk>,
    pub partitions: Vec<LogDisk>,
    /// Processes and threads by their last word: for those whose first one is missing.
    pub people: People,
    /// Files by their first names, if they are asked for.
    pub files: Option<FirstFiles>,
    /// Name of the host.
    pub host: Option<String>,
    /// Whose disk events there are, best first.
    pub origin: Option<Origin>,
}

/// Looks at both ends of a trace.
pub(super) fn survey<R: Read + Seek>(
    reader: &mut Reader<R>,
    file_names: bool,
) -> Result<Survey, ImportError> {
    let mut survey = Survey {
        files: file_names.then(FirstFiles::default),
        ..Survey::default()
    };
    reader.visit_edges(EDGE_BYTES, &mut |event| survey.take(event))?;
    let order = |a: &LogDisk, b: &LogDisk| (a.disk, a.start_offset).cmp(&(b.disk, b.start_offset));
    survey.partitions.sort_by(order);
    survey.partitions.dedup();
    Ok(survey)
}

impl Survey {
    fn take(&mut self, event: &Event<'_>) {
        self.people.learn(event);
        if let Some(files) = &mut self.files {
            files.learn(event);
        }
        if let Some(disk) = PhyDisk::parse(event)
            && self.disks.len() < MAX_DISKS
        {
            self.disks.insert(disk.disk, disk);
        } else if let Some(partition) = LogDisk::parse(event)
            && self.partitions.len() < MAX_DISKS
        {
            self.partitions.push(partition);
        } else if let Some(host) = etl_parse::kernel::host_name(event) {
            self.host = Some(host);
        }
        let origin = match event.id {
            EventId::Provider { .. } if DiskIo::parse_kernel_disk(event).is_some() => {
                Origin::KernelDisk
            }
            EventId::Provider { .. } if tells_of_request(event) => Origin::StorPort,
            _ if DiskIo::parse(event).is_some() => Origin::Kernel,
            _ => return,
        };
        self.origin = Some(self.origin.map_or(origin, |best| best.min(origin)));
    }
}
