"""python3 -m samestate.scripting NAME KERNEL [KERNEL]: the call of a subject as text, for `samestate repro
--script`.

Prints one line of JSON: `text` is Python that defines `kernel`, takes and returns numpy arrays and does not
need samestate; `usage` and `needs` are the arguments after `python3 FILE.py` and the packages that have to be
installed. Two kernels are the chunked and the recurrent one of a subject that decodes. A call that cannot be
written as text is an error.

The script into which the text is inserted defines DTYPES, SCALE, L2NORM, HEAD_MAP and CONTRACT (for the family)
or SIZE, BATCH and CONTRACT (for named tensors), EDITED, and imports importlib, os, sys, types and numpy as np.
"""
import ast
import inspect
import json
import os
import sys

from .errors import DeclarationError, Error
from .serve import several, split_name, subjects_of

_TO = {  # by array library: lines that define `to` (from numpy) and `back` (to numpy, float64)
    "numpy": """\
    def to(y, dtype):
        return {numpy}

    def back(y):
        return np.array({back}, float)
""",
    "torch": """\
    import torch

    def to(y, dtype):
        kind = {{"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16, "int32": torch.int32,
                "int64": torch.int64}}[dtype]
        return torch.from_numpy(np.array(y)).to("{device}", kind).contiguous()

    def back(y):
        return y.detach().cpu().double().numpy().copy()
""",
    "jax": """\
    import jax
    import jax.numpy as jnp

    def to(y, dtype):
        kind = {{"fp32": jnp.float32, "bf16": jnp.bfloat16, "fp16": jnp.float16, "int32": jnp.int32, "int64": jnp.int64}}
        return jax.device_put(jnp.asarray(np.array(y), kind[dtype]), jax.devices("{device}")[0])

    def back(y):
        return np.array(y.astype(jnp.float32), float)
""",
    "mlx": """\
    import mlx.core as mx

    mx.set_default_device(mx.cpu)

    def to(y, dtype):
        kind = {{"fp32": mx.float32, "bf16": mx.bfloat16, "fp16": mx.float16, "int32": mx.int32, "int64": mx.int64}}
        return mx.array(np.array(y)).astype(kind[dtype])

    def back(y):
        return np.array(y.astype(mx.float32), float)
""",
}
_NUMPY = {  # how subjects on numpy receive bf16, and how a result is read
    "float32": ('np.array(y, {"fp32": "f4", "bf16": "f4", "fp16": "f2", "int32": "i4", "int64": "i8"}[dtype])', "y"),
    "ml_dtypes": ('np.array(y, __import__("ml_dtypes").bfloat16 if dtype == "bf16" else {"fp32": "f4", "fp16": "f2", '
                  '"int32": "i4", "int64": "i8"}[dtype])', "y"),
    "bits": ('(np.array(y, "f4").view("u4") >> 16).astype("u2") if dtype == "bf16" else np.array(y, {"fp32": "f4", '
             '"fp16": "f2", "int32": "i4", "int64": "i8"}[dtype])',
             '(y.astype("u4") << 16).view("f4") if y.dtype == np.uint16 else y'),
}


