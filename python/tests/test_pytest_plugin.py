"""The plugin and samestate.check against the command itself; skipped where it, or its --subject, is not there."""
import os
import subprocess
import sys
import textwrap
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import samestate  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
PYTHON = os.path.dirname(HERE)

RIGHT = """
import numpy as np, samestate

def mine(q, k, v, scale, initial_state, factor=1):
    r = v.shape[2] // q.shape[2]
    q, k = (np.repeat(x, r, 2) for x in (q, k))
    S = np.zeros((v.shape[0], v.shape[2], q.shape[3], v.shape[3]), np.float32)
    if initial_state is not None:
        S = S + initial_state
    o = np.zeros(v.shape, np.float32)
    for t in range(v.shape[1]):
        S = S + k[:, t, :, :, None] * v[:, t, :, None, :]
        o[:, t] = np.float32(scale) * factor * np.einsum("bhkv,bhk->bhv", S, q[:, t])
    return o, S
cases = lambda **more: samestate.cases("linear_attention", "recurrent", contract="fp32", heads="interleaved",
    l2norm="outside", limits=["form != packed"], where=["T=1..40", "layout=dense,padded"],
    **{"max_cases": 4, **more})
"""


def has_subjects():
    try:
        help_text = subprocess.run([samestate.executable(), "gate", "--help"], capture_output=True, text=True).stdout
    except samestate.CommandError:
        return False
    return "--subject" in help_text


@unittest.skipUnless(has_subjects(), "no command `samestate` with --subject (set SAMESTATE)")
class Plugin(unittest.TestCase):
    def setUp(self):
        import tempfile

        self.folder = tempfile.TemporaryDirectory()

    def tearDown(self):
        self.folder.cleanup()

    def pytest(self, code, *words):
        path = os.path.join(self.folder.name, "test_it.py")
        with open(path, "w") as file:
            file.write(RIGHT + textwrap.dedent(code))
        child = subprocess.run(
            [sys.executable, "-m", "pytest", "-p", "samestate.pytest_plugin", "-p", "no:cacheprovider", "-q",
             "--rootdir", self.folder.name, path, *words], capture_output=True, text=True, cwd=self.folder.name,
            # Where the package is installed, or was built here, its entry point would load the plugin a second time.
            env=dict(os.environ, PYTHONPATH=PYTHON, PYTEST_DISABLE_PLUGIN_AUTOLOAD="1"), timeout=300)
        return child.returncode, child.stdout + child.stderr

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
