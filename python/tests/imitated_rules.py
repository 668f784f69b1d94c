"""Chunked gated delta rules of public packages, imitated in torch: their signatures, layouts, checks and ways to read
sequences as their sources have them, their arithmetic in float64."""
import sys

import torch
from imitated_token import grouped, token, wrong


def _rule(q, k, v, g, beta, scale, states, ends, l2norm, counted=False):
    """[T, H, D] tensors of sequences that end at `ends`; states [N, Hv, V, K] -> o, states."""
    HV, o, after = v.shape[1], torch.zeros_like(v).double(), []
    for n, place in enumerate(_places(ends, counted)):
        S = states[n].double()
        for t in range(int(ends[place]), int(ends[place + 1])):
            S, o[t] = token(S, grouped(q[t].double(), HV), grouped(k[t].double(), HV), v[t].double(), g[t].double(),
                            beta[t].double(), scale, l2norm)
        after.append(S)
    return o.to(v.dtype), torch.stack(after)


def _places(ends, counted):
    """The sequence of each place in `ends`, counted among the sequences that have tokens: an empty one shifts those
    after it."""
    lengths = [int(e) - int(s) for s, e in zip(ends, ends[1:])]
    if not counted:
        return list(range(len(lengths)))
    return [sum(n > 0 for n in lengths[:i + 1]) - 1 if lengths[i] else i for i in range(len(lengths))]


def contiguous(**tensors):
    for name, tensor in tensors.items():
        if tensor is not None and not tensor.is_contiguous():
            raise RuntimeError(f"{name} must be contiguous")


def flashinfer_prefill():
    def chunk_gated_delta_rule(q, k, v, g=None, beta=None, scale=None, initial_state=None, output_final_state=False,
                               cu_seqlens=None, use_qk_l2norm_in_kernel=False, output=None, output_state=None,
                               state_checkpoints=None, checkpoint_cu_starts=None, checkpoint_every_n_tokens=0,
                               use_cp="auto", state_indices=None, _cp_chunk_len=None, backend="auto", max_seqlen=None, *,
                               gate_domain="linear", use_gate_in_kernel=False, A_log=None, dt_bias=None,
                               beta_is_logit=False, cu_seqlens_cpu=None, output_state_indices=None,
                               checkpoint_state_indices=None, prefix_lens=None):
        if backend not in ("auto", "flashinfer", "cake_gdn", "cudnn", "sm120_cute") or use_cp not in ("auto", True, False):
            raise ValueError(f"unsupported GDN backend: {backend!r}, {use_cp!r}")
        assert cu_seqlens is not None and q.ndim == 3, "cu_seqlens is required for varlen mode"
        if q.shape[2] != 128 or v.shape[2] != 128:
            raise RuntimeError(f"DSL kernel only supports D=128, got {q.shape[2]}")
        contiguous(q=q, k=k, v=v, alpha=g, beta=beta, cu_seqlens=cu_seqlens, init_state=initial_state)
        scale = q.shape[-1] ** -0.5 if not scale else scale
        HV = v.shape[1]
        states = initial_state if initial_state is not None else torch.zeros(len(cu_seqlens) - 1, HV, v.shape[-1],
                                                                             q.shape[-1])
        alpha = torch.exp(g.double()) if (gate_domain == "log") != wrong("g is a logarithm") else g.double()
        o, after = _rule(q, k, v, torch.log(alpha), beta, scale, states, cu_seqlens, use_qk_l2norm_in_kernel)
        return (o, after.float()) if output_final_state else o

    return chunk_gated_delta_rule


def flash_qla():
    def chunk_gated_delta_rule(q, k, v, g, beta, scale=None, initial_state=None, output_final_state=False,
                               use_qk_l2norm_in_kernel=False, cu_seqlens=None, head_first=False, state_v_first=False,
                               auto_cp=True, enable_fwd_cp_cache=True, cp_context=None, force_intra_cp=False):
        assert q.dtype == k.dtype == v.dtype and q.dtype in (torch.bfloat16, torch.float16)
        assert q.shape[-1] == v.shape[-1] == 128 and not (force_intra_cp and not auto_cp)
        B, T = q.shape[:2]
        ends = cu_seqlens if cu_seqlens is not None else torch.arange(B + 1) * T
        if auto_cp and B == 1 and min(ends[1:] - ends[:-1]) <= 0:
            raise ValueError(f"invalid sequence lengths: {(ends[1:] - ends[:-1]).tolist()}")
        HV, V, K = v.shape[2], v.shape[3], q.shape[3]
        scale = scale or K ** -0.5
        states = initial_state.transpose(-1, -2) if initial_state is not None else torch.zeros(len(ends) - 1, HV, V, K)
        flat = [x.reshape(B * T, *x.shape[2:]) for x in (q, k, v, g, beta)]
        o, after = _rule(*flat, scale, states, ends, use_qk_l2norm_in_kernel, wrong("places counted by sequences"))
        after = (after if wrong("states transposed") and V == K else after.transpose(-1, -2)).float()
        return o.reshape(v.shape), after if output_final_state else None

    return chunk_gated_delta_rule


