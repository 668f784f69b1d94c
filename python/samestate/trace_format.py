"""Files of FlashInfer-Bench (read at 0.1.2): Definition and Solution as JSON, Workload and Trace as JSON Lines,
tensors as safetensors. The content of a file is checked before it is used. Needs only the standard library.
"""
import json
import os
import re
import struct
import tempfile

from .errors import Error

LONGEST_FILE = 16 << 20  # bytes of a JSON file, and of all sources of a solution
MOST = 256  # axes, tensors, sources
LARGEST_AXIS = 1 << 20
DTYPES = {"float32": "F32", "float16": "F16", "bfloat16": "BF16", "int64": "I64", "int32": "I32"}
BYTES = {"F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4}
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,199}")


class FormatError(Error):
    """An invalid file: one line with the value, the limit and the remedy."""


def _short(value):
    return f"{value!r:.80}"


def _once(pairs):
    out = {}
    for key, value in pairs:
        if key in out:
            raise FormatError(f"the key {_short(key)} occurs twice in one object; keep one")
        out[key] = value
    return out


def _no_number(text):
    raise FormatError(f"{text} is not a JSON number; write a finite one")


def parsed(text, where):
    """The JSON object in a text; FormatError names `where`."""
    try:
        value = json.loads(text, object_pairs_hook=_once, parse_constant=_no_number)
    except FormatError as error:
        raise FormatError(f"{where}: {error}") from None
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{where}: no JSON ({' '.join(str(error).split())[:120]}); write one object") from None
    if not isinstance(value, dict):
        raise FormatError(f"{where}: {_short(value)} is no object; write {{..}}")
    return value


def text_of(path):
    """The text of a file of at most LONGEST_FILE bytes."""
    try:
        if not os.path.isfile(path):
            raise FormatError(f"{path}: there is no such file; name one")
        with open(path, "rb") as file:
            data = file.read(LONGEST_FILE + 1)
        if len(data) > LONGEST_FILE:
            raise FormatError(f"{path}: more than {LONGEST_FILE} bytes; write a smaller one")
        return data.decode("utf-8")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "no UTF-8"
        raise FormatError(f"{path}: {reason}; name a readable file of JSON") from None


def load(path):
    return parsed(text_of(path), path)


class Fields:
    """An object of a file, read key by key: each call says what it expects, and errors say where the value is."""

    def __init__(self, value, where):
        if not isinstance(value, dict):
            raise FormatError(f"{where}: {_short(value)} is no object; write {{..}}")
        self.value, self.where = value, where

    def get(self, key, kind, default=FormatError):
        """The value of a key, which must have a JSON type (str, list, dict, bool, int); a str must not be empty."""
        found = self.value.get(key)
        if found is None:
            if default is FormatError:
                raise FormatError(f"{self.where}: without {key}; say it")
            return default
        if not isinstance(found, kind) or (kind is int and isinstance(found, bool)) or (kind is str and not found):
            raise FormatError(f"{self.where}: {key} is {_short(found)}; expected {kind.__name__}")
        if kind in (list, dict) and len(found) > MOST:
            raise FormatError(f"{self.where}: {key} has {len(found)} entries, at most {MOST}; leave some out")
        return found

    def name(self, key):
        """A name that may become part of a path."""
        found = self.get(key, str)
        if not _NAME.fullmatch(found) or ".." in found:
            raise FormatError(f"{self.where}: {key} {_short(found)}; at most 200 letters, digits and _ . + - are "
                              "asked for, not beginning with a dot and without ..")
        return found


class Definition:
    """name, op_type, tags, axes {name: size, or None if it varies}, inputs and outputs {name: (axes, dtype)};
    axes is None for a scalar."""

    def __init__(self, value, where="definition"):
        top = Fields(value, where)
        self.name, self.op_type = top.name("name"), top.name("op_type")
        self.tags = [tag for tag in top.get("tags", list, []) if isinstance(tag, str)]
        self.axes = {}
        for name, axis in top.get("axes", dict).items():
            axis = Fields(axis, f"{where}: axis {_short(name)}")
            kind, size = axis.get("type", str), None
            if kind not in ("const", "var"):
                raise FormatError(f"{axis.where}: type {_short(kind)}; known are const var")
            if kind == "const":
                size = axis.get("value", int)
                if not 0 < size <= LARGEST_AXIS:
                    raise FormatError(f"{axis.where}: value {size}; expected 1 to {LARGEST_AXIS}")
            self.axes[name] = size
        self.inputs, self.outputs = (self._tensors(top, kind) for kind in ("inputs", "outputs"))
        both = set(self.inputs) & set(self.outputs)
        if both:
            raise FormatError(f"{where}: {_short(min(both))} is an input and an output; rename one")
        top.get("reference", str)

    def _tensors(self, top, kind):
        out = {}
        for name, tensor in top.get(kind, dict).items():
            tensor = Fields(tensor, f"{top.where}: {kind} {_short(name)}")
            axes, dtype = tensor.get("shape", list, None), tensor.get("dtype", str)
            unknown = [axis for axis in axes or [] if not isinstance(axis, str) or axis not in self.axes]
            if unknown:
                raise FormatError(f"{tensor.where}: shape names {_short(unknown[0])}; the axes are "
                                  f"{' '.join(self.axes)}")
            if dtype not in DTYPES:
                raise FormatError(f"{tensor.where}: dtype {_short(dtype)}; known are {' '.join(DTYPES)}")
            out[name] = (axes, dtype)
        return out


