"""The pytest plugin: options, tests of @samestate.cases, and their entries in reports. Imports no array library."""
import pytest


def pytest_addoption(parser):
    group = parser.getgroup("samestate")
    group.addoption("--samestate-effort", type=float, help="multiplies the drawn cases of every plan")
    group.addoption("--samestate-seed", type=int, help="seed of the drawn cases")
    group.addoption("--samestate-max-cases", type=int, help="at most this many cases per plan")
    group.addoption("--samestate-case", action="append", metavar="LINE", help="only this case line (repeatable)")
    group.addoption("--samestate-isolate", action="store_true", help="samestate_check runs kernels in a separate process")
    group.addoption("--samestate-jsonl", metavar="FILE", help="append a record for each judged case, as the gate's --jsonl, with its test")


CASES = None  # lines of --samestate-case, which strategies use too


def pytest_configure(config):
    global CASES
    CASES = config.getoption("--samestate-case")
    path = config.getoption("--samestate-jsonl")
    if path and not hasattr(config, "workerinput"):
        try:
            open(path, "w").close()
        except OSError as error:
            raise pytest.UsageError(f"--samestate-jsonl {path}: {error.strerror}") from None
    config.pluginmanager.register(_Judged())


def _keep(request, records):
    """Appends records, each with a single write, because workers of pytest-xdist share the file."""
    path = request.config.getoption("--samestate-jsonl")
    if not path:
        return
    import json

    with open(path, "ab", buffering=0) as file:
        for record in records:
            file.write((json.dumps({**record, "test": request.node.nodeid}) + "\n").encode())


def _options(config):
    return {"effort": config.getoption("--samestate-effort"), "seed": config.getoption("--samestate-seed"),
            "max_cases": config.getoption("--samestate-max-cases"), "case": config.getoption("--samestate-case")}


class _Param:
    """The parameter that becomes a Case when its test runs; it is small, because a plan has thousands."""

    __slots__ = ("line", "plan", "test", "reason")

    def __init__(self, line, plan, test, reason=None):
        self.line, self.plan, self.test, self.reason = line, plan, test, reason


def pytest_generate_tests(metafunc):
    plan = getattr(metafunc.function, "__samestate_cases__", None)
    if plan is None:
        return
    from samestate.errors import Error, NothingRan

    try:
        lines = plan.lines(metafunc.function, _options(metafunc.config))
    except NothingRan as nothing:
        params = [_Param(None, plan, metafunc.function, str(nothing))]
        metafunc.parametrize("case", params, ids=["nothing can run here"], indirect=True)
        return
    except Error as error:
        raise pytest.UsageError(f"{metafunc.function.__name__}: {error}") from None
    params = [_Param(line, plan, metafunc.function) for line in lines]
    metafunc.parametrize("case", params, ids=lines, indirect=True)


@pytest.fixture
def case(request, record_property):
    """A samestate.Case, for a test under @samestate.cases; ratio and bound become properties of its report."""
    param = getattr(request, "param", None)
    if not isinstance(param, _Param):
        raise pytest.UsageError("the fixture `case` is for tests under @samestate.cases")
    if param.line is None:
        pytest.skip(param.reason)
    from samestate.casing import Case

    made = Case(param.line, param.plan, param.test)
    try:
        yield made
        if not made.judged and not request.node.stash.get(_ENDED, False):
            pytest.fail(f"samestate: {param.line}: the test ended without case.judge(..)", pytrace=False)
    finally:
        made.close()
        record = made.record or {}
        _keep(request, [made.record] if made.record else [])
        record_property("samestate_verdict", record.get("verdict", "not judged"))
        for key in ("ratio", "bound"):
            if key in record:
                record_property("samestate_" + key, record[key])


_ENDED = pytest.StashKey()


def pytest_itemcollected(item):
    """Makes the words of a line keywords with a colon, because `-k` does not accept `=`: `-k 'T:65 and not
    regime:slow'`."""
    param = item.callspec.params.get("case") if hasattr(item, "callspec") else None
    if isinstance(param, _Param) and param.line:
        item.extra_keyword_matches.update(word.replace("=", ":", 1) for word in param.line.split())


class _Judged:
    """Fails the session if nothing was judged for a test function although cases ran, because such a test shows
    nothing. Counts reports, which the controlling process of pytest-xdist receives too."""

    def __init__(self):
        self._of, self._nothing = {}, []  # {test function: [cases that ran, cases that were judged]}

    def pytest_runtest_logreport(self, report):
        verdict = dict(report.user_properties).get("samestate_verdict") if report.when == "teardown" else None
        if verdict is not None:
            seen = self._of.setdefault(report.nodeid.partition("[")[0], [0, 0])
            seen[0] += 1
            seen[1] += verdict in ("pass", "fail", "flaky", "crash", "timeout")

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session, exitstatus):
        nothing = [name for name, (ran, judged) in self._of.items() if ran and not judged]
        if nothing and exitstatus == 0:
            session.exitstatus, self._nothing = 1, nothing

    def pytest_terminal_summary(self, terminalreporter):
        for name in self._nothing:
            terminalreporter.write_line(f"samestate: of {name} nothing was judged", red=True)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """For a Failed the report is its text, which stands for itself; the frames of this package would not help."""
    from samestate.errors import Failed

    outcome = yield
    if call.when == "call" and call.excinfo is not None:
        item.stash[_ENDED] = True  # it ended by its own failure or skip, so a missing judge() is not reported as well
    if call.excinfo is not None and isinstance(call.excinfo.value, Failed):
        # Notes come from Hypothesis: the example to which it shrank.
        error = call.excinfo.value
        outcome.get_result().longrepr = "\n".join([str(error), *getattr(error, "__notes__", ())])


@pytest.fixture
def samestate_check(request):
    """samestate.check with the options of the command line instead of the arguments in the test."""
    from samestate.checking import check

    said = {k: v for k, v in _options(request.config).items() if v is not None and k != "case"}
    if request.config.getoption("--samestate-isolate"):
        said["isolate"] = True


    def checked(*function, **more):
        from samestate.errors import Failed

        try:
            summary = check(*function, **{**more, **said})
        except Failed as failure:
            _keep(request, failure.summary.records if failure.summary else [])
            raise
        _keep(request, summary.records)
        return summary

    return checked
