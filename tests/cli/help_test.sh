#!/usr/bin/env bash
# Tests what the command says about itself: the screen of a call without a verb, help, version, the manual
# page and completion. Each check is also shown a text with a fault, which it has to see.
# usage: help_test.sh SAMESTATE
set -uo pipefail

source "$(dirname "$0")/prelude.sh"

# The verbs, and the options of each verb, as the help prints them; the other texts are compared with these.
run 0 --help
sed -n '/^Subcommands:/,$p' out | grep -oE '^  [a-z]+' | tr -d ' ' >verbs
[[ "$(wc -l <verbs)" -gt 20 ]] || complain "few verbs: $(tr '\n' ' ' <verbs)"
while read -r verb; do
  run 0 "$verb" --help
  cp out "help.$verb"
  sed -nE 's/^  (-[^ ]*).*/\1/p' out | tr ',' '\n' | grep -E '^-' >"options.$verb"
  [[ -s "options.$verb" ]] || complain "no option of $verb"
done <verbs

# Without a verb, the command shows a screen that fits a terminal.
fits() { awk 'length($0) > 80 { wide = 1 } END { exit wide || NR > 24 || NR < 10 }' "$1"; }
run 0
[[ ! -s err ]] || complain 'the screen comes with an error'
cp out screen
fits screen || complain "the screen has $(wc -l <screen) lines, of at most 24, or is wider than 80 columns"
sed 's/^samestate checks/a line that is longer than a terminal is wide by some words: &/' screen >wide
! fits wide || complain 'a wide screen is not seen'
# The verbs on it exist, and its examples have options that these verbs take.
grep -oE '^  [a-z]+  ' screen | tr -d ' ' >shown
[[ "$(wc -l <shown)" -eq 5 ]] || complain "$(wc -l <shown) verbs instead of five"
named() { # FILE: examples of the file whose verb or option is none
  grep -oE 'samestate [a-z]+.*' "$1" | while read -r _ verb rest; do
    grep -qx "$verb" verbs || { [[ "$verb" == checks ]] || echo "$verb"; continue; }
    for option in $(grep -oE -- ' --[a-z-]+' <<<" $rest"); do grep -qx -- "$option" "options.$verb" || echo "$verb $option"; done
  done
}
[[ -z "$(named screen)" ]] || complain "not taken: $(named screen)"
sed 's/gate --subject/gate --kernell/' screen >wrong
[[ "$(named wrong)" == 'gate --kernell' ]] || complain 'an option that is none is not seen'
# Commands that need nothing from a user are run.
grep -oE "samestate (repro|tolerance) '[^']*'" screen >lines
[[ "$(wc -l <lines)" -eq 2 ]] || complain 'examples to run are missing'
while read -r _ verb line; do run 0 "$verb" "$(tr -d "'" <<<"$line")"; done <lines

# Help and version work in all of their spellings.
run 0 --help
cp out all
run 0 help
cmp -s out all || complain 'help is not --help'
run 0 help gate
cmp -s out help.gate || complain 'help gate is not gate --help'
bad 'help gat nearest gate' help gat
bad 'help gate --man' help gate --man
run 0 --version
cp out version
grep -qE '^samestate [0-9.]+$' version || complain 'the version is none'
for spelling in -V version; do
  run 0 "$spelling"
  cmp -s out version || complain "$spelling is not --version"
done

# The manual page has every verb and every option, and roff reports no error.
run 0 help --man
cp out page
lacks() { # PAGE: verbs and options that it does not have
  sed 's/\\-/-/g' "$1" >plain
  while read -r verb; do
    awk -v verb="$verb" '/^\.SS / { here = $0 == ".SS samestate " verb } here' plain >section
    [[ -s section ]] || echo "$verb"
    while read -r option; do grep -qE -- "(fB|,)$option(\\\\fR|,|\$)" section || echo "$verb $option"; done <"options.$verb"
  done <verbs
}
[[ -z "$(lacks page)" ]] || complain "the manual page lacks: $(lacks page | head -5)"
sed 's/fB\\-\\-jsonl/fBjsonl/' page >wrong
[[ "$(lacks wrong | head -1)" == 'gate --jsonl' ]] || complain 'an option that the page lacks is not seen'
grep -qE '^[.]B? *$' page && complain 'an empty request'
if command -v groff >/dev/null; then
  said="$(groff -man -Tutf8 -ww -z page 2>&1 | grep -v "can't break line")"
  [[ -z "$said" ]] || complain "roff: $(head -3 <<<"$said")"
fi

# Completion in bash offers the right words for a line whose last word is begun.
run 0 completion bash
cp out bash.sh
offered() { # SCRIPT WORD..
  PATH="$(dirname "$samestate"):$PATH" bash -c 'source "$0"
    COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
    _samestate
    printf "%s\n" "${COMPREPLY[@]}"' "$@" 2>said | sort
}
offers() { # SCRIPT: what it does not offer
  offered "$1" samestate '' | grep -v '^-' >found
  sort verbs | comm -3 - found
  while read -r verb; do
    offered "$1" samestate "$verb" -- | grep -xF -f - "options.$verb" | sort >found
    grep -E '^--' "options.$verb" | sort | comm -23 - found | sed "s/^/$verb /"
  done <verbs
}
[[ -z "$(offers bash.sh)" ]] || complain "bash is not offered: $(offers bash.sh | head -5)"
sed 's/ --jsonl//; s/tolerance //' bash.sh >wrong
offers wrong >missing
grep -qx 'gate --jsonl' missing && grep -q 'tolerance' missing || complain 'an option that is not offered is not seen'
[[ "$(offered bash.sh samestate gate --sub | head -1)" == --subject ]] || complain 'the begun option is not offered'
[[ "$(offered bash.sh samestate list con)" == $'contracts\nconventions' ]] || complain 'the topics of list are not offered'
[[ "$(offered bash.sh samestate gate --autotune f)" == $'first\nfull' ]] || complain 'the values of an option are not offered'
[[ "$(offered bash.sh samestate gate --law '' | wc -l)" -gt 5 ]] || complain 'laws are not offered'
[[ "$(offered bash.sh samestate help compl)" == completion ]] || complain 'help does not offer verbs'
[[ -z "$(offered bash.sh samestate gate --jsonl out)" ]] || complain 'where a file stands words are offered'
bad 'completion tcsh bash' completion tcsh
bad 'completion shell' completion
# The other shells read their scripts, if they are installed; each script has every verb.
for shell in zsh fish; do
  run 0 completion "$shell"
  cp out "$shell.txt"
  while read -r verb; do grep -qE "(^|[ ' ])$verb([: )]|$)" "$shell.txt" || complain "$shell: no $verb"; done <verbs
  if command -v "$shell" >/dev/null; then
    "$shell" -n "$shell.txt" >said 2>&1 || complain "$shell does not read it: $(head -2 said)"
  fi
done
if command -v fish >/dev/null; then
  fish -c 'source fish.txt; complete -C "samestate gate --js"' >found 2>&1
  grep -q -- '--jsonl' found || complain "fish does not offer --jsonl: $(head -2 found)"
fi
if command -v zsh >/dev/null; then
  zsh -fc 'autoload -U compinit; compinit -u -d ./dump; source zsh.txt; [[ $_comps[samestate] == _samestate ]]' >said 2>&1 ||
    complain "zsh does not take it: $(head -2 said)"
fi

finish
