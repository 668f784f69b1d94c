"""The gated delta rule in torch, with another's conventions: the decay as a factor, the state as [N, Hv, dv, dk].

    samestate gate --subject python:python/examples/subject_torch.py:gated_delta_rule
"""
import torch

import samestate


@samestate.kernel("gated_delta_rule", "recurrent", contracts=["fp32", "bf16_io"], array="torch", state="vk",
                  limits=["form != packed"])
def gated_delta_rule(q, k, v, alpha, beta, scale, initial_state):
    """o [B, T, Hv, dv] in v's dtype and the final state; alpha = e^g, since the argument has that name."""
    batch, tokens, heads, dv = v.shape
    repeat = heads // q.shape[2]
    q, k = (x.float().repeat_interleave(repeat, 2) for x in (q, k))
    if initial_state is None:
        S = torch.zeros(batch, heads, dv, q.shape[3])
    else:
        S = initial_state.clone()
    o = torch.empty(v.shape, dtype=v.dtype)
    for t in range(tokens):
        S = S * alpha[:, t, :, None, None]
        written = beta[:, t, :, None] * (v[:, t].float() - torch.einsum("bhvk,bhk->bhv", S, k[:, t]))
        S = S + written[..., None] * k[:, t, :, None]
        o[:, t] = scale * torch.einsum("bhvk,bhk->bhv", S, q[:, t])
    return o, S
