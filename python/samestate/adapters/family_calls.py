"""Calls of public gated delta rules that differ from a call of the recurrent family: states in a pool, one row of all
tokens if the function asks for it, or a path through the package that it takes by itself only for long sequences."""
import importlib
import inspect

from . import public

VLLM = "vllm.third_party.flash_linear_attention.ops.fused_recurrent"
SGLANG = "sglang.kernels.ops.attention.fla.chunk"


def _made(function, call):
    """The call, marked with the public function, because that is what runs and is recorded."""
    call.__signature__ = inspect.signature(call)
    call.__wrapped__ = function
    call.__qualname__, call.__module__ = function.__qualname__, function.__module__
    return call


def vllm_recurrent():
    """vLLM's recurrent rule as its server calls it, on one pool whose row 0 belongs to no request, with a slot per
    token. Without slots it reads the state of a sequence at the row of its first token and returns one state per
    token."""
    function = public(VLLM, "fused_recurrent_gated_delta_rule")

    def call(q, k, v, g, beta, scale, initial_state, cu_seqlens, l2norm):
        import torch

        shape = v.shape
        if cu_seqlens is None:
            cu_seqlens = torch.arange(shape[0] + 1, device=q.device) * shape[1]
            q, k, v, g, beta = (x.reshape(1, -1, *x.shape[2:]) for x in (q, k, v, g, beta))
        states = torch.cat([torch.full_like(initial_state[:1], float("nan")), initial_state])
        longest = max(int((cu_seqlens[1:] - cu_seqlens[:-1]).max()), 1)
        slots = torch.arange(1, len(states), dtype=torch.int32, device=q.device)[:, None].expand(-1, longest).contiguous()
        o, after = function(q=q, k=k, v=v, g=g, beta=beta, scale=scale, initial_state=states, inplace_final_state=True,
                            cu_seqlens=cu_seqlens, ssm_state_indices=slots, use_qk_l2norm_in_kernel=l2norm)
        if after.data_ptr() != states.data_ptr():
            raise RuntimeError("the pool was not updated in place")
        return o.reshape(shape), states[1:]

    return _made(function, call)


def sglang_chunk():
    """SGLang's chunked rule as its server calls it: a pool of states that it updates in place, with a row per
    sequence. It reads the rows whether there is a state or not, and returns the states between chunks instead of the
    last one."""
    function = public(SGLANG, "chunk_gated_delta_rule")

    def call(q, k, v, g, beta, scale, initial_state, cu_seqlens, l2norm):
        import torch

        states = initial_state.clone(memory_format=torch.contiguous_format)
        rows = torch.arange(len(states), dtype=torch.int32, device=q.device)
        o = function(q=q, k=k, v=v, g=g, beta=beta, scale=scale, initial_state=states, initial_state_indices=rows,
                     cu_seqlens=cu_seqlens, use_qk_l2norm_in_kernel=l2norm)[0]
        return o, states

    return _made(function, call)


def fla_intracard():
    """FLA's chunked rule with its back end intracard_cp, which divides a sequence: only under inference_mode and for
    packed tensors. It chooses parts of at least 128 chunks; here parts have two, so that sequences of six chunks or
    more are divided, by the same kernels. A sequence that was not divided is an error, because the other kernel ran
    then."""
    from .fla import function as found

    function = found("fla.ops.gated_delta_rule", "chunk_gated_delta_rule", "cuda", intracard=True)
    intracard = importlib.import_module("fla.ops.common.intracard_cp")
    scan, divided = intracard.intracard_pre_scan, []

    def counted(*args, **named):
        divided.append(True)
        return scan(*args, **named)

    def two_chunks(seq_len, num_sms, num_heads, chunk_size=64):
        return 2 * chunk_size

    intracard.intracard_pre_scan, intracard.compute_subseq_len = counted, two_chunks

    def call(q, k, v, g, beta, scale, chunk, initial_state, output_final_state, cu_seqlens, l2norm):
        import torch

        divided.clear()
        with torch.inference_mode():
            q, k, v, g, beta = (x[None] for x in (q, k, v, g, beta))
            o, after = function(q=q, k=k, v=v, g=g, beta=beta, scale=scale, chunk_size=chunk, initial_state=initial_state,
                                output_final_state=output_final_state, cu_seqlens=cu_seqlens,
                                use_qk_l2norm_in_kernel=l2norm)
        if not divided and int((cu_seqlens[1:] - cu_seqlens[:-1]).max()) >= 6 * chunk:
            raise RuntimeError("a sequence of six chunks and more was not divided: the back end intracard_cp did not run")
        return o[0], after

    return _made(function, call)
