"""Gradients by the libraries' own autograd: right kernels pass, wrong ones fail, and a gradient that is not there is said in
three different ways. Parts that need a library that is not installed are skipped."""
import importlib.util
import os
import subprocess
import unittest

import numpy

import samestate
from samestate import adapters
from samestate.errors import DeclarationError, Failed
from samestate.gradients import Gradients, can, sum_of_groups, with_gradients
from samestate.subject import Subject

HERE = os.path.dirname(os.path.abspath(__file__))


def kernels():
    import gradient_kernels

    return gradient_kernels


def needs(library):
    return unittest.skipIf(importlib.util.find_spec(library) is None, f"no {library}")


LINE = "v1 gated_delta_rule pass=backward form=recurrent T=9 Hk=1 Hv=2 dk=4 dv=6 state=random seed=0x3"


class Declared(unittest.TestCase):
    """What a kernel of gradients declares; nothing is imported for it."""

    def subject(self, array="torch", **say):
        def f(q, k, v, g, beta, initial_state, scale):
            pass

        return Subject(f, "gated_delta_rule", "recurrent", array=array, name="mine", **say)

    def test_it_keeps_limits_and_contracts_and_is_only_run_where_it_is_asked_for(self):
        said = Gradients(self.subject(contracts=["fp32", "bf16"], limits=["dk <= 64"], state="vk")).declaration()
        self.assertEqual(said["system"], "gated_delta_rule.backward")
        self.assertEqual(said["name"], "mine.backward.recurrent")
        self.assertEqual(said["contracts"], ["fp32", "bf16+card:nearest"])
        self.assertIn("dk <= 64", said["limits"])
        self.assertEqual(said["conventions"], {})
        self.assertTrue(said["only_asked"])

    def test_contracts_of_the_backward_pass_may_be_declared(self):
        one = self.subject(contracts=["bf16"], gradient_contracts=["bf16+chunk_backward.dG:bf16"])
        self.assertEqual(Gradients(one).declaration()["contracts"], ["bf16+chunk_backward.dG:bf16"])
        self.assertEqual(one.declaration()["contracts"], ["bf16"])

    def test_groups_are_summed_in_fp32_and_rounded_once(self):
        small = 2.0 ** -11  # half a unit of 1 in fp16: added one at a time, both are lost
        heads = numpy.array([1.0, small, small, 2.0], numpy.float16).reshape(1, 1, 4, 1)
        self.assertEqual(heads[0, 0, 0, 0] + heads[0, 0, 1, 0] + heads[0, 0, 2, 0], 1.0)
        summed = sum_of_groups(numpy, heads, [0, 0, 0, 1])
        self.assertEqual(summed.dtype, numpy.float16)
        self.assertEqual(summed.ravel().tolist(), [1.0 + 2 * small, 2.0])

    def test_adapters_declare_points_that_there_are(self):
        known = subprocess.run([samestate.executable(), "list", "points"], capture_output=True, text=True, check=True).stdout
        named = {point.split(":")[0] for row in adapters.ROWS for one in row.gradients for point in one.split("+")[1:]}
        self.assertIn("chunk_backward.q_scaled", named)
        for point in named - {"card"}:
            self.assertIn(point, known.split())
        self.assertNotIn("chunk_backward.no_such", known.split())


class Judged(unittest.TestCase):
    def passes(self, function, cases):
        result = samestate.check(function, gradients=True, max_cases=cases,
                                 gate=["--where", "pass=backward", "--where", "T=..40"])
        self.assertGreater(result.verdicts.get("pass", 0), cases // 2, result)
        self.assertTrue(all("pass=backward" in record["line"] for record in result.records))

    def fails(self, function, text):
        with self.assertRaises(Failed) as failed:
            samestate.check(function, case=LINE)
        self.assertIn(text, str(failed.exception))

    @needs("torch")
    def test_right_gradients_of_torch_pass(self):
        self.passes(kernels().torch_rule, 40)
        self.passes(kernels().torch_turned, 40)

    @needs("jax")
    def test_right_gradients_of_jax_pass(self):
        self.passes(kernels().jax_rule, 12)

    @needs("mlx")
    def test_right_gradients_of_mlx_pass(self):
        self.passes(kernels().mlx_rule, 12)

    @needs("torch")
    def test_wrong_gradients_fail_and_name_the_tensor(self):
        self.fails(kernels().half_beta, "d.beta")
        self.fails(kernels().shifted_gate, "d.g")
        self.fails(kernels().state_ignored, "output d.")

    @needs("torch")
    def test_a_gradient_that_is_not_there_is_said_in_three_ways(self):
        self.fails(kernels().detached, "its grad_fn is None")
        self.fails(kernels().no_gradient_of_k, "autograd gives None as the gradient of k")
        self.fails(kernels().without_backward, "NotImplementedError: the backward pass is not written yet")

    @needs("torch")
    def test_without_being_asked_for_only_the_forward_pass_is_run(self):
        result = samestate.check(kernels().torch_rule, max_cases=10, gate=["--where", "T=..40"])
        self.assertFalse([r for r in result.records if "pass=backward" in r["line"]])
        both = samestate.check(kernels().torch_rule, gradients=True, max_cases=20, gate=["--where", "T=..40"])
        self.assertTrue([r for r in both.records if "pass=backward" in r["line"]])


if __name__ == "__main__":
    unittest.main()
