"""Calls of public functions whose tensors are laid out differently from those of a system of named tensors: each
function here takes the public one and returns one with the system's names (samestate judge --tensors LINE).

A call changes layouts and passes numbers on; the public function computes everything that is judged. Exceptions to
this are described at the calls that have them."""
import functools
import inspect


def _call(convert):
    """A maker of calls: `convert(function, ..)` becomes a function of the arguments after its first, which is marked
    with the public function."""

    @functools.wraps(convert)
    def make(function):
        def call(**given):
            return convert(function, **given)

        parameters = list(inspect.signature(convert).parameters.values())[1:]
        call.__signature__ = inspect.Signature(parameters)
        call.__wrapped__ = function
        call.__qualname__ = getattr(function, "__qualname__", type(function).__name__)
        call.__module__ = function.__module__
        return call

    return make


# -- norms: modules whose weight is set, eps 1e-6

def _with_weight(made, weight, *given):
    """What the module returns with that weight, through which autograd goes too: a norm is created with ones or zeros, and
    trained."""
    import torch

    return torch.func.functional_call(made, {"weight": weight}, given)


@_call
def module(function, x, weight):
    return _with_weight(function(weight.shape[0], eps=1e-6), weight, x)


@_call
def gated_module(function, x, z, weight):
    return _with_weight(function(weight.shape[0], eps=1e-6), weight, x, z)


@_call
def grouped_module(function, x, z, weight):
    return _with_weight(function(weight.shape[0], weight.shape[0], eps=1e-6), weight, x, z)


# -- convolutions: `activation` is the system's size, 1 for silu; `bias` is 0 if there is none

def _bias(bias):
    return None if isinstance(bias, int) else bias


def _silu(activation):
    return "silu" if activation else None


def _unread(state):
    """[B, C, W] of the W - 1 inputs [B, W - 1, C], the newest last. The first of the W is one on which no output
    depends; it is NaN, so that a kernel which reads it fails."""
    import torch

    return torch.nn.functional.pad(state.transpose(1, 2), (1, 0), value=float("nan"))


@_call
def convolution_of_w_inputs(function, x, kernel, state, activation, bias, cu_seqlens=None):
    """State [B, C, W]; x [B, T, C]."""
    y, after = function(x=x, weight=kernel, bias=_bias(bias), initial_state=_unread(state).contiguous(),
                        output_final_state=True, activation=_silu(activation), cu_seqlens=cu_seqlens)
    return {"y": y, "state": after[:, :, 1:].transpose(1, 2)}


@_call
def update_of_w_inputs(function, x, kernel, state, activation, bias):
    """State [B, C, W], updated in place, with one token per call."""
    import torch

    cache, rows = _unread(state).contiguous(), []
    for t in range(x.shape[1]):
        y, after = function(x=x[:, t:t + 1], cache=cache, weight=kernel, bias=_bias(bias), activation=_silu(activation))
        if after.data_ptr() != cache.data_ptr():
            raise RuntimeError("the state was not updated in place")
        rows.append(y)
    return {"y": torch.cat(rows, 1), "state": cache[:, :, 1:].transpose(1, 2)}


@_call
def update_of_channels_first(function, x, kernel, state, activation, bias):
    """x [B, C, T]; state [B, C, W - 1], updated in place."""
    cache = state.transpose(1, 2).clone()  # with one input contiguous() would return the judge's memory itself
    y = function(hidden_states=x.transpose(1, 2), conv_state=cache, weight=kernel, bias=_bias(bias),
                 activation=_silu(activation))
    return {"y": y.transpose(1, 2), "state": cache.transpose(1, 2)}


@_call
def convolution_without_state(function, x, kernel, state, activation, bias):
    """x [B, C, T] without inputs before it: the inputs of the state go in front, and their outputs are cut off. The
    state after the call is not the function's: it is the last inputs, as its caller keeps them."""
    import torch

    whole, before = torch.cat([state, x], 1), state.shape[1]
    y = function(hidden_states=whole.transpose(1, 2), weight=kernel, bias=_bias(bias), activation=_silu(activation))
    return {"y": y.transpose(1, 2)[:, before:], "state": whole[:, whole.shape[1] - before:]}


