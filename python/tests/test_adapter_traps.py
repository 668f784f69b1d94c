"""Mistakes that callers of a public function make (the table's traps): the gate fails each of them on a case that the
adapter passes. Each needs its package, and is skipped without it."""
import os
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]
os.environ.setdefault("TRITON_INTERPRET", "1")  # before any test imports triton
from plugin_runs import needs_command  # noqa: E402

import samestate  # noqa: E402
from samestate import adapters  # noqa: E402
from samestate.adapters import named  # noqa: E402
from samestate.subject import Subject  # noqa: E402

PACKED = "v1 short_convolution form=packed lengths=5,0,1,9 unowned=2,1 C=6 W=4 bias=1"
PACKED_SUMS = "v1 linear_attention_normalised form=packed lengths=5,0,1,9 H=2 dk=4 dv=6"
CONVOLUTION = "v1 short_convolution form=gather B=2 T=5 C=6 W=4 bias=1"
SCAN = "v1 selective_scan form=recurrent B=2 T=4 D=6 N=3"
DUALITY = "v1 state_space_duality form=recurrent B=2 T=4 H=4 G=2 P=3 N=2"
CHUNKS = DUALITY.replace("form=recurrent", "form=chunked chunk=2")
STEP = "v1 gated_delta_step B=2 T=3 P=4 Hk=2 Hv=4 dk=4 dv=6"
MLX_STEP = STEP + " l2norm=0 contract=fp32+exponential:ex2"
NORM = " T=5 D=8 regime=tiny"


def _at_the_end(f):
    """The W - 1 inputs first, where the oldest of W is left out: newest last is meant."""
    import torch

    return lambda **k: f(**dict(k, initial_state=torch.nn.functional.pad(k["initial_state"][:, :, 1:], (0, 1))))


def _oldest_last(f):
    return lambda **k: f(**dict(k, initial_state=k["initial_state"].flip(2).nan_to_num(0.0)))


def _over_its_input(f):
    def call(**k):
        y = f(**k)
        k["hidden_states"].copy_(y)
        return y

    return call


def _returned_alone(f):
    """The state comes back in another tensor, and the one that was given stays."""
    return lambda **k: f(**dict(k, cache=k["cache"].clone()))


def _across_boundaries(f):
    """Rows of y as if the packed sequences were one; states as they should be."""
    def call(**k):
        y, _ = f(**dict(k, initial_state=k["initial_state"][:1], cu_seqlens=k["cu_seqlens"][[0, -1]]))
        return y, f(**k)[1]

    return call


def _lengths_of_the_first_call(f):
    kept = []

    def call(**k):
        kept[:] = kept or [k["cu_seqlens"].clone()]
        tokens = int(k["cu_seqlens"][-1])  # the interpreter reads beyond a tensor as a device does
        return f(**dict(k, cu_seqlens=kept[0].clamp(max=tokens)))

    return call


_OF_A_STEP = ("state", "hidden_states", "dt", "A", "B", "C", "D")


def _z_behind_D(f):
    return lambda **k: f(*(k[name] for name in _OF_A_STEP), k["z"], dt_softplus=True)


def _in_the_order_of_mamba_ssm(f):
    return lambda **k: f(*(k[name] for name in _OF_A_STEP), k["z"], k["dt_bias"], True)


def _with(**other):
    return lambda f: lambda *a, **k: f(*a, **{**k, **other})


def _by_order(*names):
    return lambda f: lambda **k: f(*(k[name] for name in names))


