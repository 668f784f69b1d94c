"""Gradients by the libraries' own autograd: right kernels pass, wrong ones fail, and a gradient that is not there is said in
three different ways. Parts that need a library that is not installed are skipped."""
import importlib.util
import json
import os
import subprocess
import unittest

import numpy

import samestate
from samestate import adapters
from samestate.errors import DeclarationError, Failed
from samestate.gradients import OPERATORS, can, gradients_of, sum_of_groups, with_gradients
from samestate.subject import FAMILY, Subject

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
        said = gradients_of(self.subject(contracts=["fp32", "bf16"], limits=["dk <= 64"], state="vk")).declaration()
        self.assertEqual(said["system"], "gated_delta_rule.backward")
        self.assertEqual(said["name"], "mine.backward.recurrent")
        self.assertEqual(said["contracts"], ["fp32", "bf16+card:nearest"])
        self.assertIn("dk <= 64", said["limits"])
        self.assertEqual(said["conventions"], {})
        self.assertTrue(said["only_asked"])

    def test_weights_of_16_bits_have_gradients_of_16_bits(self):
        def norm(x, weight):
            pass

        def contracts(**dtypes):
            return gradients_of(Subject(norm, "rms_norm", "fused", array="torch", name="mine", contracts=["bf16_io", "fp32"],
                                        dtypes=dtypes)).declaration()["contracts"]

        self.assertEqual(contracts(x="bf16", weight="bf16", y="bf16"),
                         ["bf16_io+card:nearest+weight_gradient.written:bf16", "fp32"])
        self.assertEqual(contracts(x="bf16", y="bf16"), ["bf16_io+card:nearest", "fp32"])

    def test_a_kernel_whose_bits_differ_says_so_of_its_gradients_too(self):
        self.assertNotIn("deterministic", gradients_of(self.subject()).declaration())
        self.assertIs(gradients_of(self.subject(deterministic=False)).declaration()["deterministic"], False)

    def test_operators_have_gradients_where_the_command_judges_them(self):
        def outputs_of(system):
            line = f"v1 {system} T=3"
            done = subprocess.run([samestate.executable(), "judge", "--tensors", line], capture_output=True, text=True, check=True)
            return tuple(row.split()[0].removeprefix("output.") for row in done.stdout.splitlines() if row.startswith("output."))

        listed = subprocess.run([samestate.executable(), "list", "systems", "--json"], capture_output=True, text=True, check=True)
        systems = [row["system"].removesuffix(".backward") for row in json.loads(listed.stdout)
                   if row["system"].endswith(".backward")]
        self.assertEqual(set(systems), set(FAMILY) | set(OPERATORS))
        for system, outputs in OPERATORS.items():
            self.assertEqual(outputs_of(system), outputs, system)

    def test_an_operator_keeps_its_dtypes_and_has_no_gradients_where_there_are_none(self):
        def norm(x, weight):
            pass

        def step(x, kernel, state):
            pass

        said = gradients_of(Subject(norm, "rms_norm", "fused", array="torch", name="mine",
                                    dtypes={"x": "bf16", "y": "bf16"})).declaration()
        self.assertEqual((said["system"], said["name"]), ("rms_norm.backward", "mine.backward.fused"))
        self.assertEqual(said["conventions"]["dtypes"], {"x": "bf16", "d.x": "bf16", "d.y": "bf16"})
        with self.assertRaisesRegex(DeclarationError, "a form other than decode"):
            gradients_of(Subject(step, "short_convolution", "decode", array="torch"))
        with self.assertRaisesRegex(DeclarationError, "gradients of softmax_router are not judged yet; those of .*rms_norm"):
            gradients_of(Subject(norm, "softmax_router", "fused", array="torch"))

    def test_contracts_of_the_backward_pass_may_be_declared(self):
        one = self.subject(contracts=["bf16"], gradient_contracts=["bf16+chunk_backward.dG:bf16"])
        self.assertEqual(gradients_of(one).declaration()["contracts"], ["bf16+chunk_backward.dG:bf16"])
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

    def fails(self, function, text, line=LINE):
        with self.assertRaises(Failed) as failed:
            samestate.check(function, case=line)
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
    def test_right_gradients_of_operators_in_torch_pass(self):
        self.passes(kernels().torch_gated_norm, 20)
        self.passes(kernels().torch_residual_norm, 20)
        self.passes(kernels().torch_convolution, 30)

    @needs("jax")
    def test_right_gradients_of_an_operator_in_jax_pass(self):
        self.passes(kernels().jax_convolution, 12)

    @needs("mlx")
    def test_right_gradients_of_an_operator_in_mlx_pass(self):
        self.passes(kernels().mlx_norm, 12)

    @needs("torch")
    def test_wrong_gradients_of_an_operator_fail_and_name_the_tensor(self):
        line = "v1 rms_norm pass=backward form=fused B=2 T=9 D=16 seed=0x5"
        self.fails(kernels().first_row_only, "d.weight", line)
        self.fails(kernels().projection_lost, "d.x", line)

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
