"""FlashInfer-Bench's files: gated delta rule definitions and workloads from the plan, and a Solution as a
subject.

    python3 -m samestate.flashinfer_bench definitions --out DIR       definitions, workloads, their tensors
    python3 -m samestate.flashinfer_bench judge DIR --solution FILE   runs the gate on a Solution in Python; its traces

Definitions of gated delta rule prefill, decode and mtp can be judged, with tensors [tokens, heads, width] or
[batch, tokens, heads, width] and states [.., V, K] or [.., K, V]. Plain gates are the inputs g (tag decay:ln,
log2 or linear) and beta. FlashInfer's own definitions fuse them (A_log, a, dt_bias, b) and are judged as
gated_delta_step with the scale dk^-1/2; with --zero-gates they are called with A_log = dt_bias = 0 and judged
by the family's plan, scales and lengths. Exit codes are those of the gate.
"""
import argparse
import glob
import json
import os
import re
import shlex
import shutil
import sys
import tempfile

from . import command, flashinfer_fused
from .errors import Error, ReturnError
from .subject import Subject
from .trace_format import Definition, FormatError, Solution, line_of, load, text_of, write_whole

DTYPES = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}
# The roundings of a definition's own reference: 16-bit inputs and outputs, fp32 inside. For a solution that
# rounds operands, use --contract bf16.
CONTRACTS = {"bfloat16": "bf16_io", "float16": "fp16_io", "float32": "fp32"}
LANGUAGES = ("python", "triton")
PLAIN, FUSED = ("g", "beta"), ("A_log", "a", "dt_bias", "b")

# The axes of each tensor, by stage: T, N and L vary, and the others are constants; 1 is a constant of 1.
_TOKENS = {"prefill": "T", "decode": "N 1", "mtp": "N T"}
_SHAPES = {"q": "{t} Hq K", "k": "{t} Hk K", "v": "{t} Hv V", "g": "{t} Hv", "beta": "{t} Hv", "a": "{t} Hv",
           "b": "{t} Hv", "A_log": "Hv", "dt_bias": "Hv", "cu_seqlens": "L", "output": "{t} Hv V", "initial_state": "P {s}", "final_state": "P {s}",
           "initial_state_indices": "N", "intermediate_states_buffer": "P T {s}", "state": "N {s}", "new_state": "N {s}"}


