#!/usr/bin/env bash
# Writes a page: registers and barriers of every CUDA kernel, as the assembler says them. usage: cmake/census.sh PAGE [NVCC]
set -euo pipefail
root="$(cd "$(dirname "$0")/.." && pwd)"
made="$(realpath -m "$1")"
nvcc="${2:-nvcc}"
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
    cmake -DNVCC="$nvcc" -DSOURCE_DIR="$root" -DSOURCE="$root/optimized/cuda/$source" -DOUTPUT="$work/cubin" -DGENERIC=ON \
      -DSECTION="$work/section" -P "$root/cmake/ptxas_messages.cmake" >&2
    echo
    cat "$work/section"
  done
} >"$page"
mv "$page" "$made"
