"""A program whose function is captured, for test_capture.py: the gated delta rule in numpy, right, or with the defect that
the environment's SAMESTATE_TEST_FAULT names."""
import os
import sys

import numpy as np


def gated_delta_rule(q, k, v, g, beta, scale=None, initial_state=None, output_final_state=True, use_qk_l2norm_in_kernel=False,
                     cu_seqlens=None, fault=None):
    """q, k [B, T, Hk, dk], v [B, T, Hv, dv], g, beta [B, T, Hv]; states [N, Hv, dk, dv]. In fp32, token by token."""
    fault = fault or os.environ.get("SAMESTATE_TEST_FAULT")
    B, T, Hk, dk = q.shape
    Hv, dv, group = v.shape[2], v.shape[3], v.shape[2] // q.shape[2]
    q, k, v, g, beta = (x.astype(np.float32) for x in (q, k, v, g, beta))
    if use_qk_l2norm_in_kernel:
        q, k = (x / np.sqrt((x * x).sum(-1, keepdims=True) + np.float32(1e-6)) for x in (q, k))
    heads = np.arange(Hv) % Hk if fault == "head map" else np.arange(Hv) // group
    q, k = q[:, :, heads], k[:, :, heads]
    scale = np.float32(dk ** -0.5 if scale is None else scale) * np.float32(1.002 if fault == "scale" else 1)
    if fault == "short beta":
        beta = beta * np.float32(0.99)
    ends = [(b, 0, T) for b in range(B)] if cu_seqlens is None else [
        (0, int(a), int(b)) for a, b in zip(cu_seqlens[:-1], cu_seqlens[1:])]
    o = np.zeros(v.shape, np.float32)
    states = np.zeros((len(ends), Hv, dk, dv), np.float32)
    for n, (b, begin, end) in enumerate(ends):
        S = np.zeros((Hv, dk, dv), np.float32) if initial_state is None else initial_state[n].astype(np.float32)
        for t in range(begin, end):
            S = np.exp(g[b, t])[:, None, None] * S
            delta = beta[b, t][:, None] * (v[b, t] - np.einsum("hkv,hk->hv", S, k[b, t]))
            S = S + k[b, t][:, :, None] * delta[:, None, :]
            read = q[b, t - 1 if fault == "tail" and t == end - 1 and t > begin else t]
            o[b, t] = scale * np.einsum("hkv,hk->hv", S, read)
        states[n] = S
    if fault == "neighbour":
        states = np.roll(states, 1, axis=1)
    return o, states if output_final_state else None


def inputs(B=2, T=70, Hk=2, Hv=4, dk=16, dv=8, seed=0, state=True, N=None):
    """Keyword arguments of a call; keys are normalised."""
    draw = np.random.default_rng(seed)
    normal = lambda *shape: draw.standard_normal(shape).astype(np.float32)
    k = normal(B, T, Hk, dk)
    k /= np.linalg.norm(k, axis=-1, keepdims=True)
    out = {"q": normal(B, T, Hk, dk), "k": k, "v": normal(B, T, Hv, dv),
           "g": -np.abs(normal(B, T, Hv)) * np.float32(0.1),
           "beta": (1 / (1 + np.exp(-normal(B, T, Hv)))).astype(np.float32)}
    if state:
        out["initial_state"] = normal(N or B, Hv, dk, dv)
    return out


def main():
    from captured_kernels import gated_delta_rule as function

    total = 0.0
    for seed in range(int(sys.argv[1])):
        o, S = function(**inputs(seed=seed))
        total += float(np.abs(o).sum())
        if len(sys.argv) > 2 and seed == 2:
            os.kill(os.getpid(), 9)
    print(f"{total:.6f}")


if __name__ == "__main__":
    main()
