"""`samestate diagnose` for functions that take few sizes without declaring it: the limits are proposed, and the
conventions are read inside them. A call that a function refuses because of its values is not a limit."""
import json
import os
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]
from plugin_runs import needs_command  # noqa: E402

import samestate  # noqa: E402

KERNEL = """
import numpy as np
import samestate

@samestate.kernel("retention", "recurrent", heads="interleaved", contracts=["fp32", "bf16"], name="mine")
def mine(q, k, v, g, scale, initial_state, contract):
    B, T, Hk, dk = q.shape
    Hv, dv = v.shape[2:]
    CHECK
    q, k = (np.repeat(x, Hv // Hk, axis=2) for x in (q, k))
    S = np.zeros((B, Hv, dk, dv), np.float32) if initial_state is None else initial_state.copy()
    STATE
    o = np.empty_like(v)
    for t in range(T):
        S = np.exp(g[:, t])[..., None, None] * S + k[:, t][..., None] * v[:, t][..., None, :]
        o[:, t] = scale * np.einsum("bhk,bhkv->bhv", q[:, t], S)
    return o, S
"""


@needs_command
class ProbedLimits(unittest.TestCase):
    def diagnose(self, check, state="", page_too=True):
        """(exit code, what --json says, the page)"""
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "mine.py"), "w", encoding="utf-8") as file:
                file.write(KERNEL.replace("CHECK", check).replace("STATE", state))
            runs = [subprocess.run([samestate.executable(), "diagnose", "--subject", "python:mine.py", *words],
                                   capture_output=True, text=True, cwd=folder,
                                   env=dict(os.environ, SAMESTATE_PYTHON=sys.executable, PYTHONPATH=os.path.dirname(HERE)))
                    for words in (["--json"], [])[:1 + page_too]]
        try:
            return runs[0].returncode, json.loads(runs[0].stdout), runs[-1].stdout
        except ValueError:
            self.fail(runs[0].stdout + runs[0].stderr)

    def test_planted_limits_are_proposed(self):
        for check, limits in (("assert dk == 128, f'dk {dk}'", ["dk = 128"]),
                              ("if T % 16: raise ValueError(f'{T} tokens')", ["T % 16 = 0"]),
                              ("assert Hv == Hk", ["Hk = Hv"]),
                              ("assert contract != 'fp32', 'fp32'", ["contract = bf16"])):
            with self.subTest(check):
                first = limits == ["dk = 128"]
                code, found, page = self.diagnose(check, page_too=first)
                self.assertEqual(code, 1, page)
                self.assertEqual(found["limits"], limits)
                self.assertEqual([fit["deviations"] for fit in found["fits"]][0], [], "read inside them, as declared")
                self.assertEqual(found["refused_by_values"], "")
                self.assertFalse([why for why in found["refused"] if why.startswith("dense")])
                if first:
                    self.assertIn('declare   "limits":["dk = 128"], or ?limits=dk = 128 after', page)

    def test_a_convention_is_read_inside_the_limits(self):
        code, found, page = self.diagnose("assert (dk, dv) == (128, 128) and T % 16 == 0", "S *= 0", page_too=False)
        self.assertEqual(code, 1)
        self.assertEqual(sorted(found["limits"]), ["T % 16 = 0", "dk = 128", "dv = 128"])
        self.assertEqual([fit["deviations"] for fit in found["fits"]], [["the initial state is ignored"]], found)

    def test_what_is_refused_by_its_values_is_no_limit(self):
        """Some value of a large call is as large in nearly all data, and of none in some."""
        code, found, page = self.diagnose("assert np.abs(v).max() < 2.9, 'a large v'")
        self.assertEqual(code, 3, page)
        self.assertEqual(found["limits"], [], page)
        self.assertIn("a large v", found["refused_by_values"])
        self.assertIn("refused   because of its values", page)
        self.assertNotIn('declare   "limits"', page)

    def test_one_that_takes_nothing(self):
        code, found, page = self.diagnose("assert False, 'not today'")
        self.assertEqual(code, 77, page)
        self.assertEqual(found["limits"], [])
        self.assertIn("it refused all sizes and settings that were tried", page)


if __name__ == "__main__":
    unittest.main()
