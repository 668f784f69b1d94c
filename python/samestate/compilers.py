"""Enters compilations of Triton, TileLang, CuTe DSL, torch.compile and of C++ and CUDA extensions in the
ledger.

The one function through which all compilations of a package go is wrapped once its module has been imported;
nothing is imported for this. `attach` handles modules that are imported already, and `Finder` those that are
imported later, possibly in the middle of a first call. Written against Triton 3.6 to 3.9, TileLang 0.1.15, CuTe
DSL 4.8.1, FlashInfer 0.7.4, TVM-FFI 0.1.12 and torch 2.15.
"""
import contextlib
import functools
import importlib.abc
import os
import sys

from . import caches, tuning
from .forwarding import paused
from .ledger import LEDGER

_ATTACHED = "__samestate_attached__"
_STANDARD = frozenset(getattr(sys, "stdlib_module_names", ()))  # Python 3.9 has no such list


def wrap(owner, name, around):
    """Replaces owner.name by around(owner.name), once. Does nothing if the attribute is missing."""
    function = getattr(owner, name, None)
    if function is None or getattr(function, _ATTACHED, False):
        return
    new = functools.wraps(function)(around(function))
    setattr(new, _ATTACHED, True)
    setattr(owner, name, new)


def _name_of(thing, default):
    """The name of a function or kernel, or the name of its class if it has none."""
    for attribute in ("name", "__name__"):
        name = getattr(thing, attribute, None)
        if isinstance(name, str) and name:
            return name
    return type(thing).__name__ if thing is not None else default


# -- Triton

def _triton_compiler(module):
    """Wraps `compile` of triton.compiler.compiler, whose listener is told if the cache on disk had the kernel."""
    from_listener = getattr(getattr(sys.modules.get("triton.knobs"), "compilation", None), "listener", _triton_compiler)
    if from_listener is not _triton_compiler:  # Triton 3.5 and older have no listener: every call counts as a compilation
        def listener(*given, **named):
            one = LEDGER.compilation()
            if one is not None and named.get("cache_hit"):
                one.loaded = True
            if from_listener is not None:
                from_listener(*given, **named)

        sys.modules["triton.knobs"].compilation.listener = listener

    def around(function):
        def compile(src, *more, **named):
            with LEDGER.compiling(_name_of(src, "a Triton kernel")):
                return function(src, *more, **named)
        return compile

    wrap(module, "compile", around)
    for name in ("triton.compiler", "triton"):  # modules imported before hold the function under their own names
        importer = sys.modules.get(name)
        if importer is not None and "compile" in vars(importer):
            importer.compile = module.compile


def _triton_jit(module):
    """Counts launches by Triton's hook, which every launcher calls, or else by wrapping JITFunction.run."""
    hook = getattr(getattr(sys.modules.get("triton.knobs"), "runtime", None), "launch_enter_hook", None)
    if hasattr(hook, "add"):
        hook.add(lambda *_: LEDGER.launched())
    else:
        wrap(module.JITFunction, "run", _launching)


def _launching(function):
    """Counts a launch after the call has returned, because a call that raised may only have checked its arguments."""
    def run(*given, **named):
        result = function(*given, **named)
        LEDGER.launched()
        return result
    return run


def _triton_interpreter(module):
    def around(function):
        def run(*given, **named):
            LEDGER.launched()
            return function(*given, **named)
        return run

    wrap(module.GridExecutor, "__call__", around)


# -- TileLang

def _global_symbol(function):
    attributes = getattr(function, "attrs", None)
    try:
        return str(attributes["global_symbol"])
    except (TypeError, KeyError, IndexError, AttributeError):
        return _name_of(function, "a TileLang kernel")


