#!/usr/bin/env bash
# Shards and their merge, for gate, fuzz, sweep and mutants: the union of the shards is the whole for any
# number of them; the merged record, reports and exit code are those of a single run; and parts that do not
# make one run are refused by name.
# usage: merge_test.sh SAMESTATE WRONG_PLUGIN RIGHT_PLUGIN DOCS
set -uo pipefail

plugin="$(realpath "$2")"
right="$(realpath "$3")"
docs="$(realpath "$4")"
source "$(dirname "$0")/prelude.sh"
patience=240

# cases FILE: prints its `end` lines without what differs from run to run, in the order of the plan.
cases() {
  grep -F '"event":"end"' "$1" | sed -E 's/,"seconds":[^,}]*//' | sed -E 's/^(.*"case":)([0-9]+)(,.*)$/\2 \1\2\3/' |
    sort -n | cut -d' ' -f2-
}
# timeless FILE: prints a report without its times.
timeless() { sed -E 's/ time="[^"]*"//g; s/ in (one run|[0-9]+ shards), the longest [0-9.]+ s,| on [0-9]+ thread\(s\),/,/; s/[0-9.]+ s\b//g' "$1"; }
# same A B: checks that both have the same contents, and are not empty.
same() {
  [[ -s "$1" ]] || complain "$1 is empty"
  cmp -s "$1" "$2" || complain "$1 and $2 differ: $(diff "$1" "$2" | head -4 | cut -c1-300)"
}

# The union of the shards is the plan, no case is in two shards, and all have about the same work.
# tests/harness/cases/shards_test.cpp has more numbers of shards: each run here makes its plan again.
plan=(gate --device cpu --system rms_norm --effort 0.1 --list)
run 0 "${plan[@]}"
sort out >whole
for n in 2 7; do
  : >parts
  for ((i = 0; i < n; ++i)); do
    run 0 "${plan[@]}" --shard "$i/$n"
    cat out >>parts
  done
  sort parts | cmp -s - whole || complain "the shards of $n are not the whole"
done
least=999999999 most=0
for i in 0 1 2; do
  run 0 gate --kernel cpu.retention.recurrent --list --shard "$i/3" --json
  work="$(grep -oE '"work": [0-9.e+-]+' out | awk '{ sum += $2 + 0.01 } END { printf "%d", 1000 * sum }')"
  [[ $work -lt $least ]] && least=$work
  [[ $work -gt $most ]] && most=$work
done
[[ $((1000 * (most - least))) -le $most ]] || complain "the shards have work from $least to $most"

# A kernel that passes, from all shards: record, reports and summary are those of a single run.
gate=(gate --device cpu --system rms_norm --effort 0.02 --where 'T=..64 D=..256' --threads 2)
run 0 "${gate[@]}" --jsonl one.jsonl --junit one.xml --markdown one.md --coverage one.cov
timeless out >one.out
cases one.jsonl >one.cases
for n in 3 7; do
  files=()
  for ((i = n - 1; i >= 0; --i)); do
    run 0 "${gate[@]}" --shard "$i/$n" --jsonl "part-$n-$i.jsonl"
    files+=("part-$n-$i.jsonl")
  done
  run 0 merge "${files[@]}" --jsonl all.jsonl --junit all.xml --markdown all.md --coverage all.cov
  timeless out >all.out
  cases all.jsonl >all.cases
  same all.cases one.cases
  grep -F '"event":"end"' all.jsonl | sed -E 's/,"seconds":[^,}]*//' >all.order
  same all.order one.cases
  same all.cov one.cov
  same all.out one.out
  for kind in xml md; do
    timeless all.$kind >all.timeless
    timeless one.$kind >one.timeless
    same all.timeless one.timeless
  done
  absent all.jsonl.partial
done
# A missing folder is created for every output, as in gate, but not for outputs that are refused.
run 0 merge "${files[@]}" --jsonl new/deep/all.jsonl
present new/deep/all.jsonl
bad 'are missing' merge part-3-0.jsonl --jsonl never/all.jsonl --junit never/all.xml
absent never
# The merged file is a run file like the one run's: it compares as equal and merges to itself.
run 0 compare one.jsonl all.jsonl
run 0 merge all.jsonl --jsonl again.jsonl
cases again.jsonl >again.cases
same again.cases one.cases
# Some pairs of this kernel show only in cases that a single run adds at its end: the merge adds the same
# cases.
pairs=(gate --device cpu --kernel cpu.short_convolution.scatter --effort 0.04 --threads 2)
run 0 "${pairs[@]}" --jsonl one.jsonl --coverage one.cov
cases one.jsonl >one.cases
for i in 0 1; do run 0 "${pairs[@]}" --shard "$i/2" --jsonl "pairs-$i.jsonl"; done
[[ "$(cat pairs-?.jsonl | grep -c '"event":"end"')" -lt "$(wc -l <one.cases)" ]] || complain 'the one run added no case'
run 0 merge pairs-?.jsonl --jsonl all.jsonl --coverage all.cov
cases all.jsonl >all.cases
same all.cases one.cases
same all.cov one.cov
run 0 merge pairs-?.jsonl --no-again
says '--no-again'

