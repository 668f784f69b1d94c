"""A kernel under pytest, two ways: `pytest python/examples/test_my_kernel.py --samestate-max-cases 100`."""
import numpy as np

import samestate


def my_retention(q, k, v, g, scale, initial_state):
    """S <- e^g S + k v^T; o = scale S^T q: o [B, T, Hv, dv] and the final state [B, Hv, dk, dv]."""
    repeat = v.shape[2] // q.shape[2]
    q, k = (np.repeat(x, repeat, 2) for x in (q, k))
    o = np.zeros(v.shape, np.float32)
    S = np.zeros((v.shape[0], v.shape[2], q.shape[3], v.shape[3]), np.float32)
    if initial_state is not None:
        S += initial_state
    for t in range(v.shape[1]):
        S = S * np.exp(g[:, t])[..., None, None] + k[:, t, :, :, None] * v[:, t, :, None, :]
        o[:, t] = np.float32(scale) * np.einsum("bhkv,bhk->bhv", S, q[:, t])
    return o, S


def test_the_whole_gate(samestate_check):
    """One test of the plan: decoding, packing where the function takes cu_seqlens, laws, replays."""
    print(samestate_check(my_retention, "retention", "recurrent", contract="fp32", max_cases=200))


@samestate.cases("retention", "recurrent", contract="fp32", limits=["T <= 64", "form != packed"], max_cases=20,
                 heads="interleaved", l2norm="outside")
def test_each_case(case):
    """One test a case line: fixtures, -k, --lf, -x and reports are pytest's."""
    case.judge(*my_retention(case.q, case.k, case.v, case.g, case.scale, case.initial_state))
