#!/usr/bin/env bash
# `samestate sweep`, `report` and `compare` on bad input give the exit code, one line with the remedy, and no
# half-written report; a sweep that was killed can be continued.
# usage: command_test.sh SAMESTATE EXAMPLES
set -uo pipefail

examples="$(realpath "$2")"
source "$(dirname "$0")/../cli/prelude.sh"

# gives CODE FACTS ARGUMENT...: checks the exit code, and FACTS on a line of stdout or of stderr.
gives() {
  local expected="$1" facts="$2"
  shift 2
  run "$expected" "$@"
  holds out "$facts" || holds err "$facts" || complain "does not say $facts"
}
quiet=(--no-plots --no-evidence)
points=$(grep -c '"event":"point"' "$examples/sweep.jsonl")

head -n 2 "$examples/sweep.jsonl" | sed "1s/:$points/:1/g" >one.jsonl
head -c 30000 "$examples/sweep.jsonl" >cut.jsonl
head -n 1 "$examples/sweep.jsonl" >empty.jsonl
sed 's/"rms_error":[0-9.e-]*/"rms_error":"nan"/; s/"rms_bound":[0-9.e-]*/"rms_bound":"inf"/' one.jsonl >nan.jsonl
sed 's/"schema":1/"schema":2/' one.jsonl >schema.jsonl
sed 's/"rms_error":[0-9.e-]*,//' one.jsonl >field.jsonl
(cat one.jsonl; echo '{"schema'; tail -n 1 one.jsonl) >damaged.jsonl
printf '\xff\xfe\x00binary' >binary.jsonl
: >nothing.jsonl
echo x >file
mkdir locked

gives 0 '1 points' report one.jsonl --out a "${quiet[@]}"
gives 0 'cut off in the middle' report cut.jsonl --out b "${quiet[@]}"
grep -q 'cut off by a crash' b/index.html || complain 'the page does not say that its record was cut'
gives 0 '1 points' report nan.jsonl --out c "${quiet[@]}"
gives 3 'no case point' report empty.jsonl --out d "${quiet[@]}"
bad 'no run in it' report nothing.jsonl --out made "${quiet[@]}"
bad 'schema 2' report schema.jsonl --out made "${quiet[@]}"
bad "'rms_error'" report field.jsonl --out made "${quiet[@]}"
bad 'damaged.jsonl:3' report damaged.jsonl --out made "${quiet[@]}"
bad 'binary.jsonl:1 line column 1' report binary.jsonl --out made "${quiet[@]}"
bad 'none.jsonl' report none.jsonl --out made "${quiet[@]}"
bad 'is a folder' report locked --out made "${quiet[@]}"
bad 'file' report one.jsonl --out file "${quiet[@]}"
bad 'file' report one.jsonl --out file/inside "${quiet[@]}"
bad 'files' report --out made
bad '--mutants' report one.jsonl --out made --mutants one.jsonl "${quiet[@]}"
bad 'none.json' report one.jsonl --out made --equations none.json "${quiet[@]}"
bad 'is empty' report one.jsonl --out '' "${quiet[@]}"
printf '# Gate\n\n1 case\n' >gate.md
bad 'gate.md:1 line column 1 Markdown' report gate.md --out made "${quiet[@]}"
printf '{\n "mutants": [\n  {"killed": true,}\n]}\n' >comma.json
bad '--mutants line 3 column 19' report one.jsonl --out made --mutants comma.json "${quiet[@]}"
bad 'given twice' report one.jsonl ./one.jsonl --out made "${quiet[@]}"
bad 'no such folder' report one.jsonl --out made --no-plots --evidence nowhere
# Evidence of CUDA kernels is not part of a report about those of the CPU, unless it is requested.
run 0 report one.jsonl --out evident --no-plots
! grep -q '<section id="evidence"' evident/index.html || complain 'a report of the CPU shows what a GPU did'
run 0 report one.jsonl --out evident --no-plots --evidence "$examples/../../reports/evidence"
grep -q '<section id="evidence"' evident/index.html || complain 'evidence that was asked for is missing'
"$samestate" equations --id GDN-17 --json >equations.json
bad "without 'killed'" report one.jsonl --out made --mutants equations.json "${quiet[@]}"
truncate -s 1G sparse.jsonl
bad '64 MB' report sparse.jsonl --out made "${quiet[@]}"
if command -v gnuplot >/dev/null; then
  gives 0 "$points points" report "$examples/sweep.jsonl" --out plots --no-evidence
  grep -qE '[1-9][0-9]+ plots' out || complain 'no plots of the example'
  gives 0 'points' report one.jsonl nan.jsonl --out plots2 --no-evidence
fi
around=(env PATH=/nonexistent)
bad 'gnuplot-nox' report "$examples/sweep.jsonl" --out made --no-evidence
around=()
absent made

gives 0 "$points unchanged" compare "$examples/sweep.jsonl" "$examples/sweep.jsonl"
gives 0 'gone' compare "$examples/sweep.jsonl" one.jsonl
gives 3 '0 cases' compare "$examples/sweep.jsonl" "$examples/gate.jsonl"
sed 's/"verdict":"pass"/"verdict":"fail"/' one.jsonl >worse.jsonl
gives 1 'verdict worse' compare one.jsonl worse.jsonl --markdown made.md
grep -q '1 regressions' made.md || complain 'the Markdown does not count the regression'
gives 1 '"regressions": 1' compare one.jsonl worse.jsonl --json
gives 0 'verdict better' compare worse.jsonl one.jsonl
# If a record is cut in the middle, what can be compared is compared.
gives 3 'cases in common' compare "$examples/sweep.jsonl" cut.jsonl
grep -q 'It is cut' out || complain 'compare does not say that a record is cut'
# A passing ratio that no judge would pass means that the record is damaged.
for ratio in '"nan"' '"inf"' 1e308 -5; do
  sed "s/\"ratio\":[0-9.e-]*/\"ratio\":$ratio/" one.jsonl >ratio.jsonl
  bad 'ratio.jsonl:2 pass ratio' compare one.jsonl ratio.jsonl