def _closure(module, name):
    """The source of a module's function or class and of everything in that module that it names, in the order
    of the file, without decorators, which only this package reads."""
    source = inspect.getsource(module)
    defined, imports = {}, []
    for node in ast.parse(source).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            defined[node.name] = node
        elif isinstance(node, ast.Assign):
            defined.update({t.id: node for t in node.targets if isinstance(t, ast.Name)})
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            imports.append(node)
    needed, todo = {}, [name]
    while todo:
        node = defined.get(todo.pop())
        if node is None or id(node) in needed:
            continue
        needed[id(node)] = node
        parts = node.body if isinstance(node, (ast.FunctionDef, ast.ClassDef)) else [node]
        todo += [n.id for part in parts for n in ast.walk(part) if isinstance(n, ast.Name)]
        todo += [n.id for base in getattr(node, "bases", ()) for n in ast.walk(base) if isinstance(n, ast.Name)]
    for node in needed.values():
        for inner in ast.walk(node):
            if isinstance(inner, ast.ImportFrom) and (inner.level or (inner.module or "").startswith("samestate")):
                raise DeclarationError(f"{name} of {module.__name__} imports {inner.names[0].name} of samestate, without "
                                       "which a script has to run: give the issue the case line")
    texts = [ast.get_source_segment(source, node) for node in sorted(needed.values(), key=lambda n: n.lineno)]
    names = {n.id for node in needed.values() for n in ast.walk(node) if isinstance(n, ast.Name)}
    wanted = []
    for node in imports:
        bound = {alias.asname or alias.name.split(".")[0] for alias in node.names}
        if not bound & names:
            continue
        if isinstance(node, ast.ImportFrom) and node.level:
            raise DeclarationError(f"{name} of {module.__name__} reads {' '.join(bound)} of samestate, without which a "
                                   "script has to run: give the issue the case line")
        wanted.append(ast.get_source_segment(source, node))
    return "\n".join(wanted) + ("\n\n\n" if wanted else "") + "\n\n\n".join(texts) + "\n"


def _lookup(path):
    """'.f.g' from 'f.g'."""
    return "".join("." + part for part in path.split("."))


def _of_adapter(row, device):
    """(preceding lines, lines that define `function`, the wrapper's name or None, required packages)."""
    module, _, path = row.function.partition(":")
    before, lines, wrapper = "", [], None
    if row.package == "flash-linear-attention":
        if device == "cpu":
            raise DeclarationError(f"{row.name} on the cpu runs in Triton's interpreter with this package's repairs, which "
                                   f"a script has not: python:{row.name}?device=cuda, where there is a GPU")
        lines += ["# The function itself, no back end of another package.",
                  'os.environ.setdefault("FLA_DISABLE_BACKEND_DISPATCH", "1")',
                  'os.environ.setdefault("FLA_DISABLE_TENSOR_CACHE", "1")']
    made, wrapped = path.endswith("()"), path.endswith(".__wrapped__")
    name = path[:-2] if made else path[:-len(".__wrapped__")] if wrapped else path
    if module.startswith("samestate."):
        before += _closure(_imported(module), name) + "\n\n"
        lines.append(f"function = {name}{'()' if made else ''}")
    else:
        found = f'importlib.import_module("{module}"){_lookup(name)}'
        lines.append(f'function = {found}{"()" if made else ""}')
        if wrapped:
            lines.append('function = getattr(function, "__wrapped__", function)')
    if row.call:
        from .adapters import named

        before += _closure(named, row.call) + "\n\n"
        wrapper = row.call
    return before, lines, wrapper, f"numpy and {row.package} (read at {' '.join(row.versions)})"


def _imported(name):
    import importlib

    return importlib.import_module(name)


_STAND_IN = """\
        if importlib.util.find_spec("samestate") is None:  # the file may declare its kernels by it, which changes nothing
            sys.modules["samestate"] = types.SimpleNamespace(kernel=lambda *_, **__: lambda function: function)
"""


def _of_file(subject, where, attribute):
    path = attribute or getattr(subject.function, "__qualname__", "")
    if not where.endswith(".py"):
        lines = ['sys.path.insert(0, os.getcwd())', f'function = importlib.import_module("{where}"){_lookup(path)}']
        library = "" if subject.array == "numpy" else f", {subject.array}"
        return "", lines, None, f"numpy{library} and {where}"
    name = os.path.basename(where)
    before = f'''def function_of(path):
    """{path} of the kernel's file."""
    import importlib.util

    stem = os.path.splitext(os.path.basename(path))[0]
    if stem not in sys.modules:
{_STAND_IN}        sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
        spec = importlib.util.spec_from_file_location(stem, path)
        sys.modules[stem] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[stem])
    return sys.modules[stem]{_lookup(path)}


'''
    lines = ['if len(sys.argv) != 2 or not os.path.exists(sys.argv[1]):',
             f'    print("usage: python3 " + sys.argv[0] + " path/to/{name}: the file of the kernel", file=sys.stderr)',
             '    sys.exit(2)',
             "function = function_of(sys.argv[1])"]
    return before, lines, None, "numpy" if subject.array == "numpy" else f"numpy and {subject.array}"


