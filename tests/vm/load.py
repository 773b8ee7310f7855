"""A load of 3,000 requests as CSV: reads, writes and flushes within 32 MiB, the same every time."""

import random

COLUMNS = (
    "time_ns,device,op,flags,offset_bytes,length_bytes,latency_ns,queue_ns,pid,process,cpu,error"
)
BLOCK = 4096
SPAN = 32 << 20

random.seed(1)
print(COLUMNS)
for number in range(3000):
    op = random.choices(["read", "write", "flush"], [60, 38, 2])[0]
    length = 0 if op == "flush" else random.choice([1, 1, 1, 2, 8, 16]) * BLOCK
    offset = random.randrange(0, SPAN - 16 * BLOCK, BLOCK) if length else 0
    print(f"{number * 1000},nvme0n1,{op},,{offset},{length},,,,,,")
