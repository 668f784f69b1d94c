"""Definitions of FlashInfer-Bench with fused gates (A_log, a, dt_bias, b) for prefill, decode and multi-token
prediction. They are judged as the system `gated_delta_step`, whose bounds include the rounding of the gates,
with the scale dk^-1/2 and without an l2norm.

The state of a request is in one slot of a pool. A definition without a pool receives only that slot; prefill
receives requests of equal length end to end; for multi-token prediction (T > 1) the state after the last token
is the last of the intermediate states, because the definition does not change the pool.
"""
import math
import re
import struct
from array import array

from .errors import ReturnError
from .subject import Subject
from .trace_format import BYTES, DTYPES, FormatError

SYSTEM = "gated_delta_step"
_SHORT = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}


def subject(rule, function, contract, form, device, gives_outputs):
    """The Subject that calls `function` with the inputs in the definition's order."""
    if form not in (None, "recurrent"):
        raise FormatError(f"--form {form}: fused gates are judged as {SYSTEM}, whose form is recurrent; leave it out")
    limits = [f"{key} = {size}" for key, size in rule.sizes.items()]
    limits += ["l2norm = 0", {"prefill": "T >= 1", "decode": "T = 1", "mtp": "T >= 2"}[rule.stage]]
    inputs, outputs = rule.definition.inputs, rule.definition.outputs
    dtypes = {name: _SHORT[inputs[name][1]] for name in ("q", "k", "v", "a", "b")}
    dtypes["o"] = _SHORT[outputs["output"][1]]

    def solution(q, k, v, a, b, A_log, dt_bias, slot, pool):
        import torch

        each, rows = torch.arange(len(pool), device=pool.device), slot[:, 0].long()
        turned = (lambda x: x.transpose(-1, -2).contiguous()) if rule.state == "vk" else lambda x: x.contiguous()
        given = {"q": q, "k": k, "v": v, "a": a, "b": b, "A_log": A_log, "dt_bias": dt_bias,
                 "scale": rule.sizes["dk"] ** -0.5}
        tokens, whole = q.shape[1], lambda name: getattr(torch, inputs[name][1])
        if rule.stage == "mtp":
            indices = each * pool.shape[1] + rows
            states = given["initial_state"] = turned(pool.flatten(0, 1))
            given["initial_state_indices"] = indices.to(whole("initial_state_indices"))
            given["intermediate_states_buffer"] = states.new_full((len(states), tokens, *states.shape[1:]), float("nan"))
            shapes = {"output": tuple(v.shape), "final_state": tuple(states.shape)}
        else:
            given["state"] = turned(pool[each, rows])
            if rule.stage == "prefill":
                given.update({name: given[name].flatten(0, 1) for name in ("q", "k", "v", "a", "b")})
                ends = torch.arange(len(pool) + 1, device=pool.device) * tokens
                given["cu_seqlens"] = ends.to(whole("cu_seqlens"))
            shapes = {"output": tuple(given["v"].shape), "new_state": tuple(given["state"].shape)}
        kinds = {name: getattr(torch, dtype) for name, (_, dtype) in outputs.items()}
        before = given["initial_state"].clone() if rule.stage == "mtp" else None
        arguments = [given[name] for name in inputs]
        if gives_outputs:
            made = [torch.full(shapes[name], float("nan"), dtype=kinds[name], device=q.device) for name in kinds]
            function(*arguments, *made)
        else:
            made = function(*arguments)
        from .flashinfer_bench import checked

        output, state = checked(made, shapes, kinds, torch)
        if rule.stage == "mtp":
            if not torch.equal(state.view(torch.int32), before.view(torch.int32)):
                raise ReturnError("final_state is not the pool that was given, which the definition leaves as it is")
            if not torch.equal(given["initial_state"].view(torch.int32), before.view(torch.int32)):
                raise ReturnError("the solution wrote into initial_state, which the definition leaves as it is")
            state = given["intermediate_states_buffer"][indices, tokens - 1]
        written = pool.clone()
        written[each, rows] = turned(state)
        return {"o": output.reshape(v.shape), "pool": written}

    name = "solution." + re.sub(r"[^A-Za-z0-9_]", "_", rule.definition.name)
    return Subject(solution, SYSTEM, "recurrent", contracts=[contract or rule.contract], limits=limits, array="torch",
                   device=device, name=name, about={"definition": rule.definition.name}, compiles=True, null_slot="none",
                   dtypes={tensor: kind for tensor, kind in dtypes.items() if kind != "fp32"})


