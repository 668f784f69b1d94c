"""Whether an exception of a call says that the function does not take it, and where it was raised.

A refusal comes from a `raise`, an `assert` or a check in C++ (TORCH_CHECK, TVM_FFI_ICHECK), before anything was
launched. What a device, a compiler or Python itself (a name that is not there, an argument too many) raised is none.
"""
import dis
import os

from .errors import Error
from .ledger import is_compilers
from .record import _short

# Where launches cannot be seen, an exception that comes later than this had the time for one.
LONGEST = 1.0  # seconds of a call, compilations and imports left out

_ORDINARY = (AssertionError, ValueError, NotImplementedError, TypeError, RuntimeError)
_NEVER = (RecursionError, UnicodeError)
_COMPILERS = ("triton", "torch._dynamo", "torch._inductor", "cutlass", "subprocess")
# Of the device, in the words of CUDA's runtime and driver and of the libraries above them, lower case.
_OF_DEVICE = ("cuda error", "cuda_error", "cudaerror", "cuda driver", "cuda runtime", "out of memory",
              "illegal memory access", "unspecified launch failure", "launch failed", "device-side assert",
              "misaligned address", "no kernel image", "invalid device function", "cublas_status", "cudnn_status",
              "cuda: ", "nccl error", "no nvidia driver")
_RAISES = {dis.opmap[name] for name in ("RAISE_VARARGS", "RERAISE") if name in dis.opmap}


def _frames(error):
    """Frames of the traceback, outermost first, each with the offset of the instruction that it was at."""
    at, out = error.__traceback__, []
    while at is not None:
        out.append((at.tb_frame.f_code, at.tb_lineno, at.tb_lasti))
        at = at.tb_next
    return out


def _innermost(error):
    """The innermost frame of Python: TVM adds frames of its own for C++."""
    return next((frame for frame in reversed(_frames(error)) if frame[0].co_filename.endswith(".py")), None)


def where(error):
    """'fla/ops/chunk.py:123 chunk_fwd' of the innermost frame in Python; '' where there is none."""
    frame = _innermost(error)
    if frame is None:
        return ""
    code, line, _ = frame
    path = _short(code.co_filename) if os.path.exists(code.co_filename) else code.co_filename
    return f"{path}:{line} {getattr(code, 'co_qualname', code.co_name)}"


def _by_statement(error):
    """Whether a `raise` or an `assert` in Python raised it, by the instruction at which the innermost frame stands."""
    frame = _innermost(error)
    if frame is None:
        return False
    code, _, offset = frame
    return 0 <= offset < len(code.co_code) and code.co_code[offset] in _RAISES


def _by_check(error):
    """Whether a check in C++ raised it: Python itself raises no RuntimeError, and what pybind and TVM make others of
    says so in its text or its frames."""
    if isinstance(error, RuntimeError):
        return True
    text = str(error)
    if "incompatible function arguments" in text or "Check failed" in text:
        return True
    return any(code.co_filename.endswith((".cc", ".cpp", ".cu", ".cuh", ".h")) for code, _, _ in _frames(error))


def is_refusal(error, launches, seconds):
    """Whether an exception of the function's call refuses it. `launches`: of kernels, seen in this call; `seconds`: from
    the call's start, compilations and imports left out."""
    if launches or seconds > LONGEST or isinstance(error, _NEVER + (Error,)) or not isinstance(error, _ORDINARY):
        return False
    if is_compilers(error) or type(error).__module__.startswith(_COMPILERS):
        return False
    text = str(error).lower()
    if any(words in text for words in _OF_DEVICE):
        return False
    return _by_statement(error) or _by_check(error)
