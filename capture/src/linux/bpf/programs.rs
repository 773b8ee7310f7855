//! Loading the programs and attaching them.
//!
//! A program hangs on the file descriptor of its attachment, and a map on that of the map: all of it
//! is gone with this process, however that ends.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::FileExt;

use aya::maps::{Map, MapData, RingBuf};
use aya::programs::BtfTracePoint;
use aya::{Btf, Ebpf, EbpfLoader, include_bytes_aligned};

use super::layout::Layout;
use super::record::WORDS;
use crate::CaptureError;
use crate::linux::rights;
use crate::linux::sys::MappedArray;

static OBJECT: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/recorder.bpf.o"));

/// A program, the tracepoint that it is attached to, and when it is needed.
struct Planned {
    program: &'static str,
    tracepoint: &'static str,
    layers: Layers,
    /// Without it only a counter stays empty.
    only_counts: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Layers {
    Both,
    Device,
    Queue,
}

const fn planned(program: &'static str, tracepoint: &'static str, layers: Layers) -> Planned {
    Planned {
        program,
        tracepoint,
        layers,
        only_counts: false,
    }
}

const fn counting(program: &'static str, tracepoint: &'static str) -> Planned {
    Planned {
        only_counts: true,
        ..planned(program, tracepoint, Layers::Device)
    }
}

/// In the order of attaching: ends first, so that nothing that is seen to begin ends unseen.
const PROGRAMS: [Planned; 10] = [
    planned("request_completed", "block_rq_complete", Layers::Device),
    planned("bios_completed", "block_rq_complete", Layers::Queue),
    planned("bio_completed", "block_bio_complete", Layers::Both),
    planned("request_requeued", "block_rq_requeue", Layers::Device),
    planned("request_issued", "block_rq_issue", Layers::Device),
    planned("bio_split", "block_split", Layers::Both),
    planned("bio_queued", "block_bio_queue", Layers::Both),
    counting("bio_back_merged", "block_bio_backmerge"),
    counting("bio_front_merged", "block_bio_frontmerge"),
    counting("requests_merged", "block_rq_merge"),
];

/// Programs at work, and the memory that is shared with them.
pub(super) struct Programs {
    /// Detached when this is dropped.
    _loaded: Ebpf,
    pub bios: MappedArray,
    pub rings: MappedArray,
    pub processors: MappedArray,
    /// One word: not 0 while nothing begins, since ends were lost.
    pub blocked: MappedArray,
    /// Readable when a ring is half full.
    pub wake: RingBuf<MapData>,
    /// The kernel's words about each program.
    told: Vec<File>,
    /// Tracepoints that the kernel does not have and that only count something.
    pub missing: Vec<&'static str>,
}

impl std::fmt::Debug for Programs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Programs")
            .field("missing", &self.missing)
            .finish_non_exhaustive()
    }
}

impl Programs {
    /// Loads the programs and attaches them.
    pub fn attach(layout: &Layout) -> Result<Programs, CaptureError> {
        let btf =
            Btf::from_sys_fs().map_err(|error| failed("reading the kernel's types", error))?;
        let mut loaded = load(layout, &btf)?;
        let array = |loaded: &mut Ebpf, name: &str, words: usize| {
            map_array(loaded, name, words).map_err(|error| failed("mapping memory of BPF", error))
        };
        let bios = array(&mut loaded, "bios", layout.bio_slots * WORDS)?;
        let rings = array(
            &mut loaded,
            "rings",
            layout.processors * layout.ring_slots * WORDS,
        )?;
        let processors = array(
            &mut loaded,
            "processors",
            layout.processors * super::PROCESSOR_WORDS,
        )?;
        let blocked = array(&mut loaded, "blocked", 1)?;
        let wake = loaded.take_map("wake").ok_or_else(|| no_such("map wake"))?;
        let wake =
            RingBuf::try_from(wake).map_err(|error| failed("mapping memory of BPF", error))?;
        let (mut told, mut missing) = (Vec::new(), Vec::new());
        for planned in PROGRAMS
            .iter()
            .filter(|planned| layout.needs(planned.layers))
        {
            match attach(&mut loaded, planned, &btf) {
                Ok(file) => told.push(file),
                Err(_) if planned.only_counts => missing.push(planned.tracepoint),
                Err(error) => return Err(error),
            }
        }
        Ok(Programs {
            _loaded: loaded,
            bios,
            rings,
            processors,
            blocked,
            wake,
            told,
            missing,
        })
    }

