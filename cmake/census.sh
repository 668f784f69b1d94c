#!/usr/bin/env bash
# Writes a page of registers and barriers of every CUDA kernel, as the assembler said them when BUILD was built.
# usage: cmake/census.sh PAGE [BUILD, default build/release]
set -euo pipefail
root="$(cd "$(dirname "$0")/.." && pwd)"
made="$(realpath -m "$1")"
build="$(realpath -m "${2:-$root/build/release}")"
nvcc="$(sed -n 's/^CMAKE_CUDA_COMPILER:[A-Z]*=//p' "$build/CMakeCache.txt")"
cd "$root/optimized/cuda"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
page="$work/page"
{
  echo '# Registers of the CUDA kernels'
  echo
  echo 'Native code for sm_90a as ptxas reports it; written by `cmake/census.sh` with'
  echo "nvcc $("$nvcc" --version | grep -oE 'release [0-9.]+, V[0-9.]+')."
  echo 'The fast kernels may not spill; the generic ones (`*_generic.cu`) may. Shared memory is asked for at launch (`ChainShared`, `PrepareShared`, `SplitShared` ... of each).'
  for source in */*.cu delta/ranks/device_share.cu; do
    case "$source" in host/* | products/product_library.cu | *_trace.cu) continue ;; esac
    cmake -DSOURCE="$source" -DGENERIC=ON -DSECTION="$work/section" \
      -DMESSAGES="$build/optimized/CMakeFiles/samestate_optimized.dir/cuda/$source.o.messages" \
      -P "$root/cmake/ptxas_messages.cmake" >&2
    echo
    cat "$work/section"
  done
} >"$page"
mv "$page" "$made"
