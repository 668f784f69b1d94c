#!/usr/bin/env bash
# The gate on N nodes of a Slurm cluster: an array of shards, and a merge of their files when all have ended.
#   docs/do/slurm.sh N [GATE OPTION...]        as in: docs/do/slurm.sh 16 --plugin ./mine.so --kernel 'my.*'
# samestate: the command; out: the folder of the files; sbatch_options: of your cluster (partition, account, gres, time).
set -euo pipefail

samestate="${samestate:-samestate}"
out="${out:-samestate-gate}"

case "${role:-submit}" in
submit)
  shards="${1:?how many shards: docs/do/slurm.sh N [GATE OPTION...]}"
  shift
  mkdir -p "$out"
  rm -f "$out"/part-*.jsonl # of another run
  export samestate out shards
  # shellcheck disable=SC2086
  parts="$(role=shard sbatch --parsable ${sbatch_options:-} --export=ALL --job-name=samestate --array="0-$((shards - 1))" \
    --output="$out/part-%a.log" "$0" "$@")"
  # shellcheck disable=SC2086
  merge="$(role=merge sbatch --parsable ${sbatch_options:-} --export=ALL --job-name=samestate-merge \
    --dependency="afterany:${parts%%;*}" --output="$out/merge.log" "$0" "$@")"
  echo "shards: job ${parts%%;*}, merge: job ${merge%%;*}; the verdict will stand in $out/merge.log"
  ;;
shard)
  exec "$samestate" gate "$@" --shard "$SLURM_ARRAY_TASK_ID/$shards" --threads "${SLURM_CPUS_PER_TASK:-1}" \
    --jsonl "$out/part-$SLURM_ARRAY_TASK_ID.jsonl"
  ;;
merge)
  # Takes those of the gate's options that name its kernels.
  plugins=()
  while [[ $# -gt 0 ]]; do
    case "$1" in
    --plugin | --subject) plugins+=("$1" "$2") && shift ;;
    --plugin=* | --subject=*) plugins+=("$1") ;;
    esac
    shift
  done
  exec "$samestate" merge "$out"/part-*.jsonl "${plugins[@]}" --threads "${SLURM_CPUS_PER_TASK:-1}" \
    --jsonl "$out/gate.jsonl" --junit "$out/gate.xml" --markdown "$out/gate.md"
  ;;
esac