def _tilelang_kernel(module):
    def compiling(function):
        def compile_and_create(self, kernel, *more, **named):
            with LEDGER.compiling(_global_symbol(kernel)):
                return function(self, kernel, *more, **named)
        return compile_and_create

    def loading(function):
        def from_database(cls, *given, **named):
            made = function(*given, **named)
            LEDGER.count(_global_symbol(named.get("func", given[0] if given else None)), loaded=True)
            return made
        return from_database

    kernel = module.JITKernel
    wrap(kernel, "_compile_and_create_adapter", compiling)
    if hasattr(kernel, "from_database") and not getattr(kernel.from_database, _ATTACHED, False):
        function = kernel.from_database  # this is bound to the class already
        new = functools.wraps(function)(loading(function))
        setattr(new, _ATTACHED, True)
        kernel.from_database = classmethod(new)
    wrap(kernel, "__call__", lambda function: _launching(_tuned_call(function)))


def _tuned_call(function):
    def call(self, *given, **named):
        tuning.tilelang_call(self, _global_symbol(getattr(self, "prim_func", None)))
        return function(self, *given, **named)
    return call


# -- CuTe DSL

def _cute_compiler(module):
    def around(function):
        def compile(self, kernel, *more, **named):
            with LEDGER.compiling(_name_of(kernel, "a CuTe kernel")):
                return function(self, kernel, *more, **named)
        return compile

    wrap(module.CompileCallable, "_compile", around)


def _cute_dsl(module):
    """Wraps the compilation of a @cute.jit function that is called without cute.compile."""
    def around(function):
        def compile_and_cache(self, *given, **named):
            body = named.get("funcBody")
            with LEDGER.compiling(_name_of(body, named.get("original_function_name") or "a CuTe kernel")):
                return function(self, *given, **named)
        return compile_and_cache

    wrap(module.BaseDSL, "compile_and_cache", around)


def _cute_executor(module):
    for owner in ("JitExecutor", "JitCompiledFunction"):
        if hasattr(module, owner):
            wrap(getattr(module, owner), "run_compiled_program", _launching)


# -- libraries that ninja and nvcc build

def _changed(path):
    """The time of the latest change of a file, or of the objects and libraries in a folder; None if there are none."""
    try:
        if os.path.isdir(path):
            times = [os.stat(os.path.join(path, name)).st_mtime_ns for name in os.listdir(path)
                     if name.endswith((".o", ".so"))]
            return max(times, default=None)
        return os.stat(path).st_mtime_ns
    except (OSError, TypeError):
        return None


@contextlib.contextmanager
def _building(name, path):
    """A context for a build by ninja, which runs each time and rebuilds nothing that is up to date. A library
    that existed and did not change counts as loaded."""
    with LEDGER.compiling(name) as one:
        before = _changed(path)
        yield
        one.loaded = before is not None and before == _changed(path)


def _flashinfer(module):
    """Wraps build_and_load of a JitSpec, through which both nvcc's and CuTe DSL's kernels are built."""
    def around(function):
        def build_and_load(self, *given, **named):
            path = None
            with contextlib.suppress(Exception):  # older releases have a property instead
                path = self.get_library_path() if hasattr(self, "get_library_path") else self.jit_library_path
            with _building(_name_of(self, "a module of FlashInfer"), path):
                return function(self, *given, **named)
        return build_and_load

    wrap(module.JitSpec, "build_and_load", around)


def _torch_extension(module):
    """Wraps the function through which load and load_inline build."""
    import inspect

    def around(function):
        signature = inspect.signature(function)

        def write_and_build(*given, **named):
            bound = signature.bind(*given, **named).arguments
            with _building(bound.get("name", "an extension of torch"), bound.get("build_directory")):
                return function(*given, **named)
        return write_and_build

    wrap(module, "_write_ninja_file_and_build_library", around)


def _tvm_extension(module):
    """Wraps the function through which load and load_inline of TVM-FFI build, which SGLang uses."""
    def around(function):
        def build_ninja(build_dir, *more, **named):
            with _building(os.path.basename(build_dir), build_dir):
                return function(build_dir, *more, **named)
        return build_ninja

    wrap(module, "build_ninja", around)


# -- torch.compile

def _counter(group, name):
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", {})
    return counters[group][name] if group in counters and name in counters[group] else 0


