"""The conversation, with the judge's side of judge.py: every system of the family, every convention, hostile kernels."""
import json
import os
import platform
import re
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import judge as side  # noqa: E402
import numpy as np  # noqa: E402
from judge import converted, data, recurrence, serve  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
KERNELS = os.path.join(HERE, "kernels.py")


def family_run(judge, kernel, system, conventions=None, scale=0.25, heads="interleaved", l2norm=False, lengths=None,
               state=True, dtype="fp32", gap=0, in_place=(), seed=0, **sizes):
    """Runs one call of the family; returns (answer, worst relative error of o and of the state)."""
    conventions = conventions or {}
    if lengths is not None:
        sizes.update(B=1, T=sum(lengths), N=len(lengths))
    x = data(system, seed=seed, **sizes)
    if not state:
        x["initial_state"] = np.zeros_like(x["initial_state"])
    if dtype != "fp32":
        for n in "qkv":
            x[n] = side.decoded(side.encoded(x[n], dtype), dtype).astype(np.float32)
    given, back = converted(x, conventions, scale, lengths)
    if not state and conventions.get("state_argument", "optional") == "optional":
        del given["initial_state"]
    if dtype != "fp32":
        given.update({n: (given[n][0], dtype) for n in "qkv"})
    o, S = recurrence(back, system, scale, heads, l2norm, lengths)
    if conventions.get("layout") == "BHTD":
        o = o.swapaxes(1, 2)
    if conventions.get("layout") == "THD":
        o = o.reshape((-1,) + o.shape[2:])
    if conventions.get("state") == "vk":
        S = S.swapaxes(-1, -2)
    B, T, Hk, dk = x["q"].shape
    answer, got = judge.run(kernel, given, {"o": (o.shape, dtype), "final_state": (S.shape, "fp32")}, gap, in_place,
                            batch=B, tokens=T, scale=scale, heads=heads, l2norm=l2norm,
                            parameters={"Hk": Hk, "Hv": x["v"].shape[2], "dk": dk, "dv": x["v"].shape[3]})
    error = lambda a, e: float(np.abs(a - e).max() / (np.abs(e).max() + 1e-30)) if e.size else 0.0
    return answer, error(got["o"], o), error(got["final_state"], S)


