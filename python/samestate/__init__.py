"""samestate: linear-attention kernels written in Python, judged by the command `samestate`.

Modules are imported only when a name from them is first used, so `import samestate` loads no array library.
"""
__version__ = "0.1.0"

_HOME = {
    "kernel": "subject", "Subject": "subject", "DeclarationError": "errors", "Unsupported": "errors",
    "NoDevice": "errors", "Failed": "errors", "NothingRan": "errors", "CommandError": "errors",
    "Error": "errors", "check": "checking", "Summary": "checking", "cases": "casing", "Case": "casing",
    "executable": "command", "capture": "capturing",
}
__all__ = sorted(_HOME)


def __getattr__(name):
    import importlib

    if name == "strategies":
        return importlib.import_module("samestate.strategies")
    if name not in _HOME:
        raise AttributeError(f"module 'samestate' has no attribute {name!r}")
    value = getattr(importlib.import_module("samestate." + _HOME[name]), name)
    globals()[name] = value
    return value


def __dir__():
    return sorted(list(globals()) + __all__)