# -- definitions and workloads

REFERENCE = '''import torch


@torch.no_grad()
def run({arguments}):
    """g = -e^A_log softplus(a + dt_bias), beta = sigmoid(b); S <- e^g S; S <- S + k (beta (v - S^T k))^T;
    output = scale S^T q. States are [.., V, K]; heads of q and k are repeated one after the other."""
    shape, group = v.shape, v.shape[-2] // q.shape[-2]
{ends}
    q, k, v = (x.reshape(-1, x.shape[-2], x.shape[-1]).float() for x in (q, k, v))
    q, k = (x.repeat_interleave(group, dim=1) for x in (q, k))
    g = -A_log.exp() * torch.nn.functional.softplus(a.float().reshape(-1, a.shape[-1]) + dt_bias)
    beta = b.float().reshape(-1, b.shape[-1]).sigmoid()
    output = torch.zeros_like(v)
    for n in range(len(ends) - 1):
        S = {first}
        for t in range(ends[n], ends[n + 1]):
            S = S * g[t].exp()[:, None, None]
            write = beta[t][:, None] * (v[t] - torch.einsum("hvk,hk->hv", S, k[t]))
            S = S + write[:, :, None] * k[t][:, None, :]
            output[t] = scale * torch.einsum("hvk,hk->hv", S, q[t])
{inside}
{after}
    return output.reshape(shape).to(torch.{dtype}), {state}
'''


def definition_of(stage, hk, hv, width, dtype):
    """The Definition, a JSON object, of prefill, decode or mtp with fused gates, named like FlashInfer's own."""
    const = lambda value: {"type": "const", "value": value}
    var = {"type": "var"}
    axes = {"prefill": {"total_seq_len": var, "num_seqs": var}, "decode": {"batch_size": var, "seq_len": const(1)},
            "mtp": {"batch_size": var, "seq_len": var}}[stage]
    axes = dict(axes, num_q_heads=const(hk), num_k_heads=const(hk), num_v_heads=const(hv), head_size=const(width))
    axes.update({"prefill": {"len_cu_seqlens": var}, "mtp": {"pool_size": var}}.get(stage, {}))
    tokens = ["total_seq_len"] if stage == "prefill" else ["batch_size", "seq_len"]
    tensor = lambda shape, kind, text: {"shape": shape, "dtype": kind, "description": text}
    heads = lambda name: tokens + [name, "head_size"]
    state = lambda *first: [*first, "num_v_heads", "head_size", "head_size"]
    inputs = {name: tensor(heads(axis), dtype, text) for name, axis, text in (
        ("q", "num_q_heads", "Queries."), ("k", "num_k_heads", "Keys."), ("v", "num_v_heads", "Values."))}
    if stage == "mtp":
        inputs["initial_state"] = tensor(state("pool_size"), "float32", "Pool of states, k last: [.., V, K].")
        inputs["initial_state_indices"] = tensor(["batch_size"], "int32", "Row of the pool of each sequence.")
    else:
        rows = "num_seqs" if stage == "prefill" else "batch_size"
        inputs["state"] = tensor(state(rows), "float32", "State, k last: [.., V, K].")
    inputs["A_log"] = tensor(["num_v_heads"], "float32", "g = -e^A_log softplus(a + dt_bias).")
    inputs["a"] = tensor(tokens + ["num_v_heads"], dtype, "What the decay depends on.")
    inputs["dt_bias"] = tensor(["num_v_heads"], "float32", "Added to a.")
    inputs["b"] = tensor(tokens + ["num_v_heads"], dtype, "beta = sigmoid(b).")
    if stage == "prefill":
        inputs["cu_seqlens"] = tensor(["len_cu_seqlens"], "int64", "Where sequences begin and end.")
    inputs["scale"] = tensor(None, "float32", "Factor of the output.")
    if stage == "mtp":
        inputs["intermediate_states_buffer"] = tensor(state("pool_size", "seq_len"), "float32", "Filled: the state after "
                                                      "each token, at its row of the pool.")
    last = "final_state" if stage == "mtp" else "new_state"
    outputs = {"output": tensor(heads("num_v_heads"), dtype, "Output."), last: tensor(
        state("pool_size" if stage == "mtp" else rows), "float32",
        "The pool as it was." if stage == "mtp" else "State after the last token.")}
    parts = {"prefill": dict(ends="    ends, new_state = cu_seqlens.tolist(), state.float().clone()", first="new_state[n]",
                             inside="", after="        new_state[n] = S", state="new_state"),
             "decode": dict(ends="    ends, new_state = range(shape[0] + 1), state.float().clone()", first="new_state[n]",
                            inside="", after="        new_state[n] = S", state="new_state"),
             "mtp": dict(ends="    ends = range(0, shape[0] * shape[1] + 1, shape[1])",
                         first="initial_state[initial_state_indices[n]].float()",
                         inside="            intermediate_states_buffer[initial_state_indices[n], t - ends[n]] = S",
                         after="", state="initial_state.clone()")}[stage]
    reference = REFERENCE.format(arguments=", ".join(inputs), dtype=dtype, **parts)
    return {"name": f"gdn_{stage}_qk{hk}_v{hv}_d{width}_k_last", "op_type": "gdn",
            "description": "Gated delta rule with fused gates, without l2norm.",
            "tags": [f"stage:{stage}", "layout:k-last"], "axes": axes,
            "constraints": ["len_cu_seqlens == num_seqs + 1"] if stage == "prefill" else [], "inputs": inputs,
            "outputs": outputs, "reference": re.sub(r"\n\n(?=    return|        new)", "\n", reference)}


