"""A second reader of tapes, written from docs/format.md alone: it proves that the text suffices.

usage: format_reader.py [--with-names | --info | --coverage] TAPE

Prints the tape as CSV, with --with-names also control groups and files; with --info its id and totals, with --coverage which of the format's numbers
occur in it, both as JSON. Damage goes to standard error with its byte offset.

Exit status: 0 done, 1 no tape or one that is too new, 2 wrong usage, 3 done but with lost data.
Needs pcodec, xxhash and zstandard.
"""

import argparse
import io
import json
import re
import struct
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import xxhash

from format_payloads import FILE, LATENCY, MIB, OP_FLAGS, OPS, PROCESS, U64
from format_payloads import Block, Cursor, Damaged, Numbers, crc32c

HEAD_MAGIC = b"\x89IOTAPE\n"
TAIL_MAGIC = HEAD_MAGIC[::-1]
SYNC = bytes.fromhex("b16f0ce7529d38fa")
START = re.compile(b"%b|%b|.{12}%b" % tuple(map(re.escape, (SYNC, HEAD_MAGIC, TAIL_MAGIC))), re.S)

HEADER, DEVICE, ANCHOR, LOSS, BLOCK, FOOTER, NAMES = range(1, 8)
HEAD, TRAILER = -1, -2  # what stands between records, beside their opcodes
METADATA = {
    HEADER: "header",
    DEVICE: "device",
    ANCHOR: "anchor",
    LOSS: "loss",
    FOOTER: "footer",
    NAMES: "names",
}
LATEST = dict.fromkeys(METADATA, 1) | {LOSS: 2, FOOTER: 2}
LONGEST_PAYLOAD = dict.fromkeys(METADATA, 4 * MIB) | {BLOCK: 16 * MIB}

FLAG_NAMES = "sync fua preflush meta readahead background nowait paging atomic secure"
FLAGS = dict(enumerate(FLAG_NAMES.split()))
CSV_HEAD = (
    "time_ns,device,op,flags,offset_bytes,length_bytes,latency_ns,queue_ns,pid,process,cpu,error"
)
CGROUP_NAME, FILE_NAME = range(2)


class Refused(Exception):
    """A file that is not read at all."""


class Damage:
    """Tells what is wrong with a tape, as it is found."""

    found = False

    def tell(self, at: int, what: str) -> None:
        self.found = True
        print(f"byte {at}: {what}", file=sys.stderr)


@dataclass
class Record:
    at: int
    opcode: int
    payload: bytes = b""
    behind_damage: bool = False
    footer_bytes: int = 0  # of a trailer: what it tells


def start_at(data: bytes, at: int) -> int | None:
    """The opcode of what starts here, by its magic or marker and the checksum of its header."""
    if data.startswith(HEAD_MAGIC, at):
        return HEAD
    if data.startswith(TAIL_MAGIC, at + 12):
        size, crc = struct.unpack_from("<8sI", data, at)
        return TRAILER if crc32c(size) == crc else None
    if data.startswith(SYNC, at) and at + 21 <= len(data):
        opcode, length, crc = struct.unpack_from("<BQI", data, at + 8)
        right = opcode and length <= LONGEST_PAYLOAD.get(opcode, length)
        return opcode if right and crc32c(data[at : at + 17]) == crc else None
    return None


def next_start(data: bytes, at: int) -> int:
    while found := START.search(data, at):
        at = found.start()
        if start_at(data, at) is not None:
            return at
        at += 1
    return len(data)


def whole_record(data: bytes, at: int) -> Record:
    """The record that starts here; its own header is right."""
    opcode, length = struct.unpack_from("<BQ", data, at + 8)
    end = at + 21 + length
    if end + 4 > len(data):
        raise Damaged(f"the file ends in a record of opcode {opcode} and {length} bytes")
    payload, stored = data[at + 21 : end], int.from_bytes(data[end : end + 4], "little")
    if (computed := crc32c(payload)) != stored:
        raise Damaged(f"record of opcode {opcode}: checksum {stored:#x}, computed {computed:#x}")
    return Record(at, opcode, payload)


