"""Public kernels, one row each. The facts in a row were read in the kernel's source, at the version that the
row names.
"""
from collections import namedtuple

Adapter = namedtuple("Adapter", "name kernel system form package versions function array devices arguments options "
                     "limits conventions tried traps variant call dtypes strided untried gradients",
                     defaults=((), None, None, None, "", ()))
Adapter.__doc__ = """A row.

name         what is asked for: python:NAME
kernel       of the case lines, without the form
package      distribution; versions: those it was read at
function     where it is: module:function ("ours:" modules of this folder), .__wrapped__ where that is taken
devices      {device: contracts}
arguments    {what it is given: the function's name for it}: everything goes by keyword
options      keyword arguments that never change
tried        {device: version at which the adapter ran under the gate}, empty: written from the source alone
traps        what a caller gets wrong
variant      keys of the case line for each of whose values it is compiled anew on a device
call         of named.py, what makes a call with the system's tensors of it; None: it is called by `arguments`
dtypes       of named tensors: {tensor: dtype} of those that are not fp32
strided      False where the function asks for contiguous tensors: each is dense then, a state in its declared order
untried      why it ran on no device, where that is not for want of a run
gradients    contracts of the backward pass on a device; empty: those of the forward pass with +card:nearest
"""

_FLA = ("0.6.0",)
_DELTA = {"q": "q", "k": "k", "v": "v", "g": "g", "beta": "beta", "scale": "scale", "initial_state": "initial_state",
          "output_final_state": "output_final_state", "cu_seqlens": "cu_seqlens"}
_L2 = {"l2norm": "use_qk_l2norm_in_kernel"}

# How it inverts the chunk's matrix: blocks of 16, merged row by row in tf32, whatever the dtype of the tensors.
_SOLVED = "+accumulator:fp32+inverse:block16/tf32_truncated+merges:rows+scan:tree"

# Without a gate the scale multiplies the products of the rounded dS, and without a delta term scale q is rounded too
# and P^T dO is not kept (fla/ops/common/chunk_o.py, chunk_h.py). An l2norm is a kernel of its own, which stores q and k.
_SCALES_PRODUCTS = tuple(f"{one}+chunk_backward.dS_unscaled:{one}+chunk_backward.dS_score:fp32" for one in ("bf16", "fp16"))
_SCALES_QUERIES = tuple(f"{one}+chunk_backward.q_scaled:{one[:4]}+chunk_backward.dv_local:fp32" for one in _SCALES_PRODUCTS)

# vLLM's copy of it merges in fp32 unless FLA_TRIL_PRECISION says otherwise; its card has not been read.
_SOLVED_IN_FP32 = "+accumulator:fp32+inverse:block16/fp32+merges:rows+scan:tree+card:nearest"

# The constants of its Triton kernels; T and B are not constants.
_COMPILED = ("Hk", "Hv", "dk", "dv", "chunk", "contract", "form", "state", "l2norm")

# For a function that makes its own decay: data of one regime, and no law that changes decays (the padding of
# `serving` has none) or exchanges heads.
_OWN_DECAY = ["regime = retnet", "law != no_op", "law != reset", "law != head_permutation", "law != serving"]


# Functions of FLA that the gate ran in the interpreter, with a dozen cases each; on a device (docs/lookup/peers.md) it
# ran all of them.
_RAN = ("fused_recurrent_simple_gla", "fused_recurrent_gated_delta_rule", "fused_recurrent_delta_rule",
        "fused_recurrent_linear_attn", "fused_recurrent_retention", "chunk_simple_gla", "chunk_linear_attn")


def _without(arguments, *names):
    return {k: v for k, v in arguments.items() if k not in names}


def _fla(function, system, form, module, cpu, cuda, arguments, options=None, limits=(), traps="", kernel=None,
         chunk=None, gradients=()):
    if chunk:
        arguments = dict(arguments, chunk=chunk)
    grouped = system == "gated_delta_rule"
    conventions = {"heads": "interleaved" if grouped else "repeated"}
    if "l2norm" not in arguments:
        conventions["l2norm"] = "outside"
    tried = dict({"cpu": "0.6.0"} if function in _RAN else {}, cuda="0.6.0")
    return Adapter("fla." + function, kernel or "fla." + system, system, form, "flash-linear-attention", _FLA,
                   f"fla.ops.{module}:{function}", "torch", {"cpu": cpu, "cuda": cuda}, arguments, dict(options or {}),
                   list(limits), conventions, tried, traps, _COMPILED, gradients=gradients)