class Conversation(unittest.TestCase):
    def setUp(self):
        self.judges = []

    def serve(self, *words, **more):
        self.judges.append(serve(*words, **more))
        return self.judges[-1]

    def tearDown(self):
        for judge in self.judges:
            if judge.process.poll() is None:
                judge.process.kill()
            judge.close()

    def right(self, answer, o, S, most=1e-6):
        self.assertEqual(answer["type"], "ran", answer)
        self.assertLess(max(o, S), most)

    def test_every_system_of_the_family(self):
        judge = self.serve(KERNELS)
        for system in ("gated_delta_rule", "delta_rule", "retention", "linear_attention"):
            for more in ({}, {"heads": "tiled"}, {"l2norm": True}, {"state": False}, {"lengths": [3, 0, 2]},
                         {"gap": 3}, {"T": 0}, {"B": 1, "T": 1}, {"in_place": {"final_state": "initial_state"}},
                         {"Hk": 1, "Hv": 1, "dk": 5, "dv": 3}):
                with self.subTest(system=system, **more):
                    self.right(*family_run(judge, f"kernels.{system}.recurrent", system, **more))
                    self.assertFalse(judge.outside_changed and "in_place" not in more)

    def test_bf16_and_fp16_are_rounded_once(self):
        judge = self.serve(KERNELS)
        for dtype, half_ulp in (("bf16", 2.0 ** -8), ("fp16", 2.0 ** -11)):
            answer, o, S = family_run(judge, "kernels.gated_delta_rule.recurrent", "gated_delta_rule", dtype=dtype)
            self.right(answer, 0.0, S)
            self.assertLess(o, half_ulp * 1.01)

    def test_memory_grows(self):
        judge = self.serve(KERNELS)
        for T in (1, 4000, 2):
            self.right(*family_run(judge, "kernels.linear_attention.recurrent", "linear_attention", T=T), most=1e-5)

    def test_every_convention(self):
        for key, value in [("decay", d) for d in ("ln", "log2", "linear", "raw")] + [
                ("state", "vk"), ("heads", "repeated"), ("heads", "tiled"), ("scale", "folded"), ("scale", "dk"),
                ("beta", "logit"), ("beta", "twice_logit"), ("layout", "BHTD"), ("layout", "THD"),
                ("state_argument", "required"), ("state_argument", "in_place"), ("cu_seqlens", "int32"),
                ("l2norm", "in_kernel")]:
            with self.subTest(key=key, value=value):
                judge = self.serve(f"{os.path.join(HERE, 'conventions.py')}:by_{key}?system=gated_delta_rule&form=recurrent&{key}={value}")
                self.assertEqual(judge.ready["kernels"][0]["conventions"][key], value)
                more = {"scale": 8 ** -0.5} if value == "dk" else {}
                if key in ("cu_seqlens",) or value == "THD":
                    more["lengths"] = [3, 0, 2]
                if value == "in_place":
                    more["in_place"] = {"final_state": "initial_state"}
                if key == "state_argument":
                    more["state"] = value == "in_place"
                if value == "tiled":
                    more["heads"] = "tiled"
                if value == "in_kernel":
                    more["l2norm"] = True
                self.right(*family_run(judge, judge.ready["kernels"][0]["name"], "gated_delta_rule", {key: value},
                                       **more))

    def test_alpha_by_name_is_the_factor(self):
        judge = self.serve(KERNELS + ":alpha")
        row = judge.ready["kernels"][0]
        self.assertEqual(row["name"], "mine.alpha.recurrent")
        self.assertEqual(row["conventions"], {"decay": "linear", "state": "vk", "heads": "interleaved",
                                              "l2norm": "outside"})
        self.assertEqual(row["limits"], ["form != packed"])
        self.right(*family_run(judge, row["name"], "gated_delta_rule", row["conventions"]))

    def test_named_tensors(self):
        judge = self.serve(KERNELS + ":rms_norm")
        x = np.random.default_rng(1).standard_normal((2, 3, 4, 5)).astype(np.float32)
        w = np.ones(5, np.float32)
        answer, got = judge.run("kernels.rms_norm.equation", {"x": (x, "fp32"), "weight": (w, "fp32")},
                                {"y": (x.shape, "fp32")}, parameters={"H": 4, "D": 5},
                                scale=None, heads=None, l2norm=None, chunk=None)
        self.assertEqual(answer["type"], "ran", answer)
        self.assertLess(np.abs(got["y"] - x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6)).max(), 1e-6)

    def test_taps_are_written_where_a_call_asks_for_them(self):
        judge = self.serve(KERNELS + ":gated_delta_net")
        self.assertEqual(len(judge.ready["kernels"][0]["taps"]), 10)
        rng, one = np.random.default_rng(1), np.float32
        shapes = {"x": (1, 3, 8), "in_proj_qkvz": (12, 8), "in_proj_ba": (2, 8), "conv1d": (9, 2), "A_log": (1, 1),
                  "dt_bias": (1, 1), "norm": (1, 3), "out_proj": (8, 3)}
        given = {n: (rng.standard_normal(s).astype(one), "fp32") for n, s in shapes.items()}
        given.update(mask=(np.ones((1, 3, 1), one), "fp32"), convolution=(np.zeros((1, 1, 9), one), "fp32"),
                     S=(np.zeros((1, 1, 3, 3), one), "fp32"))
        outputs = {"y": (1, 3, 8), "core": (1, 3, 3), "convolution": (1, 1, 9), "S": (1, 1, 3, 3)}
        for taps in ({}, {"q": (1, 3, 1, 3), "gated": (1, 3, 3)}):
            answer, got = judge.run("kernels.gated_delta_net.recurrent", given,
                                    {n: (s, "fp32") for n, s in {**outputs, **taps}.items()},
                                    parameters={"D": 8, "Hk": 1, "R": 1, "dk": 3, "dv": 3, "W": 2}, scale=None, heads=None,
                                    l2norm=None, chunk=None)
            self.assertEqual(answer["type"], "ran", answer)
        np.testing.assert_allclose((got["q"] ** 2).sum(-1), 1, rtol=1e-4)
        np.testing.assert_allclose(got["gated"] @ given["out_proj"][0].T, got["y"], rtol=1e-4, atol=1e-6)

    def test_taps_are_a_layers_and_come_by_name(self):
        import samestate.errors
        from samestate.subject import Subject

        with self.assertRaisesRegex(samestate.errors.DeclarationError, "retention is not a layer"):
            Subject(lambda q, k, v, g, initial_state, scale: None, "retention", "recurrent", taps="q")
        layer = Subject(lambda x: x, "gated_delta_net", "recurrent", taps="q")
        with self.assertRaisesRegex(samestate.errors.ReturnError, "dict by name"):
            layer._results(np.zeros(1), [{"name": "q"}], {})

    def test_declared_by_options(self):
        for words in ([KERNELS + ":plain", "--system", "gated_delta_rule", "--form", "recurrent", "--contracts",
                       "fp32,bf16_io", "--limits", "dk <= 64; dv % 2 = 0"],
                      [KERNELS + ":plain?system=gated_delta_rule&form=recurrent&contracts=fp32,bf16_io"
                                 "&limits=dk%20<=%2064;dv % 2 = 0"]):
            judge = self.serve(*words)
            row = judge.ready["kernels"][0]
            self.assertEqual(row["contracts"], ["fp32", "bf16_io"])
            self.assertEqual(row["limits"][:2], ["dk <= 64", "dv % 2 = 0"])
            self.assertIn("kernels.py:", row["about"]["function"])
            self.assertEqual(len(row["about"]["sha256"]), 64)
            self.right(*family_run(judge, row["name"], "gated_delta_rule"))

    def test_record(self):
        judge = self.serve(KERNELS + ":plain?system=gated_delta_rule&form=recurrent",
                           environment={"FLA_USE_FAST_OPS": "1", "NVIDIA_TF32_OVERRIDE": "0"})
        self.assertEqual(judge.ready["protocol"], 1)
        self.assertEqual(judge.ready["about"]["numpy"], np.__version__)
        self.assertEqual(judge.ready["about"]["FLA_USE_FAST_OPS"], "1")
        self.assertEqual(judge.ready["about"]["NVIDIA_TF32_OVERRIDE"], "0")
        self.assertTrue(all(isinstance(v, str) for v in judge.ready["about"].values()))

    def test_hostile(self):
        """Each is answered by an error that says what it was, and the subject goes on."""
        judge = self.serve(KERNELS)
        for name, words in {
                "wrong_shape": ["o", "[2, 5, 4, 8]", "[2, 6, 4, 8]"], "wrong_dtype": ["o", "fp16", "fp32"],
                "wrong_integers": ["int64", "fp32"], "returns_none": ["None", "o and final_state"],
                "none_for_state": ["final_state is None"], "o_alone": ["one result"], "three": ["3 results"],
                "a_list": ["list", "numpy"], "raises": ["ValueError: a reason of two lines"],
                "exits": ["sys.exit(0)"], "deep": ["RecursionError"], "all_memory": ["MemoryError"]}.items():
            with self.subTest(name):
                answer, _, _ = family_run(judge, f"hostile.{name}.recurrent", "linear_attention")
                self.assertEqual(answer["type"], "error", answer)
                for word in words:
                    self.assertIn(word, answer["reason"])
                self.assertNotIn("\n", answer["reason"])
                self.assertEqual(answer["id"], judge.count)
        answer, _, _ = family_run(judge, "hostile.complains.recurrent", "linear_attention")
        self.assertEqual((answer["type"], answer["reason"]), ("unsupported", "dk of 8"))
        self.right(*family_run(judge, "kernels.retention.recurrent", "retention"))

    def test_any_exception_is_answered(self):
        """One whose text UTF-8 cannot hold, and one that has no text."""
        judge = self.serve(KERNELS)
        for name, words in {"half_a_pair": "ValueError: ?[2JAAA", "no_text": "Mute: (its text could not be had"}.items():
            answer, _, _ = family_run(judge, f"hostile.{name}.recurrent", "linear_attention")
            self.assertEqual(answer["type"], "error", answer)
            self.assertIn(words, answer["reason"])
            self.assertNotIn("\x1b", answer["reason"] + answer.get("trace", ""))
        self.right(*family_run(judge, "kernels.retention.recurrent", "retention"))

    @unittest.skipIf(platform.machine() != "x86_64", "MXCSR is of x86-64")
    def test_float_environment(self):
        judge = self.serve(KERNELS)
        self.assertNotIn("float_environment", judge.ready["about"])
        for name, words in {"rounds_down": "rounding toward minus infinity, x87 rounding toward minus infinity",
                            "flushes": "flush-to-zero (FTZ) on, denormals-are-zero (DAZ) on"}.items():
            for _ in range(2):  # the second call does not depend on what the first call left
                answer, _, _ = family_run(judge, f"hostile.{name}.recurrent", "linear_attention")
                self.assertEqual((answer["type"], answer.get("environment")), ("error", True), answer)
                self.assertIn(words + ";", answer["reason"])
            self.right(*family_run(judge, "kernels.retention.recurrent", "retention"))
        answer, _, _ = family_run(judge, "hostile.flushes_and_restores.recurrent", "linear_attention")
        self.assertEqual(answer["type"], "ran", answer)
        answer, _, _ = family_run(judge, "hostile.flushes_and_raises.recurrent", "linear_attention")
        self.assertIn("after the change", answer["reason"])
        self.right(*family_run(judge, "kernels.retention.recurrent", "retention"))

    def test_hostile_output(self):
        for name in ("prints", "closes_stdout", "reads_stdin", "forks"):
            with self.subTest(name):
                judge = self.serve(KERNELS)
                import threading

                drained = []
                thread = threading.Thread(target=lambda: drained.append(judge.process.stderr.read()))
                thread.start()
                answer, _, _ = family_run(judge, f"hostile.{name}.recurrent", "linear_attention")
                self.assertEqual(answer["type"], "ran", answer)
                self.right(*family_run(judge, "kernels.retention.recurrent", "retention"))
                judge.send({"type": "bye"})
                self.assertIsNone(judge.read())
                thread.join(20)
                if name == "prints":
                    self.assertIn(b"from a child", drained[0])
                    self.assertGreater(len(drained[0]), 6 << 20)

    def test_hostile_ends(self):
        for name in ("ends", "closes_all"):
            judge = self.serve(KERNELS)
            answer, _, _ = family_run(judge, f"hostile.{name}.recurrent", "linear_attention")
            self.assertIsNone(answer, name)

    def test_edited_inputs_are_seen_and_returned_inputs_are_copied(self):
        judge = self.serve(KERNELS)
        answer, _, _ = family_run(judge, "hostile.edits_input.recurrent", "linear_attention")
        self.assertTrue(judge.outside_changed)
        self.right(answer, 0, 0)
        x = data("linear_attention")
        given, _ = converted(x, {}, 1.0)
        answer, got = judge.run("hostile.returns_input.recurrent", given,
                                {"o": (x["v"].shape, "fp32"), "final_state": (x["initial_state"].shape, "fp32")},
                                batch=2, tokens=6, parameters={})
        self.assertFalse(judge.outside_changed)
        self.assertTrue((got["o"] == x["v"]).all() and (got["final_state"] == x["initial_state"]).all())

    def test_nan_is_written(self):
        judge = self.serve(KERNELS)
        x = data("linear_attention")
        given, _ = converted(x, {}, 1.0)
        answer, got = judge.run("hostile.nan.recurrent", given,
                                {"o": (x["v"].shape, "fp32"), "final_state": (x["initial_state"].shape, "fp32")},
                                batch=2, tokens=6, parameters={})
        self.assertEqual(answer["type"], "ran")
        self.assertTrue(np.isnan(got["o"]).all())

    def test_bad_messages_are_answered(self):
        judge = self.serve(KERNELS)
        for line, word in (("not json", "no JSON"), ("[1]", "no object"), ('{"type":"dance","id":7}', "dance"),
                           ('{"type":"run","id":8}', "a run without kernel")):
            answer = judge.ask(line)
            self.assertEqual(answer["type"], "error")
            self.assertIn(word, answer["reason"])
        answer, _ = judge.run("nobody", {}, {})
        self.assertIn("nobody", answer["reason"])
        for change in ({"offset": 1 << 40}, {"offset": 3}, {"shape": [4, -1]}, {"dtype": "fp8"}, {"strides": []},
                       {"strides": [1 << 50, 1]}, {"shape": "x"}):
            tensor = {"name": "q", "dtype": "fp32", "shape": [2, 2], "strides": [2, 1], "offset": 256, **change}
            answer = judge.ask({"type": "run", "id": 9, "kernel": "kernels.retention.recurrent", "contract": "fp32",
                                "batch": 1, "tokens": 1, "chunk": 0, "scale": 1, "heads": "interleaved",
                                "l2norm": False, "threads": 1, "parameters": {}, "bytes": 4096, "inputs": [tensor],
                                "outputs": []})
            self.assertEqual(answer["type"], "error", change)
        self.right(*family_run(judge, "kernels.retention.recurrent", "retention"))

    def test_another_protocol(self):
        judge = self.serve(KERNELS, hello=False)
        self.assertIsNone(judge.ask({"type": "hello", "protocol": 2, "samestate": "9.0.0", "memory": "/dev/null"}))
        self.assertEqual(judge.process.wait(10), 2)
        self.assertIn(b"protocol 2", judge.process.stderr.peek())