def records(data: bytes, damage: Damage) -> Iterator[Record]:
    """What is whole in a file, in its sequence."""
    at = damage_end = 0
    while at < len(data):
        opcode, resume = start_at(data, at), at + 1
        if opcode in (HEAD, TRAILER):
            size = int.from_bytes(data[at : at + 8], "little")
            yield Record(at, opcode, behind_damage=0 < at == damage_end, footer_bytes=size)
            at += len(HEAD_MAGIC) if opcode == HEAD else 12 + len(TAIL_MAGIC)
            continue
        if opcode is not None:
            try:
                record = whole_record(data, at)
                yield record
                at += 25 + len(record.payload)
                continue
            except Damaged as error:
                damage.tell(at, str(error))
                resume = at + len(SYNC)
        resume = next_start(data, resume)
        damage.tell(at, f"{resume - at} bytes passed over")
        at = damage_end = resume


def decode_metadata(record: Record) -> dict[str, Any]:
    cursor = Cursor(record.payload)
    kind, latest = METADATA[record.opcode], LATEST[record.opcode]
    if not 1 <= (version := cursor.uint(2)) <= latest:
        what = f"version {version} of a {kind}, known is {latest}"
        raise (Refused if record.opcode == HEADER and version > 1 else Damaged)(what)
    decoded: dict[str, Any] = cursor.metadata(kind if version == 1 else f"{kind}_{version}")
    cursor.finish()
    return decoded


@dataclass
class Part:
    """One of the tapes of a joined tape; most files are one part."""

    at: int
    first: bool
    opcodes: list[int] = field(default_factory=list)
    devices: dict[int, int] = field(default_factory=dict)  # from index to number in the file
    last_device: int = -1
    requests: int = 0  # up to the end of the last block
    anchor: dict[str, int] | None = None
    blocks: list[Block] = field(default_factory=list)
    names: dict[tuple[int, int], tuple[int, str]] = field(default_factory=dict)
    footer: dict[str, Any] | None = None
    last: tuple[int, int, int] = (0, 0, 0)  # opcode, end and size of the last record
    ended: bool = False
    shift_ns: int = 0


def cannot_follow(part: Part, record: Record) -> bool:
    """Whether a record is of the part behind this one, though no head magic says so."""
    if FOOTER in part.opcodes:
        return True
    try:
        if record.opcode == DEVICE:
            return bool(decode_metadata(record)["index"] <= part.last_device)
        if record.opcode == BLOCK:
            block = Block(record.at, record.payload, defaultdict(set))
            return block.requests_before < part.requests
    except Damaged:
        return False
    return record.opcode == HEADER and bool(part.opcodes)


