"""Adapters of packages that run on a device alone, each on an imitation of its function (imitations.py): the gate passes
it as the adapter calls it, and fails what the imitation, or the adapter's row, does wrong."""
import contextlib
import importlib
import io
import json
import os
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]
from plugin_runs import needs_command  # noqa: E402

import samestate  # noqa: E402
from samestate import adapters, scripting  # noqa: E402
from samestate.errors import DeclarationError  # noqa: E402

try:
    import imitations
except ImportError as error:
    raise unittest.SkipTest(str(error)) from None

STEP = "v1 gated_delta_step B=6 T=3 P=3 Hk=2 Hv=4 dk=4 dv={} seed=2"  # requests without a slot, in slot 0, in the last
WIDE = "v1 gated_delta_step B=6 T={} P=3 Hk=1 Hv=2 dk=128 dv=128 contract=bf16_io+exponential:ex2 seed=2"
RULE = "v1 gated_delta_rule form={} T=9 Hk=2 Hv=4 dk=4 dv={} state=random seed=5"
CHUNKS = "v1 gated_delta_rule form={} chunk=64 {} dk=128 dv=128 state=random seed=5 contract=bf16+card:nearest"
DENSE, PACKED_ROWS = "B=2 T=9 Hk=2 Hv=4", "lengths=3,0,5 Hk=2 Hv=4"
SOLVED = "+accumulator:fp32+inverse:block16/{}+merges:rows+scan:tree+card:nearest"
SCAN = "v1 selective_scan form={} B=2 T=4 D=6 N=3"
DUALITY = "v1 state_space_duality form={} B=2 T=5 H=4 G=2 P=3 N=2"
CONVOLUTION = "v1 short_convolution form=gather B=2 T=5 C=8 W=4 bias=1"
# In regime zeros the state's oldest inputs are zero, and its window goes on to the tokens before it in memory.
PACKED_CONVOLUTION = "v1 short_convolution form=packed lengths=6,0,1,4,9 unowned=2,1 C=8 W=4 bias=1 regime=zeros"
# In regime trained one sequence in four has no state: of this seed the third and the fourth, in front of which nothing stands.
PACKED_DUALITY = DUALITY.replace("B=2 T=5", "lengths=6,0,1,4,9 unowned=2,1").format("packed chunk=16")
PACKED = STEP.format(6), ["v before k", "q and k exchanged", "no l2norm", "no dt_bias", "b as it is", "heads tiled",
                          "another slot written", "null rows unwritten", "epsilon"]
EX2 = " contract=fp32+exponential:ex2"

