"""The figures of traces/README.md, computed from a tape's CSV.

Usage: iotape export TAPE --to csv | figures.py
"""

import csv
import sys
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable

BUCKETS_KIB = (4, 8, 16, 32, 64, 128, 1 << 20)
PAGE = 4096
PLURAL = {"read": "reads", "write": "writes", "flush": "flushes"}


class Figures:
    """What is counted while the rows pass."""

    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()
        self.sizes: dict[str, list[int]] = {"read": [], "write": []}
        self.latencies: dict[str, list[int]] = {"read": [], "write": [], "flush": []}
        self.submitters: Counter[tuple[str, str]] = Counter()
        self.flags: Counter[tuple[str, str]] = Counter()
        self.sequential: Counter[str] = Counter()
        self.next_offset: dict[str, int] = {}
        self.pages: dict[str, set[int]] = {"read": set(), "write": set()}
        self.pages_moved: Counter[str] = Counter()
        # (time, +1 or -1) of every request whose latency is known.
        self.edges: list[tuple[int, int]] = []
        self.first = self.last = -1

    def add(self, row: dict[str, str]) -> None:
        op, time = row["op"], int(row["time_ns"])
        self.first = time if self.first < 0 else min(self.first, time)
        self.last = max(self.last, time)
        self.requests[op] += 1
        self.submitters[op, family(row["process"])] += 1
        for flag in row["flags"].split("+"):
            self.flags[op, flag] += 1
        if row["latency_ns"]:
            latency = int(row["latency_ns"])
            self.latencies.setdefault(op, []).append(latency)
            self.edges += [(time, 1), (time + latency, -1)]
        if op in self.sizes:
            offset, length = int(row["offset_bytes"]), int(row["length_bytes"])
            self.bytes[op] += length
            self.sizes[op].append(length)
            self.sequential[op] += offset == self.next_offset.get(op)
            self.next_offset[op] = offset + length
            pages = range(offset // PAGE, (offset + length - 1) // PAGE + 1)
            self.pages[op].update(pages)
            self.pages_moved[op] += len(pages)

    def report(self) -> Iterable[str]:
        total = sum(self.requests.values())
        seconds = (self.last - self.first) / 1e9
        transfers = self.requests["read"] + self.requests["write"]
        yield f"requests        {total:,} in {seconds:.1f} s"
        for op, count in self.requests.most_common():
            moved = self.bytes[op]
            mean = moved / count / 1024
            yield f"  {op:<13} {count:>8,}  {count / total:6.1%}  {moved / 1e6:8,.0f} MB  {mean:5.1f} KiB mean"
        yield f"reads           {self.requests['read'] / transfers:.1%} of reads and writes"
        yield from self.size_table()
        yield from self.depth()
        for op, values in self.latencies.items():
            if values:
                values.sort()
                known = len(values) / self.requests[op]
                yield (
                    f"{op:<6} latency  p50 {at(values, 0.5) / 1e3:,.0f} us, p99 {at(values, 0.99) / 1e3:,.0f} us, "
                    f"max {values[-1] / 1e6:,.1f} ms (known of {known:.1%})"
                )
        for op in self.sizes:
            yield (
                f"{op:<6} places   {self.sequential[op] / self.requests[op]:.1%} follow the {op} before; "
                f"{len(self.pages[op]) * PAGE / 1e6:,.0f} MB touched, "
                f"{self.pages_moved[op] / len(self.pages[op]):.1f} times on average"
            )
        yield "flags           " + listed(self.flags, self.requests)
        yield "submitters      " + listed(self.submitters, self.requests)

    def size_table(self) -> Iterable[str]:
        bounds = [f"<={bound}" for bound in BUCKETS_KIB[:-1]] + [f">{BUCKETS_KIB[-2]}"]
        yield "sizes in KiB    " + "".join(f"{bound:>8}" for bound in bounds)
        for op, sizes in self.sizes.items():
            counts = [0] * len(BUCKETS_KIB)
            for size in sizes:
                counts[bisect_left(BUCKETS_KIB, size / 1024)] += 1
            yield f"  {op:<13} " + "".join(f"{count / len(sizes):>8.1%}" for count in counts)

    def depth(self) -> Iterable[str]:
        """Requests outstanding over time, weighted by time."""
        self.edges.sort()
        now, outstanding = self.first, 0
        held: Counter[int] = Counter()
        for time, change in self.edges:
            held[outstanding] += time - now
            now, outstanding = time, outstanding + change
        whole = sum(held.values())
        mean = sum(depth * span for depth, span in held.items()) / whole
        busy = whole - held[0]
        yield (
            f"outstanding     {mean:.2f} on average, {mean * whole / busy:.2f} while any ({busy / whole:.0%} of "
            f"the time), {max(held)} at most; more than 8 for {share_above(held, 8):.2%}, "
            f"more than 48 for {share_above(held, 48):.3%} of the time"
        )


def family(process: str) -> str:
    """One name for the kernel's numbered workers."""
    return "kworker" if process.startswith("kworker") else process.partition("/")[0]


def at(ordered: list[int], quantile: float) -> int:
    return ordered[int(quantile * (len(ordered) - 1))]


def share_above(held: Counter[int], depth: int) -> float:
    return sum(span for level, span in held.items() if level > depth) / sum(held.values())


def listed(counts: Counter[tuple[str, str]], requests: Counter[str]) -> str:
    return ", ".join(
        f"{name or 'none'} {count / requests[op]:.1%} of {PLURAL[op]}"
        for (op, name), count in counts.most_common()
        if count > 0.01 * requests[op] and op in PLURAL
    )


def main() -> int:
    figures = Figures()
    for row in csv.DictReader(sys.stdin):
        figures.add(row)
    if not figures.sizes["read"] or not figures.sizes["write"]:
        print("figures: no reads or no writes in the CSV on standard input", file=sys.stderr)
        return 1
    for line in figures.report():
        print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
