"""What the payloads of a tape's records hold: metadata and blocks, as docs/format.md has them."""

import struct
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from typing import Any

import numpy
import pcodec
import zstandard

MIB = 1 << 20
U64 = (1 << 64) - 1
TIME, OP_FLAGS, DEVICE_INDEX, OFFSET, LENGTH = range(5)
LATENCY, QUEUE, PROCESS, CGROUP, CPU, ERROR, FILE = range(5, 12)
LIMITS = {OP_FLAGS: 1 << 40, DEVICE_INDEX: 1 << 16, CPU: 1 << 32, ERROR: 1 << 32}
# By which columns the rows of a column can be grouped, and so what is decoded first.
ORDERS = {DEVICE_INDEX: (0,), OP_FLAGS: (0, 3), PROCESS: (0, 1, 2, 3, 4)}
DECODING_SEQUENCE = (*ORDERS, LENGTH, TIME, OFFSET, LATENCY, QUEUE, CGROUP, CPU, ERROR, FILE)

OPS = ("read", "write", "flush", "discard", "write_zeroes", "zone_append", "zone_reset", "other")
TRANSFERS = {OPS.index(name) for name in ("read", "write", "zone_append")}

# The metadata tables: `?` is optional, `*` a list, `bit` a u8 that is 0 or 1.
STRUCTS = {
    "header": "tool:text host:?text os:?text clock_source:text clock_resolution_ns:u32 backend:text"
    " options:*text error_codes:bit notes:*text",
    "device": "index:u16 name:text layer:bit size_bytes:?u64 logical_sector_bytes:?u32"
    " physical_sector_bytes:?u32 model:?text rotational:?bit parents:*text",
    "anchor": "time_ns:u64 wall_ns:i64",
    "loss": "from_ns:u64 to_ns:u64 events:u64 reason:u8",
    "loss_2": "from_ns:u64 to_ns:u64 events:u64 reason:u8 requests:?u64",
    "names": "names:*name",
    "name": "kind:u8 id:u64 name:text",
    "footer": "tape_bytes:u64 summary:summary anchors:*anchor losses:*loss blocks:u64 index:*entry",
    "footer_2": "tape_bytes:u64 summary:summary anchors:*anchor losses:*loss_2 blocks:u64 index:*entry",
    "entry": "offset:u64 blocks:u32 requests:u64 first_ns:u64 last_ns:u64",
    "block": "requests_before:u64 summary:summary columns:*column",
    "column": "column:u8 bytes:u32",
    "summary": "requests:u64 first_ns:u64 last_ns:u64 ops:*totals devices:*extent"
    " counters:?counters id:u128",
    "totals": "op:u8 requests:u64 bytes:u64",
    "extent": "device:u16 requests:u64 min_offset_bytes:u64 end_bytes:u64"
    " longest_transfer_bytes:u64 alignment_bits:u64",
    "counters": "lost_events:u64 unpaired_issues:u64 unpaired_completions:u64 ambiguous:u64"
    " late:u64 merges:u64 splits:u64 requeues:u64 coalesced_flushes:u64 undecodable:u64",
}

# The values of a column, None where a row has none; those of the columns 0 to 4 all are numbers.
Values = list[Any]
# Which numbers that the format assigns were met, by what they number.
Numbers = defaultdict[str, set[int]]


class Damaged(Exception):
    """Bytes that the specification does not allow."""


def crc_table() -> list[int]:
    table = list(range(256))
    for _ in range(8):
        table = [value >> 1 ^ (0x82F63B78 if value & 1 else 0) for value in table]
    return table


CRC_TABLE = crc_table()


