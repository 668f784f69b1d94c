"""The gradients of a kernel of the recurrent family, or of an operator around it, by its library's own autograd.

A function that is declared as a forward kernel and receives tensors of torch, jax or mlx has a second kernel, whose
system ends in `.backward`: a call differentiates the function and gives the gradients of its inputs for the
cotangents of its outputs. The function keeps its conventions; they are applied here by operations of the library,
so that autograd goes through them too.
"""
import math

from .errors import DeclarationError, ReturnError, Unsupported
from .subject import FAMILY, Subject

BACKWARD = ".backward"
INPUTS = ("q", "k", "v", "g", "beta", "initial_state")
# The systems of named tensors whose gradients are judged, with the outputs of their forward calls. Declarations are also
# read where there is no command, so they are repeated here, and a test compares them with the command's.
OPERATORS = {
    "rms_norm": ("y",), "zero_centred_rms_norm": ("y",), "residual_rms_norm": ("y", "sum"), "gated_rms_norm": ("y",),
    "gate_first_rms_norm": ("y",), "l2norm": ("y",), "activation_gates": ("g", "beta"), "rotary_embedding": ("y",),
    "short_convolution": ("y", "state"), "softmax_attention": ("o",),
    "gated_attention": ("out", "gated", "k", "v"), "latent_attention": ("y",),
}
# Conventions through which no gradient of the judge's own inputs goes, and what to write instead.
_WITHOUT = {
    ("decay", "raw"): "let the function take g, and derive x inside",
    ("beta", "logit"): "let the function take beta, and derive the logit inside",
    ("beta", "twice_logit"): "let the function take beta, and derive the logit inside",
    ("state_argument", "in_place"): "autograd does not go through a state that is updated in place; return the final state",
    ("l2norm_place", "outside"): "the judge's norm has its epsilon inside the root",
    ("l2norm_place", "max"): "the judge's norm has its epsilon inside the root",
}


def can(subject):
    """True if a kernel of gradients can be made of this one."""
    if subject.array not in ("torch", "jax", "mlx"):
        return False
    if not subject.family:
        return subject.system in OPERATORS and subject.form != "decode"
    return subject.form in ("recurrent", "chunked") and \
        not any(subject.conventions.get(key) == value for key, value in _WITHOUT) and \
        float(subject.conventions.get("l2norm_epsilon", 1e-6)) == 1e-6


def gradients_of(subject):
    """The kernel of gradients of a forward one. Raises DeclarationError if it has none."""
    return (FamilyGradients if subject.family else OperatorGradients)(subject)


def with_gradients(subjects):
    """The subjects, and behind them the kernels of gradients of those that have them. They run where the gate is
    asked for them."""
    return list(subjects) + [gradients_of(one) for one in subjects if can(one)]


def sum_of_groups(ops, grad, groups):
    """The gradients of key heads from those of value heads, [B, T, Hv, D] to [B, T, Hk, D]: `groups` is the key head of each
    value head. They are added in fp32 and rounded once; autograd through the repetition would round after each."""
    wide = grad.to(ops.float32) if hasattr(grad, "to") else grad.astype(ops.float32)
    summed = ops.stack([sum(wide[:, :, h] for h, of in enumerate(groups) if of == key) for key in range(max(groups) + 1)], 2)
    return summed.to(grad.dtype) if hasattr(grad, "to") else summed.astype(grad.dtype)


