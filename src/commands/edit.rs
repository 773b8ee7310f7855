//! `iotape edit`: tapes into another tape.

use std::fs::File;
use std::io::{BufReader, Write};
use std::path::{Path, PathBuf};

use iotape_formats::Request;
use iotape_formats::edit::{Edit, Merged, ProcessFilter};
use iotape_formats::tape::{
    Anchor, Counters, DeviceExtent, Level, Loss, NameKind, Summary, TapeError, TapeWriter, name_id,
};

use crate::cli::EditArgs;
use crate::commands::check::warn_of_damage;
use crate::commands::{check_times, print};
use crate::exit::{Failure, Outcome, warn};
use crate::files::{NewFile, open_tape};
use crate::render::progress::ProgressLine;
use crate::render::units;

/// Requests between two looks at the progress line.
const PROGRESS_EVERY: u64 = 1 << 17;

type Tapes = Merged<BufReader<File>>;

pub fn run(args: &EditArgs) -> Result<Outcome, Failure> {
    check(args)?;
    let paths = without_empty(&args.tapes);
    let readers = paths
        .iter()
        .map(|path| open_tape(path))
        .collect::<Result<_, _>>()?;
    let mut tapes = Merged::new(readers).map_err(Failure::new)?;
    check_devices(&args.device, &tapes)?;
    let (tape, sink) = NewFile::begin(&args.output, args.force)?;
    let summary = write(&edit(args), args.level.into(), &mut tapes, sink)
        .map_err(|failure| Failure::at(args.output.display(), failure))?;
    tape.keep()?;
    print(&format!(
        "{}: {} requests, {}\n",
        args.output.display(),
        units::count(summary.requests),
        units::bytes(std::fs::metadata(&args.output).map_or(0, |metadata| metadata.len())),
    ))?;
    if summary.requests == 0 {
        warn("no request is left: `iotape info` shows the times, devices and processes of a tape");
    }
    let mut damaged = paths.len() < args.tapes.len();
    for (path, reader) in paths.iter().zip(tapes.readers()) {
        damaged |= warn_of_damage(path, reader);
    }
    Ok(Outcome::flawed_if(damaged))
}

/// Refuses ranges that nothing can be in.
fn check(args: &EditArgs) -> Result<(), Failure> {
    check_times(args.from, args.to)?;
    let offsets = args.from_offset.zip(args.to_offset);
    if offsets.is_some_and(|(from, to)| from >= to) {
        return Err(Failure::usage("--from-offset must be below --to-offset"));
    }
    Ok(())
}

/// Refuses devices that no tape has.
fn check_devices(wanted: &[String], tapes: &Tapes) -> Result<(), Failure> {
    let names: Vec<String> = tapes
        .devices()
        .into_iter()
        .map(|found| found.name)
        .collect();
    match wanted.iter().find(|name| !names.contains(name)) {
        None => Ok(()),
        Some(name) => Err(Failure::new(format!(
            "--device {name}: the tape has no such device; it has {}",
            names.join(", ")
        ))),
    }
}

/// Leaves out what is empty, beside others: a segment whose recorder was killed before it wrote a byte.
fn without_empty(tapes: &[PathBuf]) -> Vec<&Path> {
    let is_empty = |path: &Path| {
        std::fs::metadata(path).is_ok_and(|metadata| metadata.is_file() && metadata.len() == 0)
    };
    if tapes.iter().all(|path| is_empty(path)) {
        return tapes.iter().map(PathBuf::as_path).collect();
    }
    let (empty, others): (Vec<&Path>, _) = tapes
        .iter()
        .map(PathBuf::as_path)
        .partition(|path| is_empty(path));
    for path in empty {
        warn(format_args!(
            "{} is empty and left out: its recorder was killed before it began it",
            path.display()
        ));
    }
    others
}

fn edit(args: &EditArgs) -> Edit {
    fn listed<T: Clone>(list: &[T]) -> Option<Vec<T>> {
        (!list.is_empty()).then(|| list.to_vec())
    }
    let process = |text: &String| match text.parse() {
        Ok(pid) => ProcessFilter::Pid(pid),
        Err(_) => ProcessFilter::Name(text.clone()),
    };
    let nanos = |time: std::time::Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let range = |from: Option<u64>, to: Option<u64>| {
        (from.is_some() || to.is_some()).then(|| from.unwrap_or(0)..to.unwrap_or(u64::MAX))
    };
    Edit {
        times_ns: range(args.from.map(nanos), args.to.map(nanos)),
        ops: listed(&args.op),
        devices: listed(&args.device),
        processes: listed(&args.process.iter().map(process).collect::<Vec<_>>()),
        offsets_bytes: range(args.from_offset, args.to_offset),
        speed: args.speed,
        anonymize: args.anonymize,
        strip_names: args.strip_names,
    }
}

