"""Public functions that run on a device alone, imitated in torch: their signatures, layouts, pools, null slots and checks
as their sources have them (docs/lookup/adapters.md has the versions), their arithmetic in float64. `install()` puts them where
their packages would be; `fault(..)` names what one of them does wrong from then on."""
import sys
import types

import imitated_rules as rules
import torch
from imitated_token import fault, gates, grouped, offsets, sigmoid, softplus, token, wrong  # noqa: F401


def _checked_packed(mixed_qkv, a, b, A_log, dt_bias, initial_state, out, ssm_state_indices):
    B, HV, V, K = mixed_qkv.shape[0], *initial_state.shape[-3:]
    if mixed_qkv.ndim != 2 or mixed_qkv.stride(-1) != 1:
        raise ValueError("`mixed_qkv` must be a 2D tensor, contiguous in the last dim.")
    if a.shape != (B, HV) or b.shape != (B, HV) or a.stride(-1) != 1 or b.stride(-1) != 1:
        raise ValueError("`a` and `b` must be [B, HV].")
    if A_log.shape != (HV,) or dt_bias.shape != (HV,) or ssm_state_indices.shape != (B,):
        raise ValueError("`A_log`, `dt_bias`, `ssm_state_indices` are 1D.")
    if not out.is_contiguous() or out.shape != (B, 1, HV, V) or initial_state.stride(-1) != 1:
        raise ValueError("`out` must be contiguous, [B, 1, HV, V].")
    width = mixed_qkv.shape[1] - HV * V
    if width <= 0 or width % (2 * K):
        raise ValueError("Invalid packed Q size.")
    return B, HV, V, K, width // 2 // K


def _packed(null):
    def fused_recurrent_gated_delta_rule_packed_decode(mixed_qkv, a, b, A_log, dt_bias, scale, initial_state, out,
                                                       ssm_state_indices, use_qk_l2norm_in_kernel=False):
        B, HV, V, K, H = _checked_packed(mixed_qkv, a, b, A_log, dt_bias, initial_state, out, ssm_state_indices)
        q, k, v = mixed_qkv.double().split([H * K, H * K, HV * V], 1)
        if wrong("v before k"):
            q, v, k = mixed_qkv.double().split([H * K, HV * V, H * K], 1)
        g, beta = gates(a, b, A_log, dt_bias)
        of_null = -1 if wrong("slot 0 live") else 0 if wrong("slot 0 null") else null
        for n in range(B):
            slot = int(ssm_state_indices[n])
            if slot <= of_null:
                if not wrong("null rows unwritten"):
                    out[n] = 0
                continue
            S = initial_state[slot].double()
            S = S.transpose(-1, -2).reshape(S.shape) if wrong("states transposed") else S
            S, o = token(S, grouped(q[n].view(H, K), HV), grouped(k[n].view(H, K), HV), v[n].view(HV, V), g[n], beta[n],
                         scale, use_qk_l2norm_in_kernel)
            out[n, 0] = o.to(out.dtype)
            initial_state[(slot + 1) % len(initial_state) if wrong("another slot written") else slot] = S.to(
                initial_state.dtype)
        return out, initial_state

    return fused_recurrent_gated_delta_rule_packed_decode


def _vllm_gating():
    def fused_sigmoid_gating_delta_rule_update(A_log, a, b, dt_bias, q, k, v, beta=1.0, threshold=20.0, scale=None,
                                               initial_state=None, inplace_final_state=True, cu_seqlens=None,
                                               ssm_state_indices=None, num_accepted_tokens=None,
                                               use_qk_l2norm_in_kernel=False, is_kda=False):
        B, T, HV = *v.shape[:2], v.shape[2]
        assert scale is None or scale > 0, "scale must be positive"
        scale = k.shape[-1] ** -0.5 if scale is None else scale
        g, strength = gates(a, b, A_log, dt_bias)
        o = torch.full_like(v, float("nan"))
        final = initial_state if inplace_final_state else initial_state.new_full((T, *initial_state.shape[1:]),
                                                                                float("nan"))
        indices = ssm_state_indices.reshape(-1)  # by stride_indices_seq, as the kernel reads them
        by_row = ssm_state_indices.stride(0)
        for n in range(B):
            slot = int(indices[n * by_row])
            if slot <= 0:
                continue
            S = initial_state[slot].double()
            for t in range(T):
                S, o_t = token(S, grouped(q[n, t].double(), HV), grouped(k[n, t].double(), HV), v[n, t].double(), g[n, t],
                               strength[n, t], scale, use_qk_l2norm_in_kernel)
                o[n, t] = o_t.to(o.dtype)
                if inplace_final_state:
                    into = int(indices[n * by_row + t])
                    if into > 0:
                        final[into] = S.to(final.dtype)
                else:
                    final[n * T + t] = S.to(final.dtype)
        return o, final

    return fused_sigmoid_gating_delta_rule_update


