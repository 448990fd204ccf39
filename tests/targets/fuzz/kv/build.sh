#!/bin/sh
# Builds the shell: build.sh OUTPUT [FLAGS...], such as -DBUGS_ALL or -DBUG=7. CC is the compiler.
set -eu
output=$1
shift
here=$(dirname "$0")
# No lazy binding: the dynamic linker takes a lock at the first call of a function, and that is a fence.
exec "${CC:-gcc}" -std=gnu11 -O1 -g -Wall -Wextra -Werror -Wl,-z,now "$@" "$here"/*.c -o "$output" -lpmemobj
