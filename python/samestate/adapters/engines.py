"""Rows of packages that run only on a device: serving engines, mamba_ssm, causal_conv1d, cuDNN. They are part
of operators.py. None was run on a device; python/tests/test_imitations.py compares each row with an imitation
of its function.
"""
from .operators import _row

_EX2 = "fp32+exponential:ex2"
_STATED = "a, b, A_log and dt_bias are raw; "
_GUESS = "; the contract is a guess from its source"


def _engine(name, system, form, package, version, function, call, contract=_EX2, kernel=None, limits=(), **more):
    return _row(name, kernel or f"{name.rpartition('.')[0]}.{system}", system, form, package, (version,), function,
                "torch", {"cuda": [contract]}, call, limits=("T >= 1",) + tuple(limits), **more)


def _step(engine, package, version, name, where, call, null_slot, traps, kernel=None, **more):
    return _engine(f"{engine}.{name}", "gated_delta_step", "recurrent", package, version, f"{where}:{name}", call,
                   kernel=kernel, conventions={"null_slot": null_slot} if null_slot != "-1" else {},
                   traps=_STATED + traps + _GUESS, **more)


_VLLM = "vllm.third_party.flash_linear_attention.ops."
_SGLANG = "sglang.kernels.ops.attention."
_PACKED = "fused_recurrent_gated_delta_rule_packed_decode"
_GATING = "fused_sigmoid_gating_delta_rule_update"

# q, k, v, a, b and o have 16 bits; states, A_log and dt_bias are fp32.
_SIXTEEN = dict.fromkeys(("q", "k", "v", "a", "b", "o"), "bf16")


def _flashinfer(name, call, limits, traps, region="", **more):
    """`region` says which kernel runs, if one name can run several; `more` are other fields of that row."""
    row = _step("flashinfer", "flashinfer-python", "0.7.4", name, "flashinfer.gdn_decode", call,
                "none" if name == "gated_delta_rule_decode" else "-1", traps,
                kernel=f"flashinfer.{name.rpartition('_')[2]}{region}.gated_delta_step",
                contract="bf16_io+exponential:ex2", limits=("dk >= 128", "dv >= 128") + limits)
    return row._replace(**{"name": row.name + region, "dtypes": _SIXTEEN, "strided": False, **more})


def _mamba(name, system, form, where, call, contract=_EX2, limits=(), traps=""):
    row = _engine("mamba_ssm." + name, system, form, "mamba-ssm", "2.3.2.post1", f"mamba_ssm.ops.{where}:{name}", call,
                  contract, limits=limits, traps=traps + _GUESS)
    return row._replace(variant=row.variant + (("chunk",) if form == "chunked" else ()))


def _convolution(name, call, limits, traps, kernel):
    return _engine("causal_conv1d." + name, "short_convolution", "gather", "causal-conv1d", "1.7.0",
                   f"causal_conv1d:{name}", call, kernel=kernel, limits=("W in 2 3 4",) + limits, traps=traps + _GUESS)


