#!/usr/bin/env bash
# The record of the example sweep is what this version measures: the same cases, no verdict worse, no ratio grown. The
# pages of the example records are made, whole and twice alike, and stay in PAGES to be looked at.
# usage: examples_test.sh SAMESTATE DOCS PAGES [--write]; --write puts a changed record and plot in their place.
set -uo pipefail

samestate="$(realpath "$1")"
docs="$(realpath "$2")"
mkdir -p "$3"
pages="$(realpath "$3")"
write="${4:-}"
again='tests/reports/examples_test.sh SAMESTATE docs PAGES --write'
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
  echo "$docs/examples/sweep.jsonl is not what a quick sweep measures: $again"
  status=1
fi

plots=()
command -v gnuplot >/dev/null || plots=(--no-plots)
# page NAME TITLE SECTION...: the page of a record, its sections and nothing from elsewhere.
page() {
  local name="$1" title="$2" section
  shift 2
  for out in "$pages/$name" "$folder/$name"; do
    "$samestate" report "$docs/examples/$name.jsonl" --title "$title" --out "$out" --no-evidence "${plots[@]}" || status=1
  done
  diff -r "$pages/$name" "$folder/$name" || { echo "two reports of one record differ: $name"; status=1; }
  for section in "$@"; do
    grep -q "<section id=\"$section\"" "$pages/$name/index.html" || { echo "$name has no section $section"; status=1; }
  done
  if grep -nE '(src|href)="https?:|@import|url\(' "$pages/$name/index.html"; then
    echo "$name loads something from elsewhere"
    status=1
  fi
}
page sweep 'Example: samestate sweep --quick' answers sweep points words
page gate "Example: $(grep -c '"event":"end"' "$docs/examples/gate.jsonl") cases of samestate gate" answers gate words

# Another version lays plots out otherwise.
if [[ "$(gnuplot --version 2>/dev/null)" != 'gnuplot 5.4 patchlevel 4' ]]; then
  echo 'docs/error_vs_chunk.svg was not compared: it was drawn by gnuplot 5.4 patchlevel 4'
elif [[ "$write" == --write ]]; then
  cp "$pages/sweep/plots/plot-1-error.svg" "$docs/error_vs_chunk.svg"
elif ! cmp "$pages/sweep/plots/plot-1-error.svg" "$docs/error_vs_chunk.svg"; then
  echo "$docs/error_vs_chunk.svg is out of date: $again"
  status=1
fi

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
