#!/usr/bin/env bash
# From a fresh clone to the first verdict; see --help.
set -euo pipefail

usage() {
  cat <<'USAGE'
usage: ./gate.sh [--build-only] [--cuda] [--everything] [options of `samestate gate`]

Builds the command of this clone and runs its gate on the kernels of this
repository. Without options this is quick: the judge alone is built, and the
gate tries a tenth of its plan.

  --build-only   build the command, run no gate
  --cuda         build the CUDA kernels too; without it they are built where
                 nvcc is found and a GPU is present
  --everything   build mutants and proofs too, in build/release, and install
                 what the tests need; ./test.sh passes it
  --effort N     the whole gate is --effort 1; default: 0.1
  --help, -h     print this page

Debian packages that are missing are installed, with sudo unless you are root;
nvcc never is. The gate's reports are out/gate.jsonl, out/gate.xml (JUnit) and
out/gate.md (Markdown).

Exit: 0 pass, 1 numerical failure, 2 usage or set-up, 3 vacuous or insufficient
coverage, 4 flaky, 5 crash, 77 nothing could run here.

Environment: JOBS, the number of parallel compilers (default: one a core).
USAGE
}

say() { printf 'gate.sh: %s\n' "$1"; }

fail() {
  say "$1" >&2
  exit 2
}

cd "$(dirname "${BASH_SOURCE[0]}")"
build_only='' cuda='' ptx=ON everything='' quick=(--effort 0.1)
gate_options=()
for argument in "$@"; do
  case "$argument" in
    --help | -h)
      usage
      exit 0
      ;;
    --build-only) build_only=yes ;;
    --cuda) cuda=ON ;;
    --everything) everything=yes ;;
    *)
      # Whoever says how much is tried does not want the quick gate.
      [[ "$argument" != --effort* && "$argument" != --max-cases* ]] || quick=()
      gate_options+=("$argument")
      ;;
  esac
done

packages=(build-essential cmake ninja-build ccache git)
while read -r package; do packages+=("$package"); done < <(grep -oE '\b(lib[a-z0-9]+|nlohmann-json3)-dev\b' cmake/dependencies.cmake | sort -u)
if [[ -n "$everything" ]]; then
  packages+=(clang-format libboost-context-dev libgtest-dev libbenchmark-dev libdlpack-dev gnuplot-nox python3-numpy python3-pytest)
fi

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

has_nvcc() { command -v "${CUDACXX:-nvcc}" >/dev/null || [[ -x "${CUDA_PATH:-${CUDA_HOME:-/usr/local/cuda}}/bin/nvcc" ]]; }
has_gpu() { nvidia-smi -L 2>/dev/null | grep -q '^GPU'; }

if [[ -z "$cuda" ]]; then
  cuda=OFF
  if has_nvcc && { [[ -n "$everything" ]] || has_gpu; }; then cuda=ON; fi
  # PTX is for GPUs later than Hopper, and a quarter of the time of compiling.
  has_gpu || ptx=OFF
elif ! has_nvcc; then
  fail 'there is no nvcc: put it into PATH, or leave --cuda out'
fi
jobs="${JOBS:-$(nproc)}"
preset=judge
[[ -z "$everything" ]] || preset=release
folder="build/$preset"

# Minutes of processor time of a build without compiler cache: the compilers' seconds in build.ninja's log, added up.
what='the judge' work=13
[[ "$preset" == judge ]] || what='the whole command' work=19
[[ "$cuda" == OFF ]] || what="$what and the CUDA kernels" work=$((work + 6))
say "1. build $what in $folder: about $work minutes of processor time, $(((work + jobs - 1) / jobs)) min with $jobs idle cores; a minute where a compiler cache has it all"
if [[ -n "$build_only" ]]; then
  say '2. no gate (--build-only)'
elif [[ ${#quick[@]} -gt 0 ]]; then
  say '2. run the quick gate on the kernels of this repository: about 1 minute; --effort 1 runs the whole'
else
  say "2. run the gate: samestate gate ${gate_options[*]}"
fi

install_missing
begin=$SECONDS
cmake --preset "$preset" -DSAMESTATE_CUDA="$cuda" -DSAMESTATE_PTX="$ptx" --log-level=WARNING || fail 'configuring failed'
cmake --build --preset "$preset" --parallel "$jobs" --target samestate || fail 'the build failed'
say "built $folder/cli/samestate in $(((SECONDS - begin) / 60)) min $(((SECONDS - begin) % 60)) s"

next() {
  say 'next:'
  printf '  export PATH="%s/cli:$PATH"\n' "$PWD/$folder"
  printf '  export PYTHONPATH="%s/python"      # or: pip install ./python\n' "$PWD"
  printf '  samestate gate --subject python:python/examples/subject_numpy.py:gated_delta_rule --max-cases 200\n'
  printf '  samestate help\n'
}
if [[ -n "$build_only" ]]; then
  next
  exit 0
fi

mkdir -p out
rm -f out/gate.jsonl out/gate.xml out/gate.md
status=0
"$folder/cli/samestate" gate --jsonl out/gate.jsonl --junit out/gate.xml --markdown out/gate.md "${quick[@]}" \
  "${gate_options[@]}" || status=$?
# Killed by a signal: the JSON Lines record tells in which case.
if [[ $status -ge 128 ]]; then
  status=5
fi
say "exit $status; reports: $PWD/out/gate.md, gate.xml, gate.jsonl"
[[ $status -eq 2 ]] || next
exit "$status"
