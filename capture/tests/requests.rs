//! What is recorded of known operations: each with its kind, flags, place and submitter.
#![cfg(target_os = "linux")]
#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot be set up has failed"
)]

mod common;

use common::{LoopDevice, Recorded, have_root_and, options, output, ran, record};
use iotape_capture::Options;
use iotape_formats::tape::Layer;
use iotape_formats::{Op, Request};

const MIB: u64 = 1 << 20;

fn at(layer: Layer, device: &LoopDevice) -> Options {
    Options {
        layer: Some(layer),
        ..options(&device.path)
    }
}

/// Runs `dd` with arguments for blocks of 4 KiB, and returns its process id.
fn dd(arguments: &str) -> u32 {
    let mut all = vec!["bs=4096", "count=1", "conv=notrunc"];
    all.extend(arguments.split(' '));
    let (pid, succeeded) = ran("dd", &all);
    assert!(succeeded, "dd {arguments}");
    pid
}

fn blkdiscard(arguments: &[&str]) -> u32 {
    let (pid, succeeded) = ran("blkdiscard", arguments);
    assert!(succeeded, "blkdiscard {arguments:?}");
    pid
}

/// Requests of a process, in words: operation, flags, offset, length.
fn of_process<T>(recorded: &Recorded<T>, pid: u32) -> Vec<String> {
    let of = |request: &&Request| request.process.as_ref().is_some_and(|by| by.pid == pid);
    let words = |request: &Request| {
        let Request {
            op,
            flags,
            offset_bytes,
            length_bytes,
            ..
        } = request;
        format!("{op} {flags} {offset_bytes}+{length_bytes}")
    };
    recorded.requests.iter().filter(of).map(words).collect()
}

#[test]
fn at_the_queue_layer_each_operation_is_what_its_submitter_asked() {
    if !have_root_and(&["losetup", "dd", "blkdiscard"]) {
        return;
    }
    let device = LoopDevice::new(64 * MIB);
    let path = device.path.as_str();
    let recorded = record(&at(Layer::Queue, &device), || {
        [
            dd(&format!("if=/dev/zero of={path} seek=16 oflag=direct")),
            dd(&format!(
                "if=/dev/zero of={path} seek=17 oflag=direct,dsync"
            )),
            dd(&format!("if={path} of=/dev/null skip=18 iflag=direct")),
            blkdiscard(&["-f", "-o", "1048576", "-l", "65536", path]),
            blkdiscard(&["-f", "-z", "-o", "2097152", "-l", "65536", path]),
        ]
    });
    let expected: [&[&str]; 5] = [
        &["write sync 65536+4096"],
        // The block device's O_DSYNC is a durable write and a flush behind it.
        &["write sync+fua 69632+4096", "flush sync 0+0"],
        &["read sync 73728+4096"],
        &["discard sync 1048576+65536"],
        &["write_zeroes sync 2097152+65536"],
    ];
    for (pid, expected) in recorded.load.iter().zip(expected) {
        assert_eq!(of_process(&recorded, *pid), expected);
    }
    let names: Vec<&str> = recorded
        .requests
        .iter()
        .map(|request| &*request.process.as_ref().unwrap().name)
        .collect();
    assert!(
        names.iter().all(|name| ["dd", "blkdiscard"].contains(name)),
        "{names:?}"
    );
    assert_eq!(recorded.header.backend, "perf");
    assert_eq!(recorded.report.summary.counters.lost_events, 0);
}

#[test]
fn fsync_is_a_flush_and_readahead_is_told() {
    if !have_root_and(&["losetup", "dd"]) {
        return;
    }
    let device = LoopDevice::new(64 * MIB);
    let path = device.path.as_str();
    let recorded = record(&at(Layer::Queue, &device), || {
        let fsync = format!("if=/dev/zero of={path} seek=16 oflag=direct conv=fsync");
        (dd(&fsync), dd(&format!("if={path} of=/dev/null skip=4096")))
    });
    let (writer, reader) = recorded.load;
    assert_eq!(
        of_process(&recorded, writer),
        ["write sync 65536+4096", "flush sync 0+0"]
    );
    let reads = of_process(&recorded, reader);
    assert!(
        reads
            .iter()
            .any(|read| read.starts_with("read readahead 16777216+")),
        "{reads:?}"
    );
}

#[test]
fn at_the_device_layer_a_durable_write_is_a_write_and_a_flush_for_its_submitter() {
    if !have_root_and(&["losetup", "dd"]) {
        return;
    }
    // A loop device has a write cache and no FUA.
    let device = LoopDevice::new(64 * MIB);
    let path = device.path.as_str();
    let recorded = record(&at(Layer::Device, &device), || {
        dd(&format!(
            "if=/dev/zero of={path} seek=17 oflag=direct,dsync"
        ))
    });
    // One flush for the write's durability, one for the flush that O_DSYNC asks for behind it.
    let expected = ["write sync 69632+4096", "flush  0+0", "flush  0+0"];
    assert_eq!(of_process(&recorded, recorded.load), expected);
    for request in &recorded.requests {
        assert!(request.queue_ns.is_some(), "{request:?}");
    }
}