def _sglang_gating():
    def fused_sigmoid_gating_delta_rule_update(A_log, a, dt_bias, softplus_beta, softplus_threshold, q, k, v, b,
                                               initial_state_source, initial_state_indices, scale=None,
                                               use_qk_l2norm_in_kernel=False, cu_seqlens=None, is_kda=False,
                                               lower_bound=None, disable_state_update=False,
                                               intermediate_states_buffer=None, intermediate_state_indices=None,
                                               cache_steps=None, retrieve_parent_token=None):
        assert (softplus_beta, softplus_threshold) == (1.0, 20.0)
        B, T, HV = v.shape[:3]
        for x in (q, k, v):
            assert x.stride(0) == T * x.stride(1), "batches are read by the stride of tokens"
        scale = k.shape[-1] ** -0.5 if scale is None else scale
        g, beta = gates(a, b, A_log, dt_bias)
        o = torch.full_like(v, float("nan"))
        for n in range(B):
            slot = int(initial_state_indices[n])
            S = initial_state_source[slot].double() if slot >= 0 else torch.zeros(initial_state_source.shape[1:]).double()
            for t in range(T):
                S, o_t = token(S, grouped(q[n, t].double(), HV), grouped(k[n, t].double(), HV), v[n, t].double(), g[n, t],
                               beta[n, t], scale, use_qk_l2norm_in_kernel)
                o[n, t] = o_t.to(o.dtype)
            if slot >= 0 and not disable_state_update:
                initial_state_source[slot] = S.to(initial_state_source.dtype)
        return o

    return fused_sigmoid_gating_delta_rule_update


def _vllm_recurrent():
    def fused_recurrent_gated_delta_rule(q, k, v, g, beta=None, scale=None, initial_state=None, inplace_final_state=True,
                                         cu_seqlens=None, ssm_state_indices=None, num_accepted_tokens=None,
                                         use_qk_l2norm_in_kernel=False):
        assert scale is None or scale > 0, "scale must be positive"
        assert cu_seqlens is not None and q.shape[0] == 1
        HV = v.shape[2]
        o = torch.full_like(v, float("nan"))
        final = initial_state if inplace_final_state else initial_state.new_full((q.shape[1], *initial_state.shape[1:]),
                                                                                float("nan"))
        for n in range(len(cu_seqlens) - 1):
            begin, end = int(cu_seqlens[n]), int(cu_seqlens[n + 1])
            if begin == end:
                continue
            row = begin if ssm_state_indices is None or wrong("row of the first token") else int(ssm_state_indices[n, 0])
            if ssm_state_indices is not None and row <= 0:
                continue
            S = initial_state[row].double()
            for i, t in enumerate(range(begin, end)):
                S, o_t = token(S, grouped(q[0, t].double(), HV), grouped(k[0, t].double(), HV), v[0, t].double(),
                               g[0, t].double(), beta[0, t].double(), scale, use_qk_l2norm_in_kernel)
                o[0, t] = o_t.to(o.dtype)
                if inplace_final_state and int(ssm_state_indices[n, i]) > 0:
                    final[int(ssm_state_indices[n, i])] = S.to(final.dtype)
        return o, final

    return fused_recurrent_gated_delta_rule


