#!/usr/bin/env bash
# `samestate tolerance` on every system: figures in order (measured below what a correct kernel may have), a plain test
# that the kernel passes, --json, --table; and that a figure means something: a contract with more rounding has more of it.
# usage: tolerance_test.sh SAMESTATE
set -uo pipefail

samestate="$(realpath "$1")"
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
failures=0
complain() {
  printf 'FAILED: %s\n' "$1"
  failures=$((failures + 1))
}
# field NAME FILE: the first number of that name.
field() { grep -m1 -oE "\"$1\": [^,}]*" "$2" | sed 's/.*: //'; }
less() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a + 0 <= b + 0) }'; }

# Every system with a kernel here.
for line in $("$samestate" list kernels --json | grep -oE '"kernel": "cpu\.[^"]*"' | cut -d'"' -f4); do
  system="$(cut -d. -f2 <<<"$line")"
  form="$(cut -d. -f3 <<<"$line")"
  "$samestate" tolerance "v1 $system form=$form T=12" --kernel "$line" --seeds 2 --mutants 0 --json >out 2>err
  code=$?
  # A kernel of another contract than fp32, or limits of its own.
  [[ $code -eq 0 ]] || { grep -q "samestate: $line\|contract" err || complain "tolerance of $line: exit $code, $(cat err)"; continue; }
  grep -q '"rtol"' out || complain "tolerance of $line has no rtol"
  echo "$system" >>covered
done
systems="$("$samestate" list kernels --json | grep -oE '"kernel": "cpu\.[^"]*"' | cut -d. -f2 | sort -u | wc -l)"
[[ "$(sort -u covered | wc -l)" -ge $((systems - 1)) ]] || complain "only $(sort -u covered | wc -l) of $systems systems"

case='v1 gated_delta_rule chunk=16 T=64 Hv=2 dk=16 dv=16'
"$samestate" tolerance "$case" --json --mutants 0 >fp32.json || complain 'fp32'
"$samestate" tolerance "$case contract=bf16" --json --mutants 0 >bf16.json || complain 'bf16'
less "$(awk -v a="$(field rms fp32.json)" 'BEGIN { print 100 * a }')" "$(field rms bf16.json)" || complain 'bf16 is no hundred times fp32'
less "$(field rms bf16.json)" "$(awk -v a="$(field predicted_rms bf16.json)" 'BEGIN { print 2 * a }')" || complain 'bf16 is above twice its prediction'
less "$(awk -v a="$(field predicted_rms bf16.json)" 'BEGIN { print a / 10 }')" "$(field rms bf16.json)" || complain 'the prediction of bf16 is ten times too large'

"$samestate" tolerance "$case contract=bf16" --mutants 20s >out || complain 'text'
for word in 'expect: measured' 'expect: predicted' 'at most: a correct kernel' 'torch.testing.assert_close(o, o_expected, rtol=' \
  'final_state_expected' 'let pass by assert_close' 'mutants of gated_delta_rule'; do
  grep -qF -- "$word" out || complain "does not say '$word'"
done
# The test lets some mutants pass that the judge does not: that is what the figure is for.
close="$(sed -n 's/.*let pass by assert_close *\([0-9]*\) of.*/\1/p' out)"
judge="$(sed -n 's/.*let pass by samestate here *\([0-9]*\) of.*/\1/p' out)"
[[ -n "$close" && -n "$judge" && "$judge" -lt "$close" ]] || complain "assert_close lets $close pass, samestate $judge"

"$samestate" tolerance 'v1 retention T=64 dk=16 dv=16 chunk=16' --table --seeds 1 >out || complain 'table'
for word in 'T=256' 'chunk=32' 'dk=32 dv=32' 'contract=bf16'; do
  grep -qF -- "$word" out || complain "the table has no $word"
done
code=0
"$samestate" tolerance 'v1 retention law=split' >out 2>err || code=$?
[[ $code -eq 2 && "$(wc -l <err)" -eq 1 ]] || complain "a law: exit $code, $(cat err)"
"$samestate" tolerance 'v1 rms_norm form=fused T=16 D=64 contract=bf16' --mutants 10s >out || complain 'rms_norm'
grep -q 'assert_close' out || complain 'rms_norm has no assert_close'

printf '%s failures\n' "$failures"
[[ $failures -eq 0 ]]
