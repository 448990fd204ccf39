# What the scripts of the guest share. Lines on descriptor 3 that begin with the byte 1 are for the host; everything else is
# output.
. /etc/powerfail.conf
tell() { printf '\001%s\n' "$*" >&3; }

# Marks are stores to a page that nothing else uses: the number of a line at its begin (0) and its end (8). The program that
# traces system calls stores the number of one that has returned behind them.
mark() { devmem $((MARKS + $1)) 64 "$2"; }

# What is in the file system, one line for each name. Sizes of directories are not told: they depend on the past.
tree() {
	if [ -x /powerfail/list ]; then
		/powerfail/list
		return
	fi
	[ -n "$FS" ] || return 0
	(
		cd /mnt || exit 1
		find . -xdev ! -path './lost+found*' -exec stat -c 'entry %F|%a|%s|%h|%N' {} + || exit 1
		find . -xdev ! -path './lost+found*' -type f -exec md5sum {} +
	)
}
home() { if [ -n "$FS" ]; then cd /mnt; else cd /; fi; }
