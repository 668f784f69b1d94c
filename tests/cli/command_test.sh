#!/usr/bin/env bash
# The command as people and CI meet it: exit codes, one line on stderr, no file left half written.
# usage: command_test.sh SAMESTATE GOLDENS
set -uo pipefail

goldens="$(realpath "$2")"
docs="$(realpath "$(dirname "$0")/../../docs")"
source "$(dirname "$0")/prelude.sh"

quick=(--system l2norm --max-cases 8 --threads 1)

# Bad command lines.
bad '--verison --version' --verison
bad '--nope' gate --nope
bad "gate 'cpu.retention.chunked' --kernel cpu.retention.chunked --system" gate cpu.retention.chunked
bad "'GDN-17' --system GDN-17 --id" equations GDN-17
bad '`samestate repro`' gate 'v1 retention T=5'
bad 'card: --kernel is missing: ' card
bad 'export --out' export
bad 'tolerance: line quoted' tolerance
bad '--budget --help' gate --budget
bad '--max-cases ten' gate --max-cases ten
bad "'v1 retention" repro 'retention T=65'
bad 'python:MODULE:FUNCTION' gate --subject my_module.my_function
bad 'gat: gate' gat
bad 'gate --system' gate --sytem retention
bad 'folder evidence' list kernels --evidence ./nowhere
bad '/proc/nope: ' card --kernel cpu.retention.recurrent --write /proc/nope
bad 'nope' gate --kernel nope
bad 'mamba' gate --system mamba
bad 'tpu' gate --device tpu
bad 'delta_rule' gate --kernel cpu.retention.chunked --system delta_rule
bad '--effort' gate --effort -1
bad '--threads' gate --threads 0
bad '--max-cases' gate --max-cases x
bad '--budget' gate --budget -5
bad '--seed' gate --seed none
bad '--seed' gate --seed -1
bad '--seed' gate --seed 18446744073709551616
# NaN is in no range, and an unset variable of a script is not a name: otherwise the baseline would not be
# compared.
bad '--budget' gate --budget nan
bad '--baseline-factor' gate --baseline-factor nan
bad '--floor' mutants --floor nan
bad '--baseline' gate --baseline ''
bad '--plugin' gate --plugin ''
bad '--timeout' gate --timeout nan
bad 'no_such.so' gate --plugin ./no_such.so
printf 'not a library' >text.so
bad 'text.so' gate --plugin ./text.so
bad 'version v1' repro 'garbage'
bad 'line' repro
bad 'empty' repro ''
bad 'T=-4' repro 'v1 retention T=-4'
bad "'size'" repro 'v1 retention size=4'
bad '0x1b' repro $'v1 retention \e[31mT=4'
bad 'elements' repro 'v1 retention B=16777216 T=16777216'
bad 'nope' repro 'v1 retention' --kernel nope
bad 'quote the line' repro v1 gated_delta_rule T=5
bad 'quote the line' tolerance v1 retention T=5
bad '--contract bf17:' gate --contract bf17
bad 'promises' repro 'v1 softmax_attention form=online T=4 contract=fp32+exponential:ex2 kernel=cpu.softmax_attention.online'
bad '--junit --markdown' gate "${quick[@]}" --junit one.xml --markdown ./one.xml
bad '--jsonl --junit' gate "${quick[@]}" --jsonl one --junit one
bad '--budget' gate --budget 5x
run 0 gate --max-cases 1 --device cpu --system l2norm --contract fp32 --budget 5m
says '1 case judged'
says '1 case in '
# A pipe that gives nothing, or only comments, is an error of the program that writes to it.
bad 'line stdin' repro -
checks=$((checks + 1))
printf '# a comment\n\n' | "$samestate" repro - >out 2>err
code=$?
[[ $code -eq 2 ]] && holds err 'line stdin' || complain "comments alone on stdin: exit $code"
# If a line on stdin is bad, the message has its number.
for line in 'v1 retention T=9 speed=8' 'v1 retention T=9 kernel=nope'; do
  checks=$((checks + 1))
  printf 'v1 retention T=9 dk=8\n# a comment\n\n%s\n' "$line" | "$samestate" repro - >out 2>err
  code=$?
  [[ $code -eq 2 ]] && grep -q 'line 4 of stdin' err || complain "a bad line of stdin: exit $code"
