"""samestate.capture: what is recorded of calls, what is not, and what `samestate judge` makes of it."""
import contextlib
import importlib.util
import io
import json
import os
import struct
import subprocess
import sys
import tempfile
import threading
import types
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]
import captured_kernels  # noqa: E402
import numpy as np  # noqa: E402
from captured_kernels import gated_delta_rule, inputs  # noqa: E402
from plugin_runs import PYTHON, lacking, needs_command  # noqa: E402

import samestate  # noqa: E402
from samestate import command  # noqa: E402
from samestate.capturing import MANIFEST  # noqa: E402
from samestate.trace_format import read_safetensors  # noqa: E402

FAMILY = dict(system="gated_delta_rule", form="recurrent")


def lines(folder, event="call"):
    with open(os.path.join(folder, MANIFEST), encoding="utf-8") as file:
        return [line for line in map(json.loads, file) if line["event"] == event]


def files(folder):
    return sorted(name for name in os.listdir(folder) if name.endswith(".safetensors"))


def judged(folder, *words):
    """(exit code, records, stdout, stderr) of samestate judge."""
    log = os.path.join(folder, "judged.jsonl")
    done = subprocess.run([command.executable(), "judge", folder, "--jsonl", log, *words], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, universal_newlines=True)
    records = []
    if os.path.exists(log):
        with open(log, encoding="utf-8") as file:
            records = [r for r in map(json.loads, file) if r.get("event") == "end"]
    return done.returncode, records, done.stdout, done.stderr


class Folder(unittest.TestCase):
    def setUp(self):
        made = tempfile.TemporaryDirectory(prefix="samestate-")
        self.addCleanup(made.cleanup)
        self.folder = os.path.join(made.name, "calls")


