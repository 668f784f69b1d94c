"""SAMESTATE_AUTOTUNE decides which configuration runs, whether it is timed and whether results are kept, in the tuners of
small_packages.py."""
import contextlib
import importlib
import os
import sys
import tempfile
import unittest
from unittest import mock

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]
import small_packages  # noqa: E402
from samestate import compilers, record, tuning  # noqa: E402
from samestate.errors import DeclarationError  # noqa: E402
from samestate.ledger import LEDGER  # noqa: E402

MINE = ("triton", "tilelang", "cutlass", "flashinfer", "torch", "tvm_ffi")


@contextlib.contextmanager
def tuned(said, **environment):
    """The small packages, imported anew as by a process that serves with this setting."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        small_packages.write(folder)
        kept = {key: value for key, value in os.environ.items() if key not in ("TRITON_INTERPRET", tuning.VARIABLE)}
        asked = {} if said is None else {tuning.VARIABLE: said}
        stack.enter_context(mock.patch.dict(
            os.environ, {**kept, "SAMESTATE_CACHE": os.path.join(folder, "cache"), **asked, **environment}, clear=True))
        others = {name: module for name, module in sys.modules.items() if name.partition(".")[0] not in MINE}
        stack.enter_context(mock.patch.dict(sys.modules, others, clear=True))
        stack.enter_context(mock.patch.object(sys, "path", [folder, *sys.path]))
        stack.enter_context(mock.patch.object(sys, "meta_path", list(sys.meta_path)))
        stack.enter_context(mock.patch.object(tuning, "_setting", None))
        importlib.invalidate_caches()
        tuning.obey_environment()
        compilers.start()
        LEDGER.begin()
        yield
        LEDGER.end()


class Triton(unittest.TestCase):
    TIMES = {32: 1.0, 64: 2.0, 128: 3.0}  # the later, the faster

    def tuner(self, **more):
        from triton.runtime.autotuner import Autotuner, Config, OutOfResources

        self.ran = []

        def function(n, size):
            if size > 100 and n > 5:
                raise OutOfResources("shared memory")
            self.ran.append(size)
            return self.TIMES[size]

        return Autotuner(function, [Config(128), Config(64), Config(32)], **more)

    def test_the_first_that_runs_by_itself(self):
        """OutOfResources passes to the next, for this size alone, and nothing runs that is not the call."""
        from_heuristics = lambda: __import__("triton.runtime.autotuner").runtime.autotuner.Heuristics(self.tuner())
        for said in (None, "first"):
            for made in (self.tuner, from_heuristics):
                with self.subTest(said), tuned(said):
                    one = made()
                    self.assertEqual([one.run(n) for n in (1, 10, 10, 1)], [128, 64, 64, 128])
                    self.assertEqual(self.ran, [128, 64, 64, 128])
                    self.assertNotIn("tune", LEDGER.report().get("seconds", {}))
                    self.assertEqual(record.about()["autotune"], "first")
                    self.assertEqual(LEDGER.report()["tuned"], {"by": "first", "configurations": [
                        f"function: size={size}, num_warps=4, num_stages=3" for size in (64, 128)]}, "128 was taken back of one call")

    def test_what_the_kernel_prunes_is_not_tried(self):
        with tuned("first"):
            self.assertEqual(self.tuner(prune=lambda configs, given: [c for c in configs if c.size != 128]).run(1), 64)

    def test_none_runs(self):
        with tuned("first"):
            from triton.runtime.autotuner import OutOfResources

            one = self.tuner(prune=lambda configs, given: configs[:1])
            with self.assertRaises(OutOfResources):
                one.run(10)
            self.assertEqual(len(one.configs), 3, "the tuner has all of its configurations still")

    def test_its_own_tuning(self):
        for said in ("cached", "full"):
            with self.subTest(said), tuned(said):
                one = self.tuner(cache_results=True)
                self.assertEqual(one.run(1), 32, "the fastest")
                self.assertEqual(self.ran, [128, 64, 32, 32])
                self.assertIn("tune", LEDGER.report()["seconds"])
                self.assertEqual(LEDGER.tuned(), {"by": said, "configurations": [
                    "function: size=32, num_warps=4, num_stages=3"]}, "what its timing runs tried is no choice")
                self.assertEqual(os.environ["TRITON_CACHE_AUTOTUNING"], "1" if said == "cached" else "0")
                self.assertEqual(one.cache_results, said == "cached", "full keeps no result, whatever the kernel says")

    def test_a_tuners_launches_are_not_the_calls(self):
        with tuned("full"), LEDGER.span("tune"):
            LEDGER.launched()
            self.assertEqual(LEDGER.launches, 0)

    def test_a_choice_is_told_before_it_runs(self):
        """A kernel that ends its process tells nothing afterwards; one that does not fit is taken back."""
        with tuned("first"):
            told = []
            LEDGER.on_choice = lambda: told.append((len(self.ran), LEDGER.tuned()["configurations"]))
            self.addCleanup(setattr, LEDGER, "on_choice", None)
            self.tuner().run(10)
            sizes = [f"function: size={size}, num_warps=4, num_stages=3" for size in (128, 64)]
            self.assertEqual(told, [(0, sizes[:1]), (0, sizes[1:])])

    def test_one_configuration_is_no_choice(self):
        for said in tuning.SETTINGS:
            with self.subTest(said), tuned(said):
                one = self.tuner()
                del one.configs[1:]
                one.run(1)
                self.assertIsNone(LEDGER.tuned())

    def test_another_word(self):
        with self.assertRaisesRegex(DeclarationError, "SAMESTATE_AUTOTUNE=fastest; known are first cached full"):
            with tuned("fastest"):
                pass

    def test_without_a_setting_a_tuner_is_as_it_is(self):
        """In somebody's own process, which samestate.check serves from."""
        with tuned("first"), mock.patch.object(tuning, "_setting", None):
            self.assertEqual(self.tuner().run(1), 32)
            self.assertIsNone(LEDGER.tuned(), "nothing that the gate could repeat otherwise")
        with tuned("first", TRITON_INTERPRET="1"), mock.patch.object(tuning, "_setting", None):
            self.assertEqual(self.tuner().run(1), 128, "the interpreter can time nothing")


