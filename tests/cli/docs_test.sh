#!/usr/bin/env bash
# The documents against the command: pages that it prints, options that they name, the README's size.
# usage: docs_test.sh SAMESTATE ROOT
set -uo pipefail

root="$(realpath "$2")"
source "$(dirname "$0")/prelude.sh"

# One table each: the glossary and the grammar of the case line.
run 0 explain --markdown
cmp -s out "$root/docs/lookup/words.md" || complain 'docs/lookup/words.md is not this page: samestate explain --markdown > docs/lookup/words.md'
run 0 explain --case-line
cp out case-line.md
cmp -s out "$root/docs/lookup/case-line.md" ||
  complain 'docs/lookup/case-line.md is not this page: samestate explain --case-line > docs/lookup/case-line.md'
# The table of the peers, of the records that are kept.
run 0 board "$root/reports/evidence/peers"
sed -n '/^## The board$/,/^## What fails/p' "$root/docs/lookup/peers.md" | sed '1,2d;$d' | sed '$d' | cmp -s - out ||
  complain 'docs/lookup/peers.md has not this table: samestate board reports/evidence/peers'
# Every key that a wrong line lists has a row with values and meaning.
for system in gated_delta_rule rms_norm; do
  run 2 repro "v1 $system nope=1"
  for key in $(sed -n 's/.*known keys are //p' err | tr -d ','); do
    grep -qE "^\| \`$key\` \| [^|]+ \| [^|]+ \| [^|]+ \| [^|]+ \|$|$key=[0-9]" case-line.md || complain "docs/lookup/case-line.md has no row of $key"
  done
done

# Words of verdicts, bounds and listings are explained, whatever their case; another is not, and near ones are named.
for word in row head twin hard lambda λ Bp bc piece vacuous contract regime law rows systems bf16 measured causality \
  gated_delta_rule chunked heads size:D no_delta_term; do
  run 0 explain "${word#*:}"
  [[ "$(wc -c <out)" -gt 30 ]] || complain 'says nothing'
  grep -qF '](' out && complain 'prints markup'
done
bad 'near: ' explain vacous
grep -q 'near: .*vacuous' err || complain 'vacuous is not named'
run 0 explain M13
says 'mutant'
run 0 explain 'segment row'
says '2-norm'
bad 'no such word' explain 'nowhere known'
run 0 explain twin --json
says '"kind": "word"'

# Options that README, pages and the workflow give to a verb are its options.
grep -hoE 'samestate (gate|fuzz|repro|judge|sweep|report|compare|board|merge|mutants|bench|list|tolerance|explain|equations|identities|goldens|probe) [^`|]*' \
  "$root/README.md" "$root"/docs/*.md | sed 's|  .*||; s| #.*||; s| &&.*||' >uses
sed -e ':a;/\\$/{N;s/\\\n//;ba}' "$root/docs/do/github-actions.yml" | grep -oE 'samestate (gate|fuzz|compare|report|merge) .*' >>uses
while read -r _ verb rest; do
  [[ -s "help.$verb" ]] || { run 0 "$verb" --help; cp out "help.$verb"; }
  for option in $(grep -oE -- '(^| )--[a-z][a-z-]*' <<<"$rest" | sort -u); do
    grep -qE -- "(^|[ ,])$option( |,|$)" "help.$verb" || complain "samestate $verb has no $option, of: samestate $verb $rest"
  done
done <uses
[[ "$(wc -l <uses)" -gt 40 ]] || complain 'few commands were found in the documents'

# too_large PAGE LINES COLUMNS: what is beyond them; nothing where the page is within both.
too_large() {
  LC_ALL=C.UTF-8 sed 's/[^ -~]/x/g' "$1" | LC_ALL=C awk -v lines="$2" -v columns="$3" \
    'length($0) > columns && !wide { wide = 1; print "line " FNR " is wider than " columns " columns" } END { if (NR > lines) print NR " lines, more than " lines }'
}
for page in README.md:120:120 docs/understand/kernels.md:250:132 docs/understand/validation.md:250:132; do
  IFS=: read -r name lines columns <<<"$page"
  said="$(too_large "$root/$name" "$lines" "$columns")"
  [[ -z "$said" ]] || complain "$name: $said"
done
printf 'a\nbbbb\nc\n' >page
[[ "$(too_large page 2 3 | wc -l)" -eq 2 && -z "$(too_large page 3 4)" ]] || complain 'a page that is too large is not seen'

# Records are artefacts of their runs: the tree keeps digests.
raw="$(find "$root/reports/evidence" -name '*.jsonl')"
[[ -z "$raw" ]] || complain "raw records in the tree: $raw; samestate board FOLDER --json makes a digest"

finish
