#!/usr/bin/env bash
# The interface of plugins: rows of KernelCall, and rows of the older structs as they were built before.
# usage: plugin_interface_test.sh SAMESTATE CALL_PLUGIN FIRST_PLUGIN PRESENT_PLUGIN
set -uo pipefail

calls="$(realpath "$2")"
first="$(realpath "$3")"
present="$(realpath "$4")"
source "$(dirname "$0")/prelude.sh"

# The loops of the plugin are slow at the sizes of models.
small=(--effort 0.1 --where T=..64 --exclude dk=33.. --exclude dv=33.. --exclude Hv=9.. --exclude C=65..)

# Kernels that read views of the call, of both kinds of systems: dense, strided, packed, in place and decoded.
for kernel in calls.short_convolution.scatter calls.retention.recurrent; do
  run 0 gate --plugin "$calls" --kernel "$kernel" "${small[@]}" --max-cases 150 --jsonl "$kernel.jsonl"
  for key in form=packed layout=; do
    grep -q -- "$key" "$kernel.jsonl" || complain "$kernel met no $key"
  done
done
grep -q 'form=decode' calls.short_convolution.scatter.jsonl || complain 'no state was handed from call to call'
grep -q 'final=in_place' calls.retention.recurrent.jsonl || complain 'no state was carried in place'

# A window that reaches into the sequence before fails only packed calls, and a scale that is ignored fails
# only calls with another one.
run 1 gate --plugin "$calls" --kernel across.short_convolution.scatter "${small[@]}" --max-cases 150 --jsonl across.jsonl
grep '"verdict":"fail"' across.jsonl >failed || complain 'nothing failed'
! grep -v 'form=packed' failed >/dev/null || complain 'a dense call failed'
run 1 gate --plugin "$calls" --kernel unscaled.retention.recurrent "${small[@]}" --max-cases 60 --fail-fast

# A row of the older struct that declares packed gets drawn packed batches, and one that does not declare it
# gets none.
run 0 gate --plugin "$calls" --kernel struct.short_convolution.scatter --max-cases 150 --list
grep -q 'form=packed.* seed=' out || complain 'no drawn packed batch'
run 0 gate --plugin "$calls" --kernel dense.short_convolution.scatter --list
! grep -q 'form=packed.* seed=' out || complain 'a row without packed is asked for drawn packed batches'

# A row that asks for the contract's dtypes gets them, with guards of their own; a row that mistakes them for
# fp32 is told which they are.
run 0 gate --plugin "$calls" --kernel bf16.rms_norm.fused --effort 0.1 --where 'T=..64 D=..256' --max-cases 150 --jsonl bf16.jsonl
grep -q 'layout=' bf16.jsonl || complain 'no strided tensor of bf16'
run 0 bench --plugin "$calls" --kernel bf16.rms_norm.fused --quick
run 1 gate --plugin "$calls" --kernel beside.rms_norm.fused --max-cases 5 --jsonl beside.jsonl
grep -q 'wrote outside y' beside.jsonl || complain 'an element beside y was written unseen'
run 5 gate --plugin "$calls" --kernel mistaken.rms_norm.fused --max-cases 5 --jsonl mistaken.jsonl
grep -q 'tensor x is bf16' mistaken.jsonl || complain 'the dtype of x is not told'

# One source, built for the old interface and for the current one, gives the same records.
for plugin in first present; do
  run 0 gate --plugin "${!plugin}" --max-cases 120 --jsonl "$plugin.jsonl"
done
run 0 compare first.jsonl present.jsonl --factor 1
records() { grep '"event":"end"' "$1" | sed -E 's/"case":[0-9]+,//; s/"seconds":[^,}]*//g; s/(first|present)_plugin/plugin/' | sort; }
[[ "$(records first.jsonl | wc -l)" -eq 120 ]] || complain 'too few records'
cmp -s <(records first.jsonl) <(records present.jsonl) || complain 'the plugin that was built before gives other records'

finish
