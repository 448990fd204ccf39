#!/bin/sh
# Lists what is stored after a system call of the workload.
. /lib/powerfail/functions.sh
tree
tell end