# (adapter, what is wrong, how the public function is then called, case, verdict, gate)
TRAPS = [
    ("fla.causal_conv1d", "W - 1 inputs at the wrong end of W", _at_the_end, CONVOLUTION, "fail", "element"),
    ("fla.causal_conv1d", "the newest input first", _oldest_last, CONVOLUTION, "fail", "element"),
    ("fla.causal_conv1d", "no activation, the default", _with(activation=None), CONVOLUTION, "fail", "element"),
    ("fla.causal_conv1d", "windows that go on across a boundary", _across_boundaries, PACKED, "fail", "element"),
    ("fla.causal_conv1d", "lengths of another packed call", _lengths_of_the_first_call, PACKED + " repeat=1", "fail", "element"),
    ("fla.fused_recurrent_linear_attn.normalised", "lengths of another packed call", _lengths_of_the_first_call,
     PACKED_SUMS + " repeat=1", "fail", "element"),
    ("fla.causal_conv1d_update", "a state that is not updated in place", _returned_alone, CONVOLUTION, "crash", None),
    ("fla.causal_conv1d_update", "the weight in the place of the residual", _by_order("x", "cache", "weight", "bias"),
     CONVOLUTION, "crash", None),
    ("fla.rms_norm", "eps 1e-5, the default", _with(eps=1e-5), "v1 rms_norm form=fused" + NORM, "fail", "element"),
    ("fla.rmsnorm_fn", "the norm before the gate, the default", _with(norm_before_gate=True),
     "v1 gate_first_rms_norm form=fused" + NORM, "fail", "element"),
    ("hf.causal_conv1d_update", "a convolution over its input", _over_its_input, CONVOLUTION, "fail", "memory"),
    ("hf.mamba_selective_state_update", "D, z, as of mamba_ssm", _z_behind_D, SCAN, "fail", "element"),
    ("hf.mamba_selective_state_update", "D, z, dt_bias, dt_softplus", _in_the_order_of_mamba_ssm, SCAN, "crash", None),
    ("hf.mamba2_selective_state_update", "dt_softplus=False, the default", _with(dt_softplus=False), DUALITY, "fail",
     "element"),
    ("hf.mamba_selective_scan", "delta_softplus=False, the default", _with(delta_softplus=False),
     SCAN.replace("recurrent", "blelloch"), "fail", "element"),
    ("hf.mamba2_chunk_scan", "no states before", _with(initial_states=None), CHUNKS, "fail", "element"),
    ("mlx.ssm_attn", "steps clipped, the default", _with(time_step_limit=(0.001, 100.0)),
     CHUNKS + " regime=large", "fail", "element"),
    ("mlx.gated_delta_update", "beta in 0 to 2", _with(allow_neg_eigval=True), MLX_STEP, "fail", "element"),
    ("fla.gated_delta_step", "beta as it is, the default", _with(use_beta_sigmoid_in_kernel=False), STEP, "fail",
     "element"),
    ("fla.gated_delta_step", "a as the decay, the default", _with(use_gate_in_kernel=False), STEP, "fail", "element"),
    ("fla.gated_delta_step", "no l2norm, the default", _with(use_qk_l2norm_in_kernel=False), STEP, "fail", "element"),
]


def _row(name):
    row = adapters.rows_of(name)[0]
    try:
        subject = adapters.subject(row)
        subject.library()
    except ImportError as error:
        raise unittest.SkipTest(str(error)) from None
    return row, subject


def _declared(row, function):
    if row.call:
        function = getattr(named, row.call)(function)
    return Subject(function, row.system, row.form, array=row.array, name=f"trap.{row.system}", arguments=row.arguments,
                   options=row.options if not row.call else None, limits=row.limits, contracts=row.devices["cpu"])


@needs_command
class Traps(unittest.TestCase):
    def test_each(self):
        ran, absent = 0, {}
        for name, what, change, line, verdict, gate in TRAPS:
            with self.subTest(name, what=what):
                try:
                    row, subject = _row(name)
                except unittest.SkipTest as reason:
                    absent[name] = str(reason)
                    continue
                ran += 1
                self.assertEqual(samestate.check(subject, case=line).verdicts, {"pass": 1})
                wrong = _declared(row, change(adapters._found(row, "cpu")))
                with self.assertRaises(samestate.Failed) as caught:
                    samestate.check(wrong, case=line)
                record = caught.exception.record
                self.assertEqual(record["verdict"], verdict, record)
                if gate:
                    self.assertEqual(record["gate"], gate, record)
        if not ran:
            self.skipTest(f"none of the packages is here: {absent}")

    def test_exponential_of_mlx(self):
        """exp(x) as 2^(x log2 e), the product rounded: beyond fp32 where decays are strong, and named by the contract."""
        row, subject = _row("mlx.gated_delta_update")
        line = "v1 gated_delta_step T=80 P=1 dk=2 dv=2 l2norm=0 regime=mixed_scales repeat=1 seed=0x180000322"
        with self.assertRaises(samestate.Failed) as caught:
            samestate.check(_declared(row._replace(devices={"cpu": ["fp32"]}), adapters._found(row, "cpu")), case=line)
        self.assertEqual(caught.exception.record["verdict"], "fail")
        ex2 = line.replace(" regime", " contract=fp32+exponential:ex2 regime")
        self.assertEqual(samestate.check(subject, case=ex2).verdicts, {"pass": 1})

    def test_what_the_row_calls_is_what_the_record_names(self):
        row, subject = _row("hf.mamba_selective_state_update")
        said = subject.declaration()["about"]["function"]
        self.assertIn("modeling_mamba.py", said)
        self.assertTrue(said.endswith("mamba_selective_state_update"), said)


if __name__ == "__main__":
    unittest.main()