done
# The lines after it are run.
checks=$((checks + 1))
printf 'v1 retention T=9 speed=8\nv1 retention T=8\n' | "$samestate" repro - >out 2>err
code=$?
[[ $code -eq 2 ]] && grep -q '^verdict   pass' out || complain "the line behind a bad one: exit $code"
# A pass stays a pass next to cases that could not run; those alone give 77.
checks=$((checks + 1))
printf 'v1 retention T=8\n' | "$samestate" repro - >out 2>err
code=$?
[[ $code -eq 0 ]] || complain "a line of stdin that passes: exit $code"
# A full disk is not a crash of this command, and not a pass.
for what in 'list systems' 'list mutants' 'gate --device cpu --system l2norm --list' --version; do
  checks=$((checks + 1))
  # shellcheck disable=SC2086
  "$samestate" $what >/dev/full 2>err
  code=$?
  [[ $code -eq 2 && "$(wc -l <err)" -eq 1 ]] && grep -q 'cannot write' err || complain "a full disk: $what: exit $code"
done
bad 'computes' repro 'v1 retention' --kernel cpu.delta_rule.chunked
bad 'nope' list nope
bad 'nope.safetensors' judge nope.safetensors
bad 'regular file' judge .
bad 'no_folder' goldens no_folder
bad 'which one' diagnose
mkdir empty
bad 'empty' goldens empty
printf '\xff\xff\xff\xff\xff\xff\xff\x7fgarbage' >empty/garbage.safetensors
bad 'garbage.safetensors' goldens empty

# Reports: a missing folder is created; a file that cannot be written is refused before anything runs.
printf 'x' >file
for report in --jsonl --junit --markdown; do
  bad 'file' gate "${quick[@]}" "$report" file/report
  bad 'empty' gate "${quick[@]}" "$report" empty
  run 0 gate "${quick[@]}" "$report" "made/$report/report"
  present "made/$report/report"
done
[[ "$(cat file)" == x ]] || complain 'a file was overwritten'
[[ -z "$(find . -name '*.partial' -o -name '*.trial' -o -name 'report.*')" ]] || complain 'left a partial file'
run 0 gate "${quick[@]}" --device cpu
# Which cases are kept, and so whether one of them expects only zeros, depends on the plan.
summary="$(sed -nE 's/^8 cases, ([0-9]+) judged: (vacuous ([0-9]+), )?pass ([0-9]+)$/\1 \4 \3/p' out)"
read -r judged passed zeros <<<"$summary"
[[ ${judged:-0} -ge 7 && $judged -eq ${passed:-0} && $((judged + ${zeros:-0})) -eq 8 ]] || complain 'not 8 cases that pass'
[[ ! -s err ]] || complain 'wrote to stderr'

# A single case passes, and is vacuous if nothing could be wrong in it.
run 0 repro 'v1 retention T=9 dk=8 state=random'
says 'verdict   pass'
cp out first
run 0 repro 'v1 retention T=9 dk=8 state=random'
cmp -s out first || complain 'the second run says something else'
run 3 repro 'v1 retention T=0'
says 'verdict   vacuous'
says 'policy    gate'
grep -q '^deeper' out && complain 'looks deeper at what no work shows'
# A line that is vacuous because of its small size gets the gate's verdict first, and then what a deeper look
# finds.
open='v1 latent_attention form=absorbed B=2 T=78 D=72 dn=72 dr=72 dv=72 dc=72 q_lora=72 contract=bf16'
run 3 repro "$open"
says 'verdict   vacuous: '
says 'policy    gate'
says 'deeper pass policy deep: sampled ratio'
[[ "$(grep -n '^policy' out | cut -d: -f1)" -lt "$(grep -n '^deeper' out | cut -d: -f1)" ]] || complain 'the first verdict is not first'
run 3 repro --json "$open"
[[ "$(wc -l <out)" -eq 1 ]] || complain 'not one line of JSON'
grep -qE '"verdict":"vacuous".*"policy":"gate".*"deeper":\{"policy":"deep","verdict":"pass","gate":"sampled tensor","ratio":0\.' out ||
  complain 'has not both looks'
