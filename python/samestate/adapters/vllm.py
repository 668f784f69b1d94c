"""vLLM's recurrent gated delta rule, called as its server calls it: states in a pool, a slot a token."""
import importlib
import inspect

MODULE = "vllm.third_party.flash_linear_attention.ops.fused_recurrent"


def fused_recurrent_gated_delta_rule():
    """What takes a batch or packed sequences, and calls the function on one pool whose row 0 is nobody's. Without slots
    it reads the state of a sequence at the row of its first token and returns one a token."""
    function = getattr(importlib.import_module(MODULE), "fused_recurrent_gated_delta_rule")

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

    call.__signature__ = inspect.signature(call)  # not that of the function, which is what runs and is recorded
    call.__wrapped__ = function
    call.__qualname__, call.__module__ = function.__qualname__, function.__module__
    return call
