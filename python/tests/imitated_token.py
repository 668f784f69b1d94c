"""The parts of which imitations of public functions are made: the arithmetic of one token in float64, and
`fault(..)`, which names what is done wrong from then on."""
import torch

FAULTS, FIRST = set(), {}


def fault(*names):
    FAULTS.clear()
    FIRST.clear()
    FAULTS.update(names)


def wrong(name):
    return name in FAULTS


def offsets(whose, given, tokens):
    """Offsets of a packed call, up to `tokens`; under "stale offsets" those of the first call since then, cut to as many."""
    kept = FIRST.setdefault(whose, given.clone()) if wrong("stale offsets") else given
    kept = kept[:len(given)].clamp(max=tokens)
    return torch.cat([kept, kept[-1:].expand(len(given) - len(kept))])


def sigmoid(x):
    return 1 / (1 + torch.exp(-x))


def softplus(x):
    return torch.where(x <= 20, torch.log1p(torch.exp(x)), x)


def unit(x):
    return x / torch.sqrt((x * x).sum(-1, keepdim=True) + (1e-5 if wrong("epsilon") else 1e-6))


def token(S, q, k, v, g, beta, scale, l2norm):
    """One token of [.., V, K] states; q, k [.., K] of the key heads' copies."""
    if wrong("q and k exchanged"):
        q, k = k, q
    if l2norm and not wrong("no l2norm"):
        q, k = unit(q), unit(k)
    S = S * torch.exp(g)[..., None, None]
    delta = beta[..., None] * (v - (S @ k[..., None])[..., 0])
    S = S + delta[..., :, None] * k[..., None, :]
    return S, (S @ (q * scale)[..., None])[..., 0]


def gates(a, b, A_log, dt_bias):
    a, b, A_log, dt_bias = (x.double() for x in (a, b, A_log, dt_bias))
    g = -torch.exp(A_log) * softplus(a + (0 if wrong("no dt_bias") else dt_bias))
    return g, b if wrong("b as it is") else sigmoid(b)


def grouped(x, heads):
    return x.repeat(heads // x.shape[-2], 1) if wrong("heads tiled") else x.repeat_interleave(heads // x.shape[-2], -2)