run 3 repro --deeper-budget 0 "$open"
grep -q '^deeper' out && complain 'looks deeper without a budget'
run 3 repro --deeper-budget 0.05s "$open"
says 'deeper timeout policy deep 0.05 --deeper-budget'
run 0 repro --deeper 'v1 rms_norm form=fused B=300 T=2 H=2 D=5'
says 'policy    gate'
says 'deeper pass policy deep'

# Kernels are chosen by name or pattern.
run 0 bench --kernel 'cpu.rms*' --list
says 'v1 rms_norm form=fused T=1024'
bad 'rms_norm retention' bench --kernel cpu.rms_norm.fused --system retention --list
bad 'nearest: cpu.rms_norm.fused' gate --kernel cpu.rms_norm.fuse

# A run as a file is judged alike, and then damaged.
run 0 repro 'v1 retention T=9 dk=8 state=random' --dump run.safetensors
present run.safetensors
run 0 judge run.safetensors
grep '^ratio' first >ratio
grep -qxF "$(cat ratio)" out || complain 'judge and repro disagree'
cp run.safetensors damaged.safetensors
size="$(wc -c <damaged.safetensors)"
printf '\x00\x00\xc8\x42' | dd of=damaged.safetensors bs=1 seek=$((size - 4)) conv=notrunc status=none
run 1 judge damaged.safetensors
says 'verdict   fail'
# beta is the file's first tensor: a 3 where [0, 2] is intended is judged as it stands, with a remark.
run 0 repro 'v1 delta_rule T=9 dk=8' --dump strong.safetensors
present strong.safetensors
begin=$((8 + $(od -An -t u8 -N 8 strong.safetensors)))
printf '\x00\x00\x40\x40' | dd of=strong.safetensors bs=1 seek="$begin" conv=notrunc status=none
run 1 judge strong.safetensors
says 'to 3; in [0, 2] a write'
head -c $((size - 10)) run.safetensors >cut.safetensors
bad 'cut.safetensors' judge cut.safetensors
head -c 5 run.safetensors >cut.safetensors
bad 'cut.safetensors' judge cut.safetensors
: >cut.safetensors
bad 'cut.safetensors' judge cut.safetensors
# A run without tokens has a state nevertheless.
run 0 repro 'v1 retention T=0 state=random' --dump none.safetensors
run 0 judge none.safetensors
mkfifo pipe.safetensors
run 2 repro 'v1 retention T=9 dk=8' --dump pipe.safetensors
[[ -p pipe.safetensors ]] || complain 'a pipe was replaced'
run 2 repro 'v1 retention T=9 dk=8' --dump file/run.safetensors

# The same for a system of named tensors, and the tensors that such a file must contain.
operator='v1 linear_attention_normalised form=decode prefill=3 T=7 B=2 dk=4 dv=4'
run 0 repro "$operator" --dump named.safetensors
grep '^ratio' out >ratio
run 0 judge named.safetensors
grep -qxF "$(cat ratio)" out || complain 'judge and repro disagree'
run 0 judge --tensors "$operator"
says 'input.q [2, 7, 8]'
says 'output.S [2, 2, 4, 4]'
run 0 judge --tensors 'v1 retention T=9 dk=8'
says 'final_state [1, 1, 8, 8]'
size="$(wc -c <named.safetensors)"
head -c $((size - 10)) named.safetensors >cut.safetensors
bad 'cut.safetensors' judge cut.safetensors
LC_ALL=C sed 's/"output\.o"/"output.p"/' named.safetensors >other.safetensors
bad "'output.o': missing" judge other.safetensors
LC_ALL=C sed 's/ B=2 T=7/ B=2 T=8/' named.safetensors >other.safetensors
bad '[2, 8, 8]' judge other.safetensors
LC_ALL=C sed 's/"chunked"/"parallX"/' named.safetensors >other.safetensors
bad 'parallX' judge other.safetensors
printf '\x00\x00\xc8\x42' | dd of=named.safetensors bs=1 seek=$((size - 4)) conv=notrunc status=none
run 1 judge named.safetensors
run 2 repro 'v1 retention T=9 dk=8 law=split' --dump law.safetensors
absent law.safetensors
bad 'run file' judge
bad 'nope' judge --tensors 'v1 nope'

