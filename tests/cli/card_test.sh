#!/usr/bin/env bash
# Contracts with changes in every verb, a card that is declared nearest, and a card that is read from a
# kernel.
# usage: card_test.sh SAMESTATE PLUGIN
set -uo pipefail

plugin="$(realpath "$2")"
source "$(dirname "$0")/prelude.sh"
patience=240

all() {
  [[ -s out ]] || complain 'an empty plan'
  [[ "$(grep -cvF -- "$1" out)" -eq 0 ]] || complain "not all lines hold $1: $(grep -vF -- "$1" out | head -1)"
}

kernel=cpu.gated_delta_rule.chunked
changed=bf16+beta_k:bf16+inverse:block16/tf32_truncated

# The grammar: names are canonical, and errors name the value, the allowed ones and the nearest.
run 0 list contracts --long
grep -qE '^bf16_fused +inverse +block8/tf32' out || complain 'no point of bf16_fused'
bad 'nearest: beta_k' repro 'v1 gated_delta_rule contract=bf16+beta_q:bf16'
bad 'beta_k:bf17 bf16' repro 'v1 gated_delta_rule contract=bf16+beta_k:bf17'
bad 'residual:bf16' gate --contract bf16_fused+U:bf16 --list
bad 'nearest: bf16' gate --contract bf15 --list
run 0 gate --kernel $kernel --contract bf16+inverse:block16/tf32_truncated+beta_k:bf16 --max-cases 3 --list
all "contract=$changed"
run 0 gate --kernel $kernel --contract $changed --max-cases 3
run 0 fuzz --kernel $kernel --contract $changed --max-cases 2 --list
all "contract=$changed"
run 0 sweep --quick --system gated_delta_rule --contract $changed --where chunk=16 --list
all "contract=$changed"
run 0 tolerance "v1 gated_delta_rule T=40 dk=16 contract=$changed seed=3" --seeds 1 --mutants 0
run 0 repro "v1 gated_delta_rule T=40 contract=$changed seed=3"
run 0 explain $changed
says 'block16/tf32_truncated'
run 0 explain beta_k
says 'point of a contract'

# Rounding points of a system are named. A kernel that promises to keep the weights of a softmax in fp32 but
# stores them in 16 bits fails; under the plain contract it passes, and so does a kernel that keeps the
# promise.
point=softmax_attention.weights
grep -qE "^$point +The weights p, .* fp32 bf16 fp16" <("$samestate" list contracts --long) || complain 'no point of a system'
run 0 list points --json
row="$(grep -A3 "\"point\": \"$point\"" out | tr '\n' ' ')"
grep -q 'result.*gated_attention.*The weights p' <<<"$row" || complain 'no row of the point, or not its systems'
run 0 explain $point
says 'contract=bf16+softmax_attention.weights:fp32'
run 0 explain softmax_attention
says 'softmax_attention.scores, '
run 0 explain bf16+$point:fp32
says 'division sum'
bad 'nearest: softmax_attention.weights' repro 'v1 softmax_attention contract=bf16+softmax_attention.weigts:fp32'
bad 'softmax_attention.scores' repro 'v1 softmax_attention contract=bf16+scores:fp32'
bad 'fp32 bf16' repro "v1 softmax_attention contract=bf16+$point:fp16"
bad 'contract tf32' repro 'v1 softmax_attention contract=bf16+softmax_attention.scores:fp32'
run 0 repro "v1 softmax_attention form=online T=65 contract=bf16+$point:bf16 seed=3"
says 'contract=bf16 '
few=(--where T=2.. --max-cases 40)
run 0 gate --plugin "$plugin" --kernel kept.softmax_attention.online "${few[@]}" --list
all "contract=bf16+$point:fp32"
run 0 gate --plugin "$plugin" --kernel kept.softmax_attention.online "${few[@]}"
run 1 gate --plugin "$plugin" --kernel stored.softmax_attention.online "${few[@]}"
run 0 gate --plugin "$plugin" --kernel plain.softmax_attention.online "${few[@]}"

