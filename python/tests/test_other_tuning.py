"""A failing case whose tuner chose a configuration is repeated with the tuner's other setting, and the record tells a wrong
first configuration from a wrong best one. The tuner is that of small_packages.py, the kernels are in tuned_kernels.py."""
import json
import os
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]
import small_packages  # noqa: E402
from plugin_runs import lacking, needs_command  # noqa: E402

import samestate  # noqa: E402

FIRST, BEST = "scan: size=128, num_warps=4, num_stages=3", "scan: size=64, num_warps=4, num_stages=3"


@needs_command
class OtherTuning(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        small_packages.write(os.path.join(self.folder, "packages"))

    def command(self, verb, *words, wrong=0, how="values"):
        environment = dict(os.environ, SAMESTATE_PYTHON=sys.executable, SAMESTATE_TEST_WRONG=str(wrong), SAMESTATE_TEST_HOW=how,
                           SAMESTATE_CACHE=os.path.join(self.folder, "cache"), PYTHONPATH=os.pathsep.join(
                               [os.path.join(self.folder, "packages"), os.path.dirname(HERE)]))
        environment.pop("SAMESTATE_AUTOTUNE", None)
        environment.pop("TRITON_INTERPRET", None)  # another test of this process may have set it
        return subprocess.run([samestate.executable(), verb, *words, "--subject",
                               "python:" + os.path.join(HERE, "tuned_kernels.py")], capture_output=True, text=True,
                              cwd=self.folder, env=environment)

    def gate(self, *words, kernel="tuned.retention.recurrent", **planted):
        """(the run, its records of cases)"""
        path = os.path.join(tempfile.mkdtemp(dir=self.folder), "records.jsonl")
        ran = self.command("gate", "--kernel", kernel, *self.few(), "--jsonl", path, *words, **planted)
        with open(path, encoding="utf-8") as file:
            lines = [json.loads(line) for line in file]
        return ran, [line for line in lines if "verdict" in line]

    def few(self):
        """Options of a gate that runs two small cases."""
        corpus = os.path.join(self.folder, "corpus")
        os.makedirs(corpus, exist_ok=True)
        with open(os.path.join(corpus, "retention.txt"), "w", encoding="utf-8") as file:
            file.writelines(f"# small\nv1 retention form=recurrent T={T} dk=4 dv=4 state=random\n" for T in (9, 5))
        return ["--corpus", corpus, "--max-cases", "2", "--threads", "1", "--effort", "0"]

    def failing(self, records, verdict="fail"):
        some = [record for record in records if record["verdict"] == verdict]
        self.assertTrue(some, records)
        return some

    def test_a_wrong_first_configuration(self):
        ran, records = self.gate(wrong=128)
        self.assertEqual(ran.returncode, 1, ran.stdout + ran.stderr)
        for record in self.failing(records):
            self.assertEqual((record["tuned"], record["retuned"]), ("first: " + FIRST, "full: pass: " + BEST))
            self.assertEqual(lacking(record["reason"], f"--autotune full passes ({BEST}) first fails ({FIRST})"), [])
        self.assertEqual(lacking(ran.stdout, "only --autotune first"), [])

        # Each is repeated by the line.
        line = record["line"]
        own = self.command("repro", line, wrong=128)
        self.assertEqual(own.returncode, 1, own.stdout + own.stderr)
        self.assertIn("tuned     first: " + FIRST, own.stdout)
        self.assertEqual(lacking(own.stdout, "only --autotune first"), [])
        other = self.command("repro", line, "--autotune", "full", wrong=128)
        self.assertEqual(other.returncode, 0, other.stdout + other.stderr)
        self.assertIn("tuned     full: " + BEST, other.stdout)

    def test_a_wrong_best_configuration(self):
        """The gate never runs it by itself; with the tuner's own choice it fails, and the first configuration is
        reported as passing."""
        ran, records = self.gate(wrong=64)
        self.assertNotIn("fail", {record["verdict"] for record in records}, ran.stdout)
        ran, records = self.gate("--autotune", "full", wrong=64)
        self.assertEqual(ran.returncode, 1, ran.stdout + ran.stderr)
        for record in self.failing(records):
            self.assertEqual((record["tuned"], record["retuned"]), ("full: " + BEST, "first: pass: " + FIRST))
        self.assertEqual(lacking(ran.stdout, "only --autotune full"), [])

    def test_a_configuration_that_crashes(self):
        for how in ("raise", "exit"):
            with self.subTest(how):
                ran, records = self.gate(wrong=128, how=how)
                self.assertEqual(ran.returncode, 5, ran.stdout + ran.stderr)
                for record in self.failing(records, "crash"):
                    self.assertEqual((record["tuned"], record["retuned"]), ("first: " + FIRST, "full: pass: " + BEST),
                                     record["reason"])
                    self.assertEqual(lacking(record["reason"], "first crashes"), [])

    def test_both_are_wrong(self):
        """The other setting does not help, and the failure is explained as any other is."""
        path = os.path.join(self.folder, "both.py")
        with open(os.path.join(HERE, "tuned_kernels.py"), encoding="utf-8") as file:
            text = file.read().replace("size == _WRONG and", "")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        record = json.loads(self.command_of(path, "v1 retention form=recurrent T=9 dk=4 dv=4 kernel=tuned.retention.recurrent"))
        self.assertEqual((record["verdict"], record["retuned"]), ("fail", "full: fail: " + BEST))
        self.assertNotIn("only with the configuration", str(record["looks_like"]))

    def command_of(self, path, line):
        environment = dict(os.environ, SAMESTATE_PYTHON=sys.executable, PYTHONPATH=os.pathsep.join(
            [os.path.join(self.folder, "packages"), os.path.dirname(HERE)]))
        environment.pop("SAMESTATE_AUTOTUNE", None)
        environment.pop("TRITON_INTERPRET", None)  # another test of this process may have set it
        return subprocess.run([samestate.executable(), "repro", line, "--json", "--subject", "python:" + path],
                              capture_output=True, text=True, env=environment).stdout

    def test_each_configuration_as_a_kernel_of_its_own(self):
        """The recipe of docs/lookup/subjects.md: a wrong configuration is found that no setting of the tuner chooses."""
        path = os.path.join(self.folder, "each.py")
        with open(path, "w", encoding="utf-8") as file:
            file.write("""
import samestate
import tuned_kernels

tuner = tuned_kernels._tuner()
for config in list(tuner.configs):
    def one(q, k, v, g, scale, initial_state, config=config):
        tuner.configs = [config]
        return tuned_kernels.tuned(q, k, v, g, scale, initial_state)

    name = f"size{config.kwargs['size']}"
    globals()[name] = samestate.kernel("retention", "recurrent", name="mine." + name, heads="repeated", array="numpy", limits=["T <= 64"])(one)
""")
        for wrong, code in ((0, 0), (64, 1)):
            ran = self.command_on(path, wrong)
            self.assertEqual(ran.returncode, code, ran.stdout + ran.stderr)
        self.assertIn("of mine.size64.recurrent, form", ran.stdout)
        self.assertNotIn("of mine.size128.recurrent, form", ran.stdout)

    def command_on(self, path, wrong):
        places = [os.path.join(self.folder, "packages"), os.path.dirname(HERE), HERE]
        environment = dict(os.environ, SAMESTATE_PYTHON=sys.executable, SAMESTATE_TEST_WRONG=str(wrong),
                           PYTHONPATH=os.pathsep.join(places))
        return subprocess.run([samestate.executable(), "gate", "--corpus", self.few()[1], "--max-cases", "8",
                               "--effort", "0", "--where", "dk=..32 dv=..32 Hv=..8", "--subject", "python:" + path],
                              capture_output=True, text=True, env=environment)

    def test_without_a_tuner_nothing_is_repeated(self):
        ran, records = self.gate(kernel="untuned.retention.recurrent", wrong=128)
        self.assertEqual(ran.returncode, 1, ran.stdout + ran.stderr)
        for record in self.failing(records):
            self.assertNotIn("tuned", record)
            self.assertNotIn("autotune", record["reason"])


if __name__ == "__main__":
    unittest.main()
