"""The plugin and samestate.check against the command itself; skipped where it, or its --subject, is not there."""
import importlib.util
import os
import subprocess
import sys
import time
import unittest
import xml.etree.ElementTree

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from plugin_runs import PYTHON, PytestRuns, lacking, needs_command  # noqa: E402


@needs_command
class Plugin(PytestRuns):
    def test_right_passes_and_wrong_fails_with_the_line(self):
        code, out = self.pytest("""
            @cases()
            def test_right(case):
                case.judge(*mine(case.q, case.k, case.v, case.scale, case.initial_state))
            @cases(max_cases=1)
            def test_wrong(case):
                o, S = mine(case.q, case.k, case.v, case.scale, case.initial_state, factor=2)
                case.judge(o, S)
            @cases(max_cases=1)
            def test_silent(case):
                case.q
            @cases(max_cases=1)
            def test_shape(case):
                o, S = mine(case.q, case.k, case.v, case.scale, case.initial_state)
                case.judge(o[:, :0], S)
            @cases(max_cases=1)
            def test_throws(case):
                case.q + nothing
            """)
        self.assertEqual(code, 1, out)
        self.assertIn("test_right", out + "test_right")
        for word in ("samestate: fail: v1 linear_attention", "  ratio ", "  worst at ", "--samestate-case",
                     "the test ended without case.judge", "ReturnError: o has shape", "NameError"):
            self.assertIn(word, out)
        # The test that never judges passes and fails in its teardown; a test that throws has its own failure alone.
        self.assertIn("3 failed, 5 passed, 1 error", out)

    def test_ids_are_lines_that_can_be_pasted_back(self):
        code, out = self.pytest("""
            @cases()
            def test_right(case):
                case.judge(*mine(case.q, case.k, case.v, case.scale, case.initial_state))
            """, "--collect-only")
        lines = [row.partition("[")[2].rstrip("]") for row in out.splitlines() if "::test_right[" in row]
        self.assertEqual(len(lines), 4, out)
        again = self.pytest("@cases()\ndef test_right(case):\n    case.judge(*mine(case.q, case.k, case.v, case.scale, "
                            "case.initial_state))\n", "--samestate-case", lines[0])
        self.assertEqual(again[0], 0, again[1])
        self.assertIn("1 passed", again[1])

    def test_properties_and_junit(self):
        report = os.path.join(self.folder.name, "report.xml")
        code, out = self.pytest("""
            @cases(max_cases=1)
            def test_right(case):
                case.judge(*mine(case.q, case.k, case.v, case.scale, case.initial_state))
            """, "--junitxml", report)
        self.assertEqual(code, 0, out)
        self.properties(report, 1)

    def test_records(self):
        """--samestate-jsonl: a line a judged case, those of samestate_check and of failures too."""
        import json

        path = os.path.join(self.folder.name, "records.jsonl")
        with open(path, "w") as file:
            file.write("of a session before\n")
        code, out = self.pytest("""
            @cases(max_cases=2)
            def test_right(case):
                case.judge(*mine(case.q, case.k, case.v, case.scale, case.initial_state))
            def test_check(samestate_check):
                samestate_check(mine, "linear_attention", "recurrent", gate=SMALL, max_cases=5)
            def test_wrong(samestate_check):
                samestate_check(mine, "linear_attention", "recurrent", gate=SMALL, max_cases=3,
                                options={"factor": 2})
            """, "--samestate-jsonl", path)
        self.assertEqual(code, 1, out)
        with open(path) as file:
            records = [json.loads(line) for line in file]
        tests = [record["test"].partition("::")[2].partition("[")[0] for record in records]
        self.assertEqual([tests.count(name) for name in ("test_right", "test_check", "test_wrong")], [2, 5, 3])
        self.assertIn("fail", {record["verdict"] for record in records if "wrong" in record["test"]})
        self.assertTrue(all(record["line"].startswith("v1 ") for record in records))
        code, out = self.pytest("", "--samestate-jsonl", os.path.join(self.folder.name, "no", "folder"))
        self.assertEqual(code, 4, out)
        self.assertIn("No such file", out)

    def test_a_wrong_declaration_is_an_error_of_collection(self):
        code, out = self.pytest("@cases(decai='ln')\ndef test_right(case):\n    pass\n")
        self.assertNotEqual(code, 0)
        self.assertIn("did you mean decay", out)

    def test_check(self):
        code, out = self.pytest("""
            def test_right(samestate_check):
                print(samestate_check(mine, "linear_attention", "recurrent", gate=SMALL, max_cases=20))
            def wrong(q, k, v, scale, initial_state):
                return mine(q, k, v, scale, initial_state, factor=2)
            def test_wrong(samestate_check):
                samestate_check(wrong, "linear_attention", "recurrent", gate=SMALL, max_cases=6)
            """, "-s")
        self.assertIn("1 failed, 1 passed", out)
        self.assertIn("test_it.linear_attention.recurrent: 20 cases", out)
        self.assertIn("repeat: samestate repro --subject 'python:test_it.py:wrong?system=linear_attention", out)
        text = out[out.index("samestate: fail:"):out.index("repeat:")]
        self.assertLessEqual(text.count("\n"), 15)

    def test_keywords(self):
        """-k by words of the line with a colon, and by what pytest knows without."""
        self.write(self.FAILING)
        lines = self.lines(self.again("--collect-only", *self.FOUR)[1])
        self.assertEqual(len(lines), 4)
        for words, holds in (("T:33", lambda line: " T=33" in line),
                             ("T:33 and not heads:tiled", lambda line: " T=33" in line and "tiled" not in line)):
            left = self.lines(self.again("--collect-only", "-k", words, *self.FOUR)[1])
            self.assertEqual(left, [line for line in lines if holds(line)])
            self.assertTrue(0 < len(left) < len(lines), (words, lines))

    def lines(self, out):
        return [row.partition("[")[2].rstrip("]") for row in out.splitlines() if "::test_" in row and "[" in row]

    # Given, so that no plan is made: that takes longer than the four of them.
    FOUR = [word for keys in ("T=33 dk=4", "T=33 Hk=2 dk=4 heads=tiled", "T=9 dk=4", "T=7 dk=4 layout=padded")
            for word in ("--samestate-case", f"v1 linear_attention form=recurrent {keys}")]
    FAILING = """
        @cases(max_cases=4)
        def test_mine(case):
            wrong = 2 if case.v.shape[1] > 20 else 1
            case.judge(*mine(case.q, case.k, case.v, case.scale, case.initial_state, factor=wrong))
        """

    def test_last_failed_and_first_failure(self):
        self.write(self.FAILING)
        code, out = self.again(*self.FOUR, plugins=())
        self.assertIn("2 failed, 2 passed", out)
        code, out = self.again("--lf", *self.FOUR, plugins=())
        self.assertIn("2 failed", out)
        self.assertNotIn("passed", out)
        code, out = self.again("--lf", "-x", *self.FOUR, plugins=())
        self.assertIn("1 failed", out)
        self.assertIn("stopping after 1 failures", out)

    @unittest.skipIf(importlib.util.find_spec("xdist") is None, "pytest-xdist is not installed")
    def test_processes(self):
        """-n 2: the same verdicts, properties reach the report, and a session that judged nothing still fails."""
        report = os.path.join(self.folder.name, "report.xml")
        self.write(self.FAILING)
        code, out = self.again("-n", "2", "--junitxml", report, *self.FOUR,
                               plugins=("xdist.plugin", "no:cacheprovider"))
        self.assertEqual(code, 1, out)
        self.assertIn("2 failed, 2 passed", out)
        self.properties(report, 4)
        self.write("""
            @cases()
            def test_vacuous(case):
                o, S = mine(case.q, case.k, case.v, case.scale, case.initial_state)
                case.judge(o, S)
            """)
        for words, plugins in (((), ()), (("-n", "2"), ("xdist.plugin",))):
            code, out = self.again("--samestate-case", "v1 linear_attention form=recurrent T=0", *words,
                                   plugins=("no:cacheprovider", *plugins))
            self.assertEqual(code, 1, out)
            self.assertEqual(lacking(out, "test_it.py::test_vacuous judged"), [])

    def properties(self, report, count):
        tests = xml.etree.ElementTree.parse(report).getroot().findall(".//testcase")
        self.assertEqual(len(tests), count)
        for test in tests:
            said = {row.get("name"): row.get("value") for row in test.findall("./properties/property")}
            failed = test.find("failure") is not None
            self.assertEqual(said["samestate_verdict"], "fail" if failed else "pass")
            self.assertEqual(float(said["samestate_ratio"]) > 1, failed)
            self.assertGreater(float(said["samestate_bound"]), 0)
            self.assertIn(test.get("name").partition("[")[2][:-1], (test.find("failure").text if failed else
                                                                    test.get("name")))

    def test_collection_of_thousands(self):
        """In seconds, and without an array library; the limit is for a machine that is busy with something else."""
        self.write("""
            def _test(system, array):
                @samestate.cases(system, "recurrent", contract="fp32", effort=5, max_cases=1000, array=array)
                def test_each(case):
                    pass
                return test_each
            test_a, test_b = _test("gated_delta_rule", "torch"), _test("retention", "jax")
            """)
        path = self.write("", "conftest.py")
        with open(path, "w") as file:
            file.write("import sys\ndef pytest_collection_finish(session):\n    print('LOADED', sorted("
                       "{'numpy', 'torch', 'jax', 'mlx', 'hypothesis', 'triton'} & set(sys.modules)))\n")
        with open(os.path.join(self.folder.name, "test_it.py")) as file:
            text = file.read().replace("import numpy as np, samestate", "import samestate")
        with open(os.path.join(self.folder.name, "test_it.py"), "w") as file:
            file.write(text)
        begin = time.monotonic()
        code, out = self.again("--collect-only", "-s")
        took = time.monotonic() - begin
        self.assertEqual(code, 0, out)
        self.assertIn("LOADED []", out)
        self.assertEqual(len([row for row in out.splitlines() if "::test_each[" in row or "::test_" in row]), 2000)
        self.assertLess(took, 15)


class Command(unittest.TestCase):
    def test_no_command_is_a_clear_error(self):
        code = "import samestate\ntry: samestate.executable()\nexcept samestate.CommandError as e: print(e)"
        env = {"PATH": "/nowhere", "PYTHONPATH": PYTHON}
        for more, said in (({}, "set SAMESTATE"), ({"SAMESTATE": "/no/such"}, "no such executable")):
            child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**env, **more})
            self.assertIn(said, child.stdout, child.stderr)


if __name__ == "__main__":
    unittest.main()
