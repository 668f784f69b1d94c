#!/usr/bin/env bash
# usage: ptxas_messages_test.sh ROOT CMAKE
# A compiler that says what the assembler would say about a kernel with a fault: cmake/keep_messages.sh keeps
# it and shows what matters, and cmake/ptxas_messages.cmake fails on it.
set -euo pipefail
root=$1 cmake=$2
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
cd "$work"

says() { # LINES EXIT: writes the compiler
  printf '#!/bin/sh\ncat >&2 <<END\n%s\nEND\nexit %s\n' "$1" "$2" >compiler
  chmod +x compiler
}
kernel() { # STACK SPILLS: the assembler's figures of one kernel
  printf 'ptxas info    : Function properties for _Z6kernelv\n    %s bytes stack frame, %s bytes spill stores, %s bytes spill loads\n' "$1" "$2" "$2"
  printf 'ptxas info    : Used 168 registers, used 3 barriers'
}
compiles() { sh "$root/cmake/keep_messages.sh" ./compiler -c kernel.cu -o kernel.o 2>shown; }
judged() { "$cmake" -DSOURCE=delta/kernel.cu -DMESSAGES="$work/kernel.o.messages" "$@" -P "$root/cmake/ptxas_messages.cmake" >verdict 2>&1; }
fails() {
  echo "ptxas_messages_test.sh: $1" >&2
  cat shown verdict >&2 || true
  exit 1
}

says "$(kernel 0 0)" 0
compiles && [[ ! -s shown ]] || fails 'plain figures were shown'
judged -DSECTION="$work/section" && grep -qF '`kernel`' section && grep -q '168 | 3 | 0 | 0' section || fails 'a right kernel failed'

serialised="ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized"
says "$serialised"$'\n'"$(kernel 0 0)" 0
compiles && grep -q C7510 shown || fails 'a serialised product was not shown'
judged && fails 'a serialised product passed'
grep -q C7510 verdict || fails 'the serialised product is not named'

says "$(kernel 8 8)" 0
compiles
judged && fails 'a spill passed'
judged "-DALLOWED=8 bytes stack frame, 8 bytes spill stores, 8 bytes spill loads" || fails 'the spill that is allowed failed'
judged -DGENERIC=ON || fails 'a generic kernel may spill'

says 'nothing of kernels' 0
compiles
judged && fails 'a compiler that said nothing of kernels passed'

says 'error: kernel.cu(1)' 3
status=0
compiles || status=$?
[[ $status -eq 3 ]] && grep -q 'kernel.cu(1)' shown && [[ ! -e kernel.o.messages ]] || fails 'an error was lost'
judged && fails 'a kernel that was not compiled passed'
echo 'ptxas_messages_test.sh: passed'
