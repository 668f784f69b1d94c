"""The table of adapters: docs/lookup/adapters.md is what it prints, rows are declarations, and those whose packages are here
give what a float64 recurrence gives."""
import os
import re
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]
from samestate import adapters  # noqa: E402
from samestate.adapters import named  # noqa: E402
from samestate.errors import DeclarationError  # noqa: E402
from samestate.serve import joined_name, parsed_options, several, split_name, subjects_of  # noqa: E402
from samestate.subject import ARRAYS, CONVENTIONS, FAMILY, OF_NAMED  # noqa: E402

DOCS = os.path.join(os.path.dirname(os.path.dirname(HERE)), "docs", "lookup")
PAGE = os.path.join(DOCS, "adapters.md")
KEYS = os.path.join(DOCS, "case-line.md")


class Table(unittest.TestCase):
    @unittest.skipUnless(os.path.exists(PAGE), "not in the repository")
    def test_page_is_what_the_table_prints(self):
        with open(PAGE, encoding="utf-8") as file:
            self.assertEqual(file.read(), adapters.markdown(),
                             "python3 -m samestate.adapters --markdown > docs/lookup/adapters.md")

    def test_rows(self):
        self.assertEqual(len(set(adapters.names())), len(adapters.ROWS))
        # Rows of one kernel name serve together, its chunked and its recurrent form.
        self.assertEqual(len({(row.kernel, row.form) for row in adapters.ROWS}), len(adapters.ROWS))
        for row in adapters.ROWS:
            with self.subTest(row.name):
                self.assertIn(row.array, ARRAYS)
                if row.system in FAMILY:
                    self.assertIn(row.form, ("chunked", "recurrent"))
                    self.assertIsNone(row.call)
                else:  # called by its tensors' names, or by a call of named.py
                    self.assertNotEqual(bool(row.call), bool(row.arguments))
                    self.assertLessEqual(set(row.conventions), set(OF_NAMED))
                self.assertTrue(row.call is None or callable(getattr(named, row.call)))
                for key, value in row.conventions.items():
                    self.assertIn(value, CONVENTIONS[key])
                for contracts in row.devices.values():
                    self.assertTrue(contracts)

    @unittest.skipUnless(os.path.exists(KEYS), "not in the repository")
    def test_variants_are_keys_of_their_system(self):
        with open(KEYS, encoding="utf-8") as file:
            page = file.read()
        everywhere = set(re.findall(r"^\| `?(\w+)`? \|", page, re.M))
        self.assertIn("contract", everywhere)
        for row in adapters.ROWS:
            with self.subTest(row.name):
                if row.system in FAMILY:
                    keys = everywhere
                else:
                    line, = re.findall(r"^\| " + row.system + r" \|.*", page, re.M)
                    keys = set(re.findall(r"(\w+)=\d+ \(", line)) | {"contract"}
                    keys |= {"chunk"} if row.form == "chunked" else set()
                self.assertLessEqual(set(row.variant), keys)

    def test_names_of_both_forms(self):
        self.assertEqual([row.form for row in adapters.rows_of("fla.gated_delta_rule")], ["chunked", "recurrent"])

    def test_what_cannot_be_said_of_an_adapter(self):
        row = adapters.rows_of("fla.chunk_gated_delta_rule")[0]
        for more in ({"decay": "linear"}, {"device": "tpu"}):
            with self.assertRaises(DeclarationError):
                adapters.subject(row, **more)


class Names(unittest.TestCase):
    def test_options_come_back(self):
        options = {"system": "retention", "limits": ["dk <= 64", "chunk in 16 32"], "contracts": ["fp32", "bf16+U:fp32"],
                   "dtypes": {"g": "bf16"}, "decay": "linear"}
        word = joined_name("a/file.py:f", options)
        self.assertNotIn(" ", word)
        name, pairs = split_name(word)
        self.assertEqual(name, "a/file.py:f")
        self.assertEqual(parsed_options(pairs), options)
        self.assertEqual(several("a,b?contracts=x,y"), ["a", "b?contracts=x,y"])


class Served(unittest.TestCase):
    """Adapters whose packages are installed; the others are skipped, and counted as such."""

    def right(self, name, most=2e-6, **more):
        try:
            import numpy  # noqa: F401
            subject = subjects_of(name)[0]
            subject.library()
        except ImportError as error:
            self.skipTest(str(error))
        import judge as side
        from test_protocol import family_run

        judge = side.serve(name)
        try:
            row = judge.ready["kernels"][0]
            say = row["conventions"]
            for sizes in ({"T": 5}, {"T": 33, "dk": 16, "dv": 16}, {"Hk": 1, "Hv": 1}, {"state": False}):
                sizes = {"dk": 16, "dv": 16, "Hk": 2, "Hv": 4, **sizes, **more}
                if say.get("heads") == "tiled":
                    sizes["heads"] = "tiled"
                if say.get("scale") in ("dk", "dv"):
                    sizes["scale"] = sizes["dk"] ** -0.5
                answer, o, S = family_run(judge, row["name"], row["system"], say, **sizes)
                self.assertEqual(answer["type"], "ran", answer)
                self.assertLess(max(o, S), most)
        finally:
            judge.process.kill()
            judge.close()

    def test_ggml(self):
        self.right("ggml.gated_delta_net")

    def test_mlx(self):
        self.right("mlx.gated_delta_ops")

    def test_hugging_face(self):
        self.right("hf.torch_recurrent_gated_delta_rule")


if __name__ == "__main__":
    unittest.main()
