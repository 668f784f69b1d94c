#!/usr/bin/env bash
# With wrong kernels, an interrupt loses nothing of what was found and waits for no kernel, no plain test is
# made from their errors, and no kernel is judged by a contract that it does not promise.
# usage: interrupt_test.sh SAMESTATE PLUGIN
set -uo pipefail

samestate="$(realpath "$1")"
plugin="$(realpath "$2")"
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
failures=0
complain() {
  printf 'FAILED: %s\n' "$1"
  failures=$((failures + 1))
}
set -m # each in a process group of its own, as in a terminal

# until_there WORD FILE: waits until a line of FILE contains WORD, at most a minute.
until_there() {
  local waited=0
  until grep -qF -- "$1" "$2" 2>/dev/null || [[ $waited -ge 600 ]]; do
    sleep 0.1
    waited=$((waited + 1))
  done
}
# interrupt CODE SECONDS PROCESS: checks that the process ends with that exit code in that time.
interrupt() {
  local code=0 begin=$SECONDS
  kill -INT "$3" 2>/dev/null || complain 'over before the interrupt came'
  wait "$3" || code=$?
  [[ $code -eq $1 ]] || complain "exit $code instead of $1: $(head -2 err)"
  [[ $((SECONDS - begin)) -le $2 ]] || complain "went on for $((SECONDS - begin)) s"
}
wrong=wrong.gated_delta_rule.recurrent
slow=slow.gated_delta_rule.recurrent

# An interrupt in the search, and while it shrinks what it found.
"$samestate" fuzz --plugin "$plugin" --kernel $wrong --budget 10m --threads 1 --seed 7 --jsonl lines --corpus found >out 2>err </dev/null &
until_there '"verdict":"fail"' lines
interrupt 1 30 $!
grep -q '^Interrupted' out || complain 'fuzz: not said'
grep -qE '^failures: [0-9]+ cases?, [1-9]' out || complain 'fuzz: no kinds'
grep -q "not shrunk: samestate repro --plugin" out || complain 'fuzz: no line'
[[ -s found/gated_delta_rule.txt ]] || complain 'fuzz: no corpus'
grep -q 'not shrunk' found/gated_delta_rule.txt || complain 'fuzz: the corpus does not say that it was not shrunk'
eval "$(grep -m1 'not shrunk: ' out | grep -oE "repro --plugin .*'v1 [^']*'" | sed "s|^|'$samestate' |")" >repeated 2>&1
[[ $? -eq 1 ]] || complain "fuzz: the line does not repeat: $(head -3 repeated)"

rm -rf found
"$samestate" fuzz --plugin "$plugin" --kernel $slow --budget 0 --max-cases 3 --threads 1 --seed 7 --shrink-budget 10m \
  --corpus found --json >out 2>err </dev/null &
until_there 'failures: ' err
interrupt 1 30 $!
grep -q "samestate repro --plugin" err || complain 'shrinking: no line'
[[ -s found/gated_delta_rule.txt ]] || complain 'shrinking: no corpus'
grep -q '"line"' out || complain 'shrinking: no failure in the JSON'

# The smallest line so far is printed. A shrink writes nothing on its way, so the right moment is searched
# for: later if nothing was smaller yet, earlier if the shrink was over.
smaller=no
for wait in 6 9 4 13 2 20; do
  "$samestate" repro --plugin "$plugin" --shrink --shrink-budget 10m \
    "v1 gated_delta_rule form=recurrent B=3 T=70 Hk=2 Hv=4 dk=24 dv=16 kernel=$slow" >out 2>err </dev/null &
  process=$!
  sleep "$wait"
  kill -INT "$process" 2>/dev/null
  begin=$SECONDS
  wait "$process"
  [[ $((SECONDS - begin)) -le 20 ]] || complain "repro --shrink: went on for $((SECONDS - begin)) s"
  if grep -q 'interrupted: the smallest so far' out && grep -q '^case      v1 gated_delta_rule' out &&
    ! grep -q 'T=70 Hk=2 Hv=4 dk=24' out; then
    smaller=yes
    break
  fi
done
[[ $smaller == yes ]] || complain "repro --shrink: no smaller line: $(head -3 out)"
sed -n '/^shrunk /{n;p;}' out | grep -qE '^sizes     B=[0-9]+ T=[0-9]+ Hk=[0-9]+ Hv=[0-9]+ dk=[0-9]+ dv=[0-9]+$' ||
  complain "repro --shrink: no sizes in full: $(head -3 out)"