# 16 shards of two or three cases.
small=(gate --device cpu --system rms_norm --max-cases 40)
run 0 "${small[@]}" --jsonl one.jsonl
cases one.jsonl >one.cases
for ((i = 0; i < 16; ++i)); do "$samestate" "${small[@]}" --shard "$i/16" --jsonl "few-$i.jsonl" >out 2>err || [[ $? -eq 3 ]] || complain "shard $i of 16: $(cat err)"; done  # 3: its cases are vacuous
run 0 merge few-*.jsonl --jsonl all.jsonl
cases all.jsonl >all.cases
same all.cases one.cases

# A wrong kernel: the exit code, the failures by kind and what they look like.
wrong=(gate --plugin "$plugin" --kernel 'w*.gated_delta_rule.recurrent' --effort 0.02 --where 'T=..64 dk=..32 dv=..32 Hv=..8 form=recurrent law=none' --max-cases 40)
run 1 "${wrong[@]}" --jsonl one.jsonl
cases one.jsonl >one.cases
for i in 0 1 2; do run 1 "${wrong[@]}" --shard "$i/3" --jsonl "wrong-$i.jsonl"; done
run 1 merge wrong-?.jsonl --jsonl all.jsonl --plugin "$plugin"
says 'failures of'
cases all.jsonl >all.cases
same all.cases one.cases
run 1 merge wrong-?.jsonl --json
grep -q '"verdict": "fail"' out || complain 'no failure in the JSON'
# Without the plugin the verdict stands; results that need it are named or requested.
run 1 merge wrong-?.jsonl
bad '--plugin' merge wrong-?.jsonl --coverage x.json
# A shard of a plugin with other bytes is refused.
cp "$plugin" wrong.so && printf x >>wrong.so && cp wrong.so "$(basename "$plugin")"
run 1 gate --plugin "./$(basename "$plugin")" "${wrong[@]:3}" --shard 1/3 --jsonl other.jsonl
bad 'the plugins' merge wrong-0.jsonl other.jsonl wrong-2.jsonl
# Cases that are judged even if a shard has only a few.
right_of=(--kernel 'right.*' --regime normal,slow,spiky,padded --form chunked --effort 0.02 --where 'T=..64' --max-cases 60)
# If one shard fails and two pass, the whole fails; a single run's limit of too few judged cases applies to
# all together.
run 0 gate --plugin "$right" "${right_of[@]}" --shard 0/2 --jsonl r0.jsonl
run 0 gate --plugin "$right" "${right_of[@]}" --shard 1/2 --jsonl r1.jsonl
sed -E '0,/"verdict":"pass"/s//"verdict":"fail"/' r1.jsonl >f1.jsonl
run 0 merge r0.jsonl r1.jsonl
run 1 merge r0.jsonl f1.jsonl

# A baseline: a ratio that grew in a shard has grown in the whole.
run 0 gate --plugin "$right" "${right_of[@]}" --write-baseline base.json
sed -E 's/: (0\.[1-9][0-9]*),?$/: 0.0001,/; s/,(\s*)$/,\1/' base.json | sed -E ':a;N;$!ba;s/,(\n *\})/\1/g' >low.json
for i in 0 1; do attempt gate --plugin "$right" "${right_of[@]}" --shard "$i/2" --jsonl "grown-$i.jsonl" --baseline low.json; done
run 1 gate --plugin "$right" "${right_of[@]}" --baseline low.json
grew="$(grep -oE '[0-9]+ compared, [0-9]+ grew' out)"
run 1 merge grown-?.jsonl
says "$grew"
run 0 merge r0.jsonl r1.jsonl --write-baseline merged.json
same merged.json base.json

