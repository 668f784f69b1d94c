#!/usr/bin/env bash
# The documents against the command: pages that it prints, options that they name, the README's size.
# usage: docs_test.sh SAMESTATE ROOT
set -uo pipefail

samestate="$(realpath "$1")"
root="$(realpath "$2")"
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
failures=0
complain() {
  printf 'FAILED: %s\n' "$1"
  failures=$((failures + 1))
}

# One table each: the glossary and the grammar of the case line.
"$samestate" explain --markdown >words.md || complain 'explain --markdown'
cmp -s words.md "$root/docs/words.md" || complain 'docs/words.md is not this page: samestate explain --markdown > docs/words.md'
"$samestate" explain --case-line >case-line.md || complain 'explain --case-line'
cmp -s case-line.md "$root/docs/case-line.md" ||
  complain 'docs/case-line.md is not this page: samestate explain --case-line > docs/case-line.md'
# Every key that a wrong line lists has a row with values and meaning.
for system in gated_delta_rule rms_norm; do
  "$samestate" repro "v1 $system nope=1" 2>err
  for key in $(sed -n 's/.*known keys are //p' err | tr -d ','); do
    grep -qE "^\| \`$key\` \| [^|]+ \| [^|]+ \| [^|]+ \| [^|]+ \|$|$key=[0-9]" case-line.md || complain "docs/case-line.md has no row of $key"
  done
done

# Words of verdicts, bounds and listings are explained, whatever their case; another is not, and near ones are named.
for word in row head twin hard lambda λ Bp bc piece vacuous contract regime law rows kernels bf16 measured causality \
  gated_delta_rule chunked heads size:D no_delta_term; do
  "$samestate" explain "${word#*:}" >out 2>err || complain "explain $word: $(cat err)"
  [[ "$(wc -c <out)" -gt 30 ]] || complain "explain $word says nothing"
  grep -qF '](' out && complain "explain $word prints markup"
done
code=0
"$samestate" explain vacous >out 2>err || code=$?
[[ $code -eq 2 ]] && grep -q 'near: .*vacuous' err || complain "explain vacous: exit $code, $(cat err)"
"$samestate" explain twin --json | grep -q '"kind": "word"' || complain 'explain --json'

# Options that README, pages and the workflow give to a verb are its options.
grep -hoE 'samestate (gate|fuzz|repro|judge|sweep|report|compare|mutants|bench|list|tolerance|explain|equations|identities|goldens|probe) [^`|]*' \
  "$root/README.md" "$root"/docs/*.md | sed 's|  .*||; s| #.*||; s| &&.*||' >uses
sed -e ':a;/\\$/{N;s/\\\n//;ba}' "$root/docs/github-actions.yml" | grep -oE 'samestate (gate|fuzz|compare|report) .*' >>uses
while read -r _ verb rest; do
  [[ -s "help.$verb" ]] || "$samestate" "$verb" --help >"help.$verb"
  for option in $(grep -oE -- '(^| )--[a-z][a-z-]*' <<<"$rest" | sort -u); do
    grep -qE -- "(^|[ ,])$option( |,|$)" "help.$verb" || complain "samestate $verb has no $option, of: samestate $verb $rest"
  done
done <uses
[[ "$(wc -l <uses)" -gt 40 ]] || complain 'few commands were found in the documents'

[[ "$(wc -l <"$root/README.md")" -le 120 ]] || complain "README.md has $(wc -l <"$root/README.md") lines, more than 120"
wide="$(sed 's/[^ -~]/x/g' "$root/README.md" | awk 'length($0) > 120 { print FNR; exit }')"
[[ -z "$wide" ]] || complain "README.md:$wide is wider than 120 columns"

printf '%s failures\n' "$failures"
[[ $failures -eq 0 ]]
