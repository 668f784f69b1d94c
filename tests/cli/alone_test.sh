#!/usr/bin/env bash
# Kernels that stand alone, each with a single form: the gate plans the cases that they take, says what it
# leaves out, and asks for nothing else at its end.
# usage: alone_test.sh SAMESTATE ALONE_PLUGIN
set -uo pipefail

plugin="$(realpath "$2")"
source "$(dirname "$0")/prelude.sh"
patience=300

for form in sequence_parallel head_parallel; do
  kernel="alone.$form.gated_delta_rule.$form"
  run 0 gate --plugin "$plugin" --kernel "$kernel" --effort 0.1 --jsonl "$form.jsonl"
  ! grep -q '"verdict":"unsupported"' "$form.jsonl" || complain "$form: unsupported: $(grep -c '"verdict":"unsupported"' "$form.jsonl")"
  [[ "$(grep -c '"verdict":"pass"' "$form.jsonl")" -ge 100 ]] || complain "$form: hardly a case"
  says "$kernel: cases that call with chunks and without (form=decode, law=path_equivalence, law=serving) are not planned: they take alone.$form.gated_delta_rule.recurrent too."
  ! grep -q 'not judged with' out || complain "$form: looks for pairs that it cannot have"
  grep -q 'are not planned' "$form.jsonl" || complain "$form: the record does not say it"
done

finish
