#!/usr/bin/env bash
# Kernels that are foreign programs (docs/lookup/subjects.md): conventions of every kind pass, and anything
# that a program may do to the judge or to itself is a verdict of its case, or an error with a remedy.
# usage: subject_test.sh SAMESTATE TEST_SUBJECT
set -uo pipefail

subject="$(realpath "$2")"
package="$(realpath "$(dirname "$0")/../../python")"
source "$(dirname "$0")/prelude.sh"
let_kernels_die
patience=120
name=mine.gated_delta_rule.recurrent
line="v1 gated_delta_rule form=recurrent T=9 Hk=2 Hv=4 dk=8 dv=4 state=random kernel=$name"

# The subject's own loops are slow at the sizes of models, and a whole plan takes longer than its cases.
small='dk=..32 dv=..32 Hv=..8'
sizes="T=..64 $small"
brief=(--effort 0.02 --where "$sizes")
plain=(--effort 0.02 --where "T=1..64 $small form=recurrent law=none") # the failures of which are of one kind
# gates CODE CONVENTIONS: runs some cases of a correct kernel.
gates() {
  run "$1" gate --subject "$subject none '$2'" --kernel "$name" "${brief[@]}" --max-cases 40
}
gates 0 '{}'
says 'pass'
gates 0 '{"decay":"linear","state":"vk"}'
gates 0 '{"decay":"log2","heads":"tiled","layout":"BHTD"}'
gates 0 '{"decay":"raw","beta":"twice_logit","layout":"THD"}'
gates 0 '{"beta":"logit","heads":"interleaved","state_argument":"in_place"}'
gates 0 '{"scale":"folded","heads":"repeated","state_argument":"required"}'
gates 0 '{"scale":"dk","cu_seqlens":"int32"}'
gates 0 '{"scale":"dv","dtypes":{"g":"bf16","beta":"bf16"}}'
run 0 gate --subject "$subject strided" --kernel "$name" "${brief[@]}" --max-cases 60 --layout padded,mixed,fused,permuted
says 'pass'

# Declarations that are not the kernel's: with each of these it would compute something else.
for wrong in '{"decay":"linear"}' '{"state":"vk"}' '{"scale":"folded"}'; do
  attempt repro --subject "$subject none '$wrong'" "$line"
  [[ $code -eq 0 ]] || complain "with $wrong the kernel is right all the same"
done
# The program runs under another declaration than its own, so that its inputs are not those that it takes.
cat >liar <<END
#!/bin/sh
exec '$subject' none '{"decay":"log2"}' | sed -u 's/"conventions":{"decay":"log2"}/"conventions":{}/'
END
chmod +x liar
run 1 repro --subject ./liar "$line"

# Things that a subject does to itself, to its tensors and to the judge: FAULT|CODE|WORD.
while IFS='|' read -r fault expected word; do
  run "$expected" repro --timeout 2s --start-timeout 4s --subject "$subject $fault" "$line"
  grep -qF -- "$word" out || complain "$fault: does not say '$word'"
done <<END
wrong|1|verdict   fail
nan|1|verdict   fail
unwritten|1|worst at  sequence 0, head 0, token 8, channel 3
edits_input|1|changed its input k: element 0 of its buffer
writes_beside|1|wrote outside o: 2 elements before its first
writes_64_beyond|1|wrote outside o: 64 elements behind its last
writes_5000_beyond|1|wrote outside o: 5000 elements behind its last
writes_5000_before|1|wrote outside o: 5000 elements before its first
reads_5000_beyond|1|read, or wrote zeros to, the page outside o: 4
puts_back|1|read, or wrote zeros to, the page outside o: 4
grows|1|made 
seals|1|sealed the memory object, which is the judge's
seals_writes|1|sealed the memory object, which is the judge's
empty|1|verdict   fail
refuses|1|refused inside its limits
throws|5|ValueError: no
signal|5|signal 11
exit|5|exit code 0
hangs|5|no answer after 4 s, and it was killed; --start-timeout gives the first call of a variant longer
garbage|5|which is not a message
floods|5|longer than
closes|5|no answer after 4 s
wrong_id|5|lacks "id"
early|1|verdict   fail
input|1|verdict   fail
truncates|0|verdict   pass
late|0|verdict   pass
END
# One process of a device's kernel gets the calls of all threads, whose tensors are written and read while it
# runs another's. The verdicts are those of a single thread, even if a call ends the process while others
# wait.
for fault in none edits_input writes_5000_beyond; do
  for threads in 1 4; do
    ON_CUDA=1 attempt gate --subject "$subject $fault" --kernel "$name" "${plain[@]}" --max-cases 24 --threads $threads
    grep -oE '^24 cases, .*' out >"counts.$threads" || complain "$fault with $threads threads: $(head -1 out)"
  done
  cmp -s counts.1 counts.4 || complain "$fault: $(cat counts.1) alone, and with 4 threads $(cat counts.4)"