def _naive(function, system, form, module, arguments, traps="", limits=(), **conventions):
    """FLA's references, which use only torch."""
    return Adapter("fla." + function, f"fla.naive.{system}", system, form, "flash-linear-attention", _FLA,
                   f"fla.ops.{module}.naive:{function}", "torch", {"cpu": ["fp32"]}, arguments, {},
                   ["form != packed"] + list(limits), {"heads": "repeated", "l2norm": "outside", **conventions},
                   {"cpu": "0.6.0"}, traps)


_DENSE = _without(_DELTA, "cu_seqlens")
_SUMMED = "sums g over a chunk: decays after a reset in it are lost, as in fla.chunk_gated_delta_rule"

# FlashInfer's prefill kernels need widths of 128, contiguous tensors and a nonzero scale, and do not write the
# final state of a sequence without tokens (docs/lookup/peers.md).
_PREFILL = ["chunk = 64", "T >= 1", "dk = 128", "dv = 128", "scale != 0", "shortest >= 1"]
_SM100 = "compute capability 10.0, 10.3 or 10.7 alone"
_CUDNN = {"state": "vk", "heads": "interleaved", "layout": "THD", "cu_seqlens": "int32"}
_COUNTED = ("the place of a chunk is counted by sequences that have chunks, so that tokens after an empty sequence are read as "
            "another's")


def _flashinfer(suffix, kernel, options, limits=(), traps="", untried="", decay="linear"):
    return Adapter("flashinfer.chunk_gated_delta_rule" + suffix, kernel + ".gated_delta_rule", "gated_delta_rule", "chunked",
                   "flashinfer-python", ("0.7.4",), "flashinfer.gdn_prefill:chunk_gated_delta_rule", "torch",
                   {"cuda": ["bf16+card:nearest", "fp16+card:nearest"]}, dict(_DELTA, **_L2), options,
                   _PREFILL + list(limits), {"decay": decay, "state": "vk", "heads": "interleaved", "layout": "THD"}, {},
                   traps + "; the final state of a sequence without tokens stays unwritten; the contract is a guess from its source",
                   ("contract", "state", "final", "l2norm"), strided=False,
                   untried=untried)


def _flashqla(suffix, kernel, options, limits, traps):
    return Adapter("flashqla.chunk_gated_delta_rule" + suffix, kernel + ".gated_delta_rule", "gated_delta_rule", "chunked",
                   "flash-qla", ("0.1.3",), "flash_qla:chunk_gated_delta_rule", "torch",
                   {"cuda": ["bf16+card:nearest", "fp16+card:nearest"]}, dict(_DELTA, **_L2), options,
                   ["chunk = 64", "T >= 1", "dk = 128", "dv = 128", "scale != 0"] + limits, {"heads": "interleaved"}, {},
                   traps + "; the contract is a guess from its source",
                   ("Hk", "Hv", "contract", "form", "state", "final", "l2norm", "scale"), strided=False)


