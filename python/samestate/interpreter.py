"""Triton's interpreter on a CPU, repaired for kernels that were written for the compiler (read at Triton 3.6 and 3.9).

Three repairs, of what the interpreter lacks, none of its arithmetic:
  autotune    nothing can be timed without a driver: the first configuration is taken
  indices     a tensor of one element is an index: Triton 3.6 asks numpy for int(array), which numpy 2.4 and later refuse
              of arrays with an axis
  loops       variables of `for i in range(..)` are numbers of Python there and tensors when compiled: i.to(tl.int64)

Its fp32 is IEEE fp32 (contract fp32), where the device may use tf32. bf16 is not served: its casts to bf16 cut off
instead of rounding to nearest, and tl.dot multiplies the bit patterns, so that what would be judged is neither the
kernel nor a contract. fp16 is right.
"""
import os
import sys

from .errors import DeclarationError

AUTOTUNE = "SAMESTATE_TRITON_AUTOTUNE"
BF16_REASON = "Triton's interpreter cuts bf16 off instead of rounding, and its tl.dot multiplies bf16 bit patterns"


def take_first_configurations():
    """Of what triton.autotune chooses from, the first, untimed. Idempotent; at any time before the first call, but never
    before TRITON_INTERPRET is set, for it imports triton."""
    from triton.runtime.autotuner import Autotuner

    run = Autotuner.run
    if getattr(run, "_samestate_first", False):
        return

    def run_first(self, *args, **more):
        self.configs = self.configs[:1]
        return run(self, *args, **more)

    run_first._samestate_first = True
    Autotuner.run = run_first


def obey_environment():
    """SAMESTATE_TRITON_AUTOTUNE=first asks for the first configurations on a device too: a variant is compiled once, not
    as often as it has configurations, and each run has the same one. The record holds the switch."""
    said = os.environ.get(AUTOTUNE, "")
    if said not in ("", "first"):
        raise DeclarationError(f"{AUTOTUNE}={said}; known is first")
    if said:
        take_first_configurations()


def prepare():
    """Switches the interpreter on and repairs it: before anything imports triton's kernels. Idempotent."""
    if os.environ.get("TRITON_INTERPRET") != "1":
        if "triton" in sys.modules:
            raise ImportError("triton was imported before TRITON_INTERPRET=1 was set: set it in the environment")
        os.environ["TRITON_INTERPRET"] = "1"
    import ast

    from triton.runtime import interpreter

    take_first_configurations()
    if getattr(interpreter, "_samestate_repaired", False):
        return

    def visit_For(self, node):
        self.generic_visit(node)
        static = isinstance(node.iter, ast.Call) and "static" in ast.unparse(node.iter.func)
        if isinstance(node.target, ast.Name) and node.target.id != "_" and not static:
            name = node.target.id
            node.body.insert(0, ast.parse(f"{name} = interpreter_semantic.to_tensor({name}, False)").body[0])
        return node

    patch = interpreter._patch_lang_tensor

    def patch_tensor(tensor, *more):
        patch(tensor, *more)
        tensor.__index__ = lambda self: int(self.handle.data.item())

    interpreter._patch_lang_tensor = patch_tensor
    interpreter.ASTTransformer.visit_For = visit_For
    interpreter._samestate_repaired = True