fn write(
    edit: &Edit,
    level: Level,
    tapes: &mut Tapes,
    sink: impl Write,
) -> Result<Summary, Failure> {
    let mut output = Output::begin(edit, level, tapes, sink)?;
    let mut line = ProgressLine::new(false);
    let mut read = 0u64;
    while let Some(request) = tapes.next_request().map_err(Failure::new)? {
        output.metadata_until(request.time_ns)?;
        output.push(request, tapes)?;
        read += 1;
        if read.is_multiple_of(PROGRESS_EVERY) {
            line.show(&format!("{} requests", units::count(read)));
        }
    }
    output.metadata_until(u64::MAX)?;
    output.finish(tapes)
}

/// The tape that is being written.
struct Output<'a, W: Write> {
    edit: &'a Edit,
    writer: TapeWriter<W>,
    devices: Vec<String>,
    extents: Vec<DeviceExtent>,
    anchors: std::vec::IntoIter<Anchor>,
    losses: std::vec::IntoIter<Loss>,
}

impl<'a, W: Write> Output<'a, W> {
    fn begin(edit: &'a Edit, level: Level, tapes: &Tapes, sink: W) -> Result<Self, Failure> {
        let mut headers = tapes.readers().map(|reader| reader.header());
        let first = headers.next().cloned().unwrap_or_default();
        let mut header = edit.header(&first);
        if headers.any(|other| other.host != first.host) {
            header.host = None;
        }
        let devices = tapes.devices();
        let writer = TapeWriter::create(sink, &header, &devices, level);
        Ok(Output {
            edit,
            writer: writer.map_err(Failure::new)?,
            devices: devices.into_iter().map(|device| device.name).collect(),
            extents: tapes.extents(),
            anchors: tapes.anchors().into_iter(),
            losses: tapes.losses().into_iter(),
        })
    }

    /// Anchors and losses stand in the tape where they happened.
    fn metadata_until(&mut self, time_ns: u64) -> Result<(), Failure> {
        let edit = self.edit;
        while let Some(anchor) = self.anchors.as_slice().first().copied() {
            if anchor.time_ns > time_ns {
                break;
            }
            self.anchors.next();
            let anchor = Anchor {
                time_ns: edit.time_ns(anchor.time_ns),
                ..anchor
            };
            self.writer.anchor(anchor).map_err(Failure::new)?;
        }
        while let Some(loss) = self.losses.as_slice().first().copied() {
            if loss.from_ns > time_ns {
                break;
            }
            self.losses.next();
            let (from_ns, to_ns) = (edit.time_ns(loss.from_ns), edit.time_ns(loss.to_ns));
            self.writer
                .loss(Loss {
                    from_ns,
                    to_ns,
                    ..loss
                })
                .map_err(Failure::new)?;
        }
        Ok(())
    }

    fn push(&mut self, request: Request, tapes: &Tapes) -> Result<(), Failure> {
        let device = request.device;
        if usize::from(device.0) >= self.devices.len() {
            self.name_devices(tapes)?;
        }
        let name = self
            .devices
            .get(usize::from(device.0))
            .map_or("", String::as_str);
        let extent = self.extents.iter().find(|extent| extent.device == device);
        match self.edit.apply(request, name, extent) {
            Some(request) => self.write(request, tapes).map_err(Failure::new),
            None => Ok(()),
        }
    }

    /// Writes a request, and the names of what it tells by number.
    fn write(&mut self, mut request: Request, tapes: &Tapes) -> Result<(), TapeError> {
        let ids = [
            (NameKind::Cgroup, request.cgroup),
            (NameKind::File, request.file),
        ];
        for (kind, id) in ids {
            let Some((id, name)) = id.and_then(|id| Some((id, tapes.names().get(kind, id)?)))
            else {
                continue;
            };
            if !self.edit.strips_names() {
                self.writer.name(kind, id, name)?;
            } else if kind == NameKind::Cgroup && name_id(name) == id {
                // The number would tell the name to who guesses it.
                request.cgroup = None;
            }
        }
        self.writer.push(&request)
    }

    /// Devices that a damaged tape names without describing them.
    fn name_devices(&mut self, tapes: &Tapes) -> Result<(), Failure> {
        for device in tapes.devices().iter().skip(self.devices.len()) {
            self.writer.device(device).map_err(Failure::new)?;
            self.devices.push(device.name.clone());
        }
        Ok(())
    }

    fn finish(mut self, tapes: &mut Tapes) -> Result<Summary, Failure> {
        // Losses carry their events themselves.
        self.writer.count(&Counters {
            lost_events: 0,
            ..tapes.take_counters()
        });
        self.writer
            .finish()
            .map(|(_, summary)| summary)
            .map_err(Failure::new)
    }
}
