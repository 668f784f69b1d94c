"""samestate.strategies: cases for Hypothesis, which draws their structure and a seed, but never data.

    from samestate import strategies

    @strategies.settings(max_examples=200)
    @hypothesis.given(case=strategies.cases("retention", "recurrent", limits=["dk <= 64"]))
    def test_mine(case):
        case.judge(*mine(case.q, case.k, case.v, case.g, case.scale, case.initial_state))

A drawn case is a case line: sizes, lengths, chunk, regime, state, layout, scale, l2norm, heads, and a seed from
which the judge makes the data. So Hypothesis shrinks the line, and the line alone repeats a failure. Hypothesis
is imported when a strategy is created.
"""
import json
import re
import struct
import sys

from .casing import Case, Plan
from .checking import _last, run_command
from .errors import CommandError, DeclarationError, Failed, NothingRan, nearest
from .subject import FAMILY

# The ranges that are drawn unless `sizes` says otherwise: a case of a test takes milliseconds.
SIZES = {"T": (1, 130), "B": (1, 3), "Hk": (1, 3), "Hv": (1, 6), "dk": (1, 66), "dv": (1, 66), "chunk": (1, 128),
         "sequences": (1, 5)}
SCALES = (None, "1", "-0.5", "0.125", "0", "2")  # powers of two, which exact regimes accept too
UNOWNED = ("0,0", "0,2", "3,0", "3,5")


def _hypothesis():
    try:
        import hypothesis
    except ImportError as error:
        raise ImportError("samestate.strategies needs hypothesis: pip install hypothesis") from error
    return hypothesis


def settings(**more):
    """hypothesis.settings without a deadline, since a kernel may compile on its first call and the judge is
    another process, and without the phase explain, which varies what shrinking left and names lines of this
    package."""
    hypothesis = _hypothesis()
    phases = [phase for phase in hypothesis.Phase if phase.name != "explain"]
    return hypothesis.settings(**{"deadline": None, "phases": phases, **more})


def cases(system, form=None, *, contract=None, limits=(), sizes=None, regimes=None, layouts=None, states=None,
          scales=None, lines=None, array="numpy", device="cpu", name=None, bf16="float32", strided=None, **conventions):
    """A strategy of Case: tensors, numbers and judge(o, final_state) as in @samestate.cases, and `form`.

    `form` is that of the kernel; None draws one of the system's forms, and case.form says which. `limits` and
    conventions are those of the declaration; nothing outside them is drawn. `sizes`, for example {'T': (1,
    300), 'dk': [64, 128], 'sequences': 4}, replaces SIZES by a range, by a list of values, or by one value.
    `regimes`, `layouts`, `states` and `scales` (texts of the case line, None for dk^-1/2) are the choices to
    draw from, simplest first. `lines` are case lines to use instead, to repeat a failure without pytest; in
    pytest use --samestate-case LINE.

    A vacuous or unsupported case is rejected (hypothesis.reject), and the ratio of error and bound is the
    target that hypothesis.target increases. Tests must not have a deadline: use settings above, or
    settings(deadline=None).
    """
    hypothesis = _hypothesis()
    st = hypothesis.strategies
    contracts = [contract] if isinstance(contract, str) else list(contract or ["fp32"])
    declaration = {"contracts": contracts, "limits": [limits] if isinstance(limits, str) else list(limits),
                   "array": array, "device": device, "bf16": bf16, "strided": strided, **conventions}
    if name:
        declaration["name"] = name
    caller = sys._getframe(1).f_globals.get("__name__", "mine")

    def drawn_by_hypothesis():
        """Stands for the test function, which a strategy does not know."""

    drawn_by_hypothesis.__module__, drawn_by_hypothesis.__qualname__ = caller, "drawn_by_hypothesis"
    space = _Space(system, form, declaration, drawn_by_hypothesis, sizes or {}, regimes, layouts, states, scales)

    @st.composite
    def samestate_cases(draw):
        deadline = hypothesis.settings.default.deadline
        if deadline is not None:
            raise DeclarationError(f"deadline {deadline.total_seconds() * 1e3:.0f} ms, and a case waits for the judge: "
                                   "decorate the test with samestate.strategies.settings(..) or "
                                   "hypothesis.settings(deadline=None)")
        asked = list(lines) if lines is not None else _asked_for(system)
        if asked is not None:
            line = draw(st.sampled_from(asked))
            own = space.form_of(line)
        else:
            own, line = space.draw(draw, hypothesis)
        case = _Drawn(line, space.plan(own), drawn_by_hypothesis)
        # The test may end before judge(), so what was started is ended here too.
        from hypothesis.control import cleanup

        cleanup(case._ended)
        return case

    return samestate_cases()


