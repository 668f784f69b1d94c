"""Linear attention, token by token, one program a head and value column block, in Triton:

    samestate gate --subject python:python/examples/subject_triton.py:linear_attention            on a CUDA device
    TRITON_INTERPRET=1 samestate gate --subject python:python/examples/subject_triton.py:linear_attention
"""
import os

import torch
import triton
import triton.language as tl

import samestate


@triton.jit
def recurrence(q, k, v, h0, o, ht, scale, T, Hk: tl.constexpr, Hv: tl.constexpr, K: tl.constexpr, V: tl.constexpr,
               BK: tl.constexpr, BV: tl.constexpr, HAS_STATE: tl.constexpr):
    block, n = tl.program_id(0), tl.program_id(1)
    b, h = n // Hv, n % Hv
    key = h // (Hv // Hk)
    ik, iv = tl.arange(0, BK), block * BV + tl.arange(0, BV)
    mk, mv = ik < K, iv < V
    state = n * K * V + ik[:, None] * V + iv[None, :]
    if HAS_STATE:
        S = tl.load(h0 + state, mask=mk[:, None] & mv[None, :], other=0.0)
    else:
        S = tl.zeros([BK, BV], dtype=tl.float32)
    for t in range(T):
        at = b * T + t
        kt = tl.load(k + (at * Hk + key) * K + ik, mask=mk, other=0.0).to(tl.float32)
        qt = tl.load(q + (at * Hk + key) * K + ik, mask=mk, other=0.0).to(tl.float32)
        vt = tl.load(v + (at * Hv + h) * V + iv, mask=mv, other=0.0).to(tl.float32)
        S += kt[:, None] * vt[None, :]
        ot = tl.sum(S * qt[:, None], 0) * scale
        tl.store(o + (at * Hv + h) * V + iv, ot.to(o.dtype.element_ty), mask=mv)
    tl.store(ht + state, S, mask=mk[:, None] & mv[None, :])


_DEVICE = "cpu" if os.environ.get("TRITON_INTERPRET") == "1" else "cuda"


@samestate.kernel("linear_attention", "recurrent", array="torch", device=_DEVICE, compiles=True,
                  contracts=["fp32"] if _DEVICE == "cpu" else ["fp32", "bf16_io"], limits=["dk <= 128"])
def linear_attention(q, k, v, scale, initial_state):
    """o [B, T, Hv, dv] in v's dtype, final state [B, Hv, dk, dv] in fp32."""
    q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
    B, T, Hk, K = q.shape
    Hv, V = v.shape[2:]
    o = torch.empty_like(v)
    ht = torch.empty(B, Hv, K, V, dtype=torch.float32, device=v.device)
    h0 = ht if initial_state is None else initial_state.contiguous()
    BV = min(64, triton.next_power_of_2(V))
    recurrence[(triton.cdiv(V, BV), B * Hv)](q, k, v, h0, o, ht, scale, T, Hk, Hv, K, V, triton.next_power_of_2(K), BV,
                                             initial_state is not None)
    return o, ht
