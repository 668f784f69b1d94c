"""The ledger charges each moment once, to the right kind, from several threads, and counts compilations and launches."""
import os
import sys
import threading
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from samestate.forwarding import Watch  # noqa: E402
from samestate.ledger import MOST_NAMES, Ledger, is_compilers  # noqa: E402


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


class Charges(unittest.TestCase):
    def setUp(self):
        self.clock = Clock()
        self.ledger = Ledger(self.clock)

    def pass_(self, seconds):
        self.clock.now += seconds

    def test_each_moment_once_to_the_first_kind(self):
        with self.ledger.span("kernel"):
            self.pass_(1)
            with self.ledger.span("import"):
                self.pass_(2)
                with self.ledger.compiling("at import"):
                    self.pass_(4)
                    with self.ledger.span("import"):
                        self.pass_(8)
            with self.ledger.span("tune"):
                self.pass_(16)
                with self.ledger.compiling("to be tuned"):
                    self.pass_(32)
        self.pass_(1000)
        with self.ledger.span("copy"):
            self.pass_(64)
        self.assertEqual(self.ledger.seconds(), {"compile": 44, "tune": 16, "import": 2, "copy": 64, "kernel": 1})

    def test_threads_that_compile_together_take_the_time_once(self):
        both, go = threading.Barrier(3), threading.Barrier(3)

        def compile():
            with self.ledger.compiling(threading.current_thread().name):
                both.wait()
                go.wait()

        threads = [threading.Thread(target=compile) for _ in range(2)]
        [thread.start() for thread in threads]
        both.wait()
        self.pass_(3)
        self.assertEqual(self.ledger.seconds(), {"compile": 3})
        go.wait()
        [thread.join() for thread in threads]
        self.assertEqual(self.ledger.report()["compiled"], 2)

    def test_a_new_call_begins_at_zero(self):
        with self.ledger.compiling("a"):
            self.pass_(1)
        self.ledger.launched()
        self.ledger.begin()
        self.assertEqual((self.ledger.report(), self.ledger.launches), ({}, 0))


class Counts(unittest.TestCase):
    def setUp(self):
        self.ledger = Ledger()

    def test_what_is_inside_another_is_a_part_of_it(self):
        with self.ledger.compiling("module"):
            with self.ledger.compiling("its kernel"):
                pass
        self.assertEqual((self.ledger.report()["compiled"], self.ledger.report()["kernels"]), (1, ["module"]))

    def test_loaded_and_nothing(self):
        for what in ("loaded", "nothing"):
            with self.ledger.compiling("a") as one:
                setattr(one, what, True)
        self.assertEqual({k: v for k, v in self.ledger.report().items() if k != "seconds"}, {"loaded": 1})

    def test_names_are_few(self):
        for i in range(20):
            with self.ledger.compiling(f"kernel_{i}"):
                pass
        self.assertEqual((self.ledger.report()["compiled"], len(self.ledger.report()["kernels"])), (20, MOST_NAMES))

    def test_what_a_compiler_raised_is_known_and_not_counted(self):
        with self.assertRaises(ValueError) as caught, self.ledger.compiling("a"):
            raise ValueError("no")
        self.assertTrue(is_compilers(caught.exception))
        self.assertNotIn("compiled", self.ledger.report())
        with self.assertRaises(KeyError) as caught:
            try:
                with self.ledger.compiling("a"):
                    raise ValueError("no")
            except ValueError as error:
                raise KeyError("wrapped") from error
        self.assertTrue(is_compilers(caught.exception))
        self.assertFalse(is_compilers(ValueError("of its own")))

    def test_a_watch_does_not_slow_a_compiler_down(self):
        with Watch():
            before = sys.getprofile()
            self.assertIsNotNone(before)
            with self.ledger.compiling("a"):
                self.assertIsNone(sys.getprofile())
            self.assertIsNotNone(sys.getprofile())


if __name__ == "__main__":
    unittest.main()