#[test]
fn at_the_device_layer_a_large_read_is_split() {
    if !have_root_and(&["losetup", "fio"]) {
        return;
    }
    let device = LoopDevice::new(64 * MIB);
    let path = format!("--filename={}", device.path);
    let load = [
        "--name=a",
        "--rw=read",
        "--bs=8m",
        "--size=64m",
        "--direct=1",
        &path,
    ];
    let recorded = record(&at(Layer::Device, &device), || ran("fio", &load));
    assert!(recorded.load.1);
    let reads = recorded.report.summary.by_op[usize::from(Op::Read.number())];
    assert_eq!(reads.bytes, 64 * MIB);
    let counters = recorded.report.summary.counters;
    // Every cut makes one request more than there were bios; merges make fewer.
    assert!(counters.splits > 0, "{counters:?}");
    assert!(reads.requests > 8, "{reads:?}");
}

#[test]
fn an_error_of_the_device_is_the_requests_error() {
    if !have_root_and(&["losetup", "dd"]) {
        return;
    }
    let device = LoopDevice::new(64 * MIB);
    std::fs::File::options()
        .write(true)
        .open(&device.backing)
        .unwrap()
        .set_len(0)
        .unwrap();
    let read = [
        &format!("if={}", device.path),
        "of=/dev/null",
        "iflag=direct",
        "bs=4096",
        "count=1",
    ];
    for layer in [Layer::Queue, Layer::Device] {
        let recorded = record(&at(layer, &device), || {
            ran("dd", &read.map(|word| word as &str))
        });
        assert!(
            !recorded.load.1,
            "a read behind the end of the backing file fails"
        );
        let errors: Vec<Option<u32>> = recorded
            .requests
            .iter()
            .map(|request| request.error)
            .collect();
        assert_eq!(errors, [Some(5)], "EIO");
    }
}

#[test]
fn several_devices_are_recorded_at_once() {
    if !have_root_and(&["losetup", "dd"]) {
        return;
    }
    let devices = [LoopDevice::new(16 * MIB), LoopDevice::new(16 * MIB)];
    let both = Options {
        // One by path, one by name, and one of them twice.
        devices: [&devices[0].path, devices[1].name(), devices[0].name()]
            .map(Into::into)
            .into(),
        ..options("")
    };
    let recorded = record(&both, || {
        for (device, block) in devices.iter().zip([3, 5]) {
            dd(&format!(
                "if=/dev/zero of={} seek={block} oflag=direct",
                device.path
            ));
        }
    });
    let mut seen: Vec<(u16, u64)> = recorded
        .requests
        .iter()
        .map(|request| (request.device.0, request.offset_bytes / 4096))
        .collect();
    seen.sort();
    assert_eq!(seen, [(0, 3), (1, 5)]);
}

#[test]
fn a_partition_has_its_own_requests_at_its_own_offsets() {
    if !have_root_and(&["losetup", "addpart", "dd"]) {
        return;
    }
    let device = LoopDevice::with_options(64 * MIB, &["--partscan"]);
    // Not every kernel reads partition tables; all can be told of a partition.
    output("addpart", &[&device.path, "1", "2048", "8192"]);
    output("addpart", &[&device.path, "2", "10240", "8192"]);
    let paths = [1, 2].map(|number| format!("{}p{number}", device.path));
    let names = paths.clone().map(|path| path.replace("/dev/", ""));
    for (path, name) in paths.iter().zip(&names) {
        make_node(path, name);
    }
    for layer in [Layer::Queue, Layer::Device] {
        let first_only = Options {
            layer: Some(layer),
            ..options(&names[0])
        };
        let recorded = record(&first_only, || {
            let write = |path: &str, block: u32| {
                dd(&format!("if=/dev/zero of={path} seek={block} oflag=direct"))
            };
            write(&paths[1], 5);
            write(&device.path, 20);
            write(&paths[0], 7)
        });
        // Partition 1 begins at byte 1,048,576, which is block 256 of the disk.
        assert_eq!(
            of_process(&recorded, recorded.load),
            ["write sync 28672+4096"]
        );
        assert_eq!(recorded.requests.len(), 1, "{layer}");
        assert!(recorded.requests[0].latency_ns.is_some());
        assert!(
            recorded
                .header
                .notes
                .iter()
                .any(|note| note.contains("partition"))
        );
    }
    // Both partitions of a disk: each has its own.
    let both = Options {
        devices: names.iter().map(Into::into).collect(),
        ..options("")
    };
    let recorded = record(&both, || {
        dd(&format!(
            "if=/dev/zero of={} seek=30 oflag=direct",
            paths[1]
        ));
        dd(&format!(
            "if=/dev/zero of={} seek=300 oflag=direct",
            device.path
        ))
    });
    let seen: Vec<(u16, u64)> = recorded
        .requests
        .iter()
        .map(|request| (request.device.0, request.offset_bytes / 4096))
        .collect();
    // Block 300 of the disk is block 44 of the first partition.
    assert_eq!(seen, [(1, 30), (0, 44)]);
    for path in &paths {
        let _ = std::fs::remove_file(path);
    }
}

/// Makes the device's node where nobody else does.
fn make_node(path: &str, name: &str) {
    if std::path::Path::new(path).exists() {
        return;
    }
    let number = std::fs::read_to_string(format!("/sys/class/block/{name}/dev")).unwrap();
    let (major, minor) = number.trim().split_once(':').unwrap();
    output("mknod", &[path, "b", major, minor]);
}