# The run does not wait for a mutant that hangs; the only kernel that can be diagnosed need not be named, but
# one of several must be.
"$samestate" mutants --name loops_forever.gated_delta_rule.chunked --timeout 60s >out 2>err </dev/null &
process=$!
sleep 3
interrupt 3 10 $process
grep -q 'interrupted after 0 of 1' err || complain "mutants: not said: $(head -3 err)"
"$samestate" diagnose --plugin "$plugin" >out 2>err </dev/null && complain 'diagnose chose one of several'
grep -q "which one? .*$wrong" err || complain "diagnose: names no kernel: $(head -3 err)"

# The gate's files say that they are incomplete, and an impatient second interrupt damages none of them.
gate=("$samestate" gate --device cpu --system retention --system gated_delta_rule --effort 4 --threads 1)
"${gate[@]}" --jsonl cut.jsonl --junit cut.xml --markdown cut.md --commit 1a2b3c >out 2>err </dev/null &
until_there '"event":"end"' cut.jsonl
kill -INT $!
sleep 0.02
kill -INT $! 2>/dev/null # as a rule before the run has noticed the first
code=0
wait $! || code=$?
[[ $code -eq 3 ]] || complain "gate: exit $code after two interrupts"
grep -qE '^Interrupted before [0-9]+ of [0-9]+ cases' out || complain "gate: $(tail -3 out)"
grep -q '"event":"finish","exit":3.*"not_complete":"Interrupted before' <(tail -1 cut.jsonl) || complain 'gate: JSON Lines'
grep -qE '"commit":"1a2b3c".*"planned":[0-9]{3}' <(head -1 cut.jsonl) || complain "gate: $(head -1 cut.jsonl)"
grep -qE '<testsuites .*errors="1"' cut.xml || complain "gate: JUnit counts no error: $(sed -n 2p cut.xml)"
grep -q '<error message="exit 3: Interrupted before' cut.xml || complain 'gate: JUnit'
grep -qE '^# .*not complete' cut.md && grep -q '^\*\*Interrupted before' cut.md || complain "gate: Markdown: $(head -3 cut.md)"
"$samestate" report cut.jsonl --out page --no-plots >out 2>err || complain 'gate: no page'
grep -q 'Interrupted before' page/index.html || complain 'gate: the page does not say it'
grep -q 'class="big warn">.*; not complete' page/index.html || complain 'gate: the page says that it passed'
grep -q 'Interrupted before' err || complain 'gate: report does not say it'
"$samestate" compare cut.jsonl cut.jsonl >out 2>err || complain 'gate: no comparison'
grep -q '^the second record: Interrupted before' out || complain "gate: compare: $(cat out)"

# An interrupt while it plans, and while it cannot write a message.
"$samestate" gate --device cpu --junit plan.xml --json >out 2>err </dev/null &
sleep 1
interrupt 3 60 $!
grep -q 'Interrupted while the cases were planned' plan.xml || complain "planning: $(cat err)"
grep -q '"exit": 3' out || complain 'planning: no JSON'
"${gate[@]}" --jsonl killed.jsonl >out 2>err </dev/null &
until_there '"event":"end"' killed.jsonl
kill -KILL $!
wait $! 2>/dev/null
code=0
"$samestate" compare killed.jsonl killed.jsonl >out 2>err || code=$?
[[ $code -eq 3 ]] || complain "killed: compare: exit $code"
grep -q '^the first record: It is cut: ' out || complain "killed: $(head -3 out)"
grep -q '^the first record: The process was ended before' out || complain "killed: $(head -3 out)"
# A case that was running when the gate was killed is not a crash, and cases that it did not reach are not
# missing.
code=0
"$samestate" compare cut.jsonl killed.jsonl >out 2>err || code=$?
[[ $code -eq 3 ]] && ! grep -qE 'crash|gone' out || complain "killed: compare: exit $code: $(head -5 out)"

# A point that takes minutes is abandoned, and the others are kept.
"$samestate" sweep --quick --series width --plugin "$plugin" --kernel sleeping.gated_delta_rule.chunked --threads 1 \
  --out points >out 2>err </dev/null &
until_there 'dk=32' points
sleep 2
interrupt 3 15 $!
grep -q '^Interrupted before 1 of ' out || complain "sweep: $(head -1 out)"
[[ "$(grep -c '"event":"point"' points)" -ge 3 ]] || complain 'sweep: no points'