def _with_states_in_front(x, state, ends):
    """Packed x [1, T, C] with the inputs of each sequence's state before its tokens, from the first that is not zero
    on: a sequence begins at zeros anyhow, and if its window reaches beyond those inputs, a boundary that does not
    hold shows. Returns it with the sequence of each row, [1, rows], and the rows that x has there."""
    import torch

    rows, of, own, begin = [], [], [], 0
    for n, end in enumerate(ends[1:]):
        read = state[n].ne(0).any(1).nonzero()
        before = state[n, int(read[0]):] if len(read) else state[n, :0]
        rows += [before, x[0, ends[n]:end]]
        of.append(torch.full((sum(map(len, rows[-2:])),), n, dtype=torch.int32, device=x.device))
        own.append(torch.arange(begin + len(before), begin + len(of[-1]), device=x.device))
        begin += len(of[-1])
    return torch.cat(rows)[None], torch.cat(of)[None], torch.cat(own)


@_call
def convolution_channels_last(function, x, kernel, state, activation, bias, cu_seqlens=None):
    """x [B, C, T] and state [B, C, W - 1], with adjacent channels. Packed, it takes seq_idx and no state of a
    sequence: the state's inputs go in front, their outputs are cut off, and the state after the call is the last
    inputs, as a caller keeps them."""
    import torch

    if cu_seqlens is not None:
        ends = cu_seqlens.tolist()
        whole, sequence, own = _with_states_in_front(x, state, ends)
        y = function(x=whole.transpose(1, 2), weight=kernel, bias=_bias(bias), seq_idx=sequence,
                     activation=_silu(activation))
        after = [torch.cat([before, x[0, begin:end]])[end - begin:] for before, begin, end in zip(state, ends, ends[1:])]
        return {"y": y.transpose(1, 2)[:, own], "state": torch.stack(after)}
    y, after = function(x=x.contiguous().transpose(1, 2), weight=kernel, bias=_bias(bias),
                        initial_states=state.contiguous().transpose(1, 2), return_final_states=True,
                        activation=_silu(activation))
    return {"y": y.transpose(1, 2), "state": after.transpose(1, 2)}


@_call
def update_of_dao(function, x, kernel, state, activation, bias):
    """x [B, C, T]; state [B, C, W - 1], updated in place."""
    cache = state.transpose(1, 2).clone()
    y = function(x=x.transpose(1, 2), conv_state=cache, weight=kernel, bias=_bias(bias), activation=_silu(activation))
    return {"y": y.transpose(1, 2), "state": cache.transpose(1, 2)}


# -- scans: A = -e^A_log, as their modules make it

def _rates(A_log):
    return -A_log.float().exp()


def _from_zeros(function, names, measured, u, dt, dt_bias, A_log, B, C, skip, z, h):
    """A scan that begins at a state of zeros. `names` are those of u and of the steps. With `measured`, the short
    step is what the function makes of it, measured by a token with u = B = 1 that leaves it in the state: an
    exponential of -30 may be off by 2e-6."""
    import torch

    batch, _, width = h.shape
    short = torch.full((batch, width, u.shape[2]), -30.0, device=u.device) - dt_bias
    step = torch.nn.functional.softplus(short + dt_bias)
    if measured:
        one = torch.ones_like(step[:, :1]).transpose(1, 2)
        row = torch.ones(batch, width, 1, device=u.device)
        _, left = function(**{names[0]: one, names[1]: short[:, :1].transpose(1, 2).contiguous()}, A=_rates(A_log), B=row,
                           C=row, D=skip, z=one, delta_bias=dt_bias, delta_softplus=True, return_last_state=True)
        step = left[:, None, :, 0]
    eye = torch.eye(width, device=u.device).expand(batch, -1, -1)
    nothing = torch.zeros(batch, width, u.shape[2], device=u.device)

    def behind(first, rest):
        return torch.cat([first, rest], 1).transpose(1, 2).contiguous()

    out, after = function(**{names[0]: behind(h.transpose(1, 2) / step, u), names[1]: behind(short, dt)},
                          A=_rates(A_log), B=behind(eye, B), C=behind(torch.zeros_like(eye), C), D=skip,
                          z=behind(nothing, z), delta_bias=dt_bias, delta_softplus=True, return_last_state=True)
    return {"out": out.transpose(1, 2)[:, width:], "h": after}


