"""Each array library: what is given, what comes back, in every dtype; skipped, and counted, where it is not installed."""
import importlib.util
import mmap
import os
import sys
import unittest
import unittest.mock

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]
import judge as side  # noqa: E402
import numpy as np  # noqa: E402
from samestate.arrays import LIBRARIES, storage  # noqa: E402
from samestate.errors import DeclarationError, ReturnError  # noqa: E402
from samestate.subject import Subject  # noqa: E402


def tensor(dtype, shape=(2, 3), strides=(5, 1), offset=256, name="o"):
    return {"name": name, "dtype": dtype, "shape": list(shape), "strides": list(strides), "offset": offset}


class Library:
    """Tests that hold for every library; `wide` makes an array of the library from a numpy array in fp32 or fp64."""

    name = None

    def setUp(self):
        if importlib.util.find_spec(self.name) is None:
            self.skipTest(f"{self.name} is not installed")
        self.library = self.make()
        self.mapped = mmap.mmap(-1, 8192)

    def make(self):
        return LIBRARIES[self.name]()

    def values(self, dtype):
        x = np.array([[0.5, -1.0, 3.0], [2.0, 0.0, -0.25]])
        return x if dtype not in ("int32", "int64") else x.astype(np.int64)

    def put(self, t):
        storage(np, self.mapped, t)[...] = side.encoded(self.values(t["dtype"]), t["dtype"])

    def got(self, t):
        return side.decoded(storage(np, self.mapped, t).copy(), t["dtype"])

    def test_given_goes_back_bit_for_bit(self):
        for dtype in ("fp32", "bf16", "fp16", "int32", "int64"):
            source, sink = tensor(dtype), tensor(dtype, offset=1024)
            self.put(source)
            array = self.library.given(self.mapped, source)
            self.assertEqual(tuple(array.shape), (2, 3))
            if dtype == "int64" and self.name == "jax":
                continue  # 32 bits there unless jax is told otherwise
            self.library.store(self.mapped, sink, array)
            self.assertTrue((self.got(sink) == self.values(dtype)).all(), dtype)

    def test_part(self):
        source, sink = tensor("fp32"), tensor("fp32", offset=1024)
        self.put(source)
        self.library.store(self.mapped, sink, self.library.given(self.mapped, source), (1, 1, 2))
        self.assertEqual(self.got(sink).tolist(), [[0, -1, 0], [0, 0, 0]])

    def test_wrong_returns(self):
        source = tensor("fp32")
        array = self.library.given(self.mapped, source)
        half = self.library.given(self.mapped, tensor("fp16"))
        for into, result, said in ((tensor("fp32", (3, 2), (2, 1)), array, "[2, 3]"), (source, half, "fp16"),
                                   (source, None, "None"), (source, [1.0], "list"), (tensor("bf16"), half, "bf16")):
            with self.assertRaises(ReturnError) as caught:
                self.library.store(self.mapped, into, result)
            self.assertIn(said, str(caught.exception))

    def test_wider_is_rounded_to_nearest_even(self):
        for dtype, ulp in (("bf16", 2.0 ** -7), ("fp16", 2.0 ** -10)):
            x = np.array([[1 + ulp / 2, 1 + 1.5 * ulp, -1 - ulp / 2]], np.float32)
            t = tensor(dtype, (1, 3), (3, 1))
            self.library.store(self.mapped, t, self.wide(x))
            self.assertEqual(self.got(t).tolist(), [[1, 1 + 2 * ulp, -1]])

    def test_empty(self):
        t = tensor("fp32", (0, 3), (3, 1))
        self.library.store(self.mapped, t, self.library.given(self.mapped, t))

    def test_edit_is_seen(self):
        for dtype in ("fp32", "bf16"):
            t = tensor(dtype, name="q")
            self.put(t)
            array = self.library.given(self.mapped, t)
            self.library.finish(self.mapped, [t], [array])
            self.assertTrue((self.got(t) == self.values(dtype)).all())
            try:
                array[0, 0] = 7.0
            except TypeError:
                return  # arrays of this library cannot be edited
            self.library.finish(self.mapped, [t], [array])
            self.assertEqual(self.got(t)[0, 0], 7.0)


class OfNumpy(Library, unittest.TestCase):
    name = "numpy"
    wide = staticmethod(lambda x: x)

    def test_no_copy(self):
        t = tensor("fp32")
        self.library.given(self.mapped, t)[0, 0] = 3
        self.assertEqual(self.got(t)[0, 0], 3)

    def test_bits(self):
        library = LIBRARIES["numpy"](bf16="bits")
        t = tensor("bf16")
        self.put(t)
        array = library.given(self.mapped, t)
        self.assertEqual(array.dtype, np.uint16)
        library.store(self.mapped, tensor("bf16", offset=1024), array.copy())
        self.assertTrue((self.got(tensor("bf16", offset=1024)) == self.values("bf16")).all())

    def test_fp64_is_rounded_once(self):
        x = np.array([[1 + 2.0 ** -8 + 2.0 ** -40]])
        t = tensor("bf16", (1, 1), (1, 1))
        self.library.store(self.mapped, t, x)
        self.assertEqual(self.got(t)[0, 0], 1 + 2.0 ** -7)


