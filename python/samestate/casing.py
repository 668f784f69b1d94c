"""@samestate.cases: a test for each case line of a plan. The test computes the outputs in its own way and has
them judged.

    @samestate.cases("retention", "recurrent", contract="fp32", max_cases=50)
    def test_mine(case):
        case.judge(*mine(case.q, case.k, case.v, case.g, case.scale, case.initial_state))

The command asks for the call as it would ask a kernel (Server), so the tensors are in the judge's own memory
and the conventions apply; the test takes the role of the kernel. It is asked once per case. Cases that call a
kernel again with its own results (form=decode, laws, repeat=1) are left to samestate.check.
"""
import json

from . import command
from .checking import _last, failure_text, run_command
from .errors import CommandError, DeclarationError, Failed, NothingRan
from .serving import Server
from .subject import ALIASES, FAMILY, Subject

# final=none repeats the call to get the state, which for a test that computes once is the same as final=apart.
LISTED = ("--law", "none", "--exclude", "form=decode", "--exclude", "repeat=1", "--exclude", "final=none")
_GIVEN = ("scale", "chunk", "threads", "l2norm", "heads", "contract", "batch", "tokens", "parameters")


class _Asked(Subject):
    """The declaration of a test: the call waits until the test has computed what was asked for."""

    def __init__(self, test, system, form, conventions, **more):
        def everything(**tensors):
            """Never called: run() below replaces it."""

        everything.__qualname__, everything.__module__ = test.__qualname__, test.__module__
        self._test = test
        arguments = {name: name for name in ALIASES if system in FAMILY}
        super().__init__(everything, system, form, arguments=arguments, **more, **conventions)

    def declaration(self):
        row = super().declaration()
        row["about"]["function"] = self._test.__qualname__
        return row


_LISTED = {}  # for this process: tests of one plan in a module share its lines


class Plan:
    """The arguments of @samestate.cases; lists its lines when tests are collected."""

    def __init__(self, system, form, declaration, asked, where):
        self.system, self.form, self.declaration, self.asked, self.where = system, form, declaration, asked, where

    def subject(self, test):
        declaration = dict(self.declaration)
        conventions = {key: declaration.pop(key) for key in list(declaration) if key not in (
            "contracts", "gradient_contracts", "limits", "array", "device", "name", "bf16", "strided")}
        return _Asked(test, self.system, self.form, conventions, **declaration)

    def lines(self, test, options):
        """The case lines, which are the same for the same options. `options`: effort, seed, max_cases and case
        from the command line."""
        subject = self.subject(test)
        if options.get("case"):
            return [line for line in options["case"] if line.split()[1:2] == [self.system]]
        asked = {**self.asked, **{k: v for k, v in options.items() if v is not None and k != "case"}}
        row = {k: v for k, v in subject.declaration().items() if k != "about"}
        key = json.dumps([row, asked, self.where, command.executable()], sort_keys=True)
        if key not in _LISTED:
            server = Server([subject])
            try:
                code, out, err = run_command(
                    ["gate", "--list", "--json", "--subject", server.spec, "--kernel", subject.name, *LISTED]
                    + (["--exclude", "form=packed"] if "form != packed" in subject.limits else [])
                    + [word for where in self.where for word in ("--where", where)]
                    + command.arguments_of(asked), server)
            finally:
                server.close()
            if code == 77:
                raise NothingRan(_last(err))
            if code != 0:
                raise CommandError(_last(err) or f"the command ended with exit code {code}")
            _LISTED[key] = [row["line"] for row in json.loads(out)]
        return _LISTED[key]


