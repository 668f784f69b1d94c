#!/usr/bin/env bash
# Libraries that exit, crash, hang, register handlers, start threads, change control registers and write to
# descriptors when they are loaded, asked or called, as a plugin in C++ and as a library in C. The judge's
# exit code, reports and run file are unaffected, and it says what the library did.
# usage: hostile_test.sh SAMESTATE PLUGIN SOURCE_DIR
set -uo pipefail

plugin="$(realpath "$2")"
source_dir="$(realpath "$3")"
source "$(dirname "$0")/prelude.sh"
let_kernels_die
patience=120

mkdir -p include/samestate
ln -s "$source_dir/optimized/subject.h" include/samestate/subject.h
cat >hostile.c <<END
#define samestate_subject_declare right_declare
#define samestate_subject_run right_run
#include "$source_dir/examples/subject_c/my_subject.c"
#undef samestate_subject_declare
#undef samestate_subject_run
#include "$source_dir/tests/cli/hostile.h"
__attribute__((visibility("default"))) const char* samestate_subject_declare(void) {
  hostile_declare();
  return right_declare();
}
__attribute__((visibility("default"))) int samestate_subject_run(const samestate_call* call) {
  hostile_call();
  return right_run(call);
}
END
doors=("--plugin $plugin")
if cc -D_GNU_SOURCE -O2 -shared -fPIC -Iinclude hostile.c -o libhostile.so -lm -lpthread 2>cc.log; then
  doors+=("--subject $folder/libhostile.so")
else
  complain "no library in C: $(head -3 cc.log)"
fi
line='v1 gated_delta_rule form=recurrent T=5 dk=8 dv=4 kernel=mine.gated_delta_rule.recurrent'

