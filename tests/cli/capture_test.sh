#!/usr/bin/env bash
# Calls of a running program, recorded by the Python package and judged by the command alone: correct ones
# pass, a planted fault of one per cent fails and is located, and irregular folders give exit 2 or a message.
# usage: capture_test.sh SAMESTATE PYTHON
set -uo pipefail

here="$(realpath "$(dirname "$0")")"
python="$2"
source "$here/prelude.sh"
"$python" -c 'import numpy' 2>/dev/null || { printf 'skipped: %s has no numpy\n' "$python"; exit 77; }
package="$here/../../python"
export PYTHONPATH="$package:$package/tests" PYTHONDONTWRITEBYTECODE=1

# record DIR CALLS [FAULT]
record() {
  SAMESTATE_TEST_FAULT="${3:-}" "$python" -m samestate.capture --target captured_kernels:gated_delta_rule \
    --as 'system=gated_delta_rule&form=recurrent' --dir "$1" -- \
    "$python" "$package/tests/captured_kernels.py" "$2" >program 2>said || complain "the program failed: $(tail -1 said)"
  grep -q "$2 of $2 calls recorded" said || complain "recorded: $(tail -1 said)"
}

record calls 3
around=(env PATH=/nowhere)   # the command needs no Python
run 0 judge calls --jsonl calls.jsonl --junit calls.xml
says 'captured_kernels.gated_delta_rule.recurrent pass ratio'
says 'right kernel within'
says '3 calls'
says 'final state'
[[ "$(grep -c '"event":"end"' calls.jsonl)" -eq 3 ]] || complain 'not three records'
grep -q '"captured":"call-' calls.jsonl || complain 'no call in the record'
grep -q '"allowed_relative_rms"' calls.jsonl || complain 'no numbers in the record'
present calls.xml
run 0 report calls.jsonl --no-plots --out page
run 0 judge calls --json
says '"pass": 3'
run 0 judge calls --budget 0.001
says 'of 8 heads: '
# The calls are declared again, and then declared as something that they are not.
run 0 judge calls --system gated_delta_rule --form recurrent --function captured_kernels:gated_delta_rule --ignore fault
run 1 judge calls --system gated_delta_rule --form recurrent --scale dv
run 1 judge calls --system gated_delta_rule --form recurrent --heads tiled
run 3 judge calls --system gated_delta_rule --form recurrent --state vk
says 'unsupported'
run 3 judge calls --system gated_delta_rule --form recurrent --contract bf16
says 'dtypes'
bad 'ln log2' judge calls --system gated_delta_rule --form recurrent --decay cubic
bad '--system --form' judge calls --system gated_delta_rule
bad 'no call of it' judge calls --function m:f
bad '--system --form' judge calls --decay ln
bad 'OURS=THEIRS' judge calls --argument q
bad 'captured calls' judge "$folder/none" --decay ln

around=()
record wrong 2 'short beta'
run 1 judge wrong
says '  fail  ratio'
says 'max abs'
says 'reason'
record tail 1 tail
run 1 judge tail
says 'token 69'
# The gate that failed names its own place, error and limit, and what the values look like.
grep -qE '^  gate        o of sequence [01], head [0-3], token 69: error .* allowed' out || complain 'no line of the gate'
says 'only last token'

printf '{"event":"call","fun' >>calls/calls.jsonl
run 0 judge calls
says '1 line manifest'
file="$(ls calls/*.safetensors | head -1)"
truncate -s -8 "$file"
# One file that cannot be read does not end the judgement of the others.
run 2 judge calls
says '1 3 calls'
says 'pass 2'
grep -q "$(basename "$file").*cut" err || complain 'does not name the file that is cut'
rm "$file"
run 2 judge calls --jsonl left.jsonl
grep -q "$(basename "$file").*not found" err || complain 'does not name the file that is gone'
grep -q '"not_complete":"1 of 3' left.jsonl || complain 'the record does not say that a call is missing'
rm calls/*.safetensors
bad 'not found' judge calls
# A file of the folder is not a run file, and a folder without a call shows nothing.
bad 'samestate judge ' judge "$(ls wrong/*.safetensors | head -1)"
head -1 wrong/calls.jsonl >none.jsonl && mkdir none && mv none.jsonl none/calls.jsonl
run 3 judge none
grep -q 'never called' err || complain 'does not say that nothing was recorded'

finish
