"""Triton's interpreter, repaired, under each Triton and numpy: interpreted.py in environments of their own.

SAMESTATE_INTERPRETERS names Pythons that have both, with ':' between. With SAMESTATE_LONG=1 the combinations of TRITONS and
NUMPYS are installed by pip into temporary folders, for this Python or the one that SAMESTATE_PYTHON names; those for which
there is no wheel (numpy 2.5 wants Python 3.12) are skipped.
"""
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGE = os.path.dirname(HERE)
TRITONS = ("3.6.0", "3.7.1", "3.8.0", "3.9.0")
NUMPYS = ("1.26.*", "2.0.*", "2.1.*", "2.2.*", "2.3.*", "2.4.*", "2.5.*")


def run(python, *folders):
    path = os.pathsep.join([*folders, PACKAGE, *(sys.path if python == sys.executable and not folders else [])])
    kept = {key: value for key, value in os.environ.items() if not key.startswith("TRITON_")}
    return subprocess.run([python, os.path.join(HERE, "interpreted.py")], capture_output=True, text=True, timeout=300,
                          env={**kept, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"})


class Combinations(unittest.TestCase):
    def check(self, python, *folders):
        done = run(python, *folders)
        self.assertEqual(done.returncode, 0, done.stderr[-2000:])
        said = json.loads(done.stdout.splitlines()[-1])
        for what in ("o", "state", "chunks"):  # sums of fp32, of two dozen terms at most
            self.assertLess(said[what], 1e-6, said)
        return said

    @unittest.skipUnless(importlib.util.find_spec("triton"), "needs triton")
    def test_here(self):
        self.check(sys.executable)

    @unittest.skipUnless(os.environ.get("SAMESTATE_INTERPRETERS"), "SAMESTATE_INTERPRETERS names no Python")
    def test_those_that_are_named(self):
        for python in os.environ["SAMESTATE_INTERPRETERS"].split(os.pathsep):
            with self.subTest(python):
                self.check(python)

    @unittest.skipUnless(os.environ.get("SAMESTATE_LONG"), "takes a gigabyte of packages: SAMESTATE_LONG=1")
    def test_all_combinations(self):
        python, folder, lacking = os.environ.get("SAMESTATE_PYTHON") or sys.executable, tempfile.mkdtemp(), []
        self.addCleanup(shutil.rmtree, folder, True)

        def installed(package):
            into = os.path.join(folder, package)
            done = subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-deps", "--only-binary", ":all:", "--target",
                                   into, package], capture_output=True, text=True, timeout=600)
            if done.returncode:
                lacking.append(package)
            return into if not done.returncode else None

        tritons = list(filter(None, (installed(f"triton=={version}") for version in TRITONS)))
        ran = 0
        for version in NUMPYS:
            numpy = installed(f"numpy=={version}")
            for triton in tritons if numpy else ():
                with self.subTest(numpy=version, triton=os.path.basename(triton)):
                    said = self.check(python, numpy, triton)
                    self.assertTrue(said["numpy"].startswith(version.rstrip("*")), said)
                    ran += 1
        if lacking:
            print(f"no wheel for this Python, or no network: {' '.join(lacking)}", file=sys.stderr)
        if not ran:
            self.skipTest("nothing could be installed")


if __name__ == "__main__":
    unittest.main()