# With one line of several, nothing ran out of time.
printf '%s\n' "v1 gated_delta_rule T=64 kernel=sleeping.gated_delta_rule.chunked" |
  "$samestate" repro - --plugin "$plugin" >out 2>err &
sleep 2
interrupt 3 15 $!
grep -q '^verdict *skipped' out && ! grep -q timeout out || complain "repro: $(cat out)"

# With a single kernel, nothing about other kernels is printed.
"$samestate" sweep --quick --plugin "$plugin" --kernel sleeping.gated_delta_rule.chunked --list >out 2>err
grep -qv 'kernel=sleeping' out && complain 'sweep: a point of another kernel'
grep -q 'drift.* is left out' err || complain 'sweep: does not say what is left out'
code=0
"$samestate" sweep --quick --series drift --plugin "$plugin" --kernel sleeping.gated_delta_rule.chunked --list >out 2>err || code=$?
[[ $code -eq 2 ]] || complain "sweep: --series drift of a chunked kernel: exit $code"

# No tight test is made from a failing kernel.
for how in '' --table --json; do
  code=0
  # shellcheck disable=SC2086
  "$samestate" tolerance "v1 gated_delta_rule form=recurrent T=8 dk=8 kernel=$wrong" --plugin "$plugin" --seeds 2 $how >out 2>err || code=$?
  [[ $code -eq 1 ]] || complain "tolerance $how: exit $code instead of 1"
  grep -qE '\bfails|"failure": *"seed' out || complain "tolerance $how: does not say why"
  grep -q 'times the largest error of the seeds' out && complain "tolerance $how: a test from a failing kernel"
done

# A contract that the kernel does not promise is refused.
for verb in repro tolerance; do
  code=0
  "$samestate" $verb "v1 gated_delta_rule form=recurrent T=8 dk=8 contract=bf16 kernel=$wrong" --plugin "$plugin" >out 2>err || code=$?
  [[ $code -eq 2 && ! -s out ]] && grep -q "$wrong promises only fp32" err || complain "$verb: exit $code: $(cat err)"
done

# A share of fewer than twenty cases says nothing; a share of twenty does, and the remedy is named.
mkdir few
# vacuous PASSING EXIT [LINE LINE]: PASSING cases that pass and two that are vacuous: they have many heads,
# some with a wide bound.
vacuous() {
  local code=0
  local first='v1 retention chunk=8 B=47 T=1 Hv=4 dk=8 dv=16 l2norm=1 contract=bf16 seed=0x77'
  local second='v1 retention chunk=8 B=60 T=1 Hv=8 dk=8 dv=8 l2norm=1 contract=bf16 seed=0x77'
  {
    for ((t = 3; t < 3 + $1; ++t)); do printf 'v1 retention T=%s dk=8 state=random seed=0x77\n' "$t"; done
    printf '%s\n' "${3:-$first}" "${4:-$second}"
  } >few/retention.txt
  "$samestate" gate --device cpu --system retention --corpus few --where seed=0x77 >out 2>err || code=$?
  [[ $code -eq $2 ]] || complain "vacuous: exit $code instead of $2: $(head -1 out) $(head -1 err)"
}
vacuous 6 0
vacuous 17 0
vacuous 18 3
grep -q '2 of 20 cases that expect more than zeros were vacuous.*another --contract' err || complain "vacuous: $(cat err)"
vacuous 0 3
# Cases that expect nothing but zeros say nothing about bounds.
vacuous 18 0 'v1 retention T=0 dk=8 seed=0x77' 'v1 retention T=0 dk=16 seed=0x77'
vacuous 0 3 'v1 retention T=0 dk=8 seed=0x77' 'v1 retention T=0 dk=16 seed=0x77'

# A tolerance from fewer seeds than requested is not an answer.
"$samestate" tolerance 'v1 retention T=256 Hk=4 dk=64 contract=bf16' --seeds 1000 >out 2>err </dev/null &
sleep 3
interrupt 3 30 $!
grep -q 'of fewer seeds' err || complain "tolerance: $(cat err)"

# A plugin with a row that the table does not accept is named.
code=0
"$samestate" list kernels --plugin "$plugin" --plugin "$plugin" >out 2>err || code=$?
[[ $code -eq 2 ]] || complain "a plugin twice: exit $code"
grep -qF "plugin $plugin: kernel" err || complain "a plugin twice: $(cat err)"

printf '%s failures\n' "$failures"
[[ $failures -eq 0 ]]