# (adapter, case, what may be planted in the imitation)
IMITATED = [
    ("vllm.fused_recurrent_gated_delta_rule_packed_decode", PACKED[0] + EX2, PACKED[1] + ["slot 0 live"]),
    ("vllm.fused_recurrent_gated_delta_rule_packed_decode", STEP.format(4) + EX2, ["states transposed"]),
    ("sglang.fused_recurrent_gated_delta_rule_packed_decode", PACKED[0] + EX2, PACKED[1]),
    ("sglang.fused_recurrent_gated_delta_rule_packed_decode", STEP.format(6).replace("P=3", "P=1") + EX2, ["slot 0 null"]),
    ("vllm.fused_sigmoid_gating_delta_rule_update", STEP.format(6) + EX2, ["heads tiled", "b as it is", "no dt_bias"]),
    ("sglang.fused_sigmoid_gating_delta_rule_update", STEP.format(6) + " layout=permuted" + EX2,
     ["heads tiled", "b as it is", "epsilon"]),
    ("vllm.fused_recurrent_gated_delta_rule", RULE.format("packed chunk=0 lengths=2,0,3", 6).replace(" T=9", "") +
     " contract=bf16+norm:unrounded", ["row of the first token", "heads tiled"]),
    ("vllm.fused_recurrent_gated_delta_rule", RULE.format("recurrent B=2", 6) + " l2norm=1", ["no l2norm", "epsilon"]),
    ("flashinfer.chunk_gated_delta_rule", CHUNKS.format("chunked", DENSE), ["g is a logarithm", "heads tiled"]),
    ("flashinfer.chunk_gated_delta_rule", CHUNKS.format("packed", PACKED_ROWS), ["g is a logarithm"]),
    ("flashinfer.chunk_gated_delta_rule.fused", CHUNKS.format("chunked", DENSE), ["g is a logarithm", "heads tiled"]),
    ("flashinfer.chunk_gated_delta_rule.cp", CHUNKS.format("chunked", "T=9 Hk=2 Hv=4"), ["heads tiled", "q and k exchanged"]),
    ("flashinfer.chunk_gated_delta_rule.cp_many_heads", CHUNKS.format("chunked", "T=9 Hk=2 Hv=18"), ["heads tiled"]),
    ("flashinfer.chunk_gated_delta_rule.cake_gdn", CHUNKS.format("chunked", DENSE), ["heads tiled"]),
    ("flashinfer.chunk_gated_delta_rule.cudnn", CHUNKS.format("chunked", DENSE), ["heads tiled"]),
    ("flashinfer.chunk_gated_delta_rule.sm120_cute", CHUNKS.format("chunked", DENSE), ["g is a logarithm"]),
    ("flashqla.chunk_gated_delta_rule", CHUNKS.format("chunked", DENSE), ["states transposed", "heads tiled"]),
    ("flashqla.chunk_gated_delta_rule.serial", CHUNKS.format("packed", PACKED_ROWS),
     ["states transposed", "places counted by sequences"]),
    ("flashqla.chunk_gated_delta_rule.divided", CHUNKS.format("chunked", "T=70 Hk=1 Hv=2"), ["states transposed"]),
    ("fla.chunk_gated_delta_rule.intracard", "v1 gated_delta_rule form=chunked chunk=16 T=100 dk=4 dv=6 state=random seed=5 "
     "contract=bf16" + SOLVED.format("tf32_truncated"), ["divided later", "q and k exchanged"]),
    ("vllm.chunk_gated_delta_rule", RULE.format("packed chunk=64 lengths=2,0,3", 6).replace(" T=9", "") + " contract=bf16" +
     SOLVED.format("fp32"), ["places counted by sequences", "heads tiled"]),
    ("sglang.chunk_gated_delta_rule", RULE.format("packed chunk=64 lengths=2,0,3", 6).replace(" T=9", "") + " contract=bf16" +
     SOLVED.format("tf32_truncated"), ["places counted by sequences", "states left as they were"]),
    ("cudnn.gated_delta_net", CHUNKS.format("packed", PACKED_ROWS), ["heads tiled", "q and k exchanged"]),
    ("cudnn.gated_delta_net.cutile", CHUNKS.format("chunked", DENSE), ["heads tiled"]),
    ("cudnn.mamba2", "v1 state_space_duality form=chunked chunk=128 B=2 T=5 H=4 G=2 P=64 N=128 contract=bf16+card:nearest",
     ["no initial state"]),
    ("cudnn.mamba2", "v1 state_space_duality form=packed chunk=128 lengths=3,1,5 H=4 G=2 P=64 N=128 repeat=1 "
     "contract=bf16+card:nearest", ["state of the neighbour", "stale offsets"]),
    ("flashinfer.gated_delta_rule_decode", WIDE.format(2), ["b as it is", "no l2norm"]),
    ("flashinfer.gated_delta_rule_decode.large_batch", WIDE.format(1).replace("B=6", "B=32"), ["no l2norm"]),
    ("flashinfer.gated_delta_rule_decode_pretranspose.bf16_state", WIDE.format(1), ["no dt_bias", "no update"]),
    ("flashinfer.gated_delta_rule_decode_pretranspose", WIDE.format(2), ["slot -1 is slot 0", "no dt_bias"]),
    ("flashinfer.gated_delta_rule_mtp", WIDE.format(3), ["no update", "q and k exchanged"]),
    ("mamba_ssm.selective_scan_fn", SCAN.format("blelloch") + EX2, ["no softplus", "A positive", "no D", "no z"]),
    ("mamba_ssm.selective_state_update", SCAN.format("recurrent") + EX2, ["D, dt_bias, z", "state apart"]),
    ("mamba_ssm.selective_state_update.heads", DUALITY.format("recurrent") + EX2, ["state apart"]),
    ("mamba_ssm.mamba_chunk_scan_combined", DUALITY.format("chunked chunk=16") + " contract=tf32_truncated+card:nearest",
     ["no initial state"]),
    ("mamba_ssm.mamba_chunk_scan_combined", DUALITY.format("chunked chunk=16") + " regime=large"
     " contract=tf32_truncated+card:nearest", ["steps clipped"]),
    ("mamba_ssm.mamba_chunk_scan_combined", PACKED_DUALITY + " repeat=1 contract=tf32_truncated+card:nearest",
     ["state of the neighbour", "stale offsets"]),
    ("mamba_ssm.mamba_chunk_scan_combined", PACKED_DUALITY + " regime=trained seed=3 contract=tf32_truncated+card:nearest",
     ["state of the neighbour"]),
    ("causal_conv1d.causal_conv1d_fn", CONVOLUTION + EX2, ["weight reversed", "no bias", "old state"]),
    ("causal_conv1d.causal_conv1d_fn", PACKED_CONVOLUTION + EX2, ["window across the boundary", "no bias"]),
    ("causal_conv1d.causal_conv1d_fn", PACKED_CONVOLUTION + " repeat=1" + EX2, ["stale offsets"]),
    ("causal_conv1d.causal_conv1d_update", CONVOLUTION + EX2, ["weight reversed", "no silu", "over its input"]),
]


