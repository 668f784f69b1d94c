"""Plain functions of numpy that the tests serve: right ones under every convention, and hostile ones."""
import ctypes
import os
import struct
import sys

import numpy as np

import samestate

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)


def right(system, q, k, v, g=None, beta=None, initial_state=None, scale=1.0, heads="interleaved", l2norm=False,
          cu_seqlens=None):
    from judge import recurrence

    x = {"q": q, "k": k, "v": v, "initial_state": initial_state}
    x.update({n: y for n, y in (("g", g), ("beta", beta)) if y is not None})
    o, S = recurrence(x, system, scale, heads, l2norm, ends=cu_seqlens)
    return o.astype(np.float32), S.astype(np.float32)


@samestate.kernel("gated_delta_rule", "recurrent", contracts=["fp32", "bf16_io"])
def gated_delta_rule(q, k, v, g, beta, initial_state, scale, head_map, l2norm, cu_seqlens=None):
    return right("gated_delta_rule", q, k, v, g, beta, initial_state, scale, head_map, l2norm, cu_seqlens)


@samestate.kernel("delta_rule", "recurrent")
def delta_rule(q, k, v, beta, initial_state, scale, head_map, l2norm, cu_seqlens=None):
    return right("delta_rule", q, k, v, None, beta, initial_state, scale, head_map, l2norm, cu_seqlens)


@samestate.kernel("retention", "recurrent")
def retention(q, k, v, g, initial_state, scale, head_map, l2norm, cu_seqlens=None):
    return right("retention", q, k, v, g, None, initial_state, scale, head_map, l2norm, cu_seqlens)


@samestate.kernel("linear_attention", "recurrent")
def linear_attention(q, k, v, initial_state, scale, head_map, l2norm, cu_seqlens=None):
    return right("linear_attention", q, k, v, None, None, initial_state, scale, head_map, l2norm, cu_seqlens)


@samestate.kernel("gated_delta_rule", "recurrent", name="mine.alpha", state="vk")
def alpha(query, key, value, alpha, beta, state, scale):
    o, S = right("gated_delta_rule", query, key, value, np.log(alpha.astype(np.float64)), beta,
                 None if state is None else state.swapaxes(-1, -2), scale)
    return {"o": o, "final_state": S.swapaxes(-1, -2)}


@samestate.kernel("rms_norm", "equation")
def rms_norm(x, weight, parameters):
    assert set(parameters) == {"H", "D"}
    return (x / np.sqrt((x * x).mean(-1, keepdims=True) + np.float32(1e-6)) * weight).astype(np.float32)