ROWS = (
    Adapter("ggml.gated_delta_net", "ggml.gated_delta_rule", "gated_delta_rule", "recurrent", "libggml-python",
            ("0.20.2", "0.20.2.post1"), "samestate.adapters.ggml:load()", "numpy", {"cpu": ["fp32"]}, {}, {},
            ["dk = dv", "form != packed"],
            {"heads": "tiled", "state": "vk", "scale": "dv", "l2norm": "outside", "state_argument": "required"},
            {"cpu": "0.20.2.post1"}, "heads h mod Hk; state [value, key]; the scale is dv^-1/2, fixed"),
    Adapter("mlx.gated_delta_ops", "mlx.gated_delta_rule", "gated_delta_rule", "recurrent", "mlx-lm", ("0.32.2",),
            "samestate.adapters.mlx:gated_delta_ops()", "mlx", {"cpu": ["fp32"]},
            {"q": "q", "k": "k", "v": "v", "g": "g", "beta": "beta", "initial_state": "state"}, {},
            ["form != packed", "T >= 1"],
            {"decay": "linear", "state": "vk", "scale": "folded", "heads": "interleaved", "l2norm": "outside"},
            {"cpu": "0.32.2"}, "g is the factor; no scale inside; state [value, key]"),
    Adapter("hf.torch_chunk_gated_delta_rule", "hf.gated_delta_rule", "gated_delta_rule", "chunked", "transformers",
            ("5.23.0", "5.24.0"),
            "transformers.models.qwen3_next.modeling_qwen3_next:torch_chunk_gated_delta_rule.__wrapped__", "torch",
            {"cpu": ["fp32", "bf16_io"], "cuda": ["fp32", "bf16_io"]},
            {"q": "query", "k": "key", "v": "value", "g": "g", "beta": "beta", "chunk": "chunk_size",
             "initial_state": "initial_state", "output_final_state": "output_final_state",
             "l2norm": "use_qk_l2norm_in_kernel"}, {}, ["form != packed", "T >= 1", "chunk >= 1"],
            {"scale": "dk", "heads": "interleaved"}, {"cpu": "5.24.0"},
            "with FLA installed the plain name runs FLA; a scale is ignored; sums of g lose the decays that "
            "come after a reset in its chunk, and g = -inf gives NaN"),
    Adapter("hf.torch_recurrent_gated_delta_rule", "hf.gated_delta_rule", "gated_delta_rule", "recurrent",
            "transformers", ("5.23.0", "5.24.0"),
            "transformers.models.qwen3_next.modeling_qwen3_next:torch_recurrent_gated_delta_rule.__wrapped__",
            "torch", {"cpu": ["fp32", "bf16_io"], "cuda": ["fp32", "bf16_io"]},
            {"q": "query", "k": "key", "v": "value", "g": "g", "beta": "beta", "initial_state": "initial_state",
             "output_final_state": "output_final_state", "l2norm": "use_qk_l2norm_in_kernel"}, {},
            ["form != packed", "T >= 1"], {"scale": "dk", "heads": "interleaved"}, {"cpu": "5.24.0"},
            "with FLA installed the plain name runs FLA"),
    _fla("chunk_gated_delta_rule", "gated_delta_rule", "chunked", "gated_delta_rule", ["fp32"],
         ["bf16" + _SOLVED, "fp16" + _SOLVED + "+card:nearest", "tf32_truncated" + _SOLVED + "+card:nearest"],
         dict(_DELTA, **_L2),
         limits=["chunk in 16 32 64"], chunk="chunk_size",
         traps="the fifth position of fused_recurrent is gk; dispatches to FlashQLA if that is installed (switched "
               "off here); fp32 is tf32 on a device"),
    _fla("fused_recurrent_gated_delta_rule", "gated_delta_rule", "recurrent", "gated_delta_rule", ["fp32"],
         ["fp32", "bf16+norm:unrounded", "fp16+norm:unrounded"], dict(_DELTA, **_L2),
         traps="the fifth position is gk, not beta; beta=None is created with Hk heads; an l2norm inside stays in fp32"),
    _fla("chunk_delta_rule", "delta_rule", "chunked", "delta_rule", ["fp16"],
         ["bf16", "fp16+card:nearest"], dict(_without(_DELTA, "g"), **_L2), limits=["chunk in 16 32 64"], chunk="chunk_size",
         traps="refuses fp32 tensors", gradients=tuple(f"{one}+l2norm_backward.operand:{one[:4]}" for one in _SCALES_PRODUCTS)),
    _fla("fused_recurrent_delta_rule", "delta_rule", "recurrent", "delta_rule", ["fp32"],
         ["fp32", "bf16", "fp16"], dict(_without(_DELTA, "g"), **_L2), limits=["scale in default 1 16 0.0001220703125"],
         traps="asserts that the scale is positive"),
    _fla("chunk_simple_gla", "retention", "chunked", "simple_gla", ["fp32"],
         ["tf32_truncated+accumulator:fp32+exponential:exact+scan:tree", "bf16", "fp16"], _without(_DELTA, "beta"),
         limits=["chunk = 64"],
         traps="g = -1e38 (regime reset) gave NaN in bf16 on an H100, and decays after a reset in its chunk are lost"),
    _fla("fused_recurrent_simple_gla", "retention", "recurrent", "simple_gla", ["fp32"], ["fp32", "bf16", "fp16"],
         _without(_DELTA, "beta")),
    _fla("chunk_retention", "retention", "chunked", "retention", ["fp32"], ["tf32_truncated", "bf16", "fp16"],
         _without(_DELTA, "g", "beta"), limits=_OWN_DECAY + ["chunk = 64"], kernel="fla.retnet",
         traps="computes its decay itself, ln(1 - 2^(-5-h)): only data of the regime retnet"),
    _fla("fused_recurrent_retention", "retention", "recurrent", "retention", ["fp32"], ["fp32", "bf16", "fp16"],
         _without(_DELTA, "g", "beta"), limits=_OWN_DECAY, kernel="fla.retnet",
         traps="computes its decay itself: only data of the regime retnet"),
    _fla("chunk_linear_attn", "linear_attention", "chunked", "linear_attn", ["fp32"], ["tf32_truncated", "bf16", "fp16"],
         _without(_DELTA, "g", "beta"), {"normalize": False}, limits=["chunk = 64"],
         traps="normalize is True by default here and False in fused_recurrent_linear_attn",
         gradients=_SCALES_QUERIES + ("tf32_truncated+card:nearest",)),
    _fla("fused_recurrent_linear_attn", "linear_attention", "recurrent", "linear_attn", ["fp32"], ["fp32", "bf16", "fp16"],
         _without(_DELTA, "g", "beta"), {"normalize": False}),
    _naive("naive_recurrent_gated_delta_rule", "gated_delta_rule", "recurrent", "gated_delta_rule", _DENSE,
           "beta comes before g here, but after it in naive_chunk_gated_delta_rule"),
    _naive("naive_chunk_gated_delta_rule", "gated_delta_rule", "chunked", "gated_delta_rule",
           dict(_DENSE, chunk="chunk_size"), _SUMMED, ["chunk >= 1"]),
    _naive("delta_rule_recurrence", "delta_rule", "recurrent", "delta_rule", _without(_DENSE, "g", "scale"),
           "[B, H, T, D], and no scale: dk^-1/2", ["T >= 1"], layout="BHTD", scale="dk"),
    _naive("naive_recurrent_simple_gla", "retention", "recurrent", "simple_gla", _without(_DENSE, "beta")),
    _naive("naive_chunk_simple_gla", "retention", "chunked", "simple_gla",
           dict(_without(_DENSE, "beta"), chunk="chunk_size"), _SUMMED, ["chunk >= 1"]),
    _naive("naive_recurrent_linear_attn", "linear_attention", "recurrent", "linear_attn",
           _without(_DENSE, "g", "beta")),
    _flashinfer("", "flashinfer", {}, traps="g is the factor, and 1e-10 is added to it, so that a decay of 0 leaves 1e-10 of the "
                "state; scale = 0 means the default; no batch axis; fp32 states [value, key], contiguous; with B Hv below half "
                "of the multiprocessors (66 on an H200) it divides a sequence into parallel chunks, else it uses one block per head"),
    _flashinfer(".fused", "flashinfer.fused", {"backend": "flashinfer", "use_cp": False},
                traps="what the plain name runs if B Hv is 66 or more on an H200: one block per head"),
    _flashinfer(".cp", "flashinfer.cp", {"backend": "flashinfer", "use_cp": True}, ["Hv <= 16"],
                traps="what the plain name runs below that; sequences of 129 tokens or more are divided, and states between parts are "
                "carried on by fp32 arithmetic up to 16 heads"),
    _flashinfer(".cp_many_heads", "flashinfer.cp_many_heads", {"backend": "flashinfer", "use_cp": True},
                ["Hv >= 17"], traps="from 17 heads on states between parts are carried on by tensor cores"),
    _flashinfer(".cake_gdn", "flashinfer.cake_gdn", {"backend": "cake_gdn", "use_cp": False}, untried=_SM100,
                traps="refuses heads that csrc/gdn/cake/manifest.json does not list"),
    _flashinfer(".cudnn", "flashinfer.cudnn", {"backend": "cudnn"}, untried=_SM100,
                traps="cuDNN's front end 1.31 and later, which adds its own floor of 1e-10 to the factor"),
    _flashinfer(".sm120_cute", "flashinfer.sm120_cute", {"backend": "sm120_cute", "gate_domain": "log"},
                untried="compute capability 12.0: on any other device it passes the call to the other back ends",
                traps="g is the logarithm here; without cu_seqlens_cpu it passes the call on", decay="ln"),
    _flashqla("", "flashqla", {}, ["shortest >= 1"],
              "only fp16 and bf16; sm90 and later; scale = 0 means the default; for one packed row it decides by a model of costs "
              "whether sequences are divided, and refuses one without tokens (`invalid sequence lengths`)"),
    _flashqla(".serial", "flashqla.serial", {"auto_cp": False}, [],
              "no sequence is divided; the place of a chunk is counted by sequences that have chunks, so that tokens after an empty "
              "sequence are read as another's"),
    _flashqla(".divided", "flashqla.divided", {"force_intra_cp": True}, ["B = 1", "shortest >= 1"],
              "sequences of 257 tokens or more are divided into parts of at least four chunks; those of a dense batch are not"),
    Adapter("fla.chunk_gated_delta_rule.intracard", "fla.intracard.gated_delta_rule", "gated_delta_rule", "chunked",
            "flash-linear-attention", _FLA, "samestate.adapters.family_calls:fla_intracard()", "torch",
            {"cuda": [kind + _SOLVED + "+card:nearest" for kind in ("bf16", "fp16", "tf32_truncated")]}, {}, {},
            ["chunk in 16 32 64", "T >= 1"], {"heads": "interleaved", "layout": "THD"}, {},
            "FLA_INTRACARD_CP=1, inference_mode and cu_seqlens: else FLA divides nothing; by default it divides from 384 chunks on, "
            "into parts of 128 and more, here from 6 on into parts of 2; cu_seqlens that are edited in place are read as they "
            "were", _COMPILED),
    Adapter("vllm.fused_recurrent_gated_delta_rule", "vllm.gated_delta_rule", "gated_delta_rule", "recurrent", "vllm",
            ("0.33.0",), "samestate.adapters.family_calls:vllm_recurrent()", "torch",
            {"cuda": ["fp32", "bf16+norm:unrounded"]}, {}, {}, ["scale in default 1 16 0.0001220703125", "T >= 1"],
            {"state": "vk", "heads": "interleaved", "state_argument": "required"}, {},
            "without slots the state of sequence n is read at the row of its first token, and one per token is returned; slots "
            "up to 0 are skipped; states [value, key]; the scale must be positive; the contract is a guess from its source",
            _COMPILED),
    Adapter("vllm.chunk_gated_delta_rule", "vllm.gated_delta_rule", "gated_delta_rule", "chunked", "vllm", ("0.33.0",),
            "vllm.third_party.flash_linear_attention.ops.chunk:chunk_gated_delta_rule", "torch",
            {"cuda": ["bf16" + _SOLVED_IN_FP32, "fp16" + _SOLVED_IN_FP32]}, dict(_DELTA, **_L2), {},
            ["chunk = 64", "T >= 1", "dk <= 256"], {"state": "vk", "heads": "interleaved"}, {},
            "refuses fp32 tensors; states [value, key]; FLA_TRIL_PRECISION=tf32 is another kernel; " + _COUNTED + "; the contract is a guess from its source", _COMPILED),
    Adapter("sglang.chunk_gated_delta_rule", "sglang.gated_delta_rule", "gated_delta_rule", "chunked", "sglang", ("0.5.23",),
            "samestate.adapters.family_calls:sglang_chunk()", "torch",
            {"cuda": ["bf16" + _SOLVED + "+card:nearest", "fp16" + _SOLVED + "+card:nearest"]}, {}, {},
            ["chunk = 64", "T >= 1", "dk <= 256"],
            {"state": "vk", "heads": "interleaved", "state_argument": "required"}, {},
            "refuses fp32 tensors; states [value, key] in a pool, in place, and rows of it in every call; its third result "
            "is the states between chunks; " + _COUNTED + "; the contract is a guess from its source", _COMPILED),
    Adapter("cudnn.gated_delta_net", "cudnn.gated_delta_rule", "gated_delta_rule", "chunked", "nvidia-cudnn-frontend",
            ("1.32.0",), "cudnn.linear_attention:gated_delta_net", "torch",
            {"cuda": ["bf16+card:nearest", "fp16+card:nearest"]}, dict(_DELTA, **_L2), {"plan_name": "gdn_frost"},
            ["chunk = 64", "T >= 1", "dk in 64 128", "dv in 64 128"], _CUDNN, {},
            "no batch axis; states [value, key]; the result for a state that is not requested is an empty tensor; the contract "
            "is a guess from its source", strided=False, untried=_SM100),
    Adapter("cudnn.gated_delta_net.cutile", "cudnn.cutile.gated_delta_rule", "gated_delta_rule", "chunked",
            "nvidia-cudnn-frontend", ("1.32.0",), "cudnn.linear_attention:gated_delta_net", "torch",
            {"cuda": ["bf16+card:nearest", "fp16+card:nearest"]}, dict(_DELTA, **_L2), {"plan_name": "gdn_cutile"},
            ["chunk = 64", "T >= 1", "dk <= 256", "scale != 0"], _CUDNN, {},
            "used if the other engine declines; cu_seqlens int32; scale = 0 means the default; one graph per shape; the contract is "
            "a guess from its source", strided=False,
            untried="cuda.tile, CUDA 13.3 or later, and a device that cuda.tile supports: 1.7.0 does not support Hopper"),
)
