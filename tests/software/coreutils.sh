# What shell scripts do to replace a file. MODE: mv, mv-synced (with `sync FILE` before it), sed (sed -i), cp (over the file).
#
#   sh coreutils.sh run DIR MODE
#   sh coreutils.sh check DIR
set -e
cd "$2"
if [ "$1" = run ]; then
	echo "colour=red" >settings.first
	sync settings.first
	mv settings.first settings
	sync .
	case $3 in
	mv | mv-synced)
		echo "colour=blue" >settings.new
		if [ "$3" = mv-synced ]; then
			sync settings.new
		fi
		mv settings.new settings
		;;
	sed) sed -i s/red/blue/ settings ;;
	cp)
		echo "colour=blue" >new
		sync new
		cp new settings
		;;
	esac
elif [ -e settings ]; then
	grep -qx "colour=\(red\|blue\)" settings
fi