class Rule:
    """What a definition of the gated delta rule specifies: stage, fused gates, names of its axes, sizes,
    conventions."""

    def __init__(self, definition, zero_gates=False):
        names = set(definition.inputs)
        self.definition, self.fused = definition, bool(names & set(FUSED))
        self.steps = self.fused and not zero_gates  # judged as flashinfer_fused.SYSTEM
        self.stage = "mtp" if "initial_state" in names else "prefill" if "cu_seqlens" in names else "decode"
        mtp = self.stage == "mtp"
        wanted = {"q", "k", "v", "scale", *(FUSED if self.fused or mtp else PLAIN)}
        wanted |= {"prefill": {"state", "cu_seqlens"}, "decode": {"state"}, "mtp": {
            "initial_state", "initial_state_indices", "intermediate_states_buffer"}}[self.stage]
        returned = {"output", "final_state" if mtp else "new_state"}
        if names != wanted or set(definition.outputs) != returned:
            other = sorted(names ^ wanted) or sorted(set(definition.outputs) ^ returned)
            raise FormatError(f"definition {definition.name} is none that can be judged, by {' '.join(other)[:120]}; what can: "
                              "inputs q k v state g beta scale (and cu_seqlens), outputs output new_state; in place of g and "
                              "beta A_log a dt_bias b; of mtp initial_state, its indices and intermediate_states_buffer, "
                              "outputs output final_state")
        if mtp and zero_gates:
            raise FormatError(f"definition {definition.name}: --zero-gates of mtp; leave it out, its gates are judged")
        self.state = self._layout()
        self.axes = {}
        for tensors in (definition.inputs, definition.outputs):
            for name, (shape, _) in tensors.items():
                self._bind(name, shape)
        size = lambda letter: definition.axes[self.axes[letter]]
        self.sizes = {"Hk": size("Hk"), "Hv": size("Hv"), "dk": size("K"), "dv": size("V")}
        if size("Hq") != size("Hk") or size("Hv") % size("Hk"):
            raise FormatError(f"definition {definition.name}: {size('Hq')} query, {size('Hk')} key and {size('Hv')} value "
                              "heads; there must be equally many query and key heads, and a multiple of them as value heads")
        self._read_dtypes()
        self.contract = CONTRACTS[self.dtype]

    def _layout(self):
        said = [tag[7:] for tag in self.definition.tags if tag.startswith("layout:")]
        if said not in (["k-last"], ["v-last"]):
            raise FormatError(f"definition {self.definition.name}: layout of the state {' '.join(said)[:80] or 'not said'}; "
                              "tag it layout:k-last or layout:v-last")
        return "vk" if said == ["k-last"] else "kv"

    def _bind(self, name, shape):
        state = "Hv V K" if self.state == "vk" else "Hv K V"
        text = None if name == "scale" else _SHAPES[name].format(t=_TOKENS[self.stage], s=state)
        letters = text.split() if text else None
        where = f"definition {self.definition.name}: {name}"
        if (letters is None) != (shape is None) or len(letters or ()) != len(shape or ()):
            raise FormatError(f"{where} has shape {shape}; expected {text or 'null'}")
        for letter, axis in zip(letters or (), shape or ()):
            size, bound = self.definition.axes[axis], self.axes.setdefault(letter, axis)
            if (letter in "TNLP") != (size is None) or (letter == "1" and size != 1) or bound != axis:
                other = f" and {bound} elsewhere" if bound != axis else ""
                raise FormatError(f"{where} has {axis} where {letter} of {text} stands{other}; T, N, L and P vary, the others are "
                                  "constants, and each is one axis wherever it stands")

    def _read_dtypes(self):
        dtypes = {name: dtype for name, (_, dtype) in {**self.definition.inputs, **self.definition.outputs}.items()}
        self.dtype = dtypes["q"]
        fixed = {name: self.dtype for name in ("k", "v", "output")}
        fixed.update({name: "float32" for name in ("state", "new_state", "A_log", "dt_bias", "scale", "initial_state",
                                                   "final_state", "intermediate_states_buffer")})
        for name, dtype in fixed.items():
            if dtypes.get(name, dtype) != dtype or self.dtype not in DTYPES:
                raise FormatError(f"definition {self.definition.name}: {name} is {dtypes.get(name)}; expected {dtype}")
        gates = {"g": dtypes["a" if self.fused else "g"], "beta": dtypes["b" if self.fused else "beta"]}
        whole = [dtypes[name] for name in ("cu_seqlens", "initial_state_indices") if name in dtypes]
        if set(gates.values()) - set(DTYPES) or set(whole) - {"int64", "int32"}:
            raise FormatError(f"definition {self.definition.name}: dtypes {gates} and {' '.join(whole)}; numbers "
                              "for gates and int64 or int32 for cu_seqlens and indices are expected")
        self.conventions = {"state": self.state, "heads": "interleaved", "l2norm": "outside", "state_argument": "required",
                            "dtypes": {name: DTYPES[dtype] for name, dtype in gates.items()}}
        if self.stage == "prefill":
            self.conventions.update(layout="THD", cu_seqlens=dtypes["cu_seqlens"])
        if self.fused:
            self.conventions.update(decay="raw", beta="logit")
        else:
            said = [tag[6:] for tag in self.definition.tags if tag.startswith("decay:")]
            if len(said) != 1 or said[0] not in ("ln", "log2", "linear"):
                raise FormatError(f"definition {self.definition.name}: its g is {' '.join(said)[:80] or 'not said'}; tag it "
                                  "decay:ln (the natural log of the factor), decay:log2 or decay:linear (the factor)")
            self.conventions["decay"] = said[0]

    def subject(self, function, contract=None, form=None, device="cpu", gives_outputs=False):
        """The Subject that calls `function` with the inputs in the definition's order."""
        if self.steps:
            return flashinfer_fused.subject(self, function, contract, form, device, gives_outputs)
        form = form or ("chunked" if self.stage == "prefill" else "recurrent")
        limits = [f"{key} = {size}" for key, size in self.sizes.items()]
        limits += ["T >= 1" if self.stage == "prefill" else "T = 1"] + (["chunk = 64"] if form == "chunked" else [])
        limits += ["form != packed"] if self.stage == "decode" else []
        limits += ["scale != 0"] if self.fused else []  # there it means the default

        def solution(q, k, v, g, beta, initial_state, scale, cu_seqlens=None):
            import torch

            given = {"q": q, "k": k, "v": v, "state": initial_state, "scale": scale, "cu_seqlens": cu_seqlens,
                     "g": g, "beta": beta, "a": g, "b": beta}
            for name in ("A_log", "dt_bias"):
                given[name] = torch.zeros(self.sizes["Hv"], dtype=torch.float32, device=q.device)
            shapes = {"output": tuple(v.shape), "new_state": tuple(initial_state.shape)}
            dtypes = {name: getattr(torch, dtype) for name, (_, dtype) in self.definition.outputs.items()}
            arguments = [given[name] for name in self.definition.inputs]
            if gives_outputs:
                made = [torch.full(shapes[name], float("nan"), dtype=dtypes[name], device=q.device) for name in dtypes]
                function(*arguments, *made)
            else:
                made = function(*arguments)
            return checked(made, shapes, dtypes, torch)

        name = "solution." + re.sub(r"[^A-Za-z0-9_]", "_", self.definition.name)
        made = Subject(solution, "gated_delta_rule", form, contracts=[contract or self.contract], limits=limits,
                       array="torch", device=device, name=name, about={"definition": self.definition.name},
                       compiles=True, **self.conventions)
        return made


