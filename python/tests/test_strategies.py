"""samestate.strategies against the command: what is drawn is valid, faults are found, shrunk and
repeated by their line."""
import json
import os
import subprocess
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]
import samestate  # noqa: E402
from samestate import strategies  # noqa: E402
from samestate.errors import DeclarationError, Failed  # noqa: E402
from plugin_runs import PytestRuns, needs_command  # noqa: E402

try:
    import hypothesis
except ImportError:
    hypothesis = None


def drawn(count, *words, **more):
    """`count` lines that a strategy draws; nothing is run."""
    lines, made = [], strategies.cases(*words, **more)

    @strategies.settings(max_examples=count, database=None, derandomize=True,
                         suppress_health_check=list(hypothesis.HealthCheck))
    @hypothesis.given(case=made)
    def draw(case):
        case.judged = True
        lines.append(case.line)

    draw()
    return lines


def judged(test, made, examples=200):
    """Runs a test that has a case; returns (the Failed or None, lines that ran)."""
    lines = []

    @strategies.settings(max_examples=examples, database=None, derandomize=True)
    @hypothesis.given(case=made)
    def run(case):
        lines.append(case.line)
        test(case)

    try:
        run()
    except Failed as failure:
        return failure, lines
    return None, lines


def right(case, system="gated_delta_rule"):
    from kernels import right as kernel

    return kernel(system, case.q, case.k, case.v, case.g, case.beta, case.initial_state, case.scale, case.heads,
                  case.l2norm, case.cu_seqlens)


