"""Packed batches of systems of named tensors: a function that takes cu_seqlens is given them, and one that reads beyond a boundary
fails."""
import os
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]
import numpy as np  # noqa: E402
from plugin_runs import needs_command  # noqa: E402

import samestate  # noqa: E402
from samestate.errors import DeclarationError  # noqa: E402
from samestate.subject import Subject  # noqa: E402

DENSE = "v1 short_convolution form=gather B=2 T=5 C=8 W=4"
PACKED = "v1 short_convolution form=packed lengths=5,0,1,9 unowned=2,1 C=8 W=4"


def convolution(fault=""):
    def call(x, kernel, state, bias=None, cu_seqlens=None):
        ends = cu_seqlens if cu_seqlens is not None else range(0, x.shape[0] * x.shape[1] + 1, x.shape[1])
        rows, y, last = x.reshape(-1, x.shape[-1]), np.empty(x.shape, np.float32), np.empty_like(state)
        flat, W = y.reshape(rows.shape), kernel.shape[1]
        for n, (begin, end) in enumerate(zip(ends[:-1], ends[1:])):
            before = state[n if fault != "neighbour" else n - 1]
            if fault == "boundary" and n > 0:
                before = rows[max(begin - W + 1, 0):begin] if begin >= W - 1 else before
            window = np.concatenate([before, rows[begin:end]])
            for t in range(end - begin):
                sums = (window[t:t + W].T * kernel).sum(-1, dtype=np.float64)
                sums = sums if bias is None else sums + bias
                flat[begin + t] = sums / (1 + np.exp(-sums))
            last[n] = window[len(window) - W + 1:]
        return y, last

    return call


@needs_command
class Packed(unittest.TestCase):
    def test_a_right_function_passes(self):
        for case in (DENSE, PACKED):
            with self.subTest(case):
                checked = samestate.check(convolution(), "short_convolution", "gather", case=case)
                self.assertEqual(checked.verdicts, {"pass": 1})

    def test_what_goes_on_across_a_boundary_fails(self):
        for fault in ("boundary", "neighbour"):
            with self.subTest(fault), self.assertRaises(samestate.Failed):
                samestate.check(convolution(fault), "short_convolution", "gather", case=PACKED)

    def test_offsets_may_be_32_bits_wide(self):
        def call(x, kernel, state, cu_seqlens=None):
            assert cu_seqlens is None or cu_seqlens.dtype == np.int32
            return convolution()(x, kernel, state, cu_seqlens=cu_seqlens)

        checked = samestate.check(call, "short_convolution", "gather", case=PACKED, cu_seqlens="int32")
        self.assertEqual(checked.verdicts, {"pass": 1})


class Declared(unittest.TestCase):
    def test_who_takes_offsets_takes_packed_batches(self):
        def dense(x, kernel, state):
            return x, state

        def packed(x, kernel, state, cu_seqlens):
            return x, state

        of = lambda function, **more: Subject(function, "short_convolution", "gather", array="numpy", **more)
        self.assertNotIn("packed", of(dense).declaration())
        self.assertTrue(of(packed).declaration()["packed"])
        with self.assertRaisesRegex(DeclarationError, "takes no cu_seqlens"):
            of(dense, cu_seqlens="int32")


if __name__ == "__main__":
    unittest.main()
