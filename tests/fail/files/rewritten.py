# A file is opened with "w", which truncates it, and written anew.
# powerfail: workload = "/usr/bin/python3 -IS {bin} {dir}"
# powerfail: recover = "/usr/bin/python3 -IS {bin} {dir} recover"

import os
import sys

directory = sys.argv[1]
settings = os.path.join(directory, "settings")
if len(sys.argv) > 2:
    if os.path.exists(os.path.join(directory, "in-use")):
        with open(settings) as file:
            assert file.read() in ("colour=red", "colour=blue")
    sys.exit()


def write(name, text):
    with open(os.path.join(directory, name), "w") as file:  # expect: PF0905
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


write("settings", "colour=red")
write("in-use", "")
write("settings", "colour=blue")
