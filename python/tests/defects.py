"""Defects of public kernels, each imitated in a few lines of numpy next to the same kernel without it."""
import os
import sys

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from kernels import right  # noqa: E402

import samestate  # noqa: E402

GDN = "gated_delta_rule"


def declared(system, form="recurrent", **more):
    def declare(function):
        return samestate.kernel(system, form, name=f"defects.{function.__name__}", **more)(function)

    return declare


@declared(GDN)
def none(q, k, v, g, beta, initial_state, scale, head_map, l2norm, cu_seqlens=None):
    return right(GDN, q, k, v, g, beta, initial_state, scale, head_map, l2norm, cu_seqlens)


@declared(GDN)
def state_at_first_token(q, k, v, g, beta, initial_state, scale, head_map, l2norm, cu_seqlens=None):
    """A table of states by token, as of requests that decode one token each: sequence n is read at its first token."""
    if cu_seqlens is not None and initial_state is not None:
        initial_state = initial_state[np.minimum(cu_seqlens[:-1], len(initial_state) - 1)]
    return right(GDN, q, k, v, g, beta, initial_state, scale, head_map, l2norm, cu_seqlens)


@declared(GDN)
def state_of_every_token(q, k, v, g, beta, initial_state, scale, head_map, l2norm, cu_seqlens=None):
    """Returns a state a token, of which the caller takes as many as there are sequences."""
    o, final = right(GDN, q, k, v, g, beta, initial_state, scale, head_map, l2norm, cu_seqlens)
    if cu_seqlens is None:
        return o, final
    every = []
    for n, (begin, end) in enumerate(zip(cu_seqlens[:-1], cu_seqlens[1:])):
        S = None if initial_state is None else initial_state[n:n + 1]
        for t in range(begin, end):
            _, S = right(GDN, *(x[:, t:t + 1] for x in (q, k, v, g, beta)), S, scale, head_map, l2norm)
            every.append(S[0])
    while len(every) < len(final):
        every.append(np.zeros_like(final[0]))
    return o, np.stack(every)[:len(final)]


@declared(GDN)
def slot_0_is_null(q, k, v, g, beta, initial_state, scale, head_map, l2norm, cu_seqlens=None):
    if initial_state is not None:
        initial_state = initial_state.copy()
        initial_state[0] = 0
    return right(GDN, q, k, v, g, beta, initial_state, scale, head_map, l2norm, cu_seqlens)


def _fla(q, k, v, g=None, gk=None, beta=None, initial_state=None, scale=1.0, heads="interleaved", l2norm=False,
         cu_seqlens=None):
    """The order of arguments in which the fifth is a decay by key, and where beta may be left out."""
    g = np.zeros(v.shape[:3]) if g is None else g
    g = g if gk is None else g + gk
    beta = np.ones(v.shape[:3]) if beta is None else beta
    return right(GDN, q, k, v, g, beta, initial_state, scale, heads, l2norm, cu_seqlens)


@declared(GDN)
def fla_by_name(q, k, v, g, beta, initial_state, scale, head_map, l2norm, cu_seqlens=None):
    return _fla(q, k, v, g, None, beta, initial_state, scale, head_map, l2norm, cu_seqlens)


@declared(GDN)
def beta_in_place_of_gk(q, k, v, g, beta, initial_state, scale, head_map, l2norm, cu_seqlens=None):
    return _fla(q, k, v, g, beta, None, initial_state, scale, head_map, l2norm, cu_seqlens)


@declared(GDN)
def beta_is_none(q, k, v, g, beta, initial_state, scale, head_map, l2norm, cu_seqlens=None):
    return _fla(q, k, v, g, None, None, initial_state, scale, head_map, l2norm, cu_seqlens)


@declared(GDN)
def g_and_beta_exchanged(q, k, v, g, beta, initial_state, scale, head_map, l2norm, cu_seqlens=None):
    return right(GDN, q, k, v, beta, g, initial_state, scale, head_map, l2norm, cu_seqlens)


_LENGTHS = {}


@declared(GDN)
def lengths_by_id(q, k, v, g, beta, initial_state, scale, head_map, l2norm, cu_seqlens=None):
    """The results for cu_seqlens are cached by the identity of the array, which says nothing about its contents."""
    if cu_seqlens is not None:
        cu_seqlens = _LENGTHS.setdefault(id(cu_seqlens), np.array(cu_seqlens))
    return right(GDN, q, k, v, g, beta, initial_state, scale, head_map, l2norm, cu_seqlens)


_LAST = [None, None]


@declared(GDN)
def lengths_by_object(q, k, v, g, beta, initial_state, scale, head_map, l2norm, cu_seqlens=None):
    """The same with the array itself kept, so that no other has its identity."""
    if cu_seqlens is not None:
        if _LAST[0] is not cu_seqlens:
            _LAST[:] = cu_seqlens, np.array(cu_seqlens)
        cu_seqlens = _LAST[1]
    return right(GDN, q, k, v, g, beta, initial_state, scale, head_map, l2norm, cu_seqlens)


@declared("retention")
def retention(q, k, v, g, initial_state, scale, head_map, l2norm, cu_seqlens=None):
    return right("retention", q, k, v, g, None, initial_state, scale, head_map, l2norm, cu_seqlens)


