"""Compares what a guest recorded with blktrace's own account and with numbers computed by hand.

Usage: compare.py PROGRAM FOLDER. Reads blktrace's files through blkparse, and tapes through `export`.
"""

import collections
import csv
import json
import pathlib
import subprocess
import sys

PROGRAM, FOLDER = sys.argv[1], pathlib.Path(sys.argv[2])
FAILURES = []


def tell(good, text, failure):
    """Says whether something is so."""
    print(f"{'ok  ' if good else 'FAIL'} {text}")
    if not good:
        FAILURES.append(failure)


def check(name, seen, expected):
    """Says whether two values are equal."""
    good = seen == expected
    tell(good, f"{name}: {seen}" + ("" if good else f", expected {expected}"), name)


def rows_of(tape):
    command = [PROGRAM, "export", FOLDER / tape, "--to", "csv"]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return list(csv.DictReader(text.splitlines()))


def info_of(tape):
    command = [PROGRAM, "info", FOLDER / tape, "--json"]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def totals(rows, device=None):
    """Requests and bytes of each operation."""
    sums = collections.defaultdict(lambda: [0, 0])
    for row in rows:
        if device in (None, row["device"]):
            sums[row["op"]][0] += 1
            sums[row["op"]][1] += int(row["length_bytes"])
    return {op: tuple(pair) for op, pair in sums.items()}


def blktrace_requests(name):
    """Issued requests as blkparse shows them: operation, bytes, nanoseconds until completion."""
    shape = "%a %d %S %n %T %t\\n"
    command = ["blkparse", "-q", "-i", name, "-f", shape]
    text = subprocess.run(command, check=True, capture_output=True, text=True, cwd=FOLDER).stdout
    open_requests, done = {}, []
    for line in text.splitlines():
        words = line.split()
        if len(words) != 6 or words[0] not in "DC":
            continue
        action, rwbs, sector, sectors, seconds, nanos = words
        time = int(seconds) * 10**9 + int(nanos)
        kind = {"R": "read", "W": "write", "D": "discard"}.get(rwbs[0], "flush")
        if sectors == "0":
            kind = "flush"
        key = (kind, sector, sectors)
        if action == "D":
            open_requests[key] = time
            done.append([kind, int(sectors) * 512, None, key])
        elif key in open_requests:
            issued = open_requests.pop(key)
            for request in reversed(done):
                if request[3] == key and request[2] is None:
                    request[2] = time - issued
                    break
    return done


def quantile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))]


def near(name, share, ours, theirs, peer="blktrace"):
    """A quantile within five parts in a hundred of the peer's, whose rank may be off by half of one part.

    The emulator may stop a processor between the probes of two tracers, which moves single requests by
    milliseconds: of a thousand, some ten are above the 99th percentile.
    """
    seen, expected = quantile(ours, share), quantile(theirs, share)
    least, most = quantile(theirs, share - 0.005), quantile(theirs, share + 0.005)
    good = 0.95 * least <= seen <= 1.05 * most
    name = f"{name} p{share * 100:g}"
    tell(good, f"{name}: {seen / 1e3:.1f} us, {peer} {expected / 1e3:.1f} us", name)


def beside_blktrace(backend):
    rows, peer = rows_of(f"{backend}.iotape"), blktrace_requests(backend)
    sums = collections.defaultdict(lambda: [0, 0])
    for kind, size, _, _ in peer:
        sums[kind][0] += 1
        sums[kind][1] += size
    check(f"{backend}: requests and bytes", totals(rows), {op: tuple(pair) for op, pair in sums.items()})
    info = info_of(f"{backend}.iotape")
    check(f"{backend}: lost, unpaired", (info["lost_events"], info["unpaired"]), (0, 0))
    for op in ("read", "write"):
        ours = [int(row["latency_ns"]) for row in rows if row["op"] == op and row["latency_ns"]]
        theirs = [latency for kind, _, latency, _ in peer if kind == op and latency is not None]
        for share in (0.5, 0.99):
            near(f"{backend}: {op}", share, ours, theirs)


