"""Ctrl-C in the middle of a compilation: the command ends, and so does every compiler that the subject had started, one in
a session of its own too."""
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
SUBJECT = '''
import os, subprocess, samestate

@samestate.kernel("retention", "recurrent", heads="repeated", name="compiling.retention", compiles=True)
def kernel(q, k, v, g, scale, initial_state):
    """As ninja does: a shell, two compilers under it, and one that left its session."""
    script = "sleep 300 & echo $!; setsid sleep 300 & echo $!; (trap '' INT TERM; exec sleep 300) & echo $!; wait"
    with open(os.environ["SAMESTATE_TEST_PIDS"], "w") as file:
        child = subprocess.Popen(["sh", "-c", script], stdout=file)
        child.wait()
'''


def _lives(process):
    """True if a process is still running; a zombie is not."""
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class Interrupted(unittest.TestCase):
    @unittest.skipUnless(os.environ.get("SAMESTATE"), "needs the command: SAMESTATE")
    def test_no_compiler_goes_on(self):
        for sent in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(sent.name), tempfile.TemporaryDirectory() as folder:
                subject, pids = os.path.join(folder, "compiling.py"), os.path.join(folder, "pids")
                with open(subject, "w", encoding="utf-8") as file:
                    file.write(SUBJECT)
                run = subprocess.Popen(
                    [os.environ["SAMESTATE"], "repro", "--subject", f"python:{subject}",
                     "v1 retention form=recurrent T=2 dk=4 kernel=compiling.retention.recurrent"],
                    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True,
                    env={**os.environ, "SAMESTATE_PYTHON": sys.executable, "PYTHONPATH": os.path.dirname(HERE),
                         "SAMESTATE_TEST_PIDS": pids})
                try:
                    started = self.wait_for(lambda: self.read(pids))
                    self.assertEqual(len(started), 3, "the subject's compilers have not started")
                    self.assertTrue(all(map(_lives, started)))
                    os.kill(run.pid, sent)
                    said = run.communicate(timeout=60)[1].decode()
                    self.assertTrue(self.wait_for(lambda: not any(map(_lives, started)), 10), f"{started} go on: {said[-500:]}")
                finally:
                    for process in [run.pid, *self.read(pids)]:
                        try:
                            os.kill(process, signal.SIGKILL)
                        except OSError:
                            pass
                    run.wait()

    @staticmethod
    def read(path):
        try:
            with open(path, encoding="utf-8") as file:
                found = [int(line) for line in file.read().split()]
        except OSError:
            found = []
        return found if len(found) == 3 else []

    @staticmethod
    def wait_for(condition, seconds=120):
        end = time.monotonic() + seconds
        while time.monotonic() < end and not condition():
            time.sleep(0.1)
        return condition()


if __name__ == "__main__":
    unittest.main()
