#!/usr/bin/env bash
# `repro --script`: the file that it writes needs numpy and no samestate (python3 -I in an empty environment),
# fails for mutants and passes for the correct kernels on the same cases; cases that one file cannot show are
# bad input.
# usage: script_test.sh SAMESTATE MUTANT_SCRIPTS
set -uo pipefail

mutant_scripts="$(realpath "$2")"
here="$(realpath "$(dirname "$0")")"
source "$here/prelude.sh"

python=/usr/bin/python3
"$python" -I -c 'import numpy' 2>/dev/null || { echo "skipped: $python has no numpy"; exit 77; }
alone=(env -i "$python" -I -B)

# ends CODE SCRIPT [ARGUMENT...]: checks the exit code of the script, and that its last line agrees with it.
ends() {
  local code=0
  "${alone[@]}" "${@:2}" >said 2>&1 || code=$?
  invocation="$2"
  if [[ $code -ne $1 ]]; then
    complain "ends with $code, not $1: $(tail -3 said)"
  elif [[ $1 -eq 1 ]]; then
    grep -q '^FAIL: ' said || complain "fails without saying so: $(tail -1 said)"
  elif [[ $1 -eq 0 ]]; then
    grep -q '^pass: ' said || complain "passes without saying so: $(tail -1 said)"
  fi
}

mkdir all
"$mutant_scripts" all >written || complain "$(cat written)"
[[ "$(ls all/fails_* | wc -l)" -ge 20 ]] || complain 'scripts of fewer than twenty mutants'
for script in all/fails_*.py; do ends 1 "$script"; done
for script in all/passes_*.py; do
  ends 0 "$script"
  lines="$(sed '/^DATA = {/q' "$script" | wc -l)"
  [[ $lines -le 150 ]] || complain "$script has $lines lines before its data"