done
ON_CUDA=1 run 5 gate --subject "$subject signal" --kernel "$name" --effort 0.02 --where "T=1..64 $small" --max-cases 100 --threads 4
grep -qE '^100 cases, 0 judged: crash [0-9]+, skipped [0-9]+$' out || complain "signal: $(head -1 out)"
# Nothing is skipped: every case is the subject's, and the next case has a working subject again.
for fault in grows seals seals_writes puts_back; do
  run 1 gate --subject "$subject $fault" --kernel "$name" "${plain[@]}" --max-cases 6
  grep -q '^6 cases, 6 judged: fail 6$' out || complain "$fault: $(head -1 out)"
done
bad '1048586 characters 200' gate --subject "$subject long_name" --max-cases 4
# A call that left its memory may have damaged the process, so the next one gets another process. In the same
# process all later calls would throw.
damaged='T=1..8,33 form=recurrent dk=..16 dv=..16'
run 1 gate --threads 1 --subject "$subject damages" --kernel "$name" --effort 0.02 --where "$damaged" --max-cases 30
grep -qE 'judged:.* fail ' out && ! grep -qE 'judged:.*(crash|flaky|refused)' out || complain "a damaged process goes on: $(grep judged out)"
says 'wrote outside o'
# If damage goes unnoticed, a new process that does not throw shows which process did it, and the cases before
# it are named.
attempt gate --threads 1 --subject "$subject damages_unseen" --kernel "$name" --effort 0.02 --where "$damaged" --max-cases 30
grep -qE '^30 cases, .*pass' out && ! grep -qE 'judged:.*refused' out || complain "damage is a refusal: $(grep judged out)"
says '1 process'
says 'earlier call damaged process'
run 1 repro --subject "$subject environment" "$line"
says 'left rounding toward zero'
says 'environment'
# The last line says why it does not start; that the judge then killed it is not mentioned.
bad 'exit code 3' gate --subject "$subject dies_at_start" --max-cases 4
SAMESTATE_PYTHON=/nowhere/python3 bad 'set SAMESTATE_PYTHON to a Python' gate --subject python:mine.py:f --max-cases 4
PYTHONPATH=none SAMESTATE_PYTHON='python3 -S -E' bad 'pip install samestate' gate --subject python:mine.py:f --max-cases 4
PYTHONDONTWRITEBYTECODE=1 PYTHONPATH="$package" bad "there is no file mine.py" gate --subject python:mine.py:f --max-cases 4
[[ "$(tail -1 err)" == *'not ready: there is no file mine.py'* ]] || complain "the last line is $(tail -1 err)"
grep -q 'signal 9' err && complain 'says signal 9 of a process that said why it ends'
# Offsets that do not fit 32 bits, for tokens, sequences, heads, states and bytes: rows that are far apart
# show each.
run 0 gate --subject "$subject strided" --kernel "$name" "${brief[@]}" --layout far --max-cases 20
says 'pass'
for fault in token32 batch32 head32 slot32 byte32; do
  run 0 gate --subject "$subject $fault" --kernel "$name" "${brief[@]}" --layout dense,padded --max-cases 20
  run 1 gate --subject "$subject $fault" --kernel "$name" "${brief[@]}" --where 'B=2.. T=2.. Hv=2.. state=random' --layout far --max-cases 6 --fail-fast
  grep -qE '(wrote|page) outside' out || complain "$fault: does not say where"
