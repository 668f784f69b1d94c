#!/usr/bin/env python3
"""Runs flash-linear-attention on the inputs of a run file, on a CUDA device, and writes a run file of its outputs.

    samestate repro 'v1 gated_delta_rule T=4096 Hk=16 Hv=32 dk=128 contract=bf16 kernel=cuda.gated_delta_rule.chunked' --dump ours.safetensors
    python3 examples/peers/fla_run.py ours.safetensors fla.safetensors
    samestate judge fla.safetensors

Prints, as a line of JSON, the relative RMS errors of both files' o and final state against a recurrence in float64 that
stands here by itself. Needs torch and flash-linear-attention; run files of the recurrent family without packing.
"""
import json
import os
import struct
import sys

os.environ.setdefault("FLA_FLASH_QLA", "0")  # FLA's own Triton path
import torch  # noqa: E402


def read_run(path):
    with open(path, "rb") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(size))
        data = bytearray(file.read())
    meta = header.pop("__metadata__")
    tensors = {}
    for name, at in header.items():
        if at["dtype"] != "F32":
            raise SystemExit(f"{path}: {name} is {at['dtype']}; run files of `samestate repro --dump` are F32")
        begin, end = at["data_offsets"]
        values = torch.frombuffer(data, dtype=torch.float32, count=(end - begin) // 4, offset=begin)
        tensors[name] = values.reshape(at["shape"]).clone()
    return meta, tensors


def write_run(path, meta, tensors):
    header, offset = {"__metadata__": meta}, 0
    for name in sorted(tensors):
        size = tensors[name].numel() * 4
        header[name] = {"dtype": "F32", "shape": list(tensors[name].shape), "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path + ".part", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name in sorted(tensors):
            file.write(tensors[name].contiguous().numpy().tobytes())
    os.replace(path + ".part", path)


def flash_linear_attention(system, chunked, scale, dtype, x):
    """o and the final state of FLA's kernel of the system."""
    q, k, v = (x[name].to(dtype) for name in ("q", "k", "v"))
    groups = v.shape[2] // q.shape[2]
    arguments = {"scale": scale, "initial_state": x.get("initial_state"), "output_final_state": True}
    if system in ("gated_delta_rule", "delta_rule"):
        arguments["beta"] = x["beta"] if system == "gated_delta_rule" else x["beta"].to(dtype)
    if system in ("gated_delta_rule", "retention"):
        arguments["g"] = x["g"]
    if system != "gated_delta_rule":
        q, k = (t.repeat_interleave(groups, dim=2) for t in (q, k))
    if system == "gated_delta_rule":
        from fla.ops.gated_delta_rule import chunk_gated_delta_rule as chunk, fused_recurrent_gated_delta_rule as step
    elif system == "delta_rule":
        from fla.ops.delta_rule import chunk_delta_rule as chunk, fused_recurrent_delta_rule as step
    elif system == "retention":  # with the case's decays, not with RetNet's
        from fla.ops.simple_gla import chunk_simple_gla as chunk, fused_recurrent_simple_gla as step
    elif system == "linear_attention":
        from fla.ops.linear_attn import chunk_linear_attn as chunk, fused_recurrent_linear_attn as step
        arguments["normalize"] = False
    else:
        raise SystemExit(f"no kernel of {system}")
    o, state = (chunk if chunked else step)(q=q, k=k, v=v, **arguments)
    return o.float(), state.float()


def recurrence(system, scale, x):
    """The same in float64, a token at a time."""
    q, k, v = (x[name].double() for name in ("q", "k", "v"))
    groups = v.shape[2] // q.shape[2]
    q, k = (t.repeat_interleave(groups, dim=2) for t in (q, k))
    B, T, H, dk = k.shape
    dv = v.shape[3]
    S = x["initial_state"].double() if "initial_state" in x else torch.zeros(B, H, dk, dv, dtype=torch.float64, device=v.device)
    decay = x["g"].double().exp() if "g" in x else torch.ones(B, T, H, dtype=torch.float64, device=v.device)
    o = torch.empty(B, T, H, dv, dtype=torch.float64, device=v.device)
    for t in range(T):
        S = S * decay[:, t, :, None, None]
        u = v[:, t]
        if "beta" in x:
            u = x["beta"][:, t, :, None].double() * (u - torch.einsum("bhk,bhkv->bhv", k[:, t], S))
        S = S + k[:, t, :, :, None] * u[:, :, None, :]
        o[:, t] = torch.einsum("bhk,bhkv->bhv", q[:, t], S) * scale
    return o, S


def relative_rms(actual, expected):
    return ((actual.double() - expected).square().mean() / expected.square().mean()).sqrt().item()


def main():
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    meta, tensors = read_run(sys.argv[1])
    words = meta["case"].split()
    keys = dict(word.split("=", 1) for word in words[2:])
    if "lengths" in keys or keys.get("form", "chunked") not in ("chunked", "recurrent"):
        raise SystemExit("packed sequences and other forms than chunked and recurrent are not taken")
    inputs = {name: value.cuda() for name, value in tensors.items() if name not in ("o", "final_state")}
    scale = float(keys["scale"]) if "scale" in keys else tensors["k"].shape[-1] ** -0.5
    dtype = torch.bfloat16 if keys.get("contract", "fp32").startswith("bf16") else torch.float32
    with torch.no_grad():
        o, state = flash_linear_attention(words[1], keys.get("form") != "recurrent", scale, dtype, inputs)
        exact_o, exact_state = recurrence(words[1], scale, inputs)
    print(json.dumps({"case": meta["case"],
                      "fla": {"o": relative_rms(o, exact_o), "final_state": relative_rms(state, exact_state)},
                      "run": {"o": relative_rms(tensors["o"].cuda(), exact_o),
                              "final_state": relative_rms(tensors["final_state"].cuda(), exact_state)}}))
    written = dict(tensors, o=o.cpu(), final_state=state.cpu())
    write_run(sys.argv[2], dict(meta, kernel="fla"), written)


if __name__ == "__main__":
    main()
