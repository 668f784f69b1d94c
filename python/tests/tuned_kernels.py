"""Kernels in numpy whose tuner, of small_packages.py, chooses between blocks of 128 and of 64 tokens: it tries 128 first, and
64 is the faster. SAMESTATE_TEST_WRONG says with which block the kernel is wrong, and SAMESTATE_TEST_HOW in which way."""
import os

import numpy as np
import samestate

BLOCKS = (128, 64)
_WRONG = int(os.environ.get("SAMESTATE_TEST_WRONG", "0"))
_HOW = os.environ.get("SAMESTATE_TEST_HOW", "values")
_call = {}
_tuners = []


def scan(n, size):
    """Computes the call at hand in blocks of `size` tokens, and returns the time that a tuner measures."""
    q, k, v, g, scale, initial_state = _call["inputs"]
    B, T, H, dk = q.shape
    S = np.zeros((B, H, dk, v.shape[3]), np.float32) if initial_state is None else initial_state.copy()
    o = np.empty_like(v)
    for t in range(T):
        S = np.exp(g[:, t])[..., None, None] * S + k[:, t][..., None] * v[:, t][..., None, :]
        o[:, t] = scale * np.einsum("bhk,bhkv->bhv", q[:, t], S)
    if size == _WRONG and _call.get("tuned"):
        if _HOW == "raise":
            raise RuntimeError("scan: an illegal memory access was encountered")
        if _HOW == "exit":
            os._exit(3)
        o *= 1.01
    _call["outputs"] = o, S
    return {128: 2.0, 64: 1.0}[size]


def _tuner():
    if not _tuners:
        from triton.runtime.autotuner import Autotuner, Config

        _tuners.append(Autotuner(scan, [Config(size) for size in BLOCKS]))
    return _tuners[0]


@samestate.kernel("retention", "recurrent", name="tuned.retention", array="numpy", heads="repeated", limits=["T <= 64"])
def tuned(q, k, v, g, scale, initial_state):
    _call.update(inputs=(q, k, v, g, scale, initial_state), tuned=False)
    tuner = _tuner()
    # Its timing runs are right: they run on other data.
    tuner._bench = _bench(tuner)
    _call["tuned"] = True
    tuner.run(q.shape[1])
    return _call["outputs"]


def _bench(tuner):
    bench = type(tuner)._bench

    def untouched(*given, **named):
        _call["tuned"] = False
        try:
            return bench(tuner, *given, **named)
        finally:
            _call["tuned"] = True

    return untouched


def untuned(q, k, v, g, scale, initial_state):
    """The same without a tuner: nothing is chosen in its calls."""
    _call.update(inputs=(q, k, v, g, scale, initial_state), tuned=True)
    scan(q.shape[1], 128)
    return _call["outputs"]


samestate.kernel("retention", "recurrent", name="untuned.retention", array="numpy", heads="repeated", limits=["T <= 64"])(untuned)