# Mutants: killed ones reach the floor; a single equivalent one gives no score; an unknown one is an error.
run 0 mutants --bug M13 --effort 0
says '100.0 %'
run 3 mutants --name reversed_composition.linear_attention.chunked --effort 0
says '0 mutants killed'
# A mutant that dies or hangs is killed by that alone.
run 0 mutants --bug H1.7 --timeout 1 --threads 2
says 'killed crash 1'
says 'killed timeout 1'
bad 'timeout' mutants --timeout 0
bad 'folder' mutants --smoke --markdown empty
bad 'M999' mutants --bug M999
bad '101' mutants --floor 101

# Goldens: known ones pass; a folder with only unknown ones proves nothing; a changed value fails.
run 0 goldens "$goldens"
cp out given
run 0 goldens
cmp -s out given || complain "goldens without a folder are not those of the tree"
says 'gdn_qwen'
mkdir unknown changed
# Two names of the same length, so that the header stays valid.
LC_ALL=C sed 's/gated_rmsnorm/other_rmsnorm/g; s/zero_centered_rmsnorm/zero_centered_unknown/g' \
  "$goldens/hf_norms.safetensors" >unknown/hf_norms.safetensors
run 3 goldens unknown
cp "$goldens/fla_naive.safetensors" changed
size="$(wc -c <changed/fla_naive.safetensors)"
printf '\x00\x00\x00\x00\x00\x00\x59\x40' |
  dd of=changed/fla_naive.safetensors bs=1 seek=$((size - 8)) conv=notrunc status=none
run 1 goldens changed
says 'FAIL'

# Nothing can run on this machine, or the budget ends before the first case.
if ! grep -q '"device": "cuda"' <("$samestate" list kernels --json | grep -A1 '"contracts": ".*fp32'); then
  run 77 gate --device cuda --system retention
elif ! command -v nvidia-smi >/dev/null; then
  # Without a device nothing is planned, which takes minutes, unless a report lists what was skipped.
  moment=$SECONDS
  run 77 gate --device cuda
  holds err 'CUDA device nvidia-smi --device cpu' || complain 'does not say that there is no device'
  [[ $((SECONDS - moment)) -lt 20 ]] || complain 'plans although nothing can run'
  # With other kernels those of the device are left out, which the result says.
  run 0 gate --system l2norm --where 'T=..8 D=..64' --effort 0
  says '1 kernel of cuda is not planned'
  grep -q 'skipped' out && complain 'plans a kernel for a device that is not there'
fi
# If nothing was judged for most kernels, three of them get a sentence, and the others a number.
run 3 gate --device cpu --system l2norm --effort 0 --budget 1e-9
run 3 gate --device cpu --system '*norm*' --system activation_gates --effort 0 --budget 0.5
holds err 'kernels more ended' || complain "does not count the other kernels"

# The ledger: every row, the page made from it, one row, and filters that match nothing.
bad '000 001 002 003 004' equations --document 005
bad 'ERRATUM' equations --verdict wrong
bad 'gated_delta_rule' equations --system mamba_ssm
bad 'GDN-17' equations --id GDN-99
bad 'together' equations --document 000 --id RMS-5
bad '--markdown' equations --json --markdown
run 0 equations
says '250 rows, '
run 0 equations --markdown
diff -q out "$docs/lookup/equations.md" >/dev/null ||
  complain 'docs/lookup/equations.md is not this page: samestate equations --markdown > docs/lookup/equations.md'