def sizes_of(keys, stage):
    """{letter: size} for a case's axes that vary; sizes that its line omits have the system's default."""
    B, T, P = (int(keys.get(key, standard)) for key, standard in (("B", 1), ("T", 64), ("P", 3)))
    return {"T": T if stage == "mtp" else B * T, "N": B, "L": B + 1, "P": B * (P + 1)}


def _turned(values, rows, columns):
    """Matrices [columns, rows] from matrices [rows, columns], one after another."""
    out = array("f")
    for begin in range(0, len(values), rows * columns):
        matrix = values[begin:begin + rows * columns]
        for column in range(columns):
            out.extend(matrix[column::columns])
    return out


def tensors_of(held, keys, rule, as_dtype, extents, where):
    """{name: (dtype, extents, bytes)} of an exported case's tensors, in the form of the definition."""
    held = {name.rpartition(".")[2]: tensor for name, tensor in held.items() if name.startswith("input.")}
    floats = lambda name: array("f", held[name][2])
    sizes, B = rule.sizes, int(keys.get("B", 1))
    slots, pool = [int(x) for x in floats("slot")], floats("pool")
    each = len(pool) // B  # elements of one request's pool
    one = sizes["Hv"] * sizes["dk"] * sizes["dv"]
    count = each // one
    turn = lambda values: _turned(values, sizes["dk"], sizes["dv"]) if rule.state == "vk" else values
    own = lambda b: pool[b * each + slots[b] * one:][:one] if slots[b] >= 0 else array("f", bytes(4 * one))
    integers = lambda values, dtype: struct.pack(f"<{len(values)}{'q' if dtype == 'int64' else 'i'}", *values)
    out = {}
    for name, (shape, dtype) in rule.definition.inputs.items():
        if shape is None:
            continue
        if name == "state":
            data = b"".join(turn(own(b)).tobytes() for b in range(B))
        elif name == "initial_state":  # a row of zeros after each pool, for requests without a slot
            data = b"".join(turn(pool[b * each:(b + 1) * each]).tobytes() + bytes(4 * one) for b in range(B))
        elif name == "initial_state_indices":
            data = integers([b * (count + 1) + (slots[b] if slots[b] >= 0 else count) for b in range(B)], dtype)
        elif name == "intermediate_states_buffer":
            data = bytes(4 * math.prod(extents(shape)))
        elif name == "cu_seqlens":
            tokens = int(keys.get("T", 64))
            data = integers([n * tokens for n in range(B + 1)], dtype)
        else:
            kind, _, data = held[name]
            data = as_dtype(kind, dtype, data, where)
        if len(data) != BYTES[DTYPES[dtype]] * math.prod(extents(shape)):
            raise FormatError(f"{where}: {name} has {len(data)} bytes, expected {extents(shape)} of {dtype}")
        out[name] = DTYPES[dtype], extents(shape), data
    return out
