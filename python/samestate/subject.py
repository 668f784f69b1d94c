"""A kernel's declaration, and how it is called.

    @samestate.kernel("gated_delta_rule", "recurrent", contracts=["fp32"], state="vk")
    def mine(q, k, v, alpha, beta, initial_state, scale, cu_seqlens=None): ...
    # returns (o, final_state)

The function is called with keyword arguments, for the names in its signature:

  q k v beta initial_state cu_seqlens   the tensors (also query key value, state h0 recurrent_state); None if the call
                                        has none
  g (log_decay)                         the decay in the declared convention; under the name alpha or decay it is the
                                        factor itself, which implies the convention decay="linear"
  scale chunk (chunk_size) threads      numbers
  cuts                                  a list: in the form sequence_parallel rank r holds the tokens
                                        [cuts[r], cuts[r + 1]) of the call, in head_parallel those value heads; None if
                                        one rank holds all
  l2norm (use_qk_l2norm_in_kernel, use_qk_l2norm), head_map, output_final_state
  batch tokens contract parameters, and the sizes by name: Hk Hv dk dv, B T

For systems of named tensors the arguments are the tensors by name, sizes by name, and `parameters` (a dict).
The function returns o, or (o, final_state), or for named tensors one array, a tuple in the order of the
outputs, or a dict by name.
"""
import inspect
import os
import re

from . import float_environment, interpreter, undeclared
from .errors import DeclarationError, ReturnError, Unsupported, nearest, text_of
from .ledger import LEDGER
from .record import _sha256, _short, _where, about  # noqa: F401
from .refusals import is_refusal, may_launch

FAMILY = ("gated_delta_rule", "delta_rule", "retention", "linear_attention")
# As `samestate list conventions` prints them, the default first. Declarations are also read where there is no
# command, so they are repeated here, and a test compares the two.
CONVENTIONS = {
    "decay": ("ln", "log2", "linear", "raw"),
    "state": ("kv", "vk"),
    "heads": ("both", "interleaved", "tiled", "repeated"),
    "l2norm": ("argument", "outside", "in_kernel"),
    "scale": ("argument", "dk", "dv", "folded"),
    "beta": ("beta", "logit", "twice_logit"),
    "layout": ("BTHD", "BHTD", "THD"),
    "state_argument": ("optional", "required", "in_place"),
    "cu_seqlens": ("int64", "int32"),
    "l2norm_place": ("inside", "outside", "max"),
    "l2norm_epsilon": (1e-6,),  # any number from 1e-12 to 1e-2
    "null_slot": ("-1", "0", "none"),
}
OF_NAMED = ("null_slot", "cu_seqlens")  # those that systems of named tensors have too
ARRAYS = undeclared.ARRAYS
DTYPES = ("fp32", "bf16", "fp16", "int32", "int64")

# The parameter names that are recognised, by what they receive.
ALIASES = {
    "q": ("q", "query"), "k": ("k", "key"), "v": ("v", "value"),
    "g": ("g", "log_decay", "alpha", "decay"), "beta": ("beta",),
    "initial_state": ("initial_state", "state", "h0", "recurrent_state"), "cu_seqlens": ("cu_seqlens",),
    "scale": ("scale",), "chunk": ("chunk", "chunk_size"), "threads": ("threads",),
    "l2norm": ("l2norm", "use_qk_l2norm_in_kernel", "use_qk_l2norm"), "head_map": ("head_map",),
    "output_final_state": ("output_final_state",), "contract": ("contract",), "batch": ("batch", "B"),
    "tokens": ("tokens", "T"), "parameters": ("parameters",), "cuts": ("cuts",),
    "Hk": ("Hk",), "Hv": ("Hv",), "dk": ("dk",), "dv": ("dv",),
}
_MEANS = {name: canonical for canonical, names in ALIASES.items() for name in names}
ROUNDING = "a result in a wider dtype than the output's is rounded once, to nearest even, by this package"


def _words(value):
    """('fp32', 'bf16') from 'fp32,bf16' or a list."""
    if value is None:
        return []
    return [w for w in value.split(",") if w] if isinstance(value, str) else list(value)