done
bad 'compare after missing two' compare one.jsonl
bad 'no case in it' compare one.jsonl empty.jsonl
bad 'schema 2' compare schema.jsonl one.jsonl
bad '--factor' compare one.jsonl one.jsonl --factor 0.5
bad 'not in range' compare one.jsonl worse.jsonl --factor nan
bad 'none.jsonl' compare none.jsonl one.jsonl

# A sweep with bad words, files that are not its own, and folders that cannot exist.
sweep=(sweep --quick --threads 1)
bad 'known: chunk' "${sweep[@]}" --series wrong --out made
bad 'no such system' "${sweep[@]}" --system wrong --out made
bad 'no chunked form' "${sweep[@]}" --system rms_norm --out made
bad 'not a chunked kernel' "${sweep[@]}" --kernel cpu.retention.recurrent --out made
bad '--threads' "${sweep[@]}" --threads 0 --out made
bad 'schema 2' "${sweep[@]}" --series width --out schema.jsonl
bad 'damaged.jsonl:3' "${sweep[@]}" --series width --out damaged.jsonl
bad "'rms_error'" "${sweep[@]}" --series width --out field.jsonl
bad 'locked' "${sweep[@]}" --series width --out locked
bad 'file' "${sweep[@]}" --series width --out file/inside.jsonl
absent made
[[ "$(wc -l <damaged.jsonl)" -eq 4 ]] || complain 'a sweep wrote to a file that it could not read'
# Without its device a kernel is not measured: this is neither a pass, nor a point that a later run would
# leave out.
if grep -q '"device": "cuda"' <("$samestate" list kernels --json | grep -A1 '"contracts": ".*fp32') && ! command -v nvidia-smi >/dev/null; then
  device=("${sweep[@]}" --kernel cuda.gated_delta_rule.chunked --series width --out device.jsonl)
  gives 77 'could not run here' "${device[@]}"
  gives 77 ': 0 of' "${device[@]}"
fi
gives 77 '0 points' "${sweep[@]}" --series length --system retention --out nothing_there.jsonl

# A board says what changed between two folders, and shows a planted failure; a file that is not a record, is
# damaged or is empty is bad input.
gate=(gate --kernel cpu.retention.recurrent --max-cases 20)
mkdir older newer none hurt
run 0 "${gate[@]}" --jsonl older/a.jsonl
gives 0 'cpu.retention.recurrent' board older
grep -q "$(date -u +%Y-%m-%d)" out || complain 'has no date'
gives 0 '"format": "samestate-board-1"' board older --json
cp out board.json
gives 0 'Nothing.' board older --since board.json
# One case that passed before fails, and one was run with another version.
awk '!done && /"verdict":"pass"/ { sub(/"verdict":"pass"/, "\"verdict\":\"fail\""); done = 1 } { print }' older/a.jsonl |
  sed 's/"version":"[0-9.]*"/"version":"9.9.9"/' >newer/a.jsonl
gives 1 'passed fails' board newer --since older
says 'is now samestate 9.9.9'
gives 1 'fails not recorded' board newer --since board.json
gives 0 'failed passes' board older --since newer
gives 1 'board.html: ' board newer --since older --html board.html --markdown board.md
grep -q 'What changed' board.html || complain 'the page does not say what changed'
bad 'no case .jsonl' board none
bad 'cannot be read' board absent
# The digest of a folder has its table.
run 0 board older
cp out printed
run 0 board board.json
cmp -s out printed || complain 'a digest has another table than its records'
head -c 300 board.json >half.json
bad 'no board line column' board half.json
cp damaged.jsonl hurt/
bad 'damaged.jsonl:3' board hurt
sed 's/T=[0-9]*/T=99999999999999999999/' older/a.jsonl >hurt/damaged.jsonl
bad 'damaged, case' board hurt
bad 'no board' board older --since file
bad 'name one file' board older --html one --markdown one

# Killed while it measures, with its last line cut: the same command measures what is missing, and only that.
"$samestate" "${sweep[@]}" --system gated_delta_net --out killed.jsonl >killed.out 2>&1 &
victim=$!
await 2 '"event":"point"' killed.jsonl || complain 'no two points'
# A second process that writes the same file is refused, and its lines do not mix with the first one's.
gives 2 'process writing' "${sweep[@]}" --system gated_delta_net --out killed.jsonl
kill -9 "$victim"
wait "$victim" 2>/dev/null
truncate -s -100 killed.jsonl
whole=$(grep -c '"event":"point".*}$' killed.jsonl)
gives 0 "$whole 25 points $((25 - whole)) go" "${sweep[@]}" --system gated_delta_net --out killed.jsonl
gives 0 '25 points 0 go' "${sweep[@]}" --system gated_delta_net --out killed.jsonl
gives 0 '25 points' report killed.jsonl --out resumed "${quiet[@]}"
[[ $whole -ge 1 && $whole -lt 25 ]] || complain "the sweep was killed after $whole of 25 points"

finish
