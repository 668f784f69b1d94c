#!/usr/bin/env bash
# The command at a terminal: Ctrl-C ends every long verb with its summary and reports, a pipe that is closed
# early blames no kernel, the progress line fits the terminal and is gone before anything else is printed, and
# colours are used only where a terminal supports them.
# usage: terminal_test.sh SAMESTATE
set -uo pipefail

source "$(dirname "$0")/prelude.sh"

# interrupted SIGNAL CODE FILE ARGUMENT...: sends the signal when FILE has two records.
interrupted() {
  local signal="$1" expected="$2" file="$3" code=0
  shift 3
  rm -f "$file"
  invocation="$*"
  "$samestate" "$@" >out 2>err </dev/null &
  local process=$!
  await 3 . "$file" || complain "no two records in $file"
  kill "-$signal" "$process" 2>/dev/null || complain 'it was over before the signal came'
  wait "$process" || code=$?
  [[ $code -eq $expected ]] || complain "$signal gave exit $code instead of $expected"
}
set -m # each in a process group of its own, as in a terminal

interrupted INT 3 gate.jsonl gate --device cpu --system retention --threads 1 --jsonl gate.jsonl --junit gate.xml --markdown gate.md
grep -q '^Interrupted before [0-9]* of ' out || complain 'the gate does not say that it was interrupted'
says ' judged: '
[[ -s gate.xml && -s gate.md ]] || complain 'the interrupted gate left no reports'
grep -q '</testsuites>' gate.xml || complain 'the JUnit file is cut off'
interrupted TERM 3 fuzz.jsonl fuzz --system retention --budget 10m --jsonl fuzz.jsonl --threads 1
grep -q '^Interrupted' out || complain 'fuzz does not say that it was interrupted'
interrupted INT 3 sweep.jsonl sweep --threads 1 --out sweep.jsonl
grep -q '^Interrupted before .* the same command goes on' out || complain 'sweep does not say that it was interrupted'
interrupted INT 3 bench.jsonl bench --device cpu --quick --seconds 0.2 --threads 1 --judge-heads 1 --jsonl bench.jsonl
grep -q 'interrupted after' err || complain 'bench does not say that it was interrupted'
says 'median'

# timeout(1) signals the whole process group, but the workers do not count as crashed kernels.
code=0
invocation='gate --device cpu --system retention --threads 1'
timeout --signal=TERM 5 "$samestate" gate --device cpu --system retention --threads 1 >out 2>err </dev/null || code=$?
[[ $code -eq 124 ]] || complain "the gate was over before timeout: $code"
grep -qE 'crash|flaky|signal' out err && complain "a signal to the group is the fault of a kernel: $(grep -hE 'crash|flaky|signal' out err | head -1)"

# The reader of a pipe goes away.
set +m
for verb in 'gate --device cpu --system l2norm --max-cases 20' 'list mutants' 'gate --device cpu --system retention --list' 'explain'; do
  invocation="$verb | head"
  # shellcheck disable=SC2086
  "$samestate" $verb 2>err | head -1 >/dev/null
  code=${PIPESTATUS[0]}
  [[ $code -eq 0 || $code -eq 141 ]] || complain "exit $code"
  grep -qiE 'kernel|internal error|crash' <(grep -v '^samestate: planning, ' err) && complain 'the reader that went away is the fault of something'
done
# The same if the parent process ignored SIGPIPE.
invocation='list mutants | head, SIGPIPE ignored'
(trap '' PIPE; "$samestate" list mutants 2>err; echo $? >code) | head -1 >/dev/null
grep -qi 'internal error' err && complain 'an internal error'

