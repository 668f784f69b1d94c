#!/usr/bin/env bash
# Kernels that really crash, exit and hang for some shapes, in every command that runs kernels: each of these
# is the verdict of the right case, and the others are judged. A search gives shrunk lines that a fresh
# process repeats at the first try, and lines for the corpus.
# usage: crash_test.sh SAMESTATE PLUGIN
set -uo pipefail

plugin="$(realpath "$2")"
source "$(dirname "$0")/prelude.sh"
let_kernels_die
patience=120

cases=60
run 5 fuzz --plugin "$plugin" --kernel crashing.gated_delta_rule.recurrent --seed 11 --budget 0 --max-cases "$cases" \
  --where 'T=2.. B=2..9 Hv=1,2,4 dv=2,3,8,16' --timeout 1s --shrink-budget 2s --corpus found --jsonl lines
[[ "$(grep -c '"event": *"end"' lines)" -eq $cases ]] || complain 'not every case has a record'
[[ "$(count crash)" -ge 2 ]] || complain 'no crashes'
[[ "$(count timeout)" -ge 1 ]] || complain 'no timeouts'
[[ "$(count pass)" -ge $((cases / 4)) ]] || complain 'the other cases were not judged'
[[ "$(count fail)" -eq 0 ]] || complain 'a crash became a failure'
holds out 'signal 11' || complain 'no segmentation fault'
holds out 'process code 0' || complain 'no exit'
holds out 'answer 1 s' || complain 'no hang'

# Each shrunk line is as it was printed.
cp out printed
lines=0
while read -r command; do
  lines=$((lines + 1))
  wanted="$(grep -B1 -F -- "$command" printed | head -1 | sed -E 's/^ *[^ ]+: //')"
  patience=20
  eval "run 5 ${command#samestate }"
  grep -qF -- "verdict   $wanted" out || complain "not '$wanted' but '$(grep verdict out)'"
  line="$(sed -E "s/.*'(.*)'/\\1/" <<<"$command")"
  grep -qxF -- "$line" found/gated_delta_rule.txt || complain "not in the corpus: $line"
  grep -A1 -F -- "$command" printed | grep -qE '^    sizes B=[0-9]+ T=[0-9]+ Hk=[0-9]+ Hv=[0-9]+ dk=[0-9]+ dv=[0-9]+$' ||
    complain "no sizes in full under: $line"
done < <(grep -oE "^    samestate repro .*--plugin .*'" printed)
[[ $lines -ge 3 ]] || complain "$lines shrunk lines instead of 3"

# No size is larger than it has to be: the failing shapes are named in the plugin.
grep -q 'T=3 .*dv=3' found/gated_delta_rule.txt || complain 'the segmentation fault is not at its least shape'

# verdict_of PATTERN FILE: verdict and reason of the case whose line holds it, from a file of records.
verdict_of() {
  grep -E '"event": *"(end|point|timing)"' "$2" | grep -E -- "\"line\": *\"[^\"]*$1[ \"]" |
    sed -E 's/.*"verdict": *"([a-z]*)".*"reason": *"([^"]*)".*/\1 \2/'
}
# is VERDICT REASON PATTERN FILE
is() {
  local found
  found="$(verdict_of "$3" "$4")"
  [[ "$(wc -l <<<"$found")" -eq 1 && "$found" == "$1 "*"$2"* ]] || complain "$3: '$found' instead of $1 $2"
}

# The gate goes on after every way to end a process, on one thread and on two of one process. The limit is
# five seconds: the longest of the plan's other cases takes a tenth of a second, and more next to other tests.
deadly=deadly.gated_delta_rule.recurrent
ways=('101|crash|code 3' '102|crash|signal 11' '103|crash|signal 6' '104|crash|signal 6' '105|crash|code 0'
  '106|crash|signal 11' '107|timeout|no answer after 5 s')
# A sanitizer reports a damaged heap in its own words.
grep -q __asan_init <(nm "$samestate") && ways=("${ways[@]:0:1}" "${ways[@]:3}")
mkdir ways
for way in "${ways[@]}"; do
  printf 'v1 gated_delta_rule form=recurrent T=4 dk=4 dv=%s kernel=%s\n\n' "${way%%|*}" "$deadly"
