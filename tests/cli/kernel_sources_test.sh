#!/usr/bin/env bash
# Tests the hash of each CUDA kernel's sources (cmake/kernel_sources.cmake): what changes it, and that its
# lists agree with the compiler's and the linker's. usage: kernel_sources_test.sh SAMESTATE ROOT BUILD CMAKE
# CXX FLAGS EMULATED_OPERATORS NVCC
set -uo pipefail

root="$(realpath "$2")"
build="$(realpath "$3")"
cmake="$4" cxx="$5" flags="$6" emulated="$(realpath "$7")" nvcc="${8:-}"
source "$(dirname "$0")/prelude.sh"

# hashes OUT ROOT [OPTION]...: writes a line per kernel, "cuda.rms_norm.fused=0123456789abcdef".
hashes() {
  local out="$1" of="$2"
  shift 2
  "$cmake" -DOUTPUT="$PWD/$out.h" -DROOT="$of" -DCXX="$cxx" -DFLAGS="$flags" "$@" -P "$of/cmake/kernel_sources.cmake" 2>said ||
    complain "kernel_sources.cmake: $(cat said)"
  grep -oE '[a-z0-9_.]+=[0-9a-f]{16}' "$out.h" >"$out"
}
# changed FILE: prints the kernels whose hashes differ from those in `scratch`.
changed() { comm -13 <(sort scratch) <(sort "$1") | sed 's/=.*//' | paste -sd' '; }

hashes here "$root" -DUNITS="$PWD/units"
[[ "$(wc -l <here)" -ge 50 ]] || complain "$(wc -l <here) kernels have a hash"
# All builds have the same hashes: this one, whatever its preset, and one with another compiler.
grep -oE '[a-z0-9_.]+=[0-9a-f]{16}' "$build/generated/samestate_kernel_sources.h" | cmp -s - here ||
  complain 'the build has other hashes than its sources'
if command -v clang++ >/dev/null; then
  mkdir clang && (cd clang && cxx=clang++ && hashes here "$root" && cmp -s here ../here) || complain 'clang++ lists other files'
fi

# The kernels that have a hash are those that are registered, either here or in what runs them on the host.
run 0 list kernels --plugin "$emulated"
grep -oE '^emulated[.][a-z0-9_.]+' out | sed 's/^emulated/cuda/' | sort >registered
[[ "$(wc -l <registered)" -ge 38 ]] || complain 'few kernels of named tensors are registered'
comm -23 registered <(sed 's/=.*//' here | sort) | sed 's/^/no hash of /' >none
[[ -s none ]] && complain "$(cat none)"
if [[ -n "$nvcc" ]]; then
  run 0 list kernels
  diff <(grep -oE '^cuda[.][a-z0-9_.]+' out | sort) <(sed 's/=.*//' here | sort) >differ ||
    complain "kernels of this build and those with a hash: $(cat differ)"
fi

