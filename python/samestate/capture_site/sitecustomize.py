"""Loaded by every Python that a program under `python3 -m samestate.capture` starts: it installs the capture,
and then runs the sitecustomize that it hides.
"""
import os
import sys


def _next():
    """The environment's own sitecustomize."""
    import importlib.machinery
    import importlib.util

    here = os.path.dirname(os.path.abspath(__file__))
    others = [path for path in sys.path if os.path.abspath(path or os.curdir) != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


def _install():
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    there = root in sys.path
    if not there:
        sys.path.insert(0, root)
    try:
        from samestate import capturing_programs

        capturing_programs.install()
    finally:
        if not there and root in sys.path:
            sys.path.remove(root)


try:
    _install()
except Exception as error:  # the program must run in any case
    print(f"samestate.capture: nothing is captured: {type(error).__name__}: {error}", file=sys.stderr)
_next()
