"""What a function reveals about its own declaration: the array library that it uses, and a proposal for each
missing word.
"""
import inspect
import re
import types

ARRAYS = ("numpy", "torch", "jax", "mlx")
_BY_MODULE = {"triton": "torch", "jaxlib": "jax"}  # Triton kernels take torch tensors


def _libraries(values):
    """The array libraries among modules, and among the modules that objects come from."""
    found = set()
    for value in values:
        module = value.__name__ if isinstance(value, types.ModuleType) else getattr(value, "__module__", None)
        root = module.partition(".")[0] if isinstance(module, str) else ""
        found.add(_BY_MODULE.get(root, root))
    return found & set(ARRAYS)


def _unwrapped(function):
    try:
        return inspect.unwrap(function)
    except ValueError:
        return function


def array_of(function):
    """(array, why): the library that the function's code names or, if it names none, the only one that its
    module imports; ("numpy", "") if there are several or none."""
    function = _unwrapped(function)
    code, names = getattr(function, "__code__", None), getattr(function, "__globals__", None)
    if code is None or names is None:
        return "numpy", ""
    codes = [code] + [c for c in code.co_consts if isinstance(c, types.CodeType)]
    named = _libraries(names[n] for c in codes for n in c.co_names if n in names)
    if len(named) == 1:
        return named.pop(), "the library that the function names"
    imported = _libraries(value for value in list(names.values()) if isinstance(value, types.ModuleType))
    if not named and len(imported) == 1:
        return imported.pop(), "the only array library that the function's module imports"
    return "numpy", ""


def _chunk_in(function):
    """The chunk size that the function's source assigns to a name with that meaning, or None."""
    try:
        text = inspect.getsource(_unwrapped(function))
    except (OSError, TypeError):
        return None
    found = re.search(r"^\s*(?:C|BT|BC|CHUNK|CHUNK_SIZE|chunk|chunk_size|BLOCK_T)\s*(?::[^=\n]*)?=\s*(\d+)\b", text, re.M)
    return int(found.group(1)) if found else None


def proposed(function, meanings, system, form, declaration, family):
    """{word: value} for what an undeclared function lacks; values are guesses from its signature, name and
    source. `meanings` says what an argument of each name receives, and `family` are the systems of the
    recurrent family."""
    out, renamed = {}, {theirs: ours for ours, theirs in (declaration.get("arguments") or {}).items()}
    try:
        asked = {renamed.get(name, meanings.get(name)) for name in inspect.signature(function).parameters}
    except (TypeError, ValueError):
        asked = set()
    if not system and {"q", "k", "v"} <= asked:
        decays, writes = "g" in asked, "beta" in asked
        out["system"] = {(True, True): "gated_delta_rule", (False, True): "delta_rule", (True, False): "retention",
                         (False, False): "linear_attention"}[decays, writes]
    elif not system:
        out["system"] = "SYSTEM"
    tokens = _chunk_in(function)
    chunked = "chunk" in asked or "chunk" in getattr(function, "__name__", "").lower() or tokens is not None
    if not form:
        out["form"] = "chunked" if chunked else "recurrent"
    if (system or out["system"]) not in family:
        return out
    goes_in_chunks = (form or out.get("form")) in ("chunked", "sequence_parallel", "head_parallel")
    limits = declaration.get("limits") or []
    limits = [limits] if isinstance(limits, str) else list(limits)
    if goes_in_chunks and "chunk" not in asked and not any(limit.split(" ")[0] == "chunk" for limit in limits):
        out["limits"] = limits + [f"chunk in {tokens or 64}"]
    if "scale" not in asked and declaration.get("scale") in (None, "argument"):
        out["scale"] = "dk"
    return out
