#!/bin/sh
# Fuzzes a program with N instances as a job array of Slurm. They share what they find through a directory.
#
#   slurm-fuzz.sh N DIR [OPTION...] -- PROGRAM [ARGUMENT...]
#
# DIR is a directory that all nodes see: DIR/1 to DIR/N are the campaigns, DIR/*.log is what the jobs wrote. Options are those
# of powerfail fuzz; --time says when the jobs end. Each instance has its number as its seed. Prints the number of the array.
# POWERFAIL is the command, if it is not in PATH. SBATCH_OPTIONS are options of the jobs.
#
# A job that Slurm requeues resumes its campaign.
set -eu
instances=$1 directory=$2
shift 2
powerfail=${POWERFAIL:-powerfail}

# Words for the shell of a job.
quoted() {
	separator=
	for word; do
		printf "%s'%s'" "$separator" "$(printf %s "$word" | sed "s/'/'\\\\''/g")"
		separator=' '
	done
}

mkdir -p "$directory"
# A bug ends a campaign with 1, which is no failure of the job.
sbatch --parsable ${SBATCH_OPTIONS:-} --job-name powerfail-fuzz --array "1-$instances" --requeue \
	--output "$directory/%a.log" --open-mode append \
	--wrap "resume=; [ -e $(quoted "$directory")/\"\$SLURM_ARRAY_TASK_ID\"/queue.jsonl ] && resume=--resume
		$(quoted "$powerfail" fuzz --out "$directory") --name \"\$SLURM_ARRAY_TASK_ID\" \
		--seed \"\$SLURM_ARRAY_TASK_ID\" \$resume $(quoted "$@") || [ \$? -eq 1 ]"