@unittest.skipIf(hypothesis is None, "hypothesis is not installed")
@needs_command
class Strategies(unittest.TestCase):
    def test_lines_are_canonical_and_valid(self):
        for words, more in ((("gated_delta_rule",), {"sizes": {"T": (1, 40)}}), (("retention", "parallel"), {}),
                            (("delta_rule", "chunked"), {"limits": ["chunk in 16 32", "dk <= 32"]}),
                            (("linear_attention", "recurrent"), {"contract": ["bf16", "fp32"]}),
                            (("short_convolution", "scatter"), {}), (("rms_norm", "fused"), {})):
            with self.subTest(words=words):
                lines = drawn(60, *words, **more)
                child = subprocess.run([samestate.executable(), "repro", "-", "--json", "--card-budget", "0"],
                                       input="\n".join(lines), capture_output=True, text=True)
                self.assertEqual(child.stderr, "")
                records = [json.loads(line) for line in child.stdout.splitlines()]
                self.assertEqual([r["line"] for r in records], lines)
                useless = [r["line"] for r in records if r["verdict"] != "pass"]
                self.assertLessEqual(len(useless), len(lines) // 10, useless)

    def test_limits_and_conventions_are_kept(self):
        lines = drawn(80, "retention", "chunked", scale="dk", l2norm="outside", limits=[
            "chunk in 16 64", "dk % 8 = 0", "dv <= dk", "form != packed", "state = none"])
        keys = [dict(word.split("=") for word in line.split()[2:]) for line in lines]
        for x in keys:
            dk = int(x.get("dk", 64))
            self.assertIn(x.get("chunk", "64"), ("16", "64"))
            self.assertEqual(dk % 8, 0)
            self.assertLessEqual(int(x.get("dv", dk)), dk)
            self.assertFalse({"scale", "state", "lengths", "l2norm"} & set(x))
        for said in ({"limits": ["T <= 0"]}, {"decai": "ln"}):
            with self.assertRaises(DeclarationError):
                drawn(5, "retention", "recurrent", **said)

    def test_a_right_kernel_passes_in_every_form(self):
        seen = set()

        def test(case):
            seen.add(case.form)
            case.judge(*right(case))

        failure, lines = judged(test, strategies.cases("gated_delta_rule", sizes={"T": (1, 40), "dk": (1, 34)}), 50)
        self.assertIsNone(failure, failure)
        self.assertEqual(len(lines), 50)
        self.assertEqual(seen, {"chunked", "recurrent"})
        self.assertTrue(any("lengths=" in line for line in lines))

    def finds(self, wrong, line):
        """The fault is found and shrunk to the line, which fails again in another process and by lines=."""
        def test(case):
            o, S = right(case)
            case.judge(*((o * np.float32(1.01), S * np.float32(1.01)) if wrong(case) else (o, S)))

        import numpy as np

        failure, lines = judged(test, strategies.cases("gated_delta_rule", "recurrent"))
        self.assertIsNotNone(failure)
        self.assertNotIn("Flaky", type(failure).__name__)
        self.assertEqual(lines[-1], line)
        self.assertIn(f"Case('{line}')", "\n".join(getattr(failure, "__notes__", [f"Case('{line}')"])))
        self.assertIn(f"lines=['{line}']" if "PYTEST_CURRENT_TEST" not in os.environ else "--samestate-case",
                      str(failure))
        again, ran = judged(test, strategies.cases("gated_delta_rule", "recurrent", lines=[line]))
        self.assertEqual((again.record["line"], set(ran)), (failure.record["line"], {line}))
        self.assertEqual(again.record["ratio"], failure.record["ratio"])

    def test_finds_a_fault_of_the_sizes(self):
        self.finds(lambda case: case.v.shape[1] > 7 and case.l2norm,
                   "v1 gated_delta_rule form=recurrent T=8 dk=1 l2norm=1")

    def test_finds_a_fault_of_the_data(self):
        self.finds(lambda case: (case.g < -3).any(), "v1 gated_delta_rule form=recurrent T=1 dk=1 regime=strong")

    def test_a_test_that_never_judges_fails(self):
        failure, _ = judged(lambda case: case.q, strategies.cases("retention", "recurrent"), 5)
        self.assertIn("the test ended without case.judge", str(failure))

    def test_its_own_error_is_its_own(self):
        with self.assertRaises(ZeroDivisionError):
            judged(lambda case: case.q.shape[1] / 0, strategies.cases("retention", "recurrent"), 5)

    def test_a_deadline_is_refused(self):
        from datetime import timedelta

        @hypothesis.settings(deadline=timedelta(seconds=0.2), database=None)
        @hypothesis.given(case=strategies.cases("retention", "recurrent"))
        def run(case):
            pass

        with self.assertRaisesRegex(DeclarationError, "deadline 200 ms.*strategies.settings"):
            run()

    def test_nothing_is_left_behind(self):
        import threading

        judged(lambda case: case.judge(*right(case, "retention")), strategies.cases("retention", "recurrent"), 5)
        names = [t.name for t in threading.enumerate() if "_converse" in t.name or "_accept" in t.name]
        self.assertLessEqual(len(names), 2, names)
        children = subprocess.run(["ps", "--ppid", str(os.getpid()), "-o", "args="], capture_output=True, text=True)
        self.assertNotIn("repro", children.stdout)


@unittest.skipIf(hypothesis is None, "hypothesis is not installed")
@needs_command
class InPytest(PytestRuns):
    """The line that a test prints repeats it by --samestate-case."""

    CODE = """
        import hypothesis
        from samestate import strategies
        @strategies.settings(max_examples=40, database=None, derandomize=True)
        @hypothesis.given(case=strategies.cases("linear_attention", "recurrent", heads="interleaved", l2norm="outside",
                                                limits=["form != packed"]))
        def test_drawn(case):
            wrong = 2 if case.q.shape[1] > 8 else 1
            case.judge(*mine(case.q, case.k, case.v, case.scale, case.initial_state, factor=wrong))
        """
    PLUGINS = ("no:cacheprovider", "_hypothesis_pytestplugin")

    def test_line_repeats(self):
        code, out = self.pytest(self.CODE, plugins=self.PLUGINS)
        self.assertEqual(code, 1, out)
        line = "v1 linear_attention form=recurrent T=9 dk=1"
        self.assertIn(f"case=Case('{line}')", out)
        self.assertIn(f"--samestate-case '{line}'", out)
        code, out = self.again("--samestate-case", line, plugins=self.PLUGINS)
        self.assertIn(f"samestate: fail: {line}", out)
        code, out = self.again("--samestate-case", line.replace("T=9", "T=8"), plugins=self.PLUGINS)
        self.assertIn("1 passed", out)
        code, out = self.again("--samestate-case", "v1 retention T=8", plugins=self.PLUGINS)
        self.assertIn("1 skipped", out)


class Lazy(unittest.TestCase):
    def test_hypothesis_is_asked_for_by_name(self):
        code = ("import sys; sys.modules['hypothesis'] = None\nfrom samestate import strategies\n"
                "try: strategies.cases('retention')\nexcept ImportError as e: print(e)")
        child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                               env=dict(os.environ, PYTHONPATH=os.path.dirname(HERE)))
        self.assertIn("pip install hypothesis", child.stdout, child.stderr)


class Pure(unittest.TestCase):
    def test_weighted(self):
        values = strategies.weighted(1, 200)
        self.assertEqual(values, sorted(values))
        self.assertTrue({1, 7, 8, 9, 63, 64, 65, 72, 127, 128, 129, 200} <= set(values))
        self.assertFalse({77, 199} & set(values))
        self.assertEqual(strategies.weighted(5, 5), [5] * 3)

    def test_conditions(self):
        x = {"dk": 64, "dv": 32, "state": "random", "chunk": 16, "form": "packed"}
        for condition, holds in (("dk <= 64", True), ("dk <= 63", False), ("dv >= dk", False), ("dv % 8 = 0", True),
                                 ("chunk in 16 32", True), ("chunk in 32..64", False), ("form != packed", False),
                                 ("dk <= 32 if state = none", True), ("dk <= 32 if state = random", False),
                                 ("state = random", True), ("warps <= 4", None), ("dk", None)):
            self.assertIs(strategies._holds(condition, x), holds, condition)


if __name__ == "__main__":
    unittest.main()
