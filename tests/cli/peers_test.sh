#!/usr/bin/env bash
# Public kernels (docs/lookup/peers.md) from packages without torch: their gates pass as declared and fail
# with the usual declaration, and the diagnosis finds their conventions. Skipped, with the reason, if the
# packages are not available.
# usage: peers_test.sh SAMESTATE PYTHON FOLDER: FOLDER keeps the packages from one run to the next
set -uo pipefail

python="$2"
here="$(realpath "$(dirname "$0")")"
mkdir -p "$3" && packages="$(realpath "$3")"
source "$here/prelude.sh"
patience=240

skip() {
  printf 'skipped: %s\n' "$1"
  exit 77
}
pip() {
  timeout 240 "$packages/bin/python" -m pip install --quiet --disable-pip-version-check --timeout 20 --retries 1 "$@" 2>&1
}
if [[ ! -e "$packages/complete" ]]; then
  "$python" -m venv "$packages" >venv 2>&1 || skip "$python makes no virtual environment: $(tail -1 venv)"
  pip numpy 'libggml-python==0.20.2.post1' 'mlx[cpu]==0.32.4' >said || skip "no packages: $(tail -1 said)"
  pip --no-deps 'mlx-lm==0.32.2' >said || skip "no mlx-lm: $(tail -1 said)"
  touch "$packages/complete"
fi
export PYTHONPATH="$here/../../python" SAMESTATE_PYTHON="$packages/bin/python" PYTHONDONTWRITEBYTECODE=1

small=(--effort 0.1 --where 'T=..128 dk=..128 dv=..128 Hv=..8')
for peer in ggml.gated_delta_net mlx.gated_delta_ops mlx.gated_delta_update; do
  run 0 gate --subject "python:$peer" "${small[@]}" --max-cases 100
  says 'pass'
done

# undeclared NAME CONVENTIONS
undeclared() {
  local subject="python:$here/undeclared_peers.py:$1"
  run 1 gate --subject "$subject" "${small[@]}" --max-cases 20 --fail-fast
  run 1 diagnose --subject "$subject" --kernel "$1.recurrent"
  says "declare   \"conventions\":{$2}"
}
undeclared of_ggml '"state":"vk","scale":"dk","heads":"tiled"'
undeclared of_mlx '"state":"vk","decay":"linear","scale":"folded"'

finish
