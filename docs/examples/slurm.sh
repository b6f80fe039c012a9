#!/bin/bash
#SBATCH --job-name=certify
#SBATCH --array=1-8
#SBATCH --cpus-per-task=4
#SBATCH --requeue
# One shard for each task of the array. A task that is killed, requeued or submitted again goes on where it stopped.
set -euo pipefail
smoothcert certify "$MODEL" --dataset "$DATASET" --n "${VOTES:-100000}" \
  --shard "$SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT" --out "shards/$SLURM_ARRAY_TASK_ID" \
  --workers "${SLURM_CPUS_PER_TASK:-1}"