class Solution:
    """name, definition, author, language, entry (file, function), whether outputs are passed in, sources {path:
    text}."""

    def __init__(self, value, where="solution"):
        top = Fields(value, where)
        self.name, self.definition, self.author = (top.name(k) for k in ("name", "definition", "author"))
        spec = Fields(top.get("spec", dict), f"{where}: spec")
        self.language = spec.get("language", str)
        self.gives_outputs = spec.get("destination_passing_style", bool, True)
        self.dependencies = [d for d in spec.get("dependencies", list, []) if isinstance(d, str)]
        entry = spec.get("entry_point", str)
        file, _, function = entry.partition("::")
        if entry.count("::") != 1 or not function.isidentifier():
            raise FormatError(f"{spec.where}: entry_point {_short(entry)}; expected FILE::FUNCTION")
        self.entry = file, function
        self.sources, total = {}, 0
        for n, source in enumerate(top.get("sources", list)):
            source = Fields(source, f"{where}: sources[{n}]")
            path, content = source.get("path", str), source.get("content", str)
            parts = path.split("/")
            if len(parts) > 16 or not all(_NAME.fullmatch(part) for part in parts) or ".." in path:
                raise FormatError(f"{source.where}: path {_short(path)}; a relative path of letters, digits and "
                                  "_ . + - in at most 16 folders is asked for, without ..")
            if path in self.sources:
                raise FormatError(f"{source.where}: path {_short(path)} occurs twice; keep one")
            total += len(content)
            if total > LONGEST_FILE:
                raise FormatError(f"{where}: sources of more than {LONGEST_FILE} characters; leave some out")
            self.sources[path] = content
        for path in self.sources:
            above = next((other for other in self.sources if path.startswith(other + "/")), None)
            if above:
                raise FormatError(f"{where}: {_short(above)} is a file and a folder of {_short(path)}; rename one")
        if file not in self.sources:
            raise FormatError(f"{spec.where}: entry_point names {_short(file)}; the sources are {' '.join(self.sources)}")

    def write_sources(self, folder):
        for path, content in self.sources.items():
            whole = os.path.join(folder, *path.split("/"))
            os.makedirs(os.path.dirname(whole), exist_ok=True)
            with open(whole, "w", encoding="utf-8") as file:
                file.write(content)


# -- writing: under a temporary name, which then becomes the file's

def write_whole(path, pieces):
    """Writes a file of bytes or text completely or not at all, and creates its folder."""
    folder = os.path.dirname(os.path.abspath(path))
    try:
        os.makedirs(folder, exist_ok=True)
        number, name = tempfile.mkstemp(prefix=".samestate-", dir=folder)
    except OSError as error:
        raise FormatError(f"{path}: {error.strerror}; name a folder that can be written") from None
    try:
        with os.fdopen(number, "wb") as file:
            for piece in pieces:
                file.write(piece.encode("utf-8") if isinstance(piece, str) else piece)
        os.chmod(name, 0o644)
        os.replace(name, path)
    except OSError as error:
        raise FormatError(f"{path}: {error.strerror}; nothing was written there") from None
    finally:
        if os.path.exists(name):
            os.unlink(name)


def line_of(value):
    return json.dumps(value, allow_nan=False) + "\n"


# -- safetensors

def safetensors_head(path):
    """(head, offset of the data) of a safetensors file. Raises FormatError if it is not one."""
    try:
        size = os.path.getsize(path)
        with open(path, "rb") as file:
            length = struct.unpack("<Q", file.read(8))[0] if size >= 8 else size
            if length > min(size - 8, LONGEST_FILE):
                raise FormatError(f"{path}: a head of {length} bytes in a file of {size}; write a safetensors file")
            head = parsed(file.read(length).decode("utf-8"), path)
    except (OSError, ValueError) as error:
        raise FormatError(f"{path}: {getattr(error, 'strerror', None) or 'no UTF-8'}; name a safetensors file") from None
    return head, 8 + length


def read_safetensors(path):
    """(metadata, {name: (dtype, shape, bytes)})."""
    head, begin = safetensors_head(path)
    size = os.path.getsize(path) - begin
    metadata, out = head.pop("__metadata__", {}), {}
    with open(path, "rb") as file:
        for name, row in head.items():
            row = Fields(row, f"{path}: {_short(name)}")
            dtype, shape, ends = row.get("dtype", str), row.get("shape", list), row.get("data_offsets", list)
            count = BYTES.get(dtype, -1)
            for n in shape:
                count = count * n if type(n) is int and n >= 0 else -1
            if count < 0 or len(ends) != 2 or not all(type(end) is int for end in ends) or not (
                    0 <= ends[0] <= ends[1] <= size and ends[1] - ends[0] == count):
                raise FormatError(f"{row.where}: {dtype} {shape} at {ends} of {size} bytes; write a safetensors file")
            file.seek(begin + ends[0])
            out[name] = dtype, shape, file.read(count)
    return metadata, out


def safetensors(tensors, metadata):
    """The pieces of a safetensors file of {name: (dtype, shape, bytes)}."""
    head, at = {"__metadata__": metadata}, 0
    for name, (dtype, shape, data) in tensors.items():
        head[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(head).encode("utf-8")
    text += b" " * (-len(text) % 8)
    return [struct.pack("<Q", len(text)) + text] + [data for _, _, data in tensors.values()]