def block_trace():
    """The backend blktrace: beside perf, and blktrace of the same load."""
    rows, peer = rows_of("block.iotape"), rows_of("block-perf.iotape")
    check("blktrace: requests and bytes as perf", totals(rows), totals(peer))
    info = info_of("block.iotape")
    check("blktrace: lost, unpaired", (info["lost_events"], info["unpaired"]), (0, 0))
    # Another run of the load: how many flushes or neighbours become one request differs, bytes do not.
    data = {op: size for op, (_, size) in totals(rows).items() if op != "flush"}
    sums = collections.Counter()
    for kind, size, _, _ in blktrace_requests("same"):
        if kind != "flush":
            sums[kind] += size
    check("blktrace: bytes as blktrace of the same load", data, dict(sums))
    for op in ("read", "write"):
        of_op = [[int(row["latency_ns"]) for row in some if row["op"] == op and row["latency_ns"]] for some in (rows, peer)]
        for share in (0.5, 0.99):
            near(f"blktrace: {op}", share, *of_op, peer="perf")
    starts = [info_of(tape)["started_unix_ns"] for tape in ("block.iotape", "block-perf.iotape")]
    apart = [int(a["time_ns"]) + starts[0] - int(b["time_ns"]) - starts[1] for a, b in zip(rows, peer)]
    middle = quantile(apart, 0.5)
    good = abs(middle) < 1_000_000
    tell(good, f"blktrace: its clock is perf's, {middle} ns apart", "clock")
    processes = {row["process"] for row in rows if row["op"] == "read"}
    check("blktrace: processes as perf", processes, {row["process"] for row in peer if row["op"] == "read"})
    check("blktrace: bytes as nobody", totals(rows_of("nobody.iotape"))["read"][1], totals(rows)["read"][1])
    starved()
    check("started and stopped under load", len((FOLDER / "again").read_text().split()), 20)
    before = (FOLDER / "before").read_text()
    for end in ("block", "TERM", "KILL", "ABRT", "failed"):
        check(f"blktrace: tracing state, {end}", (FOLDER / f"after-{end}").read_text() == before, True)


def starved():
    """Buffers that were full: what is lost is told, and nothing that is told is wrong."""
    info, rows = info_of("starved.iotape"), rows_of("starved.iotape")
    runs = [json.loads((FOLDER / name).read_text())["runs"][0] for name in ("starved.json", "starved-after.json")]
    slowest = max(run["service_ns"]["max"] for run in runs)
    latest = max(int(row["latency_ns"]) for row in rows if row["latency_ns"])
    asked = runs[1]["by_op"]["read"]["requests"]
    seen = sum(row["op"] == "read" for row in rows)
    print(f"     starved: {info['lost_events']} records lost, {seen} reads of {2 * asked} seen, slowest {latest} of {slowest} ns")
    check("starved: a loss is told", info["lost_events"] > 0, True)
    check("starved: what came later is there", seen >= asked, True)
    check("starved: no latency beyond the slowest", latest <= slowest, True)


