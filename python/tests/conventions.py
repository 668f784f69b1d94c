"""Correct functions of numpy, one per convention: by_KEY keeps the value of KEY that comes after the ? of its name."""
import os
import sys

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from kernels import right  # noqa: E402
from samestate.serve import split_name  # noqa: E402

# The value that this process serves: of its own command line.
VALUE = dict(pair for word in sys.argv[1:] for pair in split_name(word)[1])


def _serve():
    say = VALUE

    def run(q, k, v, g, beta, initial_state, scale=1.0, cu_seqlens=None, l2norm=False, heads="interleaved"):
        g = {"ln": lambda g: g, "log2": lambda g: g * np.log(2), "linear": np.log,
             "raw": lambda r: -np.log1p(np.exp(r))}[say.get("decay", "ln")](g.astype(np.float64))
        if say.get("beta", "beta") != "beta":
            beta = (2 if say["beta"] == "twice_logit" else 1) / (1 + np.exp(-beta.astype(np.float64)))
        layout, S = say.get("layout", "BTHD"), initial_state
        if layout == "BHTD":
            q, k, v, g, beta = (y.swapaxes(1, 2) for y in (q, k, v, g, beta))
        if layout == "THD":
            q, k, v, g, beta = (y[None] for y in (q, k, v, g, beta))
        if S is not None and say.get("state") == "vk":
            S = S.swapaxes(-1, -2)
        o, final = right("gated_delta_rule", q, k, v, g, beta, S, scale, heads, l2norm, cu_seqlens)
        if layout == "BHTD":
            o = o.swapaxes(1, 2)
        if layout == "THD":
            o = o[0]
        return o, final.swapaxes(-1, -2) if say.get("state") == "vk" else final

    return run


def by_decay(q, k, v, g, beta, initial_state, scale):
    return _serve()(q, k, v, g, beta, initial_state, scale)


by_state = by_beta = by_decay


def by_heads(q, k, v, g, beta, initial_state, scale):
    heads = "tiled" if VALUE["heads"] == "tiled" else "interleaved"
    return _serve()(q, k, v, g, beta, initial_state, scale, heads=heads)


def by_scale(q, k, v, g, beta, initial_state):
    return _serve()(q, k, v, g, beta, initial_state, 1.0 if VALUE["scale"] == "folded" else q.shape[-1] ** -0.5)


def by_layout(q, k, v, g, beta, initial_state, scale, cu_seqlens=None):
    return _serve()(q, k, v, g, beta, initial_state, scale, cu_seqlens)


def by_cu_seqlens(q, k, v, g, beta, initial_state, scale, cu_seqlens):
    assert cu_seqlens.dtype == np.int32
    return _serve()(q, k, v, g, beta, initial_state, scale, cu_seqlens)


def by_l2norm(q, k, v, g, beta, initial_state, scale):
    return _serve()(q, k, v, g, beta, initial_state, scale, l2norm=True)


def by_state_argument(q, k, v, g, beta, initial_state, scale):
    assert initial_state is not None
    o, S = _serve()(q, k, v, g, beta, initial_state, scale)
    if VALUE["state_argument"] != "in_place":
        return o, S
    initial_state[...] = S
    return o
