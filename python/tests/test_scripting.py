"""The text of a subject's call for `samestate repro --script`; tests/cli/script_test.sh runs whole scripts."""
import os
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.dirname(HERE), HERE]

from samestate import adapters, scripting  # noqa: E402
from samestate.adapters import fla, named  # noqa: E402
from samestate.errors import DeclarationError  # noqa: E402
from samestate.subject import Subject  # noqa: E402

_FAMILY = {name: name for name in ("q", "k", "v", "g", "beta", "scale", "initial_state", "cu_seqlens", "l2norm")}


def public(**given):
    """In place of a package's function, whose text does not matter."""


def subject_of(row, device):
    """The row's Subject without its package."""
    function = getattr(named, row.call)(public) if row.call else public
    arguments = row.arguments or ({} if row.call else _FAMILY)
    return Subject(function, row.system, row.form, contracts=row.devices[device], limits=list(row.limits), array=row.array,
                   device=device, name=row.kernel, arguments=arguments, options=row.options, about={"adapter": row.name},
                   **row.conventions, **({"dtypes": row.dtypes} if row.dtypes else {}))


class Adapters(unittest.TestCase):
    def test_each_is_text_of_python_that_needs_no_samestate_or_says_why_not(self):
        written = refused = 0
        for row in adapters.ROWS:
            for device in row.devices:
                with self.subTest(row=row.name, device=device):
                    try:
                        text, _, needs = scripting.text_of(subject_of(row, device), row.name)
                    except DeclarationError as error:
                        interpreted = (row.package, device) == ("flash-linear-attention", "cpu")
                        self.assertTrue(interpreted or "of samestate" in str(error), error)
                        refused += not interpreted
                        continue
                    compile(text, row.name, "exec")
                    self.assertNotRegex(text, r"(?m)^\s*(from|import) (samestate|\.)")
                    self.assertIn(row.package, needs)
                    self.assertLess(len(text.splitlines()), 130)
                    written += 1
        self.assertGreater(written, 60)
        self.assertLess(refused, 10)

    def test_what_a_wrapper_names_comes_with_it(self):
        text = scripting._closure(named, "duality_chunks")
        for name in ("_heads", "_rates"):
            self.assertIn(f"def {name}(", text)
        self.assertNotIn("@_call", text)
        self.assertNotIn("def _tokens(", text)


class Interpreted(unittest.TestCase):
    def test_what_was_interpreted_is_interpreted_in_the_script(self):
        row = next(row for row in adapters.ROWS if row.package == "transformers")
        said = os.environ.pop("TRITON_INTERPRET", None)
        try:
            plain = scripting.text_of(subject_of(row, "cpu"), row.name)[0]
            os.environ["TRITON_INTERPRET"] = "1"
            text = scripting.text_of(subject_of(row, "cpu"), row.name)[0]
        finally:
            os.environ.pop("TRITON_INTERPRET", None)
            if said is not None:
                os.environ["TRITON_INTERPRET"] = said
        self.assertNotIn("TRITON_INTERPRET", plain)
        self.assertLess(text.index("TRITON_INTERPRET"), text.index("import_module"))


class Pools(unittest.TestCase):
    """Slots as each convention of `null_slot` has them, in the text that runs."""

    def run_text(self, null_slot, expects):
        def step(q, k, v, a, b, A_log, dt_bias, slot, pool):
            expects(slot, pool)
            return {"o": v + 1, "pool": pool + 0}

        import numpy as np

        subject = Subject(step, "gated_delta_step", "recurrent", null_slot=null_slot)
        body = "".join(f"    {line}\n" for line in scripting._named_body(subject, None))
        space = {"np": np, "function": step, "EDITED": set(), "SIZE": {"P": 2}, "BATCH": 2, "CONTRACT": "fp32",
                 "OUTPUTS": ["o", "pool"], "INPUTS": ["v"], "KIND": {"v": "tokens"}}
        exec(f"def kernel(x, chunk):\n    to = lambda y, _: np.array(y)\n    back = lambda y: np.array(y, float)\n{body}",
             space)
        one = np.ones((2, 1, 1, 1))
        x = {name: one for name in ("q", "k", "v", "a", "b", "A_log", "dt_bias")}
        x.update(slot=np.array([[1.0], [-1.0]]), pool=np.full((2, 2, 1, 1, 1), 5.0))
        return space["kernel"](x, 0)

    def test_a_row_more_in_front(self):
        def expects(slot, pool):
            self.assertEqual(slot.ravel().tolist(), [2.0, 0.0])
            self.assertEqual(pool.shape[1], 3)
            self.assertTrue((pool[:, 0] != pool[:, 0]).all())

        self.assertEqual(self.run_text("0", expects)["pool"].shape[1], 2)

    def test_a_row_more_behind(self):
        def expects(slot, pool):
            self.assertEqual(slot.ravel().tolist(), [1.0, 2.0])
            self.assertTrue((pool[:, 2] == 0).all())

        result = self.run_text("none", expects)
        self.assertEqual(result["pool"].shape[1], 2)
        self.assertEqual(result["o"].ravel().tolist(), [2.0, 0.0])


class Refused(unittest.TestCase):
    def test_what_reads_this_package(self):
        with self.assertRaisesRegex(DeclarationError, "function of samestate.adapters.fla (reads|imports) "):
            scripting._closure(fla, "function")

    def test_a_kernel_that_is_not_there(self):
        with self.assertRaisesRegex(DeclarationError, "kernel nope is not of"):
            scripting.texts_of(os.path.join(HERE, "..", "examples", "subject_numpy.py"), ["nope"])


if __name__ == "__main__":
    unittest.main()
