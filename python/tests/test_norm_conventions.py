"""Epsilon and place of a norm in the kernel: declared, a kernel with it passes, with another it fails, and `diagnose` says
what to declare."""
import os
import subprocess
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]
import numpy as np  # noqa: E402
from plugin_runs import needs_command  # noqa: E402

import samestate  # noqa: E402

NORMS = {
    "usual": {}, "eps5": {"l2norm_epsilon": 1e-5}, "outside": {"l2norm_place": "outside"},
    "maximum": {"l2norm_place": "max", "l2norm_epsilon": 1e-12},
}


def _unit(x, kind):
    squares = (x * x).sum(-1, keepdims=True, dtype=np.float64)
    if kind == "outside":
        return x / (np.sqrt(squares) + 1e-6)
    if kind == "maximum":
        return x / np.maximum(np.sqrt(squares), 1e-12)
    return x / np.sqrt(squares + (1e-5 if kind == "eps5" else 1e-6))


def attention(kind):
    def call(q, k, v, scale, initial_state, l2norm):
        q, k = (np.repeat(x.astype(np.float64), v.shape[2] // x.shape[2], 2) for x in (q, k))
        if l2norm:
            q, k = _unit(q, kind), _unit(k, kind)
        S = np.zeros((v.shape[0], v.shape[2], q.shape[3], v.shape[3])) + (0 if initial_state is None else initial_state)
        o = np.zeros(v.shape)
        for t in range(v.shape[1]):
            S = S + k[:, t, :, :, None] * v[:, t, :, None, :]
            o[:, t] = scale * np.einsum("bhkv,bhk->bhv", S, q[:, t])
        return o.astype(np.float32), S.astype(np.float32)

    return call


usual, eps5, outside, maximum = (attention(kind) for kind in NORMS)
CASE = "v1 linear_attention form=recurrent B=2 T=24 Hk=2 Hv=2 dk=4 dv=5 l2norm=1 scale=1 regime=tiny_norms"


@needs_command
class Norms(unittest.TestCase):
    def test_declared_and_not(self):
        for own in NORMS:
            for declared, conventions in NORMS.items():
                with self.subTest(own, declared=declared):
                    checked = lambda: samestate.check(attention(own), "linear_attention", "recurrent", case=CASE, **conventions)
                    if own == declared:
                        self.assertEqual(checked().verdicts, {"pass": 1})
                    else:
                        with self.assertRaises(samestate.Failed) as caught:
                            checked()
                        self.assertEqual(caught.exception.record["verdict"], "fail")

    def test_diagnosed(self):
        said = {"eps5": '"l2norm_place":"inside","l2norm_epsilon":1e-5', "outside": '"l2norm_place":"outside","l2norm_epsilon":1e-6',
                "maximum": '"l2norm_place":"max","l2norm_epsilon":1e-12', "usual": '"l2norm_place":"inside","l2norm_epsilon":1e-6'}
        options = {"usual": "", "eps5": "&l2norm_epsilon=1e-5"}
        for own, declared in (("usual", "usual"), ("eps5", "usual"), ("outside", "usual"), ("maximum", "usual"),
                              ("usual", "eps5"), ("eps5", "eps5")):
            with self.subTest(own, declared=declared):
                name = f"python:test_norm_conventions:{own}?system=linear_attention&form=recurrent{options[declared]}"
                ran = subprocess.run([samestate.executable(), "diagnose", "--subject", name], capture_output=True, text=True,
                                     cwd=HERE, env=dict(os.environ, SAMESTATE_PYTHON=sys.executable,
                                                        PYTHONPATH=os.path.dirname(HERE)))
                if own == declared:
                    self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)
                    self.assertIn("as declared", ran.stdout)
                else:
                    self.assertEqual(ran.returncode, 1, ran.stdout + ran.stderr)
                    self.assertIn('declare   "conventions":{' + said[own] + "}", ran.stdout)

    def test_contradictions_end_with_one_line(self):
        """Declarations that a program in another language may send, although this package would refuse them itself."""
        program = ("import json,sys\nsys.stdin.readline()\nprint(json.dumps({'type':'ready','protocol':1,'kernels':[{'name':'m."
                   "%s.recurrent','system':'%s','form':'recurrent','contracts':['fp32'],'conventions':%s}]}),flush=True)\n"
                   "sys.stdin.readline()\n")
        for system, conventions, said in (
                ("linear_attention", "{'l2norm':'outside','l2norm_epsilon':1e-5}", "it has none"),
                ("linear_attention", "{'l2norm_epsilon':0}", "from 1e-12 to 0.01"),
                ("linear_attention", "{'null_slot':'0'}", "linear_attention has none"),
                ("rms_norm", "{'null_slot':'0'}", "rms_norm has none"),
                ("gated_delta_step", "{'state':'vk'}", "gated_delta_step has named tensors"),
                ("gated_delta_step", "{'null_slot':'7'}", "known: -1, 0, none"),
                ("linear_attention", "{'dtypes':{'q':'bf16'}}", "what the contract says")):
            with self.subTest(system, conventions=conventions):
                path = os.path.join(self.folder, "program.py")
                with open(path, "w", encoding="utf-8") as file:
                    file.write(program % (system, system, conventions))
                ran = subprocess.run([samestate.executable(), "gate", "--subject", f"{sys.executable} {path}"],
                                     capture_output=True, text=True)
                self.assertEqual(ran.returncode, 2, ran.stdout + ran.stderr)
                self.assertIn(said, ran.stderr)
                self.assertEqual(ran.stderr.count("\n"), 1, ran.stderr)

    def setUp(self):
        import tempfile

        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name


if __name__ == "__main__":
    unittest.main()