done
# The first call compiles or tunes: its time counts as that of the start and not of a case, while a later
# one's counts.
run 0 repro --timeout 1s --subject "$subject tunes" "$line"
run 5 repro --timeout 1s --start-timeout 1.5s --subject "$subject tunes" "$line"
says 'first variant longer'
run 5 repro --timeout 2s --subject "$subject hangs_later" "v1 gated_delta_rule form=recurrent T=9 law=split kernel=$name"
says '2 s --timeout'
# The first call of each variant has time, so that another width can be compiled; "busy" in a later call has
# the time of a call.
run 0 gate --timeout 1s --threads 1 --subject "$subject tunes_each" --kernel "$name" "${brief[@]}" --where 'dk=2,4,16' --max-cases 9
says '3 of 3 variants'
SAMESTATE_CALL_TIMEOUT=0.2 run 5 repro --subject "$subject compiles_later" "v1 gated_delta_rule form=recurrent T=9 law=split kernel=$name"
says '2 s SAMESTATE_CALL_TIMEOUT'
# A line that names no kernel gets the subject's kernel if one of its kernels computes it, and no other.
short="${line% kernel=*}"
run 1 repro --subject "$subject wrong" "$short"
grep -q "^kernel    $name on cpu" out || complain 'another kernel than the one that was brought'
run 0 repro --subject "$subject none" "$short" --after "$short"
bad 'form= kernel=cpu.gated_delta_rule.chunked' repro --subject "$subject none" 'v1 gated_delta_rule T=9'
bad "$name (gated_delta_rule form=recurrent)" repro --subject "$subject none" 'v1 retention form=recurrent T=9'
run 0 repro --subject "$subject wrong" "$short kernel=cpu.gated_delta_rule.recurrent"
bad 'kernel=mine.gated_delta_rule.recurrent kernel=other.gated_delta_rule.recurrent' \
  repro --subject "$subject none" --subject "$subject none {} other.gated_delta_rule.recurrent" "$short"
run 1 tolerance --subject "$subject wrong" "$short" --seeds 1 --mutants 0
run 0 bench --subject "$subject none" --case "$short" --seconds 0.01 --list
[[ "$(cat out)" == *"kernel=$name"* && "$(wc -l <out)" -eq 1 ]] || complain 'bench times another kernel than the one that was brought'
bad 'a chunked kernel' sweep --quick --subject "$subject none" --list

# An exception of a kernel is reported once, however often the kernel is called.
run 5 gate --subject "$subject throws" --kernel "$name" --effort 0.02 --where "T=33 $small" --max-cases 12
[[ "$(grep -c 'Traceback of T = 33' err)" -eq 1 ]] || complain "tells a trace $(grep -c 'Traceback of T = 33' err) times"
run 5 gate --subject "$subject throws" --kernel "$name" "${brief[@]}" --max-cases 60
[[ "$(grep -c 'Traceback' err)" -eq 16 && "$(grep -c 'other traces are left out' err)" -eq 1 ]] ||
  complain "tells $(grep -c 'Traceback' err) traces"

# An interrupt while it starts, at first and in a process of the gate's: the processes that it started are
# ended, and nothing waits for them.
cat >starts_slowly <<END
#!/bin/sh
echo >>begun
if [ "\$(wc -l <begun)" -ge "\$1" ]; then sleep 987655; fi
exec '$subject' none
END
chmod +x starts_slowly
for begun in 1 2; do
  for signal in INT TERM; do
    rm -f begun
    invocation="gate, interrupted at start $begun by SIG$signal"
    set -m # or the shell lets it ignore SIGINT
    "$samestate" gate --subject "./starts_slowly $begun" --effort 0 --max-cases 40 --threads 1 --junit interrupted.xml >out 2>err </dev/null &
    gate=$!
    set +m
    await "$begun" '' begun || complain 'did not start'
    sleep 0.5
    kill -"$signal" "$gate"
    since=$SECONDS code=0
    wait "$gate" 2>/dev/null || code=$?
    checks=$((checks + 1))
    [[ $((SECONDS - since)) -le 15 ]] || complain "waits $((SECONDS - since)) s"
    [[ $begun -eq 1 && $code -gt 128 || $begun -eq 2 && $code -eq 3 ]] || complain "exit $code"
    sleep 0.2
    pgrep -f '^sleep 987655' >left && { complain 'what the subject started is left'; kill $(cat left); }
  done
done