def checked(made, shapes, dtypes, torch):
    """The outputs of a solution, in the definition's order. A wider dtype is not rounded here, because
    FlashInfer-Bench does not round it either."""
    if not isinstance(made, (tuple, list, dict)) or len(made) != len(dtypes):
        raise ReturnError(f"the solution returned {type(made).__name__}, expected {' and '.join(dtypes)}")
    by_name = made if isinstance(made, dict) else dict(zip(dtypes, made))
    for name in dtypes:
        tensor = by_name.get(name)
        if not isinstance(tensor, torch.Tensor):
            raise ReturnError(f"{name} is a {type(tensor).__name__}, expected a torch.Tensor")
        if tuple(tensor.shape) != shapes[name]:
            raise ReturnError(f"{name} has shape {list(tensor.shape)}, expected {list(shapes[name])}")
        if tensor.dtype != dtypes[name]:
            raise ReturnError(f"{name} has dtype {tensor.dtype}, expected {dtypes[name]}")
    return tuple(by_name[name] for name in shapes)


# -- a folder and a solution

def rule_of(folder, name, zero_gates=False):
    """The Rule of a definition in a folder."""
    found = sorted(glob.glob(os.path.join(glob.escape(folder), "definitions", "*", name + ".json")))
    if len(found) != 1:
        raise FormatError(f"{folder}: {len(found)} files definitions/*/{name}.json; there must be one, as the solution names it")
    definition = Definition(load(found[0]), found[0])
    if definition.name != name:
        raise FormatError(f"{found[0]}: name {definition.name!r:.80}; expected {name}, the name of the file")
    return Rule(definition, zero_gates)


def solution_of(path):
    made = Solution(load(path), path)
    if made.language not in LANGUAGES:
        raise FormatError(f"{path}: language {made.language!r:.40}; known are {' '.join(LANGUAGES)}: other sources are a "
                          "plugin, docs/do/plugin.md, or a program, docs/lookup/subjects.md")
    if not made.entry[0].endswith(".py"):
        raise FormatError(f"{path}: entry_point names {made.entry[0]!r:.80}; expected a file .py")
    return made


def _both(options):
    solution = solution_of(options.solution)
    return solution, rule_of(options.folder, solution.definition, options.zero_gates)


SOURCES = "SAMESTATE_SOLUTION_SOURCES"  # set for judge's children: the folder where it wrote the sources


