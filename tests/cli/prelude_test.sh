#!/usr/bin/env bash
# Shows that the shared functions of the command's tests can fail: with stand-ins for the command, each
# function complains about what it must notice and about nothing else, and a test that complained does not
# pass. usage: prelude_test.sh
set -uo pipefail

stand_in="$(mktemp)"
prelude="$(realpath "$(dirname "$0")/prelude.sh")"
set -- "$stand_in"
source "$prelude"
trap 'rm -rf "$folder" "$stand_in"' EXIT
chmod +x "$samestate"
wrong=0

# complaints N SCRIPT FUNCTION ARGUMENT...: with a command that does SCRIPT, the function makes N complaints.
complaints() {
  local expected="$1"
  printf '#!/bin/sh\n%s\n' "$2" >"$samestate"
  shift 2
  failures=0
  "$@" >said
  if [[ $failures -ne $expected || "$(grep -c '^FAILED: ' said)" -ne $expected ]]; then
    printf 'FAILED: %s complaints of "%s" instead of %s\n' "$failures" "$*" "$expected"
    cat said
    wrong=$((wrong + 1))
  fi
}

complaints 0 'exit 3' run 3 verb
complaints 1 'exit 3' run 0 verb
complaints 1 'exit 0' run 2 verb
complaints 1 'sleep 9' eval 'patience=0.1 run 0 verb'
complaints 0 'exit 3' attempt verb
complaints 0 'test -z "$HELD"' run 0 verb
complaints 0 'test "$HELD" = yes' eval 'around=(env HELD=yes); run 0 verb; around=()'

complaints 0 'echo "no size here" >&2; exit 2' bad size verb
complaints 1 'printf "no size here\nRun with --help for more\n" >&2; exit 2' bad size verb
complaints 1 'echo "no size here" >&2; exit 1' bad size verb
complaints 1 'echo done; echo "no size here" >&2; exit 2' bad size verb
complaints 1 'printf "no size here\nnor there\n" >&2; exit 2' bad size verb
complaints 1 'echo "no such thing" >&2; exit 2' bad size verb
complaints 1 'printf "no size %01000d\n" 0 >&2; exit 2' bad size verb
complaints 1 'echo "internal error: size" >&2; exit 2' bad size verb
complaints 2 'exit 2' bad size verb

complaints 0 'echo a word' eval 'run 0 verb; says "a word"'
complaints 1 'echo a word >&2' eval 'run 0 verb; says "a word"'
complaints 0 'echo "shard 1/3 of 3 is missing: v1 has 12"' eval 'run 0 verb; says "missing 3 1/3 12"'
complaints 1 'echo "shard 1/3 is missing"' eval 'run 0 verb; says "missing 2/3"'
complaints 1 'echo missing; echo 1/3' eval 'run 0 verb; says "missing 1/3"'
for other in 12 v1 0.1 1.5 21 1s; do complaints 1 "echo $other" eval 'run 0 verb; says 1'; done
for same in 1 'T=1,' '(1)' '1.' '[1, 2]' '-1'; do complaints 0 "echo '$same'" eval 'run 0 verb; says 1'; done
complaints 0 'echo "the limit is 1.5." >&2; exit 2' bad 'limit 1.5' verb
complaints 1 'echo "the limit is 11.5" >&2; exit 2' bad 'limit 1.5' verb
complaints 1 'exit 0' present none
echo x >stays
complaints 0 'exit 0' present stays
: >empty
complaints 1 'exit 0' present empty
complaints 1 'exit 0' absent empty
complaints 0 'exit 0' absent none
(sleep 0.2; printf 'a\nb\nc\n' >>empty) &
complaints 0 'exit 0' eval 'await 2 [ab] empty || complain none'
[[ "$(wc -l <empty)" -eq 3 ]] || wrong=$((wrong + 1))
complaints 1 'exit 0' eval 'moments=2 await 3 [ab] empty || complain none'
echo '60 cases: crash 12, pass 40' >out
[[ "$(count crash) $(count pass) $(count fail)" == '12 40 0' ]] || wrong=$((wrong + 1))

# A test that is killed takes its command along.
if [[ ${#tied[@]} -gt 0 ]]; then
  for signal in TERM KILL; do
    rm -f process
    printf '#!/bin/sh\necho $$ >process\nexec sleep 300\n' >slow
    chmod +x slow
    printf 'source %q "$1"\ncd %q\nrun 0 verb\n' "$prelude" "$PWD" >killed.sh
    TMPDIR="$PWD" bash killed.sh ./slow &
    shell=$!
    await 1 '[0-9]' process || wrong=$((wrong + 1))
    kill -"$signal" "$shell"
    wait "$shell" 2>/dev/null
    for ((waited = 0; waited < 100; ++waited)); do
      kill -0 "$(cat process)" 2>/dev/null || break
      sleep 0.05
    done
    if kill -0 "$(cat process)" 2>/dev/null; then
      printf 'a test that got SIG%s left its command running\n' "$signal"
      kill "$(cat process)"
      wrong=$((wrong + 1))
    fi
  done
fi

# A test that complained does not pass, one that did not does.
failures=1
! finish >said || wrong=$((wrong + 1))
failures=0
finish >said || wrong=$((wrong + 1))

printf '%s failures\n' "$wrong"
[[ $wrong -eq 0 ]]
