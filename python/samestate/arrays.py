"""Arrays of numpy, torch, jax and mlx on the tensors of a run, and their results written back.

A library class here has
  given(mapped, tensor)            returns a fresh array of the tensor; numpy and torch copy nothing on the CPU
  store(mapped, tensor, result, part)  writes a result: it has the requested shape, and the output's dtype or a wider
                                   one, which is rounded once, to nearest even; `part`, (axis, begin, end), limits it
  finish(mapped, tensors, arrays)  copies what the call did to its inputs back into the judge's memory
and imports its package when an instance is created. `tensor` is an object of the protocol: name, dtype, shape,
strides, offset.
"""
from .errors import DeclarationError, NoDevice, ReturnError
from .protocol import ITEM

# For each output format, the formats that hold all of its values: a result may have any of these.
ACCEPTED = {"fp32": ("fp32", "fp64"), "bf16": ("bf16", "fp32", "fp64"), "fp16": ("fp16", "fp32", "fp64"),
            "int32": ("int32", "int64"), "int64": ("int64",)}
_NAMES = {"float32": "fp32", "float64": "fp64", "float16": "fp16", "bfloat16": "bf16"}


def _dtype_name(dtype):
    """'bf16' for the bfloat16 types of numpy, torch and mlx."""
    text = str(dtype).rsplit(".", 1)[-1]
    return _NAMES.get(text, text)


def _checked(tensor, shape, dtype):
    """The name of a result's dtype. Raises ReturnError if its shape or dtype is not the requested one."""
    name = _dtype_name(dtype)
    if list(shape) != list(tensor["shape"]):
        raise ReturnError(f"{tensor['name']} has shape {list(shape)} and dtype {name}, expected "
                          f"{list(tensor['shape'])} of {tensor['dtype']}")
    if name not in ACCEPTED[tensor["dtype"]]:
        raise ReturnError(f"{tensor['name']} has dtype {name} and shape {list(shape)}, expected "
                          f"{tensor['dtype']} (or {' '.join(ACCEPTED[tensor['dtype']][1:]) or 'no other'})")
    return name


def _wrong_type(tensor, result, library):
    if result is None:
        return ReturnError(f"{tensor['name']} is None, expected {list(tensor['shape'])} of {tensor['dtype']}")
    return ReturnError(f"{tensor['name']} is a {type(result).__module__}.{type(result).__qualname__}, expected "
                       f"an array of {library}, {list(tensor['shape'])} of {tensor['dtype']}")


def storage(numpy, mapped, tensor):
    """The tensor's memory as a numpy array, with bf16 as its 16 bits; writable, never a copy."""
    kind = {"fp32": "<f4", "bf16": "<u2", "fp16": "<f2", "int32": "<i4", "int64": "<i8"}[tensor["dtype"]]
    if 0 in tensor["shape"]:
        return numpy.empty(tensor["shape"], kind)
    item = ITEM[tensor["dtype"]]
    return numpy.ndarray(tuple(tensor["shape"]), kind, mapped, tensor["offset"],
                         tuple(s * item for s in tensor["strides"]))


def _of(array, part):
    """The part of an array, or all of it if `part` is None."""
    if part is None:
        return array
    axis, begin, end = part
    return array[(slice(None),) * axis + (slice(begin, end),)]


def widened(numpy, bits):
    """The float32 values of bf16 bits, which are exact."""
    return (bits.astype(numpy.uint32) << 16).view(numpy.float32)


def odd_fp32(numpy, x):
    """Converts fp64 to fp32 by rounding to odd: the value is truncated, and its last bit set if anything was
    cut off. A later rounding to nearest even at 22 bits or fewer then has the effect of a single rounding."""
    with numpy.errstate(over="ignore", invalid="ignore"):
        near = x.astype(numpy.float32)
    back, bits = near.astype(numpy.float64), near.view(numpy.uint32).copy()
    bits[numpy.abs(back) > numpy.abs(x)] -= 1
    bits[(back != x) & (x == x)] |= 1
    return bits.view(numpy.float32)


