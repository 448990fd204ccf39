#!/bin/sh
# Checks a trace in N shares, several at a time on this machine, and merges them. Needs GNU parallel.
#
#   parallel.sh N TRACE DIR [OPTION...]
#
# DIR is a new directory on this machine: DIR/1 to DIR/N are the shares, DIR/merged is the result, DIR/log says how each
# share ended. Options are those of powerfail check. A share runs one recovery at a time: the shares are what runs in
# parallel. POWERFAIL is the command, if it is not in PATH.
set -eu
shares=$1 trace=$2 directory=$3
shift 3
powerfail=${POWERFAIL:-powerfail}

mkdir "$directory"
parallel --halt soon,fail=1 --joblog "$directory/log" --quote \
	"$powerfail" check --trace "$trace" --jobs 1 --partition "{}/$shares" --out "$directory/{}" "$@" \
	::: $(seq "$shares") >"$directory/shares.txt"
set --
for number in $(seq "$shares"); do
	set -- "$@" "$directory/$number"
done
exec "$powerfail" merge --out "$directory/merged" --format json "$@"
