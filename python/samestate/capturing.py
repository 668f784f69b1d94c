"""samestate.capture records real calls of a running program as files, which `samestate judge DIR` judges
(docs/lookup/subjects.md).

    fast = samestate.capture(fast, dir="calls")                      # a wrapped function
    @samestate.capture(dir="calls", every=100, max_calls=8)          # a decorator
    with samestate.capture("package.module:function", dir="calls"):  # every reference in loaded modules, while inside
        model(tokens)

The function's results are unchanged. Errors in recording are counted, reported once, and never raised.
"""
import fcntl
import functools
import inspect
import json
import os
import sys
import threading

from .captured_values import bound, copied, plain, results_of, size_of, split, takes_self
from .errors import DeclarationError

FORMAT = "samestate-capture-1"
MANIFEST = "calls.jsonl"
MAX_CALLS, MAX_BYTES = 16, 1 << 30
WHY_NOT = ("every", "max_calls", "max_bytes", "graph", "raised", "failed")


def _in_graph():
    """True while a CUDA graph is being captured on the current stream; copying to the host would end that capture."""
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    if cuda is None or not cuda.is_initialized():
        return False
    return bool(cuda.is_current_stream_capturing())


def _compiling():
    compiler = getattr(sys.modules.get("torch"), "compiler", None)
    return bool(compiler is not None and compiler.is_compiling())


# -- declarations

def declared(function=None, adapter=None, **declaration):
    """The declaration of a function that `samestate judge` needs, from an adapter's row, a decorated function,
    or arguments in the words of samestate.kernel; None if there is none. Raises DeclarationError if it
    contradicts itself."""
    if adapter is not None:
        if declaration:
            raise DeclarationError(f"adapter {adapter} and {' '.join(declaration)}: an adapter declares everything")
        from .adapters import names, rows_of

        rows = rows_of(adapter)
        if len(rows) != 1:
            raise DeclarationError(f"adapter {adapter}: {'several rows, ' + ' '.join(r.name for r in rows) if rows else 'no row'}"
                                   f"; known are {' '.join(names())}")
        row = rows[0]
        if row.call:
            raise DeclarationError(f"adapter {adapter}: its tensors are laid out differently from the system's (named.py, {row.call}), "
                                   "which a captured call cannot be read through; gate it instead")
        contracts = list(dict.fromkeys(c for named in row.devices.values() for c in named))
        conventions = {**row.conventions, **({"dtypes": row.dtypes} if row.dtypes else {})}
        return {"declaration": {"name": f"{row.kernel}.{row.form}", "system": row.system, "form": row.form,
                                "contracts": contracts, "limits": list(row.limits), "conventions": conventions},
                "arguments": dict(row.arguments), "options": dict(row.options), "adapter": row.name}
    made = getattr(function, "__samestate__", None)
    if made is None and not declaration:
        return None
    if made is None or declaration:
        from .subject import Subject

        words = dict(declaration)
        system, form = words.pop("system", None), words.pop("form", None)
        if not system or not form:
            raise DeclarationError("a captured function is declared by its system and its form: give both, or name an adapter")
        _require_known(system, form)
        if takes_self(function):
            # A method is called with its object, which no case has, so only its other arguments are declared.
            function = _without_self(function)
        if isinstance(words.get("limits"), str):
            words["limits"] = [words["limits"]]
        made = Subject(function, system, form, **words)
    said = made.declaration()
    asked = {ours[0] if isinstance(ours, tuple) else ours: theirs for ours, theirs in made._asked.items()}
    keys = ("name", "system", "form", "contracts", "limits", "conventions")
    return {"declaration": {key: said[key] for key in keys}, "arguments": asked, "options": made.options}


def _require_known(system, form):
    """Raises DeclarationError for a system or form that the command does not list. Recording does not need the
    command; if it is not installed, the check is made when the calls are judged."""
    from .errors import CommandError, nearest
    from .strategies import _forms

    try:
        forms = _forms(system)
    except (CommandError, OSError):
        return
    if form not in forms:
        raise DeclarationError(f"form {form}{nearest(form, forms)}; {system} has {' '.join(forms)}")


def _without_self(method):
    signature = inspect.signature(method)

    @functools.wraps(method)
    def of_object(*args, **kwargs):
        return method(None, *args, **kwargs)

    of_object.__signature__ = signature.replace(parameters=list(signature.parameters.values())[1:])
    return of_object


