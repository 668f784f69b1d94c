#!/usr/bin/env bash
# Several GPUs of a host, on a stand-in for the driver: cases are distributed over them, and records name
# their device; --devices chooses; a device that is lost, however that shows, gives its cases to the others;
# --each-device finds a kernel that gives other bits on another device; a device that computes wrongly is
# named by the command that repeats the failure.
# usage: devices_test.sh SAMESTATE PLUGIN DRIVER
set -uo pipefail

plugin="$(realpath "$2")"
driver="$(dirname "$(realpath "$3")")"
export LD_LIBRARY_PATH="$driver${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
source "$(dirname "$0")/prelude.sh"
patience=120
let_kernels_die
unset CUDA_VISIBLE_DEVICES
export FAKE_DEVICES=2 FAKE_LOST="$PWD/lost" LOSS=answer
mkdir lost

uuid() { printf 'GPU-fafafafa-fafa-fafa-fafa-fafafafafa%02x' "$1"; }
# on FILE DEVICE [VERDICT]: counts the cases in it that ended on that device.
on() { grep -F '"event":"end"' "$1" | grep -F "\"verdict\":\"${3:-}" | grep -cF "\"gpu\":\"$(uuid "$2")\""; }
# Each case makes a call or two, so that a kernel that loses its device in the third has cases before.
gate() { echo gate --plugin "$plugin" --kernel "$1.gated_delta_rule.recurrent" --effort 0.1 --where law=none --where form=recurrent --where T=..64 --where dk=..32 --where dv=..32 --regime normal --max-cases 40; }
cases() { grep -F '"event":"end"' "$1" | sed -E 's/,"(seconds|gpu)":[^,}]*//g' | sort; }

# Cases are distributed over both devices, which are named; results do not depend on where a case ran.
run 0 $(gate sound) --threads 4 --jsonl both.jsonl
says ' and 2 devices'
for device in 0 1; do
  [[ "$(on both.jsonl $device pass)" -ge 5 ]] || complain "device $device has $(on both.jsonl $device pass) cases"
  grep -F '"event":"run"' both.jsonl | grep -F "\"$device: Fake $device, $(uuid $device), 0000:0$((device + 1)):00.0\"" >/dev/null ||
    complain "the run does not list device $device"
done
[[ $(($(on both.jsonl 0) + $(on both.jsonl 1))) -eq "$(grep -cF '"event":"end"' both.jsonl)" ]] ||
  complain 'a case names no device'
grep -F '"event":"end"' both.jsonl | grep -F '"verdict":"pass"' | grep -v '"outputs":"o:[0-9a-f]\{16\}' >/dev/null &&
  complain 'a case that ran has no hash of its outputs'

# One of the devices is chosen; numbers are those that this process sees.
run 0 $(gate sound) --threads 4 --devices 1 --jsonl one.jsonl
[[ "$(on one.jsonl 0)" -eq 0 && "$(on one.jsonl 1)" -gt 30 ]] || complain '--devices 1 ran elsewhere'
cases both.jsonl >a
cases one.jsonl >b
cmp -s a b || complain "the records differ: $(diff a b | head -2 | cut -c1-300)"
CUDA_VISIBLE_DEVICES=1,0 run 0 $(gate sound) --devices 0 --jsonl seen.jsonl
[[ "$(on seen.jsonl 0)" -eq 0 && "$(on seen.jsonl 1)" -gt 30 ]] || complain 'CUDA_VISIBLE_DEVICES is not respected'
FAKE_DEVICES=3 run 0 $(gate sound) --threads 3 --devices 2,0 --jsonl two.jsonl
[[ "$(on two.jsonl 0)" -gt 5 && "$(on two.jsonl 1)" -eq 0 && "$(on two.jsonl 2)" -gt 5 ]] || complain '--devices 2,0'
# With one device, and with none, all is as usual.
FAKE_DEVICES=1 run 0 $(gate sound) --jsonl only.jsonl
[[ "$(on only.jsonl 0)" -gt 30 ]] || complain 'the one device is not named'
FAKE_DEVICES=0 run 77 $(gate sound) --jsonl none.jsonl
grep -qF '"gpu"' none.jsonl && complain 'a device that is not there is named'