# If the interrupt prevents the second run of a failure, the failure stands.
cat >starts_late <<END
#!/bin/sh
echo >>begun
if [ "\$(wc -l <begun)" -ge 3 ]; then sleep 987655; fi
exec '$subject' wrong
END
chmod +x starts_late
rm -f begun
invocation='gate, interrupted while a failure is run again'
"$samestate" gate --subject ./starts_late "${brief[@]}" --max-cases 4 --threads 1 --jsonl again.jsonl >out 2>err </dev/null &
gate=$!
await 3 '' begun || complain 'did not start again'
kill -TERM "$gate"
code=0
wait "$gate" || code=$?
checks=$((checks + 1))
[[ $code -eq 1 ]] || complain "exit $code instead of 1"
grep -q '"verdict":"flaky"' again.jsonl && complain 'a failure is flaky because its second run was interrupted'

# The second call finds the answer that was not requested, before it is made or in place of its own.
run 5 repro --subject "$subject twice" "v1 gated_delta_rule form=recurrent T=9 law=split kernel=$name"
holds out 'answer once' || says 'lacks "id"'
# A subject that starts once and never again gets three tries per process, and reports have all cases.
cat >mayfly <<END
#!/bin/sh
echo >>starts
[ "\$(wc -l <starts)" -gt 1 ] && exit 3
exec '$subject' none
END
chmod +x mayfly
run 5 gate --subject ./mayfly --kernel "$name" --effort 0 --max-cases 40 --threads 1 --junit mayfly.xml
says 'crash 40'
says '3 times'
present mayfly.xml
[[ "$(wc -l <starts)" -le 10 ]] || complain "started $(wc -l <starts) times"
# It may be busy for ten times a call's time, and no longer.
run 5 repro --start-timeout 0.4 --subject "$subject compiles_on" "$line"
says '4 s'
# It is right from the second call on, like a kernel that tunes itself at the first, or it returns the result
# of the call before.
run 1 gate --subject "$subject second" --kernel "$name" "${brief[@]}" --max-cases 6 --threads 1
run 1 gate --subject "$subject last" --kernel "$name" --effort 0.1 --where 'T=33 dk=16 dv=16 form=recurrent' --max-cases 12 --fail-fast --threads 1
# The program leaves another one running.
run 0 gate --subject "$subject child" --kernel "$name" "${brief[@]}" --max-cases 6
says 'pass'
sleep 0.2
pgrep -f '^sleep 987654' >left && { complain 'what the subject started is left'; kill $(cat left); }
# It is right on the first call only: the outputs of the others are not written.
run 1 gate --subject "$subject first" --kernel "$name" "${plain[@]}" --max-cases 6

# It is not called outside its limits, including those of a run.
run 77 repro --subject "$subject small" "$line"
says 'outside its limits: dk <= 4'
run 77 repro --subject "$subject small" "v1 gated_delta_rule form=recurrent T=9 dk=2 regime=slow kernel=$name"
says 'limits regime != slow'
run 0 gate --subject "$subject small" --kernel "$name" "${brief[@]}" --max-cases 40