class OfTorch(Library, unittest.TestCase):
    name = "torch"

    def wide(self, x):
        import torch

        return torch.from_numpy(x)

    def test_no_copy(self):
        t = tensor("bf16")
        self.library.given(self.mapped, t)[0, 0] = 3
        self.assertEqual(self.got(t)[0, 0], 3)

    def test_fp64_is_rounded_once(self):
        import torch

        for dtype, ulp in (("bf16", 2.0 ** -7), ("fp16", 2.0 ** -10)):
            t = tensor(dtype, (1, 2), (2, 1))
            x = torch.tensor([[1 + ulp / 2 + 2.0 ** -40, -1 - ulp / 2 + 2.0 ** -40]], dtype=torch.float64)
            self.library.store(self.mapped, t, x)
            self.assertEqual(self.got(t).tolist(), [[1 + ulp, -1]])


class OfTorchDevice(OfTorch):
    """The path of a device, with copies on the CPU in its place."""

    def make(self):
        import torch

        library = LIBRARIES["torch"]()
        library._device = torch.device("cpu")  # unlike "cpu": copies
        there = unittest.mock.patch.object(torch.cuda, "is_available", lambda: True)
        there.start()
        self.addCleanup(there.stop)
        return library

    def test_no_copy(self):
        t = tensor("fp32")
        array = self.library.given(self.mapped, t)
        self.assertEqual(array.stride(), (5, 1))
        array[0, 0] = 3
        self.assertEqual(self.got(t)[0, 0], 0)


class OfJax(Library, unittest.TestCase):
    name = "jax"

    def wide(self, x):
        import jax.numpy

        return jax.numpy.asarray(x)


class OfMlx(Library, unittest.TestCase):
    name = "mlx"

    def wide(self, x):
        import mlx.core

        return mlx.core.array(x)


class Declarations(unittest.TestCase):
    """A signature and a declaration that contradict each other."""

    def refused(self, function, said, system="gated_delta_rule", form="recurrent", **more):
        with self.assertRaises(DeclarationError) as caught:
            Subject(function, system, form, **more)
        self.assertIn(said, str(caught.exception))

    def test_refused(self):
        full = lambda q, k, v, g, beta, scale, initial_state: None  # noqa: E731
        Subject(full, "gated_delta_rule", "recurrent")
        for function, said, more in (
                (lambda q, k, v, g, scale, initial_state: None, "takes no beta", {}),
                (lambda q, k, v, beta, scale, initial_state: None, "takes no g", {}),
                (lambda q, k, v, g, beta, initial_state: None, "takes no scale", {}),
                (lambda q, k, v, g, beta, scale, initial_state, zeta: None, "asks for zeta", {}),
                (lambda q, query, k, v, g, beta, scale: None, "two names", {}),
                (full, "takes no chunk", {"form": "chunked"}), (full, "did you mean decay", {"decoy": "ln"}),
                (full, "known are kv vk", {"state": "vkk"}), (full, "takes no cu_seqlens", {"layout": "THD"}),
                (full, "known are numpy", {"array": "cupy"}), (full, "known are cpu cuda", {"device": "tpu"}),
                (full, "no contract", {"contracts": []}), (full, "dtypes g: fp8", {"dtypes": {"g": "fp8"}}),
                (full, "not updated in place", {"array": "jax", "state_argument": "in_place"}),
                (full, "has no argument zz", {"arguments": {"q": "zz"}})):
            with self.subTest(said):
                self.refused(function, said, **more)
        self.refused(3, "is not a function")

    def test_names(self):
        full = lambda q, k, v, g, beta, scale, initial_state: None  # noqa: E731
        make = lambda **more: Subject(full, "gated_delta_rule", "recurrent", **more).name  # noqa: E731
        self.assertEqual(make(name="mine"), "mine.recurrent")
        self.assertEqual(make(name="mine.recurrent"), "mine.recurrent")
        self.assertEqual(make(), "test_arrays.gated_delta_rule.recurrent")

    def test_own_names_and_constants(self):
        given = {}

        def f(a, /, b, *, w, gate, beta, gain, S=None, flag=False, **more):
            given.update(a=a, b=b, w=w, gate=gate, flag=flag, more=more)

        s = Subject(f, "gated_delta_rule", "recurrent", options={"flag": True}, arguments={
            "q": "a", "k": "b", "v": "w", "g": "gate", "scale": "gain", "initial_state": "S", "chunk": "size"})
        request = {"scale": 1.0, "chunk": 5, "threads": 1, "l2norm": False, "heads": "interleaved", "contract": "fp32",
                   "outputs": [], "batch": 1, "tokens": 1, "parameters": {}}
        positional, named = s._arguments(request, {n: n for n in ("q", "k", "v", "g", "beta")})
        f(*positional, **named)
        self.assertEqual(given, {"a": "q", "b": "k", "w": "v", "gate": "g", "flag": True, "more": {"size": 5}})


if __name__ == "__main__":
    unittest.main()