# A change makes exactly those kernels stale that are compiled from the file; a comment and a move make none
# stale.
mkdir tree && cp -r "$root/optimized" "$root/cmake" tree/ && mkdir tree/reference && cp "$root"/reference/*.h tree/reference/
hashes scratch "$PWD/tree"
cmp -s scratch here || complain 'a copy of the tree has other hashes'
# after WHAT KERNELS: checks that these kernels are stale and no others, and then restores the tree.
after() {
  hashes now "$PWD/tree"
  [[ "$(changed now)" == "$2" ]] || complain "after $1 stale: '$(changed now)', not '$2'"
  cp -r "$root/optimized" "$root/cmake" tree/
}
forms() { for form in "$@"; do printf 'cuda.%s\n' {delta_rule,gated_delta_rule,linear_attention,retention}."$form"; done | sort | paste -sd' '; }
plant() { echo "inline int planted() { return 1; }" >>"tree/$1"; }
plant optimized/cuda/scan/scan_token_fma.cuh
after 'a change of the scan' 'cuda.mamba2_mixer.chunked cuda.mamba_mixer.recurrent cuda.selective_scan.recurrent'
plant optimized/cuda/scan/scan.cu
after "a change of the scan's own row" 'cuda.selective_scan.recurrent'
plant optimized/cuda/delta/chunk_wgmma_list.cuh
after 'a change behind chunk_wgmma_list.cu' 'cuda.dendritic_attention.chunked cuda.dendritic_attention.compacted'
plant optimized/cuda/delta/token_fma_dense.cu
after 'a change of decoding' "$(forms recurrent)"
plant optimized/cuda/delta/chunk_wgmma_dense/state.cuh
after 'a change of prefill' "$(forms chunked sequence_parallel)"
plant optimized/cuda/units/emulated_block.h
after 'a change of the emulation' ''
sed -i '1i // A comment.\n' tree/optimized/cuda/scan/scan.cu && echo '// Another.' >>tree/optimized/kernel.h
after 'a comment' ''
(cd tree/optimized/cuda && mkdir moved && mv scan/scan_token_fma.cuh moved/scan_of_tokens.cuh && sed -i \
  's|optimized/cuda/scan/scan_token_fma.cuh|optimized/cuda/moved/scan_of_tokens.cuh|' scan/*.cu)
after 'a move and another name' ''
rm -rf tree/optimized/cuda/moved
sed -i 's|^#include "optimized/cuda/host/grid.cuh"|&\n#include "optimized/cuda/host/probe.h"|' tree/optimized/cuda/scan/scan_token_fma.cuh
after 'one more file that the scan includes' 'cuda.mamba2_mixer.chunked cuda.mamba_mixer.recurrent cuda.selective_scan.recurrent'
flags="$flags -ftz=true" hashes now "$PWD/tree"
[[ "$(changed now | wc -w)" -eq "$(wc -l <here)" ]] || complain 'another flag of the device leaves a kernel fresh'

# links OBJECTS: prints "A B" if an object of unit A calls what that of B defines. Weak functions are in many
# objects and do not count.
links() {
  local object unit
  # A build folder keeps the objects of files that have moved.
  find "$1" -name '*.cu.o' | while read -r object; do
    unit="${object##*.dir/}" && unit="${unit#__/optimized/}"
    [[ ! -e "$root/optimized/${unit%.o}" ]] || printf '%s\0' "$object"
  done | xargs -0 nm -P -A | sed "s|.*/optimized/\(cuda/[^ ]*\)[.]o: |\1 |; s|.*/samestate_optimized.dir/\(cuda/[^ ]*\)[.]o: |\1 |" |
    awk '{ if ($3 == "U") wants[$1, $2]; else if ($3 ~ /[TDBRWV]/) { by[$2] = $1; ++count[$2] } }
      END { for (want in wants) { split(want, w, SUBSEP); if (count[w[2]] == 1 && by[w[2]] != w[1]) print w[1], by[w[2]] } }' | sort -u
}
# A kernel's units are all that its own unit calls, except for what finds the device and takes times. For the
# recurrent family, cuda_kernels.cu calls the units of both forms. With `whole`, no unit is listed that
# nothing calls.
lacking() {
  awk -v whole="$2" 'BEGIN { split("cuda/cuda_kernels.cu cuda/host/measure.cu cuda/host/meter.cu", s, " "); for (i in s) service[s[i]] }
    NR == FNR { links[$1, $2]; next }
    { delete listed; for (i = 2; i <= NF; ++i) { listed[$i]; if ($0 ~ /cuda_kernels[.]cu/) family[$i] }
      for (l in links) { split(l, u, SUBSEP); if (u[2] in service || u[1] in service || !(u[1] in listed)) continue
        if (!(u[2] in listed)) print $1 " lacks " u[2] ", which " u[1] " calls" }
      if (whole) for (i = 3; i <= NF; ++i) { called = $i !~ /[.]cu$/ || $i in service || $i == "cuda/delta/ranks/sequence_parallel.cu"
        for (a in listed) if ((a, $i) in links) called = 1
        if (!called) print $1 " lists " $i ", which nothing of it calls" } }
    END { for (l in links) { split(l, u, SUBSEP); if (u[1] == "cuda/cuda_kernels.cu" && !(u[2] in service) && !(u[2] in family))
      print "no form lists " u[2] ", which " u[1] " calls" } }' "$1" "${3:-units}"
}
links "$build/tests/CMakeFiles/emulated_operators.dir" >emulated
[[ "$(wc -l <emulated)" -ge 20 ]] || complain 'objects of the emulated operators were not found, or call nothing'
lacking emulated '' >said && [[ ! -s said ]] || complain "$(cat said)"
sed 's| cuda/delta/chunk_wgmma_list.cu||' units >fewer
lacking emulated '' fewer | grep -q 'lacks cuda/delta/chunk_wgmma_list.cu' || complain 'a unit that is not listed is not seen'
if [[ -n "$nvcc" ]]; then
  links "$build/optimized/CMakeFiles/samestate_optimized.dir" >linked
  lacking linked whole >said && [[ ! -s said ]] || complain "$(cat said)"
  sed 's| cuda/delta/token_fma_dense.cu||' units >fewer
  lacking linked whole fewer | grep -q 'no form lists cuda/delta/token_fma_dense.cu' || complain "the family's unit that is not listed is not seen"
  sed 's|^cuda.rms_norm.fused .*|& cuda/products/product_library.cu|' units >more
  lacking linked whole more | grep -q 'lists cuda/products/product_library.cu' || complain 'a unit that is not called is not seen'
