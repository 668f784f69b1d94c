#!/usr/bin/env bash
# The gate and then the tests, of everything that this machine can build; see --help.
set -euo pipefail

usage() {
  cat <<'USAGE'
usage: ./test.sh [--help] [--long] [options of ./gate.sh]

Runs ./gate.sh --everything --effort 1 with the options given, builds the tests
and runs ctest. CUDA kernels are compiled where nvcc is found. --long adds the
tests labelled long; a later --effort counts. The last lines are ctest's
summary; its JUnit file is out/ctest.xml.

Exit: that of the gate when it is not 0 (see ./gate.sh --help), else that of
ctest. The tests run either way, unless there is nothing to run them with
(exit 2).

Environment: JOBS, the number of parallel compilers and tests (default: one a
core).
USAGE
}

labels=(--label-exclude '^long$')
gate_options=(--everything)
effort=(--effort 1)
for argument in "$@"; do
  case "$argument" in
    --help | -h)
      usage
      exit 0
      ;;
    --long) labels=() ;;
    --effort*) effort=() gate_options+=("$argument") ;;
    *) gate_options+=("$argument") ;;
  esac
done
gate_options+=("${effort[@]}")

say() { printf 'test.sh: %s\n' "$1"; }

cd "$(dirname "${BASH_SOURCE[0]}")"
jobs="${JOBS:-$(nproc)}"
say "1. ./gate.sh ${gate_options[*]}"
say '2. build the tests'
before="$(sed -nE 's/.*<testsuite .* time="([0-9]+).*/\1/p' out/ctest.xml 2>/dev/null | head -1 || true)"
say "3. ctest with $((jobs + 1)) jobs${before:+: $(((before + 59) / 60)) minutes the last time}"
gate=0
./gate.sh "${gate_options[@]}" || gate=$?
if [[ $gate -eq 2 ]]; then
  exit 2
fi
say '2. building the tests'
cmake --build --preset release --parallel "$jobs" || {
  say 'the build of the tests failed' >&2
  exit 2
}
if [[ $gate -ne 0 ]]; then
  say "the gate ended with exit $gate, and so will this script" >&2
fi

say '3. running the tests; to repeat one: ctest --test-dir build/release --output-on-failure -R NAME'
tests=0
# One test more than there are cores: those of kernels that hang mostly wait.
ctest --test-dir build/release --parallel "$((jobs + 1))" --output-on-failure --no-tests=error \
  --output-junit "$PWD/out/ctest.xml" "${labels[@]}" || tests=$?
if [[ $gate -ne 0 ]]; then
  exit "$gate"
fi
exit "$tests"