# Limits for rules whose widths are all 128, such that an imitation computes a case token by token within a
# second.
WIDE_RULES = ("T <= 80", "B <= 2", "Hv <= 20")


def imitated(name, limits=()):
    """The row's subject on the CPU: its function there is the imitation."""
    row, = adapters.rows_of(name)
    return adapters.subject(row._replace(devices={"cpu": row.devices["cuda"]}), limits=limits)


@needs_command
class Imitated(unittest.TestCase):
    def setUp(self):
        imitations.install()
        self.addCleanup(imitations.remove)
        self.addCleanup(imitations.fault)

    def test_each_row_is_here(self):
        here = {name for name, _, _ in IMITATED}
        self.assertEqual({row.name for row in adapters.ROWS if not row.tried and row.dtypes is None or
                          row.package in ("flashinfer-python", "nvidia-cudnn-frontend")} - here, set())

    def test_right_ones_pass_and_planted_faults_do_not(self):
        for name, line, faults in IMITATED:
            with self.subTest(name, line=line):
                imitations.fault()
                self.assertEqual(samestate.check(imitated(name), case=line).verdicts, {"pass": 1})
            for fault in faults:
                with self.subTest(name, fault=fault):
                    imitations.fault(fault)
                    with self.assertRaises(samestate.Failed) as caught:
                        samestate.check(imitated(name), case=line)
                    self.assertIn(caught.exception.record["verdict"], ("fail", "crash"), caught.exception.record)

    def test_a_script_calls_packed_sequences_as_the_adapter_does(self):
        import numpy as np
        import torch

        draw = np.random.default_rng(1)
        of = lambda *shape: draw.normal(size=shape).astype(np.float32)
        H, G, P, N, C, W = 4, 2, 3, 2, 8, 4
        convolution = {"x": of(1, 7, C), "kernel": of(C, W), "state": of(3, W - 1, C)}
        scan = {"x": of(1, 7, H * P), "dt": of(1, 7, H), "dt_bias": of(H), "A_log": of(H), "B": of(1, 7, G * N),
                "C": of(1, 7, G * N), "skip": of(H), "S": of(3, H * P, N)}
        for name, x, size, outputs in (
                ("causal_conv1d.causal_conv1d_fn", convolution, {"C": C, "W": W, "activation": 1, "bias": 0}, ["y", "state"]),
                ("mamba_ssm.mamba_chunk_scan_combined", scan, {"H": H, "G": G, "P": P, "N": N}, ["y", "S"])):
            with self.subTest(name):
                subject = imitated(name)
                space = {"np": np, "importlib": importlib, "os": os, "sys": sys, "EDITED": set(), "SIZE": size, "BATCH": 1,
                         "CONTRACT": "fp32", "INPUTS": list(x), "OUTPUTS": outputs, "KIND": {"x": "tokens"}}
                exec(scripting.text_of(subject, name)[0], space)
                found = []
                for ends in ([0, 3, 3, 7], [0, 1, 4, 7]):
                    space["CU_SEQLENS"] = ends
                    found.append(space["kernel"](x, 16)["y"])
                    given = {"chunk": 16, **size, **{n: torch.tensor(y) for n, y in x.items()}}
                    asked = {k if isinstance(k, str) else k[0] for k in subject._asked}
                    wanted = subject.function(cu_seqlens=torch.tensor(ends), **{k: v for k, v in given.items() if k in asked})
                    np.testing.assert_array_equal(found[-1], wanted["y"].numpy())
                self.assertFalse(np.array_equal(*found))

    def test_a_dozen_cases_of_each_plan(self):
        for name in dict.fromkeys(name for name, _, _ in IMITATED):
            with self.subTest(name):
                imitations.fault()
                wide = name.startswith(("flashinfer.chunk", "flashqla.", "cudnn.gated"))
                done = samestate.check(imitated(name, WIDE_RULES if wide else ()), max_cases=12, effort=0.2).verdicts
                self.assertGreater(done.get("pass", 0), 5)
                self.assertLessEqual(set(done), {"pass", "vacuous", "unsupported"})