def bf16_bits(numpy, x):
    """The bits of the bf16 number nearest to each value, with ties to even; NaN stays NaN."""
    x = numpy.ascontiguousarray(x)
    if x.dtype == numpy.float64:
        x = odd_fp32(numpy, x)
    bits = x.view(numpy.uint32)
    with numpy.errstate(over="ignore"):
        near = ((bits + (0x7FFF + ((bits >> 16) & 1)).astype(numpy.uint32)) >> 16).astype(numpy.uint16)
    nan = numpy.isnan(x)
    if nan.any():
        near[nan] = (bits[nan] >> 16).astype(numpy.uint16) | 0x40
    return near


class Numpy:
    """`bf16` is "float32" (its exact values), "ml_dtypes", or "bits" (uint16)."""

    in_place = True

    def __init__(self, device="cpu", bf16="float32"):
        import numpy

        if device != "cpu":
            raise DeclarationError(f"array numpy on device {device}: numpy is on the cpu")
        self._numpy, self._bf16 = numpy, bf16
        if bf16 == "ml_dtypes":
            import ml_dtypes

            self._type = numpy.dtype(ml_dtypes.bfloat16)

    def given(self, mapped, tensor):
        array = storage(self._numpy, mapped, tensor)
        if tensor["dtype"] == "bf16":
            if self._bf16 == "float32":
                return widened(self._numpy, array)
            if self._bf16 == "ml_dtypes":
                return array.view(self._type)
        return array

    def store(self, mapped, tensor, result, part=None):
        numpy = self._numpy
        if not isinstance(result, (numpy.ndarray, numpy.generic)):
            raise _wrong_type(tensor, result, "numpy")
        bits = self._bf16 == "bits" and tensor["dtype"] == "bf16" and result.dtype == numpy.uint16
        name = _checked(tensor, result.shape, "bfloat16" if bits else result.dtype)
        into, result = _of(storage(numpy, mapped, tensor), part), _of(result, part)
        if tensor["dtype"] == "bf16":
            into[...] = result if bits else result.view(numpy.uint16) if name == "bf16" else bf16_bits(numpy, result)
        elif tensor["dtype"] == "int32" and name == "int64":
            self._narrow(tensor, into, result)
        else:
            with numpy.errstate(over="ignore", invalid="ignore"):
                # numpy rounds once, to nearest even, from fp64 to fp32 and fp16 and from fp32 to fp16
                into[...] = result

    @staticmethod
    def _narrow(tensor, into, result):
        into[...] = result
        if not (into == result).all():
            raise ReturnError(f"{tensor['name']} has an int64 beyond int32")

    def finish(self, mapped, tensors, arrays):
        """Does nothing if the function had the judge's memory itself. Widened bf16 inputs are copied back if
        they were edited."""
        for tensor, array in zip(tensors, arrays):
            if tensor["dtype"] == "bf16" and self._bf16 == "float32":
                into, bits = storage(self._numpy, mapped, tensor), bf16_bits(self._numpy, array)
                if not (into == bits).all():
                    into[...] = bits