# A run file keeps the contract.
run 0 repro "v1 gated_delta_rule T=40 dk=16 contract=$changed seed=3" --dump run.safetensors
run 0 judge run.safetensors
says "contract=$changed"

# A kernel rounds beta k without declaring it: the verdict of the twin names the contract that it keeps.
line='T=192 dk=64 dv=64 regime=collinear state=random seed=0x5'
run 1 repro --plugin "$plugin" "v1 gated_delta_rule $line contract=bf16 kernel=wrong.gated_delta_rule.chunked" --dump wrong.safetensors
says 'contract passes bf16+beta_k:bf16'
run 1 judge wrong.safetensors
says 'contract passes bf16+beta_k:bf16'
run 1 judge wrong.safetensors --json
says 'passes contract bf16+beta_k:bf16'
run 1 judge wrong.safetensors --card-budget 0
! grep -q 'passes under' out || complain 'looked for a contract'
run 0 repro --plugin "$plugin" "v1 gated_delta_rule $line contract=bf16+beta_k:bf16 kernel=right.gated_delta_rule.chunked"

# Declared as nearest, it passes, and the distance is reported; with --strict the twin gates it.
nearest=nearest.gated_delta_rule.chunked
run 0 repro --plugin "$plugin" "v1 gated_delta_rule $line contract=bf16+card:nearest kernel=$nearest"
says 'reported not gated'
says 'passes contract bf16+beta_k:bf16'
run 1 repro --strict --plugin "$plugin" "v1 gated_delta_rule $line contract=bf16+card:nearest kernel=$nearest"
run 0 gate --plugin "$plugin" --kernel $nearest --regime normal,slow --where T=100.. --max-cases 12
says 'reported not gated'
run 1 gate --plugin "$plugin" --kernel $nearest --regime normal,slow --where T=100.. --max-cases 12 --strict
says '--strict'

# The card.
run 0 card --plugin "$plugin" --kernel wrong.gated_delta_rule.chunked
grep -qxF 'contract=bf16+beta_k:bf16' out || complain 'another contract'
grep -qE '^beta_k +bf16 .* farther without' out || complain 'no evidence of beta_k'
says 'told apart'
run 0 card --kernel cpu.delta_rule --form recurrent --contract bf16 --json
says '"explained": true'
bad 'no such kernel' card --kernel no.such
# A kernel of named tensors is called, so that no probes are written or read. Its card has the points of its system.
bad '--write probes named tensors' card --kernel cpu.rms_norm.fused --write probes
absent probes
run 0 card --kernel cpu.gated_delta_rule.backward.chunked --contract bf16
says 'chunk_backward.dv_local bf16 farther without'
says 'chunk_backward.dG fp32'
says 'contract=bf16'
bad 'promises' card --plugin "$plugin" --kernel right.gated_delta_rule.chunked --contract bf16
run 0 card --kernel $kernel --contract bf16 --write probes
[[ "$(find probes -name '*.safetensors' | wc -l)" -ge 10 ]] || complain 'fewer than ten probes'
bad 'probes o written' card --kernel $kernel --contract bf16 --read probes
bad 'no such folder' card --kernel $kernel --contract bf16 --read nowhere
bad 'contract=bf16 bf16_fused --contract bf16' card --kernel $kernel --contract bf16_fused --read probes

# Only two probes have outputs: what the others would show is unknown, and a line says so. No kernel made
# these outputs.
python3 - probes/00_*.safetensors probes/10_*.safetensors <<'EOF'
import json, struct, sys
for name in sys.argv[1:]:
    data = bytearray(open(name, "rb").read())
    size = struct.unpack("<Q", data[:8])[0]
    begin, end = json.loads(data[8:8 + size])["o"]["data_offsets"]
    count = (end - begin) // 4
    data[8 + size + begin:8 + size + end] = struct.pack(f"<{count}f", *((i % 7 + 0.123) for i in range(count)))
    open(name, "wb").write(data)
