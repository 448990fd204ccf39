# dpkg on a scratch root: installs a package and a newer version of it.
#
#   sh dpkg.sh run DIR [FLAG]    makes two packages and a root, syncs everything, and installs both; FLAG is one of dpkg
#   sh dpkg.sh check DIR         fails unless dpkg can read its database, and has as a whole what it says is installed
set -e
export PATH="$PATH:/usr/sbin:/sbin" DEBIAN_FRONTEND=noninteractive
root="$2"
packages="$2/packages"
install() {
	dpkg --force-not-root --root="$root" --log=/dev/null --force-bad-path "$@"
}
if [ "$1" = run ]; then
	for number in 1 2; do
		build="$packages/$number"
		mkdir -p "$build/DEBIAN" "$build/opt"
		printf 'Package: small\nVersion: %s\nArchitecture: all\nMaintainer: name <mail@example.org>\nDescription: small\n' \
			"$number" >"$build/DEBIAN/control"
		printf 'version %s\n' "$number" >"$build/opt/file"
		dpkg-deb -Znone -b "$build" "$packages/$number.deb" >/dev/null
	done
	mkdir -p "$root/var/lib/dpkg/info" "$root/var/lib/dpkg/updates" "$root/var/lib/dpkg/triggers"
	: >"$root/var/lib/dpkg/status"
	: >"$root/var/lib/dpkg/available"
	sync
	: >"$root/ready"
	for number in 1 2; do
		install $3 -i "$packages/$number.deb" >/dev/null
	done
elif [ -e "$root/ready" ]; then
	# A package that was being unpacked has to be installed again, which dpkg says and remembers.
	install --configure -a >&2 || true
	install --audit >&2
	state=$(dpkg-query --admindir="$root/var/lib/dpkg" -W -f '${db:Status-Status} ${Version}\n' | head -n 1)
	case "$state" in
	"installed "*)
		grep -qx "version ${state#installed }" "$root/opt/file"
		;;
	esac
fi
