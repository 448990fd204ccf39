#!/bin/busybox sh
# The first process of the guest. It prepares everything, says that it is ready, and obeys commands from the second
# serial line. Lines that begin with the byte 1 are for the host; everything else is output.
/bin/busybox --install -s /bin
export PATH=/bin:/sbin:/usr/bin:/usr/sbin:/powerfail
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
mount -t tmpfs tmp /tmp
exec 3<>/dev/ttyS1
stty -F /dev/ttyS1 raw -echo
tell() { printf '\001%s\n' "$*" >&3; }
while read -r module; do
	insmod "/lib/modules/$module.ko" || tell "no-module $module"
done < /lib/modules/order
ip link set lo up 2> /dev/null
. /etc/powerfail.conf

# Marks are stores to a page that nobody else uses: the number of an operation at its begin (0) and its end (8).
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

attach() {
	if [ -x /powerfail/attach ]; then
		/powerfail/attach
		return
	fi
	[ -n "$FS" ] || return 0
	mount -t "$FS" -o "$OPTIONS" /dev/pmem0 /mnt
}
detach() {
	cd /
	if [ -x /powerfail/detach ]; then
		/powerfail/detach
		return
	fi
	[ -n "$FS" ] || return 0
	umount /mnt
}
home() { if [ -n "$FS" ]; then cd /mnt; else cd /; fi; }

# Puts files of the host into /powerfail.
files() {
	mkdir -p /powerfail
	(cd /powerfail && cpio -i -d -u < /dev/pmem1 2> /tmp/cpio) || cat /tmp/cpio
	[ ! -x /powerfail/setup ] || /powerfail/setup
}

# Runs the workload: each line is an operation. With `trees`, tells what the file system has after each.
operations() {
	attach || { echo "cannot mount"; return 1; }
	mark 8 0
	[ "$1" != trees ] || { cat /proc/kallsyms > /tmp/symbols; tell operation 0; tree; }
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
		[ $status = 0 ] || return 1
		[ "$1" != trees ] || tree
	done 4< /powerfail/workload
	cd /
	# A module may be loaded elsewhere now.
	[ "$1" != trees ] || grep '\[' /proc/kallsyms >> /tmp/symbols
	number=$((number + 1))
	mark 0 $number
	detach || return 1
	mark 8 $number
}

# Recovers, and checks that the result can be read and written. With `stores` or `loads`, marks say what is recovery while the
# plugin of QEMU watches; they are loads if it watches loads.
recover() {
	[ "$1" != stores ] || mark 0 1
	attach || { echo "the file system cannot be mounted"; return 1; }
	[ "$1" != stores ] || mark 8 1
	tell tree
	tree || { echo "the file system cannot be read"; return 1; }
	tell end
	home
	if [ -n "$FS" ]; then
		{ echo probe > .powerfail-probe && rm .powerfail-probe; } || { echo "the file system cannot be written"; cd /; return 1; }
	fi
	if [ -e /powerfail/recover ]; then
		sh /powerfail/recover || { echo "the recovery script failed with status $?"; cd /; detach; return 1; }
	fi
	cd /
	detach || { echo "the file system cannot be unmounted"; return 1; }
}
mark_load() { [ "$1" != loads ] || devmem "$MARKS" 64 > /dev/null; }

tell ready
while read -r verb argument <&3; do
	case $verb in
	files) files >&3 2>&3; status=$? ;;
	workload) operations "$argument" >&3 2>&3; status=$? ;;
	symbols) cat /tmp/symbols > /dev/pmem1 && sync; status=$? ;;
	recover)
		mark_load "$argument"
		recover "$argument" >&3 2>&3
		status=$?
		mark_load "$argument"
		;;
	shell) PS1='guest$ ' sh -i <&3 >&3 2>&3; status=$? ;;
	*) status=127 ;;
	esac
	tell done $status
done
