"""flash-linear-attention: its functions as they are, natively or in Triton's interpreter."""
import importlib

from ..errors import DeclarationError


def function(module, name, device):
    """The function of fla.ops; on a CPU in the repaired interpreter. FLA's own Triton path, not a backend that happens
    to be installed; and no cache of what `cu_seqlens` gave, which goes by the identity of the object."""
    import os

    os.environ.setdefault("FLA_DISABLE_BACKEND_DISPATCH", "1")
    os.environ.setdefault("FLA_DISABLE_TENSOR_CACHE", "1")
    if device == "cpu":
        from .. import interpreter

        interpreter.prepare()
    elif os.environ.get("TRITON_INTERPRET") == "1":  # its kernels would run on the host, under the device's contract
        raise DeclarationError(f"{name} on device cuda, and TRITON_INTERPRET=1 has Triton's interpreter run it on the "
                               "host: unset it, or say device=cpu")
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "rolls back to CPU"
        return getattr(importlib.import_module(module), name)