def stacks():
    mib = 1 << 20
    stack = rows_of("stack.iotape")
    devices = sorted({row["device"] for row in stack})
    dm = next(name for name in devices if name.startswith("dm-"))
    # 64 writes of 256 KiB: md cuts each into four chunks of 64 KiB, two for each disk.
    check("dm layer", totals(stack, dm), {"write": (64, 16 * mib)})
    check("md layer: bytes", totals(stack, "md0")["write"][1], 16 * mib)
    for disk in ("nvme1n1", "nvme2n1"):
        check(f"{disk} below", totals(stack, disk), {"write": (128, 8 * mib)})
    parents = {device["name"]: device["parents"] for device in info_of("stack.iotape")["devices"]}
    check("topology", parents, {dm: ["md0"], "md0": ["nvme1n1", "nvme2n1"], "nvme1n1": [], "nvme2n1": []})
    twice = [note for note in info_of("stack.iotape")["notes"] if "twice" in note]
    check("what is recorded twice is said", len(twice), 5)  # dm over md, dm and md over each disk.
    leaves = info_of("leaves.iotape")
    names = [device["name"] for device in leaves["devices"]]
    check("all disks are the leaves", names, [f"nvme{number}n1" for number in range(4)])
    striped = [row for row in rows_of("leaves.iotape") if row["device"] in ("nvme1n1", "nvme2n1")]
    check("leaves count each byte once", totals(striped)["read"][1], 16 * mib)
    stacks = [note for note in leaves["notes"] if "is built on" in note]
    expected = [
        f"{dm}, which is not recorded, is built on md0",
        "md0, which is not recorded, is built on nvme1n1, nvme2n1",
    ]
    check("the stacks on them are told", stacks, expected)
    partition = rows_of("partition.iotape")
    check("partition", totals(partition), {"write": (5, 5 * 4096)})
    check("its offsets", [int(row["offset_bytes"]) // 4096 for row in partition], [7, 8, 9, 10, 11])


def clocks():
    for name, step in (("forward", 3600), ("back", -3600)):
        segments = sorted(FOLDER.glob(f"{name}.0*.iotape"))
        joined = FOLDER / f"{name}.iotape"
        subprocess.run([PROGRAM, "edit", *segments, "-o", joined], check=True, capture_output=True)
        rows, info = rows_of(joined.name), info_of(joined.name)
        check(f"clock set {name}: several segments", len(segments) > 1, True)
        check(f"clock set {name}: writes, lost", (totals(rows)["write"][0], info["lost_events"]), (40, 0))
        times = [int(row["time_ns"]) for row in rows if row["op"] == "write"]
        check(f"clock set {name}: times go on", times == sorted(times), True)
        # Twenty writes, five seconds, twenty writes.
        pause = (times[20] - times[19]) / 1e9
        check(f"clock set {name}: a pause of 5 s, {pause:.2f} s", 5 <= pause < 10, True)
        check(f"clock set {name}: in all less than a minute", times[-1] - times[0] < 60 * 10**9, True)
        for tape in (joined, segments[-1]):
            steps = [found["step_ns"] / 1e9 for found in info_of(tape.name)["wall_clock_steps"]]
            # `date` knows whole seconds.
            good = len(steps) == 1 and abs(steps[0] - step) <= 2
            check(f"clock set {name}: {tape.name} tells {steps}", good, True)
        began = int((FOLDER / f"{name}.began").read_text())
        check(f"clock set {name}: the first wall time is kept", abs(info["started_unix_ns"] / 1e9 - began) < 15, True)


def main():
    bpf = ["bpf"] if (FOLDER / "bpf.iotape").exists() else []
    for backend in ("perf", "ftrace", *bpf):
        beside_blktrace(backend)
    block_trace()
    stacks()
    clocks()
    for backend in ("perf", "ftrace", "blktrace", *bpf):
        info = info_of(f"unplugged-{backend}.iotape")
        run = json.loads((FOLDER / f"unplugged-{backend}.json").read_text())["runs"][0]
        # Reads are also those of whoever looks at the disk.
        asked, seen = run["by_op"]["write"]["requests"], info["by_op"]["write"]["requests"]
        print(f"     processor unplugged, {backend}: {seen} of {asked} writes, lost {info['lost_events']}")
        check(f"tape of {backend} is whole", info["complete"], True)
        if backend == "perf":
            # What was missed until the processor was opened again: a loss of unknown size.
            reasons = [loss["reason"] for loss in info["losses"]]
            check("perf says that it missed something", reasons, ["unknown"])
            good = seen >= 0.8 * asked
            tell(good, "perf goes on with the processor", "perf goes on")
        else:
            check(f"{backend} misses nothing while a processor goes and comes", seen, asked)
    before = (FOLDER / "before").read_text()
    check("tracing state after all", (FOLDER / "after").read_text(), before)
    check("tracing state after kill -9", (FOLDER / "after-kill").read_text(), before)
    sys.exit(1 if FAILURES else 0)


main()
