#!/usr/bin/env bash
# Filters of every verb that has some, the plan as lines, shards, --fail-fast and --json. Each command that a
# report prints runs as it stands, including --plugin: on the terminal, in JUnit, Markdown, the page and
# compare.
# usage: filter_test.sh SAMESTATE PLUGIN
set -uo pipefail

plugin="$(realpath "$2")"
source "$(dirname "$0")/prelude.sh"
let_kernels_die
patience=120

# all PATTERN: checks that every line of the plan matches it.
all() {
  [[ -s out ]] || complain 'an empty plan'
  [[ "$(grep -cvE -- "$1" out)" -eq 0 ]] || complain "not all lines hold $1: $(grep -vE -- "$1" out | head -1)"
}
none() { [[ "$(grep -cE -- "$1" out)" -eq 0 ]] || complain "a line holds $1: $(grep -E -- "$1" out | head -1)"; }

plan=(gate --device cpu --system retention --list)
run 0 "${plan[@]}"
all '^v1 retention'
cp out whole
run 0 "${plan[@]}" --contract bf16
all 'contract=bf16( |$)'
run 0 "${plan[@]}" --contract fp32
none 'contract='
run 0 "${plan[@]}" --contract bf16 --contract tf32 --regime slow
all 'contract=(bf16|tf32) '
all 'regime=slow'
run 0 "${plan[@]}" --form decode --form packed
all 'form=(decode|packed)'
run 0 "${plan[@]}" --law '*'
all 'law='
run 0 "${plan[@]}" --law none --layout padded
none 'law='
all 'layout=padded'
run 0 "${plan[@]}" --where 'T=100..200 dk=16..' --exclude form=packed
all ' T=(1[0-9][0-9]|200)( |$)'
none 'dk=([1-9]|1[0-5])( |$)'
run 0 "${plan[@]}" --exclude regime=slow --exclude 'contract=bf16 law=*'
none 'regime=slow'
none 'contract=bf16 .*law='
grep -q 'regime=slow' whole || complain 'the plan has no regime=slow to exclude'
run 0 gate --device cpu --system rms_norm --where D=32.. --list
all '^v1 rms_norm'
none 'D=([1-9]|[12][0-9]|3[01])( |$)'

# --why prints with each line the list that it comes from, and once for each list what it is there for. The
# lines stay the same, and readers of lines skip both.
run 0 "${plan[@]}" --why
sed -e '/^#/d' -e 's/  # .*//' out | cmp -s - whole || complain '--why changes the lines'
sed -n 's/^v1 .*  # //p' out | sort -u >named
sed -n 's/^# \([^:]*\), [0-9]* cases\{0,1\}: [A-Z0-9].*\.$/\1/p' out | sort >explained
[[ "$(grep -c '^v1 .*  # ' out)" -eq "$(wc -l <whole)" && -s named ]] || complain 'a line without its list'
cmp -s named explained || complain "lists and reasons differ: $(diff named explained | head -3)"
for known in 'form=recurrent T=33 Hk=2 Hv=82 dk=16 dv=8 state=random  # reciprocals' \
  'form=decode chunk=0 prefill=63 T=66 dk=3 state=random  # caches that end at a tile' \
  'chunk=31 T=31 dk=3 state=random  # full chunks' \
  'form=recurrent B=2 T=33 dk=16 dv=8 state=random  # settings' \
  'chunk=1 B=2 T=0 dk=1 state=random  # corpus'; do
  grep -qxF -- "v1 retention $known" out || complain "no line '$known'"
