"""ggml's gated delta net by ctypes: libggml-python's libraries and numpy."""
import ctypes
import glob
import os

_LIBRARIES = None


class _Init(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("buffer", ctypes.c_void_p), ("no_alloc", ctypes.c_bool)]


def _libraries():
    """(ggml-base, ggml-cpu) with the signatures used here. Raises ImportError if they are not installed."""
    global _LIBRARIES
    if _LIBRARIES is None:
        import libggml

        folder = os.path.dirname(libggml.__file__)
        found = []
        for part in ("base", "cpu"):
            paths = sorted(glob.glob(os.path.join(folder, "**", f"libggml-{part}.so*"), recursive=True))
            if not paths:
                raise ImportError(f"libggml-python has no libggml-{part}.so")
            found.append(ctypes.CDLL(paths[0], mode=ctypes.RTLD_GLOBAL))
        base, cpu = found
        pointer, integer = ctypes.c_void_p, ctypes.c_int64
        if not hasattr(base, "ggml_gated_delta_net"):
            raise ImportError("this libggml has no ggml_gated_delta_net: libggml-python 0.20 has it")
        for name, result, arguments in (
                ("ggml_init", pointer, [_Init]),
                ("ggml_new_tensor_4d", pointer, [pointer, ctypes.c_int] + [integer] * 4),
                ("ggml_get_data", pointer, [pointer]),
                ("ggml_gated_delta_net", pointer, [pointer] * 7 + [integer]),
                ("ggml_new_graph", pointer, [pointer]),
                ("ggml_build_forward_expand", None, [pointer, pointer]),
                ("ggml_free", None, [pointer])):
            function = getattr(base, name)
            function.restype, function.argtypes = result, arguments
        cpu.ggml_graph_compute_with_ctx.argtypes = [pointer, pointer, ctypes.c_int]
        _LIBRARIES = base, cpu
    return _LIBRARIES


def gated_delta_net(q, k, v, g, beta, initial_state, threads):
    """o [B, T, Hv, d] and the state [B, Hv, d, d] (value, key) of fp32 tensors; heads h mod Hk, scale d^-1/2.

    ggml_abort ends the process if a shape is not supported, which the judge reports as a crash."""
    import numpy

    base, cpu = _libraries()
    batch, tokens, hk, d = q.shape
    hv = v.shape[2]
    n, m = batch * tokens * hv * d, batch * hv * d * d
    bytes_ = 4 * (q.size + k.size + v.size + g.size + beta.size + m + (n + m) + threads * 4 * (d + 64) * 4)
    context = base.ggml_init(_Init(2 * bytes_ + (4 << 20), None, False))
    if not context:
        raise MemoryError(f"ggml_init of {2 * bytes_} bytes")
    try:
        def tensor(array, *extents):  # ggml orders axes the other way round
            array = numpy.ascontiguousarray(array, numpy.float32)
            made = base.ggml_new_tensor_4d(context, 0, *extents)
            ctypes.memmove(base.ggml_get_data(made), array.ctypes.data, array.nbytes)
            return made

        result = base.ggml_gated_delta_net(
            context, tensor(q, d, hk, tokens, batch), tensor(k, d, hk, tokens, batch), tensor(v, d, hv, tokens, batch),
            tensor(g, 1, hv, tokens, batch), tensor(beta, 1, hv, tokens, batch), tensor(initial_state, d, d, hv, batch),
            1)
        graph = base.ggml_new_graph(context)
        base.ggml_build_forward_expand(graph, result)
        if cpu.ggml_graph_compute_with_ctx(context, graph, threads) != 0:
            raise RuntimeError("ggml_graph_compute_with_ctx failed")
        data = (ctypes.c_float * (n + m)).from_address(base.ggml_get_data(result))
        out = numpy.ctypeslib.as_array(data).copy()
    finally:
        base.ggml_free(context)
    return out[:n].reshape(batch, tokens, hv, d), out[n:].reshape(batch, hv, d, d)


def load():
    """gated_delta_net with its libraries loaded, so that a missing library raises ImportError before any call."""
    _libraries()
    return gated_delta_net