def cases(system, form, *, contract=None, limits=(), array="numpy", device="cpu", effort=None, max_cases=None,
          seed=None, where=(), name=None, bf16="float32", strided=None, **conventions):
    """Parametrises a test by the case lines of a plan; its argument `case` is a Case. Needs the pytest plugin
    of this package. `where` are conditions of the gate ('T=..256'); conventions are those of docs/lookup/subjects.md,
    and apply to the tensors that `case` has."""
    contracts = [contract] if isinstance(contract, str) else contract or ["fp32"]
    declaration = {"contracts": contracts, "limits": list([limits] if isinstance(limits, str) else limits),
                   "array": array, "device": device, "bf16": bf16, "strided": strided, **conventions}
    if name:
        declaration["name"] = name
    asked = {"effort": effort, "max_cases": max_cases, "seed": seed}
    plan = Plan(system, form, declaration, asked, [where] if isinstance(where, str) else list(where))

    def mark(test):
        plan.subject(test)  # errors in the declaration are raised where it is written
        test.__samestate_cases__ = plan
        return test

    return mark


class Case:
    """One case of a plan, in a test. Its attributes are the tensors by name (q, k, v, g, beta, initial_state,
    cu_seqlens, each None if the call has none; other systems have their own), numbers (scale, chunk, batch,
    tokens, and the sizes), and `line`. judge(o, final_state) judges the results."""

    def __init__(self, line, plan, test):
        self.line, self._plan, self._test = line, plan, test
        self._server = self._child = self._request = self._memory = None
        self._results = self._key = self._record = None
        self.judged = False

    # -- asking

    def _start(self):
        if self._request is not None:
            return
        import subprocess

        from .checking import _drained

        self._subject = self._plan.subject(self._test)
        self._library = self._subject.library()
        self._server = Server([self._subject], self._call)
        words = ["repro", self.line, "--json", "--card-budget", "0", "--subject", self._server.spec, "--kernel",
                 self._subject.name]
        self._child = command.start(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self._out, self._err = [], []
        self._readers = [_drained(self._child.stdout, self._out), _drained(self._child.stderr, self._err)]
        self._wait()
        if self._request is None:  # the judge asked for nothing: unsupported, vacuous, no device, or a wrong line
            self._finish()
            raise Failed(f"samestate: {self.line}: the judge requested no call")

    def _wait(self):
        """Waits for the first request, which judge() answers."""
        import queue

        while True:
            try:
                item = self._server._calls.get(timeout=0.02)
            except queue.Empty:
                if self._child.poll() is not None:
                    return
                continue
            self._held = item
            _, self._request, memory, _, _, _ = item
            self._memory = memory
            mapped = memory.map(self._request["bytes"])
            self._arrays = {t["name"]: self._library.given(mapped, t) for t in self._request["inputs"]}
            self._key = self._inputs_of(self._request, mapped)
            return

    @staticmethod
    def _inputs_of(request, mapped):
        """What distinguishes one call from another: sizes and the bytes of the inputs, but not which outputs
        are wanted."""
        from .protocol import extents

        parts = [json.dumps([request["kernel"], request.get("chunk"), request.get("scale"),
                             [[t["name"], t["shape"]] for t in request["inputs"]]])]
        for tensor in request["inputs"]:
            parts.extend(bytes(mapped[begin:end]) for begin, end in extents(tensor))
        return parts

    def _call(self, subjects, request, memory, stream):
        """Answers further calls of the same case: equal inputs have equal outputs."""
        from .protocol import answer_to

        try:
            mapped = memory.map(request["bytes"])
            if self._inputs_of(request, mapped) != self._key:
                raise Failed("the judge asks for another call of this case; a test computes one: use samestate.check")
            lacking = [t["name"] for t in request["outputs"] if self._results.get(t["name"]) is None]
            if lacking:
                raise Failed(f"the judge asks for {' and '.join(lacking)} too, in a second call (final=none): give it "
                             "to judge(..) all the same, or use samestate.check")
            return self._store(request, mapped)
        except BaseException as error:
            return answer_to(error, request.get("id"))

    def _store(self, request, mapped):
        by_name = {t["name"]: self._library.given(mapped, t) for t in request["inputs"] if t["name"] == "cu_seqlens"}
        at = {t["offset"] for t in request["inputs"] if 0 not in t["shape"]}
        for tensor in sorted(request["outputs"], key=lambda t: t["offset"] in at):
            part = self._subject._owned(tensor, request["inputs"], by_name)
            self._library.store(mapped, tensor, self._results[tensor["name"]], part)
        return {"type": "ran", "id": request["id"]}

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        self._start()
        if name in self._arrays:
            return self._arrays[name]
        if name in _GIVEN:
            return self._request.get(name)
        if name in self._request["parameters"]:
            return self._request["parameters"][name]
        if self._subject.family and name in ("g", "beta", "initial_state", "cu_seqlens"):
            return None
        if name == "output_final_state":
            return any(t["name"] == "final_state" for t in self._request["outputs"])
        raise AttributeError(f"the case has no {name}: {' '.join([*self._arrays, *_GIVEN])}")

    # -- judging

    def judge(self, *results, **named):
        """Judges the test's results: o and final_state (left out, or None, if the call does not want it), or
        for named tensors the outputs in order or by name. Raises Failed; a vacuous or unsupported case is
        skipped. Raises ReturnError or TypeError for results of the wrong shape, dtype or number."""
        self._start()
        self.judged = True
        if self._results is not None:
            raise Failed(f"samestate: {self.line}: it was judged already")
        wanted = [t["name"] for t in self._request["outputs"]]
        got = dict(zip(["o", "final_state"] if self._subject.family else wanted, results), **named)
        if len(results) > len(got):
            raise DeclarationError(f"{len(results)} results, expected {' and '.join(wanted)}")
        from .errors import ReturnError

        lacking = [name for name in wanted if name not in got]
        if lacking:
            raise ReturnError(f"judge(..) without {' and '.join(lacking)}")
        self._results = got
        _, request, memory, _, done, box = self._held
        if hasattr(self._library, "synchronise"):
            self._library.synchronise()
        mapped = memory.map(request["bytes"])
        outputs = {t["offset"] for t in request["outputs"]}
        kept = [t for t in request["inputs"] if t["offset"] not in outputs]
        answer = self._store(request, mapped)
        self._library.finish(mapped, kept, [self._arrays[t["name"]] for t in kept])
        box.append(answer)
        done.set()
        self._held = None
        self._server.pump(self._child)
        self._finish()
        return self._record

    def _finish(self):
        """Reads the verdict, and raises an exception for it unless it is a pass."""
        code = self._child.wait()
        for reader in self._readers:
            reader.join()
        out, err = "".join(self._out), "".join(self._err)
        try:
            self._record = json.loads(out)
        except ValueError:
            self._record = {}
        verdict = self._record.get("verdict")
        self.judged = True
        self.close()
        if code == 0 and verdict in (None, "pass"):
            return
        if verdict in ("vacuous", "unsupported", "skipped") or code == 77:
            raise NothingRan(f"{verdict or 'nothing ran'}: {self._record.get('reason') or _last(err)}")
        if not self._record:
            raise CommandError(_last(err) or f"the command ended with exit code {code}")
        raise Failed(failure_text(self._record, repeat=self._repeat()), self._record)

    def _repeat(self):
        test = f"{self._test.__module__.replace('.', '/')}.py"
        return f"pytest {test} -k {self._test.__name__} --samestate-case '{self.line}'"

    @property
    def record(self):
        """The record of the judge, a dict as `samestate repro --json` prints it; None before the case is judged."""
        return self._record

    def close(self):
        """Ends the command if the test ended first."""
        held, self._held = getattr(self, "_held", None), None
        if held:
            held[5].append({"type": "error", "id": held[1].get("id"), "reason": "the test ended without judge()"})
            held[4].set()
        if self._child is not None:
            command.stop(self._child)
        if self._server is not None:
            self._server.close()
            self._server = None
        self._arrays = {}