def _asked_for(system):
    """The lines of pytest's --samestate-case, or None; skips the test if all of them belong to other systems."""
    plugin = sys.modules.get("samestate.pytest_plugin")
    said = getattr(plugin, "CASES", None)
    if not said:
        return None
    own = [line for line in said if line.split()[1:2] == [system]]
    if not own:
        raise NothingRan(f"no --samestate-case is of {system}")
    return own


# -- what is drawn from

_KNOWN = {}


def _rows(what):
    """The rows of a listing of the command, requested once per process."""
    if what not in _KNOWN:
        code, out, err = run_command(["list", what, "--json"])
        if code != 0:
            raise CommandError(_last(err) or f"the command ended with exit code {code}")
        _KNOWN[what] = json.loads(out)
    return _KNOWN[what]


def _forms(system):
    rows = {row["system"]: row for row in _rows("systems")}
    if system not in rows:
        raise DeclarationError(f"system {system}{nearest(system, rows)}; `samestate list systems` has them")
    return rows[system]["forms"].split()


def _keys(system):
    """The command's rows for a system's keys, in the order of canonical lines; if the family and a system of
    named tensors both have a key of that name, the system's own."""
    family = system in FAMILY
    systems = {row["system"] for row in _rows("systems")}
    return [row for row in _rows("keys")
            if row["of"] == system or row["of"] not in systems and (family or row["of"] != "the recurrent family")]


def _layouts():
    """The layouts of the key except the one with rows that are far apart, which must be requested."""
    row = next(row for row in _rows("keys") if row["key"] == "layout")
    return [layout for layout in row["values"].split(", ") if layout != "far"]


def _own_sizes(system):
    """{name: (default, least, most)} for the sizes that only this system has."""
    rows = [row for row in _keys(system) if row["of"] == system]
    return {row["key"]: (int(row["default"]), *map(int, row["values"].split(".."))) for row in rows}


def _regimes(system):
    """{name: True if it is judged bit for bit} for the system's regimes, with `normal` first."""
    return {row["regime"]: row["judged"] == "bit for bit" for row in _rows("regimes")
            if system in row["systems"].split()}


def weighted(least, most):
    """Integers from least to most, ascending, so that Hypothesis shrinks to the smallest that fails: all of
    them up to 66, and above that powers of two, their neighbours and multiples of 8; the former are listed
    three times, multiples of 8 twice."""
    beside = {p + d for p in (1 << i for i in range(25)) for d in (-1, 0, 1)}
    out = []
    for n in range(least, most + 1):
        if n in beside or n in (least, most):
            out += [n] * 3
        elif n % 8 == 0:
            out += [n] * 2
        elif n <= 66:
            out.append(n)
    return out


def _values(said):
    """The list to draw from, for what `sizes` says about one size."""
    if isinstance(said, int):
        return [said]
    if isinstance(said, tuple) and len(said) == 2:
        return weighted(*said)
    return sorted(said)


_CONDITION = re.compile(r"(\w+)\s*(?:(<=|>=|!=|=)\s*(\S+)|%\s*(\d+)\s*=\s*(\d+)|in\s+(.+))$")


def _holds(condition, values):
    """True if a limit of a declaration (docs/plugins.md) holds for {key: value}; None if it names something
    unknown, which the judge has to report."""
    first, _, behind = condition.partition(" if ")
    if behind:
        given = _holds(behind, values)
        return True if given is False else _holds(first, values) if given else None
    match = _CONDITION.match(first.strip())
    if not match or match[1] not in values:
        return None
    key, sign, other, modulus, rest, listed = match.groups()
    value = values[key]
    try:
        if modulus:
            return int(value) % int(modulus) == int(rest)
        if listed:
            between = re.match(r"(-?\d+)\.\.(-?\d+)$", listed.strip())
            if between:
                return int(between[1]) <= int(value) <= int(between[2])
            return str(value) in listed.split()
        if sign in ("=", "!="):
            return (str(values.get(other, other)) == str(value)) == (sign == "=")
        bound = float(values.get(other, other))
        return float(value) <= bound if sign == "<=" else float(value) >= bound
    except (TypeError, ValueError):
        return None