@_call
def selective_scan(function, u, dt, dt_bias, A_log, B, C, skip, z, h):
    """u, dt, z [B, D, T]; B, C [B, N, T]. It begins at a state of zeros: N tokens before the first write h, each of
    them one column n, by B = e_n with a step so short (softplus(-30), 1e-13) that decays are 1 in fp32, and u = h

    step."""
    return _from_zeros(function, ("hidden_states", "dt"), False, u, dt, dt_bias, A_log, B, C, skip, z, h)


@_call
def selective_scan_of_mamba_ssm(function, u, dt, dt_bias, A_log, B, C, skip, z, h):
    """u, delta, z [B, D, T]; B, C [B, N, T]. It begins at a state of zeros, like that of Hugging Face."""
    return _from_zeros(function, ("u", "delta"), True, u, dt, dt_bias, A_log, B, C, skip, z, h)


def _tokens(x, function):
    import torch

    return torch.stack([function(t) for t in range(x.shape[1])], 1) if x.shape[1] else torch.empty_like(x)


@_call
def selective_update(function, u, dt, dt_bias, A_log, B, C, skip, z, h):
    """State [B, D, N], updated in place, with one token per call."""
    state, A = h.clone(), _rates(A_log)
    out = _tokens(u, lambda t: function(state=state, hidden_states=u[:, t], dt=dt[:, t], A=A, B=B[:, t], C=C[:, t],
                                        D=skip, z=z[:, t], dt_bias=dt_bias, dt_softplus=True))
    return {"out": out, "h": state}


