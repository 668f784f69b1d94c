#!/usr/bin/env bash
# Search on a kernel that really segfaults, exits and hangs for some shapes: verdicts, shrunk lines that a fresh
# process repeats at the first try, lines of the corpus; and the rest of the cases judged.
# usage: crash_test.sh SAMESTATE PLUGIN
set -uo pipefail

samestate="$(realpath "$1")"
plugin="$(realpath "$2")"
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
ulimit -c 0
# Sanitizers turn a signal into an exit: the process is to die as it would without them.
export ASAN_OPTIONS=handle_segv=0:detect_leaks=0
failures=0
complain() {
  printf 'FAILED: %s\n' "$1"
  failures=$((failures + 1))
}

cases=60
code=0
timeout 120 "$samestate" fuzz --plugin "$plugin" --kernel crashing.gated_delta_rule.recurrent --seed 7 --budget 0 \
  --max-cases "$cases" --timeout 1s --shrink-budget 2s --corpus found --jsonl lines >out 2>err || code=$?
[[ $code -eq 5 ]] || complain "exit $code instead of 5"
count() { grep -oE "[:,] $1 [0-9]+" out | head -1 | grep -oE '[0-9]+$' || echo 0; }
[[ "$(grep -c '"event": *"end"' lines)" -eq $cases ]] || complain 'not every case has a record'
[[ "$(count crash)" -ge 2 ]] || complain 'no crashes'
[[ "$(count timeout)" -ge 1 ]] || complain 'no timeouts'
[[ "$(count pass)" -ge $((cases / 4)) ]] || complain 'the other cases were not judged'
[[ "$(count fail)" -eq 0 ]] || complain 'a crash became a failure'
grep -q 'killed by signal 11' out || complain 'no segmentation fault'
grep -q 'ended its process with code 0' out || complain 'no exit'
grep -q 'no answer after 1 s' out || complain 'no hang'

# Each shrunk line, as it was printed.
lines=0
while read -r command; do
  lines=$((lines + 1))
  wanted="$(grep -B1 -F -- "$command" out | head -1 | sed -E 's/^ *[^ ]+: //')"
  code=0
  eval "timeout 20 \"$samestate\" ${command#samestate }" >repeated 2>&1 || code=$?
  [[ $code -eq 5 ]] || complain "exit $code instead of 5: $command"
  grep -qF -- "verdict   $wanted" repeated || complain "not '$wanted' but '$(grep verdict repeated)': $command"
  line="$(sed -E "s/.*'(.*)'/\\1/" <<<"$command")"
  grep -qxF -- "$line" found/gated_delta_rule.txt || complain "not in the corpus: $line"
done < <(grep -oE "samestate repro .*--plugin .*'" out)
[[ $lines -ge 3 ]] || complain "$lines shrunk lines instead of 3"

# Nothing bigger than it has to be: the shapes are named in the plugin.
grep -q 'T=3 .*dv=3' found/gated_delta_rule.txt || complain 'the segmentation fault is not at its least shape'

# The gate's cases share a process: it ends with the first crash, says which case that was, and a kernel that ends
# the process with code 0 does not pass for a gate that passed.
for found in 'T=3 dk=1 dv=3' 'T=5 Hv=3 dk=1'; do
  mkdir -p "gate $found"
  line="v1 gated_delta_rule form=recurrent $found kernel=crashing.gated_delta_rule.recurrent"
  printf '# kept\n%s\n' "$line" >"gate $found/gated_delta_rule.txt"
  code=0
  timeout 60 "$samestate" gate --plugin "$plugin" --kernel crashing.gated_delta_rule.recurrent --threads 1 \
    --corpus "gate $found" --max-cases 4 --jsonl gate_lines --junit gate.xml >gate_out 2>gate_err || code=$?
  [[ $code -eq 5 ]] || complain "gate: exit $code instead of 5 ($found)"
  grep -qF -- "samestate repro --plugin $plugin '$line'" gate_err || complain "gate: does not name $found"
  [[ "$(grep -c '"event": *"start"' gate_lines)" -eq 1 ]] || complain 'gate: no unmatched start'
  grep -q 'errors="1"' gate.xml || complain 'gate: the crash is not in the JUnit report'
  grep -q 'cases were not run' gate_out || complain 'gate: does not say that it is incomplete'
  rm -f gate.xml
done

# A kernel that never returns ends the gate after --timeout; what had finished is in its reports.
mkdir hang
printf 'v1 gated_delta_rule form=recurrent T=1 dk=1 kernel=crashing.gated_delta_rule.recurrent\n\n%s\n' \
  'v1 gated_delta_rule form=recurrent B=2 T=2 dk=1 heads=tiled kernel=crashing.gated_delta_rule.recurrent' \
  >hang/gated_delta_rule.txt
code=0
timeout 60 "$samestate" gate --plugin "$plugin" --kernel crashing.gated_delta_rule.recurrent --threads 1 \
  --corpus hang --effort 0 --timeout 1 --junit gate.xml --markdown gate.md >gate_out 2>gate_err || code=$?
[[ $code -eq 5 ]] || complain "hang: exit $code instead of 5"
grep -q 'no answer after 1 s' gate_err || complain 'hang: no timeout'
grep -q 'timeout 1, pass 1' gate_out || complain 'hang: what had finished is lost'
grep -q 'B=2 T=2 .*heads=tiled' gate.xml gate.md || complain 'hang: not in the reports'

if [[ $failures -ne 0 ]]; then cat out err gate_err; fi
printf '%s shrunk lines, %s failures\n' "$lines" "$failures"
[[ $failures -eq 0 ]]
