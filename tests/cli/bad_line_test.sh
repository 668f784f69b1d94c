#!/usr/bin/env bash
# A bad case line in every verb that takes one: exit 2, nothing on stdout, and one line that names the value, what is
# allowed and the remedy.
# usage: bad_line_test.sh SAMESTATE
set -uo pipefail

source "$(dirname "$0")/prelude.sh"
good='v1 retention T=5 dk=4'
long="$(head -c 9000 /dev/zero | tr '\0' x)"

# Each row has the mistake, the words of the message, and the line.
table=(
  "a key of other programs|dtype|perhaps contract=|v1 retention dtype=bf16"
  "unknown key|speed|known keys are|v1 retention speed=8"
  "unknown regime|regime=nope|has the regimes normal, slow|v1 retention regime=nope"
  "unknown system|system nope|samestate list systems|v1 nope T=4"
  "unknown law|law=nope|known: |v1 retention law=nope"
  "unknown contract|contract=nope|known: fp32|v1 retention contract=nope"
  "wrong version|'v2'|write 'v1 SYSTEM|v2 retention T=4"
  "number too large|T=99999999999999999999|0..16777216|v1 retention T=99999999999999999999"
  "no number|T=x|0..16777216|v1 retention T=x"
  "key twice|'T'|leave one out|v1 retention T=4 T=5"
  "no system|no system|list systems|v1"
  "blank|empty|write 'v1 SYSTEM| "
  "bytes|0xff|printable ASCII|v1 retention "$'\xff\xfe'
  "experts in groups|N=15|write N=12 or N=16|v1 group_limited_router N=15"
  "groups kept|M=5|write M=4 or a larger G|v1 group_limited_router M=5"
  "experts of the groups|K=9|write K=8 or less, or a larger M|v1 group_limited_router K=9"
  "experts|K=9|write K=8 or less, or a larger N|v1 expert_router K=9"
  "heads of groups|Hv=3|write Hv=2 or Hv=4|v1 retention Hk=2 Hv=3"
  "ranks of a form without|ranks=2|write form=sequence_parallel|v1 retention ranks=2"
  "cuts of a form without|cuts=heads|form=head_parallel, whose ranks divide the value heads|v1 retention form=recurrent cuts=heads"
  "ranks without chunks|ranks=2|write chunk=64|v1 retention form=packed lengths=3,4 chunk=0 ranks=2"
  "cuts of tokens|cuts=heads|write cuts=even or cuts=drawn, or form=head_parallel|v1 retention form=sequence_parallel ranks=2 cuts=heads"
  "cuts of heads|cuts=heads|leave cuts out for equal parts|v1 retention form=head_parallel Hv=2 ranks=2 cuts=heads"
  "cuts of one rank|cuts=drawn|write ranks=2|v1 retention form=sequence_parallel cuts=drawn"
  "a long system|9000 characters, 'xxx|at most 512|v1 $long"
  "a long key|9000 characters, 'xxx|at most 512|v1 retention $long"
  "a long value|9002 characters, 'T=xxx|at most 512|v1 retention T=$long"
  "a long list|lengths=xxx|0..16777216|v1 retention lengths=$long"
)
verbs=(repro 'repro --shrink' 'repro --json' tolerance 'tolerance --table' 'judge --tensors' 'bench --case' 'serve --case')
for row in "${table[@]}"; do
  IFS='|' read -r _ value allowed line <<<"$row"
  [[ -n "$line" ]] || line=' '
  for verb in "${verbs[@]}"; do
    # shellcheck disable=SC2086
    bad "$value" $verb "$line"
    grep -qF -- "$allowed" err || complain "does not say '$allowed'"
  done
  # The same line after another line, and as one line of a stream, which continues after it.
  if [[ "$line" == v1\ * ]]; then
    bad "$value" repro "$good" --after "$line"
    checks=$((checks + 1))
    printf '%s\n%s\n' "$line" "$good" | "$samestate" repro - >out 2>err
    code=$?
    [[ $code -eq 2 && "$(wc -l <err)" -eq 1 ]] && grep -qF 'line 1 of stdin' err && grep -qF -- "$value" err &&
      grep -q '^verdict   pass' out || complain "on stdin: $value: exit $code"
  fi
done

# A kernel that does not fit the line: the message names the key, and what would fit.
p='v1 retention form=packed lengths=3,4'
d='v1 retention form=decode T=4 prefill=2'
table=(
  "cuts=heads|write cuts=even or cuts=drawn, or kernel=cpu.retention.head_parallel|$p ranks=2 cuts=heads kernel=cpu.retention.sequence_parallel"
  "cuts=even|write cuts=heads, or kernel=cpu.retention.sequence_parallel|$p ranks=2 kernel=cpu.retention.head_parallel"
  "cuts=drawn|write cuts=heads, or kernel=cpu.retention.sequence_parallel|$d ranks=2 cuts=drawn kernel=cpu.retention.head_parallel"
  "ranks=2|leave ranks and cuts out, or kernel=cpu.retention.sequence_parallel|$p ranks=2 kernel=cpu.retention.chunked"
  "ranks=2|leave ranks and cuts out, or kernel=cpu.retention.head_parallel|$d ranks=2 cuts=heads kernel=cpu.retention.chunked"
  "form=chunked|write form=head_parallel, or kernel=cpu.retention.chunked|v1 retention kernel=cpu.retention.head_parallel"
  "form=parallel|write form=recurrent, or kernel=cpu.retention.chunked|v1 retention form=parallel kernel=cpu.retention.recurrent"
  "chunk=64|write chunk=0, or kernel=cpu.retention.chunked|$p kernel=cpu.retention.recurrent"
)
for row in "${table[@]}"; do
  IFS='|' read -r value remedy line <<<"$row"
  bad "$value" repro "$line"
  grep -qF -- "$remedy" err || complain "does not say '$remedy'"
done

# Inputs that are not lines at all: nothing, a folder, a file without a line, and bytes that are not text.
mkdir folder
: >empty
printf '# a comment\n\n' >comment
printf '\x7fELF\x01\x02\xff' >binary
for verb in repro tolerance 'judge --tensors' 'serve --case'; do
  # shellcheck disable=SC2086
  bad 'empty' $verb ''
done
for file in folder empty comment none; do bad "$file" repro "$good" --after "$file"; done
bad '0x7f' repro "$good" --after binary
for file in folder empty binary none; do bad "$file" judge "$file"; done

finish