fi

# nvcc reads the files that the preprocessor listed: this compares its own dependency files, as the generator
# keeps them.
if [[ -n "$nvcc" && -f "$build/.ninja_deps" ]]; then
  ninja -C "$build" -t deps 2>/dev/null | awk -v root="$root/" -v build="$build/" '/^[^ ]/ { unit = ""
      if (match($1, /samestate_optimized[.]dir\/.*[.]o:$/)) { unit = substr($1, RSTART + 24, RLENGTH - 27) } next }
    unit != "" && NF { file = $1; while (sub(/[^\/]+\/[.][.]\//, "", file)) {} while (sub(/^[.][.]\//, "", file)) {}
      if (file ~ /^\// && index(file, root) != 1) next
      sub("^" root, "", file); if (file !~ /^build\//) print unit, file }' | sort -u >read
  read_by_nvcc() { grep -F "$1 " "$2" | awk -v unit="$1" '$1 == unit { print $2 }' | sort -u; }
  compared=0
  for unit in $(cut -d' ' -f2- units | tr ' ' '\n' | sort -u); do
    list="kernel_sources/${unit//\//.}.d"
    sed 's/^[^:]*://; s/\\$//' "$list" | tr ' ' '\n' | grep . | while read -r file; do
      [[ -e "$root/$file" ]] && echo "$file"
    done | sort -u >listed
    grep -q "^$unit " read || { complain "$unit: nvcc's dependency file is not known"; continue; }
    diff <(read_by_nvcc "$unit" read) listed >differ || complain "$unit: what nvcc read (<) and what is listed (>): $(cat differ)"
    compared=$((compared + 1))
  done
  [[ "$compared" -ge 30 ]] || complain "only $compared units were compared"
  echo "cuda/delta/token_fma_dense.cu optimized/cuda/planted.h" >>read
  diff <(read_by_nvcc cuda/delta/token_fma_dense.cu read) <(sed 's/^[^:]*://; s/\\$//' kernel_sources/cuda.delta.token_fma_dense.cu.d | tr ' ' '\n' | grep optimized) >differ
  grep -q planted differ || complain 'a file that nvcc read and nobody listed is not seen'
fi

finish