@samestate.kernel("gated_delta_net", "recurrent", taps="mixed,z,b,a,convolved,q,k,g,beta,gated")
def gated_delta_net(x, mask, in_proj_qkvz, in_proj_ba, conv1d, A_log, dt_bias, norm, out_proj, convolution, S, parameters):
    """The layer in fp32; with SAMESTATE_TEST_FAULT=beta its strength goes through fp16."""
    B, T, _ = x.shape
    Hk, R, dk, dv = (parameters[n] for n in ("Hk", "R", "dk", "dv"))
    Hv, one = Hk * R, np.float32(1)
    sigmoid = lambda y: np.where(y < 0, np.exp(-np.abs(y)), one) / (one + np.exp(-np.abs(y)))
    silu = lambda y: y * sigmoid(y)
    unit = lambda y: y / np.sqrt((y * y).sum(-1, keepdims=True) + np.float32(1e-6))
    x = np.where(mask != 0, x, np.float32(0))
    by_key = (x @ in_proj_qkvz.T).reshape(B, T, Hk, 2 * dk + 2 * R * dv)
    part = lambda begin, width: by_key[..., begin:begin + width].reshape(B, T, -1)
    mixed = np.concatenate([part(0, dk), part(dk, dk), part(2 * dk, R * dv)], -1)
    z = np.ascontiguousarray(part(2 * dk + R * dv, R * dv))
    b, a = (np.ascontiguousarray(y).reshape(B, T, Hv) for y in np.split((x @ in_proj_ba.T).reshape(B, T, Hk, 2 * R), 2, -1))
    history = np.concatenate([convolution, mixed], 1)
    W = conv1d.shape[1]
    convolved = silu(sum(conv1d[:, j] * history[:, j:j + T] for j in range(W)))
    q, k, v = (y.reshape(B, T, -1, d) for y, d in
               zip(np.split(convolved, [Hk * dk, 2 * Hk * dk], -1), (dk, dk, dv)))
    q, k, beta = unit(q), unit(k), sigmoid(b)
    if os.environ.get("SAMESTATE_TEST_FAULT") == "beta":
        beta = beta.astype(np.float16).astype(np.float32)
    g = -np.exp(A_log.reshape(-1)) * (np.maximum(a + dt_bias.reshape(-1), 0) + np.log1p(np.exp(-np.abs(a + dt_bias.reshape(-1)))))
    core, state = np.empty((B, T, Hv, dv), np.float32), S.copy()
    for t in range(T):
        for h in range(Hv):
            head, key = state[:, h], k[:, t, h // R]
            head *= np.exp(g[:, t, h])[:, None, None]
            delta = beta[:, t, h, None] * (v[:, t, h] - np.einsum("bij,bi->bj", head, key))
            head += key[:, :, None] * delta[:, None, :]
            core[:, t, h] = np.einsum("bij,bi->bj", head, q[:, t, h // R]) / np.sqrt(np.float32(dk))
    root = np.sqrt((core * core).mean(-1, keepdims=True) + np.float32(1e-6))
    gated = (core / root * norm.reshape(-1) * silu(z.reshape(B, T, Hv, dv))).reshape(B, T, -1)
    out = {"y": gated @ out_proj.T, "core": core.reshape(B, T, -1), "convolution": history[:, T:], "S": state, "mixed": mixed,
           "z": z, "b": b, "a": a, "convolved": convolved, "q": q, "k": k, "g": g, "beta": beta, "gated": gated}
    return {name: y.astype(np.float32) for name, y in out.items()}


def plain(q, k, v, g, beta, initial_state, scale):
    return right("gated_delta_rule", q, k, v, g, beta, initial_state, scale)


# -- hostile: (q, k, v, initial_state, scale) of linear attention

def _hostile(function):
    return samestate.kernel("linear_attention", "recurrent", name="hostile." + function.__name__)(function)


def _zeros(v, q):
    return np.zeros(v.shape, np.float32), np.zeros((v.shape[0], v.shape[2], q.shape[3], v.shape[3]), np.float32)


@_hostile
def wrong_shape(q, k, v, initial_state, scale):
    o, S = _zeros(v, q)
    return o[:, :-1], S


@_hostile
def wrong_dtype(q, k, v, initial_state, scale):
    o, S = _zeros(v, q)
    return o.astype(np.float16), S


@_hostile
def wrong_integers(q, k, v, initial_state, scale):
    o, S = _zeros(v, q)
    return o.astype(np.int64), S


@_hostile
def returns_none(q, k, v, initial_state, scale):
    pass


@_hostile
def none_for_state(q, k, v, initial_state, scale):
    return _zeros(v, q)[0], None


@_hostile
def o_alone(q, k, v, initial_state, scale):
    return _zeros(v, q)[0]


@_hostile
def three(q, k, v, initial_state, scale):
    return _zeros(v, q) + (None,)


@_hostile
def a_list(q, k, v, initial_state, scale):
    o, S = _zeros(v, q)
    return o.tolist(), S


@_hostile
def nan(q, k, v, initial_state, scale):
    o, S = _zeros(v, q)
    return o + np.float32("nan"), S


@_hostile
def raises(q, k, v, initial_state, scale):
    raise ValueError("a reason\nof two lines")


@_hostile
def prints(q, k, v, initial_state, scale):
    print("x" * (5 << 20))
    os.write(1, b"y" * (1 << 20))
    os.system("echo from a child")
    return _zeros(v, q)


@_hostile
def half_a_pair(q, k, v, initial_state, scale):
    raise ValueError("\x00\ud800\x1b[2J" + "A" * 5_000_000)


@_hostile
def no_text(q, k, v, initial_state, scale):
    class Mute(Exception):
        def __str__(self):
            raise SystemExit("no text")
    raise Mute()


def _environment(change):
    libm = ctypes.CDLL("libm.so.6")
    now = ctypes.create_string_buffer(256)
    libm.fegetenv(now)
    change(now)
    libm.fesetenv(now)


@_hostile
def rounds_down(q, k, v, initial_state, scale):
    ctypes.CDLL("libm.so.6").fesetround(0x400)  # FE_DOWNWARD of x86-64
    return right("linear_attention", q, k, v, initial_state=initial_state, scale=scale)


@_hostile
def flushes(q, k, v, initial_state, scale):
    out = right("linear_attention", q, k, v, initial_state=initial_state, scale=scale)
    _environment(lambda now: struct.pack_into("<I", now, 28, 0x1F80 | 0x8040))  # FTZ and DAZ of MXCSR
    return out


@_hostile
def flushes_and_restores(q, k, v, initial_state, scale):
    _environment(lambda now: struct.pack_into("<I", now, 28, 0x1F80 | 0x8040))
    out = right("linear_attention", q, k, v, initial_state=initial_state, scale=scale)
    _environment(lambda now: struct.pack_into("<I", now, 28, 0x1F80))
    return out


@_hostile
def flushes_and_raises(q, k, v, initial_state, scale):
    _environment(lambda now: struct.pack_into("<I", now, 28, 0x1F80 | 0x8040))
    raise ValueError("after the change")


def in_pieces(q, k, v, g, beta, initial_state):
    BT = 16
    raise NotImplementedError(BT)


@_hostile
def exits(q, k, v, initial_state, scale):
    sys.exit(0)


@_hostile
def ends(q, k, v, initial_state, scale):
    os._exit(0)


@_hostile
def closes_stdout(q, k, v, initial_state, scale):
    os.close(1)
    os.close(0)
    return _zeros(v, q)


@_hostile
def closes_all(q, k, v, initial_state, scale):
    os.closerange(0, 256)
    return _zeros(v, q)


@_hostile
def reads_stdin(q, k, v, initial_state, scale):
    os.read(0, 1000)
    return _zeros(v, q)


@_hostile
def forks(q, k, v, initial_state, scale):
    os.fork()
    return _zeros(v, q)


@_hostile
def edits_input(q, k, v, initial_state, scale):
    q += 1
    return _zeros(v, q)


@_hostile
def returns_input(q, k, v, initial_state, scale):
    return v, initial_state


@_hostile
def complains(q, k, v, initial_state, scale):
    raise samestate.Unsupported("dk of 8")


@_hostile
def deep(q, k, v, initial_state, scale):
    return deep(q, k, v, initial_state, scale)


@_hostile
def all_memory(q, k, v, initial_state, scale):
    return np.zeros(1 << 60, np.float32), None