done
grep '^# family calls' out >few
grep -m2 '  # head groups$' out >>few
"$samestate" repro - <few >repeated 2>err || complain "repro does not read lines with their lists: $(cat err)"
[[ "$(grep -c '^verdict  *pass' repeated)" -eq 2 ]] || complain 'two lines were to be repeated'
run 0 gate --device cpu --system retention --max-cases 40 --list --why --json
[[ "$(grep -c '"list": "' out)" -eq 40 && "$(grep -c '"why": "[A-Z0-9].*\."' out)" -eq 40 ]] || complain 'not 40 lists and reasons'
run 0 gate --device cpu --system retention --max-cases 40 --list --json
grep -q '"why"' out && complain 'reasons that nobody asked for'
bad 'add --list' gate --device cpu --system retention --why

# Errors name the value, the known values and the remedy.
bad 'known: fp32' gate --contract bf17 --list
bad 'regime normal' gate --regime normol --list
bad 'law causality' gate --law causalty --list
bad "'dkk' dk" gate --where dkk=4 --list
bad 'system retention' gate --system retentoin --list
bad 'measured' gate --regime fast --list
bad 'unknown key' gate --where size=4 --list
bad '64..4096' gate --where T=long --list
bad 'D rms_norm 16384' gate --device cpu --system rms_norm --where D=20000 --list
bad 'D rms_norm 1' gate --device cpu --system rms_norm --where D=0 --list
bad 'rms_norm dk sizes' gate --device cpu --system rms_norm --where dk=16 --list
bad 'plan fits' gate --device cpu --system retention --where 'ranks=3 form=recurrent' --list
bad 'cpu.rms_norm.fused bf16 fp16 fp32' gate --device cpu --kernel cpu.rms_norm.fused --contract fp32+output:bf16 --list
bad '20000 drawn' fuzz --system retention --where T=7777777 --max-cases 3
bad 'no point fits' sweep --quick --where T=7777777
bad 'no case fits' bench --device cpu --quick --where T=7777777
bad 'max-cases' fuzz --list

# Shards are disjoint and together make the whole; a list is one JSON array of lines too.
run 0 "${plan[@]}" --max-cases 50
sort out >fifty
: >shards
for i in 0 1 2; do
  run 0 "${plan[@]}" --max-cases 50 --shard "$i/3"
  [[ -s out ]] || complain 'a shard without its share'
  cat out >>shards
done
sort shards | cmp -s - fifty || complain 'the shards are not the whole'
bad '3/3' gate --shard 3/3 --list
run 0 "${plan[@]}" --max-cases 3 --json
[[ "$(head -c 1 out)" == '[' && "$(grep -c '"line": "v1 retention' out)" -eq 3 ]] || complain 'no JSON array of lines'

# The plan runs as it was listed, and its lines can be piped to repro.
run 0 "${plan[@]}" --contract bf16 --max-cases 4
cp out four
"$samestate" gate --device cpu --system retention --contract bf16 --max-cases 4 --jsonl four.jsonl >/dev/null 2>err
while read -r line; do
  grep -qF -- "\"$line\"" four.jsonl || complain "not run: $line"
done <four
invocation='repro -'
"$samestate" repro - <four >out 2>err
[[ "$(grep -c '^verdict   ' out)" -eq 4 ]] || complain 'repro - did not run four lines'
run 0 gate --device cpu --system retention --regime normal --where 'T=20..60' --max-cases 4 --json
[[ "$(head -c 1 out)" == '{' ]] || complain 'no JSON object'
says '"cases": 4'
says '"exit": 0'
says '"failures": []'

# The search draws within its filter, and the same cases again.
search=(fuzz --system gated_delta_rule --seed 5 --contract bf16 --where 'T=33..90' --exclude layout=far --max-cases 12)
run 0 "${search[@]}" --list
all 'contract=bf16'
none 'layout=far'
cp out drawn
[[ "$(wc -l <drawn)" -eq 12 ]] || complain 'not 12 cases'
run 0 "${search[@]}" --budget 0 --threads 2 --jsonl drawn.jsonl
while read -r line; do
  grep -qF -- "\"$line\"" drawn.jsonl || complain "not run: $line"
done <drawn
run 0 sweep --quick --system retention --contract fp32 --where 'chunk=..16' --list
none 'chunk=(32|64|128)'
run 0 bench --device cpu --quick --system retention --list
all '^v1 retention'

# From a plugin with kernels of several systems, only those of one system run.
run 0 gate --plugin "$plugin" --system rms_norm --max-cases 20 --list
all '^v1 rms_norm.*kernel=other.rms_norm.fused'
run 0 gate --plugin "$plugin" --system rms_norm,delta_rule --max-cases 20 --list
all '^v1 rms_norm.*kernel=other.rms_norm.fused'
bad 'not retention' gate --plugin "$plugin" --system retention --list

# A failure ends the run if that is requested.
broken=(gate --plugin "$plugin" --kernel crashing.gated_delta_rule.recurrent --timeout 2s --threads 1)
run 5 "${broken[@]}" --where 'T=5.. Hv=3.. Hk=..2' --max-cases 60 --fail-fast
says '--fail-fast'

# Every printed command, wherever it is printed, repeats what the gate saw.
run 5 "${broken[@]}" --where 'T=3..60 dv=3,7' --exclude heads=tiled --max-cases 12 --jsonl gate.jsonl --junit gate.xml --markdown gate.md
grep -oE "samestate repro .*'" out >commands
cp out gate.txt
says 'failures of'
says 'the kernel'"'"'s process was killed by signal 11'
grep -oE "samestate repro [^<]*'" gate.xml | sed "s/&apos;/'/g; s/&amp;/\&/g" >>commands
grep -oE "^samestate repro .*'" gate.md >>commands
sed -E 's/"verdict": *"crash"/"verdict":"pass"/' gate.jsonl >before.jsonl
run 1 compare before.jsonl gate.jsonl --markdown compare.md
grep -oE "samestate repro .*'" out >>commands
grep -oE "samestate repro .*'" compare.md >>commands
run 0 report gate.jsonl --out page --no-plots --no-evidence
grep -oE "samestate repro [^<\"]*" page/index.html | sed "s/&#39;/'/g; s/&apos;/'/g" | grep -vF '…' >>commands
[[ "$(wc -l <commands)" -ge 12 ]] || complain "only $(wc -l <commands) commands"
grep -vF -- "--plugin $plugin " commands >without && complain "without --plugin: $(head -1 without)"
patience=30
while read -r command; do
  eval "attempt ${command#samestate }"
  grep -q '^verdict   ' out || complain "exit $code and no verdict"
done < <(sort -u commands | head -20)

# In a sweep over the user's own keys, each combination is a point, and the answer is a sentence per curve.
over=(sweep --case 'v1 retention T=64 dk=8 dv=8' --out over.jsonl)
run 0 "${over[@]}" --over chunk=4,16 --over contract=fp32,bf16 --list
[[ "$(grep -c . out)" -eq 4 && "$(grep -c 'contract=bf16' out)" -eq 2 ]] || complain 'not every combination once'
run 0 "${over[@]}" --over chunk=4,16 --over contract=fp32,bf16
says '4 points measured'
says 'at T=64, retention bf16 chunk=4, 16 pass; relative RMS error costs no accuracy up to'
run 0 "${over[@]}" --over chunk=4,16 --over contract=fp32,bf16
says '4 of 4 points are there'
says 'retention bf16 chunk=4, 16 pass;'
run 0 sweep --case 'v1 rms_norm form=fused T=16' --over D=32,64 --out norm.jsonl
says 'D=32, 64 pass;'
run 0 sweep --T 96 --chunks 8,32 --contract bf16 --quick --out short.jsonl
says 'at T=96, gated_delta_rule bf16 chunk=8, 32 pass;'
run 0 sweep --case 'v1 retention T=16 dk=8' --over dk=8,24 --list
says 'dk=24'
! grep -q 'dv=8' out || complain 'values do not follow keys'
# A line leaves out the default, and the answer names it as it was asked for.
run 0 sweep --case 'v1 retention T=16 dk=8' --over final=none,apart --out words.jsonl
says 'final=none, apart pass;'
bad '--over chunk KEY=VALUE' "${over[@]}" --over chunk
bad "unknown key 'width'" "${over[@]}" --over width=4
bad '--series --over' sweep --series chunk --over chunk=4
bad 'chunk=x whole number' "${over[@]}" --over chunk=x

finish
