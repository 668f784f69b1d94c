"""The gated delta rule in numpy, token by token, as a subject:

    samestate gate --subject python:python/examples/subject_numpy.py:gated_delta_rule
"""
import numpy as np

import samestate


@samestate.kernel("gated_delta_rule", "recurrent", contracts=["fp32", "bf16_io"])
def gated_delta_rule(q, k, v, g, beta, scale, initial_state, head_map, cu_seqlens=None):
    """S <- e^g S; S <- S + k (beta (v - S^T k))^T; o = scale S^T q: q, k [B, T, Hk, dk], v [B, T, Hv, dv], g, beta
    [B, T, Hv], states [N, Hv, dk, dv]; sums and states in fp32."""
    batch, tokens, heads, dv = v.shape
    repeat = heads // q.shape[2]
    head = np.arange(heads) // repeat if head_map == "interleaved" else np.arange(heads) % q.shape[2]
    if cu_seqlens is None:
        sequences = [(row, 0, tokens) for row in range(batch)]
    else:  # packed: one row, tokens end to end
        sequences = [(0, a, b) for a, b in zip(cu_seqlens[:-1], cu_seqlens[1:])]
    o = np.zeros(v.shape, np.float32)
    final = np.zeros((len(sequences), heads, q.shape[3], dv), np.float32)
    for n, (row, begin, end) in enumerate(sequences):
        S = final[n] if initial_state is None else initial_state[n].astype(np.float32)
        for t in range(begin, end):
            S = S * np.exp(g[row, t])[:, None, None]
            kt, qt = k[row, t][head], q[row, t][head]
            written = beta[row, t][:, None] * (v[row, t] - np.einsum("hkv,hk->hv", S, kt))
            S = S + kt[:, :, None] * written[:, None, :]
            o[row, t] = np.float32(scale) * np.einsum("hkv,hk->hv", S, qt)
        final[n] = S
    return o, final