@declared("retention")
def state_is_not_read(q, k, v, g, initial_state, scale, head_map, l2norm, cu_seqlens=None):
    return right("retention", q, k, v, g, None, None, scale, head_map, l2norm, cu_seqlens)


def _convolution(x, kernel, state, bias, activation):
    """The causal convolution, its silu where asked for, and the last W - 1 inputs. `bias`: a number where the call has
    no such tensor, since a size has that name too."""
    W = kernel.shape[1]
    padded = np.concatenate([state, x], 1).astype(np.float64)
    y = sum(padded[:, w:w + x.shape[1]] * kernel[:, w] for w in range(W))
    if isinstance(bias, np.ndarray):
        y = y + bias
    if activation:
        y = y * np.exp(-np.logaddexp(0, -y))
    return y.astype(np.float32), padded[:, padded.shape[1] - (W - 1):].astype(np.float32)


@declared("short_convolution", "gather")
def convolution(x, kernel, state, activation, bias=None):
    return _convolution(x, kernel, state, bias, activation)


@declared("short_convolution", "gather")
def convolution_in_place(x, kernel, state, activation, bias=None):
    y, state = _convolution(x, kernel, state, bias, activation)
    x[...] = y
    return y, state


@declared(GDN)
def scale_0_is_default(q, k, v, g, beta, initial_state, scale, head_map, l2norm, cu_seqlens=None):
    return right(GDN, q, k, v, g, beta, initial_state, scale or q.shape[-1] ** -0.5, head_map, l2norm, cu_seqlens)


@declared(GDN, heads="interleaved")
def interleaved(q, k, v, g, beta, initial_state, scale, l2norm, cu_seqlens=None):
    return right(GDN, q, k, v, g, beta, initial_state, scale, "interleaved", l2norm, cu_seqlens)


@declared(GDN, heads="interleaved")
def tiled(q, k, v, g, beta, initial_state, scale, l2norm, cu_seqlens=None):
    return right(GDN, q, k, v, g, beta, initial_state, scale, "tiled", l2norm, cu_seqlens)


@declared(GDN, limits=["dk = dv"])
def square(q, k, v, g, beta, initial_state, scale, head_map, l2norm, cu_seqlens=None):
    return none(q, k, v, g, beta, initial_state, scale, head_map, l2norm, cu_seqlens)


@declared(GDN, limits=["dk = dv"])
def state_of_values_by_keys(q, k, v, g, beta, initial_state, scale, head_map, l2norm, cu_seqlens=None):
    o, final = none(q, k, v, g, beta, initial_state, scale, head_map, l2norm, cu_seqlens)
    return o, np.ascontiguousarray(final.swapaxes(-1, -2))


def _chunked(decays, q, k, v, g, initial_state, scale, chunk):
    """Retention in chunks; decays(g [n, Hv]) gives [n + 1, n + 1, Hv]: what is left at t of what was written at s; 0
    is the state before the chunk."""
    repeat = v.shape[2] // q.shape[2]
    q, k = (np.repeat(x, repeat, 2) for x in (q, k))
    o = np.zeros(v.shape, np.float32)
    S = np.zeros((v.shape[0], v.shape[2], q.shape[3], v.shape[3]), np.float32)
    S = S if initial_state is None else S + initial_state
    for begin in range(0, v.shape[1], chunk):
        end = min(begin + chunk, v.shape[1])
        for b in range(v.shape[0]):
            qc, kc, vc = (x[b, begin:end] for x in (q, k, v))
            D = decays(g[b, begin:end])
            P = np.einsum("thk,shk->tsh", qc, kc) * D[1:, 1:] * np.tri(end - begin)[:, :, None]
            inside = np.einsum("tsh,shv->thv", P, vc)
            before = np.einsum("thk,hkv->thv", qc, S[b]) * D[1:, 0, :, None]
            o[b, begin:end] = scale * (inside + before)
            S[b] = S[b] * D[-1, 0, :, None, None] + np.einsum("shk,shv,sh->hkv", kc, vc, D[-1, 1:])
    return o, S


def _pairwise(g):
    """Each sum of g on its own, from s to t."""
    n = len(g)
    D = np.zeros((n + 1, n + 1, g.shape[1]))
    for s in range(n + 1):
        D[s:, s] = np.exp(np.concatenate([np.zeros((1, g.shape[1])), np.cumsum(g[s:], 0, np.float64)]))
    return D


def _summed(g):
    """Differences of one sum from the beginning of the chunk: after a g of -1e38 nothing is left of the others."""
    G = np.concatenate([np.zeros((1, g.shape[1]), np.float32), np.cumsum(g, 0, np.float32)])
    with np.errstate(over="ignore", invalid="ignore"):
        return np.exp(np.minimum(G[:, None] - G[None, :], 0))


@declared("retention", "chunked", heads="interleaved", l2norm="outside", limits=["form != packed"])
def chunked(q, k, v, g, initial_state, scale, chunk):
    return _chunked(_pairwise, q, k, v, g, initial_state, scale, chunk)


@declared("retention", "chunked", heads="interleaved", l2norm="outside", limits=["form != packed"])
def summed_decays(q, k, v, g, initial_state, scale, chunk):
    return _chunked(_summed, q, k, v, g, initial_state, scale, chunk)
