# Settings are replaced by a rename, and the new file is not synced before it gets the name.
# powerfail: workload = "/usr/bin/python3 -IS {bin} {dir}"
# powerfail: recover = "/usr/bin/python3 -IS {bin} {dir} recover"

import os
import sys

directory = sys.argv[1]
settings = os.path.join(directory, "settings")
if len(sys.argv) > 2:
    if os.path.exists(settings):
        with open(settings) as file:
            assert file.read() in ("colour=red", "colour=blue")
    sys.exit()
for colour in "red", "blue":
    with open(settings + ".tmp", "w") as file:  # expect: PF0901
        file.write("colour=" + colour)
    os.replace(settings + ".tmp", settings)
