#!/usr/bin/env bash
# The published examples are what this version makes of their records.
# usage: examples_test.sh SAMESTATE DOCS [--write]; exit 77 without the gnuplot that drew them.
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
for name in sweep gate; do
  "$samestate" report "$docs/examples/$name.jsonl" --out "$folder/$name" --no-evidence || status=1
done

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

# A record against itself: nothing changed. Against one with a worse ratio: a regression.
"$samestate" compare "$docs/examples/gate.jsonl" "$docs/examples/gate.jsonl" || status=1
sed '0,/"verdict":"pass"/s//"verdict":"fail"/' "$docs/examples/gate.jsonl" >"$folder/worse.jsonl"
"$samestate" compare "$docs/examples/gate.jsonl" "$folder/worse.jsonl" >"$folder/out"
[[ $? -eq 1 ]] && grep -q '1 verdict worse' "$folder/out" || {
  echo 'a worse verdict is no regression to compare'
  status=1
}
exit $status
