#!/usr/bin/env bash
# Compares the pages with the command: what they quote, transcripts, options that they name, and their
# navigation.
# usage: docs_test.sh SAMESTATE ROOT
set -uo pipefail

root="$(realpath "$2")"
source "$(dirname "$0")/prelude.sh"

# Checks pages that the command prints, parts and figures that it fills in, and every transcript that can be
# run here; and that each page has a title, a sentence, one place in the navigation, and lines that can be
# read.
cd "$root" || exit 1
"$root/docs/refresh" --check --samestate "$samestate" || complain 'pages are stale: docs/refresh --samestate FILE mends them'
cd "$folder" || exit 1

# One stale page of each kind is reported with its page and line.
mkdir -p tree/docs/recorded
printf 'site_name: x\nnav:\n  - README.md\n  - Do:\n      - good.md\n      - gone.md\n' >tree/mkdocs.yml
printf '# Pages\n\nThis page lists them.\n\n<!-- generated: index -->\n\n## Do\n\n* [A page](good.md): how\n\n<!-- end -->\n' >tree/docs/README.md
printf '$ nvidia-smi\none GPU\n' >tree/docs/recorded/gpu.txt
# refreshed PAGE [OPTION...]: docs/refresh over the planted tree; its output in ./out.
refreshed() {
  checks=$((checks + 1))
  "$root/docs/refresh" --samestate "$samestate" --root tree "${@:2}" docs/good.md >out 2>&1
  code=$?
}
good='# A page

This page says how.

```console
$ samestate repro "v1 retention T=9 dk=8 state=random" | head -3
case ...
...
verdict   pass
$ false; echo $? after 3 s
1 after 4 s
```

<!-- transcript: recorded docs/recorded/gpu.txt -->
```console
$ nvidia-smi
one GPU
```

<!-- transcript: needs no_such_program -->
```console
$ no_such_program
```

It has <!-- figure: echo 12 -->12<!-- end --> rows.
'
printf '%s' "$good" >tree/docs/good.md
refreshed good --check
[[ $code -eq 0 ]] || complain "a page that is up to date: exit $code"
grep -q '1 run, 1 recorded, 1 not run' out || complain 'the transcripts were not counted'
while IFS='|' read -r change line; do
  sed "$change" <<<"$good" >tree/docs/good.md
  refreshed stale --check
  [[ $code -eq 1 ]] && grep -qE "^stale: docs/good.md:$line: " out || complain "not seen: $change: exit $code, $(cat out)"
done <<'PLANTED'
s/^verdict   pass/verdict   fail/|6
s/^case \.\.\./case v1/|6
s/^verdict   pass/&\nextra/|6
s/^1 after/2 after/|10
s/^one GPU/two GPUs/|16
s/nvidia-smi/nvidia-smi -L/|16
s/12<!--/13<!--/|25
s/^This page says how\.$/* no sentence/|1
s/^It has/It has words that stand on one line which goes on and on and on until nobody who reads it wants to read on/|25
PLANTED
# Figures and numbers in transcripts are filled in; text of another shape is left to a person.
sed 's/12<!--/13<!--/; s/^1 after/2 after/' <<<"$good" >tree/docs/good.md
refreshed mended
cmp -s tree/docs/good.md - <<<"${good/after 4 s/after 3 s}" || complain 'the page was not filled in'
# A page without a place in the navigation, a place without a page, and a wrong index are reported.
printf '# Lost\n\nThis page is lost.\n' >tree/docs/lost.md
sed -i 's/: how/: why/' tree/docs/README.md
checks=$((checks + 1))
"$root/docs/refresh" --check --samestate "$samestate" --root tree >out
[[ $? -eq 1 ]] || complain 'a lost page: exit 0'
for what in 'docs/lost.md:1: stands 0 times' 'mkdocs.yml:1: gone.md is not in docs' 'docs/README.md:5: '; do
  grep -qF "stale: $what" out || complain "not seen: $what"
done
# Builds the site if mkdocs is installed: links, anchors and pages without a parent are warnings, which fail
# the build.
if command -v mkdocs >/dev/null; then
  (cd "$root" && mkdocs build --quiet --strict --site-dir "$folder/site") || complain 'mkdocs build --strict'
fi

# Every key that a wrong line lists has a row with values and meaning.
for system in gated_delta_rule rms_norm; do
  run 2 repro "v1 $system nope=1"
  for key in $(sed -n 's/.*known keys are //p' err | tr -d ','); do
    grep -qE "^\| \`$key\` \| [^|]+ \| [^|]+ \| [^|]+ \| [^|]+ \|$|$key=[0-9]" "$root/docs/lookup/case-line.md" || complain "docs/lookup/case-line.md has no row of $key"
  done
done

# Words of verdicts, bounds and listings are explained, whatever their case; an unknown word is not, and near
# ones are named.
for word in row head twin hard lambda λ Bp bc piece vacuous contract regime law rows systems bf16 measured causality \
  gated_delta_rule chunked heads size:D no_delta_term; do
  run 0 explain "${word#*:}"
  [[ "$(wc -c <out)" -gt 30 ]] || complain 'says nothing'
  grep -qF '](' out && complain 'prints markup'
done
bad 'nearest: ' explain vacous
grep -q 'nearest: .*vacuous' err || complain 'vacuous is not named'
run 0 explain M13
says 'mutant'
run 0 explain 'segment row'
says '2-norm'
bad 'no such word' explain 'nowhere known'
run 0 explain twin --json
says '"kind": "word"'

# Options that README, pages and the workflow give to a verb exist.
grep -hoE 'samestate (gate|fuzz|repro|judge|sweep|report|compare|board|merge|mutants|bench|list|tolerance|explain|equations|identities|goldens|probe) [^`|]*' \
  "$root/README.md" "$root"/python/README.md "$root"/docs/*/*.md | sed 's|  .*||; s| #.*||; s| &&.*||' >uses
sed -e ':a;/\\$/{N;s/\\\n//;ba}' "$root/docs/do/github-actions.yml" | grep -oE 'samestate (gate|fuzz|compare|report|merge) .*' >>uses
while read -r _ verb rest; do
  [[ -s "help.$verb" ]] || { run 0 "$verb" --help; cp out "help.$verb"; }
  for option in $(grep -oE -- '(^| )--[a-z][a-z-]*' <<<"$rest" | sort -u); do
    grep -qE -- "(^|[ ,])$option( |,|$)" "help.$verb" || complain "samestate $verb has no $option, of: samestate $verb $rest"
  done
done <uses
[[ "$(wc -l <uses)" -gt 40 ]] || complain 'few commands were found in the documents'

# Records are artefacts of their runs: the tree keeps digests only.
raw="$(find "$root/reports/evidence" -name '*.jsonl')"
[[ -z "$raw" ]] || complain "raw records in the tree: $raw; samestate board FOLDER --json makes a digest"

finish
