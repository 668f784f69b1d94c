#!/usr/bin/env python3
"""A peer for `samestate bench --peer`: the Triton kernels of flash-linear-attention on a CUDA device.

    pip install torch flash-linear-attention
    samestate bench --peer 'python3 examples/peers/fla_bench.py'

One JSON object a line on stdin asks for a case, one on stdout answers (docs/do/bench.md). What it cannot run it
answers with {"id": .., "unsupported": reason}; it ends at the end of its input.
"""
import os

from timing import Unsupported, load_torch, serve, timed

# FLA's own Triton path, not the FlashQLA kernels that it may dispatch to.
os.environ.setdefault("FLA_FLASH_QLA", "0")


def load():
    """torch and the device, or the reason why nothing can run."""
    torch, reason = load_torch()
    if torch is None:
        return None, reason
    try:
        import fla  # noqa: F401
    except Exception as error:  # an installation may be broken in any way
        return None, f"fla cannot be imported: {error}"
    return torch, ""


def operator_of(case):
    """The name shown and the function, by system and form."""
    recurrent = case["form"] == "recurrent" or case["chunk"] == 0
    system = case["system"]
    if system == "gated_delta_rule":
        from fla.ops.gated_delta_rule import chunk_gated_delta_rule, fused_recurrent_gated_delta_rule
        chosen = fused_recurrent_gated_delta_rule if recurrent else chunk_gated_delta_rule
    elif system == "delta_rule":
        from fla.ops.delta_rule import chunk_delta_rule, fused_recurrent_delta_rule
        chosen = fused_recurrent_delta_rule if recurrent else chunk_delta_rule
    elif system == "retention":
        from fla.ops.retention import chunk_retention, fused_recurrent_retention
        chosen = fused_recurrent_retention if recurrent else chunk_retention
    elif system == "linear_attention":
        from fla.ops.linear_attn import chunk_linear_attn, fused_recurrent_linear_attn
        chosen = fused_recurrent_linear_attn if recurrent else chunk_linear_attn
    else:
        raise Unsupported(f"no kernel of {system}")
    return "fla." + chosen.__name__, chosen


def inputs_of(torch, case, dtype):
    """One set of tensors as keyword arguments, and what differs from the case."""
    B, T, Hk, Hv, dk, dv = (case[name] for name in ("B", "T", "Hk", "Hv", "dk", "dv"))
    system, notes = case["system"], []
    normal = lambda *shape: torch.randn(*shape, device="cuda", dtype=torch.float32)
    unit = lambda x: torch.nn.functional.normalize(x, dim=-1)
    heads = Hk
    if system != "gated_delta_rule" and Hk != Hv:
        heads = Hv  # these operators take as many key heads as value heads
        notes.append(f"q and k repeated from {Hk} to {Hv} heads")
    q, k = (unit(normal(B, T, heads, dk)).to(dtype) for _ in range(2))
    tensors = {"q": q, "k": k, "v": normal(B, T, Hv, dv).to(dtype), "scale": case["scale"],
               "output_final_state": True}
    if system == "gated_delta_rule":
        tensors["g"] = torch.nn.functional.logsigmoid(normal(B, T, Hv)) / 4
    if system in ("gated_delta_rule", "delta_rule"):
        beta = normal(B, T, Hv).sigmoid()
        # Passed by keyword, because the fifth positional argument of fused_recurrent_gated_delta_rule is gk.
        tensors["beta"] = beta if system == "gated_delta_rule" else beta.to(dtype)
        tensors["use_qk_l2norm_in_kernel"] = bool(case["l2norm"])
    elif case["l2norm"]:
        raise Unsupported(f"l2norm inside the kernel of {system}")
    if system == "linear_attention":
        tensors["normalize"] = False
    if system == "retention":
        notes.append("RetNet's own decay of each head")
    sequences = len(case["lengths"]) or B
    if case["lengths"]:
        offsets = [0]
        for length in case["lengths"]:
            offsets.append(offsets[-1] + length)
        tensors["cu_seqlens"] = torch.tensor(offsets, device="cuda", dtype=torch.int64)
    if case["state"] == "random":
        tensors["initial_state"] = 0.3 * normal(sequences, Hv, dk, dv)
    return tensors, notes


def measure(torch, case):
    # Where a contract rounds is the kernel's own; the peer has inputs and outputs of its format.
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}.get(
        case["contract"].removesuffix("_fused"))
    if dtype is None:
        raise Unsupported(f"contract {case['contract']}")
    if case["heads"] != "interleaved" and case["Hk"] != case["Hv"]:
        raise Unsupported(f"heads={case['heads']}")
    if case["form"] not in ("recurrent", "chunked", "packed"):
        raise Unsupported(f"form={case['form']}")
    name, operator = operator_of(case)
    torch.manual_seed(0)
    notes = inputs_of(torch, case, dtype)[1]
    if case["form"] != "recurrent" and case["chunk"] != 0:
        if case["chunk"] != 64:
            notes.append("chunk of 64")
        if dtype == torch.float32:  # tl.dot on float32 is tf32 unless a kernel asks for ieee
            notes.append("float32 tensors; products inside may be tf32")
    seconds, how = timed(torch, operator, lambda: inputs_of(torch, case, dtype)[0], case["seconds"])
    return name, seconds, "; ".join(notes + [how])


if __name__ == "__main__":
    serve(load, measure)