def _heads(x, heads):
    """[.., H, P] from [.., H P]."""
    return x.reshape(*x.shape[:-1], heads, x.shape[-1] // heads)


@_call
def duality_update(function, x, dt, dt_bias, A_log, B, C, skip, S, G):
    """State [B, H, P, N], updated in place, with one token per call; values of which a head has one are repeated over
    its channels."""
    H = A_log.shape[0]
    heads, B, C = _heads(x, H), _heads(B, G), _heads(C, G)
    P = heads.shape[-1]
    state = S.reshape(S.shape[0], H, P, S.shape[-1]).contiguous().clone()  # the function makes views of its state
    each = lambda y: y[..., None].expand(*y.shape, P)
    A = each(_rates(A_log))[..., None].expand(H, P, S.shape[-1])
    out = _tokens(heads, lambda t: function(state=state, hidden_states=heads[:, t], dt=each(dt[:, t]), A=A, B=B[:, t],
                                            C=C[:, t], D=each(skip), z=None, dt_bias=each(dt_bias), dt_softplus=True))
    return {"y": out.reshape(x.shape), "S": state.reshape(S.shape)}


@_call
def selective_update_of_mamba_ssm(function, u, dt, dt_bias, A_log, B, C, skip, z, h):
    """State [B, D, N], updated in place, with one token per call."""
    state, A = h.clone(), _rates(A_log)
    out = _tokens(u, lambda t: function(state=state, x=u[:, t], dt=dt[:, t], A=A, B=B[:, t], C=C[:, t], D=skip,
                                        z=z[:, t], dt_bias=dt_bias, dt_softplus=True))
    return {"out": out, "h": state}


@_call
def duality_update_of_mamba_ssm(function, x, dt, dt_bias, A_log, B, C, skip, S, G):
    """State [B, H, P, N], updated in place, with one token per call; values of which a head has one have stride 0
    over its channels, which the function's fast path requires."""
    H = A_log.shape[0]
    heads, B, C = _heads(x, H), _heads(B, G), _heads(C, G)
    P = heads.shape[-1]
    state = S.reshape(S.shape[0], H, P, S.shape[-1]).contiguous().clone()
    each = lambda y: y[..., None].expand(*y.shape, P)
    A = each(_rates(A_log))[..., None].expand(H, P, S.shape[-1])
    out = _tokens(heads, lambda t: function(state=state, x=heads[:, t], dt=each(dt[:, t]), A=A, B=B[:, t], C=C[:, t],
                                            D=each(skip), z=None, dt_bias=each(dt_bias), dt_softplus=True))
    return {"y": out.reshape(x.shape), "S": state.reshape(S.shape)}


def _short_pieces(x):
    """Three numbers that sum to x, of at most 11 significant bits each: exact as operands in tf32."""
    import torch

    pieces = []
    for _ in range(2):
        pieces.append((x.contiguous().view(torch.int32) & ~0x1FFF).view(torch.float32))
        x = x - pieces[-1]
    return pieces + [x]


_SHORT = 2.0**-100  # nothing decays by this step, and as a power of two it makes products exact


def _duality_by_seq_idx(function, x, dt, dt_bias, A, B, C, S, chunk, ends, **same):
    """Packed x [1, T, H, P] and states [N, H, P, N], with seq_idx, by which every sequence begins at zeros. If a
    sequence's state is not zero, tokens in front of it write the state: each has B = e_n, the least step of dt_limit,
    and x = S

    step in pieces that tf32 keeps. They fill a chunk up to its end, so that the state is passed to the next chunk
    like any other. Returns the rows of x and the states after it; a sequence without tokens is left out, and keeps
    its state."""
    import torch

    if ends[0] == ends[-1]:
        return x, S
    H, width = A.shape[0], S.shape[-1]
    short = -200.0 - dt_bias  # its softplus is 0 in fp32
    rows, of, own, starts, begin = [], [], [], [0], 0
    for n, end in enumerate(ends[1:]):
        if ends[n] == end:
            continue
        if bool(S[n].ne(0).any()):
            written = torch.cat([piece.permute(2, 0, 1) for piece in _short_pieces(S[n] / _SHORT)])
            blank = -(begin + len(written)) % chunk
            eye = torch.eye(width, device=x.device).repeat(3, 1)[:, None].expand(-1, B.shape[2], -1)
            front = [torch.nn.functional.pad(y, (0, 0, 0, 0, blank, 0)) for y in (written, eye, torch.zeros_like(eye))]
            rows.append((front[0], short.expand(len(front[0]), H), front[1], front[2]))
            begin += len(front[0])
        rows.append(tuple(y[0, ends[n]:end] for y in (x, dt, B, C)))
        own.append(torch.arange(begin, begin + end - ends[n], device=x.device))
        begin += end - ends[n]
        starts.append(begin)
        of.append(torch.full((begin - starts[-2],), len(of), dtype=torch.int32, device=x.device))
    names = dict(zip(("x", "dt", "B", "C"), (torch.cat(parts)[None] for parts in zip(*rows))))
    y, states = function(**names, A=A, chunk_size=chunk, z=None, dt_bias=dt_bias, dt_softplus=True,
                         dt_limit=(_SHORT, float("inf")), seq_idx=torch.cat(of)[None], return_varlen_states=True,
                         cu_seqlens=torch.tensor(starts, dtype=torch.int32, device=x.device), **same)
    after = S.clone()
    after[[n for n, end in enumerate(ends[1:]) if ends[n] < end]] = states
    return y[:, torch.cat(own)], after


@_call
def duality_chunks_of_mamba_ssm(function, x, dt, dt_bias, A_log, B, C, skip, S, G, chunk, cu_seqlens=None):
    """x [B, T, H, P]; B, C [B, T, G, N]; states [B, H, P, N]. Packed, it takes seq_idx and no state of a sequence:
    tokens in front of the sequence write a case's state."""
    H = A_log.shape[0]
    heads = _heads(x, H)
    before = S.reshape(S.shape[0], H, heads.shape[-1], S.shape[-1])
    A, B, C = _rates(A_log), _heads(B, G), _heads(C, G)
    if cu_seqlens is not None:
        y, after = _duality_by_seq_idx(function, heads, dt, dt_bias, A, B, C, before, chunk, cu_seqlens.tolist(), D=skip)
    else:
        y, after = function(x=heads, dt=dt, A=A, B=B, C=C, chunk_size=chunk, D=skip, z=None, dt_bias=dt_bias,
                            initial_states=before, dt_softplus=True, return_final_states=True)
    return {"y": y.reshape(x.shape), "S": after.reshape(S.shape)}


@_call
def duality_chunks_of_cudnn(function, x, dt, dt_bias, A_log, B, C, skip, S, G, cu_seqlens=None):
    """x [B T, H, P]; B, C [B T, G, N]; states [B, H, P, N]; sequences are end to end, each with T tokens if they are
    a batch."""
    import torch

    H, (batch, T) = A_log.shape[0], x.shape[:2]
    ends = torch.arange(batch + 1, dtype=torch.int32, device=x.device) * T if cu_seqlens is None else cu_seqlens.int()
    y, after = function(_heads(x, H).flatten(0, 1), dt.flatten(0, 1), _rates(A_log), _heads(B, G).flatten(0, 1),
                        _heads(C, G).flatten(0, 1), ends, D=skip, dt_bias=dt_bias,
                        initial_state=S.reshape(S.shape[0], H, x.shape[-1] // H, S.shape[-1]), output_final_state=True)
    return {"y": y.reshape(x.shape), "S": after.reshape(S.shape)}


@_call
def duality_chunks(function, x, dt, dt_bias, A_log, B, C, skip, S, G, chunk):
    """x [B, T, H, P]; B, C [B, T, G, N]; states [B, H, P, N]."""
    H = A_log.shape[0]
    heads = _heads(x, H)
    before = S.reshape(S.shape[0], H, heads.shape[-1], S.shape[-1])
    y, after = function(hidden_states=heads, dt=dt, A=_rates(A_log), B=_heads(B, G), C=_heads(C, G), chunk_size=chunk,
                        D=skip, dt_bias=dt_bias, initial_states=before, dt_softplus=True, return_final_states=True)
    return {"y": y.reshape(x.shape), "S": after.reshape(S.shape)}


@_call
def mlx_duality(function, x, dt, dt_bias, A_log, B, C, skip, S, G, chunk):
    """A is computed inside, and steps are clipped at 0.001 by default."""
    H = A_log.shape[0]
    heads = _heads(x, H)
    y, after = function(heads, A_log, _heads(B, G), _heads(C, G), skip, dt, dt_bias,
                        S.reshape(S.shape[0], H, heads.shape[-1], S.shape[-1]), time_step_limit=(0.0, float("inf")),
                        step=chunk)
    return {"y": y.reshape(x.shape), "S": after.reshape(S.shape)}


# -- the rest

@_call
def rotary(function, x, cosine, sine, d):
    """q [B, H, T, d], tables [B, T, 2 pairs] with each column twice: halves that rotate together."""
    import torch

    heads = _heads(x, x.shape[-1] // d).transpose(1, 2)
    turned, _ = function(heads, heads, torch.cat([cosine, cosine], -1), torch.cat([sine, sine], -1))
    return {"y": turned.transpose(1, 2).reshape(x.shape)}


@_call
def gate(function, a, b, A_log, dt_bias):
    """Only g is the function's; beta is torch.sigmoid, as its callers compute it."""
    return {"g": function(g=a, A_log=A_log, dt_bias=dt_bias), "beta": b.sigmoid()}


@_call
def normalised(function, q, k, v, S, z, H, cu_seqlens=None):
    """q, k, v [B, T, H, d]; the state is (S, z), z [B, 1, H, d]. The scale does not change the quotient, so it is 1."""
    q_, k_, v_ = (_heads(y, H).contiguous() for y in (q, k, v))
    o, (after, sums) = function(q=q_, k=k_, v=v_, scale=1.0, initial_state=(S, z[:, None]), output_final_state=True,
                                normalize=True, cu_seqlens=cu_seqlens)
    return {"o": o.reshape(v.shape), "S": after, "z": sums[:, 0]}


# -- serving steps: one pool per request. The row's convention `null_slot` says what a request without a slot gets: with
# `none` every slot that comes here is a row of its pool

def _own(slot, pool):
    import torch

    return torch.arange(len(pool), device=pool.device), slot[:, 0].long()


@_call
def step_of_states(function, q, k, v, a, b, A_log, dt_bias, slot, pool, l2norm):
    """The inputs of the gates are passed as g and beta; states [B, Hv, dk, dv] are taken out of their slots and put
    back here."""
    each, slot = _own(slot, pool)
    o, after = function(q=q, k=k, v=v, g=a, beta=b, A_log=A_log, dt_bias=dt_bias, use_gate_in_kernel=True,
                        use_beta_sigmoid_in_kernel=True, use_qk_l2norm_in_kernel=bool(l2norm),
                        initial_state=pool[each, slot], output_final_state=True)
    written = pool.clone()
    written[each, slot] = after
    return {"o": o, "pool": written}


@_call
def mlx_step(function, q, k, v, a, b, A_log, dt_bias, slot, pool):
    """States [B, Hv, dv, dk], taken out of their slots and put back here; the scale is in q."""
    import mlx.core as mx

    each, rows = mx.arange(pool.shape[0]), slot[:, 0].astype(mx.int32)
    state = pool[each, rows]
    o, after = function(q * q.shape[-1] ** -0.5, k, v, a, b, A_log, dt_bias, state.swapaxes(2, 3))
    written = mx.array(pool)
    written[each, rows] = after.swapaxes(2, 3)
    return {"o": o, "pool": written}


def _one_pool(pool):
    """Rows [Hv, dv, dk] of all requests' pools, one after another, as a server's pool has them. With a width of 1,
    contiguous() would return the judge's memory itself, whose strides no dense tensor has."""
    import torch

    return pool.flatten(0, 1).transpose(-1, -2).clone(memory_format=torch.contiguous_format)


def _back(rows, pool):
    return rows.transpose(-1, -2).reshape(pool.shape)


def _rows(slot, pool, null=None):
    """int32 rows of _one_pool; `null` stays as it is."""
    import torch

    each, slot = _own(slot, pool)
    rows = each * pool.shape[1] + slot
    return (rows if null is None else torch.where(slot == null, null, rows)).to(torch.int32)


def _in_place(after, states):
    if after.data_ptr() != states.data_ptr():
        raise RuntimeError("the pool was not updated in place")


def _packed_decode(function, null, q, k, v, a, b, A_log, dt_bias, slot, pool, l2norm):
    import torch

    states, rows, out = _one_pool(pool), _rows(slot, pool, null), []
    for t in range(q.shape[1]):
        mixed = torch.cat([x[:, t].flatten(1) for x in (q, k, v)], 1)
        o = torch.full_like(v[:, t:t + 1], float("nan"), memory_format=torch.contiguous_format)
        o, after = function(mixed_qkv=mixed, a=a[:, t].contiguous(), b=b[:, t].contiguous(), A_log=A_log, dt_bias=dt_bias,
                            scale=q.shape[-1] ** -0.5, initial_state=states, out=o, ssm_state_indices=rows,
                            use_qk_l2norm_in_kernel=bool(l2norm))
        _in_place(after, states)
        out.append(o)
    return {"o": torch.cat(out, 1), "pool": _back(states, pool)}


@_call
def packed_decode_from_slot_1(function, q, k, v, a, b, A_log, dt_bias, slot, pool, l2norm):
    """q, k and v in one row [B, 2 Hk dk + Hv dv], with one token per call; one pool [B P, Hv, dv, dk] in place."""
    return _packed_decode(function, 0, q, k, v, a, b, A_log, dt_bias, slot, pool, l2norm)


@_call
def packed_decode_from_slot_0(function, q, k, v, a, b, A_log, dt_bias, slot, pool, l2norm):
    """q, k and v in one row [B, 2 Hk dk + Hv dv], with one token per call; one pool [B P, Hv, dv, dk] in place."""
    return _packed_decode(function, -1, q, k, v, a, b, A_log, dt_bias, slot, pool, l2norm)


@_call
def gating_of_vllm(function, q, k, v, a, b, A_log, dt_bias, slot, pool, l2norm):
    """One pool [1 + B P, Hv, dv, dk] in place, of which row 0 belongs to no request; the slot of each token, [B, T]."""
    import torch

    states = _one_pool(pool)
    states = torch.cat([torch.full_like(states[:1], float("nan")), states])
    rows = (_rows(slot, pool) + 1)[:, None].expand(-1, q.shape[1]).contiguous()
    o, after = function(A_log=A_log, a=a, b=b, dt_bias=dt_bias, q=q, k=k, v=v, initial_state=states,
                        ssm_state_indices=rows, use_qk_l2norm_in_kernel=bool(l2norm))
    _in_place(after, states)
    return {"o": o, "pool": _back(states[1:], pool)}


@_call
def gating_of_sglang(function, q, k, v, a, b, A_log, dt_bias, slot, pool, l2norm):
    """One pool [B P, Hv, dv, dk] in place; the tensors are dense, whatever their strides are."""
    states = _one_pool(pool)
    o = function(A_log=A_log, a=a.contiguous(), dt_bias=dt_bias, softplus_beta=1.0, softplus_threshold=20.0,
                 q=q.contiguous(), k=k.contiguous(), v=v.contiguous(), b=b.contiguous(), initial_state_source=states,
                 initial_state_indices=_rows(slot, pool), use_qk_l2norm_in_kernel=bool(l2norm))
    return {"o": o, "pool": _back(states, pool)}


def _each_token(*tensors):
    """[B, 1, ..] tensors of one token after the other, contiguous."""
    return ([x[:, t:t + 1].contiguous() for x in tensors] for t in range(tensors[0].shape[1]))


@_call
def flashinfer_decode(function, q, k, v, a, b, A_log, dt_bias, slot, pool, l2norm):
    """States [B, Hv, dk, dv] in place, taken out of their slots and put back here, with one token per call."""
    import torch

    each, slot = _own(slot, pool)
    state, out = pool[each, slot].contiguous(), []
    for q_, k_, v_, a_, b_ in _each_token(q, k, v, a, b):
        o, after = function(q=q_, k=k_, v=v_, state=state, A_log=A_log, a=a_, dt_bias=dt_bias, b=b_,
                            use_qk_l2norm=bool(l2norm))
        _in_place(after, state)
        out.append(o)
    written = pool.clone()
    written[each, slot] = state
    return {"o": torch.cat(out, 1), "pool": written}


@_call
def flashinfer_pretransposed(function, q, k, v, a, b, A_log, dt_bias, slot, pool, l2norm):
    """One pool [B P, Hv, dv, dk] in place, with one token per call."""
    import torch

    states, rows, out = _one_pool(pool), _rows(slot, pool, -1), []
    for q_, k_, v_, a_, b_ in _each_token(q, k, v, a, b):
        o, after = function(q=q_, k=k_, v=v_, state=None, A_log=A_log, a=a_, dt_bias=dt_bias, b=b_,
                            use_qk_l2norm=bool(l2norm), initial_state=states, initial_state_indices=rows)
        _in_place(after, states)
        out.append(o)
    return {"o": torch.cat(out, 1), "pool": _back(states, pool)}


@_call
def flashinfer_mtp(function, q, k, v, a, b, A_log, dt_bias, slot, pool, l2norm):
    """One pool [B P, Hv, dv, dk] in place, all tokens in one call."""
    states = _one_pool(pool)
    o, after = function(q=q, k=k, v=v, initial_state=states, initial_state_indices=_rows(slot, pool, -1), A_log=A_log,
                        a=a, dt_bias=dt_bias, b=b, use_qk_l2norm=bool(l2norm), disable_state_update=False)
    _in_place(after, states)
    return {"o": o, "pool": _back(states, pool)}
