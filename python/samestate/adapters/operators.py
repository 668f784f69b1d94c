"""Rows of the table for systems of named tensors: norms, convolutions, scans. They are part of table.py."""
from .table import Adapter

_HF = ("5.24.0",)
_FLA = ("0.6.0",)
_MODELS = "transformers.models."


# The constants of these Triton kernels: widths, and which tensors are present. T and B are not constants.
_CONSTANTS = {"l2norm": ("H", "D"), "rms_norm": ("H", "D"), "gated_rms_norm": ("H", "D"),
              "gate_first_rms_norm": ("H", "D"), "short_convolution": ("C", "W", "bias", "activation"),
              "activation_gates": ("H",), "linear_attention_normalised": ("H", "dk", "dv"), "gated_delta_step": ("Hk", "Hv", "dk", "dv", "l2norm"),
              "selective_scan": ("D", "N"), "state_space_duality": ("H", "G", "P", "N")}


def _row(name, kernel, system, form, package, versions, function, array, devices, call=None, arguments=None,
         options=None, limits=(), tried="", on_device=(), traps="", conventions=None):
    variant = _CONSTANTS[system] + ("contract",) if "cuda" in devices else ()
    return Adapter(name, kernel, system, form, package, versions, function, array, devices, dict(arguments or {}),
                   dict(options or {}), list(limits), dict(conventions or {}), dict({"cpu": tried} if tried else {}, **dict(on_device)), traps, variant, call)


def _hf(name, system, form, where, call=None, **more):
    model, _, path = where.partition(":")
    function = f"{_MODELS}{model}.modeling_{model}:{path}"
    return _row("hf." + name, f"hf.{model}.{system}", system, form, "transformers", _HF, function, "torch",
                {"cpu": ["fp32"]}, call, tried="5.24.0", **more)


# On a device Triton computes the exponential as 2^x of a rounded x log2 e: silu and sigmoid of -53 were off by
# 3.4e-6 on an H100.
_EXPONENTIAL = {"gated_rms_norm", "gate_first_rms_norm", "short_convolution", "activation_gates", "gated_delta_step"}

# Gated on an H100. The others were not run there, since each width is compiled anew.
_ON_DEVICE = {"l2norm", "rms_norm", "rms_norm_gated", "rmsnorm_fn", "causal_conv1d", "causal_conv1d_update"}


def _fla(name, system, form, where, call=None, kernel=None, limits=(), contract="fp32", **more):
    contract = "fp32+exponential:ex2" if system in _EXPONENTIAL else contract
    return _row("fla." + name, kernel or "fla." + system, system, form, "flash-linear-attention", _FLA, "fla." + where,
                "torch", {"cpu": ["fp32"], "cuda": [contract]}, call, limits=("T >= 1",) + tuple(limits),
                tried="0.6.0", on_device={"cuda": "0.6.0"} if name in _ON_DEVICE else {}, **more)


def _sixteen(row, kind, tensors, traps=""):
    """The same function on 16-bit tensors: if only loads and stores use 16 bits and it computes in fp32, its
    contract is fp16_io or bf16_io. Triton's interpreter does not support bf16, and on a device none was run."""
    head, _, system = row.kernel.rpartition(".")
    devices = {}
    for device, (contract,) in row.devices.items():
        if device == "cuda" or kind == "fp16" or row.package != "flash-linear-attention":
            devices[device] = [kind + "_io" + contract[len("fp32"):]]
    tried = {device: version for device, version in row.tried.items() if device in devices and device != "cuda"}
    return row._replace(name=f"{row.name}.{kind}", kernel=f"{head}.{kind}.{system}", devices=devices, tried=tried,
                        dtypes={tensor: kind for tensor in tensors.split()}, traps=traps)