class Start(unittest.TestCase):
    """A subject that cannot be served ends with exit 2 and one line."""

    def fails(self, *words):
        child = subprocess.run([sys.executable, "-m", "samestate.serve", *words], stdin=subprocess.DEVNULL,
                               capture_output=True, text=True, env=dict(os.environ, PYTHONPATH=side.PYTHON))
        self.assertEqual(child.returncode, 2, child)
        said = json.loads(child.stdout)  # the judge is told the same
        self.assertEqual((said["type"], "samestate.serve: " + said["reason"] + "\n"), ("error", child.stderr))
        return child.stderr

    def test_all_that_is_missing_at_once(self):
        """A declaration of the words that it proposes is one."""
        text = self.fails(KERNELS + ":in_pieces")
        for word in ("system", "form", "limits", "scale"):
            self.assertIn(word, text.partition("missing: ")[2].partition(".")[0])
        proposed = re.search("--subject 'python:(.*)'", text).group(1)
        self.assertIn("chunk%20in%2016", proposed)
        judge = side.Judge([sys.executable, "-m", "samestate.serve", proposed])
        self.addCleanup(judge.close)
        declared = judge.ready["kernels"][0]
        self.assertEqual((declared["system"], declared["form"]), ("gated_delta_rule", "chunked"))
        text = self.fails(KERNELS + ":in_pieces?system=gated_delta_rule&form=chunked")
        self.assertIn("takes no scale", text)
        self.assertIn("takes no chunk", text)

    def test_one_line_that_says_what_to_do(self):
        missing = os.path.join(HERE, "missing_package.py")
        for words, said in (
                (["ggml.gated_delta_nte"], "did you mean ggml.gated_delta_net"),
                (["no/such/file.py:f"], "there is no file"), ([KERNELS + ":plane"], "did you mean plain"),
                ([KERNELS + ":plain"], "is not declared"), ([KERNELS + ":alpha", "--decay", "ln"], "declared where"),
                ([KERNELS + ":plain?system=gated_delta_rule&form=chunked"], "takes no chunk"),
                ([KERNELS + ":plain?system=gated_delta_rule&form=recurrent&decai=ln"], "did you mean decay"),
                ([KERNELS + ":plain?system=gated_delta_rule&form=recurrent&decay=lin"], "known are ln log2 linear"),
                ([KERNELS + ":right?system=retention&form=recurrent"], "system"),
                ([KERNELS + ":plain?system=gated_delta_rule&form=recurrent&l2norm_epsilon=1e-5"], "has none: add the argument"),
                ([KERNELS + ":plain?system=gated_delta_rule&form=recurrent&l2norm=in_kernel&l2norm_epsilon=big"], "1e-12 to"),
                ([KERNELS + ":plain?system=gated_delta_rule&form=recurrent&l2norm=in_kernel&l2norm_place=root"],
                 "known are inside outside max"),
                ([KERNELS + ":plain?system=gated_delta_rule&form=recurrent&null_slot=0"], "no pool of states"),
                ([KERNELS + ":plain?system=gated_delta_step&form=recurrent&decay=linear"], "has named tensors"),
                ([KERNELS + ":plain?system=gated_delta_step&form=recurrent&null_slot=1"], "known are -1 0 none"),
                ([missing + ":f"], "no_such_package"), ([], "no NAME")):
            with self.subTest(words):
                text = self.fails(*words)
                self.assertIn(said, text)
                self.assertEqual(text.count("\n"), 1, text)


