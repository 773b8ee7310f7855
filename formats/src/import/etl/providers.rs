//! Who reported the events of a trace: for those who wonder why it has no requests.

use std::collections::HashMap;
use std::fmt;

use etl_parse::{Event, EventId, Guid, kernel};

/// Most providers that are told apart; a trace has some tens.
const MAX_PROVIDERS: usize = 4096;
/// How many are written out.
const MAX_LISTED: usize = 8;

/// Who reports events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Provider {
    /// The kernel, a group of its events.
    Kernel(u8),
    /// A provider or a class of events.
    Guid(Guid),
    /// Messages of a source file.
    Messages(Guid),
    /// Messages that do not say whose they are, and events of unknown form.
    Unknown,
}

/// Events by provider.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    events: u64,
    kernel: Vec<u64>,
    others: HashMap<Provider, (u64, Option<String>)>,
    /// Of more providers than are told apart.
    beyond: u64,
}

impl Tally {
    /// Counts an event.
    #[inline]
    pub fn add(&mut self, event: &Event<'_>) {
        self.events += 1;
        match event.id {
            EventId::Kernel { hook } => {
                let group = usize::from(hook >> 8);
                if self.kernel.len() <= group {
                    self.kernel.resize(group + 1, 0);
                }
                self.kernel[group] += 1;
            }
            EventId::Class { class, .. } => self.other(Provider::Guid(class), event),
            EventId::Provider { provider, .. } => self.other(Provider::Guid(provider), event),
            EventId::Message {
                source: Some(source),
                ..
            } => self.other(Provider::Messages(source), event),
            EventId::Message { source: None, .. } | EventId::Other | EventId::Malformed => {
                self.other(Provider::Unknown, event);
            }
        }
    }

    /// How many events there are.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Who reported how many, most first; and the name, if it is known.
    pub fn by_provider(&self) -> Vec<(Provider, String, u64)> {
        let kernel = (0u8..=u8::MAX).zip(&self.kernel);
        let kernel = kernel.filter(|(_, events)| **events > 0);
        let kernel = kernel.map(|(group, events)| {
            let provider = Provider::Kernel(group);
            (provider, provider.name(None), *events)
        });
        let others = self.others.iter();
        let others = others
            .map(|(provider, (events, own))| (*provider, provider.name(own.as_deref()), *events));
        let mut all: Vec<(Provider, String, u64)> = kernel.chain(others).collect();
        all.sort_by(|(a, _, events_a), (b, _, events_b)| events_b.cmp(events_a).then(a.cmp(b)));
        all
    }

    fn other(&mut self, provider: Provider, event: &Event<'_>) {
        if let Some((events, _)) = self.others.get_mut(&provider) {
            *events += 1;
        } else if self.others.len() < MAX_PROVIDERS {
            self.others.insert(provider, (1, event.provider_name()));
        } else {
            self.beyond += 1;
        }
    }
}

/// `12 events: 10 of Microsoft-Windows-DotNETRuntime, 2 of the kernel's EventTrace`.
impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "it holds {} events", self.events)?;
        let all = self.by_provider();
        for (place, (_, name, events)) in all.iter().take(MAX_LISTED).enumerate() {
            let separator = if place == 0 { ": " } else { ", " };
            write!(f, "{separator}{events} of {name}")?;
        }
        let more = all.iter().skip(MAX_LISTED).map(|(_, _, events)| events);
        let more = more.sum::<u64>() + self.beyond;
        if more > 0 {
            write!(f, ", {more} of others")?;
        }
        Ok(())
    }
}

impl Provider {
    /// A name for the user; `own` is the one that the provider gives itself.
    fn name(self, own: Option<&str>) -> String {
        match self {
            Provider::Kernel(group) => match kernel::group_name(u16::from(group) << 8) {
                Some(name) => format!("the kernel's {name}"),
                None => format!("the kernel's group {group:#04x}"),
            },
            Provider::Guid(guid) => match own.or_else(|| known(guid)) {
                Some(name) => format!("{name} {{{guid}}}"),
                None => format!("{{{guid}}}"),
            },
            Provider::Messages(guid) => format!("WPP messages {{{guid}}}"),
            Provider::Unknown => "unknown origin".to_owned(),
        }
    }
}

/// Names of providers that traces of disks, or traces taken for such, often hold; `logman query
/// providers` lists those of a system.
fn known(guid: Guid) -> Option<&'static str> {
    const NAMES: [(&str, &str); 12] = [
        (
            "c7bde69a-e1e0-4177-b6ef-283ad1525271",
            "Microsoft-Windows-Kernel-Disk",
        ),
        (
            "edd08927-9cc4-4e65-b970-c2560fb5c289",
            "Microsoft-Windows-Kernel-File",
        ),
        (
            "22fb2cd6-0e7b-422b-a0c7-2fad1fd0e716",
            "Microsoft-Windows-Kernel-Process",
        ),
        (
            "c4636a1e-7986-4646-bf10-7bc3b4a76e8e",
            "Microsoft-Windows-StorPort",
        ),
        (
            "6b4db0bc-9a3d-467d-81b9-a84c6f2f3d40",
            "Microsoft-Windows-Disk",
        ),
        (
            "2a576b87-09a7-520e-c21a-4942f0271d67",
            "Microsoft-Antimalware-Scan-Interface",
        ),
        (
            "e13c0d23-ccbc-4e12-931b-d9cc2eee27e4",
            "Microsoft-Windows-DotNETRuntime",
        ),
        (
            "a669021c-c450-4609-a035-5af59af4df18",
            "Microsoft-Windows-DotNETRuntimeRundown",
        ),
        ("0b7a6f19-47c4-454e-8c5c-e868d637e4d8", "WindowsUpdate"),
        ("68fdd900-4a3e-11d1-84f4-0000f80464e3", "EventTrace"),
        ("3d6fa8d4-fe05-11d0-9dda-00c04fd7ba7c", "DiskIo"),
        ("b3e675d7-2554-4f18-830b-2762732560de", "KernelTraceControl"),
    ];
    let text = guid.to_string();
    let known = NAMES.iter().find(|(guid, _)| *guid == text);
    known.map(|(_, name)| *name)
}