# The gate goes on after a case that killed the subject, and the printed command runs as it stands.
run 5 gate --subject "$subject signal" --kernel "$name" "${brief[@]}" --max-cases 6
says 'crash 6'
command="$(grep -oE "samestate repro --subject '[^']*' '[^']*'" out | sed -n 1p)"
[[ -n "$command" ]] || complain 'no command that repeats a failure'
eval "\"$samestate\" ${command#samestate}" >again 2>&1
[[ $? -eq 5 ]] || complain 'the printed command does not repeat the crash'

# If it fails before it is ready, the result is exit 2 and one line with the remedy.
bad 'exit code 3' repro --subject "$subject dies_at_start" "$line"
bad 'must go to stderr' repro --subject "$subject prints" "$line"
bad 'protocol' repro --subject "$subject protocol" "$line"
bad "'colour'" repro --subject "$subject key" "$line"
bad 'ln log2' repro --subject "$subject none '{\"decay\":\"e\"}'" "$line"
bad 'not a convention' repro --subject "$subject none '{\"decoy\":\"ln\"}'" "$line"
bad 'does not survive' repro --subject "$subject none '{\"scale\":\"folded\",\"l2norm\":\"in_kernel\"}'" "$line"
bad 'or fp32' repro --subject "$subject none '{\"dtypes\":{\"final_state\":\"bf16\"}}'" "$line"
bad 'no such contract' repro --subject "$subject none {} $name wrong" "$line"
# It sends a million brackets, which the judge would print by recursion.
cat >deep <<'END'
#!/bin/sh
read hello
printf '{"type":"ready","protocol":1,"kernels":[{"name":'
head -c 1000000 /dev/zero | tr '\0' '['
echo
read bye
END
chmod +x deep
bad 'nested deeper' repro --subject ./deep "$line"
run 2 repro --subject 'no_such_program --serve' "$line"
grep -q 'not ready: it ended.*exit code 127' err || complain 'does not say that there is no such program'
bad 'nobody listens' repro --subject socket:none "$line"
SAMESTATE_START_TIMEOUT=0.5 bad 'no answer after 0.5 s' repro --subject "$subject silent" "$line"
bad '0.5 s' repro --start-timeout 0.5 --subject "$subject silent" "$line"
bad '--start-timeout' repro --start-timeout soon --subject "$subject silent" "$line"
SAMESTATE_START_TIMEOUT=soon bad 'seconds above 0' repro --subject "$subject silent" "$line"

# Cases as files, for programs that cannot be called from here: inputs go out, outputs come back, and the
# gate's verdicts and reports are made.
run 0 export --system gated_delta_rule --form recurrent --contract fp32 --effort 0.02 --where "$sizes" --where T=1.. --max-cases 12 --out cases
run 77 judge cases
says 'nothing written'
bad 'not an empty folder' export --system retention --out cases
bad 'not an empty folder' export --system retention --out cases/manifest.json
run 0 export --subject "$subject small" --kernel "$name" --max-cases 0 --effort 0 --out few
grep -oE 'dk=[0-9]+' few/manifest.json | sort -u >sizes
grep -qvE '^dk=[1-4]$' sizes && complain "cases outside the kernel's limits: $(tr '\n' ' ' <sizes)"
grep -q '"line"' few/manifest.json || complain 'no cases'
while read -r file case; do
  run 0 repro "$case" --dump "cases/$file"
done < <(sed -n 's/.*"file": "\([^"]*\)".*/\1/p' cases/manifest.json | paste -d' ' - <(sed -n 's/.*"line": "\(.*\)"/\1/p' cases/manifest.json))
run 0 judge cases --junit cases.xml --jsonl cases.jsonl
says '12 judged: pass'
present cases.xml
first="$(sed -n 's/.*"line": "\(.*\)"/\1/p' cases/manifest.json | sed -n 1p)"
run 1 repro "$first kernel=$name" --subject "$subject wrong" --dump cases/00000.safetensors
run 1 judge cases
says 'cases/00000.safetensors'
sed 's/"00001.safetensors"/"..\/00001.safetensors"/' cases/manifest.json >changed.json
mkdir outside && cp changed.json outside/manifest.json
bad 'file folder' judge outside
echo '{"format":3,"cases":[]}' >outside/manifest.json
bad 'format is not' judge outside
bad 'no manifest.json' judge "$folder"
rm cases/00002.safetensors
bad 'not exist' judge cases

# Expected values are written with them: a correct kernel is within its limits, element by element, and not
# because they are left out.
run 0 export --system gated_delta_rule --where 'form=chunked,packed' --regime normal --contract bf16 --effort 0.02 --max-cases 6 --expected --out held
run 0 export --system rms_norm --system selective_scan --effort 0.02 --max-cases 4 --expected --out held2
python=$(command -v python3 || true)
cat >within.py <<'END'
import array, json, math, struct, sys

def read(path):
    data = open(path, "rb").read()
    n = struct.unpack("<Q", data[:8])[0]
    head = json.loads(data[8:8 + n])
    out = {}
    for name, at in head.items():
        if name != "__metadata__":
            begin, end = at["data_offsets"]
            out[name] = (at["shape"], array.array({"F32": "f", "F64": "d", "I64": "q"}[at["dtype"]], data[8 + n + begin:8 + n + end]))
    return out

run, held, compared = read(sys.argv[1]), read(sys.argv[2]), 0
for name in [n for n in held if not n.endswith("_limit")]:
    assert run[name][0] == held[name][0], name
    for actual, expected, limit in zip(run[name][1], held[name][1], held[name + "_limit"][1]):
        if math.isnan(limit):
            continue
        compared += 1
        assert math.isfinite(expected) and abs(actual - expected) <= limit, (name, actual, expected, limit)
assert compared > 0, "nothing has a limit"
END
for held in held held2; do
  for file in "$held"/0????.safetensors; do
    run 0 repro "$(grep -A1 "\"$(basename "$file")\"" "$held/manifest.json" | sed -n 's/.*"line": "\(.*\)",/\1/p')" --dump "$file"
    [[ -z "$python" ]] || "$python" within.py "$file" "${file%.safetensors}.expected.safetensors" 2>err || complain "$file is not within what is expected"
  done