ENGINES = (
    _step("vllm", "vllm", "0.33.0", _PACKED, _VLLM + "fused_recurrent", "packed_decode_from_slot_1", "0",
          "the scale has no default; states [value, key]; slot 0 belongs to no request (in SGLang, slot -1)",
          kernel="vllm.packed.gated_delta_step"),
    _step("vllm", "vllm", "0.33.0", _GATING, _VLLM + "fused_sigmoid_gating", "gating_of_vllm", "none",
          "its order is A_log a b dt_bias q k v, SGLang's A_log a dt_bias .. q k v b; `beta` is that of softplus; states "
          "[value, key]; the outputs of slots up to 0 stay unwritten; without inplace_final_state it returns a state per "
          "token; slots of several tokens are [B, T]"),
    _step("sglang", "sglang", "0.5.23", _PACKED, _SGLANG + "fla.fused_recurrent", "packed_decode_from_slot_0", "-1",
          "the scale has no default; states [value, key]; sigmoid(b) is rounded to the dtype of b",
          kernel="sglang.packed.gated_delta_step"),
    _step("sglang", "sglang", "0.5.23", _GATING, _SGLANG + "linear.fused_sigmoid_gating_recurrent", "gating_of_sglang",
          "none",
          "softplus_beta and softplus_threshold have no default and come before q; strides of batch and heads are assumed "
          "to be dense; a slot of -1 starts at zeros and has an output; it returns only o"),
    _flashinfer("gated_delta_rule_decode", "flashinfer_decode", ("dv % 32 = 0",),
                "one token per call; fp32 states [key, value] in place; l2norm by default; from 32 requests on it is another "
                "kernel"),
    _flashinfer("gated_delta_rule_decode", "flashinfer_decode", ("dv % 32 = 0", "B >= 32"),
                "the kernel for 32 requests or more", region=".large_batch"),
    _flashinfer("gated_delta_rule_decode_pretranspose", "flashinfer_pretransposed", ("dv % 8 = 0",),
                "states [value, key]; a slot of -1 gives zeros with fp32 states, and with bf16 ones reads and writes "
                "slot 0; l2norm by default; several tokens of fp32 states are gated_delta_rule_mtp"),
    _flashinfer("gated_delta_rule_decode_pretranspose", "flashinfer_pretransposed", ("dk = 128", "dv = 128", "T = 1"),
                "states are rounded to bf16 at every token; a slot of -1 reads and writes slot 0", region=".bf16_state",
                dtypes=dict(_SIXTEEN, pool="bf16"), conventions={"null_slot": "none"}),
    _flashinfer("gated_delta_rule_mtp", "flashinfer_mtp", ("dk = 128", "dv = 128", "T >= 2"),
                "states [value, key]; disable_state_update is True by default; l2norm by default"),
    _mamba("selective_scan_fn", "selective_scan", "blelloch", "selective_scan_interface", "selective_scan_of_mamba_ssm",
           limits=["hold = 0"],
           traps="[B, D, T]; A is negative; no initial state: N tokens in front write that of a case; softplus only "
                 "with delta_softplus; after C come D, z, delta_bias"),
    _mamba("selective_state_update", "selective_scan", "recurrent", "triton.selective_state_update",
           "selective_update_of_mamba_ssm", limits=["hold = 0"],
           traps="after C come D, z, dt_bias (in Hugging Face's function D, dt_bias, dt_softplus, z, in vLLM's D, dt_bias, z); "
                 "without dt_bias it ends in an AttributeError; the state is updated in place"),
    _mamba("selective_state_update", "state_space_duality", "recurrent", "triton.selective_state_update",
           "duality_update_of_mamba_ssm", limits=["P >= 2", "N >= 2"],
           traps="it takes its fast path only if A, dt and dt_bias have stride 0 over the channels of a head: dense "
                 "copies are another kernel")._replace(name="mamba_ssm.selective_state_update.heads"),
    _mamba("mamba_chunk_scan_combined", "state_space_duality", "chunked", "triton.ssd_combined",
           "duality_chunks_of_mamba_ssm", "tf32_truncated+card:nearest", limits=["chunk in 16 32 64 128 256"],
           traps="after chunk_size come D, z, dt_bias, initial_states; softplus only with dt_softplus; cu_seqlens is read "
                 "only with return_varlen_states, and does not say where sequences begin: seq_idx does; they begin at zeros, but the first at "
                 "initial_states; states between chunks have the dtype of C"),
    _engine("cudnn.mamba2", "state_space_duality", "chunked", "nvidia-cudnn-frontend", "1.32.0",
            "cudnn.linear_attention:mamba2", "duality_chunks_of_cudnn", "bf16+card:nearest",
            limits=["chunk = 128", "N = 128", "P = 64"],
            traps="no batch axis; dt is raw, and softplus is its default; the result for a state that is not requested is an empty "
                  "tensor" + _GUESS)._replace(
        dtypes=dict.fromkeys(("x", "B", "C", "y"), "bf16"), strided=False,
        untried="compute capability 10.0, 10.3 or 10.7 alone"),
    _convolution("causal_conv1d_fn", "convolution_channels_last", ("C % 8 = 0",),
                 "x is [B, C, T], with states only if channels are adjacent; states have W - 1 inputs; no "
                 "activation by default; seq_idx is int32, excludes final states, and takes initial_states of the first sequence "
                 "alone", "causal_conv1d.short_convolution"),
    _convolution("causal_conv1d_update", "update_of_dao", (),
                 "x is [B, C, T]; the state is updated in place; no activation by default",
                 "causal_conv1d.update.short_convolution"),
)