FP32 = (
    _fla("l2norm", "l2norm", "fused", "modules.norm.l2norm:l2norm", arguments={"x": "x"},
         traps="eps 1e-6 inside the root; the module of the same name is l2_norm in older versions"),
    _fla("rms_norm", "rms_norm", "fused", "modules.norm.layernorm:rms_norm", arguments={"x": "x", "weight": "weight"},
         options={"bias": None, "eps": 1e-6}, traps="eps is 1e-5 by default; the bias has no default and is third"),
    _fla("rms_norm_gated", "gated_rms_norm", "fused", "modules.norm.fused_norm_gate:rms_norm_gated",
         arguments={"x": "x", "z": "g", "weight": "weight"}, options={"bias": None, "eps": 1e-6},
         traps="FusedRMSNormGated calls it with an eps of 1e-5 by default, but its own is 1e-6; norm, then gate"),
    _fla("rmsnorm_fn", "gate_first_rms_norm", "fused", "modules.norm.layernorm_gated:rmsnorm_fn",
         arguments={"x": "x", "z": "z", "weight": "weight"},
         options={"bias": None, "eps": 1e-6, "norm_before_gate": False},
         traps="norm_before_gate is True by default, but Mamba-2 has the gate first"),
    _fla("causal_conv1d", "short_convolution", "gather", "modules.causal_conv1d.ops:causal_conv1d",
         "convolution_of_w_inputs",
         traps="states have W inputs, of which the oldest is not read; no activation by default, silu in "
               "ShortConvolution"),
    _fla("causal_conv1d_update", "short_convolution", "gather", "modules.causal_conv1d.ops:causal_conv1d_update",
         "update_of_w_inputs", kernel="fla.update.short_convolution",
         traps="the state has W inputs and is updated in place; residual is the third position, before weight; "
               "[1, N, C] is N sequences of one token, not N tokens"),
    _fla("fused_gdn_gate", "activation_gates", "branchless", "ops.gated_delta_rule.gate:fused_gdn_gate", "gate",
         traps="its g is the raw a"),
    _fla("gated_delta_step", "gated_delta_step", "recurrent",
         "ops.gated_delta_rule:fused_recurrent_gated_delta_rule", "step_of_states", conventions={"null_slot": "none"},
         traps="use_gate_in_kernel: g is the raw a, and use_beta_sigmoid_in_kernel: beta the raw b; softplus is its "
               "argument above 20"),
    _fla("chunk_linear_attn.normalised", "linear_attention_normalised", "chunked", "ops.linear_attn:chunk_linear_attn",
         "normalised", limits=["chunk = 64"], contract="tf32_truncated",
         traps="normalize is True by default here and False in fused_recurrent_linear_attn; the state is then (S, z), z "
               "[B, 1, H, dk]; 1e-10 is added to the normaliser"),
    _fla("fused_recurrent_linear_attn.normalised", "linear_attention_normalised", "recurrent",
         "ops.linear_attn:fused_recurrent_linear_attn", "normalised"),
    _hf("causal_conv1d_update", "short_convolution", "gather", "qwen3_next:causal_conv1d_update.__wrapped__",
        "update_of_channels_first", limits=["T >= 1", "W >= 2"],
        traps="x is [B, C, T]; the state is updated in place and may have W - 1 inputs or more: with W = 1 it would be "
              "copied whole; with causal_conv1d installed the plain name runs that"),
    _hf("causal_conv1d_fn", "short_convolution", "scatter", "qwen3_next:causal_conv1d_fn.__wrapped__",
        "convolution_without_state", limits=["T >= 1"],
        traps="x is [B, C, T]; it begins at zeros, and other arguments (seq_idx, initial_states) are ignored"),
    _hf("l2norm", "l2norm", "equation", "qwen3_next:l2norm", arguments={"x": "x"}),
    _hf("Qwen3NextRMSNorm", "zero_centred_rms_norm", "equation", "qwen3_next:Qwen3NextRMSNorm", "module",
        traps="the factor is 1 + weight"),
    _hf("Qwen3NextRMSNormGated", "gated_rms_norm", "equation", "qwen3_next:Qwen3NextRMSNormGated", "gated_module",
        traps="norm, then gate; the factor is weight, not 1 + weight"),
    _hf("MambaRMSNorm", "rms_norm", "equation", "mamba:MambaRMSNorm", "module"),
    _hf("MambaRMSNormGated", "gate_first_rms_norm", "equation", "mamba2:MambaRMSNormGated", "grouped_module",
        traps="gate, then norm, and the second argument is the width of a group, not eps"),
    _hf("mamba_selective_scan", "selective_scan", "blelloch", "mamba:mamba_selective_scan.__wrapped__",
        "selective_scan", limits=["T >= 1", "hold = 0"],
        traps="[B, D, T]; A is negative; it begins at zeros: N tokens in front write the state of a case; "
              "softplus only with delta_softplus"),
    _hf("mamba_selective_state_update", "selective_scan", "recurrent",
        "mamba:mamba_selective_state_update.__wrapped__", "selective_update", limits=["T >= 1", "hold = 0"],
        traps="after C come D, dt_bias, dt_softplus, z (in mamba_ssm D, z, dt_bias, dt_softplus); the state is "
              "updated in place"),
    _hf("mamba2_selective_state_update", "state_space_duality", "recurrent",
        "mamba2:mamba2_selective_state_update.__wrapped__", "duality_update", limits=["T >= 1"],
        traps="dt, dt_bias and D are [.., H, P] and A [H, P, N], repeated by its caller; it refuses a state that is not "
              "contiguous; positions are those of "
              "mamba_selective_state_update; the state is updated in place"),
    _hf("mamba2_chunk_scan", "state_space_duality", "chunked", "mamba2:mamba2_chunk_scan.__wrapped__",
        "duality_chunks", limits=["T >= 1", "chunk >= 1"],
        traps="softplus only with dt_softplus; dt_bias is applied without it too"),
    _hf("apply_rotary_pos_emb", "rotary_embedding", "full_width", "qwen3_next:apply_rotary_pos_emb", "rotary",
        limits=["interleaved = 0"], traps="[B, H, T, d], tables of both halves; pairs are (i, i + pairs)"),
    _row("mlx.ssm_attn", "mlx.state_space_duality", "state_space_duality", "chunked", "mlx-lm", ("0.32.2",),
         "samestate.adapters.mlx:ssm_attn()", "mlx", {"cpu": ["fp32"]}, "mlx_duality",
         limits=["T >= 1", "chunk >= 1"], tried="0.32.2",
         traps="steps are clipped at 0.001 by default; A_log, not A; its order is x A_log B C D dt dt_bias state"),
    _row("mlx.gated_delta_update", "mlx.gated_delta_step", "gated_delta_step", "recurrent", "mlx-lm", ("0.32.2",),
         "samestate.adapters.mlx:gated_delta_update()", "mlx", {"cpu": ["fp32+exponential:ex2"]}, "mlx_step",
         conventions={"null_slot": "none"},
         limits=["T >= 1", "l2norm = 0"], tried="0.32.2",
         traps="state [value, key]; the caller folds the scale into q; no l2norm inside; on a CPU exp(x) is "
               "2^(x log2 e) with the product rounded, 64 units at x = -80"),
)
_BY_NAME = {row.name: row for row in FP32}

# Functions that round in between are not here, because no contract of these systems expresses that: Hugging
# Face's norms, except those of Qwen3Next, round the normalised row before its weight; its l2norm and rotary
# round each product.
OPERATORS = FP32 + tuple(_sixteen(_BY_NAME[name], kind, tensors) for name, kinds, tensors in (
    ("fla.l2norm", "fp16 bf16", "x y"),
    ("fla.rms_norm", "fp16 bf16", "x weight y"),
    ("fla.rms_norm_gated", "fp16 bf16", "x z weight y"),
    ("fla.rmsnorm_fn", "fp16 bf16", "x z weight y"),
    ("fla.causal_conv1d", "fp16 bf16", "x kernel state bias y"),
    ("fla.causal_conv1d_update", "fp16 bf16", "x kernel state bias y"),
    ("hf.Qwen3NextRMSNorm", "fp16 bf16", "x weight y"),
) for kind in kinds.split())
