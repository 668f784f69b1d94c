#!/usr/bin/env bash
# The disk is full while a run writes its file: the run ends with what is safe, says so, and its file is
# complete; a search and a sweep continue it once there is room.
# usage: full_disk_test.sh SAMESTATE PLUGIN
set -uo pipefail

plugin="$(realpath "$2")"
source "$(dirname "$0")/prelude.sh"
patience=240

# whole FILE: checks that every line of it is a JSON object, including the last one.
whole() {
  [[ -s "$1" ]] || complain "$1 is empty"
  [[ "$(tail -c 1 "$1" | od -An -c | tr -d ' ')" == '\n' ]] || complain "$1 ends inside a line"
  [[ "$(grep -cvE '^\{.*\}$' "$1")" -eq 0 ]] || complain "$1 has lines that are cut"
}
# full KILOBYTES: runs the command where no file can grow beyond that size.
full() { around=(bash -c "ulimit -f $1; shift 0; exec \"\$@\"" full); }
room() { around=(); }

# The gate is not a pass, the reason is on stderr and in the reports, and its file is complete.
gate=(gate --device cpu --system rms_norm --effort 0.05 --where 'T=..64 D=..256' --threads 2)
full 100
run 2 "${gate[@]}" --jsonl gate.jsonl
holds err 'gate.jsonl too large' || complain 'the reason is not said'
says 'cases were left.'
says ' judged: '
whole gate.jsonl
[[ "$(grep -c '"event":"end"' gate.jsonl)" -ge 20 ]] || complain 'few cases are safe'
room
run 3 compare gate.jsonl gate.jsonl
bad 'gate.jsonl shard 0/1' merge gate.jsonl
# Findings still count: a failure keeps its exit code.
full 100
run 1 gate --plugin "$plugin" --kernel 'wrong.gated_delta_rule.recurrent' --max-cases 400 --jsonl gate.jsonl
whole gate.jsonl
holds err 'gate.jsonl' || complain 'the reason is not said'
# A report that does not fit affects neither the other reports nor the summary.
run 2 "${gate[@]}" --junit gate.xml --markdown gate.md
grep -q 'gate.xml' err || complain 'the report is not named'
says ' judged: '
absent gate.xml
present gate.md
room
# A device that is always full is reported before anything runs.
if [[ -e /dev/full ]]; then
  bad '/dev/full' "${gate[@]}" --jsonl /dev/full
  run 2 "${gate[@]}" --max-cases 3 --junit /dev/full
  says ' judged: '
fi

# A search goes on where it ended.
search=(fuzz --device cpu --system rms_norm --seed 7 --budget 0 --max-cases 400 --checkpoint night.txt --jsonl night.jsonl)
full 40
run 2 "${search[@]}"
says '--resume'
whole night.jsonl
[[ "$(tail -c 1 night.txt | od -An -c | tr -d ' ')" == '\n' ]] || complain 'the checkpoint ends inside a line'
safe="$(($(wc -l <night.txt) - 1))"
[[ $safe -ge 5 && $safe -lt 400 ]] || complain "$safe cases are safe"
room
run 0 "${search[@]}" --resume
says "$safe checkpoint"
[[ "$(wc -l <night.txt)" -eq 401 ]] || complain 'the checkpoint is not whole'
run 0 merge night.jsonl

# So does a sweep.
points=(sweep --quick --series chunk --system retention --out points.jsonl)
full 24
run 2 "${points[@]}"
says 'same command'
whole points.jsonl
room
run 0 "${points[@]}"
says ' to go'
run 0 merge points.jsonl --jsonl all.jsonl

# A merge leaves no part of a file.
full 40
run 2 merge night.jsonl --jsonl big.jsonl
absent big.jsonl
room

# Uses a file system of its own, if this machine lets a user have one.
if unshare -rm true 2>err; then
  mkdir disk
  cat >on_disk <<'S'
set -e
mount -t tmpfs -o size=100k tmpfs disk
code=0
"$@" >out 2>err || code=$?
cp disk/gate.jsonl tmpfs.jsonl
exit "$code"
S
  code=0
  unshare -rm bash on_disk "$samestate" "${gate[@]}" --jsonl disk/gate.jsonl || code=$?
  [[ $code -eq 2 ]] || complain "a full tmpfs: exit $code"
  holds err 'space device' || complain 'a full tmpfs: the reason is not said'
  whole tmpfs.jsonl
  says ' judged: '
fi

finish
