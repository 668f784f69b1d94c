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

# Nor is a file of something else gone on with.
"$samestate" gate --system rms_norm --max-cases 2 --jsonl gate.jsonl >/dev/null 2>&1
for foreign in gate.jsonl mine.txt; do
  [ "$foreign" = gate.jsonl ] || echo 'my notes' >"$foreign"
  cp "$foreign" before.jsonl
  bad "$foreign" sweep --quick --where chunk=16 --out "$foreign"
  cmp -s "$foreign" before.jsonl || complain "$foreign was written to"
done

finish