few=(--effort 0.02 --where 'T=..64 dk=..32 dv=..32 Hv=..8')
for door in "${doors[@]}"; do
  # Libraries that misbehave before there is a kernel are bad input; the message names the library and what it
  # did, for every verb.
  for what in 'exit|ended its process with code 0' '_exit|ended its process with code 0' \
    'quick_exit|ended its process with code 0' 'abort|signal 6' 'crash|signal 11' \
    'exit_in_declaration|ended its process with code 0' 'hang|--start-timeout' 'stop|was stopped by signal 19' \
    'hang_in_declaration|--start-timeout' 'static_object|ended its process with code 0' \
    'throw_in_declaration|threw' 'throw_in_constructor|threw'; do
    export HOSTILE="${what%%|*}"
    [[ "$door" == --plugin* || ! "$HOSTILE" =~ static|throw ]] || continue
    bad "${what#*|}" repro $door --start-timeout 2s "$line"
    bad "${what#*|}" gate $door --start-timeout 2s --max-cases 5 --jsonl run.jsonl --junit run.xml
    absent run.jsonl
    absent run.xml
  done
  export HOSTILE=exit
  bad 'code 0' fuzz $door --max-cases 5 --budget 0
  bad 'code 0' bench $door --quick
  bad 'code 0' card $door --kernel mine.gated_delta_rule.recurrent
  bad 'code 0' diagnose $door
  bad 'code 0' list kernels $door
  bad 'code 0' tolerance $door "$line"
  bad 'code 0' sweep $door --kernel mine.gated_delta_rule.recurrent

  # Changes of the process that do not affect the kernel: the run passes, and its file is complete.
  for what in none atexit destructor static_destructor threads surroundings descriptors; do
    export HOSTILE="$what"
    run 0 gate $door "${few[@]}" --max-cases 40 --threads 2 --timeout 20s --jsonl "$what.jsonl"
    [[ "$(grep -c '"event":"end"' "$what.jsonl")" -ge 40 ]] || complain "$what: not every case has a record"
    ! grep -q garbage "$what.jsonl" || complain "$what: the kernel wrote into the run file"
    attempt report "$what.jsonl" --out "$what.html"
    [[ $code -eq 0 ]] || complain "$what: no report can be made of the run file"
  done

  # A library that writes into the judge's record is found, and the run is not a pass.
  HOSTILE=forge run 2 gate $door "${few[@]}" --max-cases 40 --threads 2 --jsonl forged.jsonl
  grep -q 'forged.jsonl: .*something else' err || complain 'a forged record is not named'

  # The processes that it leaves behind end before the judge does, even by an interrupt for which nothing
  # waits.
  set -m
  HOSTILE=orphan "$samestate" repro $door "$line" >out 2>err </dev/null &
  process=$!
  set +m
  await 1 '[0-9]' orphan || complain 'orphan: nothing began'
  kill -INT $process
  code=0
  wait $process || code=$?
  [[ $code -eq 130 ]] || complain "orphan: exit $code after an interrupt"
  ! kill -0 "$(cat orphan)" 2>/dev/null || complain 'orphan: a process of the kernel goes on'
  rm -f orphan

  # Changed control registers are a failure of the gate environment that names the field, and the kernel's own
  # verdict is not changed otherwise.
  for what in 'rounding|rounding toward plus infinity' 'ftz|flush-to-zero (FTZ) on' 'daz|denormals-are-zero (DAZ) on' \
    'masks|exceptions unmasked' 'x87|x87 precision of 53 bits' 'rounding_at_load|rounding toward plus infinity' \
    'ftz_at_load|flush-to-zero (FTZ) on, denormals-are-zero (DAZ) on'; do
    export HOSTILE="${what%%|*}"
    run 1 repro $door "$line"
    says "${what#*|}"
    says environment
  done
  export HOSTILE=one_of_many
  run 1 gate $door "${few[@]}" --max-cases 60 --threads 1 --jsonl many.jsonl
  grep -q '"gate":"environment"' many.jsonl || complain 'a change in one call of seven is not found'
  [[ "$(grep '"verdict":"fail"' many.jsonl | grep -vc '"gate":"environment"')" -eq 0 ]] ||
    complain 'a changed environment reached another verdict'

  # After SIGTERM and SIGHUP, while a kernel hangs, the reports are written and the kernel's processes ended
  # within ten seconds.
  for signal in TERM HUP INT; do
    set -m # or what runs in the background ignores the interrupt
    HOSTILE=hang_in_call "$samestate" gate $door "${few[@]}" --max-cases 60 --threads 2 --jsonl hung.jsonl --junit hung.xml \
      >out 2>err </dev/null &
    process=$!
    set +m
    await 1 '"event":"start"' hung.jsonl || complain 'nothing began'
    sleep 1
    begin=$SECONDS
    kill -"$signal" $process
    code=0
    wait $process || code=$?
    [[ $((SECONDS - begin)) -le 10 ]] || complain "SIG$signal: went on for $((SECONDS - begin)) s"
    [[ $code -lt 128 ]] || complain "SIG$signal: exit $code"
    grep -q '"event":"finish"' hung.jsonl || complain "SIG$signal: the run file has no end"
    present hung.xml
    rm -f hung.jsonl hung.xml
  done
done
unset HOSTILE

# The user's own files next to a report stay, and no link at a name that could be guessed is followed.
for name in trial partial; do
  echo mine >"target.$name"
  ln -s "$folder/target.$name" "keep.xml.$name"
  echo mine >"keep.md.$name"
done
run 0 gate ${doors[0]} "${few[@]}" --max-cases 5 --junit keep.xml --markdown keep.md --jsonl keep.jsonl
present keep.xml
present keep.md
for name in trial partial; do
  [[ -L "keep.xml.$name" && "$(cat "target.$name")" == mine && "$(cat "keep.md.$name")" == mine ]] ||
    complain "a file of the user's ends in .$name, and is gone or overwritten"
done
[[ -z "$(find . -name '.samestate-*')" ]] || complain 'left a file under a fresh name'

# The command runs without any of the three standard descriptors.
around=(bash -c 'exec "$@" <&- >&- 2>&-' bash)
attempt gate ${doors[0]} "${few[@]}" --max-cases 5 --jsonl closed.jsonl --junit closed.xml
[[ $code -eq 0 ]] || complain "descriptors 0 to 2 closed: exit $code"
grep -q '"event":"finish"' closed.jsonl || complain 'descriptors 0 to 2 closed: the run file has no end'
! grep -qv '^{' closed.jsonl || complain 'descriptors 0 to 2 closed: what was printed is in the run file'
finish
