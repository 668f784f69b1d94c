"""Memory that does not belong to the kernel: inputs that were written and restored, writes far outside, and offsets
that do not fit 32 bits, each with a kernel that has the fault and one that does not."""
import ctypes
import mmap
import os
import subprocess
import sys
import threading
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]
from plugin_runs import needs_command  # noqa: E402
from samestate import kernel  # noqa: E402
from samestate.errors import Trespass  # noqa: E402
from samestate.protocol import Memory, extents  # noqa: E402

FAULT = os.environ.get("FAULT", "")
PAGE = mmap.PAGESIZE


def _row(x, *index):
    """x[index] by an offset of its own, which the fault keeps in 32 bits."""
    import numpy as np

    terms = [i * (step // 4) for i, step in zip(index, x.strides)]
    for d, name in enumerate(("batch32", "token32", "head32")):
        if FAULT == name:
            terms[d] = int(np.int64(terms[d]).astype(np.int32))
    byte = 4 * sum(terms)
    byte = byte & 0xFFFFFFFF if FAULT == "byte32" else byte
    return np.ctypeslib.as_array((ctypes.c_float * x.shape[-1]).from_address(x.ctypes.data + byte))


@kernel("linear_attention", "recurrent", contracts=["fp32"])
def faulty(q, k, v, initial_state, scale, head_map):
    import numpy as np

    (B, T, Hk, dk), (Hv, dv) = q.shape, v.shape[2:]
    o, state = np.zeros((B, T, Hv, dv), np.float32), np.zeros((B, Hv, dk, dv), np.float32)
    for b in range(B):
        for h in range(Hv):
            kh = h % Hk if head_map == "tiled" else h // (Hv // Hk)
            S = np.zeros((dk, dv)) if initial_state is None else initial_state[b, h].astype(np.float64)
            for t in range(T):
                S = S + np.outer(_row(k, b, t, kh).astype(np.float64), _row(v, b, t, h))
                o[b, t, h] = scale * (_row(q, b, t, kh).astype(np.float64) @ S)
            state[b, h] = S
    if FAULT == "puts_back" and q.size:
        was = q[0, 0, 0, 0].copy()
        q[0, 0, 0, 0] = 7
        q[0, 0, 0, 0] = was
    if FAULT == "far_outside" and v.size:
        last = sum((n - 1) * s for n, s in zip(v.shape, v.strides))
        ctypes.c_float.from_address(v.ctypes.data + last + 4 * 5000).value = 1.0
    return o, state


def tensor(name, offset, elements):
    return {"name": name, "dtype": "fp32", "shape": [elements], "strides": [1], "offset": offset}


class Guards(unittest.TestCase):
    def setUp(self):
        self.fd = os.memfd_create("samestate")
        os.ftruncate(self.fd, 64 * PAGE)
        self.memory = Memory(f"/proc/{os.getpid()}/fd/{self.fd}")
        self.mapped = self.memory.map(64 * PAGE)

    def tearDown(self):
        self.memory.close()
        os.close(self.fd)

    def test_a_write_to_an_input_is_named_and_goes_on(self):
        guard = self.memory.guard
        inputs, outputs = [tensor("q", PAGE, 10), tensor("k", 3 * PAGE, 3000)], [tensor("o", 8 * PAGE, 10)]
        for _ in range(3):
            guard.close(inputs, outputs)
            self.mapped[8 * PAGE:8 * PAGE + 4] = b"abcd"
            guard.check()
            self.mapped[3 * PAGE + 4 * 2000] = 1
            self.assertEqual(self.mapped[3 * PAGE + 4 * 2000], 1)
            with self.assertRaisesRegex(Trespass, "wrote to its input k: element 2000 of its buffer"):
                guard.check()
            guard.close(inputs, outputs)
            thread = threading.Thread(target=lambda: self.mapped.__setitem__(PAGE + 8, 5))
            thread.start()
            thread.join()
            with self.assertRaisesRegex(Trespass, "wrote to its input q: element 2 of its buffer"):
                guard.check()

    def test_what_shares_a_page_stays_open(self):
        guard = self.memory.guard
        guard.close([tensor("q", PAGE, 10)], [tensor("o", PAGE + 256, 10)])
        self.mapped[PAGE] = 1
        guard.check()

    def test_a_call_opens_what_another_closed(self):
        guard = self.memory.guard
        guard.close([tensor("q", PAGE, 10)], [tensor("o", 3 * PAGE, 10)])
        guard.close([tensor("q", 3 * PAGE, 10)], [tensor("o", PAGE, 10)])
        self.mapped[PAGE] = 1
        guard.check()

    def test_conversations_of_one_process_have_guards_of_their_own(self):
        other = Memory(f"/proc/{os.getpid()}/fd/{self.fd}")
        mapped = other.map(64 * PAGE)
        self.memory.guard.close([tensor("q", PAGE, 10)], [])
        other.guard.close([tensor("v", PAGE, 10)], [])
        mapped[PAGE] = 1
        self.memory.guard.check()
        with self.assertRaisesRegex(Trespass, "input v"):
            other.guard.check()
        other.close()

    def test_a_far_tensor_is_taken_by_rows(self):
        far = {"dtype": "fp32", "shape": [2, 3, 4], "strides": [1 << 31, 4, 1], "offset": PAGE}
        self.assertEqual(extents(far), [(PAGE, PAGE + 48), (PAGE + (1 << 33), PAGE + (1 << 33) + 48)])
        self.assertEqual(extents(dict(far, strides=[12, 4, 1])), [(PAGE, PAGE + 96)])


class Doors(unittest.TestCase):
    def gate(self, fault, *options):
        command = os.environ.get("SAMESTATE", "samestate")
        done = subprocess.run(
            [command, "gate", "--fail-fast", "--threads", "1", "--effort", "0.02", "--subject",
             f"python:{os.path.abspath(__file__)}:faulty", *options], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            timeout=300, universal_newlines=True,
            env=dict(os.environ, FAULT=fault, SAMESTATE_PYTHON=sys.executable, PYTHONPATH=os.path.dirname(HERE)))
        return done.returncode, done.stdout

    @needs_command
    def test_offsets_of_32_bits_fail_where_rows_lie_far_apart(self):
        for fault in ("", "batch32", "token32", "head32", "byte32"):
            code, said = self.gate(fault, "--layout", "far", "--max-cases", "4", "--where",
                                   "T=2..16 dk=..16 dv=..16 Hv=2..8 B=2..4 form=recurrent")
            self.assertEqual(code, 1 if fault else 0, f"{fault}: {said}")

    @needs_command
    def test_what_is_not_its_own_is_named(self):
        for fault, word in (("puts_back", "wrote to its input q"), ("far_outside", "wrote outside v")):
            code, said = self.gate(fault, "--max-cases", "3", "--where", "T=1..16 dk=..16 dv=..16 Hv=..4")
            self.assertEqual(code, 1, said)
            self.assertIn(word, said)


if __name__ == "__main__":
    unittest.main()
