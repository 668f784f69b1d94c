"""mlx-lm's gated delta and state space operations. Only the files of these functions are imported, because the
package itself imports tokenizers and models.
"""
import importlib.util
import os

_MODULES = {}


def _module(stem):
    if stem not in _MODULES:
        found = importlib.util.find_spec("mlx_lm")
        if found is None or not found.submodule_search_locations:
            raise ImportError("No module named 'mlx_lm'")
        path = os.path.join(list(found.submodule_search_locations)[0], "models", stem + ".py")
        if not os.path.exists(path):
            raise ImportError(f"this mlx-lm has no models/{stem}.py: 0.32 has it")
        spec = importlib.util.spec_from_file_location("samestate_mlx_" + stem, path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        _MODULES[stem] = module
    return _MODULES[stem]


def gated_delta_ops():
    return _module("gated_delta").gated_delta_ops


def gated_delta_update():
    return _module("gated_delta").gated_delta_update


def ssm_attn():
    return _module("ssm").ssm_attn