class Gradients(Subject):
    """The kernel of gradients of a forward one, with its name, contracts, limits and device."""

    def __init__(self, forward):
        self.__dict__.update(forward.__dict__)
        self._forward = forward
        self.system = forward.system + BACKWARD
        stem, _, form = forward.name.rpartition(".")
        self.name = f"{stem}{BACKWARD}.{form}"
        self.limits = list(forward.limits)
        self._seen, self._ran_by = set(), {}

    def declaration(self):
        said = super().declaration()
        # Its contracts are promises about the forward pass and do not say where the backward pass rounds.
        said["contracts"] = self.gradient_contracts or [
            one if one.startswith("fp32") or "card:nearest" in one else one + "+card:nearest" for one in said["contracts"]]
        said["conventions"] = {key: value for key, value in said["conventions"].items() if key == "cu_seqlens"}
        dtypes = self.conventions.get("dtypes", {})
        # Outputs of an operator are not given to its backward pass; a state after a call has the name of that before it.
        outputs = () if self.family else set(OPERATORS[self._forward.system]) - {"state"}
        both = {one: dtype for name, dtype in dtypes.items() for one in ((name,) if name not in outputs else ()) + ("d." + name,)}
        if both:
            said["conventions"]["dtypes"] = both
        said.update(system=self.system, strided=False, packed=self.packed, only_asked=True)
        said["about"]["gradients"] = f"autograd of {self.array}"
        return said

    # -- a call of gradients

    def _differentiated(self, x, evaluate, cotangents):
        """Returns {input: gradient}. `evaluate` makes {output: array} of arrays named as in `x`. `cotangents` has an entry for
        each output that is differentiated, which is None if that cotangent is zero."""
        differentiate = {"torch": self._torch, "jax": self._jax, "mlx": self._mlx}[self.array]
        return differentiate(x, evaluate, cotangents)

    def _outputs(self, request, grads):
        """{output: array} of a call from {input: gradient}."""
        out = {}
        for tensor in request["outputs"]:
            name = tensor["name"]
            grad = grads.get(name.removeprefix("d."))
            if 0 in tensor["shape"]:  # autograd may leave out what has no elements
                grad = self._ops().zeros(tuple(tensor["shape"]))
            if grad is None:
                raise ReturnError(f"autograd gives None as the gradient of {name.removeprefix('d.')}: the function's result does "
                                  "not depend on it, or its backward pass leaves it out")
            out[name] = grad.reshape(tuple(tensor["shape"]))
        return out

    def _ops(self):
        """The module of the library that has exp, stack and zeros."""
        import importlib

        return importlib.import_module({"torch": "torch", "jax": "jax.numpy", "mlx": "mlx.core"}[self.array])

    def _torch(self, x, evaluate, cotangents):
        torch = self._ops()
        leaves = {name: y.detach().requires_grad_() for name, y in x.items()}
        with torch.enable_grad():
            values = evaluate(leaves)
        # With a cotangent of zeros for an output, an input that only this output depends on has a gradient of zeros and not
        # None.
        outputs = [(name, values[name], d) for name, d in cotangents.items()]
        for name, y, _ in outputs:
            if not isinstance(y, torch.Tensor):
                raise ReturnError(f"{name} is a {type(y).__qualname__}, expected a tensor of torch")
            if not y.requires_grad and y.numel() > 0:
                raise ReturnError(f"{name} has no gradient: its grad_fn is None, so the function computes outside of autograd "
                                  "(torch.no_grad, detach, or a kernel without a backward pass)")
        outputs = [one for one in outputs if one[1].requires_grad]
        names = list(leaves)
        if not outputs:
            return {}
        grads = torch.autograd.grad([y for _, y, _ in outputs], [leaves[n] for n in names],
                                    [torch.zeros_like(y) if d is None else d.reshape(y.shape).to(y.dtype) for _, y, d in outputs],
                                    allow_unused=True)
        return dict(zip(names, grads))

    @staticmethod
    def _of(x, evaluate, cotangents):
        """(function of a list of arrays, arrays, cotangents) for libraries that differentiate functions."""
        given = {name: d for name, d in cotangents.items() if d is not None}

        def f(*arrays):
            values = evaluate(dict(zip(x, arrays)))
            return [values[name] for name in given]

        return f, list(x.values()), list(given.values())

    def _jax(self, x, evaluate, cotangents):
        import jax

        f, arrays, given = self._of(x, evaluate, cotangents)
        outputs, back = jax.vjp(f, *arrays)
        grads = back([d.reshape(y.shape).astype(y.dtype) for d, y in zip(given, outputs)])
        return dict(zip(x, grads))

    def _mlx(self, x, evaluate, cotangents):
        f, arrays, given = self._of(x, evaluate, cotangents)
        _, grads = self._ops().vjp(f, arrays, given)
        return dict(zip(x, grads))