class Packages(unittest.TestCase):
    """Packages as a user meets them: the package is not installed, or has another version than the one that was read."""

    def served(self, name, folder=None):
        path = os.pathsep.join(filter(None, [folder, os.path.dirname(HERE)]))
        return subprocess.run([sys.executable, "-m", "samestate.serve", name], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, env=dict(os.environ, PYTHONPATH=path))

    def test_missing(self):
        for name in dict.fromkeys(name for name, _, _ in IMITATED):
            with self.subTest(name):
                child = self.served(name)
                self.assertEqual((child.returncode, child.stderr.count("\n")), (2, 1), child.stderr)
                said = json.loads(child.stdout)
                self.assertEqual((said["type"], said["id"]), ("error", None), said)
                self.assertIn(f"{name}: No module named", said["reason"])

    def test_another_version(self):
        with tempfile.TemporaryDirectory() as folder:
            os.makedirs(os.path.join(folder, "causal_conv1d-9.9.0.dist-info"))
            with open(os.path.join(folder, "causal_conv1d-9.9.0.dist-info", "METADATA"), "w") as file:
                file.write("Metadata-Version: 2.1\nName: causal-conv1d\nVersion: 9.9.0\n")
            with open(os.path.join(folder, "causal_conv1d.py"), "w") as file:
                file.write("def causal_conv1d_fn(x, weight, bias=None, seq_idx=None, initial_states=None, "
                           "return_final_states=False, final_states_out=None, activation=None): pass\n")
            child = self.served("causal_conv1d.causal_conv1d_fn", folder)
            said = [line for line in child.stderr.splitlines() if "9.9.0" in line]
            self.assertEqual(len(said), 1, child.stderr)
            self.assertIn("newer than what causal_conv1d.causal_conv1d_fn was read at: 1.7.0", said[0])

    def test_order_of_versions(self):
        for earlier, later in (("0.7.2.post1", "0.7.4"), ("0.7.4", "0.7.4.post1"), ("0.9", "0.10.1"), ("2.11.0", "2.12.0+cu130")):
            self.assertLess(adapters._order(earlier), adapters._order(later))

    def test_one_warning_of_a_package_and_none_of_the_version_that_was_read(self):
        row, = adapters.rows_of("flashinfer.chunk_gated_delta_rule")
        other, = adapters.rows_of("flashinfer.gated_delta_rule_mtp")
        for version, said in (("0.7.4", 0), ("0.7.5", 1), ("0.7.2.post1", 1), (None, 0)):
            adapters._WARNED.clear()
            with contextlib.redirect_stderr(io.StringIO()) as err:
                for each in (row, other, row):
                    adapters._warn_of_version(each, version)
            self.assertEqual(err.getvalue().count("\n"), said, err.getvalue())
            if said:
                self.assertIn("newer than" if version == "0.7.5" else "not what", err.getvalue())
                self.assertIn(version, err.getvalue())
                self.assertIn("0.7.4", err.getvalue())
        adapters._WARNED.clear()

    def test_a_version_without_the_function_is_named(self):
        row, = adapters.rows_of("flashqla.chunk_gated_delta_rule")
        for each in (row, row._replace(function="samestate.adapters.family_calls:sglang_chunk()")):
            imitations.install()
            self.addCleanup(imitations.remove)
            del sys.modules["flash_qla"].chunk_gated_delta_rule
            del sys.modules["sglang.kernels.ops.attention.fla.chunk"].chunk_gated_delta_rule
            with self.assertRaisesRegex(DeclarationError, "has no chunk_gated_delta_rule"):
                adapters.subject(each)
            imitations.remove()


if __name__ == "__main__":
    unittest.main()