done >ways/gated_delta_rule.txt
for threads in 1 2; do
  patience=120
  run 5 gate --plugin "$plugin" --kernel "$deadly" --threads "$threads" --corpus ways --effort 0 --timeout 5 \
    --jsonl gate_lines --junit gate.xml --markdown gate.md
  for way in "${ways[@]}"; do
    IFS='|' read -r width verdict reason <<<"$way"
    is "$verdict" "$reason" "dv=$width" gate_lines
    grep -q "dv=$width" gate.xml || complain "gate: dv=$width is not in the JUnit report"
  done
  begun="$(grep -c '"event": *"start"' gate_lines)"
  [[ "$(grep -c '"event": *"end"' gate_lines)" -eq $begun ]] || complain 'gate: not every case has a record'
  [[ "$(grep -cE '"verdict": *"(pass|vacuous)"' gate_lines)" -eq $((begun - ${#ways[@]})) ]] ||
    complain "gate: not all other cases were judged: $(grep -E '"verdict": *"' gate_lines | grep -vE '"verdict": *"(pass|vacuous)"' | cut -c1-400)"
  [[ $begun -ge 40 ]] || complain "gate: only $begun cases"
done

# If threads meet in a kernel that is not made for it, the case is flaky, and the other case is named; alone
# it passes.
patience=60
unsafe=(gate --plugin "$plugin" --kernel unsafe.gated_delta_rule.recurrent --effort 0 --max-cases 8)
run 4 "${unsafe[@]}" --threads 2 --jsonl gate_lines
[[ "$(grep -c '"verdict": *"flaky"' gate_lines)" -ge 2 ]] || complain 'unsafe: threads did not meet'
grep -qE "signal 11.*with 'v1 gated_delta_rule [^']*' under way on other threads" gate_lines ||
  complain 'unsafe: the other case is not named'
run 0 "${unsafe[@]}" --threads 1

# A kernel that always hangs costs its time limit and no more.
patience=120
run 5 gate --plugin "$plugin" --kernel hanging.gated_delta_rule.recurrent --threads 4 --timeout 0.4 --effort 0 \
  --jsonl gate_lines
hung="$(grep -c '"verdict": *"timeout"' gate_lines)"
[[ $hung -ge 20 && $hung -le 24 ]] || complain "hanging: $hung timeouts instead of 20"
grep -q 'has crashed or hung in 2[0-4] cases' gate_lines || complain 'hanging: does not say why the rest is skipped'

# After an interrupt, running cases are finished and the reports are written, but the result is not a pass.
rm -f gate_lines gate.xml
invocation='gate, interrupted'
"$samestate" gate --device cpu --system rms_norm --threads 1 --jsonl gate_lines --junit gate.xml >out 2>err &
gate=$!
await 1 '"event": *"end"' gate_lines || complain 'interrupt: no record'
kill -TERM "$gate"
code=0
wait "$gate" || code=$?
[[ $code -eq 3 ]] || complain "interrupt: exit $code instead of 3"
says 'Interrupted before'
ended="$(grep -c '"event": *"end"' gate_lines)"
[[ $ended -ge 1 && "$(grep -c '"event": *"start"' gate_lines)" -eq $ended ]] || complain 'interrupt: a case was lost'
grep -q "tests=\"$((ended + 1))\"" gate.xml || complain 'interrupt: the JUnit report is of other cases'

# A sweep, on one thread and on two.
for threads in 1 2; do
  rm -f points
  run 5 sweep --quick --series width --plugin "$plugin" --kernel deadly.gated_delta_rule.chunked --timeout 1 \
    --threads "$threads" --out points
  is crash 'signal 11' 'dk=16 state=random kernel=deadly[^ ]*' points
  is crash 'code 0' 'dk=32 state=random kernel=deadly[^ ]*' points
  is timeout 'no answer after 1 s' 'T=[0-9]* Hv=2 state=random kernel=deadly[^ ]*' points
  is pass '' 'dk=8 state=random kernel=deadly[^ ]*' points
done

# Bench has a row for every case, and times where the kernel survived.
bench=()
for way in "${ways[@]}"; do
  bench+=(--case "v1 gated_delta_rule form=recurrent T=4 dk=4 dv=${way%%|*} kernel=$deadly")
done
bench+=(--case "v1 gated_delta_rule form=recurrent T=4 dk=4 dv=9 kernel=$deadly")
run 5 bench --device cpu --threads 1 --seconds 0.01 --plugin "$plugin" --timeout 5 "${bench[@]}" --jsonl times
for way in "${ways[@]}"; do
  IFS='|' read -r width verdict reason <<<"$way"
  is "$verdict" "$reason" "dv=$width" times
done
is pass '' dv=9 times

# Repro uses the same words. A run file is judged in a process of its own too.
patience=60
for way in "${ways[@]}"; do
  IFS='|' read -r width verdict reason <<<"$way"
  run 5 repro --plugin "$plugin" --timeout 5 "v1 gated_delta_rule form=recurrent T=4 dk=4 dv=$width kernel=$deadly"
  grep -qE "^verdict   $verdict: .*$reason" out || complain "not $verdict $reason"
done
attempt repro 'v1 gated_delta_rule T=8192 dk=64' --dump run.safetensors
run 5 judge run.safetensors --timeout 0.001
grep -q '^verdict   timeout: no answer after 0.001 s' out || complain 'no timeout'

# The output of a plugin goes to a file that is named once, whichever verb calls it, and its last words are
# shown with the crash.
chatty=(--plugin "$plugin" --kernel chatty.gated_delta_rule.recurrent)
small=(--where 'T=..64 dv=..16')
says_line='v1 gated_delta_rule form=recurrent T=9 dk=8 dv=8 kernel=chatty.gated_delta_rule.recurrent'
log_of() { cat out err | sed -n 's/.*what the kernel printed: \([^ ]*\) (.*/\1/p'; }
# logs MOST: checks that the run itself wrote no more than that, and that the file that it names has what was
# printed.
logs() {
  local log
  log="$(log_of)"
  [[ "$(cat out err | wc -c)" -lt "$1" ]] || complain 'prints what the plugin prints'
  [[ "$(wc -l <<<"$log")" -eq 1 ]] && grep -q '^\.\.\.' "$log" && grep -q '^width ' "$log" || complain "no file of it: '$log'"
  rm -f "$log"
}
run 0 gate "${chatty[@]}" "${small[@]}" --max-cases 12 && logs 20000
run 0 fuzz "${chatty[@]}" "${small[@]}" --budget 0 --max-cases 10 --seed 3 && logs 20000
run 0 card "${chatty[@]}" && logs 20000
run 0 diagnose "${chatty[@]}" && logs 20000
run 0 tolerance --plugin "$plugin" "$says_line" && logs 20000
attempt bench --plugin "$plugin" --case "$says_line" && logs 20000
run 0 sweep --plugin "$plugin" --kernel chatty.gated_delta_rule.chunked --out points --where 'T=..128' && logs 20000
run 5 gate "${chatty[@]}" --where 'dv=106 T=..64' --max-cases 3 && logs 20000
says "signal 11 106"
# A single line shows the beginning of the output as it comes, and then no more than that.
run 0 repro --plugin "$plugin" "$says_line"
grep -q '^\.\.\.\.' err || complain 'repro does not show what the plugin prints'
holds err '16 kB' || complain 'says nothing of the rest'
logs 40000
# A file of the caller's is appended to, and kept.
echo before >mine.log
SAMESTATE_SUBJECT_LOG="$PWD/mine.log" attempt card "${chatty[@]}"
[[ $code -eq 0 && "$(head -1 mine.log)" == before ]] && grep -q '^width ' mine.log || complain 'the file of SAMESTATE_SUBJECT_LOG'
# A Python file that is named as a library is refused as one.
printf 'def f(): pass\n' >mine.py
bad 'python:FILE.py:FUNCTION' gate --subject mine.py
# A plugin that prints nothing leaves no file and no word of one.
run 0 card --plugin "$plugin" --kernel crashing.gated_delta_rule.recurrent
[[ -z "$(log_of)" ]] || complain "names a file of nothing: $(log_of)"

finish
