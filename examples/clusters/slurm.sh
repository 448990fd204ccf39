#!/bin/sh
# Checks a trace in N shares as a job array of Slurm. A job that depends on all of them merges the results.
#
#   slurm.sh N TRACE DIR [OPTION...]
#
# DIR is a new directory that all nodes see: DIR/1 to DIR/N are the shares, DIR/merged is the result, DIR/report.json is the
# report, DIR/*.log is what the jobs wrote. Options are those of powerfail check. Prints the number of the job that merges.
# POWERFAIL is the command, if it is not in PATH. SBATCH_OPTIONS are options of all jobs.
#
# A share that is killed can be submitted again with --resume: the merge names it.
set -eu
shares=$1 trace=$2 directory=$3
shift 3
powerfail=${POWERFAIL:-powerfail}

# Words for the shell of a job.
quoted() {
	separator=
	for word; do
		printf "%s'%s'" "$separator" "$(printf %s "$word" | sed "s/'/'\\\\''/g")"
		separator=' '
	done
}

mkdir "$directory"
array=$(sbatch --parsable ${SBATCH_OPTIONS:-} --job-name powerfail --array "1-$shares" --requeue \
	--output "$directory/%a.log" --open-mode append \
	--wrap "exec $(quoted "$powerfail" check --trace "$trace" "$@") \
		--partition \"\$SLURM_ARRAY_TASK_ID/$shares\" --out $(quoted "$directory")/\"\$SLURM_ARRAY_TASK_ID\" --resume")
set --
for number in $(seq "$shares"); do
	set -- "$@" "$directory/$number"
done
# Shares that another node made need --yes. A bug ends the merge with 1, which is no failure of the job.
sbatch --parsable ${SBATCH_OPTIONS:-} --job-name powerfail-merge --dependency "afterok:${array%%;*}" --kill-on-invalid-dep yes \
	--output "$directory/merge.log" \
	--wrap "$(quoted "$powerfail" merge --yes --format json --out "$directory/merged" "$@") \
		>$(quoted "$directory")/report.json || [ \$? -eq 1 ]"
