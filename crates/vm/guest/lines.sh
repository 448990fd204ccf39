#!/bin/sh
# The lines of the workload, one after the other, in a shell whose system calls are traced. With `trees`, tells what is stored
# after each.
. /lib/powerfail/functions.sh
home
number=0
while IFS= read -r line <&4; do
	case $line in '' | '#'*) continue ;; esac
	number=$((number + 1))
	mark 0 $number
	eval "$line"
	status=$?
	mark 8 $number
	tell operation $number $status
	[ $status = 0 ] || exit 1
	[ "$1" != trees ] || { tree; tell end; }
done 4< /powerfail/workload