# A narrow and a wide terminal.
invocation='gate, on a terminal'
if command -v script >/dev/null; then
  for width in 40 60 140; do
    script -qec "stty cols $width; NO_COLOR= TERM=xterm '$samestate' gate --device cpu --system l2norm --max-cases 30 --threads 1" typed >/dev/null </dev/null
    # The text that was drawn between two carriage returns, without the codes.
    longest="$(tr '\r' '\n' <typed | grep 'cases/s' | sed 's/\x1b\[[0-9;]*[A-Za-z]//g' | awk '{ if (length($0) > n) n = length($0) } END { print n + 0 }')"
    [[ $longest -gt 0 && $longest -lt $width ]] || complain "the progress line has $longest columns of $width"
    grep -q 'cases/s.*judged' <(tr '\r' '\n' <typed) && complain 'the summary is glued to the progress line'
    grep -q $'\x1b\[32m' typed || complain 'no colour on a terminal'
  done
  script -qec "NO_COLOR=1 TERM=xterm '$samestate' gate --device cpu --system l2norm --max-cases 5" typed >/dev/null </dev/null
  grep -q $'\x1b\[[0-9]*m' typed && complain 'colour although NO_COLOR is set'
  script -qec "TERM=dumb '$samestate' gate --device cpu --system l2norm --max-cases 5" typed >/dev/null </dev/null
  grep -q $'\x1b\[[0-9]*m' typed && complain 'colour on a dumb terminal'
  script -qec "TERM=xterm '$samestate' mutants --bug M13 --effort 0" typed >/dev/null </dev/null
  grep -q 'cases/s.*killed' <(tr '\r' '\n' <typed) && complain 'the score is glued to the progress line'
fi
# The help of every verb fits 80 columns; a table takes the terminal's width and breaks no word.
for verb in '' $("$samestate" --help | sed -n '/Subcommands:/,$p' | awk '/^  [a-z]+ / { print $1 }'); do
  # shellcheck disable=SC2086
  attempt $verb --help
  longest="$(awk '{ if (length($0) > n) n = length($0) } END { print n + 0 }' out)"
  [[ $code -eq 0 && $longest -gt 20 && $longest -le 80 ]] || complain "a line of $longest columns"
done
# Where there is no terminal, a table has 80 columns.
for what in systems forms kernels contracts points laws regimes keys mutants coverage 'kernels --long' 'contracts --long'; do
  # shellcheck disable=SC2086
  run 0 list $what
  longest="$(LC_ALL=C.UTF-8 wc -L <out)"
  [[ $longest -le 80 ]] || complain "a line of $longest columns"
done
run 0 bench --device cpu --seconds 0.01 --threads 1 --case 'v1 retention T=9 dk=8' --kernel cpu.retention.chunked
longest="$(grep -v '^Ceilings' out | LC_ALL=C.UTF-8 wc -L)"
[[ $longest -gt 20 && $longest -le 80 ]] || complain "a line of $longest columns"
if command -v script >/dev/null; then
  script -qec "stty cols 60; TERM=dumb '$samestate' gate --device cpu --system retention --where T=..0 --max-cases 20" typed >/dev/null </dev/null
  longest="$(tr '\r' '\n' <typed | sed 's/\x1b\[[0-9;]*[A-Za-z]//g' | grep -vE '^Script|samestate repro|^samestate: |worst ratio' |
    LC_ALL=C.UTF-8 wc -L)"
  [[ $longest -gt 30 && $longest -le 60 ]] || complain "the summary of a gate has $longest columns of 60"
  "$samestate" list laws >plain
  script -qec "stty cols 100; '$samestate' list laws" typed >/dev/null </dev/null
  longest="$(tr -d '\r' <typed | grep -v '^Script' | awk '{ if (length($0) > n) n = length($0) } END { print n + 0 }')"
  [[ $longest -gt 60 && $longest -le 100 ]] || complain "list laws has $longest columns of 100"
  diff <(tr -s ' \r\n' '\n' <plain | sort) <(grep -v '^Script' typed | tr -s ' \r\n' '\n' | sort) >/dev/null || complain 'a word of list laws is broken'
  script -qec "NO_COLOR= TERM=xterm '$samestate' repro 'v1 retention T=5 dk=4'" typed >/dev/null </dev/null
  grep -q $'^verdict   \x1b\[32mpass' typed || complain 'a pass is not green'
fi
attempt gate --device cpu --system l2norm --max-cases 5
grep -q $'\x1b' out err && complain 'codes in a pipe'

finish