class _Staging:
    """Host memory that a device can access directly, through which the tensors of a call are copied in both
    directions. Copying a tensor of some 100 kB directly from the judge's memory costs the driver several
    milliseconds."""

    _MOST = 1 << 30  # bytes; larger tensors are copied without it

    def __init__(self, torch):
        self._torch, self._room, self._used = torch, None, 0

    def _like(self, tensor):
        """A tensor of the same shape in the next free place, with elements in the same order; None if it is too
        large."""
        torch, count = self._torch, tensor.numel() * tensor.element_size()
        if not 0 < count <= self._MOST:
            return None
        used = -(-self._used // 256) * 256
        if self._room is None or used + count > self._room.numel():
            torch.cuda.synchronize()  # copies from the old buffer may still be running
            has, used = 0 if self._room is None else self._room.numel(), 0
            if has < self._MOST:
                self._room = torch.empty(min(max(count, 2 * has, 1 << 24), self._MOST), dtype=torch.uint8, pin_memory=True)
        self._used = used + count
        flat = self._room[used:used + count].view(tensor.dtype)
        return flat.as_strided(tensor.shape, torch.empty_like(tensor, device="meta").stride())

    def filled(self, host):
        """A copy of a host tensor, from which the device may copy until `reuse`."""
        staged = self._like(host)
        return host if staged is None else staged.copy_(host)

    def brought(self, there):
        """The content of a device tensor, in host memory until the next copy."""
        staged = self._like(there)
        return there.to("cpu") if staged is None else staged.copy_(there)

    def reuse(self):
        """Marks the memory as free, once the device has finished its copies."""
        self._used = 0


class Torch:
    """On the CPU, tensors on the judge's memory; on a device, copies with the same strides, which are compared
    after the call."""

    in_place = True
    _FARTHEST = 1 << 30  # bytes that strides may span on the device; beyond that the copy is dense

    def __init__(self, device="cpu", bf16=None):
        import torch

        self._torch, self._device = torch, device
        self._staging = _Staging(torch)
        self._given = {}  # copies on the device of what a call was given, by the address of the tensor object
        self._types = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16,
                       "int32": torch.int32, "int64": torch.int64}
        self._bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
        if device not in ("cpu", "cuda"):
            raise DeclarationError(f"device {device}; known are cpu cuda")

    def _host(self, mapped, tensor):
        torch, shape, kind = self._torch, tensor["shape"], self._types[tensor["dtype"]]
        if 0 in shape:
            return torch.empty(shape, dtype=kind)
        count = sum((n - 1) * s for n, s in zip(shape, tensor["strides"])) + 1
        flat = torch.frombuffer(mapped, dtype=kind, count=count, offset=tensor["offset"])
        return flat.as_strided(shape, tensor["strides"])

    def given(self, mapped, tensor):
        host = self._host(mapped, tensor)
        if self._device == "cpu":
            return host
        if not self._torch.cuda.is_available():
            raise NoDevice("torch sees no CUDA device")
        span = sum((n - 1) * s for n, s in zip(tensor["shape"], tensor["strides"])) + 1 if host.numel() else 0
        staged = self._staging.filled(host)
        if span * host.element_size() > self._FARTHEST:
            there = self._torch.empty(host.shape, dtype=host.dtype, device=self._device)
        else:
            there = self._torch.empty_strided(host.shape, host.stride(), dtype=host.dtype, device=self._device)
        # Rows with gaps between them are arranged on the device, where that takes no time.
        dense = there if there.stride() == staged.stride() else self._torch.empty_like(staged, device=self._device)
        dense.copy_(staged, non_blocking=True)
        if dense is not there:
            there.copy_(dense)
        self._given[id(there)] = there.clone()
        return there

    def store(self, mapped, tensor, result, part=None):
        torch = self._torch
        if not isinstance(result, torch.Tensor):
            raise _wrong_type(tensor, result, "torch")
        _checked(tensor, result.shape, result.dtype)
        if result.layout != torch.strided:
            raise ReturnError(f"{tensor['name']} has layout {result.layout}, expected torch.strided")
        into, result = _of(self._host(mapped, tensor), part), _of(result.detach(), part)
        if result.device.type == "cuda":
            result = self._staging.brought(result)
        if tensor["dtype"] in ("bf16", "fp16") and result.dtype == torch.float64:
            result = self._odd_fp32(result)  # torch converts through fp32, which rounds twice
        if tensor["dtype"] == "int32" and result.dtype == torch.int64 and not torch.equal(
                result.to(torch.int32).to(torch.int64), result):
            raise ReturnError(f"{tensor['name']} has an int64 beyond int32")
        into.copy_(result)

    def _odd_fp32(self, x):
        """arrays.odd_fp32 in torch, so that numpy is not needed."""
        torch = self._torch
        near = x.to(torch.float32).contiguous()
        back, bits = near.to(torch.float64), near.view(torch.int32)
        bits = bits - (back.abs() > x.abs()).to(torch.int32)
        bits = bits | ((back != x) & (x == x)).to(torch.int32)
        return bits.view(torch.float32)

    def synchronise(self):
        if self._device == "cuda":
            self._torch.cuda.synchronize()
            self._staging.reuse()

    def threads(self, count):
        # This also limits the host copies on a device: their threads would wait for cores that are busy
        # judging.
        if self._torch.get_num_threads() != count:
            self._torch.set_num_threads(count)

    def finish(self, mapped, tensors, arrays):
        if self._device == "cpu":
            return
        torch, given, self._given = self._torch, self._given, {}
        there = [(tensor, array, given.get(id(array))) for tensor, array in zip(tensors, arrays) if array.numel()]

        def bits(array):
            return array.contiguous().view(self._bits[array.element_size()])

        # All inputs are compared on the device before waiting for it, because copying each input back takes
        # longer than most kernels.
        edited = [torch.ones((), dtype=torch.bool, device=self._device) if before is None
                  else (bits(array) != bits(before)).any() for _, array, before in there]
        for (tensor, array, _), changed in zip(there, torch.stack(edited).tolist() if edited else ()):
            if changed:
                self._host(mapped, tensor).copy_(array)  # the judge must see that an input was edited