class FamilyGradients(Gradients):
    """The gradients of a kernel of the recurrent family."""

    def __init__(self, forward):
        for (key, value), remedy in _WITHOUT.items():
            if forward.conventions.get(key) == value:
                raise DeclarationError(f"{forward.name}: no gradients with {key}={value}: {remedy}")
        if not can(forward):
            raise DeclarationError(f"{forward.name}: gradients need array=torch, jax or mlx, the form recurrent or chunked, "
                                   "and a norm with an epsilon of 1e-6")
        super().__init__(forward)
        say = forward.conventions
        if say.get("scale") in ("dk", "dv"):
            self._limit("scale = default")
        if say.get("scale") == "dv":
            self._limit("dv = dk")
        if say.get("l2norm") == "in_kernel":
            self._limit("l2norm = 1")
        if say.get("l2norm") == "outside" or say.get("scale") == "folded":
            self._limit("l2norm = 0")

    # -- the function in the judge's conventions

    def _key_heads(self, request):
        """The key head that serves each value head."""
        Hk, Hv = request["parameters"]["Hk"], request["parameters"]["Hv"]
        return [h % Hk if request["heads"] == "tiled" else h // (Hv // Hk) for h in range(Hv)]

    def _head_order(self, request):
        """The judge's value heads in the function's order, where it has only the other map; else None."""
        Hk, Hv = request["parameters"]["Hk"], request["parameters"]["Hv"]
        heads, own = request["heads"], self.conventions.get("heads", "both")
        if own not in ("interleaved", "tiled") or own == heads or Hk in (1, Hv):
            return None
        group = Hv // Hk
        if own == "interleaved":  # h reads h mod Hk, and the function's h reads h // group
            return [r * Hk + k for k in range(Hk) for r in range(group)]
        return [k * group + r for r in range(group) for k in range(Hk)]

    def _given_as_declared(self, ops, x, request, lengths):
        """The tensors by name, {name: array} in the judge's conventions, as the function receives them."""
        say, out = self.conventions, dict(x)

        def heads(y, order, axis):
            return y if order is None else ops.stack([y[(slice(None),) * axis + (h,)] for h in order], axis)

        if say.get("scale") == "folded":
            out["q"] = out["q"] * request["scale"]
        order = self._head_order(request)
        for name, axis in (("v", 2), ("g", 2), ("beta", 2), ("initial_state", 1)):
            if out.get(name) is not None:
                out[name] = heads(out[name], order, axis)
        decay = say.get("decay", "ln")
        if out.get("g") is not None and decay != "ln":
            out["g"] = ops.exp(out["g"]) if decay == "linear" else out["g"] / math.log(2.0)
        if out.get("initial_state") is not None and say.get("state") == "vk":
            out["initial_state"] = out["initial_state"].swapaxes(2, 3)
        layout = say.get("layout", "BTHD")
        for name in ("q", "k", "v", "g", "beta"):
            if out.get(name) is None:
                continue
            if layout == "BHTD":
                out[name] = out[name].swapaxes(1, 2)
            elif layout == "THD":
                out[name] = out[name].reshape((-1,) + tuple(out[name].shape[2:]))
        out["cu_seqlens"] = lengths
        return out

    def _in_our_conventions(self, ops, o, state, request):
        say, layout = self.conventions, self.conventions.get("layout", "BTHD")
        if layout == "BHTD":
            o = o.swapaxes(1, 2)
        elif layout == "THD":
            o = o.reshape((request["batch"], -1) + tuple(o.shape[1:]))
        if state is not None and say.get("state") == "vk":
            state = state.swapaxes(2, 3)
        order = self._head_order(request)
        if order is not None:
            back = [order.index(h) for h in range(len(order))]
            o = ops.stack([o[:, :, h] for h in back], 2)
            state = None if state is None else ops.stack([state[:, h] for h in back], 1)
        return o, state

    def _evaluate(self, ops, x, request, lengths, wants_state):
        """(o, final state) of the function for inputs in the judge's conventions."""
        request = {**request, "outputs": [{"name": "o"}] + ([{"name": "final_state"}] if wants_state else [])}
        by_name = {k: v for k, v in self._given_as_declared(ops, x, request, lengths).items() if v is not None}
        if self.conventions.get("heads") == "repeated":
            request["parameters"] = {**request["parameters"], "Hk": request["parameters"]["Hv"]}
        positional, named = self._arguments(request, by_name)
        result = self._called_with(request, positional, named)
        values = self._results(result, request["outputs"], by_name)
        o, state = values["o"], values.get("final_state")
        return self._in_our_conventions(ops, o, state if wants_state else None, request)

    # -- a call

    def _result_of(self, request, by_name):
        """{output: array} of a call of gradients."""
        x = {name: by_name[name] for name in INPUTS if name in by_name}
        for gate in ("g", "beta"):
            if gate in x:
                x[gate] = x[gate].reshape(tuple(x[gate].shape)[:3])
        lengths = by_name.get("cu_seqlens")
        if "initial_state" in x and "initial_state" not in self._asked:
            raise Unsupported(f"{self._called()} takes no initial_state")
        if lengths is None and self.conventions.get("layout") == "THD":
            lengths = self._whole_lengths(request, x["q"])
        groups = self._key_heads(request) if self.conventions.get("heads") == "repeated" else None
        for name in ("q", "k") if groups else ():
            x[name] = self._ops().stack([x[name][:, :, h] for h in groups], 2)
        cotangents = {"o": by_name.get("d.o")}
        if by_name.get("d.final_state") is not None:
            cotangents["final_state"] = by_name["d.final_state"]

        def evaluate(arrays):
            o, state = self._evaluate(self._ops(), arrays, request, lengths, "final_state" in cotangents)
            return {"o": o, "final_state": state}

        grads = self._differentiated(x, evaluate, cotangents)
        for name in ("q", "k") if groups else ():
            if grads.get(name) is not None:
                grads[name] = sum_of_groups(self._ops(), grads[name], groups)
        return self._outputs(request, grads)

    def _whole_lengths(self, request, like):
        """Offsets of dense rows end to end, as an array of the library."""
        ends = [n * request["tokens"] for n in range(request["batch"] + 1)]
        if self.array == "torch":
            return like.new_tensor(ends).to(self._ops().int64)
        return self._ops().array(ends)


class OperatorGradients(Gradients):
    """The gradients of an operator whose tensors have names."""

    def __init__(self, forward):
        if forward.system not in OPERATORS:
            raise DeclarationError(f"{forward.name}: gradients of {forward.system} are not judged yet; those of "
                                   f"{', '.join(FAMILY + tuple(OPERATORS))} are")
        if not can(forward):
            raise DeclarationError(f"{forward.name}: gradients need array=torch, jax or mlx, and a form other than decode")
        super().__init__(forward)

    def _result_of(self, request, by_name):
        """{output: array} of a call of gradients."""
        outputs = OPERATORS[self._forward.system]
        wanted = {tensor["name"].removeprefix("d.") for tensor in request["outputs"]}
        x = {name: by_name[name] for name in by_name if name in wanted}
        rest = {name: y for name, y in by_name.items() if name not in x and not name.startswith("d.")}
        cotangents = {name: by_name["d." + name] for name in outputs if "d." + name in by_name}

        def evaluate(arrays):
            positional, named = self._arguments(request, {**rest, **arrays})
            result = self._called_with(request, positional, named)
            return self._results(result, [{"name": name} for name in outputs], {})

        return self._outputs(request, self._differentiated(x, evaluate, cotangents))