def _checked_conventions(given):
    out = {}
    for key, value in given.items():
        if key == "dtypes":
            wrong = [f"{n}: {d}" for n, d in value.items() if d not in DTYPES]
            if wrong:
                raise DeclarationError(f"dtypes {', '.join(wrong)}; known are {' '.join(DTYPES)}")
        elif key == "l2norm_epsilon":
            try:
                value = float(value)
            except (TypeError, ValueError):
                value = 0.0
            if not 1e-12 <= value <= 1e-2:
                raise DeclarationError(f"l2norm_epsilon {given[key]!r}: give a number from 1e-12 to 1e-2")
        elif key not in CONVENTIONS:
            raise DeclarationError(f"convention {key}{nearest(key, CONVENTIONS)}; known are "
                                   f"{' '.join(CONVENTIONS)} dtypes")
        elif value not in CONVENTIONS[key]:
            raise DeclarationError(f"{key} {value!r}; known are {' '.join(CONVENTIONS[key])}")
        if value is not None:
            out[key] = value
    return out


class Subject:
    """One kernel: its declaration in `ready`, and how a `run` calls it. Creating one imports no array library."""

    def __init__(self, function, system, form, *, contracts=("fp32",), limits=(), array=None, device="cpu",
                 name=None, bf16="float32", strided=None, compiles=None, variant=(), taps=(), arguments=None,
                 options=None, about=None, gradient_contracts=(), deterministic=True, **conventions):
        """`arguments` is {what is passed: the function's name for it}, if the names above do not fit; `options`
        are keyword arguments that never change; `compiles` says that the first call with new sizes may take
        long (it then says `busy`); `variant` lists keys of the case line for each of whose values it is
        compiled anew, such as dk contract state, of which the gate tries few (--compiles); `strided` says that
        it accepts tensors with gaps; `deterministic` that the same call gives the same bits, which a kernel that adds
        with atomics does not; `array` is the library of the tensors that it receives, by default the one
        that it names or imports (undeclared.py); `taps` are, for a layer, the tensors that it hands out between
        its stages (docs/do/plugin.md), and it then returns a dict by name; `gradient_contracts` are those of its
        backward pass, by default its contracts with +card:nearest where they round."""
        if not callable(function):
            raise DeclarationError(f"{function!r:.80} is not a function")
        self.function, self.system, self.form = function, system, form
        self.family = system in FAMILY
        why = ""
        if array is None:
            array, why = undeclared.array_of(function)
        if array not in ARRAYS:
            raise DeclarationError(f"array {array!r}; known are {' '.join(ARRAYS)}")
        if device not in ("cpu", "cuda"):
            raise DeclarationError(f"device {device!r}; known are cpu cuda")
        self.array, self.device, self.bf16 = array, device, bf16
        self.contracts, self.limits = _words(contracts), [limits] if isinstance(limits, str) else list(limits)
        self.variant, self.taps, self.gradient_contracts = _words(variant), _words(taps), _words(gradient_contracts)
        if self.taps and self.family:
            raise DeclarationError(f"taps {' '.join(self.taps)}: {system} is not a layer, so it has none")
        if not self.contracts:
            raise DeclarationError("no contract; `samestate list contracts` says what each promises")
        self.strided = array in ("numpy", "torch") if strided is None else bool(strided)
        self.compiles = (device == "cuda" or array == "jax") if compiles is None else bool(compiles)
        self.deterministic = bool(deterministic)
        self.options, self._about = dict(options or {}), dict(about or {})
        if why:
            self._about["array_by"] = why
        self.conventions = _checked_conventions(conventions)
        self._require_conventions()
        self._read_signature(dict(arguments or {}))
        self._complete()
        self.name = self._name_of(name)
        self._library, self._seen, self._lengths, self._ran_by = None, set(), None, {}
        self._refusal, self._environment = (None, False), float_environment.Call()

    # -- the declaration

    def _name_of(self, name):
        if name is None:
            module = getattr(self.function, "__module__", None) or "mine"
            if module == "__main__":
                module = os.path.splitext(os.path.basename(_where(self.function)[0] or "mine"))[0]
            name = f"{module.rsplit('.', 1)[-1]}.{self.system}"
        last = "." + self.form
        return name if name.endswith(last) else name + last

    def _read_signature(self, renamed):
        """Sets self._asked, {what is passed: the function's name for it}, and self._order, the names that are
        passed by position."""
        self._asked, self._order, self._any = {}, [], False
        try:
            parameters = inspect.signature(self.function).parameters.values()
        except (TypeError, ValueError):
            if not renamed:
                raise DeclarationError(f"{self._called()} has no signature to read; give arguments={{'q': 'q', ..}}")
            parameters = ()
        back = {theirs: ours for ours, theirs in renamed.items()}
        unknown = []
        for parameter in parameters:
            if parameter.kind == parameter.VAR_KEYWORD:
                self._any = True
                continue
            if parameter.kind == parameter.VAR_POSITIONAL or parameter.name in self.options:
                continue
            given = back.pop(parameter.name, None)
            if given is None and self.family:
                given = _MEANS.get(parameter.name)
                if given in renamed:
                    given = None
            if given is None and not self.family:
                given = parameter.name
            if given is None:
                if parameter.default is parameter.empty:
                    unknown.append(parameter.name)
                continue
            if given in self._asked:
                raise DeclarationError(f"{self._called()} has two names, {self._asked[given]} and {parameter.name}, "
                                       f"for {given}; give arguments={{'{given}': ..}}")
            if not self.family and parameter.default is not parameter.empty:
                given = (given, "optional")
            self._asked[given] = parameter.name
            if parameter.kind == parameter.POSITIONAL_ONLY:
                self._order.append(parameter.name)
        for theirs, ours in back.items():
            if parameters and not self._any:
                raise DeclarationError(f"{self._called()} has no argument {theirs}, named for {ours}")
            self._asked[ours] = theirs
        if unknown:
            known = [name for names in ALIASES.values() for name in names]
            raise DeclarationError(f"{self._called()} asks for {unknown[0]}{nearest(unknown[0], known)}; known are "
                                   f"{' '.join(known)}; or give arguments={{'q': '{unknown[0]}'}}")

    def _require_conventions(self):
        """Rejects conventions that do not apply to its system; the command finds other contradictions too."""
        for key in self.conventions:
            if self.family and key == "null_slot":
                raise DeclarationError(f"{key}: {self.system} has no pool of states, gated_delta_step has")
            if not self.family and key not in OF_NAMED + ("dtypes",):
                raise DeclarationError(f"{key} is a convention of the recurrent family, but {self.system} has named "
                                       "tensors: write the function in their names and layouts, and leave it out")

    def _called(self):
        return getattr(self.function, "__qualname__", repr(self.function))

    def _complete(self):
        """Adds to the declaration what the signature says. Contradictions between the two are errors."""
        self.packed = "cu_seqlens" in self._asked or ("cu_seqlens", "optional") in self._asked
        if not self.family:
            if "cu_seqlens" in self.conventions and not self.packed:
                raise DeclarationError(f"cu_seqlens is declared, but {self._called()} takes no cu_seqlens")
            return
        asked, say = self._asked, self.conventions
        for tensor, systems in (("g", ("gated_delta_rule", "retention")), ("beta", ("gated_delta_rule", "delta_rule")),
                                ("q", FAMILY), ("k", FAMILY), ("v", FAMILY)):
            own_decay = any(limit.startswith("regime") for limit in self.limits)
            if self.system in systems and tensor not in asked and not (tensor == "g" and own_decay):
                raise DeclarationError(f"{self._called()} takes no {tensor}, but {self.system} has one: name the "
                                       f"argument {' or '.join(ALIASES[tensor])}, or give arguments=")
        if asked.get("g") in ("alpha", "decay"):
            say.setdefault("decay", "linear")
        lacking = []
        if "scale" not in asked and say.setdefault("scale", "argument") == "argument":
            lacking.append("takes no scale: give scale='dk' or 'dv' (its own dk^-1/2 or dv^-1/2) or 'folded' (none, because q is "
                           "multiplied before)")
        if "head_map" not in asked and say.get("heads", "both") == "both":
            say["heads"] = "interleaved"
        if "l2norm" not in asked and say.get("l2norm", "argument") == "argument":
            say["l2norm"] = "outside"
        epsilon = [key for key in ("l2norm_epsilon", "l2norm_place") if key in say]
        if epsilon and say.get("l2norm") == "outside":
            raise DeclarationError(f"{' '.join(epsilon)} of a norm in the kernel, but {self._called()} has none: add the "
                                   "argument l2norm, or declare l2norm='in_kernel'")
        if self.form in ("sequence_parallel", "head_parallel") and "cuts" not in asked:
            self._limit("ranks = 1")
        if "chunk" not in asked and self.form in ("chunked", "sequence_parallel", "head_parallel") and not any(
                limit.split(" ")[0] == "chunk" for limit in self.limits):
            lacking.append("goes in chunks, but takes no chunk: give limits=['chunk in 64'] with the tokens of its chunks, or "
                           "add the argument chunk")
        if lacking:
            raise DeclarationError(f"{self._called()} {'; it '.join(lacking)}")
        in_place = say.get("state_argument") == "in_place"
        if in_place and self.array in ("jax", "mlx"):
            raise DeclarationError(f"state_argument in_place: arrays of {self.array} are not updated in place")
        if "cu_seqlens" not in asked:
            if say.get("layout") == "THD":
                raise DeclarationError(f"the layout is THD, but {self._called()} takes no cu_seqlens")
            self._limit("form != packed")
        if "initial_state" not in asked:
            self._limit("state = none")

    def _limit(self, condition):
        if condition not in self.limits:
            self.limits.append(condition)

    def declaration(self):
        """The row for `ready`."""
        path, line = _where(self.function)
        about = {"function": f"{_short(path)}:{line} {self._called()}" if path else self._called(),
                 "array": self.array, "rounding": ROUNDING}
        if path:
            about["sha256"] = _sha256(path)
        about.update({key: str(value) for key, value in self._about.items()})
        if self.options:
            about["options"] = " ".join(f"{k}={v}" for k, v in sorted(self.options.items()))
        said = {"name": self.name, "system": self.system, "form": self.form, "device": self.device,
                "contracts": self.contracts, "limits": self.limits, "conventions": self.conventions,
                "strided": self.strided, "about": about}
        if interpreter.is_on() and self.device == "cpu":
            said["interpreted"] = True
        if not self.deterministic:
            said["deterministic"] = False
        if self.variant:
            said["variant"] = self.variant
        if self.taps:
            said["taps"] = self.taps
        if not self.family and self.packed:
            said["packed"] = True
        return said

    # -- a call

    def library(self):
        """The array library, imported on first use. An ImportError is passed to the caller."""
        if self._library is None:
            from .arrays import LIBRARIES

            self._library = LIBRARIES[self.array](self.device, self.bf16)
            if self.conventions.get("state_argument") == "in_place" and not self._library.in_place:
                raise DeclarationError(f"state_argument in_place: not with array {self.array}")
        return self._library

    def is_new_variant(self, request):
        """True for the first call with these sizes of a kernel that compiles by size."""
        if not self.compiles:
            return False
        variant = (request["contract"], request.get("chunk"), tuple(sorted(request["parameters"].items())))
        new = variant not in self._seen
        self._seen.add(variant)
        return new

    def run(self, request, mapped):
        """Calls the function on a run's tensors and writes what it returns. Raises what the function raises,
        ReturnError, NoDevice or Unsupported."""
        process = os.getpid()
        library, inputs, outputs = self.library(), request["inputs"], request["outputs"]
        if hasattr(library, "threads"):
            library.threads(request.get("threads", 1))
        with LEDGER.span("copy"):
            arrays = [self._given(library, mapped, tensor) for tensor in inputs]
            by_name = {tensor["name"]: array for tensor, array in zip(inputs, arrays)}
            if self.family:
                self._add_empty(library, mapped, by_name)
        with LEDGER.span("kernel"):
            result = self._result_of(request, by_name)
            if self.array == "torch":
                library.synchronise()
        if os.getpid() != process:
            # a child that the kernel forked has returned here: the memory is shared, and the call is not its
            # own
            os._exit(1)
        results = self._results(result, outputs, by_name)
        at = {tensor["offset"] for tensor in inputs if 0 not in tensor["shape"]}
        with LEDGER.span("copy"):
            # An output that overwrites an input is stored last, because another result may be a view of it.
            for tensor in sorted(outputs, key=lambda t: t["offset"] in at):
                library.store(mapped, tensor, results[tensor["name"]], self._owned(tensor, inputs, by_name))
            kept = [(t, a) for t, a in zip(inputs, arrays) if t["offset"] not in {o["offset"] for o in outputs}]
            library.finish(mapped, [t for t, _ in kept], [a for _, a in kept])

    def _result_of(self, request, by_name):
        """What the function returns for the arrays of a call."""
        positional, named = self._arguments(request, by_name)
        if self.array != "torch":
            return self._called_with(request, positional, named)
        import torch

        with torch.no_grad():
            return self._called_with(request, positional, named)

    def _called_with(self, request, positional, named):
        """Calls the function. If it raises an exception, that is recorded, together with the decision if it
        refuses the call."""
        try:
            with self._environment:
                return self._watched(request, positional, named)
        except Exception as error:
            seconds = LEDGER.seconds()
            # Where nothing can be launched unseen, how busy the machine is decides nothing.
            spent = 0.0 if self.device == "cpu" and not may_launch() else seconds.get("kernel", 0.0) + seconds.get("tune", 0.0)
            try:
                self._refusal = error, is_refusal(error, LEDGER.launches, spent)
            except Exception:  # its text or its frames cannot be obtained
                self._refusal = error, False
            raise

    def require_environment(self):
        """Raises ChangedEnvironment if the last call changed the control bits of the floating-point unit."""
        self._environment.require()

    def refused(self, error):
        """True if the function raised this exception to refuse the call (refusals.py)."""
        noted, self._refusal = self._refusal, (None, False)
        return noted[0] is error and noted[1]

    def _watched(self, request, positional, named):
        """The function's result. The first call of each kind is watched, since the function may forward it to
        another one."""
        kind = self._kind(request)
        if kind in self._ran_by:
            return self.function(*positional, **named)
        from .forwarding import Watch

        with Watch() as watch:
            result = self.function(*positional, **named)
        self._ran_by[kind] = watch.function
        return result

    def hint(self, request, error, refused):
        """A hint about what a kernel that threw may not have expected of the call or the machine; "" if there
        is none."""
        if "0 active drivers" in text_of(error):
            return ("; Triton finds no GPU here: with TRITON_INTERPRET=1 in the environment its kernels run in its interpreter, on "
                    "the CPU")
        if self.array == "numpy" and "numpy.ndarray" in text_of(error) and "attribute" in text_of(error):
            return ("; it receives numpy arrays, because no array= is declared: give array=torch (or jax, mlx) for a function "
                    "of that library")
        size = request.get("parameters", {})
        heads = {str(size.get("Hk")), str(size.get("Hv"))}
        # This applies only to an error that mentions both numbers of heads, like one about shapes that do not
        # match. Refusals are grouped by their text, which must not depend on the heads.
        if refused or not self.family or self.conventions.get("heads") == "repeated" or len(heads) < 2 or not heads <= set(
                re.findall(r"\d+", text_of(error))):
            return ""
        return (f"; q and k have {size.get('Hk')} heads here, and v {size.get('Hv')}: a kernel that needs equally many "
                "declares heads=repeated")

    @staticmethod
    def _kind(request):
        return (request["contract"], request.get("l2norm"), request["tokens"] == 1,
                tuple(sorted(tensor["name"] for tensor in request["inputs"])))

    def ran_by(self, request):
        """The function to which a call of this kind was forwarded: file, function and hash; None if it ran itself."""
        return self._ran_by.get(self._kind(request))

    def _given(self, library, mapped, tensor):
        """The array of an input. If lengths are at the same place as in the last call, the same object is
        passed with its new content, like a buffer that a server keeps: anything that a kernel remembers by
        identity is then stale (repeat=1)."""
        if tensor["name"] != "cu_seqlens" or not library.in_place or self.device != "cpu":
            return library.given(mapped, tensor)
        place = [tensor[key] for key in ("dtype", "shape", "strides", "offset")]
        if self._lengths is None or self._lengths[0] is not mapped or self._lengths[1] != place:
            self._lengths = mapped, place, library.given(mapped, tensor)
        return self._lengths[2]

    def _add_empty(self, library, mapped, by_name):
        """Adds g and beta to a call without tokens, from which the judge leaves out tensors without elements."""
        shape = list(by_name["v"].shape)[:-1] if "v" in by_name else [1]
        for name in ("g", "beta"):
            if name in self._asked and name not in by_name and 0 in shape:
                by_name[name] = library.given(mapped, {"name": name, "dtype": "fp32", "shape": shape,
                                                       "strides": shape, "offset": 0})

    def _owned(self, tensor, inputs, by_name):
        """(axis, begin, end) of the tokens of o that belong to a sequence, or None for all: memory outside
        cu_seqlens belongs to the judge, and a function that returns whole arrays cannot leave it untouched."""
        if not self.family or tensor["name"] != "o" or "cu_seqlens" not in by_name:
            return None
        ends = by_name["cu_seqlens"]
        axis = {"BTHD": 1, "BHTD": 2, "THD": 0}[self.conventions.get("layout", "BTHD")]
        begin, end = int(ends[0]), int(ends[-1])
        return None if (begin, end) == (0, tensor["shape"][axis]) else (axis, begin, end)

    def _arguments(self, request, by_name):
        values, named = {}, dict(self.options)
        if self.family:
            values = {
                "scale": request["scale"], "chunk": request["chunk"], "threads": request.get("threads", 1),
                "l2norm": request["l2norm"], "head_map": request["heads"], "contract": request["contract"],
                "output_final_state": any(o["name"] == "final_state" for o in request["outputs"]),
                "initial_state": None, "cu_seqlens": None, "cuts": request.get("cuts"),
            }
        values.update(batch=request["batch"], tokens=request["tokens"], parameters=request["parameters"])
        if not self.family:
            values.update(B=request["batch"], T=request["tokens"], contract=request["contract"], cu_seqlens=None)
            values.update({key: request[key] for key in ("chunk", "threads") if key in request})
        values.update(request["parameters"])
        values.update(by_name)
        if self.family:
            for tensor in ("cu_seqlens", "initial_state"):
                if tensor in by_name and tensor not in self._asked:
                    raise Unsupported(f"{self._called()} takes no {tensor}")
        for given, theirs in self._asked.items():
            if isinstance(given, tuple):
                if given[0] in values:
                    named[theirs] = values[given[0]]
            elif given in values:
                named[theirs] = values[given]
            else:
                raise DeclarationError(f"{self._called()} asks for {theirs}; this call has {' '.join(values)}")
        positional = [named.pop(theirs) for theirs in self._order]
        return positional, named

    def _results(self, result, outputs, by_name):
        """{name: array} from what the function returned."""
        wanted = [output["name"] for output in outputs]
        asked = " and ".join(wanted)
        if result is None and not (self.family and self.conventions.get("state_argument") == "in_place"):
            raise ReturnError(f"the function returned None, expected {asked}")
        if isinstance(result, dict):
            lacking = [name for name in wanted if name not in result]
            if lacking:
                raise ReturnError(f"the function returned {' '.join(map(str, result))}, without {' '.join(lacking)}")
            return result
        listed = isinstance(result, (tuple, list))
        if not self.family:
            if any(name in self.taps for name in wanted):
                raise ReturnError("a kernel with taps returns a dict by name, which may hold more than a call asks for")
            got = list(result) if listed else [result]
            if len(got) != len(wanted):
                raise ReturnError(f"the function returned {len(got)} results, expected {asked}")
            return dict(zip(wanted, got))
        o, state = (result[0], result[1] if len(result) > 1 else None) if listed and len(result) else (result, None)
        if listed and len(result) != 2 and "final_state" in wanted and not (
                len(result) == 1 and self.conventions.get("state_argument") == "in_place"):
            raise ReturnError(f"the function returned {len(result)} results, expected {asked}")
        if "final_state" in wanted:
            if self.conventions.get("state_argument") == "in_place":
                state = by_name["initial_state"]
            elif not listed:
                raise ReturnError(f"the function returned one result ({type(result).__name__}), expected {asked}")
        return {"o": o, "final_state": state}


def kernel(system, form, **declaration):
    """Declares the function below as a kernel (Subject describes the arguments); the function itself is unchanged."""

    def declare(function):
        function.__samestate__ = Subject(function, system, form, **declaration)
        return function

    return declare


def subject_of(function, system=None, form=None, **declaration):
    """The Subject of a decorated function, or of a plain one and its declaration."""
    if isinstance(function, Subject):
        return function
    made = getattr(function, "__samestate__", None)
    if made is not None:
        if system not in (None, made.system) or form not in (None, made.form):
            raise DeclarationError(f"{made.name} is declared as {made.system} {made.form}, not {system} {form}")
        if declaration:
            raise DeclarationError(f"{made.name} is declared where it is defined; it cannot be declared again: "
                                   f"{' '.join(declaration)}")
        return made
    try:
        if not system or not form:
            raise DeclarationError(f"{getattr(function, '__qualname__', function)} is not declared: give its system and "
                                   "form, or write @samestate.kernel(system, form) above it")
        return Subject(function, system, form, **declaration)
    except DeclarationError as error:
        error.missing = undeclared.proposed(function, _MEANS, system, form, declaration, FAMILY)
        raise
