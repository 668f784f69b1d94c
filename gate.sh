#!/usr/bin/env bash
# Builds samestate and runs its gate. Made for a bare Debian 12; see --help.
set -euo pipefail

usage() {
  cat <<'END'
usage: ./gate.sh [--help] [options of `samestate gate`]

Installs the Debian packages that are missing (with sudo unless root; nothing when all are there), builds
build/release, runs `samestate gate` with the options given and writes out/gate.jsonl, out/gate.xml (JUnit)
and out/gate.md (Markdown). CUDA kernels are built where nvcc is found; nvcc itself is never installed.

Exit: 0 pass, 1 numerical failure, 2 usage or set-up, 3 vacuous or insufficient coverage, 4 flaky, 5 crash,
77 nothing could run here.

Environment: JOBS, the number of parallel compilers (default: one a core).
END
}

packages=(build-essential cmake ninja-build ccache git clang-format
  libeigen3-dev libboost-dev libboost-context-dev libmpfi-dev libmpfr-dev libgmp-dev librandom123-dev libfmt-dev libcli11-dev
  nlohmann-json3-dev libpugixml-dev librapidcheck-dev libgtest-dev libbenchmark-dev libdlpack-dev gnuplot-nox)

say() { printf 'gate.sh: %s\n' "$1"; }

fail() {
  say "$1" >&2
  exit 2
}

install_missing() {
  if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    say "not a Debian; taking these as installed: ${packages[*]}"
    return
  fi
  local missing=() package
  for package in "${packages[@]}"; do
    if [[ "$(dpkg-query -W -f='${db:Status-Abbrev}' "$package" 2>/dev/null || true)" != ii* ]]; then
      missing+=("$package")
    fi
  done
  if [[ ${#missing[@]} -eq 0 ]]; then
    return
  fi
  local as_root=()
  if [[ "$(id -u)" -ne 0 ]]; then
    command -v sudo >/dev/null || fail "no sudo; as root: apt-get install ${missing[*]}"
    as_root=(sudo)
  fi
  say "installing ${missing[*]}"
  # An unreachable source is no reason to stop here: the install says whether it could do its work.
  "${as_root[@]}" apt-get -qq update || true
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get -qq install -y --no-install-recommends "${missing[@]}" || fail "could not install ${missing[*]}"
}

for argument in "$@"; do
  if [[ "$argument" == --help || "$argument" == -h ]]; then
    usage
    exit 0
  fi
done

cd "$(dirname "${BASH_SOURCE[0]}")"
install_missing
jobs="${JOBS:-$(nproc)}"
say "building build/release with $jobs jobs"
cmake --preset release --log-level=WARNING || fail "configuring failed"
cmake --build --preset release --parallel "$jobs" --target samestate || fail "the build failed"

mkdir -p out
rm -f out/gate.jsonl out/gate.xml out/gate.md
status=0
build/release/cli/samestate gate --jsonl out/gate.jsonl --junit out/gate.xml --markdown out/gate.md "$@" ||
  status=$?
# Killed by a signal: the JSON Lines record tells in which case.
if [[ $status -ge 128 ]]; then
  status=5
fi
say "exit $status; reports: $PWD/out/gate.md, gate.xml, gate.jsonl"
exit "$status"