EOF
run 1 card --kernel $kernel --contract bf16 --read probes
grep -qE '^samestate: --read probes: [0-9]+ of [0-9]+ probes have no outputs' err || complain 'no warning of probes without outputs'
grep -qE '^unknown +[0-9]+ of [0-9]+ probes have no outputs' out || complain 'the card does not say what was not asked'
grep -qE '^verdict +no contract of the grammar explains all probes: exit 1$' out || complain 'the exit code is not said in words'
run 1 card --kernel $kernel --contract bf16 --read probes --json
says '"worst_probe": "'

# Outputs that took a kernel an hour to write into probes are not overwritten.
bad '--force' card --kernel $kernel --contract bf16 --write probes
run 1 card --kernel $kernel --contract bf16 --read probes
bad '--force' card --kernel $kernel --contract bf16 --force

# Values that are not numbers are named: the probe, the element, and what to look at.
python3 - probes/00_*.safetensors <<'EOF'
import json, struct, sys
for name in sys.argv[1:]:
    data = bytearray(open(name, "rb").read())
    size = struct.unpack("<Q", data[:8])[0]
    begin, end = json.loads(data[8:8 + size])["o"]["data_offsets"]
    data[8 + size + begin + 4 * 67:8 + size + begin + 4 * 68] = struct.pack("<f", float("nan"))
    open(name, "wb").write(data)
EOF
run 1 card --kernel $kernel --contract bf16 --read probes
grep -qE '^no number keys apart: o of sequence 0, token [0-9]+, head [0-9]+, channel 3 is nan; look at ' out ||
  complain 'a value that is no number is not named'
grep -qE '^verdict +outputs are not finite' out || complain 'the verdict does not say it'
run 0 card --kernel $kernel --contract bf16 --write probes --force
bad 'probes o written' card --kernel $kernel --contract bf16 --read probes

# Without a device nothing runs, whichever verb asks.
device=cuda.retention.chunked
attempt list kernels --json
if grep -q '"contracts": ".*fp32' <(grep -B3 "\"kernel\": \"$device\"" out); then
  export CUDA_VISIBLE_DEVICES=''
  run 77 card --kernel $device
  [[ "$(wc -l <err)" -eq 1 && ! -s out ]] || complain 'not one line'
  run 77 tolerance "v1 retention T=64 dk=16 contract=bf16_fused kernel=$device"
  [[ "$(wc -l <err)" -eq 1 && ! -s out ]] || complain 'not one line'
  unset CUDA_VISIBLE_DEVICES
fi

# If a name cannot be written, the message names the option that gave it, whichever it is.
bad 'samestate: --write /proc/x: ' card --kernel $kernel --write /proc/x
bad 'samestate: --junit /proc/x: ' gate --kernel $kernel --max-cases 1 --junit /proc/x
bad 'samestate: --dump /proc/x: ' repro 'v1 retention T=3' --dump /proc/x
bad 'samestate: --out /proc/x: ' export --system retention --out /proc/x
bad 'samestate: --checkpoint /proc/x: ' fuzz --max-cases 1 --checkpoint /proc/x

# After an interrupt, whenever it comes, there is no card, and no contract to paste.
for after in 0.02 0.15; do
  around=(timeout -s INT --preserve-status $after)
  run 3 card --kernel $kernel --contract bf16
  cat out err | grep -qE 'no card( is read)?$' || complain 'an interrupted search passes for a card'
  ! grep -q '^contract=' out || complain 'a contract of half a search'
  around=()
done

# If the interrupt comes during the gate's cases, their number is reported, and a kernel that was stopped has
# not crashed.
rm -f waits
"$samestate" card --plugin "$plugin" --kernel waits.gated_delta_rule.chunked >out 2>err </dev/null &
await 1 yes waits || complain 'the gate is not reached'
sleep 0.3
kill -INT $!
code=0
wait $! || code=$?
[[ $code -eq 3 ]] || complain "exit $code after an interrupt of the gate"
grep -qE '^gate +interrupted after [0-6] of 7 cases, of which [0-6] pass under it$' out || complain 'a cut gate passes for a whole one'
! grep -q '^ *crash' out || complain 'the interrupt is told as a crash'

finish
