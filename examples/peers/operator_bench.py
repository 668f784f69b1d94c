#!/usr/bin/env python3
"""A peer for `samestate bench --peer` of systems of named tensors: what a user of PyTorch would call on a CUDA device, of
flash-linear-attention where it has the operator, else of PyTorch itself.

    pip install torch flash-linear-attention
    samestate bench --peer 'python3 examples/peers/operator_bench.py'

One JSON object a line on stdin asks for a case, one on stdout answers (docs/do/bench.md).
"""
import re

from timing import Unsupported, load_torch, serve, timed


class Draw:
    """Tensors on the device: `rows` are B T of the case, sizes its own."""

    def __init__(self, torch, case, dtype):
        self.torch, self.case, self.dtype, self.sizes = torch, case, dtype, case["sizes"]
        self.B, self.T = case["B"], case["T"]

    def normal(self, *shape, dtype=None):
        return self.torch.randn(*shape, device="cuda", dtype=self.torch.float32).to(dtype or self.dtype)

    def weight(self, *shape):
        return 1 + 0.2 * self.normal(*shape, dtype=self.torch.float32)


def rms_norm(draw):
    from fla.modules.layernorm import rms_norm as function
    heads, width = draw.sizes.get("H", 1), draw.sizes["D"]
    return "fla.rms_norm", function, lambda: {
        "x": draw.normal(draw.B, draw.T, heads, width), "weight": draw.weight(width), "bias": None, "eps": 1e-6}


def residual_rms_norm(draw):
    name, function, inputs = rms_norm(draw)

    def with_residual():
        tensors = inputs()
        return {**tensors, "residual": draw.normal(*tensors["x"].shape), "prenorm": True}
    return name, function, with_residual


def gated_rms_norm(draw):
    from fla.modules.fused_norm_gate import rms_norm_gated as function
    heads, width = draw.sizes.get("H", 1), draw.sizes["D"]
    return "fla.rms_norm_gated", function, lambda: {
        "x": draw.normal(draw.B, draw.T, heads, width), "g": draw.normal(draw.B, draw.T, heads, width),
        "weight": draw.weight(width), "bias": None, "eps": 1e-6}


def l2norm(draw):
    from fla.modules.l2norm import l2norm as function
    return "fla.l2norm", function, lambda: {
        "x": draw.normal(draw.B, draw.T, draw.sizes.get("H", 1), draw.sizes["D"])}


def short_convolution(draw):
    from fla.modules.convolution import causal_conv1d as function
    channels, width = draw.sizes["C"], draw.sizes.get("W", 4)
    return "fla.causal_conv1d", function, lambda: {
        "x": draw.normal(draw.B, draw.T, channels), "weight": draw.normal(channels, width),
        "activation": "silu" if draw.sizes.get("activation", 1) else None, "output_final_state": True}


def rotary_embedding(draw):
    from fla.modules.rotary import rotary_embedding as function
    heads, width, pairs = (draw.sizes[name] for name in ("H", "d", "pairs"))
    angles = lambda: draw.torch.rand(draw.T, pairs, device="cuda")
    return "fla.rotary_embedding", function, lambda: {
        "x": draw.normal(draw.B, draw.T, heads, width), "cos": angles().cos().to(draw.dtype),
        "sin": angles().sin().to(draw.dtype), "interleaved": bool(draw.sizes.get("interleaved", 0))}


def softmax_attention(draw):
    heads, key_heads, width, value_width = (draw.sizes[name] for name in ("H", "Hkv", "d", "dv"))
    prefill = re.search(r"\bprefill=(\d+)", draw.case["line"])
    tokens = draw.T - int(prefill.group(1)) if draw.case["form"] == "decode" and prefill else draw.T
    if draw.case["form"] == "decode" and tokens != 1:
        raise Unsupported("the last call of a decode has several tokens")
    attention = draw.torch.nn.functional.scaled_dot_product_attention

    def function(q, k, v):
        return attention(q, k, v, is_causal=tokens > 1, enable_gqa=heads != key_heads)
    return "torch.scaled_dot_product_attention", function, lambda: {
        "q": draw.normal(draw.B, heads, tokens, width), "k": draw.normal(draw.B, key_heads, draw.T, width),
        "v": draw.normal(draw.B, key_heads, draw.T, value_width)}


def expert_router(draw):
    width, experts, chosen = (draw.sizes[name] for name in ("D", "N", "K"))

    def function(x, w):
        weights, index = (x @ w.T).float().softmax(-1).topk(chosen, dim=-1)
        return (weights / weights.sum(-1, keepdim=True)).to(x.dtype), index
    return "torch matmul, softmax, topk", function, lambda: {
        "x": draw.normal(draw.B * draw.T, width), "w": draw.normal(experts, width) / width**0.5}


def state_space_duality(draw):
    from fla.ops.simple_gla import chunk_simple_gla as function
    heads, channels, states = (draw.sizes[name] for name in ("H", "P", "N"))
    return "fla.chunk_simple_gla", function, lambda: {
        "q": draw.normal(draw.B, draw.T, heads, states), "k": draw.normal(draw.B, draw.T, heads, states),
        "v": draw.normal(draw.B, draw.T, heads, channels), "scale": 1.0, "output_final_state": True,
        "g": -draw.torch.rand(draw.B, draw.T, heads, device="cuda") / 4}


# The function that runs, and how it differs from the case.
PEERS = {
    "rms_norm": (rms_norm, ""),
    "zero_centred_rms_norm": (rms_norm, "weights are not centred at zero"),
    "residual_rms_norm": (residual_rms_norm, "weights are not centred at zero"),
    "gated_rms_norm": (gated_rms_norm, ""),
    "l2norm": (l2norm, ""),
    "short_convolution": (short_convolution, ""),
    "rotary_embedding": (rotary_embedding, "angles of a token are those of every sequence"),
    "softmax_attention": (softmax_attention, ""),
    "expert_router": (expert_router, "several launches"),
    "state_space_duality": (state_space_duality, "B and C of every head, Delta multiplied in beforehand, no skip"),
}


def measure(torch, case):
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}.get(case["contract"])
    if dtype is None:
        raise Unsupported(f"contract {case['contract']}")
    if case["system"] not in PEERS:
        raise Unsupported(f"no function for {case['system']}")
    if case["lengths"]:
        raise Unsupported("packed sequences")
    peer, differs = PEERS[case["system"]]
    torch.manual_seed(0)
    name, function, inputs = peer(Draw(torch, case, dtype))
    seconds, how = timed(torch, function, inputs, case["seconds"])
    return name, seconds, "; ".join(filter(None, [differs, how]))


if __name__ == "__main__":
    serve(load_torch, measure)
