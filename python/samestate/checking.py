"""samestate.check: runs the gate on one function, in this process or in one of its own."""
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading

from . import command
from .errors import CommandError, DeclarationError, Failed, NothingRan
from .gradients import BACKWARD, gradients_of, with_gradients
from .serving import Server
from .subject import Subject, subject_of

LINES = 15  # the longest failure text


_PASSES = {"pass": 1, "vacuous": 2, "unsupported": 3, "skipped": 4}  # their order in a table; failures come before them


def _as_number(value):
    """A ratio as a number; it may be 'inf' or 'nan', which counts as the largest."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return 0.0
    return float("inf") if number != number else number


class Summary:
    """The results of a gate: `cases` planned, `judged`, `verdicts` {word: count}, `worst` (the ratio of error
    and bound, below 1 for a pass), `worst_line`, `records` (dicts, as `--jsonl` writes them), `seconds`. A
    notebook shows it as a table."""

    def __init__(self, name, summary, records):
        self.name, self.records = name, records
        self.cases, self.judged = summary.get("cases", len(records)), summary.get("judged", 0)
        self.verdicts, self.seconds = summary.get("verdicts", {}), summary.get("seconds", 0.0)
        passed = [r for r in records if r.get("verdict") == "pass"]
        worst = max(passed, key=lambda r: r.get("ratio") or 0.0, default=None)
        self.worst = worst["ratio"] if worst else None
        self.worst_line = worst["line"] if worst else None

    MOST = 50  # rows of the table

    def _repr_html_(self):
        """The table that a notebook shows: failures first, then passes, with the largest ratio first."""
        from html import escape

        rows = sorted(self.records, key=lambda r: (_PASSES.get(r.get("verdict"), 0), -_as_number(r.get("ratio"))))
        cells = []
        for record in rows[:self.MOST]:
            shown = (record.get("verdict"), _number(record.get("ratio")), _number(record.get("error")),
                     _number(record.get("bound")), record.get("place") or "", record.get("line"),
                     record.get("reason") or "")
            cells.append("<tr>" + "".join(
                f"<td style='text-align:left'>{'<code>' if i == 5 else ''}{escape(str(cell))}"
                f"{'</code>' if i == 5 else ''}</td>" for i, cell in enumerate(shown)) + "</tr>")
        counts = ", ".join(f"{word} {count}" for word, count in self.verdicts.items())
        more = f"<p>and {len(rows) - self.MOST} more</p>" if len(rows) > self.MOST else ""
        head = "".join(f"<th style='text-align:left'>{word}</th>" for word in (
            "verdict", "ratio", "error", "bound", "worst at", "case line", "reason"))
        return (f"<p><b>{escape(self.name)}</b>: {self.cases} cases, {self.judged} judged: {escape(counts)}</p>"
                f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(cells)}</tbody></table>{more}")

    def __str__(self):
        counts = ", ".join(f"{word} {count}" for word, count in self.verdicts.items())
        worst = "" if self.worst is None else f"; worst ratio {self.worst:.3g}: {self.worst_line}"
        return f"{self.name}: {self.cases} cases, {self.judged} judged: {counts}{worst}"

    __repr__ = __str__


def reference_of(function, declaration):
    """The NAME by which another process finds the function. Raises DeclarationError if it cannot."""
    from .serve import joined_name
    from .subject import _where

    path, _ = _where(function)
    name = getattr(function, "__qualname__", "")
    module = sys.modules.get(getattr(function, "__module__", None) or "")
    if not path or not os.path.exists(path) or "<" in name or not name or not hasattr(module, name.split(".")[0]):
        raise DeclarationError(f"{name or function!r} is not found by name from another process: it stands inside a "
                               "function or a notebook; define it at the top of a file")
    home = os.path.realpath(getattr(module, "__file__", None) or path)
    if os.path.realpath(path) != home:
        path = home  # decorated elsewhere: use the module that has the name
    return joined_name(f"{os.path.relpath(path)}:{name}", declaration)


def failure_text(record, failures=(), counts=None, repeat=None, head="samestate"):
    """At most 15 lines: the case line, ratio, worst place, what it looks like, and the command that repeats it."""
    lines = [f"{head}: {record.get('verdict')}: {record.get('line')}"]
    ratio, bound = record.get("ratio"), record.get("bound")
    if record.get("verdict") in ("fail", "flaky") and ratio is not None:
        lines.append(f"  ratio {ratio if isinstance(ratio, str) else format(ratio, '.4g')} ({record.get('gate')}): "
                     f"error {_number(record.get('error'))} of a bound of {_number(bound)}")
        worst = record.get("worst")
        if isinstance(worst, dict) and "expected" in record:
            at = ", ".join(f"{k} {v}" for k, v in worst.items())
            lines.append(f"  worst at {at}: expected {_number(record['expected'], '.9g')}, actual "
                         f"{_number(record.get('actual'), '.9g')}")
    if record.get("reason"):
        lines += ["  " + line for line in str(record["reason"]).splitlines()[:3]]
    looks = record.get("looks_like")
    if looks:
        lines.append("  looks like: " + ("; ".join(looks) if isinstance(looks, list) else str(looks)))
    if counts:
        lines.append("  " + counts)
    for other in list(failures)[:3]:
        lines.append(f"  also {other.get('cases')} of form {other.get('form')}"
                     f"{', law ' + other['law'] if other.get('law') else ''}: {other.get('cause')}")
    if repeat:
        lines.append("  repeat: " + repeat)
    return "\n".join(line[:1000] for line in lines[:LINES])


def _number(value, form=".4g"):
    return format(value, form) if isinstance(value, (int, float)) else str(value)


def _read(path):
    records = []
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            for line in file:
                record = json.loads(line)
                if record.get("event") == "end":
                    records.append(record)
    return records


def _drained(pipe, box):
    def run():
        try:
            box.append(pipe.read())
        except ValueError:
            pass  # closed

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def run_command(arguments, server=None, until=None):
    """(exit code, stdout, stderr) of the command, whose calls of `server` are run in this thread meanwhile.
    However this function ends, the child is ended too."""
    child = command.start(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    out, err = [], []
    try:
        threads = [_drained(child.stdout, out), _drained(child.stderr, err)]
        if server is not None:
            server.pump(child, until)
        code = child.wait()
        for thread in threads:
            thread.join()
        return code, "".join(out), "".join(err)
    finally:
        command.stop(child)


def check(function, system=None, form=None, *, contract=None, array="numpy", device="cpu", limits=(), name=None,
          effort=None, max_cases=None, seed=None, case=None, timeout=None, budget=None, threads=None, isolate=False,
          arguments=None, options=None, dtypes=None, strided=None, bf16="float32", deterministic=True, gate=(),
          gradients=False, **conventions):
    """Runs the gate on a function, and returns a Summary or raises Failed (an AssertionError) with the case
    line.

    `function` is a function, declared by @samestate.kernel or by the arguments here (those of Subject); or a
    name as `python3 -m samestate.serve` takes it, for example that of an adapter, which runs in a process of
    its own, as a function does with isolate=True. A function of this process runs in the thread that calls
    check, so debuggers and coverage see it, and a kernel that hangs or kills its process takes this one with
    it. `effort`, `max_cases`, `seed`, `timeout` (per case) and `budget` are those of the gate; `case` is one
    case line to run instead of the plan; `gate` has further words for the command line, such as ['--regime',
    'normal']. With `gradients`, the gradients that the function's library (torch, jax or mlx) derives for it are
    judged too, for systems whose gradients are judged (docs/do/gradients.md). Raises CommandError if the command is not found or ended
    with exit code 2, and NothingRan (a skip) if there is no device.
    """
    declaration = dict(conventions)
    for key, value, default in (("contracts", [contract] if isinstance(contract, str) else contract, None),
                                ("array", array, "numpy"), ("device", device, "cpu"), ("limits", limits, ()),
                                ("name", name, None), ("arguments", arguments, None), ("options", options, None),
                                ("dtypes", dtypes, None), ("strided", strided, None), ("bf16", bf16, "float32"),
                                ("deterministic", deterministic, True)):
        if value != default and value != []:
            declaration[key] = [value] if key == "limits" and isinstance(value, str) else value
    asked = {"effort": effort, "max_cases": max_cases, "seed": seed, "timeout": timeout, "budget": budget,
             "threads": threads}
    if isinstance(function, str):
        if system or form:
            declaration.update(system=system, form=form)
        from .serve import joined_name, split_name, parsed_options

        plain, pairs = split_name(function)
        spec = "python:" + joined_name(plain, {**parsed_options(pairs), **declaration})
        return _gate(function, [spec], None, None, asked, case, gate, gradients)
    declared = isinstance(function, Subject) or hasattr(function, "__samestate__")
    subject = subject_of(function, system, form, **declaration)
    try:
        said = {} if declared else {"system": system, "form": form, **declaration}
        reachable = "python:" + reference_of(subject.function, said)
    except DeclarationError:
        if isolate:
            raise
        reachable = None
    if isolate:
        return _gate(subject.name, [reachable], _kernels(subject, case, gradients), None, asked, case, gate, gradients)
    subject.library()
    server = Server(with_gradients([subject]))
    try:
        return _gate(subject.name, [server.spec], _kernels(subject, case, gradients), (server, reachable), asked, case, gate,
                     gradients)
    finally:
        server.close()


def _kernels(subject, case, gradients):
    """The names of the kernels of a subject that a check runs. Raises DeclarationError if it has no gradients."""
    if case is not None and "pass=backward" in case.split():
        return [gradients_of(subject).name]
    return [subject.name] + ([gradients_of(subject).name] if gradients else [])


def _own(arguments, gradients):
    """The kernels that the subjects declare, found by `list kernels --json` with and without them; with
    `gradients`, those of gradients too."""
    def listed(more):
        code, out, err = run_command(["list", "kernels", "--json"] + more)
        if code != 0:
            raise CommandError(_last(err) or f"the command ended with exit code {code}")
        return [row["kernel"] for row in json.loads(out)]

    ours = set(listed([]))
    return [kernel for kernel in listed(arguments) if kernel not in ours and (gradients or BACKWARD + "." not in kernel)]


def _last(text):
    lines = [line for line in text.splitlines() if line.strip()]
    return " ".join(lines[-2:])[-1500:]


def _gate(name, specs, kernels, served, asked, case, gate, gradients):
    server, reachable = served or (None, specs[0])
    subject = [word for spec in specs for word in ("--subject", spec)]
    folder = tempfile.mkdtemp(prefix="samestate-")
    try:
        log = os.path.join(folder, "cases.jsonl")
        if case is not None:
            # The command's own kernels must not run instead of the subject's.
            words = ["repro", case, "--json"] + subject + (["--kernel", kernels[0]] if kernels else [])
            words += command.arguments_of({"timeout": asked["timeout"]})
        else:
            kernels = kernels or _own(subject, gradients)
            if not kernels:
                raise CommandError(f"{name} declares no kernel")
            words = ["gate", "--json", "--jsonl", log] + subject + [w for k in kernels for w in ("--kernel", k)]
            words += command.arguments_of(asked) + list(gate)
        code, out, err = run_command(words, server)
        if case is not None:
            record = _json(out)
            records = [record] if record else []
            summary = {"cases": 1, "judged": int(record.get("verdict") in ("pass", "fail")),
                       "verdicts": {record.get("verdict"): 1}} if record else {}
        else:
            records, summary = _read(log), _json(out)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if code == 0:
        return Summary(name, summary, records)
    if code == 77:
        raise NothingRan(_last(err) or f"{name}: nothing could run here")
    if code not in (1, 3, 4, 5):
        raise CommandError(_last(err) or f"the command ended with exit code {code}")
    failure = failed(name, code, records, summary, err, subject_words=subject, reachable=reachable)
    failure.summary = Summary(name, summary, records)
    raise failure


def _json(text):
    try:
        return json.loads(text)
    except ValueError:
        return {}


def repeat_of(line, reachable):
    """The command that repeats a case, or the function to call if it cannot be found by name."""
    if reachable:
        return f"samestate repro --subject {shlex.quote(reachable)} {shlex.quote(line)}"
    return f"samestate.check(.., case={line!r})"


def failed(name, code, records, summary, err, subject_words=(), reachable=None):
    """The Failed exception of a gate: the most frequent kind of failure in full, the others in one line each."""
    failures = sorted(summary.get("failures") or [], key=lambda f: -f.get("cases", 1))
    bad = [r for r in records if r.get("verdict") not in ("pass", "vacuous", "unsupported", "skipped", None)]
    counts = ", ".join(f"{word} {count}" for word, count in summary.get("verdicts", {}).items())
    total = f"{summary.get('cases', len(records))} cases: {counts}" if counts else ""
    if failures:
        first = failures[0]
        record = dict(next((r for r in bad if r["line"] == first.get("line")), first))
        record.update({k: v for k, v in first.items() if k in ("looks_like", "verdict", "line") and v})
    elif bad:
        record = bad[0]
    else:
        said = _last(err) or "too little of it was judged"
        reasons = {}
        for one in records:
            if one.get("verdict") != "pass":
                reasons.setdefault(f"{one.get('verdict')}: {one.get('reason')}", []).append(one.get("line"))
        often = sorted(reasons.items(), key=lambda row: -len(row[1]))[:3]
        why = [f"  {len(lines)} {reason}: {lines[0]}"[:1000] for reason, lines in often]
        return Failed("\n".join([f"samestate: {name}: {said}", f"  {total}", *why]))
    return Failed(failure_text(record, failures[1:], total, repeat_of(record["line"], reachable)), record)
