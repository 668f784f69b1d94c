"""The package's words are the command's: its tables are in Python, since a program declares and records kernels
without a command, and each is compared with what `samestate list` says."""
import json
import os
import re
import subprocess
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]
import samestate  # noqa: E402
from plugin_runs import needs_command  # noqa: E402
from samestate.errors import DeclarationError  # noqa: E402
from samestate.subject import CONVENTIONS, DTYPES, FAMILY, OF_NAMED, _checked_conventions  # noqa: E402


def listed(what):
    child = subprocess.run([samestate.executable(), "list", what, "--json"], capture_output=True, text=True, check=True)
    return json.loads(child.stdout)


def table_of(rows):
    """{key: its words, the default first} of the command's rows, a number as a number; without the table of dtypes."""
    out = {}
    for row in rows:
        out.setdefault(row["convention"], []).append(row["value"])
    out.pop("dtypes")
    return {key: (float(words[0]),) if re.fullmatch(r"[\d.]+e-\d+", words[0]) else tuple(words)
            for key, words in out.items()}


@needs_command
class TheCommandsWords(unittest.TestCase):
    def test_conventions(self):
        rows = listed("conventions")
        self.assertEqual(table_of(rows), CONVENTIONS)
        family = {row["convention"] for row in rows if row["of"] == "the recurrent family"}
        self.assertEqual(set(CONVENTIONS) - family, set(OF_NAMED))
        for row in rows:  # a table that differs in one word is seen
            if row["convention"] != "dtypes":
                other = [dict(r, value="another") if r is row else r for r in rows]
                self.assertNotEqual(table_of(other), CONVENTIONS, row)

    def test_the_least_and_the_largest_epsilon(self):
        gives = next(row for row in listed("conventions") if row["convention"] == "l2norm_epsilon")["the subject is given"]
        least, largest = (float(x) for x in re.search(r"a number from (\S+) to ([^, ]+)", gives).groups())
        for epsilon in (least, largest):
            self.assertEqual(_checked_conventions({"l2norm_epsilon": epsilon}), {"l2norm_epsilon": epsilon})
        for epsilon in (least / 1.01, largest * 1.01):
            with self.assertRaises(DeclarationError):
                _checked_conventions({"l2norm_epsilon": epsilon})

    def test_the_family(self):
        self.assertEqual(tuple(row["system"] for row in listed("systems") if "linear state" in row["has"].split(", ")), FAMILY)

    def test_formats(self):
        ready = {"type": "ready", "protocol": 1, "kernels": [
            {"name": "a.gated_delta_rule.recurrent", "system": "gated_delta_rule", "form": "recurrent", "contracts": ["fp32"],
             "conventions": {"dtypes": {"g": "fp8"}}}]}
        child = subprocess.run([samestate.executable(), "repro", "--card-budget", "0", "--subject",
                                f"echo '{json.dumps(ready)}'", "v1 gated_delta_rule form=recurrent T=4 dk=2 dv=2"],
                               capture_output=True, text=True)
        self.assertIn(f"known: {', '.join(DTYPES)};", child.stderr)


if __name__ == "__main__":
    unittest.main()