class Tape:
    """What a file holds: its parts, and the devices of them all."""

    def __init__(self, data: bytes, damage: Damage) -> None:
        self.damage = damage
        self.used: Numbers = defaultdict(set)
        self.parts: list[Part] = []
        self.names: dict[int, str] = {}
        self.numbers: dict[str, int] = {}  # by all that a device's record says but the index
        self.devices = 0
        self.losses: list[dict[str, int | None]] = []
        for record in records(data, damage):
            try:
                self.file(record)
            except Damaged as error:
                damage.tell(record.at, f"record of opcode {record.opcode}: {error}")
        if not any(part.opcodes for part in self.parts):
            raise Refused("not a tape: there is no record in it")

    def file(self, record: Record) -> None:
        if record.opcode == HEAD:
            if self.parts and not self.parts[-1].opcodes:
                self.parts.pop()
            self.parts.append(Part(record.at, first=not self.parts))
        elif record.opcode == TRAILER:
            self.end(record)
        else:
            part = self.part_of(record)
            part.opcodes.append(record.opcode)
            size = 25 + len(record.payload)
            part.last = (record.opcode, record.at + size, size)
            self.used["opcodes"].add(record.opcode)
            self.keep(part, record)

    def end(self, trailer: Record) -> None:
        part = self.parts[-1] if self.parts else None
        right = part and part.last == (FOOTER, trailer.at, trailer.footer_bytes)
        if not right and not trailer.behind_damage:
            self.damage.tell(trailer.at, "a trailer that is not behind a footer of its size")
        elif part:
            part.ended = part.footer is not None

    def part_of(self, record: Record) -> Part:
        last = self.parts[-1] if self.parts else None
        if not last or cannot_follow(last, record):
            self.damage.tell(record.at, "a tape starts here without its magic")
            self.parts.append(Part(record.at, first=not last))
        if not self.parts[-1].opcodes and record.opcode != HEADER:
            self.damage.tell(record.at, "a tape starts here without its header")
        return self.parts[-1]

    def keep(self, part: Part, record: Record) -> None:
        if record.opcode == BLOCK:
            block = Block(record.at, record.payload, self.used)
            part.requests = block.requests_before + len(block)
            for extent in block.summary["devices"]:
                self.number(part, extent["device"])
            part.blocks.append(block)
        elif record.opcode in METADATA:
            self.keep_metadata(part, record, decode_metadata(record))
        elif 0x40 <= record.opcode < 0x80:
            what = f"opcode {record.opcode} is unknown: the requests are not complete"
            self.damage.tell(record.at, what)
        else:
            print(f"byte {record.at}: opcode {record.opcode} is unknown", file=sys.stderr)

    def keep_metadata(self, part: Part, record: Record, decoded: dict[str, Any]) -> None:
        if record.opcode == DEVICE:
            index = part.last_device = decoded.pop("index")
            self.names[self.number(part, index, repr(decoded))] = decoded["name"]
        elif record.opcode == ANCHOR and not part.anchor and not part.blocks:
            part.anchor = decoded
        elif record.opcode == LOSS:
            self.losses.append(decoded)
        elif record.opcode == NAMES:
            for name in decoded["names"]:
                key = (name["kind"], name["id"])
                part.names.setdefault(key, (record.at, name["name"]))
        elif record.opcode == FOOTER:
            part.footer = decoded
            if (size := record.at - part.at) != decoded["tape_bytes"]:
                what = f"{size} bytes before the footer, which says {decoded['tape_bytes']}"
                self.damage.tell(record.at, what)

    def number(self, part: Part, index: int, description: str | None = None) -> int:
        """A device's number in the file: its index in the first part, else the next after all."""
        if index not in part.devices:
            new = index if part.first else self.devices
            if new > 0xFFFF and (description or "") not in self.numbers:
                raise Damaged("more than 65,536 devices in a joined tape")
            part.devices[index] = new if part.first else self.numbers.get(description or "", new)
            self.devices = max(self.devices, part.devices[index] + 1)
        if description:
            self.numbers.setdefault(description, part.devices[index])
        return part.devices[index]

    def name(self, number: int) -> str:
        return self.names.get(number, f"undescribed-{number}")

    def blocks(self) -> Iterator[tuple[Part, Block]]:
        """All whole blocks; tells which requests are missing."""
        latest_ns = 0
        for part in self.parts:
            requests = 0
            part.shift_ns = self.shift_ns(part, latest_ns)
            for block in part.blocks:
                try:
                    block.decode()
                except Damaged as error:
                    self.damage.tell(block.at, f"block: {error}")
                    continue
                if block.requests_before != requests:
                    what = f"{block.requests_before} requests belong before this block"
                    self.damage.tell(block.at, f"{what}, {requests} are there")
                requests = block.requests_before + len(block)
                latest_ns = max(latest_ns, part.shift_ns + block.summary["last_ns"])
                yield part, block
                block.columns.clear()
            self.check_end(part, requests)

    def check_end(self, part: Part, requests: int) -> None:
        if not part.ended:
            self.damage.tell(part.at, "the tape that starts here has no footer and trailer")
        if part.footer and (total := part.footer["summary"]["requests"]) != requests:
            what = f"{total} requests are in the tape that starts here"
            self.damage.tell(part.at, f"{what}, {requests} up to its last block")

    def shift_ns(self, part: Part, latest_ns: int) -> int:
        """By how much the times of a part of a joined tape are moved."""
        if part.first:
            return 0
        anchors = [each.anchor for each in (self.parts[0], part) if each.anchor]
        starts = [anchor["wall_ns"] - anchor["time_ns"] for anchor in anchors]
        return starts[1] - starts[0] if len(starts) == 2 and starts[0] <= starts[1] else latest_ns


def quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if re.search('[,"\r\n]', text) else text


def flag_names(flags: int) -> str:
    bits = (bit for bit in range(flags.bit_length()) if flags >> bit & 1)
    return "+".join(FLAGS.get(bit, f"bit{bit}") for bit in bits)