def _fp32(x):
    """The text of the fp32 number nearest to x, which reads back as exactly that number."""
    return repr(struct.unpack("<f", struct.pack("<f", x))[0])


class _Space:
    """All lines that a test may be given under a declaration."""

    def __init__(self, system, form, declaration, test, sizes, regimes, layouts, states, scales):
        self.system, self.form, self._declaration, self._test = system, form, declaration, test
        self.family = system in FAMILY
        self._sizes, self._regimes, self._scales = sizes, regimes, scales
        self._layouts, self._states, self._plans = layouts or _layouts(), states or ("none", "random"), {}
        if form is not None:
            self.plan(form)  # errors in the declaration are raised where it is written

    def plan(self, form):
        if form not in self._plans:
            plan = Plan(self.system, form, dict(self._declaration), {}, [])
            self._plans[form] = plan
            subject = plan.subject(self._test)
            self.limits, self.say, self.contracts = subject.limits, subject.conventions, subject.contracts
        return self._plans[form]

    def forms(self):
        if self.form is not None:
            return [self.form]
        # decode makes several calls, but a test computes only one; packed is a form of calls, not of kernels;
        # with one rank sequence_parallel and head_parallel are the same as chunked.
        return [form for form in _forms(self.system)
                if form not in ("decode", "packed", "sequence_parallel", "head_parallel")]

    def form_of(self, line):
        """The form of the kernel that a line needs."""
        said = dict(word.partition("=")[::2] for word in line.split()[2:])
        form = said.get("form", _forms(self.system)[0])
        if self.form is not None:
            return self.form
        if form == "packed":
            return "recurrent" if said.get("chunk") == "0" else "chunked"
        return form

    def _among(self, key, values):
        """The values of a key that no limit on this key alone excludes."""
        kept = [v for v in values if all(_holds(limit, {key: v}) is not False for limit in self.limits)]
        if not kept:
            raise DeclarationError(f"no {key} of {_short(values)} lies within the limits {'; '.join(self.limits)}: "
                                   f"say sizes={{'{key}': ..}}")
        return kept

    def _size(self, key, default=None):
        return self._among(key, _values(self._sizes.get(key, default or SIZES[key])))

    def draw(self, draw, hypothesis):
        """(form of the kernel, case line)."""
        pick = lambda values: draw(hypothesis.strategies.sampled_from(list(values)))
        form = pick(self.forms())
        self.plan(form)
        x = {"form": form, "contract": pick(self._among("contract", self.contracts))}
        x["regime"] = pick(self._among("regime", self._regimes or _regimes(self.system)))
        (self._draw_family if self.family else self._draw_named)(x, pick)
        x["layout"] = pick(self._among("layout", self._layouts))
        x["seed"] = draw(hypothesis.strategies.integers(0, 2 ** 64 - 1))
        values = {**x, "Hv": x.get("Hv", 1), "sequences": len(x["lengths"]) if x.get("lengths") else x["B"]}
        if x.get("lengths"):
            values["T"] = sum(x["lengths"])
        hypothesis.assume(all(_holds(limit, values) is not False for limit in self.limits))
        return form, self._line(x)

    def _draw_family(self, x, pick):
        form, say = x["form"], self.say
        packs = form != "parallel" and all(_holds(limit, {"form": "packed"}) is not False for limit in self.limits)
        packed = packs and pick([False, False, True])
        if form == "chunked":
            x["chunk"] = pick(self._size("chunk"))
        if packed:
            x["form"], x["B"] = "packed", 1
            x.setdefault("chunk", 0)
            most = max(self._size("T"))
            lengths = [pick([0] + weighted(1, min(most, 66))) for _ in range(pick(self._size("sequences")))]
            left = most
            for i, length in enumerate(lengths):
                lengths[i] = min(length, left)
                left -= lengths[i]
            x["lengths"] = lengths if any(lengths) else lengths[:-1] + [1]
            x["unowned"] = pick(UNOWNED)
        else:
            x["T"], x["B"] = pick(self._size("T")), pick(self._size("B"))
        x["Hk"] = pick(self._size("Hk"))
        groups = [n for n in self._size("Hv") if n % x["Hk"] == 0]
        x["Hv"] = pick(groups or [x["Hk"]])
        x["dk"] = pick(self._size("dk"))
        x["dv"] = pick(self._size("dv"))
        x["heads"] = pick(self._among("heads", ["interleaved", "tiled"])) if x["Hv"] != x["Hk"] else "interleaved"
        norms = {"outside": [0], "in_kernel": [1]}.get(say.get("l2norm"), [0, 1])
        # With a normalised row nothing is exact.
        x["l2norm"] = 0 if _regimes(self.system).get(x["regime"]) else pick(self._among("l2norm", norms))
        own = say.get("scale", "argument")
        if own == "dv":
            x["scale"] = None if x["dk"] == x["dv"] else _fp32(x["dv"] ** -0.5)
        else:
            x["scale"] = None if own == "dk" else pick(self._among("scale", self._scales or SCALES))
        x["state"] = pick(self._among("state", self._states))
        x["final"] = pick(self._among("final", ["apart"] + (["in_place"] if x["state"] == "random" else [])))

    def _draw_named(self, x, pick):
        x["T"], x["B"] = pick(self._size("T")), pick(self._size("B"))
        if "chunk" in x["form"]:
            x["chunk"] = pick(self._size("chunk"))
        for name, (default, least, most) in _own_sizes(self.system).items():
            near = range(max(least, default - 2), min(most, 2 * default + 2) + 1)
            x[name] = pick(self._size(name, sorted({default, *near})))

    def _line(self, x):
        """The canonical line: keys in the command's order, with defaults left out."""
        words = ["v1", self.system]
        for row in _keys(self.system):
            key, default = row["key"], row["default"]
            if x.get(key) is None:
                continue
            value = ",".join(map(str, x[key])) if key == "lengths" else hex(x[key]) if key == "seed" else str(x[key])
            default = _forms(self.system)[0] if key == "form" else str(x.get(default, default))
            if value != default:
                words.append(f"{key}={value}")
        return " ".join(words)


