"""FlashInfer-Bench's files: what is written is read by their package (where it is installed) and is the plan's cases; a
right Solution passes, planted wrong ones fail; files that are not what they should be end with one line and exit code 2."""
import contextlib
import copy
import io
import json
import os
import struct
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]
from plugin_runs import PYTHON, needs_command  # noqa: E402

import samestate  # noqa: E402
from samestate import flashinfer_bench, flashinfer_traces, trace_format  # noqa: E402
from samestate.trace_format import Definition, FormatError, Solution  # noqa: E402

PREFILL, DECODE = (flashinfer_traces.definition_of(stage, 1, 2, 8, "bfloat16") for stage in ("prefill", "decode"))


def has(module):
    try:
        __import__(module)
    except Exception:
        return False
    return True


LONG = bool(os.environ.get("SAMESTATE_LONG"))  # all planted faults; without, one of each kind
needs_torch = unittest.skipUnless(has("torch"), "no torch")


def solution(definition, source=None, change=("", ""), outputs=False, **spec):
    """A Solution of a definition: its reference, with `change` planted in it, which must be there."""
    source = source or definition["reference"]
    assert change[0] in source, change
    return {"name": "mine", "definition": definition["name"], "author": "me", "sources": [
        {"path": "pkg/main.py", "content": source.replace(*change) if change[0] else source}],
        "spec": {"language": "python", "target_hardware": ["cpu"], "entry_point": "pkg/main.py::run",
                 "destination_passing_style": outputs, **spec}}


def fused(definition):
    """The definition with the gates of FlashInfer's own."""
    made = copy.deepcopy(definition)
    made["name"] = made["name"].replace("_plain_gates", "")
    gate, inputs = made["inputs"]["g"]["shape"], made["inputs"]
    new = {"a": (gate, "bfloat16"), "b": (gate, "bfloat16"), "A_log": (gate[-1:], "float32"), "dt_bias": (gate[-1:], "float32")}
    at = list(inputs).index("g")
    rows = [(name, row) for name, row in inputs.items() if name not in ("g", "beta")]
    rows[at:at] = [(name, {"shape": new[name][0], "dtype": new[name][1]}) for name in ("A_log", "a", "dt_bias", "b")]
    made["inputs"] = dict(rows)
    made["reference"] = made["reference"].replace("state, g, beta", "state, A_log, a, dt_bias, b").replace(
        "    shape, group =", "    g = -A_log.exp() * torch.nn.functional.softplus(a.float() + dt_bias)\n"
        "    beta = b.float().sigmoid()\n    shape, group =")
    return made