def _place(name):
    """(where, attribute) for 'python:' names that are not adapters."""
    where, colon, attribute = split_name(name)[0].rpartition(":")
    return (where, attribute) if colon else (attribute, "")


def _arguments(subject, values):
    """The arguments of the call; `values` says what each receives."""
    given = dict(subject.options)
    order = []
    for ours, theirs in subject._asked.items():
        optional = isinstance(ours, tuple)
        key = ours[0] if optional else ours
        if key not in values:
            if optional:
                continue
            raise DeclarationError(f"{subject._called()} asks for {theirs}, which no script has")
        given[theirs] = values[key]
    texts = {k: v if k not in subject.options else repr(v) for k, v in given.items()}
    for theirs in subject._order:
        order.append(texts.pop(theirs))
    return ", ".join(order + [f"{k}={v}" for k, v in texts.items()])


_LOOK = "EDITED.update(n for n, y in before.items() if not np.array_equal(back(given[n]), y, equal_nan=True){})"
_TOKENS = {"BTHD": "{}", "BHTD": "{}.swapaxes(1, 2)", "THD": "{0}.reshape(-1, *{0}.shape[2:])"}


def _family_body(subject):
    """The lines between `to`, `back` and the return of a kernel of the recurrent family."""
    said = {"decay": "ln", "state": "kv", "heads": "both", "layout": "BTHD", "state_argument": "optional",
            "cu_seqlens": "int64", **subject.conventions}
    dtypes = subject.conventions.get("dtypes", {})
    lines = ["B, T = x[\"v\"].shape[:2]",
             "Hk, Hv, dk, dv = *(x[n].shape[2] for n in \"kv\"), *(x[n].shape[3] for n in \"kv\")",
             "N = B if cu_seqlens is None else len(cu_seqlens) - 1", "group, x = Hv // Hk, dict(x)"]
    if dtypes:
        lines.append(f"dtypes = {{**DTYPES, {', '.join(f'{k!r}: {v!r}' for k, v in dtypes.items())}}}")
    else:
        lines.append("dtypes = DTYPES")
    if said["state_argument"] != "optional":
        lines += ["# It has no call without a state.",
                  "state = np.zeros((N, Hv, dk, dv), np.float32) if state is None else state"]
    reorder = said["heads"] in ("interleaved", "tiled")
    if said["heads"] == "repeated":
        lines += ["for n in \"qk\":  # as many heads as v has",
                  "    x[n] = np.repeat(x[n], group, 2) if HEAD_MAP == \"interleaved\" else np.tile(x[n], (1, 1, group, 1))"]
    elif reorder:
        lines += [f"order = np.arange(Hv)  # the kernel's map of heads is {said['heads']}: value heads in its order",
                  f"if HEAD_MAP != \"{said['heads']}\":",
                  "    order = order.reshape((group, Hk) if HEAD_MAP == \"tiled\" else (Hk, group)).T.ravel()",
                  "x.update({n: x[n][:, :, order] for n in (\"v\", \"g\", \"beta\") if n in x})",
                  "state = None if state is None else state[:, order]"]
    if said["layout"] == "THD":
        lines += ["cu_seqlens = [n * T for n in range(B + 1)] if cu_seqlens is None else cu_seqlens"]
    if said["layout"] != "BTHD":
        lines += [f"x = {{n: {_TOKENS[said['layout']].format('y')} for n, y in x.items()}}  # {said['layout']}"]
    if said["state"] == "vk":
        lines.append("state = None if state is None else state.swapaxes(2, 3)  # [value, key]")
    lines += ["given = {n: to(y, dtypes[n]) for n, y in x.items()}",
              "given[\"initial_state\"] = None if state is None else to(state, dtypes[\"initial_state\"])",
              f"given[\"cu_seqlens\"] = None if cu_seqlens is None else to(np.array(cu_seqlens), \"{said['cu_seqlens']}\")",
              "before = {n: back(y) for n, y in given.items() if y is not None}"]
    values = {n: f'given["{n}"]' for n in ("q", "k", "v", "initial_state", "cu_seqlens")}
    values.update({n: f'given.get("{n}")' for n in ("g", "beta")})
    values.update(scale="SCALE", chunk="chunk", threads="1", l2norm="L2NORM", head_map="HEAD_MAP", contract="CONTRACT",
                  output_final_state="True", batch="B", tokens="T", Hk="Hk", Hv="Hv", dk="dk", dv="dv", cuts="None",
                  parameters="dict(Hk=Hk, Hv=Hv, dk=dk, dv=dv)")
    lines.append(f"result = function({_arguments(subject, values)})")
    kept = ' and n != "initial_state"' if said["state_argument"] == "in_place" else ""
    lines.append(_LOOK.format(kept))
    if said["state_argument"] == "in_place":
        lines.append('o, state = result[0] if isinstance(result, (tuple, list)) else result, given["initial_state"]')
    lines += ['if isinstance(result, dict):', '    o, state = result["o"], result["final_state"]']
    if said["state_argument"] != "in_place":
        lines += ["else:", "    o, state = result"]
    lines.append("o, state = back(o), back(state)")
    if said["state"] == "vk":
        lines.append("state = state.swapaxes(2, 3)")
    if said["layout"] == "THD":
        lines.append("o = o.reshape(B, T, Hv, dv)")
    elif said["layout"] == "BHTD":
        lines.append("o = o.swapaxes(1, 2)")
    if reorder:
        lines.append("o, state = o[:, :, np.argsort(order)], state[:, np.argsort(order)]")
    return lines + ["return o, state"]