def function_of(solution, folder):
    """The entry point, imported as FlashInfer-Bench does it: the sources form a package."""
    import importlib

    package = os.path.join(folder, "samestate_solution")
    solution.write_sources(package)
    sys.path.insert(0, folder)
    file, name = solution.entry
    module = importlib.import_module(".".join(["samestate_solution", *file[:-3].split("/")]))
    function = getattr(module, name, None)
    if not callable(function):
        raise FormatError(f"solution {solution.name}: {file} has no function {name}; entry_point FILE::FUNCTION names one")
    return function


def serve(options):
    """Serves a subject of the gate (docs/lookup/subjects.md) over stdin and stdout."""
    import traceback

    from . import protocol
    from .subject import about

    stream = protocol.take_stdio()
    given = os.environ.get(SOURCES)
    folder = tempfile.mkdtemp(prefix="samestate-", dir=given if given and os.path.isdir(given) else None)
    try:
        solution, rule = _both(options)
        function = function_of(solution, folder)
        subject = rule.subject(function, options.contract, options.form, options.device, solution.gives_outputs)
        subject.library()
        protocol.converse(stream, protocol.by_name([subject]), about)
    except KeyboardInterrupt:
        pass
    except (Exception, SystemExit) as error:
        said = str(error)
        if not isinstance(error, Error):
            traceback.print_exc()
            said = f"{type(error).__name__}: {said}"
        print(f"samestate.flashinfer_bench: {options.solution}: {protocol.one_line(said)}", file=sys.stderr)
        return 2
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    sys.stderr.flush()
    os._exit(0)


# -- judging

def judge(options):
    """Runs the gate on a solution, the folder's workloads first, and writes traces; returns the exit code of
    the gate."""
    from .flashinfer_traces import records_of, traces, workloads_of

    solution, rule = _both(options)
    known, foreign = workloads_of(options.folder, rule)
    kernel = rule.subject(lambda *_: None, options.contract, options.form).declaration()
    target = options.traces or os.path.join(options.folder, "traces", rule.definition.op_type, solution.definition + ".jsonl")
    before = text_of(target) if os.path.exists(target) else ""
    folder = tempfile.mkdtemp(prefix="samestate-")
    try:
        words = [sys.executable, "-m", "samestate.flashinfer_bench", "serve", os.path.abspath(options.folder), "--solution",
                 os.path.abspath(options.solution)]
        words += [w for key in ("contract", "form", "device") if getattr(options, key) for w in ("--" + key, getattr(options, key))]
        words += ["--zero-gates"] if options.zero_gates else []
        subject = ["--subject", shlex.join(words), "--kernel", kernel["name"], "--start-timeout", "300"]
        os.environ[SOURCES] = folder
        code, pairs = _replayed(known, kernel, subject, options)
        device = "cuda" if options.device == "cuda" else None
        if code != 2 and not options.workloads_only:
            log = os.path.join(folder, "cases.jsonl")
            asked = {key: getattr(options, key) for key in ("max_cases", "effort", "seed", "timeout", "budget", "where", "threads")}
            gate = _run(["gate", "--jsonl", log] + subject + command.arguments_of(asked))
            code = gate or code
            head, cases = records_of(log)
            device = head.get("device") if device else None
            pairs += [(record, None) for record in cases]
        made = traces(pairs, rule, solution, device)
    finally:
        os.environ.pop(SOURCES, None)
        shutil.rmtree(folder, ignore_errors=True)
    if made:
        write_whole(target, [before if before.endswith("\n") or not before else before + "\n", *map(line_of, made)])
    print(f"{len(made)} traces of {len(pairs)} cases: {target}" if made else "no trace: nothing was judged", file=sys.stderr)
    if foreign:
        print(f"{foreign} workloads of {options.folder} are not cases of samestate, and were not run", file=sys.stderr)
    if rule.fused and not rule.steps:
        print("judged at A_log = dt_bias = 0 alone; what the solution makes of other values was not", file=sys.stderr)
    if not made and code == 0:
        return 3  # a run in which nothing was judged is not a pass
    return code


