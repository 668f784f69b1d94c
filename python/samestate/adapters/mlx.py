"""mlx-lm's gated delta ops: the file of its functions alone, since the package imports tokenizers and models."""
import importlib.util
import os

_MODULE = None


def _module():
    global _MODULE
    if _MODULE is None:
        found = importlib.util.find_spec("mlx_lm")
        if found is None or not found.submodule_search_locations:
            raise ImportError("No module named 'mlx_lm'")
        path = os.path.join(list(found.submodule_search_locations)[0], "models", "gated_delta.py")
        if not os.path.exists(path):
            raise ImportError("this mlx-lm has no models/gated_delta.py: 0.32 has it")
        spec = importlib.util.spec_from_file_location("samestate_mlx_gated_delta", path)
        _MODULE = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(_MODULE)
    return _MODULE


def gated_delta_ops():
    return _module().gated_delta_ops
