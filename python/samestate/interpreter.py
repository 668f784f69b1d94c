"""Triton's interpreter on a CPU, repaired for kernels that were written for the compiler (read and run at
Triton 3.6 to 3.9, numpy 1.26 to 2.5).

The three repairs add what the interpreter lacks and do not touch its arithmetic:
  autotune    nothing can be timed without a driver, so the first configuration is taken (tuning.py)
  indices     a tensor with one element can be an index: Triton 3.6 asks numpy for int(array), which numpy 2.4 and later
              refuse for arrays with an axis
  loops       variables of `for i in range(..)` are Python numbers there and tensors when compiled: i.to(tl.int64)

Its fp32 is IEEE fp32 (contract fp32), although the device may use tf32. bf16 is not supported: its casts to
bf16 truncate instead of rounding to nearest, and tl.dot multiplies the bit patterns, so judging them would say
nothing about the kernel or a contract. fp16 is correct.
"""
import os
import sys

BF16_REASON = "Triton's interpreter truncates bf16 instead of rounding, and its tl.dot multiplies bf16 bit patterns"
_chosen = []  # names of the adapters that run in the interpreter because there is no GPU


def choose(name):
    """Records that an adapter runs in the interpreter because there is no GPU, although nobody asked for the
    interpreter."""
    if name not in _chosen:
        _chosen.append(name)


def is_on():
    """True if the kernels of Triton that this process imported run in its interpreter."""
    return os.environ.get("TRITON_INTERPRET") == "1" and "triton" in sys.modules


def chosen():
    """A sentence about what runs in the interpreter, either adapters without having been asked to, or what was
    asked for; "" if nothing does."""
    if not _chosen:
        return ("Triton's interpreter on the CPU runs these kernels, some 1,000 times slower than the GPU, so the plan has "
                "only small calls; --effort 4 gives it four times as many") if is_on() else ""
    return (f"no GPU is visible here: Triton's interpreter on the CPU runs {' '.join(_chosen)}, far slower and not what "
            f"the GPU compiles; on a machine with a GPU python:{_chosen[0]} runs there, and ?device=cpu asks for the "
            "interpreter")


def prepare():
    """Switches the interpreter on and repairs it. Call it before anything imports Triton kernels. Idempotent."""
    if os.environ.get("TRITON_INTERPRET") != "1":
        if "triton" in sys.modules:
            raise ImportError("triton was imported before TRITON_INTERPRET=1 was set: set it in the environment")
        os.environ["TRITON_INTERPRET"] = "1"
    import ast

    from triton.runtime import autotuner, interpreter

    from . import tuning

    tuning.triton(autotuner)
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