def _flashinfer_decode(kind):
    def serve(q, k, v, pool, rows, A_log, a, dt_bias, b, scale, l2norm, update):
        HV, K = v.shape[2], q.shape[3]
        assert K >= 128 and v.shape[3] >= 128 and q.dtype in (torch.float16, torch.bfloat16)
        assert pool.dtype == torch.float32 or pool.dtype == torch.bfloat16 and K == v.shape[3] == 128 and kind == "pretranspose"
        assert A_log.dtype == torch.float32
        rules.contiguous(q=q, k=k, v=v, a=a, b=b)
        g, beta = gates(a, b, A_log, dt_bias)
        o = torch.zeros_like(v)
        for n in range(len(q)):
            row = max(int(rows[n]), 0) if wrong("slot -1 is slot 0") else int(rows[n])
            if row < 0:
                continue
            S = pool[row].double() if kind != "decode" else pool[row].double().transpose(-1, -2)
            for t in range(q.shape[1]):
                S, o_t = token(S, grouped(q[n, t].double(), HV), grouped(k[n, t].double(), HV), v[n, t].double(), g[n, t],
                               beta[n, t], K ** -0.5 if scale is None else scale, l2norm)
                o[n, t] = o_t.to(o.dtype)
            if update:
                pool[row] = (S if kind != "decode" else S.transpose(-1, -2)).to(pool.dtype)
        return o

    def gated_delta_rule_decode(q, k, v, state, A_log, a, dt_bias, b, scale=None, output=None, use_qk_l2norm=True,
                                backend="auto"):
        assert q.shape[1] == 1 and v.shape[3] % 32 == 0
        return serve(q, k, v, state, range(len(q)), A_log, a, dt_bias, b, scale, use_qk_l2norm, True), state

    def gated_delta_rule_decode_pretranspose(q, k, v, state, A_log, a, dt_bias, b, scale=None, output=None,
                                             use_qk_l2norm=True, initial_state=None, initial_state_indices=None,
                                             output_state_indices=None, intermediate_states_buffer=None,
                                             disable_state_update=False, backend="auto"):
        assert q.shape[1] == 1 and (initial_state is None) == (initial_state_indices is None)
        pool = initial_state if initial_state is not None else state
        rows = initial_state_indices if initial_state is not None else range(len(q))
        return serve(q, k, v, pool, rows, A_log, a, dt_bias, b, scale, use_qk_l2norm, not wrong("no update")), pool

    def gated_delta_rule_mtp(q, k, v, initial_state, initial_state_indices, A_log, a, dt_bias, b, scale=None, output=None,
                             intermediate_states_buffer=None, ssm_state_indices=None, disable_state_update=None,
                             use_qk_l2norm=True, output_state_indices=None, cache_replayssm=False, replayssm_rawv=None,
                             replayssm_rawk=None, replayssm_g=None, replayssm_beta=None):
        update = not (True if disable_state_update is None or wrong("no update") else disable_state_update)
        return serve(q, k, v, initial_state, initial_state_indices, A_log, a, dt_bias, b, scale, use_qk_l2norm,
                     update), initial_state

    return {"decode": gated_delta_rule_decode, "pretranspose": gated_delta_rule_decode_pretranspose,
            "mtp": gated_delta_rule_mtp}[kind]


# -- mamba_ssm and causal_conv1d

def silu(x):
    return x * sigmoid(x)


def selective_scan_fn(u, delta, A, B, C, D=None, z=None, delta_bias=None, delta_softplus=False, return_last_state=False):
    u, delta, A, B, C = (x.double() for x in (u, delta, A, B, C))
    delta = delta + delta_bias.double()[:, None]
    if delta_softplus and not wrong("no softplus"):
        delta = softplus(delta)
    h, out = torch.zeros(*u.shape[:2], A.shape[1]).double(), []
    for t in range(u.shape[2]):
        h = h * torch.exp(delta[:, :, t, None] * (-A if wrong("A positive") else A))
        h = h + (delta[:, :, t] * u[:, :, t])[..., None] * B[:, None, :, t]
        out.append((h * C[:, None, :, t]).sum(-1))
    y = torch.stack(out, 2) + (0 if wrong("no D") else u * D.double()[:, None])
    y = (y if wrong("no z") else y * silu(z.double())).float()
    return (y, h.float()) if return_last_state else y


def selective_state_update(state, x, dt, A, B, C, D=None, z=None, dt_bias=None, dt_softplus=False,
                           state_batch_indices=None):
    tied = A.stride(-1) == 0 and A.stride(-2) == 0 and dt.stride(-1) == 0 and dt_bias.stride(-1) == 0
    if state.dim() == 4 and not tied:
        raise AssertionError("dense copies: another kernel than the one that is served")
    if wrong("D, dt_bias, z"):
        z, dt_bias = dt_bias, z
    heads = state.dim() == 4
    S = state.double() if heads else state.double()[:, None]
    x, dt, A, dt_bias, D = (y.double() if heads else y.double()[None] if y.dim() == 2 and y is A else
                            y.double()[:, None] if y.dim() == 2 else y.double()[None] for y in (x, dt, A, dt_bias, D))
    B, C = (y.double() if y.dim() == 3 else y.double()[:, None] for y in (B, C))
    groups = S.shape[1] // B.shape[1]
    B, C = (y.repeat_interleave(groups, 1) for y in (B, C))
    dt = softplus(dt + dt_bias) if dt_softplus else dt + dt_bias
    S = S * torch.exp(dt[..., None] * A) + (dt * x)[..., None] * B[:, :, None]
    y = (S * C[:, :, None]).sum(-1) + x * D
    if z is not None:
        y = y * silu(z.double() if heads else z.double()[:, None])
    if not wrong("state apart"):
        state.copy_((S if heads else S[:, 0]).float())
    return (y if heads else y[:, 0]).float()