class Folder(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = os.path.join(self.folder.name, "data")

    def tearDown(self):
        self.folder.cleanup()

    def write(self, path, value):
        whole = os.path.join(self.root, path)
        os.makedirs(os.path.dirname(whole), exist_ok=True)
        with open(whole, "w", encoding="utf-8") as file:
            file.write(value if isinstance(value, str) else json.dumps(value))
        return whole

    def everything(self):
        return sorted(os.path.join(at, name) for at, _, names in os.walk(self.folder.name) for name in names)

    def main(self, *words):
        """(exit code, stderr) in this process."""
        err = io.StringIO()
        with contextlib.redirect_stderr(err), contextlib.redirect_stdout(io.StringIO()):
            try:
                code = flashinfer_bench.main(list(words))
            except SystemExit as end:
                code = end.code
        return code, err.getvalue()

    def run_it(self, *words, timeout=300):
        """(exit code, all output) in a process of its own, as a user runs it."""
        child = subprocess.run([sys.executable, "-m", "samestate.flashinfer_bench", *words], capture_output=True,
                               text=True, timeout=timeout, env=dict(os.environ, PYTHONPATH=PYTHON))
        return child.returncode, child.stdout + child.stderr

    def judge(self, definition, made, *words):
        """(exit code, output, traces) of a solution."""
        self.write(f"definitions/gdn/{definition['name']}.json", definition)
        path = self.write("solution.json", made)
        target = os.path.join(self.folder.name, "traces.jsonl")
        if os.path.exists(target):
            os.unlink(target)
        code, out = self.run_it("judge", self.root, "--solution", path, "--traces", target, *words)
        traces = [json.loads(line) for line in open(target)] if os.path.exists(target) else []
        return code, out, traces


def changed(value, path, new):
    made = copy.deepcopy(value)
    at = made
    for key in path[:-1]:
        at = at[key]
    if new is KeyError:
        del at[path[-1]]
    else:
        at[path[-1]] = new
    return made


class Hostile(Folder):
    """Each file is refused with one line, exit code 2, and nothing is written."""

    def refused(self, definition, made, said):
        if isinstance(definition, dict):
            name = made["definition"] if isinstance(made, dict) and isinstance(made.get("definition"), str) else ""
            definition, name = json.dumps(definition), name or "none"
        else:
            name = PREFILL["name"]
        if "/" not in name:
            self.write(f"definitions/gdn/{name}.json", definition)
        path = self.write("solution.json", made)
        before = self.everything()
        code, err = self.main("judge", self.root, "--solution", path)
        self.assertEqual(code, 2, err)
        self.assertEqual(err.count("\n"), 1, err)
        self.assertLess(len(err), 900)
        self.assertIn(said, err)
        self.assertEqual(self.everything(), before)

    def test_solutions(self):
        right = solution(PREFILL)
        source = {"path": "a.py", "content": "x"}
        for path, new, said in (
                (["name"], KeyError, "without name"), (["name"], "../x", "name '../x'"), (["name"], "", "expected str"),
                (["definition"], "a/b", "definition 'a/b'"), (["definition"], 7, "definition is 7"),
                (["author"], "x\n", "author 'x\\n'"), (["spec"], [], "spec is []"),
                (["spec", "language"], "cuda", "language 'cuda'; known are python triton"),
                (["spec", "entry_point"], "main.py", "FILE::FUNCTION"),
                (["spec", "entry_point"], "a.py::b::c", "FILE::FUNCTION"),
                (["spec", "entry_point"], "a.py::os.system", "FILE::FUNCTION"),
                (["spec", "entry_point"], "other.py::run", "names 'other.py'"),
                (["spec", "destination_passing_style"], 1, "expected bool"),
                (["sources"], [], "entry_point names"), (["sources"], [7], "sources[0]: 7 is no object"),
                (["sources"], [source] * 2, "occurs twice"), (["sources"], [source] * 300, "at most 256"),
                (["sources"], [source, {"path": "a.py/b.py", "content": "x"}], "is a file and a folder"),
                *((["sources", 0, "path"], text, "a relative path") for text in (
                    "/etc/passwd", "../a.py", "a/../b.py", "a\\b.py", "a//b.py", "a\0.py", ".hidden.py", "a/" * 20 + "b.py")),
                (["sources", 0, "content"], "x" * (trace_format.LONGEST_FILE // 2 + 1), "more than")):
            made = changed(right, path, new)
            if said == "more than":
                made["sources"] = [dict(made["sources"][0], path=f"{n}.py") for n in range(3)]
            with self.subTest(path=path, said=said):
                self.refused(PREFILL, made, said)

    def test_definitions(self):
        right = solution(PREFILL)
        for path, new, said in (
                (["name"], "other", "other"), (["axes"], KeyError, "without axes"), (["axes", "head_size", "value"], 0, "value 0"),
                (["axes", "head_size", "value"], True, "value is True"), (["axes", "head_size", "value"], 1 << 40, "1 to 1048576"),
                (["axes", "head_size", "type"], "some", "known are const var"), (["inputs", "q", "shape", 0], "nowhere", "'nowhere'"),
                (["inputs", "q", "dtype"], "float64", "dtype 'float64'"), (["inputs", "q", "dtype"], "float32", "k is bfloat16"),
                (["inputs", "extra"], {"shape": None, "dtype": "int32"}, "extra"), (["inputs", "g"], KeyError, "by g"),
                (["inputs", "v", "shape"], ["total_seq_len", "head_size", "num_v_heads"], "num_v_heads where Hv of N Hv V K stands and head_size elsewhere"),
                (["inputs", "scale", "shape"], ["head_size"], "scale has shape"),
                (["axes", "num_q_heads", "value"], 2, "equally many"), (["tags"], [], "layout of the state not said"),
                (["tags"], ["layout:k-last"], "its g is not said"), (["tags"], ["layout:k-last", "decay:loud"], "decay:ln"),
                (["outputs", "q"], {"shape": None, "dtype": "int32"}, "an input and an output"),
                (["outputs", "new_state", "dtype"], "bfloat16", "new_state is bfloat16")):
            with self.subTest(path=path, said=said):
                self.refused(changed(PREFILL, path, new), right, said)

    def test_texts(self):
        right = json.dumps(solution(PREFILL))
        for text, said in (("", "no JSON"), ("[]", "[] is no object"), (right[:-2], "no JSON"), ("{" * 100000, "no JSON"),
                           ('{"a":1,"a":2}', "occurs twice"), ('{"name":NaN}', "NaN is not a JSON number"), ("[" * 100000, "no JSON"),
                           (" " * (trace_format.LONGEST_FILE + 1), "more than")):
            with self.subTest(text=text[:20]):
                self.refused(json.dumps(PREFILL), text, said)
        path = self.write("x.json", "")
        with open(path, "wb") as file:
            file.write(b"\xff\xfe")
        for path in (path, os.path.join(self.root, "absent.json"), self.root):
            code, err = self.main("judge", self.root, "--solution", path)
            self.assertEqual((code, err.count("\n")), (2, 1), err)

    def test_no_definition(self):
        self.write("definitions/gdn/other.json", PREFILL)
        self.refused({"name": "x"}, changed(solution(PREFILL), ["definition"], "absent"), "absent")

    def test_workloads(self):
        name = PREFILL["name"]
        self.write(f"definitions/gdn/{name}.json", PREFILL)
        path = self.write("solution.json", solution(PREFILL))
        right = {"definition": name, "workload": {"axes": {}, "uuid": "u", "inputs": {
            "q": {"type": "safetensors", "path": "blob/x.safetensors", "tensor_key": "q"}}}}
        head = lambda value: struct.pack("<Q", len(json.dumps(value))).decode("latin1") + json.dumps(value)
        for blob, change, said in (
                ("", (["definition"], "x"), "definition 'x'"), ("", (["workload", "uuid"], 7), "uuid is 7"),
                ("", (["workload", "inputs", "q", "path"], "../x"), "path '../x'"),
                ("", (["workload", "inputs", "q", "path"], "/x"), "path '/x'"),
                ("", (["workload", "inputs", "q", "path"], "blob/absent"), "No such file"),
                ("short", None, "a head of"), ("\x7f" * 8 + "{}", None, "a head of"),
                (head({"__metadata__": {"case": "v1 gated_delta_rule\nkernel=x"}}), None, "says it is case"),
                (head({"__metadata__": {"case": "v1 retention T=1"}}), None, "says it is case")):
            with self.subTest(said=said):
                self.write("blob/x.safetensors", blob)
                self.write(f"workloads/gdn/{name}.jsonl", json.dumps(changed(right, *change) if change else right))
                code, err = self.main("judge", self.root, "--solution", path)
                self.assertEqual((code, err.count("\n")), (2, 1), err)
                self.assertIn(said, err)

    def test_tensors_outside_the_file(self):
        path = os.path.join(self.folder.name, "x.safetensors")
        for row in ({"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}, {"dtype": "F32", "shape": [2], "data_offsets": [8, 0]},
                    {"dtype": "F32", "shape": [-1, -2], "data_offsets": [0, 8]}, {"dtype": "F64", "shape": [1], "data_offsets": [0, 8]},
                    {"dtype": "F32", "shape": [1 << 62, 4], "data_offsets": [0, 8]}, {"dtype": "F32", "shape": [2.0], "data_offsets": [0, 8]}):
            with self.subTest(row), self.assertRaises(FormatError):
                text = json.dumps({"x": row}).encode()
                with open(path, "wb") as file:
                    file.write(struct.pack("<Q", len(text)) + text + bytes(8))
                trace_format.read_safetensors(path)

    def test_a_file_is_whole_or_not_there(self):
        path = os.path.join(self.folder.name, "x")

        def pieces():
            yield "begun"
            raise RuntimeError("interrupted")

        with self.assertRaises(RuntimeError):
            trace_format.write_whole(path, pieces())
        self.assertEqual(self.everything(), [])
        trace_format.write_whole(path, ["a", b"b"])
        self.assertEqual(open(path).read(), "ab")

    def test_out_that_is_there(self):
        self.write("x", "")
        before = self.everything()
        for words in (["--out", self.root], ["--out", self.root + "2", "--qk-heads", "0"], ["--out"]):
            self.assertEqual(self.main("definitions", *words)[0], 2)
        self.assertEqual(self.everything(), before)


@needs_command
class Written(Folder):
    """definitions --out: their package reads it, and the tensors are those of the cases that are named."""

    SIZES = ("--qk-heads", "1", "--v-heads", "2", "--head-size", "8", "--max-cases", "6")

    def made(self):
        code, out = self.run_it("definitions", "--out", self.root, *self.SIZES)
        self.assertEqual(code, 0, out)
        return {os.path.relpath(path, self.root) for path in self.everything()}

    def test_files(self):
        files = self.made()
        for definition in (PREFILL, DECODE):
            name = definition["name"]
            self.assertEqual(json.load(open(os.path.join(self.root, f"definitions/gdn/{name}.json"))), definition)
            lines = [json.loads(line) for line in open(os.path.join(self.root, f"workloads/gdn/{name}.jsonl"))]
            self.assertEqual(len(lines), 6)
            self.assertEqual(len({row["workload"]["uuid"] for row in lines}), 6)
            for row in lines:
                spec = row["workload"]["inputs"]
                self.assertEqual(list(spec), list(definition["inputs"]))
                self.assertIn(spec["q"]["path"], files)
        self.assertEqual(len(files), 2 * 2 + 12)
        code, out = self.run_it("definitions", "--out", self.root, *self.SIZES)
        self.assertEqual(code, 2, out)

    @unittest.skipUnless(has("flashinfer_bench.data"), "no flashinfer-bench")
    def test_their_package_reads_it(self):
        from flashinfer_bench.data import TraceSet

        self.made()
        read = TraceSet.from_path(self.root)
        for definition in (PREFILL, DECODE):
            self.assertEqual(len(read.workloads[definition["name"]]), 6)
            theirs = read.definitions[definition["name"]]
            for row in read.workloads[definition["name"]]:
                shapes = dict(zip(theirs.inputs, theirs.get_input_shapes(row.workload.axes)))
                for name, spec in row.workload.inputs.items():
                    if spec.type == "safetensors":
                        held = trace_format.read_safetensors(os.path.join(self.root, spec.path))[1]
                        self.assertEqual(held[spec.tensor_key][1], shapes[name])
        with self.assertRaises(ValueError):  # their model bites
            type(theirs).model_validate(changed(PREFILL, ["inputs", "q", "shape", 0], "nowhere"))

    @needs_torch
    def test_the_reference_on_what_was_written(self):
        """A workload's tensors through the definition's reference, written back as a run of its case: judge passes it,
        and fails it where the state lies otherwise or the scale is another."""
        import torch

        self.made()
        kinds = {"F32": torch.float32, "BF16": torch.bfloat16, "I64": torch.int64}
        for definition in (PREFILL, DECODE):
            space = {}
            exec(definition["reference"], space)
            with open(os.path.join(self.root, f"workloads/gdn/{definition['name']}.jsonl")) as lines:
                rows = [json.loads(line)["workload"] for line in lines]
            for work in rows:
                metadata, held = trace_format.read_safetensors(os.path.join(self.root, work["inputs"]["q"]["path"]))
                x = {name: torch.frombuffer(bytearray(data), dtype=kinds[kind]).reshape(shape)
                     for name, (kind, shape, data) in held.items()}
                scale = work["inputs"]["scale"]["value"]
                self.assertEqual(self.verdict(metadata["case"], x, scale, space["run"]), "pass")
                self.assertEqual(self.verdict(metadata["case"], x, 1.01 * scale, space["run"]), "fail")
                self.assertEqual(self.other_than_drawn(metadata["case"], x), set())
            x["state"] = x["state"].mT.contiguous() + 1
            self.assertIn("state", self.other_than_drawn(metadata["case"], x))

    def other_than_drawn(self, line, x):
        """Tensors of a workload that are not what `repro` draws for its case."""
        import torch

        path = os.path.join(self.folder.name, "drawn.safetensors")
        child = subprocess.run([samestate.executable(), "repro", line, "--dump", path, "--card-budget", "0"],
                               capture_output=True, text=True)
        self.assertEqual(child.returncode, 0, child.stderr)
        drawn = {n: torch.frombuffer(bytearray(data), dtype=torch.int64 if kind == "I64" else torch.float32).reshape(shape)
                 for n, (kind, shape, data) in trace_format.read_safetensors(path)[1].items()}
        batch, tokens = drawn["q"].shape[:2]
        drawn.setdefault("cu_seqlens", torch.arange(batch + 1) * tokens)
        drawn["state"] = drawn.get("initial_state", torch.zeros_like(drawn["final_state"])).mT
        return {n for n, t in x.items() if not torch.equal(t.reshape(-1).double(), drawn[n].reshape(-1).double())}

    def verdict(self, line, x, scale, run):
        import torch

        o, S = run(*(x[n] for n in ("q", "k", "v", "state", "g", "beta")), *([x["cu_seqlens"]] if "cu_seqlens" in x else []), scale)
        keys = flashinfer_traces.keys_of(line)
        batch = 1 if "lengths" in keys else int(keys.get("B", 1))
        tokens = lambda t: t.reshape(batch, -1, *t.shape[1 if x["q"].dim() == 3 else 2:])
        out = {**{n: tokens(x[n]) for n in ("q", "k", "v", "g", "beta")}, "o": tokens(o), "final_state": S.mT}
        if "state=random" in line:
            out["initial_state"] = x["state"].mT
        if "lengths" in keys:
            out["cu_seqlens"] = x["cu_seqlens"]
        kind = lambda t: ("I64", t) if t.dtype == torch.int64 else ("F32", t.float())
        raw = lambda t: bytes(t.contiguous().reshape(-1).view(torch.uint8).tolist())
        tensors = {n: (kind(t)[0], list(t.shape), raw(kind(t)[1])) for n, t in out.items()}
        path = os.path.join(self.folder.name, "run.safetensors")
        trace_format.write_whole(path, trace_format.safetensors(tensors, {
            "format": "samestate-run-1", "case": line, "kernel": "elsewhere"}))
        child = subprocess.run([samestate.executable(), "judge", path, "--json", "--card-budget", "0"], capture_output=True,
                               text=True)
        self.assertTrue(child.stdout, child.stderr)
        return json.loads(child.stdout)["verdict"]


@needs_command
@needs_torch
class Judged(Folder):
    SOME = ("--max-cases", "12", "--where", "T=..40")
    FEW = ("--max-cases", "4", "--where", "T=..40")  # of what fails: each crash starts its process anew

    def statuses(self, traces):
        return {row["evaluation"]["status"] for row in traces}

    def test_right_and_wrong(self):
        rows = (("right", PREFILL, solution(PREFILL), 0, {"PASSED"}),
                ("decode", DECODE, solution(DECODE), 0, {"PASSED"}),
                ("a key of 1 % less", PREFILL, solution(PREFILL, change=("- torch.einsum", "- 0.99 * torch.einsum")), 1,
                 {"INCORRECT_NUMERICAL"}),
                ("a state the other way", DECODE, solution(DECODE, change=(", new_state\n", ", new_state.mT.contiguous()\n")), 1,
                 {"INCORRECT_NUMERICAL"}),
                ("a wider output", PREFILL, solution(PREFILL, change=(".to(torch.bfloat16)", "")), 5, {"INCORRECT_DTYPE"}),
                ("another shape", PREFILL, solution(PREFILL, change=("output.reshape(shape)", "output[:1]")), 5, {"INCORRECT_SHAPE"}),
                ("a state of its own", PREFILL, solution(PREFILL, change=("state.float().clone()", "state")), 1,
                 {"RUNTIME_ERROR"}),
                ("an exception", DECODE, solution(DECODE, change=("    S = S * g", "    raise ValueError('no')\n            S = S * g")),
                 5, {"RUNTIME_ERROR"}))
        for what, definition, made, code, status in rows if LONG else rows[:5]:
            with self.subTest(what):
                got, out, traces = self.judge(definition, made, *(self.FEW if code else self.SOME))
                self.assertEqual(got, code, out)
                self.assertTrue(traces, out)
                if code == 0:
                    self.assertEqual(self.statuses(traces), status)
                    self.assertGreater(len(traces), 8)
                else:
                    self.assertLessEqual(status, self.statuses(traces))
                self.readable(traces)

    def readable(self, traces):
        """Checked by their package if it is installed, or else by what it requires."""
        for row in traces:
            said = row["evaluation"]
            self.assertEqual("correctness" in said, said["status"] in ("PASSED", "INCORRECT_NUMERICAL"))
            self.assertEqual("performance" in said, said["status"] == "PASSED")
            if has("flashinfer_bench.data"):
                from flashinfer_bench.data import Trace

                Trace.model_validate(row)

    def test_outputs_that_are_given(self):
        source = PREFILL["reference"] + (
            "\ndef fill(q, k, v, state, g, beta, cu_seqlens, scale, output, new_state):\n"
            "    o, s = run(q, k, v, state, g, beta, cu_seqlens, scale)\n    output.copy_(o)\n    new_state.copy_(s)\n")
        right = solution(PREFILL, source, outputs=True, entry_point="pkg/main.py::fill")
        code, out, traces = self.judge(PREFILL, right, *self.SOME)
        self.assertEqual((code, self.statuses(traces)), (0, {"PASSED"}), out)
        unwritten = solution(PREFILL, source, ("    new_state.copy_(s)\n", ""), outputs=True, entry_point="pkg/main.py::fill")
        code, out, traces = self.judge(PREFILL, unwritten, *self.FEW)
        self.assertEqual(code, 1, out)

    def test_workloads_of_the_folder(self):
        code, out = self.run_it("definitions", "--out", self.root, "--stage", "prefill", *Written.SIZES)
        self.assertEqual(code, 0, out)
        path = os.path.join(self.root, f"workloads/gdn/{PREFILL['name']}.jsonl")
        rows = [json.loads(line) for line in open(path)]
        foreign = changed(rows[0], ["workload", "uuid"], "another")
        with open(path, "a") as file:
            file.write(json.dumps(foreign) + "\n")
        for change, expected in ((("", ""), 0), (("- torch.einsum", "- 0.99 * torch.einsum"), 1)):
            for words in ((), ("--form", "recurrent")) if LONG else ((),):
                code, out, traces = self.judge(PREFILL, solution(PREFILL, change=change), "--workloads-only", *words)
                self.assertEqual(code, expected, out)
                self.assertIn("1 workloads of", out)
                self.assertEqual([row["workload"] for row in traces], [row["workload"] for row in rows])

    def test_fused_gates_at_zero(self):
        definition = fused(PREFILL)
        rows = ((("", ""), 0), (("b.float().sigmoid()", "b.float().sigmoid() * 1.01"), 1),
                (("softplus(a.float()", "softplus(1.05 * a.float()"), 1))
        for change, expected in rows if LONG else rows[:2]:
            with self.subTest(change):
                code, out, traces = self.judge(definition, solution(definition, change=change), "--zero-gates",
                                               *(self.FEW if expected else self.SOME))
                self.assertEqual(code, expected, out)
                self.assertIn("at A_log = dt_bias = 0 alone", out)

    def test_sources_that_do_not_load(self):
        for source, said in (("def run(:\n", "invalid syntax"), ("import nothing_of_that_name\n", "nothing_of_that_name"),
                             ("raise SystemExit(0)\n", "SystemExit: 0"), ("def other(): pass\n", "no function run")):
            with self.subTest(said):
                code, out, traces = self.judge(PREFILL, solution(PREFILL, source), *self.FEW)
                self.assertEqual((code, traces), (2, []), out)
                self.assertIn(said, out)

    def test_no_sources_are_left(self):
        before = set(os.listdir(tempfile.gettempdir()))
        self.judge(PREFILL, solution(PREFILL), "--max-cases", "2", "--where", "T=..8")
        left = [name for name in set(os.listdir(tempfile.gettempdir())) - before if name.startswith("samestate-")]
        self.assertEqual(left, [])


if __name__ == "__main__":
    unittest.main()
