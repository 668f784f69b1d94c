"""FlashInfer-Bench's definitions with fused gates, prefill, decode and multi-token prediction: as test_flashinfer_bench.py,
whose folders, solutions and judges these tests use."""
import json
import os
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]
import test_flashinfer_bench as plain  # noqa: E402
from plugin_runs import needs_command  # noqa: E402
from test_flashinfer_bench import LONG, changed, needs_torch, solution  # noqa: E402

from samestate import flashinfer_fused, trace_format  # noqa: E402

FUSED = {stage: flashinfer_fused.definition_of(stage, 1, 2, 8, "bfloat16") for stage in ("prefill", "decode", "mtp")}


class Hostile(plain.Folder):
    refused = plain.Hostile.refused

    def test_mtp(self):
        right = solution(FUSED["mtp"])
        for path, new, said in (
                (["inputs", "initial_state_indices"], KeyError, "by initial_state_indices"),
                (["inputs", "intermediate_states_buffer"], KeyError, "by intermediate_states_buffer"),
                (["inputs", "initial_state_indices", "dtype"], "float32", "int64 or int32 for cu_seqlens and indices"),
                (["inputs", "initial_state", "dtype"], "bfloat16", "initial_state is bfloat16"),
                (["inputs", "intermediate_states_buffer", "shape"],
                 ["batch_size", "seq_len", "num_v_heads", "head_size", "head_size"], "batch_size where P of P T Hv V K"),
                (["axes", "pool_size"], {"type": "const", "value": 4}, "pool_size where P of P Hv V K"),
                (["outputs", "final_state"], KeyError, "by final_state")):
            with self.subTest(path=path, said=said):
                self.refused(changed(FUSED["mtp"], path, new), right, said)
        self.write(f"definitions/gdn/{FUSED['mtp']['name']}.json", FUSED["mtp"])
        path = self.write("solution.json", right)
        code, err = self.main("judge", self.root, "--solution", path, "--zero-gates")
        self.assertEqual((code, err.count("\n")), (2, 1), err)
        code, err = self.main("judge", self.root, "--solution", path, "--form", "chunked")
        self.assertEqual((code, err.count("\n")), (2, 1), err)


@needs_command
@needs_torch
class Written(plain.Folder):
    SIZES = plain.Written.SIZES

    def test_fused_gates(self):
        """Tensors of the definitions with FlashInfer's names are those of the cases, and their references pass on them."""
        code, out = self.run_it("definitions", "--out", self.root, "--fused-gates", *self.SIZES)
        self.assertEqual(code, 0, out)
        for stage, definition in FUSED.items():
            with self.subTest(stage):
                name = definition["name"]
                self.assertEqual(json.load(open(os.path.join(self.root, f"definitions/gdn/{name}.json"))), definition)
                path = os.path.join(self.root, f"workloads/gdn/{name}.jsonl")
                rows = [json.loads(line) for line in open(path)]
                self.assertEqual(len({row["workload"]["uuid"] for row in rows}), 6)
                for row in rows:
                    spec, axes = row["workload"]["inputs"], row["workload"]["axes"]
                    self.assertEqual(list(spec), list(definition["inputs"]))
                    held = trace_format.read_safetensors(os.path.join(self.root, spec["q"]["path"]))[1]
                    for tensor, (_, shape, _) in held.items():
                        self.assertEqual(shape, [axes.get(axis, definition["axes"][axis].get("value"))
                                                 for axis in definition["inputs"][tensor]["shape"]])
                for change, expected in ((("", ""), 0), (("- torch.einsum", "- 0.99 * torch.einsum"), 1)):
                    made = self.write("solution.json", solution(definition, change=change))
                    code, out = self.run_it("judge", self.root, "--solution", made, "--workloads-only", "--traces",
                                            os.path.join(self.folder.name, "traces.jsonl"))
                    self.assertEqual(code, expected, out)
                    self.assertNotIn("not cases of samestate", out)


@needs_command
@needs_torch
class Judged(plain.Folder):
    SOME, FEW = plain.Judged.SOME, plain.Judged.FEW
    statuses = plain.Judged.statuses

    def test_fused_gates(self):
        """Each stage: right, and what its own gates, pool or states have wrong, at values that are not zero."""
        gates = [("+ dt_bias", "+ 0.99 * dt_bias"), ("b.float()", "1.01 * b.float()"), ("-A_log.exp()", "-(A_log + 0.01).exp()")]
        for stage, definition in FUSED.items():
            faults = gates + {"mtp": [("initial_state[initial_state_indices[n]]", "initial_state[n]"),
                                      ("t - ends[n]] = S", "t - ends[n]] = S.mT"),
                                      ("initial_state.clone()", "initial_state + 1")]}.get(stage, [
                                          ("new_state[n] = S", "new_state[n] = S.mT")])
            for change in [("", "")] + (faults if LONG or stage == "mtp" else faults[:1]):
                with self.subTest(stage, change=change):
                    code, out, traces = self.judge(definition, solution(definition, change=change),
                                                   *(self.FEW if change[0] else self.SOME))
                    self.assertEqual(code == 0, not change[0], out)
                    self.assertNotIn("alone", out)
                    if not change[0]:
                        self.assertEqual(self.statuses(traces), {"PASSED"})
                        self.assertGreater(len(traces), 6)


if __name__ == "__main__":
    unittest.main()
