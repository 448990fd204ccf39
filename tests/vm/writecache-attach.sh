#!/bin/sh
# Half of persistent memory is the cache, the other half the slow disk behind it.
set -e
tool dm create cache 8192 linear '/dev/pmem0 0'
tool dm create slow 8192 linear '/dev/pmem0 8192'
tool dm create disk 8192 writecache 'p /dev/dm-1 /dev/dm-0 4096 0'