def _short(values):
    return f"{min(values)}..{max(values)}" if isinstance(values[0], int) else " ".join(map(str, values))


# -- what is drawn

class _Drawn(Case):
    """A Case whose verdict goes to Hypothesis: vacuous and unsupported are rejections, and the ratio is a target."""

    def __repr__(self):
        return f"Case({self.line!r})"

    @property
    def form(self):
        """The form of the kernel that is asked for: packed calls are calls of the recurrent or chunked form."""
        return self._plan.form

    def _reject(self, reason):
        import hypothesis

        hypothesis.event(f"samestate: {reason}")
        hypothesis.reject()

    def _start(self):
        try:
            super()._start()
        except NothingRan as nothing:
            self._reject(nothing)
        except CommandError as error:
            if self._plan.system in FAMILY:
                raise
            # Only the command knows which sizes of a system of named tensors are possible together.
            self._reject(error)

    def judge(self, *results, **named):
        try:
            return super().judge(*results, **named)
        except NothingRan as nothing:
            self._reject(nothing)
        finally:
            self._target()

    def _target(self):
        import hypothesis

        ratio = (self.record or {}).get("ratio")
        if ratio is None or not hypothesis.currently_in_test_context():
            return
        try:
            hypothesis.target(min(float(ratio), 1e300), label="samestate ratio")
        except (ValueError, hypothesis.errors.InvalidArgument):
            pass  # not a number, or a second case in the same test

    def _ended(self):
        """At the end of the test: a test that ends without an error but never judged shows nothing, so it fails."""
        judged, raised = self.judged, sys.exc_info()[0]
        self.close()
        if not judged and raised is None:
            raise Failed(f"samestate: {self.line}: the test ended without case.judge(..)")

    def _repeat(self):
        import os

        test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
        if not test:
            return f"samestate.strategies.cases(.., lines=[{self.line!r}])"
        return f"pytest '{test}' --samestate-case '{self.line}'"
