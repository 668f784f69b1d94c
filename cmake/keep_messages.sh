#!/bin/sh
# usage: keep_messages.sh COMPILER ... -o OBJECT ...
# Runs the compiler and keeps what it says in OBJECT.messages, where cmake/ptxas_messages.cmake reads the registers and spills of
# every kernel. The assembler's plain figures, some thousand lines of a build, are not shown; everything else is.
set -u
object=
previous=
for argument in "$@"; do
  if [ "$previous" = -o ]; then
    object=$argument
  fi
  previous=$argument
done
messages="${object:?keep_messages.sh: the command line names no object by -o}.messages"
"$@" 2>"$messages"
status=$?
if [ "$status" -ne 0 ]; then
  cat "$messages" >&2
  rm -f "$messages"
else
  grep -Ev '^ptxas info +: [^(]|^ +[0-9]+ bytes stack frame' "$messages" >&2
fi
exit "$status"
