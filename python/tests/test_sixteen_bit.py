"""Kernels of named tensors on 16-bit tensors: what they are given is rounded first, and the oracle reads that."""
import os
import sys
import unittest
from unittest import mock

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]
import numpy as np  # noqa: E402
from plugin_runs import needs_command  # noqa: E402

import samestate  # noqa: E402
from samestate import adapters  # noqa: E402
from samestate.adapters.operators import OPERATORS  # noqa: E402
from samestate.arrays import bf16_bits, widened  # noqa: E402

ALL = {"x": "bf16", "weight": "bf16", "y": "bf16"}
SEEN = set()


def _rounded(x):
    return widened(np, bf16_bits(np, x.astype(np.float32)))


def norm(x, weight):
    """In float64, rounded once."""
    SEEN.update(name for name, y in (("x", x), ("weight", weight)) if (y != _rounded(y)).any())
    rows = x.astype(np.float64)
    return (rows / np.sqrt((rows * rows).mean(-1, keepdims=True) + 1e-6) * weight).astype(np.float32)


def twice(x, weight):
    """The normalised row is rounded before the weight, as in Llama: not what bf16_io promises."""
    return _rounded(norm(x, np.ones_like(weight))) * weight


@needs_command
class Judged(unittest.TestCase):
    def judged(self, function, dtypes, contract="bf16_io"):
        return samestate.check(function, "rms_norm", "fused", contract=contract, dtypes=dtypes, limits=["T >= 1"],
                               max_cases=20, gate=["--where", "T=..64 D=..256"])

    def test_passes_and_is_given_what_was_declared(self):
        SEEN.clear()
        self.judged(norm, ALL)
        self.assertFalse(SEEN)

    def test_a_weight_that_is_not_declared_stays(self):
        SEEN.clear()
        self.judged(norm, {"x": "bf16", "y": "bf16"})
        self.assertEqual(SEEN, {"weight"})

    def test_fp16(self):
        self.judged(norm, {"x": "fp16", "weight": "fp16", "y": "fp16"}, "fp16_io")

    def test_a_rounding_more_fails(self):
        with self.assertRaises(samestate.Failed):
            self.judged(twice, ALL)


class Rows(unittest.TestCase):
    """The adapters' rows: next to each there is one in fp32, with the same function, arguments and limits."""

    def test_rows(self):
        rows = [row for row in OPERATORS if row.dtypes]
        self.assertTrue(rows)
        for row in rows:
            with self.subTest(row.name):
                name, _, kind = row.name.rpartition(".")
                plain, = adapters.rows_of(name)
                self.assertEqual((row.function, row.arguments, row.options, row.limits, row.call),
                                 (plain.function, plain.arguments, plain.options, plain.limits, plain.call))
                for device, contracts in row.devices.items():
                    self.assertEqual(contracts, [c.replace("fp32", kind + "_io") for c in plain.devices[device]])
                # Triton's interpreter has no bf16.
                self.assertEqual("cpu" in row.devices, kind == "fp16" or not row.package.startswith("flash"))
                self.assertEqual(set(row.dtypes.values()), {kind})
                self.assertLessEqual(set(row.arguments) | {"y"}, set(row.dtypes) | {"state"})
                self.assertFalse(plain.dtypes)

    def test_declared(self):
        """The declaration contains the rows whose packages are installed."""
        made = []
        with mock.patch.dict(os.environ):
            for row in OPERATORS:
                # Another test's, or of a row before it that the interpreter runs: under it no row of a device is made.
                os.environ.pop("TRITON_INTERPRET", None)
                if row.dtypes:
                    try:
                        made.append((row, adapters.subject(row).declaration()))
                    except ImportError:
                        pass
        if not made:
            self.skipTest("no package of a 16-bit adapter")
        for row, declared in made:
            self.assertEqual(declared["conventions"]["dtypes"], row.dtypes)


if __name__ == "__main__":
    unittest.main()
