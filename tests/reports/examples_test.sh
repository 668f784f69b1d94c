#!/usr/bin/env bash
# The record of the example sweep is what this version measures: the same cases, no verdict worse, no ratio
# grown. The pages of the example records are complete, identical when made twice, and stay in PAGES to be
# looked at.
# usage: examples_test.sh SAMESTATE DOCS PAGES [--write]; --write puts a changed record and plot in their place.
set -uo pipefail

docs="$(realpath "$2")"
mkdir -p "$3"
pages="$(realpath "$3")"
write="${4:-}"
again='tests/reports/examples_test.sh SAMESTATE docs PAGES --write'
source "$(dirname "$0")/../cli/prelude.sh"

# `sweep --quick` takes a minute, as it promises.
run 0 sweep --quick --out sweep.jsonl
points() { grep -c '"event":"point"' "$1"; }
drifted=0
attempt compare "$docs/examples/sweep.jsonl" sweep.jsonl
[[ $code -eq 0 ]] || drifted=1
[[ "$(points "$docs/examples/sweep.jsonl")" -eq "$(points sweep.jsonl)" ]] || drifted=1
grep -q "^$(points sweep.jsonl) cases in common" out || drifted=1
if [[ $drifted -ne 0 && "$write" == --write ]]; then
  # Leaves out the errors by token, place in the chunk and head, which are two thirds of it.
  sed -E 's/"(by_token|by_chunk_position|by_head)":\[(\[[^]]*\],?)*\]/"\1":[]/g' sweep.jsonl >"$docs/examples/sweep.jsonl"
elif [[ $drifted -ne 0 ]]; then
  cat out
  complain "$docs/examples/sweep.jsonl is not what a quick sweep measures: $again"
fi

plots=()
command -v gnuplot >/dev/null || plots=(--no-plots)
# page NAME TITLE SECTION...: makes the page of a record and checks its sections, and that nothing comes from
# elsewhere.
page() {
  local name="$1" title="$2" made section
  shift 2
  for made in "$pages/$name" "$folder/$name"; do
    run 0 report "${record:-$docs/examples/$name.jsonl}" --title "$title" --out "$made" --no-evidence "${plots[@]}"
  done
  diff -r "$pages/$name" "$folder/$name" || complain "two reports of one record differ: $name"
  for section in "$@"; do
    grep -q "<section id=\"$section\"" "$pages/$name/index.html" || complain "$name has no section $section"
  done
  if grep -nE '(src|href)="https?:|@import|url\(' "$pages/$name/index.html"; then
    complain "$name loads something from elsewhere"
  fi
}
page sweep 'Example: samestate sweep --quick' answers sweep points words
# A file that was measured just now has errors by token too.
record=sweep.jsonl page measured 'Example: a sweep as it was measured' answers sweep points words
[[ "$(wc -l <"$pages/measured/profiles.csv")" -gt 1000 ]] || complain 'the errors by token are not in profiles.csv'
page gate "Example: $(grep -c '"event":"end"' "$docs/examples/gate.jsonl") cases of samestate gate" answers gate words

# Another version of gnuplot lays plots out differently.
if [[ "$(gnuplot --version 2>/dev/null)" != 'gnuplot 5.4 patchlevel 4' ]]; then
  echo 'docs/do/error_vs_chunk.svg was not compared: it was drawn by gnuplot 5.4 patchlevel 4'
elif [[ "$write" == --write ]]; then
  cp "$pages/sweep/plots/plot-1-error.svg" "$docs/do/error_vs_chunk.svg"
elif ! cmp "$pages/sweep/plots/plot-1-error.svg" "$docs/do/error_vs_chunk.svg"; then
  complain "$docs/do/error_vs_chunk.svg is out of date: $again"
fi

# The check of the record can fail: on a ratio that grew.
head -n 5 "$docs/examples/sweep.jsonl" >fewer.jsonl
sed '0,/"ratio":[0-9.e-]*/s//"ratio":0.001/' fewer.jsonl >grown.jsonl
run 1 compare grown.jsonl fewer.jsonl

# A record compared with itself has no changes; compared with one that has a worse verdict, it shows a
# regression.
run 0 compare "$docs/examples/gate.jsonl" "$docs/examples/gate.jsonl"
sed '0,/"verdict":"pass"/s//"verdict":"fail"/' "$docs/examples/gate.jsonl" >worse.jsonl
run 1 compare "$docs/examples/gate.jsonl" worse.jsonl
says '1 verdict'

finish
