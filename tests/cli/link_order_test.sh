#!/usr/bin/env bash
# The proofs instantiate the references' templates without optimisation, and of several equal functions the
# linker keeps the first that it finds. So if the oracles have a function too, the command must not have the
# proofs' version. usage: link_order_test.sh SAMESTATE ORACLES.a PROOFS.a
set -euo pipefail

# Prints names and sizes of the functions that a linker takes from any unit.
weak() { nm -S --defined-only "$1" 2>/dev/null | awk '$3 == "W" { print $4, $2 }' | sort -u; }
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
weak "$1" >"$folder/command"
weak "$2" >"$folder/oracles"
weak "$3" >"$folder/proofs"
# Functions for which the two have different machine code: the command must have one of the oracles' versions.
awk -v oracles="$folder/oracles" -v proofs="$folder/proofs" '
  BEGIN {
    while ((getline line <oracles) > 0) { split(line, f, " "); of_oracles[line] = 1; known[f[1]] = 1 }
    while ((getline line <proofs) > 0) { split(line, f, " "); if (f[1] in known && !(line in of_oracles)) of_proofs[line] = 1 }
    for (line in of_proofs) { split(line, f, " "); differ[f[1]] = 1 }
  }
  $1 in differ { ++compared; if (($0 in of_proofs) && !($0 in of_oracles)) { ++wrong; if (wrong <= 5) print "of the proofs: " $1 } }
  END {
    printf "%d functions compared, %d of the proofs\n", compared, wrong
    exit !(compared >= 100 && wrong == 0)
  }' "$folder/command"
