"""python3 interpreted.py: Triton kernels in the repaired interpreter, of the numpy and Triton that this Python has, without
torch: arrays of numpy stand in for tensors. Prints one line of JSON, versions and each kernel's largest relative error.
"""
import json
import sys

import numpy as np
from samestate import interpreter

interpreter.prepare()
import triton  # noqa: E402
import triton.language as tl  # noqa: E402


class Storage:
    def __init__(self, array):
        self.array = array

    def data_ptr(self):
        return self.array.ctypes.data

    def cpu(self):
        return Storage(self.array.copy())

    def copy_(self, other):
        self.array[...] = other.array


class Tensor:
    """The part of torch.Tensor that the interpreter needs."""

    def __init__(self, array):
        self._storage, self.dtype = Storage(array), f"torch.{array.dtype}"

    def data_ptr(self):
        return self._storage.data_ptr()

    def untyped_storage(self):
        return self._storage

    def new_empty(self, *_, **__):
        return Tensor(self._storage.array)

    def set_(self, storage, *_):
        self._storage = storage

    def storage_offset(self):
        return 0

    def size(self):
        return self._storage.array.shape

    def stride(self):
        return tuple(step // self._storage.array.itemsize for step in self._storage.array.strides)


@triton.jit
def retention(q, k, v, g, o, state, lengths, scale, K: tl.constexpr, V: tl.constexpr):
    """A sequence a program, of a length that it loads: a tensor in range(), in an if and as an index, 64-bit offsets of the
    loop's variable."""
    n = tl.program_id(0)
    begin = tl.load(lengths + n)
    end = tl.load(lengths + n + 1)
    at_k, at_v = tl.arange(0, K), tl.arange(0, V)
    S = tl.zeros([K, V], dtype=tl.float32)
    if begin < end:
        for i in range(begin, end):
            t = i.to(tl.int64)
            q_t = tl.load(q + t * K + at_k) * scale
            k_t = tl.load(k + t * K + at_k)
            v_t = tl.load(v + t * V + at_v)
            S = S * tl.exp(tl.load(g + t)) + k_t[:, None] * v_t[None, :]
            tl.store(o + t * V + at_v, tl.sum(q_t[:, None] * S, axis=0))
    tl.store(state + n * K * V + at_k[:, None] * V + at_v[None, :], S)


@triton.autotune(configs=[triton.Config({"C": 16}), triton.Config({"C": 32})], key=["T"])
@triton.jit
def decayed_product(q, k, g, out, T, K: tl.constexpr, C: tl.constexpr):
    """Chunks: a scan, a product, a mask by position, and a tuner that nothing can time."""
    rows, columns = tl.arange(0, C), tl.arange(0, K)
    for i in range(tl.cdiv(T, C)):
        t = i * C + rows
        inside = t < T
        a = tl.load(q + t[:, None] * K + columns[None, :], mask=inside[:, None], other=0.0)
        b = tl.load(k + t[:, None] * K + columns[None, :], mask=inside[:, None], other=0.0)
        sums = tl.cumsum(tl.load(g + t, mask=inside, other=0.0), axis=0)
        A = tl.dot(a, tl.trans(b), input_precision="ieee")
        A = tl.where(rows[:, None] >= rows[None, :], A * tl.exp(sums[:, None] - sums[None, :]), 0.0)
        tl.store(out + t, tl.sum(A, axis=1), mask=inside)


def error(got, expected):
    return float(np.abs(got - expected).max() / np.abs(expected).max())


def main():
    rng, K, V, lengths = np.random.default_rng(3), 16, 8, [0, 5, 5, 23]
    T = lengths[-1]
    q, k, v = (rng.standard_normal((T, n)).astype(np.float32) for n in (K, K, V))
    g = -rng.random(T).astype(np.float32)
    o, state = np.full((T, V), np.nan, np.float32), np.full((3, K, V), np.nan, np.float32)
    tensors = {name: Tensor(x) for name, x in dict(q=q, k=k, v=v, g=g, o=o, state=state).items()}
    retention[(3,)](*tensors.values(), Tensor(np.array(lengths, np.int32)), 0.25, K, V)
    o_expected, S_expected = np.zeros((T, V)), np.zeros((3, K, V))
    for n in range(3):
        for t in range(lengths[n], lengths[n + 1]):
            S_expected[n] = S_expected[n] * np.exp(np.float64(g[t])) + np.outer(k[t], v[t])
            o_expected[t] = 0.25 * q[t] @ S_expected[n]
    out, expected = np.full(T, np.nan, np.float32), np.zeros(T)
    decayed_product[(1,)](tensors["q"], tensors["k"], tensors["g"], Tensor(out), T, K)
    for t in range(T):
        for s in range(t // 16 * 16, t + 1):
            expected[t] += q[t].astype(np.float64) @ k[s] * np.exp(np.float64(g[s + 1:t + 1]).sum())
    print(json.dumps({"triton": triton.__version__, "numpy": np.__version__, "python": sys.version.split()[0],
                      "o": error(o, o_expected), "state": error(state, S_expected), "chunks": error(out, expected)}))


if __name__ == "__main__":
    main()
