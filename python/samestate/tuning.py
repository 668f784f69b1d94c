"""Makes the tuners of Triton and TileLang obey SAMESTATE_AUTOTUNE.

  first   takes the first configuration that compiles and runs, without timing: each variant is compiled once, and every
          run has the same configuration. One that needs more shared memory or registers than the device has is skipped
  cached  is the package's own tuning, with its results kept on disk between runs
  full    is the package's own tuning, repeated in each run
"""
import functools
import os

from .errors import DeclarationError
from .ledger import LEDGER

VARIABLE = "SAMESTATE_AUTOTUNE"
SETTINGS = ("first", "cached", "full")

# Variables that the packages read when they are imported.
_SWITCHES = {
    "cached": {"TRITON_CACHE_AUTOTUNING": "1"},
    "full": {"TRITON_CACHE_AUTOTUNING": "0", "TILELANG_AUTO_TUNING_DISABLE_CACHE": "1",
             "TORCHINDUCTOR_AUTOTUNE_LOCAL_CACHE": "0", "TORCHINDUCTOR_AUTOTUNE_REMOTE_CACHE": "0"},
}
_setting = None  # None in a process without a setting, where tuners are left unchanged


def obey_environment():
    """Takes the setting from the environment, before a tuner is imported. Raises DeclarationError for an
    unknown one."""
    global _setting
    said = os.environ.get(VARIABLE) or "first"
    if said not in SETTINGS:
        raise DeclarationError(f"{VARIABLE}={said}; known are {' '.join(SETTINGS)}")
    _setting = said
    os.environ.update(_SWITCHES.get(said, {}))


def setting():
    """The setting in force, or None in a process without one."""
    return _setting


def _interpreted():
    return os.environ.get("TRITON_INTERPRET") == "1"


def _by():
    """The setting that an answer names with a choice; the interpreter always takes the first configuration."""
    return "interpreter" if _interpreted() else _setting


def _in_words(kernel, values):
    """'scan: BLOCK=64, num_warps=4'."""
    return f"{kernel}: {', '.join(f'{name}={value}' for name, value in values.items()) or 'no parameters'}"


def _note(configuration):
    """Enters a choice in the ledger, in a process with a setting."""
    if _setting is not None:
        LEDGER.chose(_by(), configuration)


# -- Triton

def _triton_words(tuner, config):
    """The configuration in words, without values that are not set."""
    values = dict(config.kwargs)
    for name, unset in (("num_warps", None), ("num_stages", None), ("num_ctas", 1), ("maxnreg", None)):
        if getattr(config, name, unset) != unset and getattr(config, name, None) is not None:
            values[name] = getattr(config, name)
    return _in_words(getattr(getattr(tuner, "base_fn", None), "__name__", "a Triton kernel"), values)


def _passed_over(module):
    """The exceptions that say that a configuration does not fit this device."""
    return tuple(error for error in (getattr(module, "OutOfResources", None), getattr(module, "PTXASError", None),
                                     _compile_time_failure()) if error is not None)


def _compile_time_failure():
    import sys

    return getattr(sys.modules.get("triton.compiler.errors"), "CompileTimeAssertionFailure", None)


def triton(module):
    """Makes the tuner of triton.runtime.autotuner obey the setting, and charges its timing runs to tuning."""
    tuner = module.Autotuner
    if getattr(tuner.run, "_samestate", False):
        return
    run, bench = tuner.run, getattr(tuner, "_bench", None)

    @functools.wraps(run)
    def obedient(self, *given, **named):
        if _setting == "full":
            self.cache_results = False
        if (_setting == "first" or _interpreted()) and len(self.configs) > 1:
            return _first_that_runs(module, run, self, given, named)
        if len(self.configs) < 2:
            return run(self, *given, **named)
        self.best_config = None
        try:
            return run(self, *given, **named)
        finally:
            if getattr(self, "best_config", None) is not None:
                _note(_triton_words(self, self.best_config))

    obedient._samestate = True
    tuner.run = obedient
    if bench is not None:
        @functools.wraps(bench)
        def timed(self, *given, **named):
            with LEDGER.span("tune"):
                return bench(self, *given, **named)

        tuner._bench = timed


def _first_that_runs(module, run, tuner, given, named):
    """Runs the tuner with one configuration at a time until one runs, starting with the one that ran for this
    key before. Configurations that the kernel's own pruning removes are not tried."""
    tuner.nargs = dict(zip(tuner.arg_names, given))
    every = tuner.configs
    try:
        configs = tuner.prune_configs(named)
    except Exception:
        if not _interpreted():  # pruning that asks for properties of the device finds none in the interpreter
            raise
        configs = every
    ran = vars(tuner).setdefault("_samestate_ran", {})
    key = tuple(repr(value) for name, value in {**tuner.nargs, **named}.items() if name in tuner.keys)
    # Compared by identity, because Triton's configurations cannot be compared with None.
    configs = sorted(configs, key=lambda config: config is not ran.get(key))
    failure = None
    for config in configs:
        tuner.configs, words = [config], _triton_words(tuner, config)
        _note(words)
        try:
            result = run(tuner, *given, **named)
        except _passed_over(module) as error:
            LEDGER.withdraw(words)
            failure = error
            continue
        finally:
            tuner.configs = every
        ran[key] = config
        return result
    raise failure


# -- TileLang

def tilelang_call(kernel, name):
    """Records the configuration of a kernel that a tuner made, at the start of each call, because the tuner
    itself runs only once."""
    if isinstance(getattr(kernel, "config", None), dict):
        _note(_in_words(name, kernel.config))


def tilelang(module):
    """Makes the tuner of tilelang.autotuner.tuner obey the setting, and charges its time other than compilation
    to tuning."""
    tuner = module.AutoTuner
    if getattr(tuner.run, "_samestate", False):
        return
    run, benchmark = tuner.run, tuner._benchmark_target

    @functools.wraps(run)
    def obedient(self, *given, **named):
        with LEDGER.span("tune"):
            if _setting != "first":
                return run(self, *given, **named)
            every = self.configs
            if callable(every):
                positional, keyword = self._kernel_parameters
                every = every(*positional, **dict(keyword))
            failure = None
            for config in every:
                self.configs = [config]
                try:
                    return run(self, *given, **named)
                except RuntimeError as error:  # the tuner only says that no configuration ran
                    failure = error
                finally:
                    self.configs = every
            if failure is None:
                return run(self, *given, **named)
            raise failure

    @functools.wraps(benchmark)
    def once(self, jit_kernel, *given, **named):
        """Runs the kernel once on the benchmark's inputs, instead of the benchmark."""
        if _setting != "first":
            return benchmark(self, jit_kernel, *given, **named)
        arguments = self.profile_args
        profiler = jit_kernel.get_profiler(tensor_supply_type=arguments.supply_type)
        if arguments.supply_prog is not None:
            inputs = arguments.supply_prog(profiler._get_params(with_output=False))
        else:
            inputs = profiler._get_inputs(with_output=False)
        jit_kernel(*inputs)
        torch = module.torch
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        return 0.0, None

    obedient._samestate = True
    tuner.run, tuner._benchmark_target = obedient, once
