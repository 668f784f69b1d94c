"""The inputs that a kernel with its own conventions received are part of its run: a dumped run is judged as it was,
and its explanation and its card read those inputs. Without them they could not (each case fails as a canonical
kernel's)."""
import json
import os
import struct
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]
import numpy as np  # noqa: E402
from plugin_runs import needs_command  # noqa: E402

import samestate  # noqa: E402


def recurrence(q, k, v, alpha, beta, scale, S, unit=None):
    """In float64; o and the state in fp32."""
    q, k = (np.repeat(x.astype(np.float64), v.shape[2] // x.shape[2], 2) for x in (q, k))
    if unit:
        q, k = unit(q), unit(k)
    S = np.zeros((v.shape[0], v.shape[2], q.shape[3], v.shape[3])) + (0 if S is None else S)
    o = np.zeros(v.shape)
    for t in range(v.shape[1]):
        S = S * alpha[:, t, :, None, None]
        delta = (v[:, t] - np.einsum("bhkv,bhk->bhv", S, k[:, t])) * beta[:, t, :, None]
        S = S + k[:, t, :, :, None] * delta[:, :, None, :]
        o[:, t] = scale * np.einsum("bhkv,bhk->bhv", S, q[:, t])
    return o.astype(np.float32), S.astype(np.float32)


def unit_norm(q, k, v, g, beta, scale, initial_state, l2norm):
    def unit(x):
        return x / np.maximum(np.sqrt((x * x).sum(-1, keepdims=True)), 1e-3)

    return recurrence(q, k, v, np.exp(g.astype(np.float64)), beta, scale, initial_state, unit if l2norm else None)


def factors(q, k, v, alpha, beta, scale, initial_state):
    """A factor and a logit, both of bf16."""
    return recurrence(q, k, v, alpha.astype(np.float64), 1 / (1 + np.exp(-beta.astype(np.float64))), scale, initial_state)


def factors_twice(q, k, v, alpha, beta, scale, initial_state):
    return factors(q, k, v, alpha * alpha, beta, scale, initial_state)


def factors_rounded(q, k, v, alpha, beta, scale, initial_state):
    """Its final state rounded to bf16, which it does not say."""
    o, S = factors(q, k, v, alpha, beta, scale, initial_state)
    return o, (np.ascontiguousarray(S).view(np.uint32) + 0x8000 & 0xFFFF0000).astype(np.uint32).view(np.float32)


OPTIONS = {"unit_norm": "l2norm_place=max&l2norm_epsilon=1e-3"}
FACTORS = "decay=linear&beta=logit&dtypes=g:bf16,beta:bf16"
KERNEL = "test_replayed_conventions.gated_delta_rule.recurrent"
SIZES = f"v1 gated_delta_rule form=recurrent B=2 T=24 Hk=2 Hv=2 dk=4 dv=5 scale=1 kernel={KERNEL} "
CASES = {"unit_norm": SIZES + "l2norm=1 regime=tiny_norms", "factors": SIZES + "state=random"}


def run(*words):
    return subprocess.run([samestate.executable(), *words], capture_output=True, text=True, cwd=HERE,
                          env=dict(os.environ, SAMESTATE_PYTHON=sys.executable, PYTHONPATH=os.path.dirname(HERE)))


def spec(name):
    return (f"python:test_replayed_conventions:{name}?system=gated_delta_rule&form=recurrent&"
            f"{OPTIONS.get(name, FACTORS)}")


def metadata(path):
    with open(path, "rb") as file:
        length, = struct.unpack("<Q", file.read(8))
        return json.loads(file.read(length))["__metadata__"]


def with_metadata(path, said):
    """The file again, with that metadata."""
    with open(path, "rb") as file:
        length, = struct.unpack("<Q", file.read(8))
        header, rest = json.loads(file.read(length)), file.read()
    header["__metadata__"] = said
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + rest)


@needs_command
class Replayed(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "run.safetensors")

    def dumped(self, name, line):
        ran = run("repro", "--subject", spec(name), line, "--dump", self.path, "--json", "--card-budget", "0")
        self.assertTrue(ran.stdout, ran.stderr)
        return json.loads(ran.stdout)

    def judged(self):
        ran = run("judge", self.path, "--json", "--card-budget", "0")
        return ran.returncode, json.loads(ran.stdout) if ran.stdout else ran.stderr

    def test_a_dumped_run_is_judged_as_it_was(self):
        said = {"unit_norm": "l2norm_place=max l2norm_epsilon=0.001",
                "factors": "decay=linear strength=logit g=bf16 beta=bf16"}
        for name, line in CASES.items():
            with self.subTest(name):
                before = self.dumped(name, line)
                self.assertEqual(before["verdict"], "pass")
                self.assertEqual(metadata(self.path)["given"], said[name])
                code, after = self.judged()
                self.assertEqual((code, after["verdict"], after["ratio"]), (0, "pass", before["ratio"]))
                with_metadata(self.path, {k: v for k, v in metadata(self.path).items() if k != "given"})
                self.assertEqual(self.judged()[0], 1, "read as a canonical kernel's it is wrong")

    def test_another_word_in_it(self):
        self.dumped("factors", CASES["factors"])
        with_metadata(self.path, dict(metadata(self.path), given="decay=cubic"))
        code, said = self.judged()
        self.assertEqual(code, 2, said)

    def test_an_explanation_is_of_what_it_was_given(self):
        record = self.dumped("factors_twice", CASES["factors"])
        self.assertEqual(record["verdict"], "fail")
        code, after = self.judged()
        self.assertEqual((code, after["ratio"]), (1, record["ratio"]))
        for text in (run("repro", "--subject", spec("factors_twice"), CASES["factors"], "--card-budget", "0").stdout,
                     run("judge", self.path, "--card-budget", "0").stdout):
            self.assertRegex(text, "(?i)decay is applied twice|twice", text)

    def test_a_card(self):
        card = run("card", "--subject", spec("factors"), "--kernel", KERNEL)
        self.assertEqual(card.returncode, 0, card.stdout + card.stderr)
        self.assertEqual(card.stdout.splitlines()[-1], "contract=fp32")
        card = run("card", "--subject", spec("factors_rounded"), "--kernel",
                   KERNEL)
        self.assertIn("state:bf16", card.stdout.splitlines()[-1] + card.stderr)

    def test_probes_on_disk(self):
        folder = os.path.join(os.path.dirname(self.path), "probes")
        words = ("--kernel", KERNEL)
        self.assertEqual(run("card", "--subject", spec("factors"), *words, "--write", folder).returncode, 0)
        path = os.path.join(folder, sorted(os.listdir(folder))[0])
        self.assertEqual(metadata(path)["given"], "decay=linear strength=logit g=bf16 beta=bf16")
        read = run("card", "--kernel", "cpu.gated_delta_rule.recurrent", "--read", folder)
        self.assertEqual(read.returncode, 2)
        self.assertIn("other conventions", read.stderr)


if __name__ == "__main__":
    unittest.main()