# The page of mutants has a row for each that was requested, and the share that was killed.
run 0 list mutants --json
grep -o '"mutant": "[^"]*"' out | cut -d'"' -f4 >names
for asked in '--bug M01' '--system rms_norm'; do
  run 0 mutants $asked --public --markdown mutants.md
  [[ "$asked" == '--bug M01' ]] && pattern='^unmasked_exponential[.]' || pattern='[.]rms_norm[.][^.]*$'
  diff <(grep "$pattern" names | sort) <(sed -n 's/^| [MFH][0-9.]* | \([^ ]*\) .*/\1/p' mutants.md | sort) >&2 ||
    complain "the page of $asked has other rows than those mutants"
  killed="$(grep -c "$pattern" names)"
  grep -q "^| samestate gate | $killed of $killed | 100.0 % |" mutants.md || complain "the page of $asked does not say which share was killed"
done
run 0 equations --id gdn-17
says 'printed 2 correct 1'
says '1 row erratum'
run 0 equations --document 003 --verdict erratum --json
[[ "$(grep -c '"outcome": "erratum demonstrated"' out)" -eq 16 ]] || complain 'not the 16 errata of 003'

# Search: bad options are refused, runs are reproducible, and a checkpoint is continued and never overwritten.
search=(fuzz --system retention --budget 0)
bad '--budget' fuzz --budget 5x
bad '--max-cases' fuzz --budget 0
bad 'shard 3/3' fuzz --shard 3/3
bad 'shard 0/0' fuzz --shard 0/0 --max-cases 3
bad 'shard 1/0' fuzz --shard 1/0
bad 'shard -1/2' fuzz --shard -1/2
bad 'shard 0/9223372036854775807' fuzz --shard 0/9223372036854775807
bad '--shard' fuzz --shard 1
bad 'nope' fuzz --system nope
bad '--checkpoint' fuzz --resume
# With too little address space the judge would run out of memory in case after case, so it says so at once.
since=$SECONDS
(ulimit -v 1000000; failures=0; bad 'ulimit -v leaves 976 MiB of address space, and judging takes 2048 MiB: raise it' gate --system l2norm --max-cases 4; exit $failures) || complain 'ulimit -v is not named'
[[ $((SECONDS - since)) -le 10 ]] || complain "ulimit -v: it takes $((SECONDS - since)) s to say so"
bad '--timeout' fuzz --timeout 0
bad 'nope.so' fuzz --plugin ./nope.so
run 0 "${search[@]}" --seed 4 --max-cases 30 --threads 3 --corpus found --checkpoint points --jsonl lines
says '30 cases'
says 'seed 0x4 shard 0/1'
says 'coverage'
present points
[[ "$(grep -c '"event": *"end"' lines)" -eq 30 ]] || complain 'not 30 records'
absent found
grep -v 'cases/s' out >first
run 0 "${search[@]}" --seed 4 --max-cases 30 --threads 1
grep -v 'cases/s' out | cmp -s - first || complain 'the number of workers changes the result'
cp points kept
bad 'exists' "${search[@]}" --seed 4 --max-cases 30 --checkpoint points
bad 'name another file' "${search[@]}" --seed 5 --max-cases 30 --checkpoint points --resume
cmp -s points kept || complain 'the checkpoint was changed'
run 0 "${search[@]}" --max-cases 40 --checkpoint points --resume
says '30 checkpoint'
sed -E '7s/pass|vacuous/fail/' kept >damaged
bad 'line 7' "${search[@]}" --max-cases 40 --checkpoint damaged --resume
bad 'line 1' "${search[@]}" --max-cases 40 --checkpoint file --resume
[[ "$(cat file)" == x ]] || complain 'a file was overwritten'

