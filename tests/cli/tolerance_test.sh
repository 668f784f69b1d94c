#!/usr/bin/env bash
# `samestate tolerance` on every system: figures are in order (measured below what a correct kernel may have),
# a plain test passes the kernel, --json and --table work, and a figure means something: a contract with more
# rounding has larger errors.
# usage: tolerance_test.sh SAMESTATE
set -uo pipefail

source "$(dirname "$0")/prelude.sh"
# field NAME FILE: prints the first number of that name.
field() { grep -m1 -oE "\"$1\": [^,}]*" "$2" | sed 's/.*: //'; }
less() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a + 0 <= b + 0) }'; }

# Covers every system with a kernel on this machine.
for line in $("$samestate" list kernels --json | grep -oE '"kernel": "cpu\.[^"]*"' | cut -d'"' -f4); do
  form="${line##*.}"
  system="${line#cpu.}" system="${system%."$form"}"
  attempt tolerance "v1 $system form=$form T=12" --kernel "$line" --seeds 2 --mutants 0 --json
  # The kernel has another contract than fp32, or limits of its own.
  [[ $code -eq 0 ]] || { grep -q "samestate: $line\|contract" err || complain "exit $code"; continue; }
  says '"rtol"'
  echo "$system" >>covered
done
systems="$("$samestate" list kernels --json | grep -oE '"kernel": "cpu\.[^"]*"' | cut -d. -f2 | sort -u | wc -l)"
[[ "$(sort -u covered | wc -l)" -ge $((systems - 1)) ]] || complain "only $(sort -u covered | wc -l) of $systems systems"

case='v1 gated_delta_rule chunk=16 T=64 Hv=2 dk=16 dv=16'
run 0 tolerance "$case" --json --mutants 0
cp out fp32.json
run 0 tolerance "$case contract=bf16" --json --mutants 0
cp out bf16.json
less "$(awk -v a="$(field rms fp32.json)" 'BEGIN { print 100 * a }')" "$(field rms bf16.json)" || complain 'bf16 is no hundred times fp32'
less "$(field rms bf16.json)" "$(awk -v a="$(field predicted_rms bf16.json)" 'BEGIN { print 2 * a }')" || complain 'bf16 is above twice its prediction'
less "$(awk -v a="$(field predicted_rms bf16.json)" 'BEGIN { print a / 10 }')" "$(field rms bf16.json)" || complain 'the prediction of bf16 is ten times too large'

run 0 tolerance "$case contract=bf16" --mutants 20s
for word in 'expect: measured' 'expect: predicted' 'at most: a correct kernel' 'torch.testing.assert_close(o, o_expected, rtol=' \
  'final_state_expected' 'let pass by assert_close' 'mutants of gated_delta_rule'; do
  says "$word"
done
# The test lets some mutants pass that the judge does not: that is what the figure is for.
close="$(sed -n 's/.*let pass by assert_close *\([0-9]*\) of.*/\1/p' out)"
judge="$(sed -n 's/.*let pass by samestate here *\([0-9]*\) of.*/\1/p' out)"
[[ -n "$close" && -n "$judge" && "$judge" -lt "$close" ]] || complain "assert_close lets $close pass, samestate $judge"

run 0 tolerance 'v1 retention T=64 dk=16 dv=16 chunk=16' --table --seeds 1
for word in 'T=256' 'chunk=32' 'dk=32 dv=32' 'contract=bf16'; do
  says "$word"
done
# A case for which nothing can be judged is not a pass, and the output says for which tensors and why; as in
# repro, the exit code is 3.
for options in '--mutants 5s' '--json'; do
  # shellcheck disable=SC2086
  run 3 tolerance 'v1 gated_delta_rule T=0' $options --seeds 2
  says 'o final_state'
  ! grep -q 'assert_close(' out || complain 'a test is made of a case that says nothing'
done
run 3 repro 'v1 gated_delta_rule T=0'
run 0 tolerance 'v1 retention T=0 dk=4 dv=4' --table --seeds 1
says 'vacuous: line o'

# If no mutant was tried, nothing is said about what they would show.
run 0 tolerance 'v1 retention T=16 dk=4 dv=4' --seeds 1 --mutants 0
says 'tight known time'
! grep -q 'let pass by' out || complain 'figures of no mutants'
run 0 tolerance 'v1 gated_delta_rule contract=tf32_fused T=20 dk=4 dv=4' --seeds 1
says 'tight known none'
says 'gated_delta_rule form=chunked contract=tf32_fused'
! grep -q 'let pass by' out || complain 'figures of no mutants'
# All tokens are in the chunk of one rank.
run 0 tolerance 'v1 retention form=sequence_parallel ranks=2 T=20 dk=4 dv=4' --seeds 1
says 'mutants right values'
! grep -q 'let pass by' out || complain 'figures of no mutants'

bad 'law' tolerance 'v1 retention law=split'
# An error names the option that it is about, and no other whose value happens to be in it.
bad '--observed nan 0.02' tolerance "$case" --mutants 0 --observed nan
! grep -qF -- '--mutants' err || complain 'blames --mutants'
bad 'T=-20s' tolerance 'v1 retention T=-20s' --mutants 20s
! grep -qF -- '--mutants' err || complain 'blames --mutants'
run 0 tolerance 'v1 rms_norm form=fused T=16 D=64 contract=bf16' --mutants 10s
says 'assert_close'
# No tight test is wider than the one that no correct kernel fails, which it would be for an output that is
# rounded once.
run 0 tolerance 'v1 rms_norm form=fused T=16 D=64 contract=bf16' --mutants 0 --json
less "$(field atol out)" "$(field bound_atol out)" || complain 'the tight atol is above the safe one'
less "$(field rms_ratio out)" "$(field bound_rms_ratio out)" || complain 'the tight RMS ratio is above the safe one'

# An observed error is compared with what is expected and what is allowed: below, between and above, for a
# second output and for two kernels too. The figures are those of the JSON, so that a limit that moved is not
# a failure.
case='v1 retention T=48 dk=8 dv=8 chunk=16 contract=bf16'
figure() { grep -m1 -oE "\"$1\": [0-9.e+-]+" out | sed 's/.*: //'; }
times() { awk -v x="$1" -v by="$2" 'BEGIN { printf "%.9g", x * by }'; }
for norm in max rms rel; do
  for other in '' '--against form=recurrent'; do
    # shellcheck disable=SC2086
    run 0 tolerance "$case" $other --seeds 2 --threads 2 --norm $norm --observed 0 --json
    expected="$(figure expected)" allowed="$(figure allowed)"
    less "$expected" "$allowed" || complain "expected $expected, allowed $allowed"
    ask=(tolerance "$case" --seeds 2 --norm "$norm")
    [[ -z "$other" ]] || ask+=(--against form=recurrent)
    run 0 "${ask[@]}" --observed "$expected"
    says 'observed o: is as expected'
    run 1 "${ask[@]}" --observed "$(times "$allowed" 1.01)"
    says 'observed o: is wrong'
    run 0 "${ask[@]}" --observed "$(times "$allowed" 0.99)" --observed "final_state=0"
    says 'observed o: is allowed, more than expected'
    says 'observed final_state: is as expected'
  done
done
# Seeds that run at once give the same result as one after the other.
run 0 tolerance "$case" --seeds 3 --threads 1 --mutants 0
cp out one
run 0 tolerance "$case" --seeds 3 --threads 3 --mutants 0
cmp -s one out || complain 'another answer of three threads'
# The effect of two contracts on the data is part of what their kernels may differ by.
run 0 tolerance "$case" --against 'form=recurrent contract=fp32' --seeds 2
says 'round the data formats'
says 'assert_close(o, o_other'
bad '--observed 0.02x' tolerance "$case" --observed 0.02x
bad '--observed finite' tolerance "$case" --observed inf
bad '--observed no output q outputs o, final_state' tolerance "$case" --seeds 1 --observed q=1
bad '--norm' tolerance "$case" --norm l1 --observed 1
bad '--against regime contract' tolerance "$case" --against regime=slow
bad '--table --observed' tolerance "$case" --table --observed 1
run 3 tolerance 'v1 gated_delta_rule T=0' --seeds 1 --observed 1
says 'cannot be judged'

finish