# -- recording

class Recorder:
    """Writes calls of one function into a folder: every `every`-th call, at most `max_calls` of them and
    `max_bytes` bytes in this process. `counts` says how many were seen and recorded, and why the others were
    not."""

    def __init__(self, name, dir, every=1, max_calls=MAX_CALLS, max_bytes=MAX_BYTES, declaration=None):
        for key, value in (("every", every), ("max_calls", max_calls), ("max_bytes", max_bytes)):
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise DeclarationError(f"{key} {value!r}: give a whole number above 0")
        self.name, self.dir = name, os.path.abspath(os.fspath(dir))
        self.every, self.max_calls, self.max_bytes = every, max_calls, max_bytes
        self.declaration = declaration
        self.counts = {"seen": 0, "recorded": 0, "bytes": 0, **dict.fromkeys(WHY_NOT, 0)}
        self._lock, self._slots, self._number, self._said, self._introduced = threading.Lock(), 0, 0, False, None
        self._signature = None

    def of(self, function):
        """The function, wrapped."""
        try:
            self._signature = inspect.signature(function)
        except (TypeError, ValueError):
            self._signature = None

        captured = self._wrapped(function)
        captured.samestate_recorder = self
        return captured

    def _wrapped(self, function):
        """A function of the same kind. A coroutine function stays one, and its results are recorded when they
        are available."""
        if inspect.iscoroutinefunction(function):
            @functools.wraps(function)
            async def captured(*args, **kwargs):
                before = self._before(args, kwargs)
                if before is None:
                    return await function(*args, **kwargs)
                try:
                    result = await function(*args, **kwargs)
                except BaseException:
                    self._drop(before, "raised")
                    raise
                self._after(before, result)
                return result

            return captured
        if inspect.isgeneratorfunction(function):
            @functools.wraps(function)
            def captured(*args, **kwargs):
                self._unrecordable()
                return (yield from function(*args, **kwargs))

            return captured
        if inspect.isasyncgenfunction(function):
            @functools.wraps(function)
            def captured(*args, **kwargs):
                self._unrecordable()
                return function(*args, **kwargs)

            return captured

        @functools.wraps(function)
        def captured(*args, **kwargs):
            if _compiling():
                return function(*args, **kwargs)
            before = self._before(args, kwargs)
            if before is None:
                return function(*args, **kwargs)
            try:
                result = function(*args, **kwargs)
            except BaseException:
                self._drop(before, "raised")
                raise
            self._after(before, result)
            return result

        return captured

    def introduce(self):
        """Writes the line of the function, once per process."""
        with self._lock:
            if self._introduced == os.getpid():
                return
            self._introduced = os.getpid()
        from .record import about

        os.makedirs(self.dir, exist_ok=True)
        parameters = [] if self._signature is None else list(self._signature.parameters.values())
        signature = [{"name": p.name, "kind": p.kind.name.lower()} for p in parameters]
        defaults = {p.name: plain(p.default) for p in parameters if p.default is not p.empty}
        self._append({"event": "function", "format": FORMAT, "function": self.name, "process": os.getpid(),
                      "signature": signature, "defaults": defaults, "packages": about(), **(self.declaration or {})})

    def close(self, replaced=False):
        """Writes what was seen and recorded in this process, and if something else has replaced the function."""
        if self._introduced == os.getpid():
            try:
                self._append({"event": "end", "function": self.name, "process": os.getpid(), "replaced": bool(replaced),
                              **self.counts})
            except OSError:
                pass  # the folder is gone, so there is nothing left to write to

    # -- a call

    def _count(self, why):
        with self._lock:
            self.counts[why] += 1

    def _unrecordable(self):
        with self._lock:
            self.counts["seen"] += 1
        self._failed(TypeError("a generator function, whose results do not exist yet when it returns; record the function "
                               "that it calls for each of them"))

    def _failed(self, error):
        with self._lock:
            self.counts["failed"] += 1
            first, self._said = not self._said, True
        if first:
            print(f"samestate.capture: a call of {self.name} was not recorded: {type(error).__name__}: {error} "
                  "(said once; the others are counted)", file=sys.stderr)

    def _before(self, args, kwargs):
        """The inputs, copied; None if this call is not recorded."""
        try:
            with self._lock:
                self.counts["seen"] += 1
                due = (self.counts["seen"] - 1) % self.every == 0
            if not due:
                return self._count("every")
            if self._slots >= self.max_calls:
                return self._count("max_calls")
            if _in_graph():
                return self._count("graph")
            try:
                tensors, values = bound(self._signature, args, kwargs)
            except TypeError:
                return self._count("raised")  # the call itself is about to raise
            size = sum(size_of(value) for value in tensors.values())
            with self._lock:
                if self._slots >= self.max_calls:
                    self.counts["max_calls"] += 1
                    return None
                if self.counts["bytes"] + size > self.max_bytes:
                    self.counts["max_bytes"] += 1
                    return None
                self._slots += 1
                self.counts["bytes"] += size
                seen = self.counts["seen"]
        except Exception as error:
            self._failed(error)
            return None
        before = {"call": seen, "values": values, "tensors": tensors, "size": size}
        try:
            before["copies"] = {name: copied(value) for name, value in tensors.items()}
            return before
        except Exception as error:
            self._drop(before)
            self._failed(error)
            return None

    def _drop(self, before, why=None):
        with self._lock:
            self._slots -= 1
            self.counts["bytes"] -= before["size"]
            if why:
                self.counts[why] += 1

    def _after(self, before, result):
        kept = False
        try:
            if inspect.isawaitable(result) or inspect.isgenerator(result) or inspect.isasyncgen(result):
                raise TypeError(f"it returned a {type(result).__name__}, whose results do not exist yet")
            outputs, nothing = {}, {}
            for name, one in results_of(result):
                split(name, one, outputs, nothing)
            size = sum(size_of(value) for value in outputs.values())
            with self._lock:
                fits = self.counts["bytes"] + size <= self.max_bytes
                if fits:
                    self.counts["bytes"] += size
                    before["size"] += size
            if not fits:
                return self._drop(before, "max_bytes")
            data = {"argument." + name: copy for name, copy in before["copies"].items()}
            for name, value in before["tensors"].items():
                now = copied(value)
                if now[3] != before["copies"][name][3]:
                    data["after." + name] = now
            data.update({"output." + name: copied(value) for name, value in outputs.items()})
            more = sum(len(copy[3]) for name, copy in data.items() if name.startswith("after."))
            with self._lock:
                fits = self.counts["bytes"] + more <= self.max_bytes
                self.counts["bytes"] += more if fits else 0
                before["size"] += more if fits else 0
            if not fits:
                return self._drop(before, "max_bytes")
            self._write(before, data, nothing)
            kept = True
            with self._lock:
                self.counts["recorded"] += 1
        except Exception as error:
            if not kept:
                self._drop(before)
            self._failed(error)

    def _write(self, before, data, nothing):
        from .trace_format import safetensors, write_whole

        self.introduce()
        with self._lock:
            while True:
                self._number += 1
                file = f"call-{os.getpid()}-{self._number:05}.safetensors"
                if not os.path.exists(os.path.join(self.dir, file)):
                    break
        # Wide elements come first, so that each tensor starts at a multiple of its width.
        width = {"F64": 8, "I64": 8, "F32": 4, "I32": 4, "F16": 2, "BF16": 2}
        order = sorted(data, key=lambda name: -width.get(data[name][0], 1))
        write_whole(os.path.join(self.dir, file), safetensors(
            {name: (data[name][0], data[name][1], data[name][3]) for name in order}, {"format": "samestate-call-1"}))
        self._append({"event": "call", "function": self.name, "call": before["call"], "process": os.getpid(), "file": file,
                      "values": before["values"], "none": sorted(n for n, v in nothing.items() if v is None),
                      "tensors": {name: {"dtype": kind, "shape": shape, "strides": strides}
                                  for name, (kind, shape, strides, _) in data.items()}})

    def _append(self, line):
        text = json.dumps(line, allow_nan=False) + "\n"
        path = os.path.join(self.dir, MANIFEST)
        number = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o644)
        try:
            # Another thread or process may be in the middle of its line, which must not be taken for one that a killed
            # process left.
            fcntl.flock(number, fcntl.LOCK_EX)
            end = os.fstat(number).st_size
            if end and os.pread(number, 1, end - 1) != b"\n":
                text = "\n" + text  # a killed process left an incomplete line
            data = text.encode("utf-8")
            while data:
                data = data[os.write(number, data):]
        finally:
            os.close(number)


