"""samestate.check: what a notebook shows of it, and that Ctrl-C leaves nothing behind."""
import html.parser
import importlib.util
import os
import signal
import subprocess
import sys
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]
from plugin_runs import PYTHON, needs_command  # noqa: E402

import samestate  # noqa: E402

LINES = ["v1 retention T=1", "v1 retention T=2 regime=<slow>", "v1 retention T=3", "v1 retention T=4"]
RECORDS = [{"verdict": "pass", "ratio": 0.1, "line": LINES[0]},
           {"verdict": "fail", "ratio": 7.0, "line": LINES[1], "reason": "head gate: error 0.1 > 0.01"},
           {"verdict": "vacuous", "ratio": 0.0, "line": LINES[2], "reason": "nothing was compared"},
           {"verdict": "fail", "ratio": "inf", "line": LINES[3]}]


class Cells(html.parser.HTMLParser):
    """Texts of the cells, row by row; every tag that opens closes."""

    def __init__(self, text):
        super().__init__()
        self.rows, self.open = [], []
        self.feed(text)
        assert not self.open, self.open

    def handle_starttag(self, tag, attributes):
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "td" in self.open or "th" in self.open:
            self.rows[-1][-1] += data


class Table(unittest.TestCase):
    def test_worst_first(self):
        made = samestate.Summary("mine", {"cases": 4, "judged": 3, "verdicts": {"fail": 2, "pass": 1}}, RECORDS)
        rows = Cells(made._repr_html_()).rows
        self.assertEqual(rows[0][:2], ["verdict", "ratio"])
        self.assertEqual([row[5] for row in rows[1:]], [LINES[3], LINES[1], LINES[0], LINES[2]])
        self.assertIn("<p><b>mine</b>: 4 cases, 3 judged: fail 2, pass 1</p>", made._repr_html_())

    def test_many_rows_are_cut(self):
        made = samestate.Summary("mine", {}, RECORDS * 20)
        self.assertEqual(len(Cells(made._repr_html_()).rows), 1 + made.MOST)
        self.assertIn(f"and {80 - made.MOST} more", made._repr_html_())

    @unittest.skipIf(importlib.util.find_spec("IPython") is None, "IPython is not installed")
    def test_ipython_takes_the_table(self):
        from IPython.core.formatters import DisplayFormatter

        shown, _ = DisplayFormatter().format(samestate.Summary("mine", {}, RECORDS))
        self.assertIn("<table>", shown["text/html"])


WAITS = """
import os, sys, time
sys.path.insert(0, {python!r})
import samestate

def waits(q, k, v, g, scale, initial_state):
    open("called", "w").close()
    time.sleep(20)

if __name__ == "__main__":
    try:
        samestate.check(waits, "retention", "recurrent", contract="fp32", {more})
    except KeyboardInterrupt:
        print("INTERRUPTED", flush=True)
        {after}
"""


@needs_command
class Interrupted(unittest.TestCase):
    """A real SIGINT, to this process alone (a notebook's stop button) and to the group (Ctrl-C in a terminal)."""

    def members(self, session):
        """Processes of a session, zombies left out: {pid: name}."""
        found = {}
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/stat") as file:
                    name, _, rest = file.read().rpartition(")")
            except OSError:
                continue
            fields = rest.split()
            if int(fields[3]) == session and fields[0] != "Z":
                found[int(pid)] = name.partition("(")[2]
        return found

    def interrupted(self, group, more=""):
        """The processes of its session that are left after the KeyboardInterrupt, apart from itself."""
        import tempfile

        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "waits.py")
            with open(path, "w") as file:
                # It lives on, as a notebook does, until its stdin ends.
                file.write(WAITS.format(python=PYTHON, more=more, after="sys.stdin.read()"))
            child = subprocess.Popen([sys.executable, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                     stderr=subprocess.DEVNULL, text=True, start_new_session=True, cwd=folder)
            try:
                end = time.monotonic() + 15
                while not os.path.exists(os.path.join(folder, "called")) and time.monotonic() < end:
                    time.sleep(0.02)
                self.assertGreater(len(self.members(child.pid)), 1)
                (os.killpg if group else os.kill)(child.pid, signal.SIGINT)
                self.assertEqual(child.stdout.readline(), "INTERRUPTED\n")
                end = time.monotonic() + 10
                while len(self.members(child.pid)) > 1 and time.monotonic() < end:
                    time.sleep(0.05)
                left = {pid: name for pid, name in self.members(child.pid).items() if pid != child.pid}
                self.assertIsNone(child.poll())
                return left
            finally:
                for pid in self.members(child.pid):
                    os.kill(pid, signal.SIGKILL)
                child.communicate()

    ONE = "case='v1 retention form=recurrent T=4 dk=4'"

    def test_this_process_alone(self):
        self.assertEqual(self.interrupted(group=False, more="max_cases=2"), {})

    def test_the_group(self):
        self.assertEqual(self.interrupted(group=True, more=self.ONE), {})

    def test_a_kernel_in_a_process_of_its_own(self):
        self.assertEqual(self.interrupted(group=False, more="isolate=True, " + self.ONE), {})


if __name__ == "__main__":
    unittest.main()