def crc32c(data: bytes) -> int:
    crc, table = 0xFFFFFFFF, CRC_TABLE
    for byte in data:
        crc = crc >> 8 ^ table[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def utf8(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise Damaged(f"text that is not UTF-8: {error}") from error


class Cursor:
    """Takes values from bytes, one behind the other, and never more than there are."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def left(self) -> int:
        return len(self.data) - self.at

    def take(self, size: int) -> bytes:
        if size > self.left():
            raise Damaged(f"{size} bytes wanted, {self.left()} left")
        self.at += size
        return self.data[self.at - size : self.at]

    def uint(self, size: int) -> int:
        return int.from_bytes(self.take(size), "little")

    def varint(self) -> int:
        value = 0
        for shift in range(0, 70, 7):
            byte = self.uint(1)
            value |= (byte & 0x7F) << shift
            if byte < 0x80 and value <= U64:
                return value
        raise Damaged("a varint of more than ten bytes or 64 bits")

    def metadata(self, kind: str) -> Any:
        """A field of one of the types in `STRUCTS`."""
        first, rest = kind[0], kind[1:]
        if first == "?":
            return self.metadata(rest) if self.metadata("bit") else None
        if first == "*":
            return [self.metadata(rest) for _ in range(self.count())]
        if kind in STRUCTS:
            named = (entry.split(":") for entry in STRUCTS[kind].split())
            return {name: self.metadata(inner) for name, inner in named}
        if kind == "text":
            return utf8(self.take(self.uint(8)))
        if kind == "bit":
            if (value := self.uint(1)) > 1:
                raise Damaged(f"{value} where 0 or 1 belongs")
            return value
        return int.from_bytes(self.take(int(rest) // 8), "little", signed=first == "i")

    def count(self) -> int:
        if (count := self.uint(8)) > self.left():
            raise Damaged(f"a list of {count} elements in {self.left()} bytes")
        return count

    def finish(self) -> None:
        if self.left():
            raise Damaged(f"{self.left()} bytes too many")


class Block:
    """The columns of a block. Notes which of the format's numbers they use."""

    def __init__(self, at: int, payload: bytes, used: Numbers) -> None:
        self.at = at
        self.used = used
        self.cursor = Cursor(payload)
        self.columns: dict[int, Values] = {}
        self.processes: list[tuple[int, str]] = []
        header = self.header()
        self.requests_before: int = header["requests_before"]
        self.summary: dict[str, Any] = header["summary"]
        self.entries: list[dict[str, int]] = header["columns"]

    def __len__(self) -> int:
        requests: int = self.summary["requests"]
        return requests

    def column(self, number: int) -> Values:
        return self.columns.get(number) or [None] * len(self)

    def rows(self) -> Iterator[tuple[Any, ...]]:
        return zip(*(self.column(number) for number in range(FILE + 1)), strict=True)

    def use(self, what: str, number: int, known: Iterable[int]) -> int:
        if number not in known:
            raise Damaged(f"{what}: number {number} is not assigned here")
        self.used[what].add(number)
        return number

    def header(self) -> dict[str, Any]:
        self.use("block_versions", self.cursor.uint(2), (1,))
        if (size := self.cursor.uint(4)) > 4 * MIB:
            raise Damaged(f"a block header of {size} bytes")
        inner = Cursor(self.cursor.take(size))
        if crc32c(self.cursor.data[: 6 + size]) != self.cursor.uint(4):
            raise Damaged("checksum of the block header")
        header: dict[str, Any] = inner.metadata("block")
        inner.finish()
        return header

    def decode(self) -> None:
        bodies = self.bodies()
        for number in DECODING_SEQUENCE:
            if number in bodies:
                self.used["columns"].add(number)
                self.columns[number] = self.decode_column(number, Cursor(bodies[number]))
        check_summary(self)

    def bodies(self) -> dict[int, bytes]:
        bodies = {entry["column"]: self.cursor.take(entry["bytes"]) for entry in self.entries}
        self.cursor.finish()
        if len(bodies) < len(self.entries):
            raise Damaged("a column stands twice")
        if len(self) > 65_536:
            raise Damaged(f"{len(self)} requests in a block")
        needed = range(LENGTH + 1) if len(self) else ()
        if not bodies.keys() >= set(needed) or (bodies and not needed):
            raise Damaged(f"columns {list(bodies)} for {len(self)} requests")
        return bodies

    def decode_column(self, number: int, body: Cursor) -> Values:
        rows = self.rows_with_a_value(number, body)
        if number == PROCESS:
            self.processes = self.process_table(body)
        values: Values = [None] * len(self)
        for row, value in self.sequence(number, rows, body):
            values[row] = value
        body.finish()
        limit = len(self.processes) if number == PROCESS else LIMITS.get(number, U64 + 1)
        if any(value is not None and value >= limit for value in values):
            raise Damaged(f"a value of column {number} is not below {limit}")
        return values

    def rows_with_a_value(self, number: int, body: Cursor) -> list[int]:
        if not self.use("presences", body.uint(1), (0,) if number <= LENGTH else (0, 1)):
            return list(range(len(self)))
        bitmap = self.stream(body, (len(self) + 7) // 8)
        return [row for row in range(len(self)) if bitmap[row >> 3] >> (row & 7) & 1]

    def process_table(self, body: Cursor) -> list[tuple[int, str]]:
        entries, size = body.varint(), body.varint()
        if entries > 65_536 or size > 4 * MIB:
            raise Damaged(f"a process table of {entries} entries and {size} bytes")
        table = Cursor(self.stream(body, size))
        processes = [self.process(table) for _ in range(entries)]
        table.finish()
        return processes

    def process(self, table: Cursor) -> tuple[int, str]:
        pid, size = table.varint(), table.varint()
        if pid >= 1 << 32 or size > 4_096:
            raise Damaged(f"process {pid} with a name of {size} bytes")
        return pid, utf8(table.take(size))

    def sequence(self, number: int, rows: list[int], body: Cursor) -> Iterator[tuple[int, int]]:
        """The rows and their values, in the order in which they are stored."""
        order = self.use("orders", body.uint(1), ORDERS.get(number, range(7)))
        if order >= 5 and PROCESS not in self.columns:
            raise Damaged(f"order {order} without processes")
        known = (0, 1, 2) if number == OFFSET else (0, 1)
        prediction = self.use("predictions", body.uint(1), known)
        signed = self.use("signed", body.uint(1), (0, 1))
        start, base, step = body.varint(), body.varint(), body.varint()
        if step == 0:
            raise Damaged("a step of 0")
        numbers = self.numbers(body, len(rows))
        if signed:
            numbers = [number >> 1 ^ -(number & 1) for number in numbers]
        distances = [base + step * number & U64 for number in numbers]
        rows = sorted(rows, key=self.group(order))
        return zip(rows, self.predicted(prediction, start, rows, distances), strict=True)

    def group(self, order: int) -> Callable[[int], Any]:
        """The key by which an order groups rows."""
        op_flags, device, process = map(self.column, (OP_FLAGS, DEVICE_INDEX, PROCESS))
        keys: tuple[Callable[[int], Any], ...] = (
            lambda row: 0,
            lambda row: op_flags[row] & 0xFF,
            lambda row: op_flags[row],
            lambda row: device[row],
            lambda row: (device[row], op_flags[row] & 0xFF),
            lambda row: -1 if process[row] is None else process[row],
            lambda row: (-1 if process[row] is None else process[row], op_flags[row] & 0xFF),
        )
        return keys[order]

    def predicted(
        self, prediction: int, start: int, rows: list[int], distances: list[int]
    ) -> Iterator[int]:
        if prediction == 0:
            yield from distances
            return
        before = start
        for row, distance in zip(rows, distances, strict=True):
            value = distance + before & U64
            yield value
            before = value + self.columns[LENGTH][row] if prediction == 2 else value

    def numbers(self, body: Cursor, count: int) -> list[int]:
        layouts = (self.planes, self.varints, self.classes, self.dictionary, self.pco)
        return layouts[self.use("layouts", body.uint(1), range(5))](body, count)

    def planes(self, body: Cursor, count: int) -> list[int]:
        return self.joined_planes(body, self.use("planes", body.uint(1), range(9)), count)

    def joined_planes(self, body: Cursor, width: int, count: int) -> list[int]:
        joined = bytearray(8 * count)
        for plane in range(width):
            joined[plane::8] = self.stream(body, count)
        return list(struct.unpack(f"<{count}Q", joined))

    def varints(self, body: Cursor, count: int) -> list[int]:
        if (size := body.varint()) > 10 * count:
            raise Damaged(f"{size} bytes for {count} varints")
        stored = Cursor(self.stream(body, size))
        numbers = [stored.varint() for _ in range(count)]
        stored.finish()
        return numbers

    def classes(self, body: Cursor, count: int) -> list[int]:
        m = self.use("class_bits", body.uint(1), range(5))
        classes = self.stream(body, count)
        opens = [0 if c < 2 << m else (c >> m) - 1 for c in classes]
        if max(opens, default=0) + m >= 64:
            raise Damaged("a class of more than 64 bits")
        tops = [c if c < 2 << m else c % (1 << m) + (1 << m) for c in classes]
        lower = lower_bits(self.stream(body, (sum(opens) + 7) // 8), opens)
        return [(top << open_) + low for top, open_, low in zip(tops, opens, lower, strict=True)]

    def dictionary(self, body: Cursor, count: int) -> list[int]:
        entries, size = body.varint(), body.varint()
        if not 1 <= entries <= 65_536 or size > 10 * entries:
            raise Damaged(f"a dictionary of {entries} entries and {size} bytes")
        stored = Cursor(self.stream(body, size))
        values = list(accumulate(stored.varint() for _ in range(entries)))
        stored.finish()
        places = self.joined_planes(body, ((entries - 1).bit_length() + 7) // 8, count)
        if values[-1] > U64 or max(places, default=0) >= entries:
            raise Damaged("a dictionary entry of more than 64 bits, or a place behind the last")
        return [values[place] for place in places]

    def pco(self, body: Cursor, count: int) -> list[int]:
        width = self.use("pco_widths", body.uint(1), (1, 2, 4, 8))
        data = body.take(body.varint())
        if count == 0 or data[:1] != b"\x04" or data[2:3] != b"\0":
            raise Damaged(f"pco bytes {data[:3].hex()} for {count} numbers")
        numbers = numpy.zeros(count, f"u{width}")
        try:
            file, at = pcodec.wrapped.FileDecompressor.new(data)
            chunk, size = file.chunk_decompressor(data[at:], f"u{8 * width}")
            _, page = chunk.read_page_into(data[at + size :], count, numbers)
        except RuntimeError as error:
            raise Damaged(f"pco: {error}") from error
        if at + size + page != len(data):
            raise Damaged(f"{len(data) - at - size - page} bytes behind pco's page")
        return [int(number) for number in numbers]

    def stream(self, body: Cursor, size: int) -> bytes:
        codec = self.use("codecs", body.uint(1), (0, 1, 3))
        data = body.take(body.varint())
        if codec == 3 and len(data) == 1:
            data *= size
        if codec == 1:
            data = decompress(data, size)
        if len(data) != size:
            raise Damaged(f"a stream of {len(data)} bytes where {size} belong")
        return data


def decompress(stored: bytes, size: int) -> bytes:
    try:
        if zstandard.frame_content_size(stored) not in (-1, size):
            raise Damaged(f"a zstd frame that does not hold {size} bytes")
        frame = zstandard.ZstdDecompressor()
        return bytes(frame.decompress(stored, max_output_size=size, allow_extra_data=False))
    except zstandard.ZstdError as error:
        raise Damaged(f"zstd: {error}") from error


def lower_bits(stream: bytes, widths: list[int]) -> Iterator[int]:
    at = pool = held = 0
    for width in widths:
        while held < width:
            pool |= stream[at] << held
            at, held = at + 1, held + 8
        yield pool & (1 << width) - 1
        pool, held = pool >> width, held - width


def check_summary(block: Block) -> None:
    """What must be so before a block's requests are handed out."""
    totals: dict[int, list[int]] = defaultdict(lambda: [0, 0])
    extents: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for _, op_flags, device, offset, length, *_ in block.rows():
        if (op := op_flags & 0xFF) >= len(OPS) or offset + length > U64:
            raise Damaged(f"operation {op} at {offset} of {length} bytes")
        totals[op] = [totals[op][0] + 1, min(totals[op][1] + length, U64)]
        extents[device].append((offset, length, op))
    times = block.columns.get(TIME, [0])
    found = {
        "first_ns": min(times),
        "last_ns": max(times),
        "ops": [{"op": op, "requests": n, "bytes": b} for op, (n, b) in sorted(totals.items())],
        "devices": [extent(device, rows) for device, rows in sorted(extents.items())],
    }
    if wrong := [name for name, value in found.items() if value != block.summary[name]]:
        raise Damaged(f"the requests are not those of the block's summary: {', '.join(wrong)}")


def extent(device: int, rows: list[tuple[int, int, int]]) -> dict[str, int]:
    sized = [row for row in rows if row[1]]
    bits = 0
    for offset, length, _ in sized:
        bits |= offset | length
    return {
        "device": device,
        "requests": len(rows),
        "min_offset_bytes": min((offset for offset, _, _ in sized), default=0),
        "end_bytes": max((offset + length for offset, length, _ in sized), default=0),
        "longest_transfer_bytes": max((n for _, n, op in sized if op in TRANSFERS), default=0),
        "alignment_bits": bits,
    }