class Capture:
    """The result of samestate.capture for a name: a context manager that replaces the function in its module,
    and in modules that imported it by name, until it is left. An object that already holds the function keeps
    the old one, so create models inside."""

    def __init__(self, target, settings):
        module, colon, path = target.partition(":")
        if not colon or not module or not path:
            raise DeclarationError(f"target {target!r}: expected package.module:function")
        self.target, self.settings, self.recorder, self._undo = target, settings, None, []

    def patch(self, module):
        """Replaces the function in a module that is loaded."""
        *owners, name = self.target.partition(":")[2].split(".")
        owner = module
        for one in owners:
            owner = getattr(owner, one)
        function = getattr(owner, name)
        if not callable(function):
            raise DeclarationError(f"target {self.target}: {type(function).__name__} is not a function")
        self.recorder = _recorder(self.target, function, **self.settings)
        wrapped = self.recorder.of(function)
        self.recorder.introduce()
        self._replace(owner, name, function, wrapped)
        if not owners:
            for other in list(sys.modules.values()):
                for key, value in list(getattr(other, "__dict__", None).items()) if hasattr(other, "__dict__") else ():
                    if value is function and not (other is module and key == name):
                        self._replace(other, key, function, wrapped)
        return wrapped

    def _replace(self, owner, name, old, new):
        raw = inspect.getattr_static(owner, name, old)
        setattr(owner, name, staticmethod(new) if isinstance(raw, staticmethod) else new)
        self._undo.append((owner, name, raw))

    def close(self):
        """Writes what was seen, and if the program or another package has put something else in the function's
        place."""
        owner, name, _ = self._undo[0]
        now = getattr(owner, name, None)
        self.recorder.close(replaced=getattr(now, "samestate_recorder", None) is not self.recorder)

    def __enter__(self):
        import importlib

        if self.settings.get("dir") is not None:
            self.patch(importlib.import_module(self.target.partition(":")[0]))
        return self

    def __exit__(self, *_):
        if self.recorder is not None:
            self.close()
        for owner, name, raw in reversed(self._undo):
            setattr(owner, name, raw)
        self._undo = []

    @property
    def counts(self):
        return dict(self.recorder.counts) if self.recorder else {}


