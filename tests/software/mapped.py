"""Python's mmap: records, then the number of records, each made durable before the next. MODE: right, or wrong (the
number first)."""

import mmap
import os
import struct
import sys

RECORDS = 4
LEN = 512
PAGE = 4096


def record(number):
    return bytes([ord("a") + number]) * LEN


def run(path, is_right):
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    os.ftruncate(file, 2 * PAGE)
    memory = mmap.mmap(file, 2 * PAGE)
    for number in range(1, RECORDS + 1):
        at = PAGE + (number - 1) * LEN
        if is_right:
            memory[at : at + LEN] = record(number)
            memory.flush(PAGE, PAGE)
            memory[0:8] = struct.pack("<Q", number)
            memory.flush(0, PAGE)
        else:
            memory[0:8] = struct.pack("<Q", number)
            memory.flush(0, PAGE)
            memory[at : at + LEN] = record(number)
            memory.flush(PAGE, PAGE)


def check(path):
    with open(path, "rb") as file:
        content = file.read()
    if len(content) < 2 * PAGE:
        return
    (count,) = struct.unpack("<Q", content[0:8])
    for number in range(1, count + 1):
        at = PAGE + (number - 1) * LEN
        if content[at : at + LEN] != record(number):
            sys.exit(f"record {number} is damaged")


if sys.argv[1] == "run":
    run(sys.argv[2], sys.argv[3:] != ["wrong"])
else:
    check(sys.argv[2])