class Recorded(Folder):
    def test_what_a_call_was(self):
        captured = samestate.capture(gated_delta_rule, dir=self.folder, **FAMILY)
        given = inputs()
        whole = np.zeros((2, 70, 4, 16), np.float32)
        whole[:, :, ::2] = given["q"]
        given["q"] = whole[:, :, ::2]  # a view
        o, S = captured(given["q"], given["k"], given["v"], given["g"], beta=given["beta"],
                        initial_state=given["initial_state"])
        alone = gated_delta_rule(**given)
        np.testing.assert_array_equal(o, alone[0])
        np.testing.assert_array_equal(S, alone[1])
        call, = lines(self.folder)
        self.assertEqual(call["tensors"]["argument.q"], {"dtype": "F32", "shape": [2, 70, 2, 16], "strides": [4480, 64, 32, 1]})
        self.assertEqual(call["values"], {"scale": None, "output_final_state": True, "use_qk_l2norm_in_kernel": False,
                                          "cu_seqlens": None, "fault": None})
        _, tensors = read_safetensors(os.path.join(self.folder, call["file"]))
        self.assertEqual(sorted(tensors), ["argument." + n for n in ("beta", "g", "initial_state", "k", "q", "v")] +
                         ["output.0", "output.1"])
        self.assertEqual(tensors["argument.q"][2], np.ascontiguousarray(given["q"]).tobytes())
        self.assertEqual(tensors["output.1"][2], S.tobytes())
        function, = lines(self.folder, "function")
        self.assertEqual(function["declaration"]["system"], "gated_delta_rule")
        self.assertEqual(function["packages"]["numpy"], np.__version__)
        self.assertEqual(captured.samestate_recorder.counts["recorded"], 1)

    def test_inputs_are_those_before_the_call(self):
        def in_place(x, n):
            x += n
            return x * 2

        given = np.ones(4, np.float32)
        samestate.capture(in_place, dir=self.folder)(given, 3)
        _, tensors = read_safetensors(os.path.join(self.folder, files(self.folder)[0]))
        value = {name: np.frombuffer(data, np.float32).tolist() for name, (_, _, data) in tensors.items()}
        self.assertEqual(value, {"argument.x": [1] * 4, "after.x": [4] * 4, "output.0": [8] * 4})

    @unittest.skipIf(importlib.util.find_spec("torch") is None, "no torch")
    def test_tensors_of_torch(self):
        """bf16 bit by bit, through a view with a gradient; a tensor that is traced or has no data is counted as failed."""
        import torch

        base = torch.randn(4, 6).requires_grad_()
        captured = samestate.capture(lambda x, n=2: x * n, dir=self.folder)
        given = base.bfloat16()[:, ::2].t()
        result = captured(given)
        result.sum().backward()
        self.assertEqual(base.grad.sum(), 24)
        call, = lines(self.folder)
        self.assertEqual(call["tensors"]["argument.x"], {"dtype": "BF16", "shape": [3, 4], "strides": [2, 6]})
        _, tensors = read_safetensors(os.path.join(self.folder, call["file"]))
        self.assertEqual(tensors["output.0"][2], result.detach().contiguous().view(torch.int16).numpy().tobytes())
        with contextlib.redirect_stderr(io.StringIO()):
            captured(torch.empty(3, device="meta"))
        self.assertEqual(captured.samestate_recorder.counts["failed"], 1)
        compiled = torch.compile(lambda x: captured(x).sum(), backend="eager", fullgraph=True)
        self.assertEqual(compiled(base.detach()), (base.detach() * 2).sum())
        self.assertEqual(captured.samestate_recorder.counts["seen"], 2)

    def test_off_by_default(self):
        self.assertIs(samestate.capture(gated_delta_rule), gated_delta_rule)
        self.assertIs(samestate.capture()(gated_delta_rule), gated_delta_rule)
        with samestate.capture("captured_kernels:gated_delta_rule"):
            self.assertIs(captured_kernels.gated_delta_rule, gated_delta_rule)

    def test_number_and_bytes_are_bounded(self):
        x = np.zeros(256, np.float32)  # 1 KiB in, 1 KiB out
        few = samestate.capture(lambda x: x + 1, dir=self.folder, every=3, max_calls=4)
        for _ in range(30):
            few(x)
        counts = few.samestate_recorder.counts
        self.assertEqual((counts["seen"], counts["recorded"], counts["every"], counts["max_calls"]), (30, 4, 20, 6))
        self.assertEqual([call["call"] for call in lines(self.folder)], [1, 4, 7, 10])
        small = samestate.capture(lambda x: x + 1, dir=self.folder + "2", max_bytes=5000)
        for _ in range(10):
            small(x)
        counts = small.samestate_recorder.counts
        self.assertEqual((counts["recorded"], counts["max_bytes"], counts["bytes"]), (2, 8, 4096))
        data = sum(os.path.getsize(os.path.join(self.folder + "2", name)) for name in files(self.folder + "2"))
        self.assertLess(data, 5000)

    def test_nothing_under_a_graph(self):
        """A copy to the host would end the capture of a CUDA graph: the call is skipped and counted."""
        graph = types.SimpleNamespace(is_initialized=lambda: True, is_current_stream_capturing=lambda: self.capturing)
        fake = types.SimpleNamespace(cuda=graph, Tensor=type("Tensor", (), {}))
        captured = samestate.capture(lambda x: x + 1, dir=self.folder)
        real, sys.modules["torch"] = sys.modules.get("torch"), fake
        try:
            for self.capturing in (False, True, True, False):
                captured(np.ones(2, np.float32))
        finally:
            del sys.modules["torch"]
            if real is not None:
                sys.modules["torch"] = real
        counts = captured.samestate_recorder.counts
        self.assertEqual((counts["seen"], counts["recorded"], counts["graph"]), (4, 2, 2))
        self.assertEqual(len(files(self.folder)), 2)

    def test_lines_of_threads_stay_whole(self):
        """A line that is being written is not taken for one that a killed process left, which is ended by a newline."""
        os.makedirs(self.folder, exist_ok=True)
        recorder = samestate.capture(lambda x: x, dir=self.folder).samestate_recorder
        threads = [threading.Thread(target=lambda: [recorder._append({"event": "x", "pad": "y" * 20000}) for _ in range(300)])
                   for _ in range(6)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        self.assertEqual(len(lines(self.folder, "x")), 1800)

    def test_threads(self):
        captured = samestate.capture(lambda x: x + 1, dir=self.folder, max_calls=60)
        wrong = []

        def calls(value):
            for i in range(25):
                x = np.full(64, value * 100 + i, np.float32)
                if not np.array_equal(captured(x), x + 1):
                    wrong.append(value)

        threads = [threading.Thread(target=calls, args=(n,)) for n in range(4)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        self.assertEqual(wrong, [])
        counts = captured.samestate_recorder.counts
        self.assertEqual((counts["seen"], counts["recorded"], counts["max_calls"]), (100, 60, 40))
        self.assertEqual(len(files(self.folder)), 60)
        for call in lines(self.folder):
            _, tensors = read_safetensors(os.path.join(self.folder, call["file"]))
            x, y = (np.frombuffer(tensors[name][2], np.float32) for name in ("argument.x", "output.0"))
            np.testing.assert_array_equal(y, x + 1)

    def test_what_goes_wrong_is_counted_and_said_once(self):
        """A dtype that no file has, a folder that is a file, a call that throws: the program sees its own results alone."""
        captured = samestate.capture(lambda x: x.real.sum(), dir=self.folder)
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            for _ in range(3):
                self.assertEqual(captured(np.ones(3, np.complex64)), 3)
        self.assertEqual(captured.samestate_recorder.counts["failed"], 3)
        self.assertEqual(said.getvalue().count("was not recorded"), 1)
        self.assertIn("complex64", said.getvalue())
        with open(self.folder, "w", encoding="utf-8") as file:
            file.write("a file")
        captured = samestate.capture(lambda x: x + 1, dir=self.folder)
        with contextlib.redirect_stderr(io.StringIO()):
            self.assertEqual(captured(np.float32(1) * np.ones(1))[0], 2)
        self.assertEqual((captured.samestate_recorder.counts["failed"], captured.samestate_recorder.counts["bytes"]), (1, 0))

        def throws(x):
            raise KeyError("theirs")

        captured = samestate.capture(throws, dir=self.folder + "2")
        with self.assertRaisesRegex(KeyError, "theirs"):
            captured(np.ones(2, np.float32))
        with self.assertRaises(TypeError):
            captured()
        self.assertEqual(captured.samestate_recorder.counts["raised"], 2)
        self.assertFalse(os.path.exists(self.folder + "2") and files(self.folder + "2"))

    def test_every_reference_of_modules(self):
        other = types.ModuleType("captured_other")
        other.by_name = captured_kernels.gated_delta_rule
        sys.modules["captured_other"] = other
        self.addCleanup(sys.modules.pop, "captured_other")
        with samestate.capture("captured_kernels:gated_delta_rule", dir=self.folder, **FAMILY) as capture:
            captured_kernels.gated_delta_rule(**inputs(T=3))
            other.by_name(**inputs(T=3))
        self.assertEqual(capture.counts["recorded"], 2)
        self.assertIs(captured_kernels.gated_delta_rule, gated_delta_rule)
        self.assertIs(other.by_name, gated_delta_rule)
        self.assertEqual(lines(self.folder, "end")[0]["seen"], 2)

    def test_coroutines_methods_and_generators(self):
        """A coroutine function stays one and its results are recorded; a method's object is not an argument; what a
        generator will yield does not exist yet, which is counted and reported."""
        import asyncio
        import inspect

        async def later(q, k, v, g, beta, initial_state=None):
            await asyncio.sleep(0)
            return gated_delta_rule(q, k, v, g, beta, initial_state=initial_state)

        words = {**FAMILY, "scale": "dk"}
        captured = samestate.capture(later, dir=self.folder, **words)
        self.assertTrue(inspect.iscoroutinefunction(captured))
        o, _ = asyncio.run(captured(**inputs()))
        np.testing.assert_array_equal(o, gated_delta_rule(**inputs())[0])
        self.assertIn("output.1", lines(self.folder)[0]["tensors"])

        class Layer:
            @samestate.capture(dir=self.folder + "2", **words)
            def rule(self, q, k, v, g, beta, initial_state=None):
                return gated_delta_rule(q, k, v, g, beta, initial_state=initial_state)

        Layer().rule(**inputs())
        self.assertEqual(lines(self.folder + "2")[0]["values"], {})

        def parts(x):
            yield x
            return 7

        captured = samestate.capture(parts, dir=self.folder + "3")
        self.assertTrue(inspect.isgeneratorfunction(captured))
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            self.assertEqual(list(captured(np.ones(2, np.float32)))[0].tolist(), [1, 1])
            hidden = samestate.capture(lambda x: parts(x), dir=self.folder + "4")
            self.assertEqual(len(list(hidden(np.ones(2, np.float32)))), 1)
        self.assertIn("generator", said.getvalue())
        for recorder in (captured.samestate_recorder, hidden.samestate_recorder):
            self.assertEqual((recorder.counts["seen"], recorder.counts["recorded"], recorder.counts["failed"]), (1, 0, 1))

    def test_defaults_and_names_of_results(self):
        import collections

        Results = collections.namedtuple("Results", "final_state o")

        def named(x, n=2, kind="a"):
            return Results(x, x + n)

        samestate.capture(named, dir=self.folder)(np.ones(2, np.float32), kind="b")
        self.assertEqual(lines(self.folder, "function")[0]["defaults"], {"n": 2, "kind": "a"})
        self.assertEqual(sorted(lines(self.folder)[0]["tensors"]), ["argument.x", "output.0.final_state", "output.1.o"])

    @needs_command
    def test_a_system_that_nobody_knows(self):
        for words, said in ((dict(system="gated_delta_rul", form="recurrent"), "gated_delta_rule"),
                            (dict(system="gated_delta_rule", form="recurent"), "recurrent")):
            with self.assertRaisesRegex(samestate.DeclarationError, said):
                samestate.capture(gated_delta_rule, dir=self.folder, **words)

    def test_a_declaration_that_contradicts_itself(self):
        with self.assertRaisesRegex(samestate.DeclarationError, "row"):
            samestate.capture(gated_delta_rule, dir=self.folder, adapter="nobody.s")
        with self.assertRaisesRegex(samestate.DeclarationError, "named.py"):
            samestate.capture(gated_delta_rule, dir=self.folder, adapter="mamba_ssm.selective_scan_fn")
        with self.assertRaisesRegex(samestate.DeclarationError, "every"):
            samestate.capture(gated_delta_rule, dir=self.folder, every=0, **FAMILY)


class Programs(Folder):
    """python -m samestate.capture"""

    def run_program(self, *words, command_words, env=None):
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([PYTHON, HERE]), **(env or {})}
        environment.pop("SAMESTATE_TEST_FAULT", None)
        return subprocess.run([sys.executable, "-m", "samestate.capture", *words, "--", *command_words], env=environment,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True, timeout=120)

    def target(self, *more):
        return ["--target", "captured_kernels:gated_delta_rule", "--as", "system=gated_delta_rule&form=recurrent",
                "--dir", self.folder, *more]

    def test_results_and_exit_code_are_the_programs(self):
        program = [sys.executable, os.path.join(HERE, "captured_kernels.py"), "5"]
        alone = subprocess.run(program, stdout=subprocess.PIPE, universal_newlines=True, check=True)
        done = self.run_program(*self.target("--every", "2"), command_words=program)
        self.assertEqual((done.returncode, done.stdout), (0, alone.stdout), done.stderr)
        self.assertEqual(lacking(done.stderr, "captured_kernels:gated_delta_rule 3 5 every 2"), [])
        self.assertEqual(len(files(self.folder)), 3)
        done = self.run_program(*self.target(), command_words=[sys.executable, "-c", "import sys; sys.exit(7)"])
        self.assertEqual(done.returncode, 7)
        self.assertIn("nothing was recorded", done.stderr)

    def test_a_function_that_is_never_called_or_replaced(self):
        for program, said in (("import captured_kernels", "never called"), ("import captured_kernels as c; c.gated_delta_rule = c.inputs; "
                              "c.gated_delta_rule()", "something else was put in its place")):
            done = self.run_program(*self.target(), command_words=[sys.executable, "-c", program])
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertNotIn("by themselves", done.stderr)
            self.assertIn("0 calls recorded", done.stderr)
            self.assertIn(said, done.stderr)

    def test_a_child_process_and_its_own_sitecustomize(self):
        os.makedirs(self.folder)
        with open(os.path.join(self.folder, "sitecustomize.py"), "w", encoding="utf-8") as file:
            file.write("import builtins; builtins.of_the_environment = 1\n")
        program = ("import subprocess, sys; assert of_the_environment == 1; "
                   f"subprocess.run([sys.executable, {os.path.join(HERE, 'captured_kernels.py')!r}, '2'], check=True)")
        environment = {"PYTHONPATH": os.pathsep.join([PYTHON, HERE, self.folder])}
        done = self.run_program(*self.target(), command_words=[sys.executable, "-c", program], env=environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(files(self.folder)), 2)

    def test_bad_words(self):
        for words, said in ((["--target", "nowhere", "--dir", self.folder], "package.module:function"),
                            (["--target", "a:b", "--dir", self.folder, "--adapter", "nobody.s"], "no row"),
                            (["--target", "a:b", "--dir", self.folder, "--max-bytes", "1x"], "512m"),
                            (["--declare", self.folder, "--adapter", "ggml.gated_delta_net"], MANIFEST)):
            done = self.run_program(*words, command_words=[sys.executable, "-c", ""])
            self.assertEqual(done.returncode, 2, words)
            self.assertIn(said, done.stderr)

    @needs_command
    def test_a_program_that_is_killed_leaves_what_can_be_judged(self):
        program = [sys.executable, os.path.join(HERE, "captured_kernels.py"), "5", "killed"]
        done = self.run_program(*self.target(), command_words=program)
        self.assertEqual(done.returncode, 128 + 9)
        self.assertEqual(lacking(done.stderr, "1 process end"), [])
        with open(os.path.join(self.folder, MANIFEST), "a", encoding="utf-8") as file:
            file.write('{"event": "call", "function": "captured_kern')
        code, records, out, err = judged(self.folder)
        self.assertEqual((code, [r["verdict"] for r in records]), (0, ["pass"] * 3), out + err)
        self.assertEqual(lacking(out, "1 line manifest"), [])
        # A later run begins a line of its own.
        again = self.run_program(*self.target(), command_words=program[:-2] + ["2"])
        self.assertEqual(again.returncode, 0, again.stderr)
        code, records, out, err = judged(self.folder)
        self.assertEqual((code, len(records)), (0, 5), out + err)


@needs_command
class Judged(Folder):
    def capture(self, given, fault=None, **words):
        captured = samestate.capture(gated_delta_rule, dir=self.folder, **{**FAMILY, **words})
        return captured(**given, fault=fault)

    def verdict(self, *words):
        code, records, out, err = judged(self.folder, "--ignore", "fault", *words)
        self.assertEqual(len(records), 1, out + err)
        return code, records[0], out

    def test_an_argument_that_nobody_reads_is_no_pass(self):
        def more(q, k, v, g, beta, initial_state=None, reverse=False, **words):
            return gated_delta_rule(q, k, v, g, beta, initial_state=initial_state)

        captured = samestate.capture(more, dir=self.folder, scale="dk", **FAMILY)
        captured(**inputs(), reverse=False)
        self.assertEqual(self.verdict()[0], 0)
        for word in ("reverse", "other"):
            self.folder += "x"
            samestate.capture(more, dir=self.folder, scale="dk", **FAMILY)(**inputs(), **{word: True})
            code, record, out = self.verdict()
            self.assertEqual((code, record["verdict"]), (3, "unsupported"), out)
            self.assertIn(f"--ignore {word}", record["reason"])
            self.assertEqual(self.verdict("--ignore", word)[0], 0)

    def test_an_epsilon_that_the_system_has_not(self):
        def norm(x, weight, eps=1e-6):
            x = x.astype(np.float64)
            return {"y": (x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight).astype(np.float32)}

        draw = np.random.default_rng(0)
        x, w = draw.standard_normal((2, 5, 2, 32)).astype(np.float32), draw.standard_normal(32).astype(np.float32)
        captured = samestate.capture(norm, dir=self.folder, system="rms_norm", form="fused")
        captured(x, w)
        code, record, out = self.verdict()
        self.assertEqual((code, record["verdict"]), (0, "pass"), out)
        self.folder += "x"
        samestate.capture(norm, dir=self.folder, system="rms_norm", form="fused")(x, w, eps=1e-2)
        code, record, out = self.verdict()
        self.assertEqual((code, record["verdict"]), (3, "unsupported"), out)
        self.assertIn("eps is 0.01", record["reason"])

    def test_a_right_kernel_passes(self):
        for given in (inputs(), inputs(state=False), inputs(B=1, T=1, Hk=4), {**inputs(), "use_qk_l2norm_in_kernel": True},
                      {**inputs(), "scale": 0.25}, {**inputs(), "output_final_state": False}):
            with self.subTest(given={k: v for k, v in given.items() if not hasattr(v, "shape")}):
                self.folder += "x"
                self.capture(given)
                code, record, out = self.verdict()
                self.assertEqual((code, record["verdict"]), (0, "pass"), out)
                self.assertLess(0, record["ratio"])
                numbers = record["numbers"]
                self.assertLessEqual(numbers["max_abs"], numbers["allowed_max_abs"])
                self.assertLessEqual(numbers["relative_rms"], numbers["allowed_relative_rms"])

    def test_packed_calls(self):
        given = inputs(B=1, T=40, N=3)
        given["cu_seqlens"] = np.array([2, 5, 5, 37], np.int32)
        self.capture(given)
        code, record, out = self.verdict()
        self.assertEqual((code, record["verdict"]), (0, "pass"), out)
        self.assertIn("lengths=3,0,32", record["line"])
        self.assertIn("unowned=2,3", record["line"])
        self.folder += "x"
        self.capture({**given, "initial_state": np.roll(given["initial_state"], 1, 0)[:3]}, fault="tail")
        code, record, out = self.verdict()
        self.assertEqual((code, record["verdict"]), (1, "fail"), out)
        self.assertIn(record["worst"]["token"], (2, 31))

    def test_planted_faults_fail_and_say_where(self):
        for fault, gate, where in (("scale", ("row", "head", "hard"), {}), ("head map", ("row", "hard"), {}),
                                   ("neighbour", ("state", "hard"), {"token"}), ("short beta", ("row", "head", "hard"), {}),
                                   ("tail", ("row", "hard"), {"last"})):
            with self.subTest(fault=fault):
                self.folder += "x"
                self.capture(inputs(), fault=fault)
                code, record, out = self.verdict()
                self.assertEqual((code, record["verdict"]), (1, "fail"), out)
                self.assertIn(record["gate"], gate)
                self.assertGreater(record["ratio"], 3)
                numbers = record["numbers"]
                if fault == "tail":
                    self.assertEqual((record["worst"]["token"], numbers["at_token"]), (69, 69))
                if fault == "neighbour":
                    self.assertGreater(numbers["state_relative_rms"], 0.5)
                    self.assertLess(numbers["relative_rms"], 1e-5)
                if fault == "head map":  # the first and the last head are served alike by both maps
                    self.assertIn(numbers["at_head"], (1, 2))
                if fault == "short beta":
                    self.assertGreater(numbers["relative_rms"], numbers["allowed_relative_rms"])
                self.assertIn(f"max abs {numbers['max_abs']:.3g} at sequence {numbers['at_sequence']:.0f}", out)

    def test_conventions_of_a_caller(self):
        """vk states, decay as a factor, heads first, the names of somebody else: declared to the command, or by the adapter
        afterwards."""
        swapped = lambda x: np.ascontiguousarray(np.swapaxes(x, 1, 2))

        def theirs(query, key, value, alpha, strength, state):
            o, S = gated_delta_rule(swapped(query), swapped(key), swapped(value), np.log(swapped(alpha)), swapped(strength),
                                    initial_state=np.swapaxes(state, 2, 3))
            state[...] = np.swapaxes(S, 2, 3)
            return swapped(o)

        given = inputs()
        samestate.capture(theirs, dir=self.folder)(
            swapped(given["q"]), swapped(given["k"]), swapped(given["v"]), swapped(np.exp(given["g"])), swapped(given["beta"]),
            np.ascontiguousarray(np.swapaxes(given["initial_state"], 2, 3)))
        words = ["--system", "gated_delta_rule", "--form", "recurrent", "--layout", "BHTD", "--state", "vk", "--scale", "dk",
                 "--argument", "beta=strength"]
        code, record, out = self.verdict(*words, "--state-argument", "in_place")
        self.assertEqual((code, record["verdict"]), (0, "pass"), out)
        self.assertIn("state_max_abs", record["numbers"])
        # The call wrote to what is an input to any other declaration.
        code, record, out = self.verdict(*words)
        self.assertEqual((code, record["verdict"], record["gate"]), (1, "fail", "memory"), out)
        code, _, _, err = judged(self.folder)
        self.assertEqual(code, 2)
        self.assertIn("not declared what", err)
        code, record, out = self.verdict(*words[:-2], "--state-argument", "in_place")
        self.assertEqual((code, record["verdict"]), (3, "unsupported"), out)
        self.assertIn("no tensor for beta", record["reason"])
        done = subprocess.run([sys.executable, "-m", "samestate.capture", "--declare", self.folder, "--as",
                               "system=gated_delta_rule&form=recurrent&layout=BHTD&state=vk&scale=dk&decay=linear&"
                               "state_argument=in_place&arguments=beta:strength,g:alpha"],
                              env={**os.environ, "PYTHONPATH": PYTHON}, stderr=subprocess.PIPE, universal_newlines=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        code, record, out = self.verdict()
        self.assertEqual((code, record["verdict"]), (0, "pass"), out)

    def test_every_adapter_declares_what_the_command_reads(self):
        """Rows whose calls are laid out anew are refused by name; every other is a declaration of the command's."""
        from samestate.adapters import ROWS
        from samestate.capturing import declared

        self.capture(inputs())
        taken = 0
        with open(os.path.join(self.folder, MANIFEST), "a", encoding="utf-8") as file:
            for name in sorted({row.name for row in ROWS if len([r for r in ROWS if r.name == row.name]) == 1}):
                try:
                    made = declared(adapter=name)
                except samestate.DeclarationError as error:
                    self.assertIn("named.py", str(error))
                    continue
                taken += 1
                file.write(json.dumps({"event": "declare", "function": "captured_kernels:gated_delta_rule", **made}) + "\n")
            last = declared(gated_delta_rule, **FAMILY)
            file.write(json.dumps({"event": "declare", "function": "captured_kernels:gated_delta_rule", **last}) + "\n")
        self.assertGreater(taken, 20)
        code, record, out = self.verdict()
        self.assertEqual((code, record["verdict"]), (0, "pass"), out)

    def test_a_tensor_that_nobody_named_is_no_pass(self):
        def pooled(q, k, v, g, beta, initial_state, slots):
            return gated_delta_rule(q, k, v, g, beta, initial_state=initial_state)

        samestate.capture(pooled, dir=self.folder)(**inputs(), slots=np.arange(2))
        words = ["--system", "gated_delta_rule", "--form", "recurrent", "--scale", "dk"]
        code, record, out = self.verdict(*words)
        self.assertEqual((code, record["verdict"]), (3, "unsupported"), out)
        self.assertIn("slots", record["reason"])
        code, record, out = self.verdict(*words, "--ignore", "slots")
        self.assertEqual((code, record["verdict"]), (0, "pass"), out)

        def given_its_output(q, k, v, g, beta, initial_state, out):
            out[...], state = gated_delta_rule(q, k, v, g, beta, initial_state=initial_state)
            return out, state

        self.folder += "x"
        samestate.capture(given_its_output, dir=self.folder)(**inputs(), out=np.zeros((2, 70, 4, 8), np.float32))
        self.assertEqual(self.verdict(*words)[0], 3)
        code, record, out = self.verdict(*words, "--ignore", "out")
        self.assertEqual((code, record["verdict"]), (0, "pass"), out)

    def test_named_tensors(self):
        """Sizes are read from the recorded shapes, and outputs come in the system's order."""
        def norm(x, weight, fault=1.0):
            y = x / np.sqrt((x * x).mean(-1, keepdims=True) + np.float32(1e-6)) * weight
            y[1, 4, 2] *= np.float32(fault)
            return y

        draw = np.random.default_rng(0)
        given = draw.standard_normal((2, 7, 3, 24), np.float32), draw.standard_normal(24, np.float32)
        words = dict(system="rms_norm", form="fused")
        for fault, code, verdict in ((1.0, 0, "pass"), (1.01, 1, "fail")):
            self.folder += "x"
            samestate.capture(norm, dir=self.folder, **words)(*given, fault=fault)
            found, record, out = self.verdict()
            self.assertEqual((found, record["verdict"]), (code, verdict), out)
            self.assertIn("v1 rms_norm form=fused B=2 T=7 H=3 D=24", record["line"])
        self.assertEqual((record["worst"]["sequence"], record["worst"]["token"]), (1, 14))
        self.assertIn("instead of", out)
        self.folder += "x"
        samestate.capture(lambda data, weight: norm(data, weight), dir=self.folder)(given[0], np.ones((3, 24), np.float32))
        words = ["--system", "rms_norm", "--form", "fused", "--argument", "x=data"]
        code, record, out = self.verdict(*words)
        self.assertEqual((code, record["verdict"]), (3, "unsupported"), out)

    def test_damaged_files(self):
        self.capture(inputs())
        path = os.path.join(self.folder, files(self.folder)[0])
        with open(path, "rb") as file:
            whole = file.read()
        size = struct.unpack("<Q", whole[:8])[0]
        head = json.loads(whole[8:8 + size])
        overlapping = {**head, "argument.q": {**head["argument.q"], "data_offsets": head["argument.k"]["data_offsets"]}}
        other = {**head, "argument.q": {**head["argument.q"], "shape": [2, 70, 16, 2]}}

        def with_head(head):
            text = json.dumps(head).encode().ljust(size + 64)
            return struct.pack("<Q", len(text)) + text + whole[8 + size:]

        for what, data in (("cut", whole[:-1000]), ("huge head", struct.pack("<Q", 1 << 60) + whole[8:]),
                           ("overlapping", with_head(overlapping)), ("another shape", with_head(other)),
                           ("empty", b""), ("no tensor", with_head({k: v for k, v in head.items() if k != "output.1"})),
                           ("no number", whole[:8] + whole[8:8 + size].replace(b"[2,", b"[NaN,", 1) + whole[8 + size:])):
            with self.subTest(what=what):
                with open(path, "wb") as file:
                    file.write(data)
                code, records, out, err = judged(self.folder)
                self.assertEqual((code, out), (2, ""), err)
                self.assertIn(os.path.basename(path), err)
                self.assertEqual(err.count("\n"), 1)
        os.unlink(path)
        self.assertEqual(judged(self.folder)[0], 2)
        for text in ('{"event":"call"}', "[1]", "\x00", '{"event":"call","function":"captured_kernels:gated_delta_rule","call":1,'
                     '"file":"../other.safetensors","values":{},"tensors":{}}'):
            with open(os.path.join(self.folder, MANIFEST), "a", encoding="utf-8") as file:
                file.write(text + "\n")
            code, _, out, err = judged(self.folder)
            self.assertEqual((code, out), (2, ""), err)
            self.assertIn(MANIFEST, err)

    def test_what_is_not_finite(self):
        given = inputs()
        given["v"][0, 3, 1, 2] = np.nan
        self.capture(given)
        code, record, out = self.verdict()
        self.assertEqual((code, record["verdict"]), (3, "unsupported"), out)
        self.assertIn("row 3, column 2", record["reason"])


if __name__ == "__main__":
    unittest.main()