    /// How often a program was called and did not run: in an interrupt, on top of itself.
    pub fn misses(&self) -> u64 {
        self.told.iter().filter_map(misses_of).sum()
    }
}

impl Layout {
    fn needs(&self, layers: Layers) -> bool {
        let recorded = |queue_layer: bool| {
            let mut devices = self.devices.iter();
            devices.any(|device| device.queue_layer == queue_layer)
        };
        match layers {
            Layers::Both => true,
            Layers::Device => recorded(false),
            Layers::Queue => recorded(true),
        }
    }
}

fn load(layout: &Layout, btf: &Btf) -> Result<Ebpf, CaptureError> {
    let numbers = layout.numbers();
    let modes = layout.modes();
    let count = layout.devices.len() as u32;
    let bio_mask = layout.bio_slots as u32 - 1;
    let ring_shift = layout.ring_slots.trailing_zeros();
    // x86 lets no processor see stores in another order than they were made.
    let weakly_ordered = u8::from(!cfg!(any(target_arch = "x86", target_arch = "x86_64")));
    EbpfLoader::new()
        .btf(Some(btf))
        .override_global("device_count", &count, true)
        .override_global("device_numbers", &numbers[..], true)
        .override_global("device_modes", &modes[..], true)
        .override_global("bio_mask", &bio_mask, true)
        .override_global("ring_shift", &ring_shift, true)
        .override_global("weakly_ordered", &weakly_ordered, true)
        .map_max_entries("bios", layout.bio_slots as u32)
        .map_max_entries("rings", (layout.processors * layout.ring_slots) as u32)
        .map_max_entries("processors", layout.processors as u32)
        .load(OBJECT)
        .map_err(|error| failed("loading BPF programs", error))
}

fn map_array(loaded: &mut Ebpf, name: &str, words: usize) -> io::Result<MappedArray> {
    // Programs that use the map keep it; the descriptor is not needed once it is mapped.
    match loaded.map(name) {
        Some(Map::Array(map)) => MappedArray::new(map.fd().as_fd(), words * 8),
        _ => Err(io::Error::other(format!("no array {name} in the object"))),
    }
}

/// Attaches a program, and opens what the kernel tells about it.
fn attach(loaded: &mut Ebpf, planned: &Planned, btf: &Btf) -> Result<File, CaptureError> {
    let attaching = |error| failed("attaching BPF programs to tracepoints", error);
    let program = loaded
        .program_mut(planned.program)
        .ok_or_else(|| no_such(planned.program))?;
    let program: &mut BtfTracePoint = program
        .try_into()
        .map_err(|error: aya::programs::ProgramError| attaching(error))?;
    program.load(planned.tracepoint, btf).map_err(attaching)?;
    program.attach().map_err(attaching)?;
    // Opened now: after giving up rights it could not be.
    let fd = program.fd().map_err(attaching)?.as_fd().as_raw_fd();
    let told = format!("/proc/self/fdinfo/{fd}");
    File::open(&told).map_err(|error| failed("reading what the kernel tells of programs", error))
}

fn misses_of(file: &File) -> Option<u64> {
    let mut text = [0; 1024];
    let count = file.read_at(&mut text, 0).ok()?;
    misses_in(std::str::from_utf8(text.get(..count)?).ok()?)
}

fn misses_in(text: &str) -> Option<u64> {
    let value = |line: &str| line.strip_prefix("recursion_misses:")?.trim().parse().ok();
    text.lines().find_map(value)
}

fn no_such(name: &str) -> CaptureError {
    failed(
        "loading BPF programs",
        io::Error::other(format!("no {name} in the object")),
    )
}

fn failed(
    action: &'static str,
    error: impl std::error::Error + Send + Sync + 'static,
) -> CaptureError {
    rights::bpf_error(action, &error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_left_out_is_read_from_its_words() {
        let told = "pos:\t0\nflags:\t02000002\nprog_type:\t26\nrun_cnt:\t9\nrecursion_misses:\t12\nverified_insns:\t196\n";
        assert_eq!(misses_in(told), Some(12));
        assert_eq!(misses_in("pos:\t0\n"), None);
    }
}
