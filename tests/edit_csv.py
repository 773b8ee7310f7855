"""What `iotape edit` does, done to the CSV: an independent answer for tests/edit.rs.

usage: edit_csv.py OPERATION [ARGUMENT...] < in.csv > out.csv
"""

import csv
import sys

MIB = 1 << 20


def main() -> None:
    operation, *arguments = sys.argv[1:]
    rows = list(csv.DictReader(sys.stdin))
    out = csv.DictWriter(sys.stdout, rows[0].keys(), lineterminator="\n")
    out.writeheader()
    lowest: dict[str, int] = {}
    for row in rows:
        if int(row["length_bytes"]):
            offset = int(row["offset_bytes"])
            lowest[row["device"]] = min(offset, lowest.get(row["device"], offset))
    for row in rows:
        time, offset = int(row["time_ns"]), int(row["offset_bytes"])
        end = offset + int(row["length_bytes"])
        if operation == "times" and not int(arguments[0]) <= time < int(arguments[1]):
            continue
        if operation in ("op", "device", "process", "pid") and row[operation] not in arguments:
            continue
        if operation == "offsets":
            low, high = map(int, arguments)
            if end == offset or offset >= high or end <= low:
                continue
        if operation == "speed":
            row["time_ns"] = str(int(time / float(arguments[0])))
        if operation == "anonymize":
            row["offset_bytes"] = str(max(0, offset - lowest[row["device"]] // MIB * MIB))
            row["process"] = ""
        out.writerow(row)


main()