_POOLS = {  # what a request without a state has instead of a slot: lines before the call and after it
    "-1": ([], []),
    "0": (['x, size = dict(x), {**SIZE, "P": SIZE["P"] + 1}  # row 0 of its pool is nobody\'s',
           'x["pool"] = np.concatenate([np.full_like(x["pool"][:, :1], np.nan), x["pool"]], 1)',
           'x["slot"] = np.where(x["slot"] < 0, 0, x["slot"] + 1)'],
          ['result["pool"] = result["pool"][:, 1:]']),
    "none": (['x, size = dict(x), {**SIZE, "P": SIZE["P"] + 1}  # a request without a slot has a row behind the pool',
              'none = x["slot"][:, 0] < 0',
              'x["slot"] = np.where(x["slot"] < 0, SIZE["P"], x["slot"])',
              'x["pool"] = np.concatenate([x["pool"], np.zeros_like(x["pool"][:, :1])], 1)'],
             ['result["pool"] = result["pool"][:, :-1]', 'result["o"][none] = 0  # and what comes of it is not judged']),
}


def _named_body(subject, wrapper):
    said = subject.conventions
    before, after = _POOLS[said.get("null_slot", "-1")]
    dtypes = said.get("dtypes", {})
    kind = f"{dtypes!r}.get(n, \"fp32\")" if dtypes else "\"fp32\""
    size = "size" if before else "SIZE"
    lines = before + [f"given = {{n: to(y, {kind}) for n, y in x.items()}}",
                      "before = {n: back(y) for n, y in given.items()}",
                      *(["given[\"cu_seqlens\"] = None if CU_SEQLENS is None else to(np.array(CU_SEQLENS), "
                         f"\"{said.get('cu_seqlens', 'int64')}\")"] if subject.packed else []),
                      "tokens = next(x[n].shape[1] for n in INPUTS if KIND[n] == \"tokens\")",
                      f'values = {{**{size}, "B": BATCH, "T": tokens, "tokens": tokens, "batch": BATCH, "chunk": chunk,',
                      f'          "threads": 1, "contract": CONTRACT, "parameters": {size}, **given}}']
    asked = {(k[0] if isinstance(k, tuple) else k): (v, isinstance(k, tuple)) for k, v in subject._asked.items()}
    must = ", ".join(f'"{theirs}": values["{ours}"]' for ours, (theirs, optional) in asked.items() if not optional)
    may = {ours: theirs for ours, (theirs, optional) in asked.items() if optional}
    lines.append(f"arguments = {{{must}}}")
    if may:
        lines.append(f"arguments.update({{theirs: values[ours] for ours, theirs in {may!r}.items() if ours in values}})")
    if subject.options:
        lines.append(f"arguments.update({subject.options!r})")
    lines.append(f"result = {wrapper}(function, **arguments)" if wrapper else "result = function(**arguments)")
    lines += [_LOOK.format(""),
              "if not isinstance(result, dict):",
              "    result = dict(zip(OUTPUTS, result if isinstance(result, (tuple, list)) else [result]))",
              "result = {n: back(result[n]) for n in OUTPUTS}"]
    return lines + after + ["return result"]


