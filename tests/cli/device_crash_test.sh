#!/usr/bin/env bash
# Search on a CUDA kernel whose illegal memory access kills the context of its process: a crash for that case, and
# the following ones judged in a process of their own. With DRIVER, a stand-in for libcuda.so.1, no device is
# needed; without, skipped (77) where there is none.
# usage: device_crash_test.sh SAMESTATE PLUGIN [DRIVER]
set -uo pipefail

plugin="$(realpath "$2")"
if [[ $# -ge 3 ]]; then
  driver="$(dirname "$(realpath "$3")")"
  export LD_LIBRARY_PATH="$driver${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
fi
source "$(dirname "$0")/prelude.sh"

kernel=device.gated_delta_rule.recurrent
attempt repro --plugin "$plugin" "v1 gated_delta_rule form=recurrent T=4 dk=4 kernel=$kernel"
if [[ $code -eq 77 && $# -lt 3 ]]; then
  printf 'skipped: no CUDA device\n'
  exit 77
fi
[[ $code -eq 0 ]] || complain "a right case: exit $code instead of 0"

patience=240
run 5 fuzz --plugin "$plugin" --kernel "$kernel" --seed 7 --budget 0 --max-cases 60 --threads 1 --timeout 60s \
  --shrink-budget 20s --corpus found
[[ "$(count crash)" -ge 2 ]] || complain 'no crashes'
[[ "$(count fail)" -eq 0 ]] || complain 'a dead context became a failure'
[[ "$(count skipped)" -eq 0 ]] || complain 'a case met a dead context'
# There is one worker: every case that passes after the first crash has a context of its own.
[[ "$(count pass)" -ge 15 ]] || complain 'the other cases were not judged'
holds out 'CUDA_ERROR_ILLEGAL_ADDRESS kernel device' ||
  complain 'a kernel that looks at no error is not found out'
holds out 'threw cuCtxSynchronize 700' || complain 'a kernel that throws is not found out'

cp out printed
lines=0
while read -r command; do
  lines=$((lines + 1))
  patience=60
  eval "run 5 ${command#samestate }"
done < <(grep -oE "^    samestate repro .*--plugin .*'" printed)
[[ $lines -ge 2 ]] || complain "$lines shrunk lines instead of 2"

# The gate goes on too: every case that passes after the first crash has a context of its own. Threads share
# one process. There are few cases, because a kernel that has cost twenty processes is not run any more.
patience=240
for threads in 1 2; do
  run 5 gate --plugin "$plugin" --kernel "$kernel" --max-cases 36 --threads "$threads" --jsonl lines
  [[ "$(grep -c '"verdict": *"crash"' lines)" -ge 2 ]] || complain 'gate: no crashes'
  [[ "$(grep -cE '"verdict": *"(skipped|flaky|fail)"' lines)" -eq 0 ]] || complain 'gate: a case met a dead context'
  [[ "$(grep -c '"verdict": *"pass"' lines)" -ge 5 ]] || complain 'gate: the other cases were not judged'
done

# The command itself never starts the device before it forks: its own kernels run in workers.
if grep -q '"device": "cuda"' <("$samestate" list kernels --json | grep -A1 '"contracts": ".*fp32') && [[ $# -lt 3 ]]; then
  attempt fuzz --device cuda --system gated_delta_rule --seed 3 --budget 0 --max-cases 20
  [[ $code -eq 0 || $code -eq 3 ]] || complain "fuzz --device cuda: exit $code"
  [[ "$(count pass)" -ge 5 ]] || complain 'fuzz --device cuda: nothing was judged'
fi

finish
