"""Refusals: exceptions by which a function says that it does not support a call.

A refusal comes from a `raise`, an `assert` or a check in C++ (TORCH_CHECK, TVM_FFI_ICHECK) before anything was
launched. Errors of the device, of a compiler or of Python itself (an undefined name, a wrong number of
arguments) are not refusals.
"""
import dis
import os
import sys

from .errors import Error
from .ledger import is_compilers
from .record import _short

# Not every launch can be seen, so an exception later than this may come after an unseen one.
LONGEST = 1.0  # seconds from the start of the call, without compilations and imports

_ORDINARY = (AssertionError, ValueError, NotImplementedError, TypeError, RuntimeError)
_NEVER = (RecursionError, UnicodeError)
_COMPILERS = ("triton", "torch._dynamo", "torch._inductor", "cutlass", "subprocess")
# Words of device errors, in lower case, as CUDA's runtime, its driver and the libraries above them write them.
_OF_DEVICE = ("cuda error", "cuda_error", "cudaerror", "cuda driver", "cuda runtime", "out of memory",
              "illegal memory access", "unspecified launch failure", "launch failed", "device-side assert",
              "misaligned address", "no kernel image", "invalid device function", "cublas_status", "cudnn_status",
              "cuda: ", "nccl error", "no nvidia driver")
_RAISES = {dis.opmap[name] for name in ("RAISE_VARARGS", "RERAISE") if name in dis.opmap}


def may_launch():
    """True if a package is loaded that can launch kernels."""
    return any(name in sys.modules for name in ("triton", "torch", "cutlass", "tilelang", "tvm", "tvm_ffi", "jax",
                                                "cupy", "numba", "mlx"))


def _frames(error):
    """[(code, line, offset of the instruction)] of the traceback's frames, outermost first."""
    at, out = error.__traceback__, []
    while at is not None:
        out.append((at.tb_frame.f_code, at.tb_lineno, at.tb_lasti))
        at = at.tb_next
    return out


def _innermost(error):
    """The innermost frame in a Python file: TVM adds frames for its C++ files, which are skipped."""
    return next((frame for frame in reversed(_frames(error)) if frame[0].co_filename.endswith(".py")), None)


def where(error):
    """The innermost frame in Python, as 'fla/ops/chunk.py:123 chunk_fwd'; '' if there is none."""
    frame = _innermost(error)
    if frame is None:
        return ""
    code, line, _ = frame
    path = _short(code.co_filename) if os.path.exists(code.co_filename) else code.co_filename
    return f"{path}:{line} {getattr(code, 'co_qualname', code.co_name)}"


def _by_statement(error):
    """True if a `raise` or an `assert` in Python raised it, judging by the current instruction of the innermost
    frame."""
    frame = _innermost(error)
    if frame is None:
        return False
    code, _, offset = frame
    return 0 <= offset < len(code.co_code) and code.co_code[offset] in _RAISES


def _by_check(error):
    """True if a check in C++ raised it. Python itself raises no RuntimeError; exceptions of other types that
    pybind and TVM create are recognised by their text or their frames."""
    if isinstance(error, RuntimeError):
        return True
    text = str(error)
    if "incompatible function arguments" in text or "Check failed" in text:
        return True
    return any(code.co_filename.endswith((".cc", ".cpp", ".cu", ".cuh", ".h")) for code, _, _ in _frames(error))


def is_refusal(error, launches, seconds):
    """True if an exception from the function means that it refuses the call. `launches` is the number of kernel
    launches seen in this call, and `seconds` the time since its start, without compilations and imports."""
    if launches or seconds > LONGEST or isinstance(error, _NEVER + (Error,)) or not isinstance(error, _ORDINARY):
        return False
    if is_compilers(error) or type(error).__module__.startswith(_COMPILERS):
        return False
    text = str(error).lower()
    if any(words in text for words in _OF_DEVICE):
        return False
    return _by_statement(error) or _by_check(error)
