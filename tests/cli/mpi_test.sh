#!/usr/bin/env bash
# A run under mpirun: the records of 2 and 3 ranks are those of one process, for gate, fuzz, sweep and
# mutants; a kernel that crashes is a verdict on its rank; a rank, a worker or the whole job that is killed
# costs time but no case; what a rank cannot do is bad input with a message. `gate --resume` is tested first,
# without MPI.
# usage: mpi_test.sh SAMESTATE WRONG_PLUGIN CRASHING_PLUGIN SAMESTATE_MPI|none
set -uo pipefail

wrong="$(realpath "$2")"
crashing="$(realpath "$3")"
wire="$4"
source "$(dirname "$0")/prelude.sh"
patience=120
let_kernels_die

# cases FILE [EVENT]: prints its lines of that event without what differs from run to run, in the order of the
# plan.
cases() {
  grep -F "\"event\":\"${2:-end}\"" "$1" | sed -E 's/,"seconds":[^,}]*//' |
    sed -E 's/^(.*"case":)([0-9]+)(,.*)$/\2 \1\2\3/' | sort -n | cut -d' ' -f2-
}
# same A B [EVENT]: checks that two run files have the same cases, and that there are some.
same() {
  cases "$1" "${3:-end}" >same-a
  cases "$2" "${3:-end}" >same-b
  [[ -s same-a ]] || complain "$1 holds nothing"
  cmp -s same-a same-b || complain "$1 and $2 differ: $(diff same-a same-b | head -4 | cut -c1-300)"
}
# starts FILE: checks that each case begins once.
starts() {
  [[ -z "$(grep -F '"event":"start"' "$1" | grep -oE '"case":[0-9]+' | sort | uniq -d)" ]] ||
    complain "$1: a case starts twice"
}

# --resume of a gate: after a run that was killed at any line, even within one, the file and the summary
# become those of a single run.
alone=(gate --device cpu --system rms_norm --effort 0.05 --where T=..64 --where D=..256)
gate=("${alone[@]}" --threads 2)
timeless() { sed -E 's/[0-9.]+ s on [0-9]+ thread\(s\)(, [0-9]+ ranks, [0-9.]+ MB to rank 0)?/-/' "$1"; }
run 0 "${gate[@]}" --jsonl one.jsonl --markdown one.md
timeless out >one.out
count="$(cases one.jsonl | wc -l)"
for kept in 1 20 $((count + 2)) $((2 * count + 2)); do
  head -n "$kept" one.jsonl >cut.jsonl
  [[ $kept -lt 20 ]] || head -n $((kept + 1)) one.jsonl | tail -n 1 | cut -c1-100 | tr -d '\n' >>cut.jsonl
  run 0 "${gate[@]}" --jsonl cut.jsonl --resume
  same one.jsonl cut.jsonl
  starts cut.jsonl
  timeless out | cmp -s - one.out || complain "another summary after $kept lines"
  [[ "$(grep -c '"event":"run"' cut.jsonl)" -eq 1 ]] || complain 'not one run'
done
# On a full disk, the file keeps what it has, and the run can be continued.
around=(bash -c 'ulimit -f 200; exec "$0" "$@"')
run 2 "${gate[@]}" --jsonl full.jsonl
around=()
[[ "$(cases full.jsonl | wc -l)" -lt $count ]] || complain 'the disk was not full'
run 0 "${gate[@]}" --jsonl full.jsonl --resume
same one.jsonl full.jsonl
rm -f none.jsonl
run 0 "${gate[@]}" --jsonl none.jsonl --resume
same one.jsonl none.jsonl
head -n 300 one.jsonl >cut.jsonl
cp cut.jsonl before.jsonl
bad '--jsonl' "${gate[@]}" --resume
bad "seed '1' '2'" "${gate[@]}" --seed 2 --jsonl cut.jsonl --resume
bad "shard '0/1' '0/2'" "${gate[@]}" --shard 0/2 --jsonl cut.jsonl --resume
sed '1s/"plan":"[0-9a-f]*"/"plan":"0"/' cut.jsonl >other.jsonl
bad "plan '0'" "${gate[@]}" --jsonl other.jsonl --resume
cmp -s cut.jsonl before.jsonl || complain 'a refused file was written to'

if [[ "$wire" == none ]]; then
  OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_RANK=0 bad 'libopenmpi-dev' "${gate[@]}"
  OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_RANK=1 run 0 "${gate[@]}"
  finish || exit 1
  echo 'the rest is skipped: this build found no MPI (libopenmpi-dev, openmpi-bin)'
  exit 77
fi
command -v mpirun >/dev/null || { finish && echo 'the rest is skipped: no mpirun' && exit 77; }

OMPI_COMM_WORLD_SIZE=four bad "'four'" list kernels
SAMESTATE_RANKS=0 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_RANK=1 run 0 list kernels
says 'rms_norm'

run 0 "${gate[@]}" --list
listed="$(wc -l <out)"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
mpi=(mpirun)
mpirun --version 2>&1 | grep -q 'Open MPI' && mpi+=(--oversubscribe)
# ranks N: from now on the command runs on N ranks.
ranks() { around=("${mpi[@]}" -n "$1"); }
# refused WORD ARGUMENT...: checks for exit 2 and WORD on stderr, where mpirun has messages of its own.
refused() {
  local word="$1"
  shift
  run 2 "$@"
  grep -qF -- "$word" err || complain "does not name '$word'"
}

gate=("${alone[@]}")
for n in 2 3; do
  ranks "$n"
  run 0 "${gate[@]}" --jsonl ranks.jsonl
  says ", $n ranks"
  same one.jsonl ranks.jsonl
  starts ranks.jsonl
  timeless out | cmp -s - one.out || complain "another summary on $n ranks"
