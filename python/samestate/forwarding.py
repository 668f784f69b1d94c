"""Finds out which function a call is forwarded to: the public name of one package may run another package's
function (flash-linear-attention with FlashQLA installed, or names of Hugging Face that run
flash-linear-attention).

This is observed and not guessed: during a call Python's profiler reports each function that starts and returns.
A function of another package whose result is returned unchanged by its caller (the object itself, or members of
the tuple) is the one that ran. Code that only passes calls on (decorators of torch, this package's adapters) is
ignored.
"""
import contextlib
import os
import sys

# Packages that other code runs inside of; none of them is a kernel's package.
_THROUGH = {"samestate", "torch", "triton", "numpy", "jax", "jaxlib", "mlx", "cupy", "einops", "packaging", "kernels"}
_STANDARD = set(getattr(sys, "stdlib_module_names", ())) | {"functools", "contextlib", "inspect", "threading"}


def _package(frame):
    """The top-level package of a frame's module, or None if it is ignored."""
    name = (frame.f_globals.get("__name__") or "").partition(".")[0]
    return None if not name or name in _THROUGH or name in _STANDARD else name


def _members(result):
    """The ids of a result and, for a tuple, of its members; small numbers and None are left out, because they
    occur everywhere."""
    each = [result, *result] if isinstance(result, (tuple, list)) else [result]
    return {id(x) for x in each if x is not None and not isinstance(x, (int, float, str, bool))}


class Watch:
    """After `with Watch() as watch: function(..)`, watch.function is the function that ran instead, or None if
    it ran itself."""

    def __init__(self):
        self.function = None
        self._stack, self._kept = [], []

    def __enter__(self):
        self._before = sys.getprofile()
        if self._before is None:  # another profiler is left in place
            sys.setprofile(self._see)
        return self

    def __exit__(self, *_):
        if self._before is None:
            sys.setprofile(None)
        self._stack = self._kept = []

    def _see(self, frame, event, result):
        if event == "call":
            package = _package(frame)
            if package is not None:
                self._stack.append((frame, package, []))
        elif event == "return" and self._stack and self._stack[-1][0] is frame:
            _, package, handed = self._stack.pop()
            members, ran = _members(result), None
            for other, theirs, what in handed:
                if members & theirs:
                    ran = (other, what)
            mine = ran if ran is not None else (package, frame.f_code)
            self._kept.append(result)  # an id identifies an object only while the object lives
            for _, outer, given in reversed(self._stack):
                if mine[0] != outer:
                    given.append((mine[0], members, mine[1]))
                break
            if not self._stack and ran is not None:
                self.function = _named(ran[1])


def _named(code):
    """'flash_qla/ops/chunk.py:12 chunk_gated_delta_rule sha256 0123456789abcdef'."""
    from .record import _sha256, _short

    path = code.co_filename
    name = getattr(code, "co_qualname", code.co_name)
    where = _short(path) if os.path.exists(path) else path
    return f"{where}:{code.co_firstlineno} {name} sha256 {_sha256(path)[:16]}"


@contextlib.contextmanager
def paused():
    """Suspends the Watch of this thread, which would slow down a compiler or an import. Other profilers continue."""
    watch = sys.getprofile()
    if not isinstance(getattr(watch, "__self__", None), Watch):
        yield
        return
    sys.setprofile(None)
    try:
        yield
    finally:
        sys.setprofile(watch)