def text_of(subject, name, function="kernel"):
    """(text, usage, needs) of a Subject that `python:name` made."""
    where, attribute = _place(name)
    from . import adapters

    row = next((r for r in adapters.ROWS if r.name == subject._about.get("adapter")), None)
    if row is not None:
        before, lookup, wrapper, needs = _of_adapter(row, subject.device)
    else:
        before, lookup, wrapper, needs = _of_file(subject, where, attribute)
    device = {"cuda": "gpu"}.get(subject.device, subject.device) if subject.array == "jax" else subject.device
    numpy, back = _NUMPY[subject.bf16 if subject.array == "numpy" else "float32"]
    if os.environ.get("TRITON_INTERPRET") == "1" and subject.array == "torch":
        # Triton reads it when it is imported, which happens in the kernel's module.
        lookup.insert(0, 'os.environ.setdefault("TRITON_INTERPRET", "1")  # it was judged in Triton\'s interpreter')
    tools = _TO[subject.array].format(device=device, numpy=numpy, back=back)
    inside = "" if subject.device == "cpu" else ", on a GPU"
    head = "x, state, cu_seqlens, chunk" if subject.family else "x, chunk"
    said = ("o [B, T, Hv, dv] and the final state [N, Hv, dk, dv], in float64, from arrays of numpy in the axes of DATA"
            if subject.family else "The outputs by name, in float64, from arrays of numpy in the axes of DATA")
    body = _family_body(subject) if subject.family else _named_body(subject, wrapper)
    indented = "".join(f"    {line}\n" for line in lookup) + "".join(f"    {line}\n" for line in body)
    text = f'{before}def {function}({head}):\n    """{said}:\n    {subject._called()}{inside}."""\n{tools}\n{indented}'
    file = where.endswith(".py") and row is None
    return text, " path/to/" + where.rsplit("/", 1)[-1] if file else "", needs + inside


def texts_of(name, kernels):
    """{'text', 'usage', 'needs'} for kernels of `python:name`. Raises DeclarationError if one does not exist."""
    made = {s.name: s for one in several(name) for s in subjects_of(one)}
    missing = [k for k in kernels if k not in made]
    if missing:
        raise DeclarationError(f"kernel {missing[0]} is not of {name}; these are: {' '.join(made)}")
    source = {s.name: one for one in several(name) for s in subjects_of(one)}
    if len(kernels) == 1:
        text, usage, needs = text_of(made[kernels[0]], source[kernels[0]])
        return {"text": text, "usage": usage, "needs": needs}
    parts = [text_of(made[k], source[k], role) for k, role in zip(kernels, ("chunked_kernel", "recurrent_kernel"))]
    text = "\n\n".join(part[0] for part in parts) + '''

def kernel(x, state, cu_seqlens, chunk):
    """A call with chunks is one kernel's, a call without another's."""
    return (chunked_kernel if chunk else recurrent_kernel)(x, state, cu_seqlens, chunk)
'''
    return {"text": text, "usage": parts[0][1], "needs": parts[0][2]}


def main(words=None):
    words = sys.argv[1:] if words is None else words
    if len(words) not in (2, 3):
        print("usage: python3 -m samestate.scripting NAME KERNEL [KERNEL]", file=sys.stderr)
        return 2
    out = sys.stdout
    sys.stdout = sys.stderr  # for output that a module prints when it is imported
    try:
        said = texts_of(words[0], words[1:])
    except (Error, ImportError, OSError, TypeError) as error:
        said = {"error": " ".join(str(error).split())}
    print(json.dumps(said), file=out, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
