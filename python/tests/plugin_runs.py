"""For tests: whether there is a command, what a message lacks, and pytest in a process of its own on a file of a right kernel and a test."""
import os
import re
import subprocess
import sys
import tempfile
import textwrap
import unittest

PYTHON = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, PYTHON)
import samestate  # noqa: E402

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
    **{"max_cases": 4, "effort": 0.02, **more})
# Its loop is slow at the sizes of models, and a whole plan takes longer than the cases.
SMALL = ["--where", "T=..64 dk=..32 dv=..32 Hv=..8", "--exclude", "layout=far", "--effort", "0.02"]
"""


def lacking(text, facts):
    """Returns those of `facts`, which are separated by spaces (keys, values, limits, names of options), that are
    missing in the line that has most of them; a number stands by itself: 1 is not in 12."""
    def there(fact, line):
        number = re.fullmatch(r"[\d.]+", fact)
        return re.search(rf"(?<![\w.]){re.escape(fact)}(?!\w|\.\d)" if number else re.escape(fact), line)

    return min(([fact for fact in facts.split() if not there(fact, line)] for line in text.splitlines() or [""]), key=len)


def has_subjects():
    try:
        help_text = subprocess.run([samestate.executable(), "gate", "--help"], capture_output=True, text=True).stdout
    except samestate.CommandError:
        return False
    return "--subject" in help_text


needs_command = unittest.skipUnless(has_subjects(), "no command `samestate` with --subject (set SAMESTATE)")


class PytestRuns(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()

    def tearDown(self):
        self.folder.cleanup()

    def write(self, code, name="test_it.py"):
        path = os.path.join(self.folder.name, name)
        with open(path, "w") as file:
            file.write(RIGHT + textwrap.dedent(code))
        return path

    def again(self, *words, plugins=("no:cacheprovider",), timeout=300):
        """(exit code, output) of pytest on what was written."""
        # If the package is installed, or was built here, its entry point would load the plugin a second time.
        environment = dict(os.environ, PYTHONPATH=PYTHON, PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
        environment.pop("PYTEST_XDIST_WORKER", None)
        loaded = [word for plugin in ("samestate.pytest_plugin", *plugins) for word in ("-p", plugin)]
        child = subprocess.run([sys.executable, "-m", "pytest", *loaded, "-q", "--rootdir", self.folder.name, *words],
                               capture_output=True, text=True, cwd=self.folder.name, env=environment, timeout=timeout)
        return child.returncode, child.stdout + child.stderr

    def pytest(self, code, *words, **more):
        self.write(code)
        return self.again(*words, **more)
