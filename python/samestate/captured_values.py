"""Arguments and results of a captured call: tensors are copied byte by byte, and other values become JSON."""
import dataclasses
import inspect
import math
import sys

_NUMPY = {"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "int64": "I64", "int32": "I32",
          "uint8": "U8", "bool": "BOOL"}


def is_tensor(value):
    return hasattr(value, "shape") and hasattr(value, "dtype") and hasattr(value, "ndim")


def size_of(value):
    """The bytes that a tensor occupies in a file."""
    count = math.prod(int(n) for n in value.shape)
    width = getattr(value, "itemsize", None) or getattr(value.dtype, "itemsize", None) or 8
    return count * (width if isinstance(width, int) else 8)


def copied(value):
    """(dtype, shape, strides in elements, bytes in row-major order) of a tensor, copied before this returns."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        kind = str(value.dtype).rpartition(".")[2]
        if kind not in _NUMPY:
            raise TypeError(f"a tensor of {value.dtype}; known are {' '.join(_NUMPY)}")
        if value.device.type == "meta":
            raise TypeError("a tensor without data (device meta)")
        with torch.no_grad():
            plain = value.detach().to("cpu").contiguous().reshape(-1)
            data = plain.view(torch.uint8).numpy().tobytes() if plain.numel() else b""
        return _NUMPY[kind], [int(n) for n in value.shape], [int(n) for n in value.stride()], data
    import numpy

    array = numpy.asarray(value)
    kind = str(array.dtype)
    if kind not in _NUMPY or array.dtype.byteorder == ">":
        raise TypeError(f"a tensor of {array.dtype}; known are {' '.join(_NUMPY)}, little-endian")
    strides = [n // array.itemsize for n in array.strides]
    return _NUMPY[kind], list(array.shape), strides, numpy.ascontiguousarray(array).tobytes()


def plain(value):
    """A JSON value for something that is not a tensor."""
    if value is None or isinstance(value, (bool, int, str)):
        return value if not isinstance(value, str) else value[:1000]
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, (list, tuple)) and len(value) <= 1000 and all(isinstance(x, (bool, int, float)) for x in value):
        return [plain(x) for x in value]
    return {"object": f"{type(value).__module__}.{type(value).__qualname__}"}


def split(name, value, tensors, values):
    """Stores an argument, or the members of a tuple or dict, under tensors or values."""
    if is_tensor(value):
        tensors[name] = value
    elif isinstance(value, (list, tuple)) and any(is_tensor(x) for x in value):
        for i, one in enumerate(value):
            split(f"{name}.{i}", one, tensors, values)
    elif isinstance(value, dict) and any(is_tensor(x) for x in value.values()):
        for key, one in value.items():
            split(f"{name}.{key}", one, tensors, values)
    else:
        values[name] = plain(value)


def results_of(result):
    """(place, value) for each result; for a named tuple or data class the name of the field follows the place."""
    if dataclasses.is_dataclass(result) and not isinstance(result, type):
        fields = [(f.name, getattr(result, f.name)) for f in dataclasses.fields(result)]
        return [(f"{i}.{name}", value) for i, (name, value) in enumerate(fields)]
    if isinstance(result, tuple) and hasattr(result, "_fields"):
        return [(f"{i}.{name}", value) for i, (name, value) in enumerate(zip(result._fields, result))]
    if isinstance(result, (tuple, list)):
        return [(str(i), value) for i, value in enumerate(result)]
    return [("0", result)]


def takes_self(function):
    """True for a function whose first parameter is self or cls, like a method before it is bound."""
    try:
        names = list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return False
    return bool(names) and names[0] in ("self", "cls")


def bound(signature, args, kwargs):
    """({name: tensor}, {name: JSON value}) of a call, including its defaults. Raises TypeError if the call does
    not match the signature. The object of a method is not an argument."""
    tensors, values = {}, {}
    if signature is None:
        named = {**{f"args.{i}": x for i, x in enumerate(args)}, **kwargs}
    else:
        call = signature.bind(*args, **kwargs)
        call.apply_defaults()
        named = {}
        for name, value in call.arguments.items():
            kind = signature.parameters[name].kind
            if kind == inspect.Parameter.VAR_KEYWORD:
                named.update(value)
            elif kind == inspect.Parameter.VAR_POSITIONAL:
                named.update({f"{name}.{i}": x for i, x in enumerate(value)})
            else:
                named[name] = value
        first = next(iter(signature.parameters), "")
        if first in ("self", "cls") and not is_tensor(named.get(first)):
            named.pop(first, None)
    for name, value in named.items():
        split(name, value, tensors, values)
    return tensors, values