def name_of(part: Part, block: Block, kind: int, number: int | None) -> str | int | None:
    """What stands behind a number: the name that a record before the block gives it."""
    at, name = part.names.get((kind, number or 0), (block.at, ""))
    return number if number is None or at >= block.at else quoted(name)


def csv_lines(tape: Tape, part: Part, block: Block, with_names: bool) -> Iterator[str]:
    names = {index: quoted(tape.name(number)) for index, number in part.devices.items()}
    processes = [(pid, quoted(name)) for pid, name in block.processes]
    for time, op_flags, device, *numbers, place, cgroup, cpu, error, file in block.rows():
        op, flags = OPS[op_flags & 0xFF], flag_names(op_flags >> 8)
        process = ("", "") if place is None else processes[place]
        row = (time + part.shift_ns, names[device], op, flags, *numbers, *process, cpu, error)
        if with_names:
            group = name_of(part, block, CGROUP_NAME, cgroup)
            row = (*row, group, name_of(part, block, FILE_NAME, file))
        yield ",".join("" if value is None else str(value) for value in row) + "\n"


def block_id(block: Block) -> int:
    """The sum of the hashes of a block's requests."""
    total = 0
    for time, op_flags, device, offset, length, *optional in block.rows():
        hashed = optional[: FILE - LATENCY]
        presence = sum(1 << bit for bit, value in enumerate(hashed) if value is not None)
        latency, queue, _, cgroup, cpu, error = (value or 0 for value in hashed)
        place = optional[PROCESS - LATENCY]
        pid, name = (0, "") if place is None else block.processes[place]
        numbers = (time, offset, length, latency, queue, cgroup, pid, cpu, error)
        form = struct.pack("<HBHI6Q3I", presence, op_flags & 0xFF, device, op_flags >> 8, *numbers)
        total += xxhash.xxh3_128_intdigest(form + name.encode())
    return total


def print_csv(tape: Tape, with_names: bool = False) -> None:
    print(CSV_HEAD + ",cgroup,file" * with_names)
    for part, block in tape.blocks():
        sys.stdout.writelines(csv_lines(tape, part, block, with_names))


def print_with_names(tape: Tape) -> None:
    print_csv(tape, with_names=True)


def print_info(tape: Tape) -> None:
    identity = 0
    requests: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for _, block in tape.blocks():
        identity += block_id(block)
        for totals in block.summary["ops"]:
            op = OPS[totals["op"]]
            requests[op] += totals["requests"]
            total[op] = min(total[op] + totals["bytes"], U64)
    by_op = {op: {"requests": requests[op], "bytes": total[op]} for op in requests}
    losses = [(loss["events"] or 0, loss.get("requests")) for loss in tape.losses]
    lost_requests = [requests for _, requests in losses]
    info = {
        "id": f"{identity % (1 << 128):032x}",
        "requests": requests.total(),
        "by_op": by_op,
        "lost_events": sum(events for events, _ in losses),
        "lost_requests": None if None in lost_requests else sum(lost_requests),
    }
    print(json.dumps(info))


def print_coverage(tape: Tape) -> None:
    used = tape.used
    for _, block in tape.blocks():
        for op_flags in set(block.column(OP_FLAGS)):
            used["operations"].add(op_flags & 0xFF)
            used["flags"].update(bit for bit in range(32) if op_flags >> 8 + bit & 1)
    print(json.dumps({what: sorted(numbers) for what, numbers in sorted(used.items())}))


def main() -> int:
    parser = argparse.ArgumentParser(description="Read a tape as docs/format.md describes it.")
    parser.add_argument("tape", type=Path)
    show = parser.add_mutually_exclusive_group()
    show.set_defaults(show=print_csv)
    show.add_argument("--with-names", dest="show", action="store_const", const=print_with_names)
    show.add_argument("--info", dest="show", action="store_const", const=print_info)
    show.add_argument("--coverage", dest="show", action="store_const", const=print_coverage)
    arguments = parser.parse_args()
    assert isinstance(sys.stdout, io.TextIOWrapper)
    sys.stdout.reconfigure(encoding="utf-8", newline="\n")
    damage = Damage()
    try:
        arguments.show(Tape(arguments.tape.read_bytes(), damage))
    except (OSError, Refused) as error:
        print(f"{arguments.tape}: {error}", file=sys.stderr)
        return 1
    return 3 if damage.found else 0


if __name__ == "__main__":
    sys.exit(main())