def _run(words, lines=None):
    """The exit code of the command; with `lines` passed to its stdin, (code, stdout)."""
    import subprocess

    pipes = {} if lines is None else {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    child = command.start(words, **pipes)
    try:
        out = child.communicate(lines)[0]
        return child.returncode if lines is None else (child.returncode, out)
    finally:
        command.stop(child)


def _replayed(known, kernel, subject, options):
    """(exit code, [(record, workload)]) for the folder's workloads."""
    from .flashinfer_traces import line_for

    if not known:
        return 0, []
    words = ["repro", "-", "--json", "--card-budget", "0"] + subject + command.arguments_of({"timeout": options.timeout})
    code, out = _run(words, "".join(line_for(line, kernel) + "\n" for line, _ in known))
    records = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    if len(records) != len(known) and code != 2:
        raise FormatError(f"{len(records)} verdicts of {len(known)} workloads, exit code {code}; run the command's repro on one")
    counts = {}
    for record in records:
        counts[record["verdict"]] = counts.get(record["verdict"], 0) + 1
    said = ", ".join(f"{verdict} {count}" for verdict, count in sorted(counts.items()))
    print(f"{len(known)} workloads of {options.folder}: {said}", file=sys.stderr)
    for record in records:
        if record["verdict"] not in ("pass", "vacuous", "unsupported", "skipped"):
            print(f"  {record['verdict']}: {record['line']}: {record.get('reason')}", file=sys.stderr)
    return code, [(record, workload) for record, (_, workload) in zip(records, known)]


def _options(words):
    parser = argparse.ArgumentParser(prog="python3 -m samestate.flashinfer_bench", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    one = verbs.add_parser("definitions", help="write definitions and workloads of the plan")
    one.add_argument("--out", required=True, help="the folder to write, new or empty")
    one.add_argument("--stage", action="append", choices=("prefill", "decode", "mtp"),
                     help="prefill and decode, unless said; of fused gates mtp too")
    one.add_argument("--fused-gates", action="store_true", help="A_log, a, dt_bias and b, as FlashInfer's own definitions")
    one.add_argument("--qk-heads", type=int, default=4)
    one.add_argument("--v-heads", type=int, default=8)
    one.add_argument("--head-size", type=int, default=128)
    one.add_argument("--dtype", choices=("bfloat16", "float32"), default="bfloat16")
    one.add_argument("--max-cases", type=int, default=12, help="workloads of a definition")
    one.add_argument("--seed", type=int, default=1)
    for verb, text in (("judge", "run the gate on a solution, write traces"), ("serve", "the subject itself, over stdio")):
        one = verbs.add_parser(verb, help=text)
        one.add_argument("folder", metavar="DIR", help="a dataset: definitions/OP/NAME.json, workloads/, traces/")
        one.add_argument("--solution", required=True, help="a Solution, JSON")
        one.add_argument("--contract", help="what it promises to round: bf16_io, fp16_io or fp32 by the definition's dtype (fp32 inside); "
                         "bf16 or bf16+card:nearest where operands are bf16")
        one.add_argument("--form", choices=("chunked", "recurrent"), help="chunked of prefill, recurrent of decode")
        one.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
        one.add_argument("--zero-gates", action="store_true", help="judge fused gates at A_log = dt_bias = 0 alone, by the family's plan")
        if verb == "judge":
            one.add_argument("--workloads-only", action="store_true", help="the folder's workloads, not the gate's plan")
            one.add_argument("--traces", help="the file of traces, DIR/traces/OP/NAME.jsonl unless said")
            one.add_argument("--where", action="append", help="as of gate, as are the following")
            for name, kind in (("max-cases", int), ("effort", float), ("seed", int), ("timeout", str), ("budget", str),
                               ("threads", int)):
                one.add_argument("--" + name, type=kind)
    return parser.parse_args(words)


def main(words=None):
    options = _options(sys.argv[1:] if words is None else words)
    try:
        if options.verb == "definitions":
            from .flashinfer_traces import definitions

            return definitions(options)
        return (judge if options.verb == "judge" else serve)(options)
    except (Error, OSError) as error:
        print(f"samestate.flashinfer_bench: {' '.join(str(error).split())}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
