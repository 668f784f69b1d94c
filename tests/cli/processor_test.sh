#!/usr/bin/env bash
# On a processor without the instructions for which the command was built, it says so with exit 2 instead of
# dying of SIGILL. Skipped, with the reason, if no emulator for such a processor is installed.
# usage: processor_test.sh SAMESTATE
set -uo pipefail
source "$(dirname "$0")/prelude.sh"

qemu="$(command -v qemu-x86_64-static || command -v qemu-x86_64 || true)"
if [[ -z "$qemu" ]]; then
  printf 'skipped: no qemu-x86_64 (qemu-user)\n'
  exit 77
fi
around=("$qemu" -cpu qemu64)
for words in '--version' 'gate --list' 'list systems'; do
  # shellcheck disable=SC2086
  bad 'AVX2' $words
done
around=("$qemu" -cpu max)
run 0 --version
says 'samestate '

finish
