"""The kernel of python/README.md, as somebody writes it who has read nothing else: it passes as it stands there, and what
goes wrong without its one declaration says so."""
import os
import re
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]
from plugin_runs import lacking, needs_command  # noqa: E402

import samestate  # noqa: E402

# Loops of Python are slow at the sizes of models.
SMALL = ["--where", "T=..64 dk=..32 dv=..32 Hv=..8", "--effort", "0", "--max-cases", "40"]
README = os.path.join(os.path.dirname(HERE), "README.md")


@needs_command
@unittest.skipUnless(os.path.exists(README), "not in the repository")
class FirstKernel(unittest.TestCase):
    def gate(self, change=lambda text: text):
        with open(README, encoding="utf-8") as file:
            text, = re.findall(r"```python\n(@samestate.kernel\(\"retention\".*?)```", file.read(), re.S)
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "first.py"), "w", encoding="utf-8") as file:
                file.write("import numpy as np\nimport samestate\n\n" + change(text))
            return subprocess.run([samestate.executable(), "gate", "--subject", "python:first.py", *SMALL],
                                  capture_output=True, text=True, cwd=folder,
                                  env=dict(os.environ, SAMESTATE_PYTHON=sys.executable, PYTHONPATH=os.path.dirname(HERE)))

    def test_passes(self):
        ran = self.gate()
        self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)
        self.assertNotIn("crash", ran.stdout)

    def test_without_a_gpu_triton_is_told_from_its_kernel(self):
        ran = self.gate(lambda text: text.replace(
            "    B, T, H, dk = q.shape",
            '    raise RuntimeError("0 active drivers ([]). There should only be one.")\n    B, T, H, dk = q.shape'))
        self.assertEqual(ran.returncode, 5, ran.stdout + ran.stderr)
        self.assertEqual(lacking(ran.stdout, "Triton GPU TRITON_INTERPRET=1"), [])

    def test_without_its_declaration_the_heads_are_named(self):
        ran = self.gate(lambda text: text.replace(', heads="repeated"', ""))
        self.assertEqual(ran.returncode, 5, ran.stdout + ran.stderr)
        self.assertRegex(ran.stdout, "q and k have [0-9]+ heads here, and v [0-9]+: .*heads=repeated")


if __name__ == "__main__":
    unittest.main()
