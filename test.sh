#!/usr/bin/env bash
# Builds samestate, runs its gate and then its tests. Made for a bare Debian 12; see --help.
set -euo pipefail

usage() {
  cat <<'END'
usage: ./test.sh [--help] [--long] [options of `samestate gate`]

Runs ./gate.sh with the options given, builds everything and runs ctest; --long adds the tests labelled long.
The last lines are ctest's summary; its JUnit file is out/ctest.xml.

Exit: that of the gate when it is not 0 (see ./gate.sh --help), else that of ctest. The tests run either way,
unless there is nothing to run them with (exit 2).

Environment: JOBS, the number of parallel compilers and tests (default: one a core).
END
}

labels=(--label-exclude '^long$')
gate_options=()
for argument in "$@"; do
  case "$argument" in
    --help | -h)
      usage
      exit 0
      ;;
    --long) labels=() ;;
    *) gate_options+=("$argument") ;;
  esac
done

cd "$(dirname "${BASH_SOURCE[0]}")"
jobs="${JOBS:-$(nproc)}"
gate=0
./gate.sh "${gate_options[@]}" || gate=$?
if [[ $gate -eq 2 ]]; then
  exit 2
fi
cmake --build --preset release --parallel "$jobs" || {
  printf 'test.sh: the build of the tests failed\n' >&2
  exit 2
}
if [[ $gate -ne 0 ]]; then
  printf 'test.sh: the gate ended with exit %s, and so will this script\n' "$gate" >&2
fi

tests=0
ctest --test-dir build/release --parallel "$jobs" --output-on-failure --no-tests=error \
  --output-junit "$PWD/out/ctest.xml" "${labels[@]}" || tests=$?
if [[ $gate -ne 0 ]]; then
  exit "$gate"
fi
exit "$tests"