class _ByNumpy:
    """A library whose arrays are made by copying, and read back through numpy."""

    in_place = False

    def store(self, mapped, tensor, result, part=None):
        if not self._is_array(result):
            raise _wrong_type(tensor, result, self._name)
        _checked(tensor, result.shape, result.dtype)
        numpy = self._numpy
        name, host = _dtype_name(result.dtype), _of(self._back(result), part)
        into = _of(storage(numpy, mapped, tensor), part)
        if tensor["dtype"] == "bf16":
            into[...] = host if name == "bf16" else bf16_bits(numpy, host)
        else:
            with numpy.errstate(over="ignore", invalid="ignore"):
                into[...] = host

    def threads(self, count):
        pass


class Jax(_ByNumpy):
    _name = "jax"

    def __init__(self, device="cpu", bf16=None):
        import jax
        import jax.numpy
        import numpy

        self._jax, self._numpy = jax, numpy
        try:
            self._device = jax.devices("gpu" if device == "cuda" else device)[0]
        except RuntimeError:
            self._device = None

    def given(self, mapped, tensor):
        if self._device is None:
            raise NoDevice("jax sees no such device")
        numpy = self._numpy
        # A copy, because jax may keep its argument as its own array, without copying on the CPU.
        host = numpy.array(storage(numpy, mapped, tensor))
        if tensor["dtype"] == "bf16":
            host = host.view(self._jax.numpy.bfloat16)
        if tensor["dtype"] == "int64" and not self._jax.config.jax_enable_x64:
            host = host.astype(numpy.int32)
        return self._jax.device_put(host, self._device)

    def _is_array(self, result):
        return isinstance(result, self._jax.Array)

    def _back(self, result):
        host = self._numpy.asarray(result)
        return host.view(self._numpy.uint16) if _dtype_name(host.dtype) == "bf16" else host

    def finish(self, mapped, tensors, arrays):
        pass  # jax arrays cannot be edited


class Mlx(_ByNumpy):
    _name = "mlx"

    def __init__(self, device="cpu", bf16=None):
        import mlx.core
        import numpy

        self._mx, self._numpy = mlx.core, numpy
        if device != "cpu":
            raise DeclarationError(f"array mlx on device {device}: only cpu is written")
        mlx.core.set_default_device(mlx.core.cpu)

    def given(self, mapped, tensor):
        array = self._mx.array(self._numpy.ascontiguousarray(storage(self._numpy, mapped, tensor)))
        return array.view(self._mx.bfloat16) if tensor["dtype"] == "bf16" else array

    def _is_array(self, result):
        return isinstance(result, self._mx.array)

    def _back(self, result):
        self._mx.eval(result)
        if result.dtype == self._mx.bfloat16:
            result = result.view(self._mx.uint16)
        return self._numpy.asarray(result)  # mlx's own memory

    def finish(self, mapped, tensors, arrays):
        """Assigning to an mlx array changes only that object, so the change is copied to the judge's memory."""
        for tensor, array in zip(tensors, arrays):
            into, back = storage(self._numpy, mapped, tensor), self._back(array)
            kind = f"u{into.itemsize}"
            if back.shape == into.shape and not (back.view(kind) == into.view(kind)).all():
                into[...] = back.astype(into.dtype, copy=False)


LIBRARIES = {"numpy": Numpy, "torch": Torch, "jax": Jax, "mlx": Mlx}
