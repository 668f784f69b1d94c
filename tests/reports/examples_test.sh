#!/usr/bin/env bash
# The published examples are what this version makes of their records, and the record of the sweep is what it measures:
# the same cases, no verdict worse, no ratio grown.
# usage: examples_test.sh SAMESTATE DOCS [--write]; --write puts new pages in their place, and with a changed sweep its
# record; exit 77 without the gnuplot that drew them.
set -uo pipefail

samestate="$(realpath "$1")"
docs="$(realpath "$2")"
write="${3:-}"
# Another version lays plots out otherwise.
if [[ "$(gnuplot --version 2>/dev/null)" != 'gnuplot 5.4 patchlevel 4' ]]; then
  echo 'skipped: the examples were drawn by gnuplot 5.4 patchlevel 4'
  exit 77
fi
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
status=0

# `sweep --quick`, as it promises, in a minute.
timeout 60 "$samestate" sweep --quick --out "$folder/sweep.jsonl" || status=1
points() { grep -c '"event":"point"' "$1"; }
drifted=0
"$samestate" compare "$docs/examples/sweep.jsonl" "$folder/sweep.jsonl" >"$folder/drift" || drifted=1
[[ "$(points "$docs/examples/sweep.jsonl")" -eq "$(points "$folder/sweep.jsonl")" ]] || drifted=1
grep -q "^$(points "$folder/sweep.jsonl") cases in common" "$folder/drift" || drifted=1
if [[ $drifted -ne 0 && "$write" == --write ]]; then
  cp "$folder/sweep.jsonl" "$docs/examples/sweep.jsonl"
elif [[ $drifted -ne 0 ]]; then
  cat "$folder/drift"
  echo "$docs/examples/sweep.jsonl is not what a quick sweep measures: tests/reports/examples_test.sh SAMESTATE docs --write"
  status=1
fi

report() { "$samestate" report "$docs/examples/$1.jsonl" --title "$2" --out "$folder/$1" --no-evidence || status=1; }
report sweep 'Example: samestate sweep --quick'
report gate "Example: $(grep -c '"event":"end"' "$docs/examples/gate.jsonl") cases of samestate gate"

same() {
  if [[ "$write" == --write ]]; then
    cp "$1" "$2"
  elif ! cmp "$1" "$2"; then
    echo "$2 is out of date: tests/reports/examples_test.sh SAMESTATE docs --write"
    status=1
  fi
}
same "$folder/sweep/index.html" "$docs/examples/sweep.html"
same "$folder/gate/index.html" "$docs/examples/gate.html"
same "$folder/sweep/plots/plot-1-error.svg" "$docs/error_vs_chunk.svg"

# The check of the record bites: a ratio that grew.
head -n 5 "$docs/examples/sweep.jsonl" >"$folder/fewer.jsonl"
sed '0,/"ratio":[0-9.e-]*/s//"ratio":0.001/' "$folder/fewer.jsonl" >"$folder/grown.jsonl"
"$samestate" compare "$folder/grown.jsonl" "$folder/fewer.jsonl" >"$folder/out" && {
  echo 'a ratio that grew is no regression to compare'
  status=1
}

# A record against itself: nothing changed. Against one with a worse ratio: a regression.
"$samestate" compare "$docs/examples/gate.jsonl" "$docs/examples/gate.jsonl" || status=1
sed '0,/"verdict":"pass"/s//"verdict":"fail"/' "$docs/examples/gate.jsonl" >"$folder/worse.jsonl"
"$samestate" compare "$docs/examples/gate.jsonl" "$folder/worse.jsonl" >"$folder/out"
[[ $? -eq 1 ]] && grep -q '1 verdict worse' "$folder/out" || {
  echo 'a worse verdict is no regression to compare'
  status=1
}
exit $status
