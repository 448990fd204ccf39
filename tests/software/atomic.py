"""A settings file that is replaced by a rename, as many programs do it.

    python3 atomic.py run DIR [MODE]     saves settings 1 to 3
    python3 atomic.py check DIR          fails unless the settings can be read, and prints them

MODE: full (fsync of the file and of the directory, the default), file (fsync of the file only), none (no fsync).
"""

import os
import sys


def save(directory, number, mode):
    temporary = os.path.join(directory, "settings.tmp")
    with open(temporary, "w") as file:
        file.write(f"number={number}\n" * 20)
        if mode != "none":
            file.flush()
            os.fsync(file.fileno())
    os.replace(temporary, os.path.join(directory, "settings"))
    if mode == "full":
        descriptor = os.open(directory, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)
    print("saved", number, flush=True)


def check(directory):
    path = os.path.join(directory, "settings")
    if not os.path.exists(path):
        return
    with open(path) as file:
        lines = file.read().splitlines()
    assert len(lines) == 20 and len(set(lines)) == 1 and lines[0].startswith("number="), lines
    print(lines[0].removeprefix("number="))


if sys.argv[1] == "run":
    for number in range(1, 4):
        save(sys.argv[2], number, (sys.argv[3:] or ["full"])[0])
else:
    check(sys.argv[2])