done
! grep -qE '^ *(import|from) samestate' all/*.py || complain 'a script imports samestate'
# The comparison can fail: on one element of the kernel's result, on a value that is not a number, and on a
# limit of zero.
for change in 'd["recorded o"] += 0; d["recorded o"].flat[3] += 1' 'd["recorded o"].flat[0] = np.nan' 'd["limit state"][:] = 0'; do
  code=0
  "${alone[@]}" - all/passes_00.py "$change" >said 2>&1 <<'PY' || code=$?
import runpy, sys
import numpy as np
script = runpy.run_path(sys.argv[1])
d = script["DATA"]
d.update({name: np.array(x) for name, x in d.items()})
exec(sys.argv[2])
sys.exit(script["main"]())
PY
  [[ $code -eq 1 ]] || complain "a script with $change ends with $code: $(tail -1 said)"
done

# The command.
line='v1 gated_delta_rule chunk=16 T=20 Hv=2 dk=8 dv=8 state=random'
run 0 repro "$line" --script right.py
says 'script    right.py'
ends 0 right.py
bad '--force' repro "$line" --script right.py
run 0 repro "$line" --script right.py --force
bad 'is empty' repro "$line" --script ''
bad 'file run' repro - --script other.py
bad '--force --script' repro "$line" --force
bad 'vacuous' repro 'v1 gated_delta_rule T=0' --script none.py
absent none.py
# Beyond two megabytes, only the worst head of the outputs is embedded.
run 0 repro 'v1 gated_delta_rule chunk=64 T=700 Hv=16 dk=64 dv=64' --script large.py
[[ "$(wc -c <large.py)" -le 2000000 ]] || complain 'more than two megabytes'
grep -q 'Cut out is' large.py || complain 'does not say what was cut'
ends 0 large.py
run 0 repro 'v1 short_convolution form=packed lengths=500,480,0,490,470 C=128' --script sequences.py
grep -q '^CU_SEQLENS = \[0, [0-9]*\]$' sequences.py || complain 'does not have one of the packed sequences alone'
ends 0 sequences.py

# Subjects in Python, with every convention that changes the inputs of a kernel.
cat >kernels.py <<'PY'
import numpy as np
import samestate


def rule(q, k, v, g, beta, scale, state, wrong=False):
    B, T, H, dk = q.shape
    S = np.zeros((B, H, dk, v.shape[3]), np.float32) if state is None else state.copy()
    o = np.empty_like(v)
    for t in range(T):
        S = np.exp(g[:, t])[..., None, None] * S
        error = v[:, t] - (0 if wrong else np.einsum("bhkv,bhk->bhv", S, k[:, t]))
        S = S + k[:, t][..., None] * (beta[:, t][..., None] * error)[..., None, :]
        o[:, t] = scale * np.einsum("bhkv,bhk->bhv", S, q[:, t])
    return o, S


@samestate.kernel("gated_delta_rule", "recurrent", heads="repeated", name="plain")
def plain(q, k, v, g, beta, scale, initial_state):
    return rule(q, k, v, g, beta, scale, initial_state)


@samestate.kernel("gated_delta_rule", "recurrent", heads="repeated", name="wrong")
def wrong(q, k, v, g, beta, scale, initial_state):
    return rule(q, k, v, g, beta, scale, initial_state, wrong=True)


def flat(f):
    def call(q, k, v, alpha, beta, initial_state):
        turn = lambda x: x.swapaxes(1, 2)
        o, S = rule(turn(q), turn(k), turn(v), np.log(turn(alpha)), 1 / (1 + np.exp(-turn(beta))), np.float32(1),
                    initial_state.swapaxes(2, 3), wrong=f)
        return np.ascontiguousarray(turn(o)), np.ascontiguousarray(S.swapaxes(2, 3))
    return call


other = samestate.kernel("gated_delta_rule", "recurrent", heads="repeated", name="other", state="vk", scale="folded",
                         beta="logit", layout="BHTD", state_argument="required", decay="linear")(flat(False))
other_wrong = samestate.kernel("gated_delta_rule", "recurrent", heads="repeated", name="other_wrong", state="vk",
                               scale="folded", beta="logit", layout="BHTD", state_argument="required",
                               decay="linear")(flat(True))


@samestate.kernel("gated_delta_rule", "recurrent", heads="tiled", l2norm="in_kernel", name="tiled")
def tiled(q, k, v, g, beta, scale, initial_state):
    q, k = (x / np.sqrt(np.sum(x * x, -1, keepdims=True) + np.float32(1e-6)) for x in (q, k))
    group = v.shape[2] // q.shape[2]
    return rule(np.tile(q, (1, 1, group, 1)), np.tile(k, (1, 1, group, 1)), v, g, beta, scale, initial_state)


@samestate.kernel("gated_delta_rule", "recurrent", heads="repeated", strided=False, name="edits")
def edits(q, k, v, g, beta, scale, initial_state):
    o, S = rule(q, k, v, g, beta, scale, initial_state)
    q[...] = 0
    return o, S


@samestate.kernel("gated_delta_rule", "recurrent", heads="repeated", strided=False, name="strays")
def strays(q, k, v, g, beta, scale, initial_state):
    o, S = rule(q, k, v, g, beta, scale, initial_state)
    import ctypes
    ctypes.c_float.from_address(q.ctypes.data + q.nbytes + 8192).value  # a page behind its last
    return o, S


@samestate.kernel("gated_delta_rule", "recurrent", heads="repeated", name="dies")
def dies(q, k, v, g, beta, scale, initial_state):
    import os
    os.abort()


@samestate.kernel("gated_delta_rule", "recurrent", heads="repeated", name="throws")
def throws(q, k, v, g, beta, scale, initial_state):
    raise ValueError("not today")


@samestate.kernel("rms_norm", "fused", name="norm")
def norm(x, weight):
    return x / np.sqrt(np.mean(x * x, -1, keepdims=True) + np.float32(1e-6)) * weight


@samestate.kernel("short_convolution", "gather", name="convolution")
def convolution(x, kernel, state, W, activation, bias=None):
    inputs = np.concatenate([state, x], 1)
    y = sum(kernel[:, j] * inputs[:, j:j + x.shape[1]] for j in range(W)).astype(np.float32)
    y = y if bias is None or isinstance(bias, int) else y + bias
    y = y / (1 + np.exp(-y)) if activation else y
    return y, np.ascontiguousarray(inputs[:, inputs.shape[1] - (W - 1):])


def sequences(shift):
    """The convolution of packed sequences, each with the state `shift` before its own."""
    def call(x, kernel, state, W, activation, bias=None, cu_seqlens=None):
        if cu_seqlens is None:
            return convolution(x, kernel, state, W, activation, bias)
        parts = [convolution(x[:, cu_seqlens[n]:cu_seqlens[n + 1]], kernel, state[n - shift:][:1], W, activation, bias)
                 for n in range(len(state))]
        return np.concatenate([y for y, _ in parts], 1), np.concatenate([last for _, last in parts])
    return call


packed = samestate.kernel("short_convolution", "gather", name="packed")(sequences(0))
packed_wrong = samestate.kernel("short_convolution", "gather", name="packed_wrong")(sequences(1))
PY
export PYTHONPATH="$here/../../python" SAMESTATE_PYTHON="$python" PYTHONDONTWRITEBYTECODE=1
# subject CODE FUNCTION KERNEL LINE: checks the verdict of the command, and of its script without samestate.
subject() {
  run "$1" repro --subject "python:$folder/kernels.py:$2" "$4 kernel=$3" --script "$2.py" --force
  ends "$1" "$2.py" "$folder/kernels.py"
}
family='v1 gated_delta_rule form=recurrent T=17 Hk=2 Hv=4 dk=8 dv=8 state=random'
subject 0 plain plain.recurrent "$family"
subject 1 wrong wrong.recurrent "$family"
subject 0 plain plain.recurrent 'v1 gated_delta_rule form=recurrent T=17 B=2 Hk=2 Hv=4 dk=8 dv=8 heads=tiled state=random'
subject 0 plain plain.recurrent 'v1 gated_delta_rule form=decode chunk=0 prefill=9 T=12 dk=8 dv=8'
subject 0 plain plain.recurrent 'v1 gated_delta_rule form=recurrent T=17 dk=8 dv=8 regime=exact'
subject 0 plain plain.recurrent 'v1 gated_delta_rule form=recurrent T=17 B=2 dk=8 dv=8 state=random law=split'
subject 1 wrong wrong.recurrent 'v1 gated_delta_rule form=recurrent T=17 B=2 dk=8 dv=8 state=random'
subject 0 other other.recurrent "$family"
subject 0 other other.recurrent 'v1 gated_delta_rule form=recurrent T=17 Hk=2 Hv=4 dk=8 dv=8'
subject 1 other_wrong other_wrong.recurrent "$family"
subject 0 tiled tiled.recurrent 'v1 gated_delta_rule form=recurrent T=17 Hk=2 Hv=6 dk=8 dv=8 l2norm=1'
subject 0 norm norm.fused 'v1 rms_norm form=fused T=9 B=2'
subject 0 convolution convolution.gather 'v1 short_convolution T=9 B=2 bias=1'
subject 0 convolution convolution.gather 'v1 short_convolution form=decode prefill=5 T=9'
subject 0 packed packed.gather 'v1 short_convolution form=packed lengths=5,0,1,9 unowned=2,1 bias=1'
subject 1 packed_wrong packed_wrong.gather 'v1 short_convolution form=packed lengths=5,0,1,9 bias=1'
subject 0 packed packed.gather 'v1 short_convolution T=9 B=2 bias=1'
# A kernel that throws crashes its case: the script is the call, and ends as the call does.
run 5 repro --subject "python:$folder/kernels.py:throws" "$family kernel=throws.recurrent" --script throws.py
"${alone[@]}" throws.py "$folder/kernels.py" >said 2>&1 && complain 'the script of a kernel that throws ends with 0'
grep -q 'not today' said || complain 'the script does not show what was thrown'
code=0
"${alone[@]}" plain.py >said 2>&1 || code=$?
[[ $code -eq 2 ]] || complain "a script without the kernel's file ends with $code instead of 2"
grep -q 'usage: python3' said || complain 'a script without the kernel'\''s file does not say how it is called'
# If an input is written to, the limits on the outputs do not show it, but the script's own comparison does.
subject 1 edits edits.recurrent "$family"
holds said 'input q' || complain 'does not name the input'
# A call alone need not show what only the guards around memory or a signal show, nor what happens only after
# other cases.
run 2 repro --subject "python:$folder/kernels.py:strays" "$family kernel=strays.recurrent" --script strays.py
holds err 'gate memory' || complain 'does not name the gate'  # beside a line of progress where the machine is slow
absent strays.py
run 2 repro --subject "python:$folder/kernels.py:dies" "$family kernel=dies.recurrent" --script dies.py
holds err 'kernel signal 6' || complain 'does not name the signal'
absent dies.py
bad '--after' repro "$line" --after "$line" --script after.py
absent after.py
# The data are too large for one file, and the kernel needs all of them.
run 2 repro --subject "python:$folder/kernels.py:plain" 'v1 gated_delta_rule form=recurrent T=700 Hk=16 Hv=16 dk=64 dv=64' --script much.py
grep -q -- '--shrink' err || complain 'names no remedy'
absent much.py

finish