def vllm_chunk():
    def chunk_gated_delta_rule(q, k, v, g, beta, scale=None, initial_state=None, output_final_state=False, cu_seqlens=None,
                               chunk_indices=None, chunk_offsets=None, use_qk_l2norm_in_kernel=False, core_attn_out=None):
        assert q.dtype != torch.float32 and q.shape[-1] <= 256
        B, T = q.shape[:2]
        ends = cu_seqlens if cu_seqlens is not None else torch.arange(B + 1) * T
        states = initial_state if initial_state is not None else torch.zeros(len(ends) - 1, v.shape[2], v.shape[3], q.shape[3])
        flat = [x.reshape(B * T, *x.shape[2:]) for x in (q, k, v, g, beta)]
        o, after = _rule(*flat, q.shape[-1] ** -0.5 if scale is None else scale, states, ends, use_qk_l2norm_in_kernel,
                         wrong("places counted by sequences"))
        return o.reshape(v.shape), after.float() if output_final_state else None

    return chunk_gated_delta_rule


def sglang_chunk():
    def chunk_gated_delta_rule(q, k, v, g, beta, scale=None, initial_state=None, initial_state_indices=None, cu_seqlens=None,
                               head_first=False, use_qk_l2norm_in_kernel=False, inplace_update=True):
        assert q.dtype != torch.float32 and initial_state_indices.dtype == torch.int32 and q.shape[-1] <= 256
        B, T = q.shape[:2]
        ends = cu_seqlens if cu_seqlens is not None else torch.arange(B + 1) * T
        flat = [x.reshape(B * T, *x.shape[2:]) for x in (q, k, v, g, beta)]
        rows = initial_state_indices.long()
        o, after = _rule(*flat, q.shape[-1] ** -0.5 if scale is None else scale, initial_state[rows], ends,
                         use_qk_l2norm_in_kernel, wrong("places counted by sequences"))
        if not wrong("states left as they were"):
            initial_state[rows] = after.float()
        return o.reshape(v.shape), None, torch.zeros(1)

    return chunk_gated_delta_rule


def fla_chunk():
    def chunk_gated_delta_rule(q, k, v, g, beta, scale=None, initial_state=None, output_final_state=False,
                               use_qk_l2norm_in_kernel=False, cu_seqlens=None, chunk_size=64):
        assert torch.is_inference_mode_enabled() and q.shape[0] == 1, "the back end takes packed tensors of inference_mode"
        longest = int((cu_seqlens[1:] - cu_seqlens[:-1]).max())
        intracard = sys.modules["fla.ops.common.intracard_cp"]
        if longest >= (9 if wrong("divided later") else 3) * intracard.compute_subseq_len(longest, 132, v.shape[2], chunk_size):
            intracard.intracard_pre_scan()
        states = initial_state if initial_state is not None else torch.zeros(len(cu_seqlens) - 1, v.shape[2], q.shape[3],
                                                                             v.shape[3])
        o, after = _rule(q[0], k[0], v[0], g[0], beta[0], scale, states.transpose(-1, -2), cu_seqlens,
                         use_qk_l2norm_in_kernel)
        return o[None], after.transpose(-1, -2).float() if output_final_state else None

    return chunk_gated_delta_rule


def intracard_pre_scan():
    """FLA's back end, which says that a sequence is divided."""


def compute_subseq_len(seq_len, num_sms, num_heads, chunk_size=64):
    return 128 * chunk_size


def gated_delta_net(q, k, v, g, beta, cu_seqlens, scale=None, initial_state=None, output_final_state=False,
                    use_qk_l2norm_in_kernel=False, batch_invariant=False, use_beta_sigmoid_in_kernel=False,
                    allow_neg_eigval=False, safe_gate=False, gate_domain="log", a_log=None, dt_bias=None,
                    checkpoint_every_n_tokens=0, checkpoint_dtype=None, plan_name=None, overwrite_initial_state=False,
                    state_indices=None):
    assert plan_name in ("gdn_frost", "gdn_cutile") and cu_seqlens.dtype == torch.int32 and q.dim() == 3
    assert q.shape[2] <= 256 and q.dtype in (torch.float16, torch.bfloat16) and g.dtype == beta.dtype == torch.float32
    contiguous(q=q, k=k, v=v, g=g, beta=beta, initial_state=initial_state)
    states = initial_state if initial_state is not None else torch.zeros(len(cu_seqlens) - 1, v.shape[1], v.shape[2],
                                                                         q.shape[2])
    o, after = _rule(q, k, v, g, beta, scale, states, cu_seqlens, use_qk_l2norm_in_kernel)
    return o, after.float() if output_final_state else torch.empty(0)