# The corpus is replayed first; a damaged one is named by file and line before anything runs.
mkdir corpus
printf '# kept\nv1 retention T=9 dk=8 state=random seed=0x77\n' >corpus/retention.txt
run 0 gate --device cpu --kernel cpu.retention.chunked --effort 0 --corpus corpus --max-cases 1 --jsonl lines
grep -q 'seed=0x77' lines || complain 'the corpus does not come first'
printf '# kept\nv1 retention T=9 speed=8\n' >corpus/retention.txt
bad 'retention.txt 2' gate --corpus corpus --max-cases 1
bad 'retention.txt 2' fuzz --corpus corpus --max-cases 1
# Files that cannot be written are reported before a long run and not after it.
touch file
bad 'file' fuzz --corpus file/corpus --system rms_norm --device cpu --max-cases 1
bad 'is a folder' gate --jsonl corpus --max-cases 3
run 0 explain worst at
says 'worst'
bad 'form=fused' 'repro' 'v1 rms_norm form=equation'
# A line without a form means the first form, which may be one that only the oracle or only a device has.
bad 'form=equation form=fused cpu.rms_norm.fused' repro 'v1 rms_norm'
attempt repro 'v1 latent_attention T=4'
case $code in
  0) ;; # on a device
  2) grep -q 'write form=absorbed' err || complain 'latent_attention: no form that has a kernel' ;;
  *) says 'note      form=naive has no kernel for the CPU; form=absorbed has cpu.latent_attention.absorbed' ;;
esac
# Outputs are put into missing folders, whichever option names them, and refused ones create none.
run 0 repro 'v1 retention T=5 dk=4' --dump made/dump/run.safetensors
present made/dump/run.safetensors
run 0 fuzz --device cpu --system l2norm --max-cases 2 --seed 1 --checkpoint made/night/points --jsonl made/day/lines
present made/night/points
present made/day/lines
bad 'file/points' fuzz --device cpu --system l2norm --max-cases 2 --checkpoint file/points --jsonl never/lines
absent never
mkdir odd_corpus
mkfifo odd_corpus/retention.txt
bad 'is not a file' gate --corpus odd_corpus --max-cases 1
bad 'no_corpus' gate --corpus no_corpus --max-cases 1

# Baseline: a run agrees with itself, a smaller ratio in the baseline means growth, and another schema is
# refused.
run 0 gate "${quick[@]}" --device cpu --write-baseline base.json
present base.json
run 0 gate "${quick[@]}" --device cpu --baseline base.json
says '0 grew'
sed -E 's/: 0\.[0-9]+/: 0.0001/' base.json >small.json
run 1 gate "${quick[@]}" --device cpu --baseline small.json --junit grown.xml --markdown grown.md
says 'was 0.0001'
holds grown.xml '0.0001 baseline' || complain 'the JUnit report does not show the growth'
holds grown.md '0.0001 baseline' || complain 'the summary does not show the growth'
sed 's/"schema": 1/"schema": 7/' base.json >other.json
bad 'schema 7' gate "${quick[@]}" --baseline other.json
bad 'folder' gate "${quick[@]}" --baseline corpus
bad 'none.json' gate "${quick[@]}" --baseline none.json
run 3 gate --device cpu --system delta_rule --effort 0 --max-cases 1 --seed 99 --corpus "$folder/empty" --baseline base.json

# There is nothing to shrink in a case that passes.
bad 'nothing to shrink' repro --shrink 'v1 retention T=9 dk=8 state=random'

