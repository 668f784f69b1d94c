"""Triton's interpreter on a CPU, repaired for kernels that were written for the compiler (read at Triton 3.6 and 3.9).

Two repairs, of what the interpreter lacks, none of its arithmetic:
  autotune    nothing can be timed without a driver: the first configuration is taken
  loops       variables of `for i in range(..)` are numbers of Python there and tensors when compiled: i.to(tl.int64)

Its fp32 is IEEE fp32 (contract fp32), where the device may use tf32. bf16 is not served: its casts to bf16 cut off
instead of rounding to nearest, and tl.dot multiplies the bit patterns, so that what would be judged is neither the
kernel nor a contract. fp16 is right. Triton 3.6 needs numpy < 2.4.
"""
import os
import sys

BF16_REASON = "Triton's interpreter cuts bf16 off instead of rounding, and its tl.dot multiplies bf16 bit patterns"


def prepare():
    """Switches the interpreter on and repairs it: before anything imports triton's kernels. Idempotent."""
    if os.environ.get("TRITON_INTERPRET") != "1":
        if "triton" in sys.modules:
            raise ImportError("triton was imported before TRITON_INTERPRET=1 was set: set it in the environment")
        os.environ["TRITON_INTERPRET"] = "1"
    import ast

    from triton.runtime import autotuner, interpreter

    if getattr(interpreter, "_samestate_repaired", False):
        return
    begin = autotuner.Autotuner.__init__

    def first_configuration(self, fn, arg_names, configs, *args, **more):
        begin(self, fn, arg_names, list(configs)[:1] if configs else configs, *args, **more)

    def visit_For(self, node):
        self.generic_visit(node)
        static = isinstance(node.iter, ast.Call) and "static" in ast.unparse(node.iter.func)
        if isinstance(node.target, ast.Name) and node.target.id != "_" and not static:
            name = node.target.id
            node.body.insert(0, ast.parse(f"{name} = interpreter_semantic.to_tensor({name}, False)").body[0])
        return node

    autotuner.Autotuner.__init__ = first_configuration
    interpreter.ASTTransformer.visit_For = visit_For
    interpreter._samestate_repaired = True
