"""flash-linear-attention: its functions unchanged, natively or in Triton's interpreter."""
import importlib

from ..errors import DeclarationError


# FLA reads the switch of all back ends once, when it is imported, and the switch of each back end at each call.
_INTRACARD = {"FLA_DISABLE_BACKEND_DISPATCH": "0", "FLA_INTRACARD_CP": "1", "FLA_FLASH_QLA": "0", "FLA_TILELANG": "0",
              "FLA_GLUON": "0"}


def function(module, name, device, intracard=False):
    """The function of fla.ops; on a CPU in the repaired interpreter. It takes FLA's own Triton path and not a back
    end that happens to be installed, and does not cache what `cu_seqlens` gave, because the cache goes by the
    identity of the object. With `intracard`, it takes the one back end that divides long sequences among the
    multiprocessors. Raises DeclarationError if FLA was imported without it."""
    import os

    if intracard:
        os.environ.update(_INTRACARD)
    os.environ.setdefault("FLA_DISABLE_BACKEND_DISPATCH", "1")
    os.environ.setdefault("FLA_DISABLE_TENSOR_CACHE", "1")
    if device == "cpu":
        from .. import interpreter

        interpreter.prepare()
    elif os.environ.get("TRITON_INTERPRET") == "1":  # its kernels would run on the host under the device's contract
        raise DeclarationError(f"{name} on device cuda, and TRITON_INTERPRET=1 has Triton's interpreter run it on the "
                               "host: unset it, or say device=cpu")
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "rolls back to CPU"
        found = getattr(importlib.import_module(module), name)
    if intracard and importlib.import_module("fla.backends")._DISPATCH_DISABLED:
        raise DeclarationError(f"{name} by its back end intracard_cp: FLA was imported without back ends in this process; "
                               "serve this row alone, and leave FLA_DISABLE_BACKEND_DISPATCH unset")
    return found
