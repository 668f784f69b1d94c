"""Workloads and traces of FlashInfer-Bench from cases and records, and definitions of the gated delta rule with
plain gates (flashinfer_bench.py is the entry point).
"""
import datetime
import json
import math
import os
import re
import shutil
import struct
import tempfile
import uuid

from . import flashinfer_fused
from .checking import run_command, _last
from .errors import CommandError, NothingRan
from .serving import Server
from .trace_format import (BYTES, DTYPES, Definition, Fields, FormatError, line_of, parsed, read_safetensors, safetensors,
                           safetensors_head, text_of, write_whole)

_LINE = re.compile(r"v1 gated_delta_(?:rule|step)( [A-Za-z_][A-Za-z0-9_]*=[A-Za-z0-9_.,:+-]+)*")


def plain_line(line):
    """A case line without the kernel and the contract, which belong to the solution; the data are the same."""
    return re.sub(r" (kernel|contract)=\S+", "", line)


def uuid_of(definition, line):
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"samestate {definition} {plain_line(line)}"))


def keys_of(line):
    return dict(word.split("=", 1) for word in line.split()[2:])


def axes_of(line, rule):
    """{axis: size} of a case, for the axes that vary."""
    keys = keys_of(line)
    if rule.steps:
        sizes = flashinfer_fused.sizes_of(keys, rule.stage)
        return {axis: sizes[letter] for letter, axis in rule.axes.items() if letter in sizes}
    if "lengths" in keys:
        lengths = [int(n) for n in keys["lengths"].split(",")]
        tokens, sequences = sum(lengths) + sum(int(n) for n in keys.get("unowned", "0").split(",")), len(lengths)
    else:
        sequences = int(keys.get("B", 1))
        tokens = sequences * int(keys.get("T", 1))
    sizes = {"T": tokens, "N": sequences, "L": sequences + 1}
    return {axis: sizes[letter] for letter, axis in rule.axes.items() if letter in sizes}


def scale_of(line, dk):
    """The scale of a case outside the exact regimes: dk^-1/2 in fp32, or the value of the key."""
    said = keys_of(line).get("scale", "default")
    value = dk ** -0.5 if said == "default" else float(said)
    return struct.unpack("<f", struct.pack("<f", value))[0]


# -- reading

def workloads_of(folder, rule):
    """([(line, workload)] for those workloads of the folder that are cases, and how many are not)."""
    name, known, foreign = rule.definition.name, [], 0
    path = os.path.join(folder, "workloads", rule.definition.op_type, name + ".jsonl")
    for number, text in enumerate(text_of(path).splitlines() if os.path.exists(path) else (), 1):
        if not text.strip():
            continue
        where = f"{path}:{number}"
        top = Fields(parsed(text, where), where)
        if top.get("definition", str) != name:
            raise FormatError(f"{where}: definition {top.get('definition', str)!r:.80}; expected {name}")
        work = Fields(top.get("workload", dict), where)
        identity, line = work.get("uuid", str), None
        for spec in work.get("inputs", dict).values():
            spec = Fields(spec, where)
            if spec.get("type", str) == "safetensors":
                line = _case_of(folder, spec.get("path", str), where)
                break
        system = flashinfer_fused.SYSTEM if rule.steps else "gated_delta_rule"
        if line is None or uuid_of(name, line) != identity or line.split(" ")[1] != system:
            foreign += 1
        else:
            known.append((line, work.value))
    return known, foreign


def _case_of(folder, path, where):
    """The case line in the metadata of a workload's tensors, or None."""
    if os.path.isabs(path) or ".." in path.split("/"):
        raise FormatError(f"{where}: path {path!r:.80}; expected one below the folder, without ..")
    head, _ = safetensors_head(os.path.join(folder, path))
    metadata = head.get("__metadata__")
    line = metadata.get("case") if isinstance(metadata, dict) else None
    if line is None:
        return None
    if not isinstance(line, str) or len(line) > 4096 or not _LINE.fullmatch(line):
        raise FormatError(f"{where}: {path} says it is case {line!r:.80}; expected a line v1 gated_delta_rule .. or v1 gated_delta_step ..")
    return line


def line_for(line, kernel):
    """The case of a workload with the kernel added; the data are the same."""
    line = plain_line(line)
    if kernel["system"] == flashinfer_fused.SYSTEM:
        pass
    elif kernel["form"] == "recurrent":
        line = re.sub(r" chunk=\d+", "", line)
        line = line.replace("form=packed", "form=packed chunk=0")
        line = line if "form=" in line else line.replace("v1 gated_delta_rule", "v1 gated_delta_rule form=recurrent")
    else:
        line = line.replace(" form=recurrent", "")
    return f"{line} contract={kernel['contracts'][0]} kernel={kernel['name']}"


