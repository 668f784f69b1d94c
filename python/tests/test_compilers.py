"""Answers say which kernels a call compiled and loaded and where its time went, and tell refusals from other exceptions. The
packages of small_packages.py are imported in the first call, under `python3 -m samestate.serve`."""
import os
import shutil
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import numpy as np  # noqa: E402
import small_packages  # noqa: E402
from compiled_kernels import WAYS  # noqa: E402
from judge import PYTHON, data, serve  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
WAY = {way.__name__: i for i, way in enumerate(WAYS)}


class Served(unittest.TestCase):
    """A subject of compiled_kernels.py in a process of its own, with a cache folder of its own."""

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="samestate-test-")
        self.addCleanup(shutil.rmtree, self.folder, True)
        small_packages.write(os.path.join(self.folder, "packages"))
        self.judges = []
        self.addCleanup(lambda: [judge.close() for judge in self.judges])

    def start(self, **environment):
        self.judges.append(serve(os.path.join(HERE, "compiled_kernels.py"), environment={
            "PYTHONPATH": os.pathsep.join([os.path.join(self.folder, "packages"), PYTHON]),
            "SAMESTATE_CACHE": os.path.join(self.folder, "cache"), **environment}))
        return self.judges[-1]

    def call(self, judge, way, dk=8):
        """The answer of a call that goes this way, and the busies before it."""
        x = data("retention", B=1, T=2, Hk=1, Hv=1, dk=dk, dv=8)
        x["v"][...] = WAY[way]
        said, read = [], judge.read
        judge.read = lambda: said.append(read()) or said[-1]
        answer, _ = judge.run("compiled.retention.recurrent", {n: (y, "fp32") for n, y in x.items()},
                              {"o": (x["v"].shape, "fp32"), "final_state": (x["initial_state"].shape, "fp32")}, tokens=2,
                              parameters={"Hk": 1, "Hv": 1, "dk": dk, "dv": 8})
        judge.read = read
        self.busy = [message["what"] for message in said if message["type"] == "busy"]
        return answer


class Compiled(Served):
    def test_a_variant_is_compiled_once_and_loaded_by_the_next_process(self):
        for way, name, seconds in (("by_triton", "scan_kernel", 0.05), ("by_ninja", "gdn_prefill_8", 0.02),
                                   ("by_extension", "mine_8", 0.0), ("by_tvm", "tvm_8", 0.0)):
            with self.subTest(way):
                judge = self.start()
                first = self.call(judge, way)
                self.assertEqual((first["type"], first["compiled"], first["kernels"]), ("ran", 1, [name]), first)
                self.assertGreaterEqual(first["seconds"]["compile"], seconds)
                self.assertNotIn("loaded", first)
                again = self.call(judge, way)
                self.assertNotIn("compiled", again)
                other = self.call(self.start(), way)
                self.assertEqual(other.get("loaded"), 1, other)
                self.assertNotIn("compiled", other)
                self.assertEqual(self.call(judge, way, dk=16)["compiled"], 1)

    def test_each_package(self):
        judge = self.start()
        for way, name in (("by_tilelang", "main"), ("by_cute", "chunk_kernel"), ("by_cute_on_its_way", "decode_kernel"),
                          ("by_dynamo", "torch.compile 0/0")):
            with self.subTest(way):
                answer = self.call(judge, way)
                self.assertEqual((answer["compiled"], answer["kernels"]), (1, [name]), answer)
        self.assertEqual(self.call(judge, "from_database").get("loaded"), 1)
        self.assertEqual(self.call(judge, "by_dynamo", dk=4).get("loaded"), 1)
        nothing = self.call(judge, "by_dynamo", dk=5)
        self.assertFalse({"compiled", "loaded"} & set(nothing), nothing)

    def test_a_package_that_was_imported_before(self):
        judge = self.start()
        self.call(judge, "by_triton")
        self.assertEqual(self.call(judge, "by_triton", dk=4)["compiled"], 1)

    def test_where_the_time_goes(self):
        answer = self.call(self.start(), "by_triton")
        seconds = answer["seconds"]
        self.assertLessEqual({"import", "compile", "kernel", "copy"}, set(seconds), "the package is imported in the call")
        self.assertLess(seconds["kernel"], seconds["compile"])
        self.assertGreater(self.start().ready["seconds"]["import"], 0.01)

    def test_what_is_compiled_is_said_while_it_lasts(self):
        """It is not the first call of its sizes, and the subject does not declare that it compiles."""
        judge = self.start()
        self.call(judge, "by_tilelang")
        self.assertEqual(self.busy, [])
        self.assertEqual(self.call(judge, "slow")["compiled"], 1)
        self.assertEqual(self.busy, ["compiling scan_kernel"] * len(self.busy))
        self.assertGreaterEqual(len(self.busy), 2)

    def test_caches_by_package_and_version(self):
        self.call(self.start(), "by_triton")
        self.assertEqual(os.listdir(os.path.join(self.folder, "cache")), ["triton-9.8.7"])
        mine = os.path.join(self.folder, "mine")
        os.mkdir(mine)
        self.call(self.start(TRITON_CACHE_DIR=mine), "by_triton")
        self.assertEqual(len(os.listdir(mine)), 1, "what the user has set stays")
        off = self.call(self.start(SAMESTATE_CACHE="off"), "by_triton")
        self.assertIn("TRITON_CACHE_DIR", off["reason"], "the package is left to its own place")
        home = os.path.join(self.folder, "home")
        self.call(self.start(SAMESTATE_CACHE="", XDG_CACHE_HOME=home), "by_triton")
        self.assertEqual(os.listdir(os.path.join(home, "samestate")), ["triton-9.8.7"])


class Refused(Served):
    def test_refusals_and_what_is_none(self):
        judge = self.start()
        for way, refusal, exception, where in (
                ("refuses", True, "AssertionError", "refuses"),
                ("refuses_after_compiling", True, "NotImplementedError", "refuses_after_compiling"),
                ("refuses_late", False, "ValueError", "refuses_late"),
                ("refuses_after_a_launch", False, "ValueError", "refuses_after_a_launch"),
                ("does_not_compile", False, "CompilationError", "compile"),
                ("wraps_what_does_not_compile", False, "ValueError", "wraps_what_does_not_compile"),
                ("loses_the_device", False, "RuntimeError", "loses_the_device"),
                ("has_a_bug", False, "KeyError", "has_a_bug"),
                ("is_called_wrongly", False, "TypeError", "is_called_wrongly")):
            with self.subTest(way):
                answer = self.call(judge, way)
                self.assertEqual((answer["type"], answer["exception"], answer.get("refusal", False)),
                                 ("error", exception, refusal), answer)
                self.assertRegex(answer["where"], rf"^\S+\.py:\d+ {where}$")

    def test_where_nothing_can_be_launched_the_clock_does_not_decide(self):
        answer = self.call(self.start(), "refuses_late")
        self.assertTrue(answer.get("refusal", False), answer)

    def test_a_traceback_a_kind(self):
        judge = self.start()
        said = [self.call(judge, way, dk=dk) for way, dk in (("refuses", 8), ("refuses", 16), ("has_a_bug", 8))]
        self.assertEqual(["trace" in answer for answer in said], [True, False, True])
        self.assertEqual(said[1]["reason"], "AssertionError: dk is 128, and not 16")
        judge.ask({"type": "hello", "protocol": 1, "samestate": "0.1.0", "memory": f"/proc/{os.getpid()}/fd/{judge.fd}"})
        self.assertIn("trace", self.call(judge, "refuses"), "another run has a traceback of its own")


if __name__ == "__main__":
    unittest.main()