class Import(unittest.TestCase):
    def test_imports_no_array_library(self):
        code = ("import sys, samestate; samestate.kernel; samestate.Subject; samestate.Failed\n"
                "print([m for m in ('numpy', 'torch', 'jax', 'mlx', 'pytest') if m in sys.modules])")
        child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                               env=dict(os.environ, PYTHONPATH=side.PYTHON))
        self.assertEqual(child.stdout.strip(), "[]", child.stderr)


class Rounding(unittest.TestCase):
    def test_fp64_to_bf16_is_rounded_once(self):
        from samestate.arrays import bf16_bits

        half = 1 + 2.0 ** -8  # half way between 1 and the next bf16
        for x, want in ((half, 0x3F80), (half + 2.0 ** -40, 0x3F81), (half - 2.0 ** -40, 0x3F80),
                        (-half - 2.0 ** -40, 0xBF81), (1e39, 0x7F80), (1e300, 0x7F80), (-np.inf, 0xFF80),
                        (2.0 ** -133, 1), (2.0 ** -134, 0), (2.0 ** -134 * (1 + 2.0 ** -30), 1), (0.0, 0),
                        (-0.0, 0x8000)):
            self.assertEqual(int(bf16_bits(np, np.array([x], np.float64))[0]), want, x)
        self.assertTrue(np.isnan(side.widened(bf16_bits(np, np.array([np.nan]))))[0])
        bits = np.random.default_rng(0).integers(0, 1 << 32, 100000, np.uint32)
        x = bits.view(np.float32)
        x = x[np.isfinite(x)]
        self.assertTrue((bf16_bits(np, x) == side.bf16(x)).all())
        self.assertTrue((bf16_bits(np, x.astype(np.float64)) == side.bf16(x)).all())


if __name__ == "__main__":
    unittest.main()
