"""Python's dbm.dumb, which replaces its index by a rename and a new file.

    python3 dumb.py run DIR      stores the records 1 to 4, and syncs after each
    python3 dumb.py check DIR    fails unless the records 1 to n are there for some n, and prints them
"""

import dbm.dumb
import os
import sys

command, path = sys.argv[1], os.path.join(sys.argv[2], "db")
if command == "run":
    with dbm.dumb.open(path, "c") as database:
        for number in range(1, 5):
            database[str(number)] = f"record {number} " * 10
            database.sync()
            print("saved", number, flush=True)
elif os.path.exists(path + ".dat"):
    with dbm.dumb.open(path, "r") as database:
        for number in range(1, len(database) + 1):
            assert database[str(number)].decode() == f"record {number} " * 10, number
            print(number)