# Bench: bad plans are bad input; a quick run of one kernel has times, records and a page; a peer that does
# not work costs only the ratio.
bad 'nope' bench --kernel nope
bad 'mamba' bench --system mamba
bad 'tpu' bench --device tpu
bad '--seconds' bench --seconds 0
bad '--seconds' bench --seconds nan
bad '--baseline-factor' gate --baseline-factor nan
bad '--floor' mutants --smoke --floor nan
bad '--max-memory' bench --max-memory -1
bad '--peer-timeout' bench --peer-timeout 0
bad '--trace' bench --device cpu --trace t.svg
bad 'name end .json' bench --device cpu --case 'v1 retention form=chunked T=4' --kernel cpu.retention.chunked --trace t.png
bad 'has no trace' bench --device cpu --case 'v1 retention T=4 kernel=cpu.retention.chunked' --trace t.svg
bad '--block' bench --block 3
bad 'several calls' bench --case 'v1 retention form=decode T=4'
bad 'law' bench --case 'v1 retention T=4 law=causality'
bad 'has form=fused' bench --case 'v1 rms_norm form=equation T=4'
run 0 bench --device cpu --seconds 0.01 --case 'v1 rms_norm form=fused T=4'
bad "'size'" bench --case 'v1 retention size=4'
bad 'promises fp32' bench --case 'v1 retention T=4 contract=tf32_truncated'
tiny=(bench --device cpu --quick --seconds 0.01 --threads 1 --judge-heads 1)
run 0 "${tiny[@]}" --jsonl bench.jsonl
says 'cpu.linear_attention.recurrent'
holds <(tr '\n' ' ' <out) 'pass 1 2 heads' || complain 'does not say how many heads were judged'
says 'Ceilings cpu'
present bench.jsonl
run 0 "${tiny[@]}" --json --case 'v1 retention T=9 dk=8' --jsonl bench.jsonl
[[ "$(head -c 1 out)" == '[' ]] || complain 'not a JSON array'
run 0 report bench.jsonl --out page --no-plots --no-evidence
says " $(grep -c '"event":"timing"' bench.jsonl) timings"
present page/timings.csv
printf 'read -r line; echo hello; exit\n' >peer.sh
run 0 "${tiny[@]}" --case 'v1 retention T=9 dk=8' --peer 'sh peer.sh'
holds err 'peer retention' || complain 'does not say that there is no peer'
run 77 "${tiny[@]}" --case 'v1 retention T=4096 Hk=64 dk=256' --max-memory 0.01
says 'skipped'

# Identities are named by their names and by the ids of the ledger, where several may share one id.
run 0 identities --id EQ-02
says '3 identities 0'
[[ -s err ]] && complain 'identities wrote to stderr'
run 0 identities --id P-20
says 'dendritic_plain_layer'
bad 'laws' laws --id EQ-02
run 0 identities --id RMS-5 --json
[[ "$(head -c 1 out)" == '[' ]] || complain 'not a JSON array'
bad '--id nothing' identities --id nothing

# Listings.
for what in systems forms kernels contracts laws regimes keys conventions; do
  run 0 list "$what"
  [[ "$what" != conventions ]] || ! grep -q '.\{81\}' out || complain 'a line of conventions is wider than a terminal'
  run 0 list "$what" --json
  [[ "$(head -c 1 out)" == '[' ]] || complain 'not a JSON array'
done
# The listed laws are those that are planned, each with as many of these systems as have it; two laws may share a name.
some='retention retention.backward short_convolution softmax_attention l2norm'
run 0 gate --device cpu --effort 0 --list --system ${some// / --system }
if ! diff <(sed 's/^v1 \([^ ]*\) pass=backward/v1 \1.backward/' out | sed -n 's/^v1 \([^ ]*\) .*law=\([^ ]*\).*/\2 \1/p' | sort -u | cut -d' ' -f1 | uniq -c) \
  <("$samestate" list laws --json | sed -n 's/^ *"law": "\(.*\)",$/law \1/p; s/^ *"systems": "\(.*\)",$/\1/p' |
    awk -v some=" $some " '$1 == "law" {law = $2; next} {for (i = 1; i <= NF; ++i) all[law] += index(some, " " $i " ") > 0}
         END {for (law in all) if (all[law]) printf "%7d %s\n", all[law], law}' | sort -k2) >&2; then
  complain 'list laws is not what the plan has'
fi
run 0 --version
[[ "$(cat out)" =~ ^samestate\ [0-9]+\.[0-9]+\.[0-9]+$ ]] || complain 'not a version'
for verb in gate fuzz repro judge goldens equations identities probe bench list; do
  run 0 "$verb" --help
  says 'Usage'
done

finish
