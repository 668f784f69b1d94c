"""The plugin and samestate.check against the command itself; skipped where it, or its --subject, is not there."""
import os
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from plugin_runs import PYTHON, PytestRuns, needs_command  # noqa: E402


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
        with open(report) as file:
            text = file.read()
        self.assertIn('name="samestate_ratio"', text)
        self.assertIn('name="samestate_bound"', text)

    def test_a_wrong_declaration_is_an_error_of_collection(self):
        code, out = self.pytest("@cases(decai='ln')\ndef test_right(case):\n    pass\n")
        self.assertNotEqual(code, 0)
        self.assertIn("did you mean decay", out)

    def test_check(self):
        code, out = self.pytest("""
            def test_right(samestate_check):
                print(samestate_check(mine, "linear_attention", "recurrent", gate=["--exclude", "layout=far"],
                                      max_cases=20))
            def wrong(q, k, v, scale, initial_state):
                return mine(q, k, v, scale, initial_state, factor=2)
            def test_wrong(samestate_check):
                samestate_check(wrong, "linear_attention", "recurrent", gate=["--exclude", "layout=far"], max_cases=6)
            """, "-s")
        self.assertIn("1 failed, 1 passed", out)
        self.assertIn("test_it.linear_attention.recurrent: 20 cases", out)
        self.assertIn("repeat: samestate repro --subject 'python:test_it.py:wrong?system=linear_attention", out)
        text = out[out.index("samestate: fail:"):out.index("repeat:")]
        self.assertLessEqual(text.count("\n"), 15)

    def test_collection_imports_no_array_library(self):
        code, out = self.pytest("""
            import sys
            @samestate.cases("retention", "recurrent", max_cases=3, array="torch")
            def test_it(case):
                pass
            """.replace("import sys", "pass"), "--collect-only")
        self.assertEqual(code, 0, out)


class Command(unittest.TestCase):
    def test_no_command_is_a_clear_error(self):
        code = "import samestate\ntry: samestate.executable()\nexcept samestate.CommandError as e: print(e)"
        env = {"PATH": "/nowhere", "PYTHONPATH": PYTHON}
        for more, said in (({}, "set SAMESTATE"), ({"SAMESTATE": "/no/such"}, "no such executable")):
            child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**env, **more})
            self.assertIn(said, child.stdout, child.stderr)


if __name__ == "__main__":
    unittest.main()
