# A record is stored in a mapped file, and then how many there are: one msync writes both back, in any order.
# powerfail: workload = "/usr/bin/python3 -IS {bin} {pool}"
# powerfail: recover = "/usr/bin/python3 -IS {bin} {pool} recover"

import mmap
import sys

RECORD = 4096


def put(pool, at, data):
    pool[at : at + len(data)] = data


def add(pool):
    put(pool, RECORD, b"data")  # expect: PF0101
    put(pool, 0, b"1")
    pool.flush()


with open(sys.argv[1], "a+b") as file:
    file.truncate(2 * RECORD)
    with mmap.mmap(file.fileno(), 2 * RECORD) as pool:
        if len(sys.argv) == 2:
            add(pool)
        elif pool[0:1] == b"1":
            assert pool[RECORD : RECORD + 4] == b"data"
