"""The ledger of a call: how long its parts took, and which kernels it compiled.

A process has one ledger. Code that performs a part of a call enters it (`with LEDGER.span("copy")`, `with
LEDGER.compiling("kernel")`), from any thread. Each moment is charged to one kind, the first of KINDS that is
active, so the parts never add up to more than the call took. It needs only the standard library.
"""
import contextlib
import threading
import time

from .forwarding import paused

# In order of precedence: a compilation that a tuner or an import requested is charged as a compilation.
KINDS = ("compile", "tune", "import", "copy", "kernel")
MOST_NAMES = 8  # the longest list of kernel names, and of chosen configurations, that an answer carries
_FROM_COMPILER = "__samestate_compiler__"


class _Span:
    def __init__(self, ledger, kind):
        self._ledger, self._kind = ledger, kind

    def __enter__(self):
        self._ledger._enter(self._kind)

    def __exit__(self, *_):
        self._ledger._leave(self._kind)


class Compilation:
    """One running compilation. Its watcher sets `loaded` or `nothing` before it ends."""

    def __init__(self, name):
        self.name = name
        self.loaded = False  # a cache on disk had the kernel
        self.nothing = False  # no kernel was compiled, and none loaded


class Ledger:
    """Seconds by kind, and counts of compilations and launches, since `begin`."""

    def __init__(self, clock=time.perf_counter):
        self._clock, self._lock = clock, threading.Lock()
        self._under_way = dict.fromkeys(KINDS, 0)
        self._since = clock()
        self._here = threading.local()
        self._names_under_way = []
        self.on_compilation = None  # called, in the thread that compiles, when compiling, tuning or importing begins
        self.on_choice = None  # called, in the thread that tunes, when `tuned` changes before the kernel runs
        self.begin()
        self.in_call = False

    def begin(self):
        """Starts a call, with all counts at zero."""
        with self._lock:
            self._charge()
            self._seconds = dict.fromkeys(KINDS, 0.0)
            self._compiled, self._loaded, self._names, self.launches = 0, 0, [], 0
            self._by, self._chosen = "", []
            self.in_call = True

    def end(self):
        self.in_call = False

    def _charge(self):
        now = self._clock()
        for kind in KINDS:
            if self._under_way[kind]:
                self._seconds[kind] += now - self._since
                break
        self._since = now

    def _enter(self, kind):
        with self._lock:
            self._charge()
            self._under_way[kind] += 1
        tell = self.on_compilation
        if tell is not None and kind in KINDS[:3]:
            tell()

    def _leave(self, kind):
        with self._lock:
            self._charge()
            self._under_way[kind] -= 1

    def span(self, kind):
        """A context whose time is charged to `kind`, unless an earlier one of KINDS is active."""
        return _Span(self, kind)

    @contextlib.contextmanager
    def compiling(self, name):
        """A context for one compilation. A compilation inside another one on the same thread is part of it and
        is not counted. One that raises is not counted either, and its exception is marked as a compiler's."""
        outer = getattr(self._here, "compilation", None)
        one = Compilation(str(name))
        self._here.compilation = one
        with self._lock:
            self._names_under_way.append(one.name)
        self._enter("compile")
        try:
            with paused():
                yield one
        except BaseException as error:
            mark(error)
            raise
        else:
            if outer is None and not one.nothing:
                self.count(one.name, one.loaded)
        finally:
            self._leave("compile")
            self._here.compilation = outer
            with self._lock:
                self._names_under_way.remove(one.name)

    def compilation(self):
        """The innermost compilation of this thread, or None."""
        return getattr(self._here, "compilation", None)

    def count(self, name, loaded=False):
        """Counts a kernel that was compiled, or loaded from a cache on disk."""
        with self._lock:
            if loaded:
                self._loaded += 1
                return
            self._compiled += 1
            if name not in self._names and len(self._names) < MOST_NAMES:
                self._names.append(name)

    def chose(self, by, configuration):
        """Enters a configuration, in words, that a tuner chose under the setting `by`, once."""
        with self._lock:
            if configuration in self._chosen or len(self._chosen) == MOST_NAMES:
                return
            self._by = by
            self._chosen.append(configuration)
        if self.on_choice is not None:
            self.on_choice()

    def withdraw(self, configuration):
        """Takes back a configuration that turned out not to run."""
        with self._lock:
            if configuration in self._chosen:
                self._chosen.remove(configuration)

    def tuned(self):
        """{"by": setting, "configurations": [..]} of this call; None if no tuner chose one."""
        with self._lock:
            return {"by": self._by, "configurations": list(self._chosen)} if self._chosen else None

    def launched(self):
        """Counts a launch. Launches of a tuner's timing runs do not belong to the call and are left out."""
        if not self._under_way["tune"]:
            self.launches += 1

    def doing(self):
        """The compilation, tuning or import that keeps this call busy, in words; "" if there is none."""
        with self._lock:
            if self._names_under_way:
                return "compiling " + self._names_under_way[-1]
            for kind, words in (("compile", "compiling"), ("tune", "tuning"), ("import", "importing")):
                if self._under_way[kind]:
                    return words
        return ""

    def seconds(self):
        """{kind: seconds} since `begin`, without the kinds that took no time."""
        with self._lock:
            self._charge()
            return {kind: round(spent, 6) for kind, spent in self._seconds.items() if spent >= 5e-7}

    def report(self):
        """The fields compiled, kernels, loaded, tuned and seconds of an answer, without those that are empty."""
        out = {"compiled": self._compiled, "kernels": list(self._names), "loaded": self._loaded,
               "tuned": self.tuned(), "seconds": self.seconds()}
        return {key: value for key, value in out.items() if value}


def mark(error):
    """Marks an exception as one that a compiler raised."""
    with contextlib.suppress(AttributeError, TypeError):  # a class with slots cannot be marked
        setattr(error, _FROM_COMPILER, True)


def is_compilers(error):
    """True if a compiler raised this exception, or the one that it was raised from or while handling."""
    seen = set()
    while error is not None and id(error) not in seen:
        if getattr(error, _FROM_COMPILER, False):
            return True
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return False


LEDGER = Ledger()
