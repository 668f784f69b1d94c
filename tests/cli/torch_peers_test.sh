#!/usr/bin/env bash
# Public kernels that need torch (docs/lookup/peers.md): Hugging Face's functions in fp32 and 16 bits,
# flash-linear-attention's in Triton's interpreter, with a hundred cases each. If a package is not installed,
# its part is skipped with the reason; nothing is installed, since torch takes gigabytes:
# SAMESTATE_TORCH_PYTHON names a Python that has it.
# usage: torch_peers_test.sh SAMESTATE PYTHON
set -uo pipefail

here="$(realpath "$(dirname "$0")")"
python="${SAMESTATE_TORCH_PYTHON:-$2}"
cases="${SAMESTATE_PEER_CASES:-100}"
source "$here/prelude.sh"
patience=3000
export PYTHONPATH="$here/../../python" SAMESTATE_PYTHON="$python" PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1

parts=0
# has MODULE...: succeeds if the Python imports all of them
has() {
  local said
  if said="$("$python" -c "import importlib; [importlib.import_module(m) for m in '$*'.split()]" 2>&1)"; then
    parts=$((parts + 1))
    return 0
  fi
  printf 'skipped: %s: %s\n' "$*" "$(tail -1 <<<"$said")"
  return 1
}
# passes SPEC [ARGUMENT...]: checks that of a hundred cases none fails, and most are judged
passes() {
  local spec="$1"
  shift
  run 0 gate --subject "python:$spec" --max-cases "$cases" --start-timeout 10m "$@"
  says 'pass'
}

if has torch transformers; then
  # Sums of g lose the decays after a reset in its chunk: this is a defect of their kernel, and it is shown
  # (docs/lookup/peers.md).
  passes hf.torch_chunk_gated_delta_rule --exclude regime=reset,exact_reset --exclude law=reset
  for contract in fp32 bf16_io; do
    passes "hf.torch_recurrent_gated_delta_rule?contracts=$contract"
  done
  for name in causal_conv1d_update mamba_selective_scan mamba2_chunk_scan Qwen3NextRMSNorm.bf16; do
    passes "hf.$name"
  done
  run 1 gate --subject python:hf.torch_chunk_gated_delta_rule --regime reset --max-cases 20
  says 'all bits sums'
fi
if has torch triton fla; then
  small="dk%20<=%2032;dv%20<=%2032;B%20<=%202;Hv%20<=%204;T%20<=%2070"  # a program of the grid is a loop of Python here
  for name in fused_recurrent_gated_delta_rule fused_recurrent_delta_rule fused_recurrent_simple_gla; do
    passes "fla.$name?device=cpu&limits=$small"
  done
  for name in fused_recurrent_linear_attn fused_recurrent_simple_gla; do
    passes "fla.$name?device=cpu&contracts=fp16&limits=$small"
  done
  run 2 gate --subject 'python:fla.fused_recurrent_simple_gla?device=cpu&contracts=bf16' --max-cases 1
  says 'truncates bf16'
fi
if ((parts == 0)); then exit 77; fi
finish