_STATS = {"graphs": ("stats", "unique_graphs"), "hits": ("inductor", "fxgraph_cache_hit"),
          "misses": ("inductor", "fxgraph_cache_miss"), "autograd_hits": ("aot_autograd", "autograd_cache_hit"),
          "autograd_misses": ("aot_autograd", "autograd_cache_miss")}


def _torch_compile(module):
    """Wraps the tracing of a frame by Dynamo. A frame may contain no graph, and its graphs may come from
    Inductor's cache."""
    def around(function):
        @contextlib.contextmanager
        def install_callbacks(self, *given, **named):
            before = {key: _counter(*where) for key, where in _STATS.items()}
            name = next((str(x) for x in (*given[1:], named.get("compile_id")) if x), "")
            with LEDGER.compiling(f"torch.compile {name}".strip()) as one:
                with function(self, *given, **named):
                    yield
                now = {key: _counter(*where) - before[key] for key, where in _STATS.items()}
                one.nothing = not now["graphs"] and not now["hits"] and not now["autograd_hits"]
                one.loaded = bool(now["hits"] or now["autograd_hits"]) and not now["misses"] and not (
                    now["autograd_misses"] and not now["hits"])
        return install_callbacks

    wrap(module.CompilationCallbackHandler, "install_callbacks", around)


HOOKS = {  # {module: the function that wraps it, called once the module has been imported}
    "triton.compiler.compiler": _triton_compiler,
    "triton.runtime.jit": _triton_jit,
    "triton.runtime.interpreter": _triton_interpreter,
    "triton.runtime.autotuner": tuning.triton,
    "tilelang.jit.kernel": _tilelang_kernel,
    "tilelang.autotuner.tuner": tuning.tilelang,
    "cutlass.base_dsl.compiler": _cute_compiler,
    "cutlass.base_dsl.dsl": _cute_dsl,
    "cutlass.base_dsl.jit_executor": _cute_executor,
    "flashinfer.jit.core": _flashinfer,
    "torch.utils.cpp_extension": _torch_extension,
    "tvm_ffi.cpp.extension": _tvm_extension,
    "torch._dynamo.callback": _torch_compile,
}


def _attach(name, module):
    """Calls the hook of a module, once. Another release of a package may lack what a hook wraps; its
    compilations are then not seen, and the package is unaffected."""
    if not getattr(module, _ATTACHED, False):
        with contextlib.suppress(AttributeError, TypeError, ImportError):
            setattr(module, _ATTACHED, True)
            HOOKS[name](module)


def attach():
    """Wraps the compilers that are imported already. Idempotent."""
    for name in HOOKS:
        module = sys.modules.get(name)
        if module is not None and not getattr(getattr(module, "__spec__", None), "_initializing", False):
            _attach(name, module)


class Finder(importlib.abc.MetaPathFinder):
    """A finder that delegates to the finders after it and watches the modules that they find. Modules in HOOKS
    are wrapped after they have run, packages with a cache on disk get their folder, and imports during a call
    are charged to it."""

    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top in _STANDARD or top == "samestate":
            return None
        if top == name:
            caches.give(name)
        if name not in HOOKS and not LEDGER.in_call:
            return None
        for finder in list(sys.meta_path):
            find = getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find is not None and finder is not self else None
            if spec is not None:
                self._watch(name, spec)
                return spec
        return None

    @staticmethod
    def _watch(name, spec):
        """Replaces exec_module of the spec's own loader until it has run."""
        loader = spec.loader
        run = getattr(loader, "exec_module", None)
        if run is None or isinstance(loader, type):
            return

        def exec_module(module):
            with contextlib.suppress(AttributeError):
                del loader.exec_module
            with LEDGER.span("import"), paused():
                run(module)
            if name in HOOKS:
                _attach(name, module)

        with contextlib.suppress(AttributeError):  # a loader with slots is not watched
            loader.exec_module = exec_module


def start():
    """Watches the compilers in this process, both those that are imported already and those that will be."""
    if not any(isinstance(finder, Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, Finder())
    caches.give_all()
    attach()