# Files that do not form a single run are refused.
bad 'shard 1/3' merge part-3-0.jsonl part-3-2.jsonl
bad '1/7 2/7' merge part-7-0.jsonl
bad 'part-3-1.jsonl' merge part-3-0.jsonl part-3-1.jsonl part-3-1.jsonl part-3-2.jsonl
cp part-3-1.jsonl copy.jsonl
bad 'shard 1/3 part-3-1.jsonl copy.jsonl' merge part-3-*.jsonl copy.jsonl
bad 'number shards 3' merge part-3-0.jsonl part-7-1.jsonl
run 0 "${gate[@]}" --seed 2 --shard 1/3 --jsonl seed.jsonl
bad '--seed 1 2' merge part-3-0.jsonl seed.jsonl part-3-2.jsonl
sed '1s/"version":"[^"]*"/"version":"0.0.9"/' part-3-1.jsonl >version.jsonl
bad 'written by samestate 0.0.9' merge part-3-0.jsonl version.jsonl part-3-2.jsonl
sed '1s/"plan":"[^"]*"/"plan":"0123456789abcdef"/' part-3-1.jsonl >plan.jsonl
bad 'hash plan' merge part-3-0.jsonl plan.jsonl part-3-2.jsonl
head -c -100 part-3-1.jsonl >cut.jsonl
bad 'cut.jsonl shard 1/3' merge part-3-0.jsonl cut.jsonl part-3-2.jsonl
sed '0,/"event":"end"/{/"event":"end"/d}' part-3-1.jsonl >line.jsonl
bad 'line.jsonl: ' merge part-3-0.jsonl line.jsonl part-3-2.jsonl
sed '0,/"event":"end","case":/s//"event":"end","case":9/' part-3-1.jsonl >number.jsonl
bad 'number.jsonl: ' merge part-3-0.jsonl number.jsonl part-3-2.jsonl
sed -E 's/(v1 rms_norm .*)T=3 /\1T=33 /' part-3-1.jsonl >changed.jsonl
bad 'not those of plan' merge part-3-0.jsonl changed.jsonl part-3-2.jsonl
: >empty.jsonl
bad 'empty.jsonl' merge part-3-0.jsonl empty.jsonl part-3-2.jsonl
head -c 3000 /dev/urandom >noise
bad 'noise' merge noise
bad 'one.xml: XML' merge one.xml
bad 'nowhere' merge nowhere
bad 'name one file' merge part-3-*.jsonl --jsonl part-3-1.jsonl
for shard in 0/0 5/4 4/4 -1/2 1/2x 1000001/1000002 a; do bad "shard" gate --list --shard "$shard"; done
for verb in fuzz sweep mutants; do bad 'shard 5/4' $verb --shard 5/4; done
present part-3-1.jsonl

# A search: run files, checkpoints and corpora are merged together, and the merged checkpoint can be
# continued.
search=(fuzz --device cpu --system retention --seed 7 --budget 0 --max-cases 45)
run 0 "${search[@]}" --jsonl one.jsonl --checkpoint one.txt
cases one.jsonl >one.cases
for i in 0 1 2; do run 0 "${search[@]}" --shard "$i/3" --jsonl "found-$i.jsonl" --checkpoint "night-$i.txt"; done
run 0 merge found-?.jsonl night-?.txt --jsonl all.jsonl --checkpoint night.txt
says '45 cases 3 checkpoints'
cases all.jsonl >all.cases
same all.cases one.cases
run 0 "${search[@]}" --resume --checkpoint night.txt
says '45 checkpoint'
bad 'shard 1/3' merge night-0.txt night-2.txt --checkpoint x.txt
absent x.txt
bad '--checkpoint FILE' merge night-?.txt
sed '3s/.$/x/' night-1.txt >hurt.txt
bad 'hurt.txt 3 damaged' merge night-0.txt hurt.txt night-2.txt --checkpoint x.txt
run 1 fuzz --plugin "$plugin" --kernel wrong.gated_delta_rule.recurrent --seed 7 --budget 0 --max-cases 20 --shard 0/2 --jsonl w0.jsonl --corpus corpus-0 --shrink-budget 1s
run 1 fuzz --plugin "$plugin" --kernel wrong.gated_delta_rule.recurrent --seed 7 --budget 0 --max-cases 20 --shard 1/2 --jsonl w1.jsonl --corpus corpus-1 --shrink-budget 1s
run 1 merge w?.jsonl corpus-0 corpus-1 --corpus corpus
cat corpus-[01]/gated_delta_rule.txt | grep '^v1' | sort -u >cases.both
grep '^v1' corpus/gated_delta_rule.txt | sort >cases.merged
same cases.merged cases.both
run 0 merge corpus-0 corpus-1 --corpus corpus
says '0 added'
bad '--corpus FOLDER' merge corpus-0

