"""A client of memcached: `run PORT` sets records, `check PORT` fails if one is neither absent nor right."""

import socket
import sys

RECORDS = 4


def record(number):
    return bytes([ord("a") + number]) * 200


with socket.create_connection(("127.0.0.1", int(sys.argv[2]))) as connection:
    answers = connection.makefile("rb")
    for number in range(1, RECORDS + 1):
        if sys.argv[1] == "run":
            connection.sendall(b"set %d 0 0 200\r\n%s\r\n" % (number, record(number)))
            if answers.readline() != b"STORED\r\n":
                sys.exit(f"record {number} was not stored")
        else:
            connection.sendall(b"get %d\r\n" % number)
            line = answers.readline()
            if line == b"END\r\n":
                continue
            if answers.read(202) != record(number) + b"\r\n":
                sys.exit(f"record {number} is damaged")
            answers.readline()
