"""A function that hands its call on to another package is named by what it hands it on to, in the record too."""
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import textwrap
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]
from plugin_runs import needs_command  # noqa: E402

import samestate  # noqa: E402
from samestate.forwarding import Watch  # noqa: E402

PACKAGES = {
    # The package that computes.
    "fastlib/__init__.py": "",
    "fastlib/kernels.py": """
        import numpy as np

        def attend(q, k, v, scale, initial_state):
            r = v.shape[2] // q.shape[2]
            q, k = (np.repeat(x, r, 2) for x in (q, k))
            S = np.zeros((v.shape[0], v.shape[2], q.shape[3], v.shape[3]), np.float32)
            S = S if initial_state is None else S + initial_state
            o = np.zeros(v.shape, np.float32)
            for t in range(v.shape[1]):
                S = S + k[:, t, :, :, None] * v[:, t, :, None, :]
                o[:, t] = np.float32(scale) * np.einsum("bhkv,bhk->bhv", S, q[:, t])
            return o, S
        """,
    # The public function: a dispatcher such as flash-linear-attention's, and one such as Hugging Face's on top of it.
    "publiclib/__init__.py": """
        import functools
        import numpy as np
        from fastlib import kernels as backend

        def dispatch(function):
            @functools.wraps(function)
            def wrapper(*args, **kwargs):
                if kwargs["q"].shape[1] > 1:
                    return backend.attend(*args, **kwargs)
                return function(*args, **kwargs)
            return wrapper

        def own(q, k, v, scale, initial_state):
            o, S = backend.attend(q, k, v, scale, initial_state)
            return o + 0, S + 0

        @dispatch
        def attend(q, k, v, scale, initial_state):
            return own(q, k, v, scale, initial_state)
        """,
    "hub/__init__.py": """
        import functools
        import publiclib

        def reference(q, k, v, scale, initial_state):
            raise RuntimeError("not here")

        @functools.wraps(reference)
        def attend(*args, **kwargs):
            o, S = publiclib.attend(*args, **kwargs)
            return o, S
        """,
}


class Packages(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        for path, text in PACKAGES.items():
            path = os.path.join(self.folder, path)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8") as file:
                file.write(textwrap.dedent(text))
        sys.path.insert(0, self.folder)
        self.addCleanup(sys.path.remove, self.folder)
        self.addCleanup(lambda: [sys.modules.pop(name, None) for name in list(sys.modules)
                                 if name.partition(".")[0] in ("fastlib", "publiclib", "hub")])

    def watched(self, function, tokens=3):
        import numpy as np

        x = np.ones((1, tokens, 1, 2), np.float32)
        with Watch() as watch:
            function(q=x, k=x, v=x, scale=1.0, initial_state=None)
        return watch.function


class Watched(Packages):
    def test_what_ran_is_named(self):
        import hub
        import publiclib

        with open(os.path.join(self.folder, "fastlib/kernels.py"), "rb") as file:
            said = "fastlib/kernels.py:4 attend sha256 " + hashlib.sha256(file.read()).hexdigest()[:16]
        self.assertEqual(self.watched(publiclib.attend), said)
        self.assertEqual(self.watched(hub.attend), said, "of two that hand on, the last")

    def test_what_computes_itself_is_not(self):
        import fastlib.kernels
        import publiclib

        self.assertIsNone(self.watched(publiclib.own), "it makes results of its own of another's")
        self.assertIsNone(self.watched(fastlib.kernels.attend))
        self.assertIsNone(self.watched(publiclib.attend, tokens=1))

    def test_a_profiler_stays(self):
        import publiclib

        seen = []
        sys.setprofile(lambda *event: seen.append(event[1]))
        try:
            self.assertIsNone(self.watched(publiclib.attend))
            self.assertIsNotNone(sys.getprofile())
        finally:
            sys.setprofile(None)
        self.assertTrue(seen)


@needs_command
class Recorded(Packages):
    def test_in_the_record(self):
        path = os.path.join(self.folder, "records.jsonl")
        environment = dict(os.environ, SAMESTATE_PYTHON=sys.executable,
                           PYTHONPATH=os.pathsep.join([self.folder, os.path.dirname(HERE)]))
        ran = subprocess.run([samestate.executable(), "gate", "--subject",
                              "python:hub:attend?system=linear_attention&form=recurrent&name=asked", "--max-cases", "6",
                              "--effort", "0.1", "--where", "T=2..20", "--jsonl", path, "--least-judged", "0"],
                             env=environment, capture_output=True, text=True, cwd=self.folder)
        with open(path, encoding="utf-8") as file:
            records = [json.loads(line) for line in file]
        ends = [r for r in records if r.get("event") == "end" and r["verdict"] == "pass"]
        self.assertTrue(ends, ran.stdout + ran.stderr)
        for record in ends:
            # A case that is called with one token, too, names what computes these.
            self.assertRegex(record["ran_by"], r"^(publiclib/__init__\.py:7 dispatch\.<locals>\.wrapper sha256 [0-9a-f]{16}, )?"
                                               r"fastlib/kernels\.py:4 attend sha256 [0-9a-f]{16}$")


if __name__ == "__main__":
    unittest.main()