# CPU kernels have no device.
run 0 gate --kernel cpu.gated_delta_rule.recurrent --max-cases 20 --jsonl cpu.jsonl
grep -qE '"gpu"|"outputs"' cpu.jsonl && complain 'a case of the processor names a device'

# Bad input.
bad "device 7 2 0..1" $(gate sound) --devices 7
bad "'x' device" $(gate sound) --devices x
bad "'' device" $(gate sound) --devices 0,
bad "'-1'" $(gate sound) --devices 0,-1
bad '1 twice' $(gate sound) --devices 1,0,1
FAKE_DEVICES=0 bad 'no CUDA device' $(gate sound) --devices 0
FAKE_DEVICES=1 bad 'two devices' $(gate sound) --each-device
bad 'two devices' $(gate sound) --devices 1 --each-device
bad 'plan cuda kernel' gate --kernel cpu.gated_delta_rule.recurrent --max-cases 5 --each-device
bad 'device 2' fuzz --plugin "$plugin" --max-cases 5 --devices 2
bad 'device 2' repro --plugin "$plugin" --devices 2 'v1 gated_delta_rule form=recurrent'

# If a device is lost, every case is judged on the other; a line says which was lost, once.
run 0 $(gate losing) --devices 0 --jsonl on-0.jsonl
cases on-0.jsonl >on-0
for LOSS in answer throw die; do
  export LOSS
  rm -f lost/*
  run 0 $(gate losing) --threads 4 --jsonl lost.jsonl
  [[ "$(grep -c "device 1: Fake 1, $(uuid 1).* is lost: its cases go to the one that is left" err)" -eq 1 ]] ||
    complain "LOSS=$LOSS: no line, or several, about the device"
  says "device 1: Fake"
  [[ "$(on lost.jsonl 0 pass)" -gt 25 ]] || complain "LOSS=$LOSS: its cases did not go to device 0"
  grep -F '"event":"end"' lost.jsonl | grep -E '"verdict":"(skipped|crash|flaky|fail)"' >/dev/null &&
    complain "LOSS=$LOSS: a lost device is a verdict of a kernel"
  [[ -z "$(grep -F '"event":"start"' lost.jsonl | grep -oE '"case":[0-9]+' | sort | uniq -d)" ]] ||
    complain "LOSS=$LOSS: a case starts twice"
  cases lost.jsonl >b
  cmp -s on-0 b || complain "LOSS=$LOSS: the records differ: $(diff on-0 b | head -2 | cut -c1-300)"
done
# If none is left, cases are skipped with a message, which is not a fault of the kernel. --resume goes on with
# the skipped ones.
rm -f lost/*
LOSS=answer run 3 $(gate losing) --devices 1 --jsonl gone.jsonl
grep -q 'none is left' err || complain 'nobody says that no device is left'
[[ "$(grep -c '"verdict":"skipped"' gone.jsonl)" -ge 30 ]] || complain 'without a device cases are not skipped'
grep -qF '"gate":"devices lost"' gone.jsonl || complain 'a lost device is not told from one that was never there'
run 0 $(gate losing) --devices 0 --jsonl gone.jsonl --resume
cases gone.jsonl >b
cmp -s on-0 b || complain "--resume: the records differ: $(diff on-0 b | head -2 | cut -c1-300)"
rm -f lost/*
LOSS=answer run 3 fuzz --plugin "$plugin" --kernel losing.gated_delta_rule.recurrent --devices 1 --seed 3 --budget 5m --threads 2
grep -q 'Every device was lost' out || complain 'a search without a device does not say why it ends'
rm -f lost/*

# Every device gives the same bits.
run 0 $(gate sound) --threads 2 --each-device --jsonl each.jsonl
says 'on each of them'
says "$(on each.jsonl 0 pass | awk -v other="$(on each.jsonl 1 pass)" '{ print $1 + other }') cases on each of them"
cases each.jsonl >b
cmp -s a b || complain "--each-device: the records differ: $(diff a b | head -2 | cut -c1-300)"
run 0 $(gate skewed)
run 1 $(gate skewed) --each-device --jsonl skewed.jsonl
grep -F '"gate":"between devices"' skewed.jsonl | grep -F 'final_state has other bits on another device, which passes too' |
  grep -F "Fake 0" | grep -F "Fake 1" | grep -F 'the first repeats its own' >/dev/null || complain 'the difference is not named'
command="$(grep -oE "samestate repro .* --each-device '?v1 [^']*'?" out | head -1)"
grep -qE '^failures of [1-4] kinds?:' out || complain 'hashes make kinds of failures'
[[ -n "$command" ]] || complain 'no command that repeats it'
eval "run 1 ${command#samestate }"
says 'bits another device passes'
run 1 $(gate restless) --each-device --jsonl restless.jsonl
holds restless.jsonl 'not deterministic' || complain 'a kernel that is not deterministic is not told apart'

# If a device computes wrongly, the case is repeated on it, so that it is a failure and not flaky.
run 1 $(gate wrong) --threads 4 --jsonl wrong.jsonl
[[ "$(on wrong.jsonl 1 fail)" -ge 3 && "$(on wrong.jsonl 0 fail)" -eq 0 ]] || complain 'failures of another device'
grep -qF '"verdict":"flaky"' wrong.jsonl && complain 'a failure was repeated on another device'
grep -q -- "samestate repro .*--devices 1 .*kernel=wrong" out || complain 'the command does not name the device'
run 1 fuzz --plugin "$plugin" --kernel wrong.gated_delta_rule.recurrent --regime normal --max-cases 40 --seed 3 --threads 4 \
  --shrink-budget 10s --checkpoint night.txt --jsonl fuzz.jsonl
[[ "$(on fuzz.jsonl 1 fail)" -ge 3 && "$(on fuzz.jsonl 0 fail)" -eq 0 ]] || complain 'fuzz: failures of another device'
grep -q -- "--devices 1 " out || complain 'fuzz: the command does not name the device'
grep -qF "$(uuid 1)" night.txt || complain 'the checkpoint does not name the device'
run 1 fuzz --plugin "$plugin" --kernel wrong.gated_delta_rule.recurrent --regime normal --max-cases 60 --seed 3 --threads 4 \
  --shrink-budget 10s --checkpoint night.txt --resume

# --resume goes on; merge keeps the devices of each case and of the run.
head -n 21 both.jsonl >cut.jsonl
run 0 $(gate sound) --threads 4 --jsonl cut.jsonl --resume
cases cut.jsonl >b
cmp -s a b || complain "--resume: the records differ: $(diff a b | head -2 | cut -c1-300)"
for shard in 0 1; do run 0 $(gate sound) --devices $shard --shard $shard/2 --jsonl part-$shard.jsonl; done
run 0 merge part-0.jsonl part-1.jsonl --plugin "$plugin" --jsonl merged.jsonl
[[ "$(on merged.jsonl 0)" -gt 5 && "$(on merged.jsonl 1)" -gt 5 ]] || complain 'merge: devices are lost'
grep -F '"event":"run"' merged.jsonl | grep -F 'Fake 0' | grep -F 'Fake 1' >/dev/null || complain 'merge: the run lists not all'

# bench times on the first device, on the one that is named, or on each of several in turn; a kernel that is
# wrong on one has no time there.
bench() { echo bench --plugin "$plugin" --device cuda --seconds 0.01 --kernel "$1.gated_delta_rule.recurrent" --jsonl "$2"; }
line='v1 gated_delta_rule form=recurrent T=9 dk=16 dv=8 state=random'
timed() { grep -F '"event":"timing"' "$1" | grep -F "\"verdict\":\"$3\"" | grep -cF "\"gpu\":\"$(uuid "$2")\""; }
run 0 $(bench sound bench-1.jsonl) --devices 1 --case "$line"
[[ "$(timed bench-1.jsonl 1 pass)" -eq 1 && "$(timed bench-1.jsonl 0 pass)" -eq 0 ]] || complain 'bench --devices 1'
run 0 $(bench sound bench.jsonl) --devices 1,0 --case "$line"
[[ "$(timed bench.jsonl 1 pass)" -eq 1 && "$(timed bench.jsonl 0 pass)" -eq 1 ]] || complain 'bench --devices 1,0'
grep -qE '^kernel +on +case' out || complain 'bench: the table does not say which device'
grep -qE 'Ceilings of device 1, Fake 1' out && grep -qE 'Ceilings of device 0, Fake 0' out || complain 'bench: ceilings'
grep -F '"event":"run"' bench.jsonl | grep -F 'Fake 0' | grep -qF 'Fake 1' || complain 'bench: the run lists not both'
run 1 $(bench wrong bench-wrong.jsonl) --devices 0,1 --case "$line"
[[ "$(timed bench-wrong.jsonl 0 pass)" -eq 1 && "$(timed bench-wrong.jsonl 1 fail)" -eq 1 ]] || complain 'bench: wrong on 1'
grep -q -- '--devices 1' out || complain 'bench: the command does not name the device'
bad 'device 7' $(bench sound none.jsonl) --devices 7 --case "$line"
bad '1 twice' $(bench sound none.jsonl) --devices 1,1 --case "$line"
bad '--devices' mutants --devices 0

# compare says for each kernel how many cases wrote equal bits, and which differ first.
run 0 $(gate sound) --devices 0 --jsonl sound-0.jsonl
run 0 $(gate sound) --devices 1 --jsonl sound-1.jsonl
run 0 compare sound-0.jsonl sound-1.jsonl
grep -qE 'sound.gated_delta_rule.recurrent +([0-9]+) of \1 cases wrote equal bits' out || complain "compare: $(cat out)"
run 0 $(gate skewed) --devices 0 --jsonl skewed-0.jsonl
run 0 $(gate skewed) --devices 1 --jsonl skewed-1.jsonl
run 0 compare skewed-0.jsonl skewed-1.jsonl
grep -qE 'skewed.gated_delta_rule.recurrent +[0-9]+ of [0-9]+ cases wrote equal bits' out || complain 'compare: skewed'
grep -qE 'skewed.gated_delta_rule.recurrent +([0-9]+) of \1 cases' out && complain 'compare: skewed is equal'
grep -qE "final_state differs +samestate repro .*kernel=skewed" out || complain 'compare: the first is not named'

# Ranks of a host divide its devices; a rank's case that was lost with its device goes to a rank that is left
# there, and gets its verdict.
if command -v mpirun >/dev/null && [[ -x "$(dirname "$samestate")/samestate-mpi" ]]; then
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  around=(mpirun)
  mpirun --version 2>&1 | grep -q 'Open MPI' && around+=(--oversubscribe)
  around+=(-n 2)
  run 0 $(gate sound) --jsonl ranks.jsonl
  [[ "$(on ranks.jsonl 0)" -ge 2 && "$(on ranks.jsonl 1)" -ge 2 ]] || complain 'ranks: both use one device'
  cases ranks.jsonl >b
  cmp -s a b || complain "ranks: the records differ: $(diff a b | head -2 | cut -c1-300)"
  attempt $(gate sound) --each-device
  [[ $code -eq 2 ]] && grep -q 'start without mpirun' err || complain '--each-device under mpirun'
  around=()
fi

finish
