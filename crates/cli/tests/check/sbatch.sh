#!/bin/sh
# Does what sbatch does with the options of the recipes, at once. A job whose dependency has failed is not run.
set -eu
array= dependency= output=/dev/null
while [ $# -gt 0 ]; do
	case $1 in
	--array) array=$2; shift 2 ;;
	--dependency) dependency=$2; shift 2 ;;
	--output) output=$2; shift 2 ;;
	--wrap) wrap=$2; shift 2 ;;
	--job-name | --open-mode | --kill-on-invalid-dep) shift 2 ;;
	--parsable | --requeue) shift ;;
	*) echo "sbatch: unknown option $1" >&2; exit 1 ;;
	esac
done
job=$(($(ls jobs | wc -l) + 1))
if [ -n "$dependency" ] && ! [ -e "jobs/${dependency#afterok:}.ok" ]; then
	touch "jobs/$job.never"
	echo "$job"
	exit 0
fi
state=ok
if [ -n "$array" ]; then
	for task in $(seq "${array%-*}" "${array#*-}"); do
		log=$(echo "$output" | sed "s/%a/$task/")
		SLURM_ARRAY_TASK_ID=$task sh -c "$wrap" >>"$log" 2>&1 || state=failed
	done
else
	sh -c "$wrap" >>"$output" 2>&1 || state=failed
fi
touch "jobs/$job.$state"
echo "$job"
