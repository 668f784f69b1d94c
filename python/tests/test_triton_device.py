"""Triton's kernels on a device: nothing that runs in the interpreter passes for one, and one configuration where asked."""
import contextlib
import importlib.util
import io
import os
import subprocess
import sys
import types
import unittest
from unittest import mock

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]
from samestate import adapters, devices, interpreter, record  # noqa: E402
from samestate.adapters import fla  # noqa: E402
from samestate.errors import DeclarationError  # noqa: E402
from samestate.serve import subjects_of  # noqa: E402


def imitated(**environment):
    """triton and flash-linear-attention in sys.modules, each as small as will do, and the environment."""
    modules = {name: types.ModuleType(name) for name in ("triton", "fla", "fla.ops", "fla.ops.simple_gla")}
    modules["fla.ops.simple_gla"].chunk_simple_gla = lambda q, k, v, g, scale, initial_state, output_final_state, cu_seqlens: 1
    kept = {key: value for key, value in os.environ.items() if key not in ("TRITON_INTERPRET", "CUDA_VISIBLE_DEVICES")}
    stack = contextlib.ExitStack()
    stack.enter_context(mock.patch.dict(sys.modules, modules))
    stack.enter_context(mock.patch.dict(os.environ, {**kept, **environment}, clear=True))
    stack.enter_context(mock.patch.object(interpreter, "_chosen", []))
    return stack


INDEX = """
import numpy as np, triton.language as tl
from samestate import interpreter as repaired
repaired.prepare()
from triton.runtime import interpreter
scope = interpreter._LangPatchScope()
interpreter._patch_lang_tensor(tl.core.tensor, scope)
three = tl.core.tensor(interpreter.TensorHandle(np.array([3], dtype=np.int32), tl.int32), tl.int32)
print(list(range(three)))
scope.restore()
assert "__index__" not in vars(tl.core.tensor), "the compiler's tensors are as they were"
"""


class Interpreter(unittest.TestCase):
    @unittest.skipUnless(importlib.util.find_spec("triton"), "needs triton")
    def test_a_tensor_of_one_element_is_an_index_with_any_numpy(self):
        path = os.pathsep.join([os.path.dirname(HERE), *sys.path])
        run = subprocess.run([sys.executable, "-c", INDEX], capture_output=True, text=True,
                             env={**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": path})
        self.assertEqual(run.stdout.strip(), "[0, 1, 2]", run.stderr)


class Device(unittest.TestCase):
    def test_an_interpreted_kernel_is_none_of_a_device(self):
        with imitated(TRITON_INTERPRET="1"), self.assertRaisesRegex(DeclarationError, "TRITON_INTERPRET=1.*unset it"):
            subjects_of("fla.chunk_simple_gla?device=cuda")
        with imitated():
            self.assertEqual(subjects_of("fla.chunk_simple_gla?device=cuda")[0].device, "cuda")

    def test_a_gpu_that_is_there_is_used(self):
        for name, gpu, device, said in (
                ("fla.chunk_simple_gla", True, "cuda", False), ("fla.chunk_simple_gla", False, "cpu", True),
                ("fla.chunk_simple_gla?device=cpu", True, "cpu", False), ("fla.chunk_simple_gla?device=cpu", False, "cpu", False),
                ("fla.chunk_simple_gla?device=cuda", False, "cuda", False)):
            with self.subTest(name, gpu=gpu), imitated(), mock.patch.object(interpreter, "prepare"), \
                    mock.patch.object(devices, "has_gpu", lambda: gpu), contextlib.redirect_stderr(io.StringIO()) as out:
                made, = subjects_of(name)
                self.assertEqual(made.device, device)
                self.assertEqual(out.getvalue(), "", "it is said once a run, by the command")
                self.assertEqual("fla.chunk_simple_gla, far slower" in record.about().get("interpreter", ""), said)

    def test_gpus_that_are_hidden_are_none(self):
        for said in ("", "-1", " -1,0"):
            with self.subTest(said), mock.patch.dict(os.environ, CUDA_VISIBLE_DEVICES=said), \
                    mock.patch.object(devices, "_driver_has_one", lambda nodes: True):
                self.assertFalse(devices.has_gpu())
        with mock.patch.dict(os.environ, CUDA_VISIBLE_DEVICES="0"), \
                mock.patch.object(devices, "_driver_has_one", lambda nodes: True):
            self.assertTrue(devices.has_gpu())

    def test_the_driver_is_asked_where_there_are_no_device_nodes(self):
        class Driver:
            def __init__(self, status, count):
                self.cuInit, self._count = lambda flags: status, count

            def cuDeviceGetCount(self, into):
                into._obj.value = self._count
                return 0

        for driver, nodes, found in ((Driver(0, 1), False, True), (Driver(0, 0), False, False), (Driver(100, 1), False, False),
                                     (Driver(100, 0), True, True), (OSError("none"), True, False)):
            load = mock.Mock(side_effect=driver) if isinstance(driver, OSError) else mock.Mock(return_value=driver)
            with self.subTest(found=found, nodes=nodes), mock.patch.object(devices.ctypes, "CDLL", load):
                devices._driver_has_one.cache_clear()
                self.assertEqual(devices._driver_has_one(nodes), found)
        devices._driver_has_one.cache_clear()

    def test_no_cache_and_no_dispatch_on_either(self):
        with imitated():
            fla.function("fla.ops.simple_gla", "chunk_simple_gla", "cuda")
            self.assertEqual(os.environ["FLA_DISABLE_TENSOR_CACHE"], "1")
            self.assertEqual(os.environ["FLA_DISABLE_BACKEND_DISPATCH"], "1")


class Contracts(unittest.TestCase):
    def test_each_dtype_on_a_device(self):
        """The dtypes that the functions take are declared: only chunk_delta_rule refuses fp32 tensors."""
        seen = 0
        for row in adapters.ROWS:
            # Functions under their own names; what forces one of the kernels that a function chooses among is of 16 bit.
            if not row.function.startswith("fla.") or row.variant[-1:] != ("l2norm",) or row.call or row.dtypes:
                continue
            seen += 1
            with self.subTest(row.name):
                kinds = {contract.partition("+")[0] for contract in row.devices["cuda"]}
                wide = set() if row.name == "fla.chunk_delta_rule" else {
                    "fp32" if row.form == "recurrent" else "tf32_truncated"}
                self.assertEqual(kinds, {"bf16", "fp16"} | wide)
        self.assertEqual(seen, 10)


if __name__ == "__main__":
    unittest.main()
