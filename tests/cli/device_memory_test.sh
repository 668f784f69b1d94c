#!/usr/bin/env bash
# A kernel that uses samestate/subject.h and keeps its tensors in the device's memory (examples/subject_cuda),
# on a stand-in for libcuda.so.1 in which work on a stream is done only when it is waited for, and a host that
# reads device memory dies.
# usage: device_memory_test.sh SAMESTATE SUBJECT DRIVER
set -uo pipefail

subject="$(realpath "$2")"
driver="$(dirname "$(realpath "$3")")"
source "$(dirname "$0")/prelude.sh"
let_kernels_die
name=mine.gated_delta_rule.recurrent
line="v1 gated_delta_rule form=recurrent T=9 Hk=2 Hv=4 dk=8 dv=4 state=random kernel=$name"

# Without a driver nothing runs, and nothing is reported as passed. (If there is a driver, this checks
# nothing.)
if ! ldconfig -p 2>/dev/null | grep -q 'libcuda\.so\.1'; then
  run 77 repro --subject "$subject" "$line"
  says 'CUDA driver'
fi
export LD_LIBRARY_PATH="$driver${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"

patience=240
run 0 gate --subject "$subject" --kernel "$name" --max-cases 300
[[ "$(count pass)" -ge 295 && $(($(count pass) + $(count vacuous))) -eq 300 ]] ||
  complain "of 300 cases $(count pass) pass and $(count vacuous) are vacuous"
patience=60
run 0 repro --subject "$subject" "$line"
says 'verdict   pass'

# FAULT|CODE|WORD: each fault is a verdict of its case.
while IFS='|' read -r fault expected word; do
  FAULT=$fault run "$expected" repro --subject "$subject" "$line"
  grep -qF -- "$word" out || complain "$fault: does not say '$word'"
done <<END
no_stream|1|verdict   fail
own_stream|1|still writing when its stream was idle
edits_input|1|changed its input k
writes_beside|1|wrote outside 
unwritten|1|verdict   fail
on_host|5|signal 11
breaks|5|CUDA_ERROR_ILLEGAL_ADDRESS
END
# A kernel that reads stale inputs has read NaN.
FAULT=no_stream run 1 repro --subject "$subject" "$line"
says 'nan'

# The gate goes on, in a process with a context of its own.
FAULT=breaks run 5 gate --subject "$subject" --kernel "$name" --max-cases 6
says 'crash 6'

# There is no device, or too little memory on it.
CUDA_VISIBLE_DEVICES='' run 77 repro --subject "$subject" "$line"
says 'sees no device'
FAKE_MEMORY=1000 run 77 repro --subject "$subject" "$line"
says 'bytes device'

FAULT=on_cpu bad 'say "device": "cuda" too' repro --subject "$subject" "$line"
FAULT=on_moon bad 'known: host, cuda' repro --subject "$subject" "$line"
# A kernel in a process of its own cannot be given device memory.
cat >program <<'END'
#!/bin/sh
read hello
echo '{"type":"ready","protocol":1,"kernels":[{"name":"a.retention.recurrent","system":"retention","form":"recurrent","device":"cuda","memory":"cuda","contracts":["fp32"]}]}'
END
chmod +x program
bad 'process memory host' repro --subject ./program "v1 retention form=recurrent T=4"

finish