def _recorder(name, function, dir, every, max_calls, max_bytes, adapter, declaration):
    return Recorder(name, dir, every, max_calls, max_bytes, declared(function, adapter, **declaration))


def capture(function=None, *, dir=None, every=1, max_calls=MAX_CALLS, max_bytes=MAX_BYTES, adapter=None, **declaration):
    """Records calls of a function into the folder `dir`, each with its inputs as they were before the call, its
    outputs, and the changes that the call made to its inputs: every `every`-th call, at most `max_calls` of
    them and `max_bytes` bytes. Without `dir` and the environment variable SAMESTATE_CAPTURE_DIR nothing is
    recorded, and the function is returned unchanged.

    `function` is a function, which is returned wrapped (its `samestate_recorder.counts` says what was
    recorded); or None, which gives a decorator; or "package.module:function", which gives a context manager.
    `adapter`, or a declaration in the words of samestate.kernel (system=, form=, contracts=, decay=, state=,
    ..), says what the function computes. It can also be given later, by `python3 -m samestate.capture
    --declare` or to `samestate judge`. Raises DeclarationError for a declaration that contradicts itself; a
    call that cannot be recorded raises nothing.
    """
    dir = dir if dir is not None else os.environ.get("SAMESTATE_CAPTURE_DIR") or None
    settings = {"dir": dir, "every": every, "max_calls": max_calls, "max_bytes": max_bytes, "adapter": adapter,
                "declaration": declaration}
    if isinstance(function, str):
        return Capture(function, settings)

    def wrap(of):
        if not callable(of):
            raise DeclarationError(f"{of!r:.80} is not a function")
        if dir is None:
            return of
        name = f"{getattr(of, '__module__', None) or '?'}:{getattr(of, '__qualname__', type(of).__qualname__)}"
        recorder = _recorder(name, of, **settings)
        import atexit

        atexit.register(recorder.close)
        return recorder.of(of)

    return wrap if function is None else wrap(function)
