"""Kernels in numpy that compile by the packages of small_packages.py, imported in the first call, as public ones do. The
value of q's first element says what a call is to do."""
import os
import time

import numpy as np
import samestate

_KEPT = {}


def _recurrence(q, k, v, g, scale, initial_state):
    B, T, H, dk = q.shape
    S = np.zeros((B, H, dk, v.shape[3]), np.float32) if initial_state is None else initial_state.copy()
    o = np.empty_like(v)
    for t in range(T):
        S = np.exp(g[:, t])[..., None, None] * S + k[:, t][..., None] * v[:, t][..., None, :]
        o[:, t] = scale * np.einsum("bhk,bhkv->bhv", q[:, t], S)
    return o, S


def _triton(seconds=0.0, wrong=False):
    from triton.runtime.jit import JITFunction

    return _KEPT.setdefault(("triton", wrong), JITFunction("wrong_kernel" if wrong else "scan_kernel", seconds, wrong))


def by_triton(shape):
    _triton(0.05).run(shape)


def slow(shape):
    _triton(5.0).run(shape)


def by_tilelang(shape):
    from tilelang.jit.kernel import JITKernel, Program

    _KEPT.setdefault(("tilelang", shape), JITKernel(Program("main"), 0.02))(1)


def from_database(shape):
    from tilelang.jit.kernel import JITKernel, Program

    JITKernel.from_database(Program("main"))(1)


def by_cute(shape):
    from cutlass.base_dsl.compiler import CompileCallable

    def chunk_kernel():
        pass

    if shape not in _KEPT:
        _KEPT[shape] = CompileCallable()(chunk_kernel)
    _KEPT[shape].run_compiled_program([])


def by_cute_on_its_way(shape):
    from cutlass.base_dsl.dsl import BaseDSL

    BaseDSL().compile_and_cache(None, original_function_name="decode_kernel")


def by_ninja(shape):
    from flashinfer.jit.core import JitSpec

    JitSpec(f"gdn_prefill_{shape}").build_and_load()


def by_extension(shape):
    from torch.utils.cpp_extension import _write_ninja_file_and_build_library

    _write_ninja_file_and_build_library(f"mine_{shape}", [], build_directory=os.environ["TORCH_EXTENSIONS_DIR"])


def by_tvm(shape):
    from tvm_ffi.cpp.extension import build_ninja

    build_ninja(os.path.join(os.environ["SAMESTATE_CACHE"], f"tvm_{shape}"))


def by_dynamo(shape):
    from torch._dynamo.callback import CompilationCallbackHandler
    from torch._dynamo.utils import counters

    with CompilationCallbackHandler().install_callbacks("DYNAMO", "0/0"):
        if shape != 5:  # a frame without a graph
            counters["stats"]["unique_graphs"] += 1
            counters["inductor"]["fxgraph_cache_hit" if shape == 4 else "fxgraph_cache_miss"] += 1


def refuses(shape):
    assert shape == 128, f"dk is 128, and not {shape}"


def refuses_late(shape):
    time.sleep(1.2)
    raise ValueError("too late to be one")


def refuses_after_a_launch(shape):
    by_triton(shape)
    raise ValueError("one kernel ran")


def refuses_after_compiling(shape):
    if ("triton", "long") not in _KEPT:
        from triton.compiler import compile
        from triton.runtime.jit import Source

        _KEPT["triton", "long"] = compile(Source("long_kernel", shape, 1.2, False))
    raise NotImplementedError("a compilation of more than a second was before it")


def does_not_compile(shape):
    _triton(wrong=True).run(shape)


def wraps_what_does_not_compile(shape):
    try:
        does_not_compile(shape)
    except Exception as error:
        raise ValueError("no kernel for these sizes") from error


def loses_the_device(shape):
    raise RuntimeError("CUDA error: an illegal memory access was encountered")


def has_a_bug(shape):
    return {}[shape]


def is_called_wrongly(shape):
    by_triton(shape, shape)


WAYS = [by_triton, slow, by_tilelang, from_database, by_cute, by_cute_on_its_way, by_ninja, by_extension, by_tvm, by_dynamo, refuses,
        refuses_late, refuses_after_a_launch, refuses_after_compiling, does_not_compile, wraps_what_does_not_compile,
        loses_the_device, has_a_bug, is_called_wrongly]


@samestate.kernel("retention", "recurrent", heads="repeated", name="compiled.retention")
def kernel(q, k, v, g, scale, initial_state):
    way = WAYS[int(v[0, 0, 0, 0])]
    way(q.shape[3])
    return _recurrence(q, k, v, g, scale, initial_state)

