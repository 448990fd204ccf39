# git: two commits in a repository that exists.
#
#   sh commit.sh run DIR [FSYNC]    makes a repository, syncs everything, and commits twice; FSYNC is the value of core.fsync
#   sh commit.sh check DIR          fails unless git finds everything that it needs
set -e
export GIT_CONFIG_NOSYSTEM=1 HOME=/nonexistent
export GIT_AUTHOR_NAME=name GIT_AUTHOR_EMAIL=mail GIT_COMMITTER_NAME=name GIT_COMMITTER_EMAIL=mail
cd "$2"
if [ "$1" = run ]; then
	git init -q -b main .
	git config gc.auto 0
	if [ -n "$3" ]; then
		git config core.fsync "$3"
	fi
	sync
	touch ready
	for number in 1 2; do
		echo "text $number" >file
		git add file
		git commit -q -m "commit $number"
	done
elif [ -e ready ]; then
	git fsck --no-dangling >&2
	git status >&2
fi
