"""The client of a Redis server: sets keys, or checks that they are what was set.

    python3 redis.py run PORT      sets k1 to k3, and prints each after the server has acknowledged it
    python3 redis.py check PORT    fails unless the server has the keys k1 to n for some n, and prints them
"""

import socket
import sys


def ask(connection, *words):
    request = f"*{len(words)}\r\n" + "".join(f"${len(word)}\r\n{word}\r\n" for word in words)
    connection.sendall(request.encode())
    reply = b""
    while not reply.endswith(b"\r\n") or (reply.startswith(b"$") and reply.count(b"\r\n") < (1 if reply.startswith(b"$-1") else 2)):
        part = connection.recv(4096)
        assert part, "the server has closed the connection"
        reply += part
    return reply.decode()


with socket.create_connection(("127.0.0.1", int(sys.argv[2]))) as connection:
    if sys.argv[1] == "run":
        for number in range(1, 4):
            assert ask(connection, "SET", f"k{number}", f"value{number}") == "+OK\r\n"
            print("saved", f"k{number}", flush=True)
    else:
        found = [ask(connection, "GET", f"k{number}") for number in range(1, 4)]
        count = sum(not reply.startswith("$-1") for reply in found)
        for number, reply in enumerate(found[:count], 1):
            assert reply == f"$6\r\nvalue{number}\r\n", (number, reply)
            print(f"k{number}")