def _duality(x, dt, A, B, C, D, S):
    """y and the state of one sequence: x [T, H, P], steps [T, H], B and C [T, G, N], S [H, P, N], in float64."""
    H, out = x.shape[1], []
    B, C = (y.double().repeat_interleave(H // B.shape[1], 1) for y in (B, C))
    for t in range(len(x)):
        S = S * torch.exp(dt[t] * A.double())[:, None, None] + (dt[t, :, None] * x[t].double())[..., None] * B[t, :, None]
        out.append((S * C[t, :, None]).sum(-1) + x[t].double() * D.double()[:, None])
    return torch.stack(out) if out else x.double(), S


def mamba_chunk_scan_combined(x, dt, A, B, C, chunk_size, D=None, z=None, dt_bias=None, initial_states=None, seq_idx=None,
                              cu_seqlens=None, dt_softplus=False, dt_limit=(0.0, float("inf")),
                              return_final_states=False, return_varlen_states=False):
    batch, T, H, P = x.shape
    assert A.shape == (H,) and dt.shape == (batch, T, H) and B.shape[2] and z is None and D.shape == (H,)
    assert initial_states is None or initial_states.shape == (batch, H, P, B.shape[-1])
    assert seq_idx is None or seq_idx.shape == (batch, T)
    assert not return_varlen_states or batch == 1 and cu_seqlens is not None
    step = dt.double() + dt_bias.double()
    step = softplus(step) if dt_softplus else step
    step = step.clamp(min=0.001 if wrong("steps clipped") else dt_limit[0])
    zeros = torch.zeros(batch, H, P, B.shape[-1]).double()
    before = zeros if initial_states is None or wrong("no initial state") else initial_states.double()
    if seq_idx is None:
        y, S = (torch.stack(parts) for parts in zip(*(_duality(x[b], step[b], A, B[b], C[b], D, before[b])
                                                      for b in range(batch))))
        return (y.float(), S.float()) if return_final_states else y.float()
    # States begin anew where seq_idx changes; those after each sequence are of its end by cu_seqlens.
    y, after, states = torch.empty_like(x), [], before[0]
    for t in range(T):
        if t > 0 and seq_idx[0, t] != seq_idx[0, t - 1] and not wrong("state of the neighbour"):
            states = zeros[0]
        y_t, states = _duality(x[0, t:t + 1], step[0, t:t + 1], A, B[0, t:t + 1], C[0, t:t + 1], D, states)
        y[0, t] = y_t[0].float()
        after.append(states)
    ends = offsets("scan", cu_seqlens, T) if return_varlen_states else None
    varlen = (torch.stack([after[min(int(end), T) - 1] for end in ends[1:]]).float(),) if return_varlen_states else ()
    return (y, *((states.float()[None],) if return_final_states else ()), *varlen)


def mamba2(x, dt, A, B, C, cu_seqlens, D=None, dt_bias=None, z=None, initial_state=None, output_final_state=False,
           checkpoint_every_n_tokens=0, dt_softplus=True, dt_min=0.0, dt_max=None, batch_invariant=False, state_indices=None,
           overwrite_initial_state=False, plan_name=None, checkpoint_dtype=None):
    assert x.dim() == B.dim() == C.dim() == 3 and dt.dim() == 2 and x.dtype == B.dtype == C.dtype == torch.bfloat16
    assert B.shape[2] == 128 and x.shape[2] == 64 and cu_seqlens.dtype == torch.int32 and z is None
    steps = softplus(dt.double() + dt_bias.double()) if dt_softplus else dt.double() + dt_bias.double()
    y, ends = torch.empty_like(x), offsets("cudnn", cu_seqlens, len(x))
    after = torch.zeros_like(initial_state) if wrong("no initial state") else initial_state.clone()
    for n, (begin, end) in enumerate(zip(ends, ends[1:])):
        part = slice(int(begin), int(end))
        before = after[n - 1 if wrong("state of the neighbour") else n].double()
        rows, S = _duality(x[part].float(), steps[part], A, B[part].float(), C[part].float(), D, before)
        y[part], after[n] = rows.to(y.dtype), S.to(after.dtype)
    return y, after if output_final_state else torch.empty(0)


def _convolved(x, weight, bias, before, activation):
    whole = torch.cat([before, x], -1).double()
    T, W = x.shape[-1], weight.shape[1]
    columns = range(W) if not wrong("weight reversed") else range(W - 1, -1, -1)
    y = sum(weight.double()[:, i, None] * whole[..., j:j + T] for j, i in enumerate(columns))
    y = y + (0 if bias is None or wrong("no bias") else bias.double()[:, None])
    return (silu(y) if activation in ("silu", "swish") else y).to(x.dtype), whole


def causal_conv1d_fn(x, weight, bias=None, seq_idx=None, initial_states=None, return_final_states=False,
                     final_states_out=None, activation=None):
    assert x.stride(1) == 1 and (initial_states is None or initial_states.stride(1) == 1), "Only channel-last layout"
    assert x.shape[1] % 8 == 0 and 2 <= weight.shape[1] <= 4 and activation in (None, "silu", "swish")
    if seq_idx is not None:
        assert seq_idx.dtype == torch.int32 and seq_idx.is_contiguous() and seq_idx.shape == (x.shape[0], x.shape[2])
        assert not return_final_states and initial_states is None and x.shape[0] == 1
        numbers = offsets("convolution", seq_idx[0], x.shape[2])
        numbers = torch.zeros_like(numbers) if wrong("window across the boundary") else numbers
        firsts = [0, *(1 + (numbers.diff() != 0).nonzero().flatten()).tolist(), x.shape[2]]
        before = torch.zeros(1, x.shape[1], weight.shape[1] - 1)
        return torch.cat([_convolved(x[:, :, begin:end], weight, bias, before, activation)[0]
                          for begin, end in zip(firsts, firsts[1:])], 2)
    y, whole = _convolved(x, weight, bias, initial_states, activation)
    after = whole[..., whole.shape[-1] - (weight.shape[1] - 1):].to(x.dtype)
    return (y, initial_states if wrong("old state") else after) if return_final_states else y


def causal_conv1d_update(x, conv_state, weight, bias=None, activation=None, cache_seqlens=None, conv_state_indices=None):
    assert 2 <= weight.shape[1] <= 4 and conv_state.shape[2] >= weight.shape[1] - 1
    y, whole = _convolved(x, weight, bias, conv_state, None if wrong("no silu") else activation)
    conv_state.copy_(whole[..., whole.shape[-1] - conv_state.shape[-1]:])
    if wrong("over its input"):
        x.copy_(y)
    return y


MODULES = {
    "vllm.third_party.flash_linear_attention.ops.chunk": [rules.vllm_chunk()],
    "sglang.kernels.ops.attention.fla.chunk": [rules.sglang_chunk()],
    "fla.backends": [],
    "fla.ops.gated_delta_rule": [rules.fla_chunk()],
    "fla.ops.common.intracard_cp": [rules.intracard_pre_scan, rules.compute_subseq_len],
    "cudnn.linear_attention": [rules.gated_delta_net, mamba2],
    "vllm.third_party.flash_linear_attention.ops.fused_recurrent": [_packed(0), _vllm_recurrent()],
    "vllm.third_party.flash_linear_attention.ops.fused_sigmoid_gating": [_vllm_gating()],
    "sglang.kernels.ops.attention.fla.fused_recurrent": [_packed(-1)],
    "sglang.kernels.ops.attention.linear.fused_sigmoid_gating_recurrent": [_sglang_gating()],
    "flashinfer.gdn_decode": [_flashinfer_decode(kind) for kind in ("decode", "pretranspose", "mtp")],
    "flashinfer.gdn_prefill": [rules.flashinfer_prefill()],
    "flash_qla": [rules.flash_qla()],
    "mamba_ssm.ops.selective_scan_interface": [selective_scan_fn],
    "mamba_ssm.ops.triton.selective_state_update": [selective_state_update],
    "mamba_ssm.ops.triton.ssd_combined": [mamba_chunk_scan_combined],
    "causal_conv1d": [causal_conv1d_fn, causal_conv1d_update],
}


_AWAY = {}  # packages of the same names that were imported before


def _packages():
    return {name.partition(".")[0] for name in MODULES}


def install():
    """The modules of MODULES, with the packages that they are in, in the place of any that were imported."""
    for name in [name for name in sys.modules if name.partition(".")[0] in _packages()]:
        _AWAY[name] = sys.modules.pop(name)
    for name, functions in MODULES.items():
        parts = name.split(".")
        for depth in range(1, len(parts) + 1):
            path = ".".join(parts[:depth])
            if path not in sys.modules:
                module = sys.modules[path] = types.ModuleType(path)
                module.__path__ = []
        for function in functions:
            setattr(sys.modules[name], function.__name__, function)
    sys.modules["fla.backends"]._DISPATCH_DISABLED = False


def remove():
    for name in [name for name in sys.modules if name.partition(".")[0] in _packages()]:
        del sys.modules[name]
    sys.modules.update(_AWAY)
    _AWAY.clear()
