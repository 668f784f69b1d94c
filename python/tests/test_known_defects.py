"""Defects of public kernels as tests of this tool: each imitation of defects.py is caught by one case, with the verdict
and, where diagnose knows it, the name; the same kernel without it passes that case. Long: by the gate's own plan."""
import json
import os
import struct
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]
from plugin_runs import PYTHON, lacking, needs_command  # noqa: E402

import samestate  # noqa: E402

PACKED = "v1 gated_delta_rule form=packed chunk=0 lengths=3,2,4 Hk=2 Hv=4 dk=4 state=random"
DENSE = "v1 gated_delta_rule form=recurrent B=2 T=5 Hk=2 Hv=4 dk=4 state=random"

# (with the defect, without, case, verdict, gate, what diagnose calls it or None, a word of what a failure says)
ROWS = [
    # vLLM: a table of states by token, read and returned by requests of more than one
    ("state_at_first_token", "none", PACKED, "fail", "row",
     "the state of a packed sequence is read at the row of its first token", "only with state=random"),
    ("state_of_every_token", "none", PACKED, "fail", "state", None, "only the final state"),
    # vLLM: slot 0 is the padding's
    ("slot_0_is_null", "none", PACKED, "fail", "row", "the state in slot 0 is taken for none", "only sequence 0"),
    # flash-linear-attention: the fifth position is gk, and beta may be left out
    ("beta_in_place_of_gk", "fla_by_name", DENSE, "fail", "row", None, ""),
    ("beta_is_none", "fla_by_name", DENSE, "fail", "row", "beta is left out (1)", "beta is left out"),
    ("g_and_beta_exchanged", "none", DENSE, "fail", "row", "g and beta are exchanged", ""),
    # flash-linear-attention: what was made of cu_seqlens is kept by the identity of the tensor. Within one process a call
    # without repeat=1 may be given the address of an array that is gone, and fail too: that is the allocator's choice.
    ("lengths_by_id", "none", PACKED + " repeat=1", "fail", "row", None, ""),
    ("lengths_by_object", "none", PACKED + " repeat=1", "fail", "row", None, "only with repeat=1"),
    # a short convolution that writes over its input
    ("convolution_in_place", "convolution", "v1 short_convolution form=gather T=6 C=4", "fail", "memory", None,
     "the kernel wrote to its input x"),
    # FlashInfer: `scale or default`
    ("scale_0_is_default", "none", DENSE + " scale=0", "fail", "row", "a scale of 0 is taken for the default",
     "only with scale=0"),
    ("tiled", "interleaved", DENSE, "fail", "row", "the map of heads is the other one than was asked for",
     "the map of heads is the other one than was asked for"),
    ("state_of_values_by_keys", "square", DENSE, "fail", "state", "the final state is written transposed",
     "the transpose of the right one"),
    # flash-linear-attention: decays of a chunk as differences of one sum
    ("summed_decays", "chunked", "v1 retention form=chunked chunk=16 T=48 dk=8 regime=reset", "fail", "row", None,
     "g = -1e38 takes all bits of the sums after it"),
]


def kernel(name):
    import defects

    return getattr(defects, name)


@needs_command
class KnownDefects(unittest.TestCase):
    def test_each_is_caught_and_passes_without(self):
        for name, without, line, verdict, gate, _, said in ROWS:
            with self.subTest(name):
                with self.assertRaises(samestate.Failed) as caught:
                    samestate.check(kernel(name), case=line)
                record = caught.exception.record
                self.assertEqual((record["verdict"], record["gate"]), (verdict, gate), record)
                self.assertIn(said, str(caught.exception))
                passed = samestate.check(kernel(without), case=line)
                self.assertEqual(passed.verdicts, {"pass": 1})

    def test_diagnose_names_it(self):
        environment = dict(os.environ, PYTHONPATH=PYTHON, SAMESTATE_PYTHON=sys.executable)
        for name, _, _, _, _, deviation, _ in ROWS:
            if deviation is None:
                continue
            with self.subTest(name):
                made = kernel(name).__samestate__
                subject = f"python:{os.path.join(HERE, 'defects.py')}:{name}"
                child = subprocess.run([samestate.executable(), "diagnose", "--json", "--kernel", made.name,
                                        "--subject", subject], env=environment, capture_output=True, text=True)
                self.assertEqual(child.returncode, 1, child.stderr)
                self.assertEqual([fit["deviations"] for fit in json.loads(child.stdout)["fits"]], [[deviation]])

    @unittest.skipUnless(os.environ.get("SAMESTATE_LONG"), "long: with SAMESTATE_LONG=1 in the environment")
    def test_the_plan_finds_each_by_itself(self):
        for name in [row[0] for row in ROWS]:
            with self.subTest(name), self.assertRaises(samestate.Failed):
                samestate.check(kernel(name), gate=["--exclude", "layout=far", "--fail-fast"])
        for name in sorted({row[1] for row in ROWS}):
            with self.subTest(name):
                samestate.check(kernel(name), max_cases=150, gate=["--exclude", "layout=far"])


@needs_command
class NothingLeft(unittest.TestCase):
    """A test of the decay in which the decay leaves nothing of the state would pass for a kernel that computes nothing:
    it is vacuous, and no pass, for a right one too."""

    def test_a_case(self):
        line = "v1 retention form=recurrent T=5 dk=4 regime=exact_reset law=serving"
        with self.assertRaises(samestate.Failed) as caught:
            samestate.check(kernel("retention"), case=line)
        self.assertEqual(caught.exception.summary.verdicts, {"vacuous": 1})
        self.assertEqual(lacking(str(caught.exception), "vacuous zero v1 retention"), [])
        # The same with decays that leave something: the wrong one fails, the right one passes.
        line = line.replace("exact_reset", "exact") + " state=random"
        self.assertEqual(samestate.check(kernel("retention"), case=line).verdicts, {"pass": 1})
        with self.assertRaises(samestate.Failed) as caught:
            samestate.check(kernel("state_is_not_read"), case=line)
        self.assertEqual(caught.exception.record["verdict"], "fail")

    def test_data_of_ones_own(self):
        """A file for `samestate judge`: a state, nothing written, g in every token; what is returned is all zero."""
        for g, verdict in ((-1e38, "vacuous"), (-0.1, "fail")):
            with self.subTest(g=g), tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, "run.safetensors")
                self.write(path, "v1 retention form=recurrent T=4 dk=4 state=random", g)
                words = [samestate.executable(), "judge", path, "--json"]
                child = subprocess.run(words, capture_output=True, text=True)
                self.assertEqual(json.loads(child.stdout)["verdict"], verdict, child.stdout)
                self.assertEqual(child.returncode, {"vacuous": 3, "fail": 1}[verdict])

    def write(self, path, line, g):
        import numpy as np

        x = np.random.default_rng(0).standard_normal
        tensors = {"q": x((1, 4, 1, 4)), "k": x((1, 4, 1, 4)), "v": np.zeros((1, 4, 1, 4)), "g": np.full((1, 4, 1), g),
                   "initial_state": x((1, 1, 4, 4)), "o": np.zeros((1, 4, 1, 4)), "final_state": np.zeros((1, 1, 4, 4))}
        head, body = {"__metadata__": {"format": "samestate-run-1", "case": line, "kernel": "mine"}}, b""
        for name, array in tensors.items():
            data = array.astype("<f4").tobytes()
            ends = [len(body), len(body) + len(data)]
            head[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": ends}
            body += data
        text = json.dumps(head).encode()
        text += b" " * (-len(text) % 8)
        with open(path, "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text + body)


if __name__ == "__main__":
    unittest.main()
