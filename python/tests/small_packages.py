"""Packages that compile, in miniature: Triton, TileLang, CuTe DSL, FlashInfer and torch, each with what samestate.compilers
looks at, under the names and in the modules in which the real ones have it. A compilation is a nap, and a file where the
real one keeps its cache.
"""
import os

TRITON = {
    "triton/__init__.py": "from .runtime import jit\nfrom .compiler import compile\n",
    "triton/knobs.py": """
class HookChain:
    def __init__(self): self.calls = []
    def add(self, call): self.calls.append(call)
    def __call__(self, metadata):
        for call in self.calls: call(metadata)
class compilation: listener = None
class runtime: launch_enter_hook = HookChain()
""",
    "triton/compiler/__init__.py": "from .compiler import compile\n",
    "triton/compiler/errors.py": "class CompileTimeAssertionFailure(Exception): pass\nclass CompilationError(Exception): pass\n",
    "triton/compiler/compiler.py": """
import os, time
from .. import knobs
def compile(src, target=None, options=None):
    path = os.path.join(os.environ["TRITON_CACHE_DIR"], f"{src.name}-{src.key}")
    hit = os.path.exists(path)
    if not hit:
        time.sleep(src.seconds)
        if src.wrong:
            from .errors import CompilationError
            raise CompilationError("at 3:4: no such operation")
        open(path, "w").close()
    if knobs.compilation.listener is not None:
        knobs.compilation.listener(src=src, metadata={}, metadata_group={}, times=None, cache_hit=hit)
    return lambda: None
""",
    "triton/runtime/__init__.py": "",
    "triton/runtime/errors.py": """
class OutOfResources(Exception): pass
class PTXASError(Exception): pass
""",
    "triton/runtime/jit.py": """
from .. import knobs
class Source:
    def __init__(self, name, key, seconds, wrong): self.name, self.key, self.seconds, self.wrong = name, key, seconds, wrong
class JITFunction:
    def __init__(self, name, seconds=0.0, wrong=False): self.name, self.seconds, self.wrong, self.compiled = name, seconds, wrong, {}
    def run(self, key):
        from ..compiler import compile
        if key not in self.compiled:
            self.compiled[key] = compile(Source(self.name, key, self.seconds, self.wrong))
        knobs.runtime.launch_enter_hook(None)
""",
    "triton/runtime/autotuner.py": """
from .errors import OutOfResources, PTXASError
class Config:
    def __init__(self, size, num_warps=4):
        self.size, self.kwargs, self.num_warps, self.num_stages, self.num_ctas, self.maxnreg = size, {"size": size}, num_warps, 3, 1, None
    def __eq__(self, other): return self.size == other.size
    def __hash__(self): return hash(self.size)
class Autotuner:
    def __init__(self, function, configs, cache_results=False, prune=None):
        self.function, self.base_fn, self.configs, self.keys, self.arg_names = function, function, configs, ["n"], ["n"]
        self.cache, self.cache_results, self.prune = {}, cache_results, prune
    def prune_configs(self, named): return self.prune(self.configs, self.nargs) if self.prune else self.configs
    def _bench(self, n, config):
        try:
            return self.function(n, config.size)
        except (OutOfResources, PTXASError):
            return float("inf")
    def run(self, n):
        self.nargs = {"n": n}
        config = self.configs[0]
        if len(self.configs) > 1:
            if n not in self.cache:
                self.cache[n] = min(self.prune_configs({}), key=lambda config: self._bench(n, config))
            config = self.cache[n]
        self.best_config = config
        self.function(n, config.size)
        return config.size
class Heuristics:
    def __init__(self, tuner): self.tuner = tuner
    def run(self, n): return self.tuner.run(n)
""",
}
TILELANG = {
    "tilelang/__init__.py": "from .jit.kernel import JITKernel\n",
    "tilelang/jit/__init__.py": "",
    "tilelang/jit/kernel.py": """
import time
class JITKernel:
    def __init__(self, func, seconds=0.0, from_database=False):
        self.func = self.prim_func = func
        self.config = None
        if not from_database:
            self.adapter = self._compile_and_create_adapter(func, seconds)
    def _compile_and_create_adapter(self, func, seconds):
        time.sleep(seconds)
        if func.wrong: raise RuntimeError("nvcc: no such register")
        return func
    @classmethod
    def from_database(cls, func): return cls(func, from_database=True)
    def __call__(self, *given):
        if self.func.checks: raise ValueError("main: expected 4 arguments")
        return given
    def get_profiler(self, tensor_supply_type=None): return Profiler(self)
class Profiler:
    def __init__(self, kernel): self.kernel = kernel
    def _get_inputs(self, with_output=False): return [1]
class Program:
    def __init__(self, name, wrong=False, checks=False, latency=1.0):
        self.attrs, self.wrong, self.checks, self.latency = {"global_symbol": name}, wrong, checks, latency
""",
    "tilelang/autotuner/__init__.py": "",
    "tilelang/autotuner/tuner.py": """
import time
class torch:
    class cuda:
        is_available = staticmethod(lambda: False)
class profile_args: supply_type, supply_prog = "auto", None
class AutoTuner:
    def __init__(self, make, configs): self.make, self.configs, self.profile_args = make, configs, profile_args
    def _benchmark_target(self, jit_kernel, warmup=1):
        time.sleep(0.05)
        jit_kernel(1)
        return jit_kernel.func.latency, None
    def run(self):
        best, least = None, float("inf")
        for config in self.configs:
            try:
                kernel = self.make(config)
                latency, _ = self._benchmark_target(jit_kernel=kernel)
            except Exception:
                continue
            if latency < least: best, least, chosen = kernel, latency, config
        if best is None: raise RuntimeError("Auto-tuning failed: No configuration successfully compiled")
        best.config = {"size": chosen}
        return best
""",
}
CUTLASS = {
    "cutlass/__init__.py": "",
    "cutlass/base_dsl/__init__.py": "",
    "cutlass/base_dsl/compiler.py": """
import time
class CompileCallable:
    def __call__(self, function, *given): return self._compile(function, *given)
    def _compile(self, function, *given):
        from .dsl import BaseDSL
        from .jit_executor import JitCompiledFunction
        BaseDSL().compile_and_cache(None, original_function_name=function.__name__)
        return JitCompiledFunction()
""",
    "cutlass/base_dsl/dsl.py": """
import time
class BaseDSL:
    def compile_and_cache(self, module, original_function_name=None): time.sleep(0.02)
""",
    "cutlass/base_dsl/jit_executor.py": """
class JitCompiledFunction:
    def run_compiled_program(self, given): return None
""",
}
FLASHINFER = {
    "flashinfer/__init__.py": "",
    "flashinfer/jit/__init__.py": "",
    "flashinfer/jit/core.py": """
import os, time
class JitSpec:
    def __init__(self, name): self.name = name
    def get_library_path(self): return os.path.join(os.environ["FLASHINFER_WORKSPACE_BASE"], self.name + ".so")
    def build_and_load(self):
        if not os.path.exists(self.get_library_path()):
            time.sleep(0.02)
            open(self.get_library_path(), "w").close()
""",
}
TORCH = {
    "torch/__init__.py": "",
    "torch/utils/__init__.py": "",
    "torch/utils/cpp_extension.py": """
import os
def _write_ninja_file_and_build_library(name, sources, build_directory, verbose=False):
    path = os.path.join(build_directory, name + ".o")
    if not os.path.exists(path): open(path, "w").close()
""",
    "torch/_dynamo/__init__.py": "",
    "torch/_dynamo/utils.py": "import collections\ncounters = collections.defaultdict(collections.Counter)\n",
    "torch/_dynamo/callback.py": """
import contextlib
class CompilationCallbackHandler:
    @contextlib.contextmanager
    def install_callbacks(self, trigger, compile_id): yield
""",
}
TVM_FFI = {
    "tvm_ffi/__init__.py": "",
    "tvm_ffi/cpp/__init__.py": "",
    "tvm_ffi/cpp/extension.py": """
import os
def build_ninja(build_dir):
    os.makedirs(build_dir, exist_ok=True)
    path = os.path.join(build_dir, "main.so")
    if not os.path.exists(path): open(path, "w").close()
""",
}
DISTRIBUTIONS = {"triton": "9.8.7", "tilelang": "1.2.3", "nvidia-cutlass-dsl": "4.4.4", "flashinfer-python": "0.9.9", "torch": "3.2.1"}


def write(folder):
    """Writes all of them below a folder, which then goes to PYTHONPATH."""
    for files in (TRITON, TILELANG, CUTLASS, FLASHINFER, TORCH, TVM_FFI):
        for name, text in files.items():
            path = os.path.join(folder, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
    for name, version in DISTRIBUTIONS.items():
        information = os.path.join(folder, f"{name.replace('-', '_')}-{version}.dist-info")
        os.makedirs(information, exist_ok=True)
        with open(os.path.join(information, "METADATA"), "w", encoding="utf-8") as file:
            file.write(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