class TileLang(unittest.TestCase):
    def tuner(self, wrong=(0,)):
        from tilelang.autotuner.tuner import AutoTuner
        from tilelang.jit.kernel import JITKernel, Program

        self.made = []

        def make(config):
            self.made.append(config)
            return JITKernel(Program(f"kernel_{config}", wrong=config in wrong, latency=1.0 / (1 + config)))

        return AutoTuner(make, [0, 1, 2])

    def test_the_first_that_compiles_and_runs(self):
        with tuned("first"):
            one = self.tuner()
            self.assertEqual(one.run().func.attrs["global_symbol"], "kernel_1")
            self.assertEqual(self.made, [0, 1])
            self.assertEqual(one.configs, [0, 1, 2])
            report = LEDGER.report()
            self.assertEqual(report["kernels"], ["kernel_1"])
            self.assertLess(report["seconds"]["tune"], 0.04, "no benchmark, which naps for 50 ms")
            self.assertEqual(LEDGER.launches, 0)
            # The tuner is asked once, and its kernel called often.
            made = one.run()
            for _ in range(2):
                LEDGER.begin()
                made(1)
                self.assertEqual(LEDGER.tuned(), {"by": "first", "configurations": ["kernel_1: size=1"]})

    def test_none_runs(self):
        with tuned("first"), self.assertRaisesRegex(RuntimeError, "Auto-tuning failed"):
            self.tuner(wrong=(0, 1, 2)).run()

    def test_its_own_tuning(self):
        for said in ("cached", "full"):
            with self.subTest(said), tuned(said):
                self.assertEqual(self.tuner().run().func.attrs["global_symbol"], "kernel_2")
                self.assertGreater(LEDGER.report()["seconds"]["tune"], 0.09)
                self.assertEqual(os.environ.get("TILELANG_AUTO_TUNING_DISABLE_CACHE"), "1" if said == "full" else None)


if __name__ == "__main__":
    unittest.main()
