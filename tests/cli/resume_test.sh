#!/usr/bin/env bash
# A run is not continued with a plugin of other bytes: points of a sweep, cases of a checkpoint. usage:
# resume_test.sh SAMESTATE PLUGIN
set -uo pipefail

plugin="$(realpath "$2")"
source "$(dirname "$0")/prelude.sh"

cp "$plugin" mine.so
kernel=(--plugin ./mine.so --kernel right.gated_delta_rule.chunked --contract bf16+beta_k:bf16)
sweep=(sweep --quick "${kernel[@]}" --where chunk=16 --out points.jsonl)
search=(fuzz "${kernel[@]}" --seed 1 --budget 0 --max-cases 4 --checkpoint cases.txt)
run 0 "${sweep[@]}"
run 0 "${sweep[@]}"
says '0 go'
run 0 "${search[@]}"
run 0 "${search[@]}" --resume
says '4 checkpoint'

# A search that ended before its checkpoint contained anything begins anew, from no file, an empty one and
# half a first line.
head -c 20 cases.txt >half.txt
: >empty.txt
for file in absent empty half; do
  run 0 fuzz "${kernel[@]}" --seed 1 --budget 0 --max-cases 4 --checkpoint $file.txt --resume
  holds err "$file.txt begins" || complain 'does not say that it begins'
  run 0 fuzz "${kernel[@]}" --budget 0 --max-cases 4 --checkpoint $file.txt --resume
  says '4 checkpoint'
done
# Half a line of something else must not be removed.
printf 'my notes' >foreign.txt
bad 'foreign.txt' fuzz "${kernel[@]}" --seed 1 --budget 0 --max-cases 4 --checkpoint foreign.txt --resume
[[ "$(cat foreign.txt)" == 'my notes' ]] || complain 'foreign.txt was written to'

printf x >>mine.so
cp points.jsonl before.jsonl
bad '--restart' "${sweep[@]}"
cmp -s points.jsonl before.jsonl || complain 'points were written all the same'
run 0 "${sweep[@]}" --restart
bad 'cases.txt' "${search[@]}" --resume

# A file of something else is not continued either.
"$samestate" gate --system rms_norm --max-cases 2 --jsonl gate.jsonl >/dev/null 2>&1
for foreign in gate.jsonl mine.txt; do
  [ "$foreign" = gate.jsonl ] || echo 'my notes' >"$foreign"
  cp "$foreign" before.jsonl
  bad "$foreign" sweep --quick --where chunk=16 --out "$foreign"
  cmp -s "$foreign" before.jsonl || complain "$foreign was written to"
done

# For a gate, the message says what the file has, what is expected and the remedy, and the file is not
# touched.
gate=(gate --system rms_norm --max-cases 2)
run 0 "${gate[@]}" --jsonl whole.jsonl
cat whole.jsonl whole.jsonl >twice.jsonl
grep '"end"' whole.jsonl >headless.jsonl
echo 'my notes' >notes.jsonl
cp points.jsonl sweep.jsonl
echo '{"a": 1}' >other.jsonl
for file in twice headless notes sweep other; do
  cp $file.jsonl before.jsonl
  bad "$file.jsonl" "${gate[@]}" --jsonl $file.jsonl --resume
  grep -qE "found|$file.jsonl:[0-9]+: " err || complain 'does not say what was found'
  grep -q 'leave --resume out\|name ' err || complain 'no remedy'
  cmp -s $file.jsonl before.jsonl || complain "$file.jsonl was written to"
done
bad '2 runs' "${gate[@]}" --jsonl twice.jsonl --resume
bad 'sweep run' "${gate[@]}" --jsonl sweep.jsonl --resume
bad "max-cases '2' '3'" gate --system rms_norm --max-cases 3 --jsonl whole.jsonl --resume
bad '--resume' gate --system l2norm --max-cases 2 --jsonl whole.jsonl --resume
# A file that is empty or does not exist contains nothing yet: the run begins, and says so.
: >empty.jsonl
for file in empty absent; do
  run 0 "${gate[@]}" --jsonl $file.jsonl --resume
  holds err "$file.jsonl 2 run" || complain 'does not say that it begins anew'
done
run 0 "${gate[@]}" --jsonl empty.jsonl --resume
[[ ! -s err ]] || complain 'speaks of a run that it went on with'

finish