# -- traces

def _status(record):
    verdict, reason = record.get("verdict"), str(record.get("reason", ""))
    if verdict in ("fail", "flaky"):
        return "RUNTIME_ERROR" if record.get("gate") == "memory" else "INCORRECT_NUMERICAL"
    if verdict == "crash":
        known = {" has shape ": "INCORRECT_SHAPE", " has dtype ": "INCORRECT_DTYPE"}
        return next((status for sign, status in known.items() if sign in reason), "RUNTIME_ERROR")
    return {"pass": "PASSED", "timeout": "TIMEOUT"}.get(verdict)


def _number(value):
    """A JSON number, or FlashInfer-Bench's word for a missing one."""
    number = float(value)
    return number if math.isfinite(number) else "NaN" if number != number else "Infinity"


def _correctness(record):
    """The errors at the place that is worst relative to its bound, as the judge reports them."""
    expected, actual = (float(record.get(key, "nan")) for key in ("expected", "actual"))
    away = abs(actual - expected)
    relative = away / abs(expected) if expected else 0.0 if away == 0 else float("inf")
    said = {key: record.get(key) if not isinstance(record.get(key), float) else _number(record[key])
            for key in ("gate", "ratio", "error", "bound", "worst", "law", "regime")}
    return {"max_absolute_error": _number(away), "max_relative_error": _number(relative),
            "extra": {"samestate": said}}


