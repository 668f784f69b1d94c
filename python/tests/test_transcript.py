"""The transcript of docs/lookup/subjects.md, replayed from both sides: the command asks what stands there, and what this package
serves answers what stands there."""
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]
from judge import Judge, recurrence  # noqa: E402
from plugin_runs import needs_command  # noqa: E402

PAGE = os.path.join(os.path.dirname(os.path.dirname(HERE)), "docs", "lookup", "subjects.md")
LINE = "v1 gated_delta_rule form=recurrent T=5 Hk=1 Hv=2 dk=4 dv=4 scale=0.5 state=random"
# A subject of the transcript's side: it keeps what it is asked, and says what stands there.
SUBJECT = """
import json, sys
answers, asked = json.load(open(sys.argv[1])), open(sys.argv[2], "a")
for line in sys.stdin:
    asked.write(line)
    asked.flush()
    request = json.loads(line)
    if request["type"] == "bye":
        break
    print(json.dumps({**answers[request["type"]], **({"id": request["id"]} if "id" in request else {})}), flush=True)
"""


def transcript():
    """[('>' or '<', message)]."""
    with open(PAGE, encoding="utf-8") as file:
        page = file.read()
    block, = re.findall(r'```\n(> \{"type":"hello".*?)```', page, re.S)
    lines = re.sub(r"\n +", "", block).splitlines()
    return [(line[0], json.loads(line[2:])) for line in lines]


@unittest.skipUnless(os.path.exists(PAGE), "not in the repository")
class Transcript(unittest.TestCase):
    def test_it_is_a_conversation(self):
        self.assertEqual([(side, message["type"]) for side, message in transcript()],
                         [(">", "hello"), ("<", "ready"), (">", "run"), ("<", "ran"), (">", "bye")])

    @needs_command
    def test_the_command_asks_it(self):
        said = transcript()
        answers = {asked["type"]: answer for (_, asked), (_, answer) in zip(said[::2], said[1::2])}
        with tempfile.TemporaryDirectory() as folder:
            names = [os.path.join(folder, name) for name in ("subject.py", "answers", "asked")]
            for name, text in zip(names, (SUBJECT, json.dumps(answers))):
                with open(name, "w") as file:
                    file.write(text)
            command = os.environ.get("SAMESTATE", "samestate")
            subprocess.run([command, "repro", "--card-budget", "0", "--subject", " ".join([sys.executable, *names]),
                            f"{LINE} kernel={answers['hello']['kernels'][0]['name']}"],
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=120)
            with open(names[2]) as file:
                asked = [json.loads(line) for line in file]
        for wanted in (said[0][1], said[2][1]):
            found = next(message for message in asked if message["type"] == wanted["type"])
            self.assertEqual(list(sorted(found)), list(sorted(wanted)))
            if "memory" in wanted:
                self.assertRegex(found.pop("memory"), r"^/proc/\d+/fd/\d+$")
                wanted.pop("memory"), wanted.pop("samestate"), found.pop("samestate")
            self.assertEqual(found, wanted)

    def test_the_package_answers_it(self):
        import numpy as np

        said = transcript()
        judge = Judge([sys.executable, "-m", "samestate.serve", os.path.join(HERE, "kernels.py") + ":gated_delta_rule"])
        try:
            wanted = said[1][1]
            self.assertGreater(judge.ready["seconds"].pop("import"), 0.0)
            self.assertEqual({**judge.ready, "about": 0, "kernels": 0}, {**wanted, "about": 0, "kernels": 0, "seconds": {}})
            self.assertTrue(judge.ready["about"])
            self.assertLessEqual(set(wanted["kernels"][0]), set(judge.ready["kernels"][0]))
            run = dict(said[2][1], kernel=judge.ready["kernels"][0]["name"])
            os.ftruncate(judge.fd, run["bytes"])
            rng, x = np.random.default_rng(1), {}
            for tensor in run["inputs"]:
                values = rng.uniform(0.1, 0.9, tensor["shape"]).astype("<f4") * (-1 if tensor["name"] == "g" else 1)
                x[tensor["name"]] = values.astype(np.float64)
                os.pwrite(judge.fd, values.astype("<f4").tobytes(), tensor["offset"])
            ran = judge.ask(run)
            self.assertLessEqual(set(ran.pop("seconds")), {"import", "copy", "kernel"})
            self.assertEqual(ran, said[3][1])
            expected = recurrence(x, "gated_delta_rule", run["scale"], run["heads"], run["l2norm"])
            for tensor, values in zip(run["outputs"], expected):
                size = 4 * int(np.prod(tensor["shape"]))
                written = np.frombuffer(os.pread(judge.fd, size, tensor["offset"]), "<f4").reshape(tensor["shape"])
                self.assertLess(np.abs(written - values).max(), 1e-5, tensor["name"])
            judge.send(said[4][1])
            self.assertIsNone(judge.read())
            self.assertEqual(judge.process.wait(timeout=20), 0)
        finally:
            judge.process.kill()
            judge.close()


if __name__ == "__main__":
    unittest.main()
