#!/usr/bin/env python3
"""A peer for `samestate bench --peer`: the Triton kernels of flash-linear-attention on a CUDA device.

    pip install torch flash-linear-attention
    samestate bench --peer 'python3 examples/peers/fla_bench.py'

One JSON object a line on stdin asks for a case, one on stdout answers (docs/bench.md). What it cannot run it
answers with {"id": .., "unsupported": reason}; it ends at the end of its input.
"""
import json
import os
import sys

# FLA's own Triton path, not the FlashQLA kernels that it may dispatch to.
os.environ.setdefault("FLA_FLASH_QLA", "0")

# Libraries print to stdout as they please; the conversation keeps a descriptor of its own.
answers = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)

LEAST_SAMPLES, MOST_SAMPLES, WARM_UP = 10, 1000, 3
SAMPLE_SECONDS = 200e-6  # a sample lasts at least so long
CACHE_TIMES = 4  # tensors are rotated until together they are so many times the L2


class Unsupported(Exception):
    """The peer does not run this case; the text says why."""


def load():
    """torch and the device, or the reason why nothing can run."""
    try:
        import torch
    except Exception as error:  # an installation may be broken in any way
        return None, f"torch cannot be imported: {error}"
    if not torch.cuda.is_available():
        return None, "torch finds no CUDA device"
    try:
        import fla  # noqa: F401
    except Exception as error:
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
        # By keyword: the fifth positional argument of fused_recurrent_gated_delta_rule is gk.
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


def bytes_of(torch, tensors):
    return sum(x.numel() * x.element_size() for x in tensors.values() if isinstance(x, torch.Tensor))


def samples_of(torch, call, calls, seconds):
    """Seconds of one call, a sample each; `call()` runs `calls` of them. Events stand between the samples."""
    def take(count):
        events = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
        events[0].record()
        for i in range(count):
            call()
            events[i + 1].record()
        torch.cuda.synchronize()
        return [events[i].elapsed_time(events[i + 1]) * 1e-3 for i in range(count)]

    estimate = sorted(take(3))[1]
    wanted = int(min(MOST_SAMPLES, max(LEAST_SAMPLES, seconds / max(estimate, 1e-7))))
    return [sample / calls for sample in take(wanted)]


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
    first, notes = inputs_of(torch, case, dtype)
    cache = getattr(torch.cuda.get_device_properties(0), "L2_cache_size", 50 * 2**20)
    copies = max(1, -(-CACHE_TIMES * cache // max(bytes_of(torch, first), 1)))
    sets = [first] + [inputs_of(torch, case, dtype)[0] for _ in range(copies - 1)]
    if case["form"] != "recurrent" and case["chunk"] != 0:
        if case["chunk"] != 64:
            notes.append("chunk of 64")
        if dtype == torch.float32:  # tl.dot on float32 is tf32 unless a kernel asks for ieee
            notes.append("float32 tensors; products inside may be tf32")
    with torch.no_grad():
        for i in range(WARM_UP):  # compiles, and tunes
            operator(**sets[i % copies])
        torch.cuda.synchronize()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for tensors in sets:
            operator(**tensors)
        end.record()
        torch.cuda.synchronize()
        estimate = begin.elapsed_time(end) * 1e-3 / copies
        calls = copies * max(1, int(SAMPLE_SECONDS / max(estimate * copies, 1e-7)))
        try:
            stream = torch.cuda.Stream()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.stream(stream):
                operator(**sets[0])
            torch.cuda.synchronize()
            with torch.cuda.graph(graph):
                for i in range(calls):
                    operator(**sets[i % copies])
            graph.replay()
            torch.cuda.synchronize()
            seconds = samples_of(torch, graph.replay, calls, case["seconds"])
            notes.append(f"graph of {calls} calls, {copies} input sets")
        except Exception as error:  # what cannot be captured is launched
            torch.cuda.synchronize()
            turn = iter(range(10**12))
            seconds = samples_of(torch, lambda: operator(**sets[next(turn) % copies]), 1, case["seconds"])
            notes.append(f"events, no graph ({type(error).__name__}), {copies} input sets")
    return name, seconds, "; ".join(notes)


def main():
    torch, reason = load()
    for line in sys.stdin:
        case = json.loads(line)
        answer = {"id": case["id"]}
        try:
            if torch is None:
                raise Unsupported(reason)
            answer["kernel"], answer["seconds"], answer["note"] = measure(torch, case)
        except Unsupported as unsupported:
            answer["unsupported"] = str(unsupported)
        except Exception as error:  # one case that fails leaves the others theirs
            answer = {"id": case["id"], "unsupported": f"{type(error).__name__}: {error}".split("\n")[0][:180]}
        if torch is not None:
            torch.cuda.empty_cache()
        answers.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