# A sweep has every point, in the order of the plan; a missing one is named, and the same sweep continues with
# it.
points=(sweep --quick --series chunk --system retention)
run 0 "${points[@]}" --out one.points
grep -F '"event":"point"' one.points | sed -E 's/,"seconds":[^,}]*//' | sort >one.cases
for i in 0 1 2; do run 0 "${points[@]}" --shard "$i/3" --out "points-$i.jsonl"; done
run 0 merge points-?.jsonl --jsonl all.points
grep -F '"event":"point"' all.points | sed -E 's/,"seconds":[^,}]*//' | sort >all.cases
same all.cases one.cases
sed '$d' points-1.jsonl >short.jsonl
bad 'short.jsonl: holds' merge points-0.jsonl short.jsonl points-2.jsonl --jsonl x
run 0 "${points[@]}" --shard 1/3 --out short.jsonl
says '1 go'
run 0 merge points-0.jsonl short.jsonl points-2.jsonl --jsonl all.points
bad 'points-0.jsonl' "${points[@]}" --shard 1/3 --out points-0.jsonl

# The merged mutants have a table with all rows.
for i in 0 1; do run 0 mutants --bug M13 --shard "$i/2" --json && cp out "mutants-$i.json"; done
run 0 mutants --bug M13 --json
sed -E '/"seconds"/d' out >one.json
run 0 merge mutants-0.json mutants-1.json --json
sed -E '/"seconds"/d' out >all.json
same all.json one.json
bad 'shard 1/2' merge mutants-0.json
head -c 300 mutants-1.json >cut.json
bad 'cut.json JSON' merge mutants-0.json cut.json

# The examples run as they stand: the array of Slurm, whose scheduler is played by a script, and the matrix of
# GitHub.
mkdir bin
cat >bin/sbatch <<'S'
#!/usr/bin/env bash
# Runs the tasks of an array, or the one, at once.
tasks=(none)
while [[ $1 == --* ]]; do
  case "$1" in
  --array=*) last="${1#*-}" && last="${last##*-}" && mapfile -t tasks < <(seq 0 "$last") ;;
  --output=*) log="${1#*=}" ;;
  esac
  shift
done
for task in "${tasks[@]}"; do
  SLURM_ARRAY_TASK_ID=$task SLURM_CPUS_PER_TASK=2 bash "$@" >"${log//%a/$task}" 2>&1
  echo "$?" >>codes
done
echo "41;cluster"
S
chmod +x bin/sbatch
mkdir slurm
(PATH="$PWD/bin:$PATH" samestate="$samestate" out=slurm "$docs/do/slurm.sh" 3 --plugin "$right" "${right_of[@]}") >out 2>err ||
  complain 'slurm.sh'
says 'merge: job 41'
[[ "$(tr '\n' ' ' <codes)" == '0 0 0 0 ' ]] || complain "slurm.sh: exits $(cat codes): $(tail -3 slurm/*.log)"
grep -q '^60 cases in .* in 3 shards' slurm/merge.log || complain "slurm.sh: $(cat slurm/merge.log)"
present slurm/gate.xml

# step NAME [SHARD]: prints the commands of a step of the workflow, for that shard.
step() {
  awk -v name="- name: $1" 'index($0, name) { on = 1; next } on && /^ +- / { exit } on && /run: \|/ { text = 1; next }
    on && text && substr($0, 1, 10) == "          " { print substr($0, 11) }' "$docs/do/github-actions.yml" |
    sed "s|\${{ matrix.shard }}|${2:-}|g"
}
mkdir -p job/samestate/bin job/plugin
ln -s "$samestate" job/samestate/bin/samestate
cp "$plugin" job/plugin/mine.so
for i in 0 1 2 3; do
  # A part of the gate is enough to see that the shards make one verdict.
  step Gate "$i" | sed 's/ --shard / --effort 0.02 --max-cases 30 --shard /' >gate.sh
  grep -q -- '--max-cases 30' gate.sh || complain 'the workflow has no step Gate with shards'
  (cd job && KERNELS='wrong.gated_delta_rule.recurrent' bash -eo pipefail ../gate.sh) >out 2>err || complain "the workflow's shard $i"
done
step Verdict >verdict.sh
code=0
(cd job && bash -eo pipefail ../verdict.sh) >out 2>err || code=$?
[[ $code -eq 1 ]] || complain "the workflow's verdict: exit $code"
says 'failures of'
present job/gate.xml
rm job/out/gate-2.jsonl
code=0
(cd job && bash -eo pipefail ../verdict.sh) >out 2>err || code=$?
[[ $code -eq 2 ]] && grep -q 'shard 2/4 is missing' err || complain "the workflow without a shard: exit $code"

finish
