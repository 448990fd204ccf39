#!/bin/busybox sh
# The first process of the guest. It prepares everything, says that it is ready, and obeys commands from the second
# serial line.
/bin/busybox --install -s /bin
export PATH=/bin:/sbin:/usr/bin:/usr/sbin:/powerfail
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
mount -t tmpfs tmp /tmp
exec 3<>/dev/ttyS1
stty -F /dev/ttyS1 raw -echo
. /lib/powerfail/functions.sh
while read -r module; do
	insmod "/lib/modules/$module.ko" || tell "no-module $module"
done < /lib/modules/order
ip link set lo up 2> /dev/null

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

# Puts files of the host into /powerfail.
files() {
	mkdir -p /powerfail
	(cd /powerfail && cpio -i -d -u < /dev/pmem1 2> /tmp/cpio) || cat /tmp/cpio
	[ ! -x /powerfail/setup ] || /powerfail/setup
}

# The modules that are loaded, and where.
module_places() { cut -d' ' -f1,6 /proc/modules; }

# Notes the symbols of modules if others are loaded than when they were noted last, or elsewhere. The kernel takes more than a
# second to list them.
note_symbols() {
	module_places > /tmp/modules-now
	cmp -s /tmp/modules /tmp/modules-now && return
	mv /tmp/modules-now /tmp/modules
	grep '\[' /proc/kallsyms >> /tmp/symbols
}

# Runs the workload. With `trees`, tells what is stored after each system call that changes something, and after each line.
operations() {
	attach || { echo "cannot mount"; return 1; }
	mark 8 0
	list=
	if [ "$1" = trees ]; then
		note_symbols
		tell operation 0
		tree
		tell end
		list=/lib/powerfail/list.sh
	fi
	/lib/powerfail/calls /dev/mem "$MARKS" "$CALLS" "${FS:+/mnt}" "$list" /lib/powerfail/lines.sh "$1" || return 1
	[ "$1" != trees ] || note_symbols
	number=$(grep -c -v -e '^$' -e '^#' /powerfail/workload)
	mark 0 $((number + 1))
	detach || return 1
	mark 8 $((number + 1))
}

# Recovers, and checks that the result can be read and written. With `loads`, marks say what is recovery while the plugin of QEMU
# watches. A guest that has failed tells whether everything is detached: then it can recover another image.
recover() {
	attach || { echo "the file system cannot be mounted"; [ -x /powerfail/attach ] || tell detached; return 1; }
	tell tree
	tree || { give_up "the file system cannot be read"; return 1; }
	tell end
	home
	if [ -n "$FS" ]; then
		{ echo probe > .powerfail-probe && rm .powerfail-probe; } || { give_up "the file system cannot be written"; return 1; }
	fi
	if [ -e /powerfail/recover ]; then
		sh /powerfail/recover || { give_up "the recovery script failed with status $?"; return 1; }
	fi
	cd /
	detach || { echo "the file system cannot be unmounted"; return 1; }
}
give_up() { echo "$1"; detach && tell detached; }
# Only attaches, between marks, while the plugin watches what that stores. Then tells where the code of modules is: it may have
# been loaded elsewhere than in the recording.
recover_stores() {
	mark 0 1
	attach || return 1
	mark 8 1
	grep . /sys/module/*/sections/.*text*
	detach
}
mark_load() { [ "$1" != loads ] || devmem "$MARKS" 64 > /dev/null; }

module_places > /tmp/modules
: > /tmp/symbols
tell ready
while read -r verb argument <&3; do
	case $verb in
	files) files >&3 2>&3; status=$? ;;
	workload) operations "$argument" >&3 2>&3; status=$? ;;
	kernel-symbols) cat /proc/kallsyms > /dev/pmem1 && sync; status=$? ;;
	symbols) { cat /tmp/symbols; printf '\000'; } > /dev/pmem1 && sync; status=$? ;;
	recover)
		mark_load "$argument"
		case $argument in
		stores) recover_stores >&3 2>&3 ;;
		*) recover >&3 2>&3 ;;
		esac
		status=$?
		mark_load "$argument"
		;;
	shell)
		# Lines come from the host, whose terminal has shown them already. Of its keys only Ctrl-C is passed on.
		stty -F /dev/ttyS1 icanon isig -echo
		PS1='guest$ ' setsid -c sh -i <&3 >&3 2>&3
		status=$?
		stty -F /dev/ttyS1 raw -echo
		;;
	*) status=127 ;;
	esac
	tell done $status
done