done

# FlashInfer-Bench's files, by the Python package: what it is asked to do, and the remedy if it is not
# installed.
python3="$(command -v python3 || true)"
bad 'name a folder' export --flashinfer-bench
bad 'name a folder' judge --flashinfer-bench --solution mine.json
SAMESTATE_PYTHON=/nowhere/python bad 'cannot be started' export --flashinfer-bench dataset
if [[ -n "$python3" ]]; then
  mkdir none && echo 'raise ImportError("not here")' >none/samestate.py
  PYTHONPATH="$PWD/none" bad 'pip install ./python' export --flashinfer-bench dataset
  absent dataset
  PYTHONDONTWRITEBYTECODE=1 PYTHONPATH="$package" run 0 export --flashinfer-bench dataset --max-cases 2 --stage decode
  [[ -n "$(find dataset/definitions -name '*.json')" && -n "$(find dataset/workloads -name '*.jsonl')" ]] || complain 'wrote no dataset'
  PYTHONDONTWRITEBYTECODE=1 PYTHONPATH="$package" bad 'nothing.json' judge --flashinfer-bench=dataset --solution nothing.json
fi

# No process is left running.
sleep 0.2
left="$(pgrep -f "^$subject" | wc -l)"
[[ "$left" -eq 0 ]] || complain "$left of the subject's processes are left"
# Users who bring a kernel ask about that kernel.
run 0 gate --subject "$subject none" --effort 0 --max-cases 5 --list
[[ "$(grep -c "kernel=$name" out)" -eq 5 && "$(wc -l <out)" -eq 5 ]] || complain "plans other kernels than the subject's"
run 0 gate --subject "$subject none" --kernel 'cpu.retention.r*' --effort 0 --max-cases 5 --list
grep -q "kernel=$name" out && complain 'plans what --kernel leaves out'
# A kernel that is compiled anew for every size is asked for only a few sizes.
run 0 gate --subject "$subject compiles" --kernel "$name" "${brief[@]}" --compiles 3 --max-cases 60
says "$name: 3 of "
says '--compiles'
run 0 gate --subject "$subject compiles" --kernel "$name" "${brief[@]}" --compiles 3 --max-cases 200 --list
[[ "$(grep -oE ' (dk|dv)=[0-9]+( dv=[0-9]+)?' out | sort -u | wc -l)" -le 3 ]] || complain 'more than 3 variants'
bad "'seed'" gate --subject "$subject compiles_for" --kernel "$name"

# served CODE FAULT ARGUMENT...: runs the program as client of `samestate serve`; the messages to it are in
# ./sent.
mkfifo back
served() {
  local expected="$1" fault="$2"
  shift 2
  invocation="serve $* (client $fault)"
  checks=$((checks + 1))
  code=0
  timeout "$patience" "$samestate" serve "$@" <back 2>err | tee sent | "$subject" "$fault" >back
  code=${PIPESTATUS[0]}
  [[ $code -eq $expected ]] || complain "exit $code instead of $expected"
  cp sent out
}
served 0 none "${brief[@]}" --max-cases 40 --junit served.xml
[[ "$(grep -c '"type":"verdict"' sent)" -eq 40 ]] || complain 'not a verdict for each case'
says '{"type":"plan","cases":40}'
says '"verdict":"pass"'
says '{"type":"bye","exit":0}'
present served.xml
grep -q '40 cases' err || complain 'no summary on stderr'
served 1 wrong "${brief[@]}" --max-cases 6
says '"verdict":"fail"'
says '{"type":"bye","exit":1}'
line="$(sed -n "s/^ *samestate serve --case '\(.*\)'$/\1/p" err | head -1)"
[[ -n "$line" ]] || complain 'no command that repeats a failure'
grep -q 'socket:' err && complain 'names the socket, which is gone'
served 1 wrong --case "$line"
grep -q '^verdict   fail' err || complain 'does not explain the case'
says '{"type":"bye","exit":1}'
served 0 none --case "$line"
served 2 none --case 'v1 nothing'
served 5 twice "${brief[@]}" --max-cases 6
says 'said not asked'
served 5 signal "${brief[@]}" --max-cases 3
grep -q 'closed its end' err || complain 'does not say that the client is gone'
served 2 key --effort 0 --max-cases 3
grep -q "'colour'" err || complain 'does not name the key'
served 2 none --effort minus
sleep 4 >back &  # a client that says nothing
invocation='serve (silent client)'
code=0
SAMESTATE_START_TIMEOUT=1 timeout "$patience" "$samestate" serve <back >out 2>err || code=$?
[[ $code -eq 2 ]] || complain "exit $code instead of 2"
holds err 'nothing stdin' || complain 'does not say that the client is silent'
wait
attempt serve
[[ $code -eq 2 ]] && grep -q 'end of stdin is closed' err || complain 'does not say that nobody answers'