done
run 0 "${gate[@]}" --list
[[ "$(wc -l <out)" -eq $listed ]] || complain 'more than one rank lists'

# Verdicts of failures and of crashes, and their exit code, are the same.
around=()
fails=(gate --plugin "$wrong" --kernel 'w*.gated_delta_rule.recurrent' --max-cases 150)
run 1 "${fails[@]}" --jsonl one.jsonl
ranks 3
run 1 "${fails[@]}" --jsonl ranks.jsonl
same one.jsonl ranks.jsonl
around=()
mkdir ways
for width in 101 104 106; do
  printf 'v1 gated_delta_rule form=recurrent T=4 dk=4 dv=%s kernel=deadly.gated_delta_rule.recurrent\n\n' "$width"
done >ways/gated_delta_rule.txt
crashes=(gate --plugin "$crashing" --kernel deadly.gated_delta_rule.recurrent --corpus ways --max-cases 40)
run 5 "${crashes[@]}" --jsonl one.jsonl --threads 1
ranks 3
run 5 "${crashes[@]}" --jsonl ranks.jsonl
same one.jsonl ranks.jsonl

# A search and a sweep.
around=()
search=(fuzz --device cpu --system retention --seed 7 --budget 0 --max-cases 400)
attempt "${search[@]}" --jsonl one.jsonl --threads 2
alone="$code"
ranks 3
run "$alone" "${search[@]}" --jsonl ranks.jsonl --checkpoint ranks.txt
same one.jsonl ranks.jsonl
run "$alone" "${search[@]}" --checkpoint ranks.txt --resume
says '400 checkpoint'
around=()
run 0 sweep --quick --series chunk --out one.points
ranks 2
run 0 sweep --quick --series chunk --out ranks.points
same one.points ranks.points point

# Trials of mutants, including one that kills its process and one that hangs, give the rows of one process, in
# its order.
rows() { grep -vE '"seconds"' "$1" >"$1.rows"; }
for chosen in '--system rms_norm --public' '--bug H1.7 --timeout 1'; do
  read -ra list <<<"$chosen"
  around=()
  run 0 mutants "${list[@]}" --json
  rows out && mv out.rows one.rows
  ranks 3
  run 0 mutants "${list[@]}" --json
  rows out
  cmp -s one.rows out.rows || complain "other rows on 3 ranks: $(diff one.rows out.rows | head -4)"
done

# Ranks that are not alike, and verbs whose work ranks do not share, are refused.
refused 'share their work' list kernels
around=("${mpi[@]}" -n 2 bash -c 'exec "$0" "$@" --seed "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}"')
refused "was started as '${gate[*]} --seed 1'" "${gate[@]}"
ranks 2
refused 'no such option' gate --nonsense
refused 'no such kernel' gate --kernel nonsense

# If a rank is lost, its pieces are handed out again, and the record is the same.
# wires RANK: prints the process of samestate-mpi of that rank under this test; judge RANK: its child, which
# judges.
slow=(gate --device cpu --system gated_delta_rule --max-cases 400)
around=()
run 0 "${slow[@]}" --jsonl one.jsonl
wires() {
  local pid
  for pid in $(pgrep -f "samestate-mpi .*"); do
    tr '\0' '\n' 2>/dev/null <"/proc/$pid/environ" | grep -qx "SAMESTATE_TEST=$folder" || continue
    tr '\0' '\n' <"/proc/$pid/environ" | grep -qxE "(OMPI_COMM_WORLD_RANK|PMI_RANK)=$1" && echo "$pid"
  done
}
export SAMESTATE_TEST="$folder"
# strike WHAT: kills it in the midst of a run of three ranks, and puts the run's exit code into $code.
strike() {
  rm -f ranks.jsonl
  timeout "$patience" "${mpi[@]}" -n 3 "$samestate" "${slow[@]}" --jsonl ranks.jsonl >out 2>err </dev/null &
  local job=$!
  await 40 '"event":"end"' ranks.jsonl || complain 'no cases'
  local pid
  pid="$(wires "$2")"
  [[ -n "$pid" ]] || complain "no wire of rank $2"
  case "$1" in
  wire) kill -9 $pid ;;
  judge) pkill -9 -P "$pid" ;;
  worker) pkill -9 -P "$(pgrep -P "$pid")" ;;
  esac
  code=0
  wait "$job" || code=$?
  invocation="${slow[*]} with $1 of rank $2 killed"
}
strike judge 1
[[ $code -eq 0 ]] || complain "exit $code"
grep -q 'rank 1 on .* is lost' err || complain 'does not say what it lost'
same one.jsonl ranks.jsonl
# A worker's case is repeated alone and passes there; if the worker had no case at that moment, it is killed
# again.
for ((blows = 1; blows <= 8; ++blows)); do
  strike worker 2
  [[ $code -eq 0 ]] || break
  same one.jsonl ranks.jsonl
done
[[ $code -eq 4 ]] || complain "exit $code after $blows blows"
[[ "$(cases ranks.jsonl | grep -c '"verdict":"flaky"')" -eq 1 ]] || complain 'not one flaky case'
for rank in 1 0; do
  strike wire "$rank"
  [[ $code -ne 0 ]] || complain 'a job that lost a process of MPI passes'
  [[ "$(cases ranks.jsonl | wc -l)" -lt 400 ]] || complain 'it was killed too late'
  ranks 2
  run 0 "${slow[@]}" --jsonl ranks.jsonl --resume
  same one.jsonl ranks.jsonl
  starts ranks.jsonl
done
finish
