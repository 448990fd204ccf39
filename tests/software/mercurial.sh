# Mercurial of PyPI: a commit in a repository that exists.
#
#   sh mercurial.sh run DIR VERSION      makes a repository, syncs everything, and commits once more
#   sh mercurial.sh check DIR VERSION    does what a user does after a crash: breaks locks, recovers, verifies
set -e
package=$PWD/pip-mercurial-$3
export PYTHONPATH="$package" PYTHONDONTWRITEBYTECODE=1 HGRCPATH=/dev/null HGUSER=name HGPLAIN=1
hg() {
	python3 "$package/bin/hg" "$@"
}
cd "$2"
if [ "$1" = run ]; then
	hg init
	seq 1 100 >file
	hg commit -q -A -m one -d '0 0' file
	sync
	touch ready
	sync .
	seq 2 200 >file
	hg commit -q -m two -d '1 0'
elif [ -e ready ]; then
	rm -f .hg/wlock .hg/store/lock
	if [ -e .hg/store/journal ]; then
		hg recover -q >&2
	fi
	hg verify -q >&2
fi