# A kernel on a device that is compiled when it is called: calls show for what it is compiled, one process of
# it serves all threads, and a size that it refuses is a limit that its declaration lacks, unless the
# declaration names that size.
run 3 gate --subject "$subject jit" --effort 0.1 --where "T=..64 Hv=..8 B=..4" --max-cases 40 --threads 2 --timings
says 'dk T%16'
grep -qF 'declare dk <= 64' err || complain 'does not propose the limit'
says 'variants are compiled'
grep -Eq 'judged: .*pass [1-9]' out || complain 'nothing passed'
grep -q 'waiting' out || complain 'threads did not wait for the one process'
grep -Eq '^    .*compile [0-9.]+ .*judge [0-9.]+ s$' out || complain 'no table of times'
grep -q 'crash' out && complain 'a refusal is told as a crash'
run 5 gate --subject "$subject jit_limited" --effort 0.1 --where 'T=..64 dk=65..' --max-cases 12
says 'head size'
run 0 gate --subject "$subject jit_declared" --effort 0.02 --where 'T=..64 dk=..64' --max-cases 30 --compiles 3
says 'variants are compiled'
grep -q 'a few calls' err && complain 'learns what the declaration says'
# The shards of a kernel that refuses calls give together what a single run gives: verdicts, proposed limits
# and exit code.
verdicts() { grep -E '^(not judged|  +[0-9]+ (unsupported|crash)|judged:|[0-9]+ cases, )' out; }
for refuses in narrow jit; do
  one=(gate --subject "$subject $refuses" --effort 0.1 --where "T=..64 Hv=..8 B=..4" --max-cases 40)
  run 3 "${one[@]}"
  verdicts >whole.out
  grep -o 'declare .*' err >whole.err
  [[ -s whole.out && -s whole.err ]] || complain "$refuses: nothing is proposed"
  for i in 0 1 2; do attempt "${one[@]}" --shard "$i/3" --jsonl "refused-$i.jsonl"; done
  run 3 merge refused-?.jsonl
  verdicts | cmp -s - whole.out || complain "$refuses: the merge counts $(verdicts | tr '\n' ' ')"
  grep -o 'declare .*' err | cmp -s - whole.err || complain "$refuses: the merge proposes $(cat err)"
done
# Planted: a declaration that names the size, so that refusing it is a crash, in a run file whose plan has
# such cases.
for i in 0 1 2; do attempt gate --subject "$subject narrow" --effort 0.1 --where "T=..64 Hv=..8 B=..4" --max-cases 40 --shard "$i/3" --jsonl "refused-$i.jsonl"; done
grep -q '"limits":{"mine.*none"}' refused-0.jsonl || complain 'the shard does not say what is declared'
sed -i 's/\("limits":{"mine[^"]*":\)"none"/\1"dk <= 256"/' refused-?.jsonl
run 5 merge refused-?.jsonl
# Its output goes to a file, and its last words are shown with the crash.
run 0 gate --subject "$subject chatty" --effort 0.02 --where 'T=..64 dk=..64' --max-cases 6
says 'what the kernel printed: '
[[ "$(wc -c <err)" -lt 20000 ]] || complain 'prints what the subject prints'
log="$(sed -n 's/^what the kernel printed: \(.*\) (.*/\1/p' out)"
grep -q 'ptxas info' "$log" || complain 'the log lacks what the kernel printed'
rm -f "$log"
run 5 gate --subject "$subject chatty_crash" --effort 0.02 --where 'T=..64 dk=..64' --max-cases 2
says 'it last printed'
says '0x3f'
rm -f "$(sed -n 's/^what the kernel printed: \(.*\) (.*/\1/p' out)"

finish