def _environment(device):
    import platform
    from importlib import metadata

    libs = {}
    for name in ("torch", "triton"):
        try:
            libs[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            pass
    return {"hardware": device or platform.processor() or platform.machine() or "CPU", "libs": libs}


def records_of(log):
    """(the run's head, its cases) from a gate's records; reading stops at an incomplete line."""
    head, cases = {}, []
    for text in open(log, encoding="utf-8").read().splitlines() if os.path.exists(log) else ():
        try:
            record = json.loads(text)
        except ValueError:
            break
        head = record if record.get("event") == "run" else head
        cases += [record] if record.get("event") == "end" else []
    return head, cases


def traces(pairs, rule, solution, device):
    """A Trace for each (record, workload or None) that was judged; cases that were not judged have none."""
    made, environment = [], _environment(device)
    now = datetime.datetime.now(datetime.timezone.utc).isoformat()
    for record, workload in pairs:
        status = _status(record)
        if status is None:
            continue
        line = record["line"]
        evaluation = {"status": status, "environment": environment, "timestamp": now,
                      "log": f"{line}\n{record.get('verdict')}: {record.get('reason') or 'within its bounds'}"}
        if status in ("PASSED", "INCORRECT_NUMERICAL"):
            evaluation["correctness"] = _correctness(record)
        if status == "PASSED":
            evaluation["performance"] = {"latency_ms": 0.0, "reference_latency_ms": 0.0, "speedup_factor": 0.0}
            evaluation["log"] += "\nnot timed: performance is 0"
        workload = workload or {
            "axes": axes_of(line, rule), "uuid": uuid_of(rule.definition.name, line),
            "inputs": {name: {"type": "random"} if axes is not None else
                       {"type": "scalar", "value": scale_of(line, rule.sizes["dk"])}
                       for name, (axes, _) in rule.definition.inputs.items()}}
        made.append({"definition": rule.definition.name, "workload": workload, "solution": solution.name,
                     "evaluation": evaluation})
    return made


# -- definitions and workloads

_REFERENCE = '''import torch


@torch.no_grad()
def run(q, k, v, state, g, beta{lengths}, scale):
    """S <- e^g S; S <- S + k (beta (v - S^T k))^T; output = scale S^T q. The state is [.., V, K]; heads of q and k are
    repeated one after the other."""
    shape, group = v.shape, v.shape[-2] // q.shape[-2]
{ends}
    q, k, v = (x.reshape(-1, x.shape[-2], x.shape[-1]).float() for x in (q, k, v))
    q, k = (x.repeat_interleave(group, dim=1) for x in (q, k))
    g, beta = (x.reshape(-1, x.shape[-1]).float() for x in (g, beta))
    output, new_state = torch.zeros_like(v), state.float().clone()
    for n in range(len(ends) - 1):
        S = new_state[n]
        for t in range(ends[n], ends[n + 1]):
            S = S * g[t].exp()[:, None, None]
            write = beta[t][:, None] * (v[t] - torch.einsum("hvk,hk->hv", S, k[t]))
            S = S + write[:, :, None] * k[t][:, None, :]
            output[t] = scale * torch.einsum("hvk,hk->hv", S, q[t])
        new_state[n] = S
    return output.reshape(shape).to(torch.{dtype}), new_state
'''


def definition_of(stage, hk, hv, width, dtype):
    """The Definition, a JSON object, of prefill or decode with plain gates."""
    prefill = stage == "prefill"
    const = lambda value: {"type": "const", "value": value}
    axes = {"total_seq_len" if prefill else "batch_size": {"type": "var"}}
    axes.update({"num_seqs": {"type": "var"}} if prefill else {"seq_len": const(1)})
    axes.update(num_q_heads=const(hk), num_k_heads=const(hk), num_v_heads=const(hv), head_size=const(width))
    axes.update({"len_cu_seqlens": {"type": "var"}} if prefill else {})
    tokens = ["total_seq_len"] if prefill else ["batch_size", "seq_len"]
    tensor = lambda shape, kind, text: {"shape": shape, "dtype": kind, "description": text}
    heads = lambda name: tokens + [name, "head_size"]
    state = ["num_seqs" if prefill else "batch_size", "num_v_heads", "head_size", "head_size"]
    gate = tokens + ["num_v_heads"]
    inputs = {"q": tensor(heads("num_q_heads"), dtype, "Queries."), "k": tensor(heads("num_k_heads"), dtype, "Keys."),
              "v": tensor(heads("num_v_heads"), dtype, "Values."),
              "state": tensor(state, "float32", "State, k last: [.., V, K]."),
              "g": tensor(gate, "float32", "Natural log of the decay."),
              "beta": tensor(gate, "float32", "Strength of the write.")}
    if prefill:
        inputs["cu_seqlens"] = tensor(["len_cu_seqlens"], "int64", "Where sequences begin and end.")
    inputs["scale"] = tensor(None, "float32", "Factor of the output; 0 is 0.")
    ends = "    ends = cu_seqlens.tolist()" if prefill else "    ends = range(shape[0] + 1)"
    reference = _REFERENCE.format(lengths=", cu_seqlens" if prefill else "", ends=ends, dtype=dtype)
    return {"name": f"gdn_{stage}_qk{hk}_v{hv}_d{width}_k_last_plain_gates", "op_type": "gdn",
            "description": "Gated delta rule with plain gates g and beta, without l2norm.",
            "tags": [f"stage:{stage}", "layout:k-last", "decay:ln"], "axes": axes,
            "constraints": ["len_cu_seqlens == num_seqs + 1"] if prefill else [], "inputs": inputs,
            "outputs": {"output": tensor(heads("num_v_heads"), dtype, "Output."),
                        "new_state": tensor(state, "float32", "State after the last token.")}, "reference": reference}


def _as(kind, dtype, data, where):
    """The bytes of fp32 values in another dtype that represents each of them exactly."""
    if kind != "F32" or dtype == "float32":
        return data
    if any(data[0::4]) or any(data[1::4]):
        raise FormatError(f"{where}: values that {dtype} does not have; ask for another --dtype")
    out = bytearray(len(data) // 2)
    out[0::2], out[1::2] = data[2::4], data[3::4]
    return bytes(out)


def _k_last(data, dk, dv):
    """[.., dv, dk] from fp32 matrices [.., dk, dv]."""
    from array import array

    given, out = array("I"), array("I")
    given.frombytes(data)
    for begin in range(0, len(given), dk * dv):
        matrix = given[begin:begin + dk * dv]
        for column in range(dv):
            out.extend(matrix[column::dv])
    return out.tobytes()


def workload_of(path, line, rule):
    """(workload without its paths, tensors) of an exported case, with inputs in the form of the definition."""
    _, held = read_safetensors(path)
    axes, sizes, tensors = axes_of(line, rule), rule.sizes, {}
    size = lambda axis: axes.get(axis) if rule.definition.axes[axis] is None else rule.definition.axes[axis]
    if rule.steps:
        made = flashinfer_fused.tensors_of(held, keys_of(line), rule, _as, lambda shape: [size(axis) for axis in shape], path)
        return {"axes": axes, "uuid": uuid_of(rule.definition.name, line)}, made
    for name, (shape, dtype) in rule.definition.inputs.items():
        if shape is None:
            continue
        extents = [size(axis) for axis in shape]
        kind, _, data = held.get({"state": "initial_state"}.get(name, name), (None, None, None))
        if name == "cu_seqlens":
            keys = keys_of(line)
            each = [int(n) for n in keys["lengths"].split(",")] if "lengths" in keys else (
                [int(keys.get("T", 1))] * int(keys.get("B", 1)))
            data = struct.pack(f"<{len(each) + 1}q", *(sum(each[:n]) for n in range(len(each) + 1)))
        elif data is None:
            data = bytes(4 * math.prod(extents))  # a state of zeros
        else:
            data = _as(kind, dtype, data, path)
            data = _k_last(data, sizes["dk"], sizes["dv"]) if name == "state" else data
        if len(data) != BYTES[DTYPES[dtype]] * math.prod(extents):
            raise FormatError(f"{path}: {name} has {len(data)} bytes, expected {extents} of {dtype}")
        tensors[name] = DTYPES[dtype], extents, data
    return {"axes": axes, "uuid": uuid_of(rule.definition.name, line)}, tensors


def _exported(rule, options, folder):
    """[(path, line)] of cases of the plan within the definition's limits that make one call each."""
    subject = rule.subject(lambda *_: None)
    subject.array = "numpy"  # it is never called
    server = Server([subject])
    try:
        words = ["export", "--out", folder, "--subject", server.spec, "--kernel", subject.name, "--max-cases",
                 str(options.max_cases), "--seed", str(options.seed), "--layout", "dense", "--law", "none",
                 "--exclude", "repeat=1"]
        if not rule.steps:
            words += ["--exclude", "regime=exact*", "--exclude", "final=none", "--exclude", "heads=tiled"]
        # Edge cases of the plan are exported whatever the limits of a kernel.
        sizes = [f"{key}={size}" for key, size in rule.sizes.items()] + (["l2norm=0"] if rule.steps else [])
        sizes += {"prefill": ["T=1.."], "decode": ["T=1", "form=recurrent"], "mtp": ["T=2.."]}[rule.stage]
        words += [word for size in sizes for word in ("--where", size)]
        code, _, err = run_command(words, server)
    finally:
        server.close()
    if code != 0:
        raise (NothingRan if code == 77 else CommandError)(_last(err) or f"export ended with exit code {code}")
    with open(os.path.join(folder, "manifest.json"), encoding="utf-8") as file:
        return [(os.path.join(folder, case["file"]), case["line"]) for case in json.load(file)["cases"]]


def definitions(options):
    """Writes a dataset of definitions, workloads and their tensors, either completely or not at all."""
    from .flashinfer_bench import Rule

    for key, most in (("qk_heads", 512), ("v_heads", 512), ("head_size", 1024), ("max_cases", 10000)):
        if not 1 <= getattr(options, key) <= most:
            raise FormatError(f"--{key.replace('_', '-')} {getattr(options, key)}; expected 1 to {most}")
    out = os.path.abspath(options.out)
    if os.path.exists(out) and (not os.path.isdir(out) or os.listdir(out)):
        raise FormatError(f"--out {options.out} exists already; name a new or empty folder")
    os.makedirs(os.path.dirname(out), exist_ok=True)
    folder = tempfile.mkdtemp(prefix=".samestate-", dir=os.path.dirname(out))
    cases = os.path.join(folder, "cases")
    try:
        made = os.path.join(folder, "made")
        for stage in options.stage or ("prefill", "decode") + (("mtp",) if options.fused_gates else ()):
            written = flashinfer_fused.definition_of if options.fused_gates or stage == "mtp" else definition_of
            said = written(stage, options.qk_heads, options.v_heads, options.head_size, options.dtype)
            rule, name, lines = Rule(Definition(said)), said["name"], []
            for path, line in _exported(rule, options, cases):
                workload, tensors = workload_of(path, line, rule)
                blob = f"blob/workloads/gdn/{name}/{name}_{workload['uuid']}.safetensors"
                write_whole(os.path.join(made, blob), safetensors(tensors, {"case": line}))
                scalar = {"type": "scalar", "value": scale_of(line, rule.sizes["dk"])}
                workload["inputs"] = {key: {"type": "safetensors", "path": blob, "tensor_key": key} if key in tensors
                                      else scalar for key in rule.definition.inputs}
                lines.append(line_of({"definition": name, "workload": workload}))
            write_whole(os.path.join(made, "definitions", "gdn", name + ".json"), [json.dumps(said, indent=2) + "\n"])
            write_whole(os.path.join(made, "workloads", "gdn", name + ".jsonl"), lines)
            shutil.rmtree(cases)
            print(f"{name}: {len(lines)} workloads in {options.out}")
        if os.path.isdir(out):
            os.rmdir(out)
        os.rename(made, out)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0
