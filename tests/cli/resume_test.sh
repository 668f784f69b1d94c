#!/usr/bin/env bash
# What a plugin of other bytes would go on with is refused: points of a sweep, cases of a checkpoint.
# usage: resume_test.sh SAMESTATE PLUGIN
set -uo pipefail

plugin="$(realpath "$2")"
source "$(dirname "$0")/prelude.sh"

cp "$plugin" mine.so
kernel=(--plugin ./mine.so --kernel right.gated_delta_rule.chunked --contract bf16+beta_k:bf16)
sweep=(sweep --quick "${kernel[@]}" --where chunk=16 --out points.jsonl)
search=(fuzz "${kernel[@]}" --seed 1 --budget 0 --max-cases 4 --checkpoint cases.txt)
run 0 "${sweep[@]}"
run 0 "${sweep[@]}"
says '0 to go'
run 0 "${search[@]}"
run 0 "${search[@]}" --resume
says '4 from the checkpoint'

printf x >>mine.so
cp points.jsonl before.jsonl
bad '--restart' "${sweep[@]}"
cmp -s points.jsonl before.jsonl || complain 'points were written all the same'
run 0 "${sweep[@]}" --restart
bad 'cases.txt' "${search[@]}" --resume

finish
