"""The control bits of the floating-point unit in the thread that calls a kernel: rounding, subnormal numbers,
exceptions.

They belong to a thread, so after a kernel has changed them everything on that thread computes differently. The
C library's fegetenv and fesetenv read and write them, so only the standard library is needed. Layouts of
fenv_t: glibc and musl on x86-64 (x87 control word at byte 0, MXCSR at byte 28) and on AArch64 (FPCR at byte 0).
"""
import ctypes
import platform
import struct

from .errors import ChangedEnvironment

_BYTES = 256  # larger than any fenv_t
_ROUNDING = ("rounding to nearest", "rounding toward minus infinity", "rounding toward plus infinity",
             "rounding toward zero")
_ARM_ROUNDING = (_ROUNDING[0], _ROUNDING[2], _ROUNDING[1], _ROUNDING[3])
_PRECISION = ("x87 precision of 24 bits", "x87 precision reserved", "x87 precision of 53 bits",
              "x87 precision of 64 bits")
# For each machine, its registers as (format in fenv_t, offset, default, fields), with fields as (mask, words by
# value; None for exceptions).
_REGISTERS = {
    "x86_64": (
        ("<I", 28, 0x1F80, ((0x6000, _ROUNDING), (0x8000, ("", "flush-to-zero (FTZ) on")),
                            (0x0040, ("", "denormals-are-zero (DAZ) on")), (0x1F80, None))),
        ("<H", 0, 0x037F, ((0x0C00, tuple("x87 " + word for word in _ROUNDING)), (0x0300, _PRECISION), (0x003F, None))),
    ),
    "aarch64": (
        ("<I", 0, 0, ((0x00C00000, _ARM_ROUNDING), (0x01000000, ("", "flush-to-zero (FZ) on")), (0x00009F00, None))),
    ),
}
_REGISTERS["AMD64"], _REGISTERS["arm64"] = _REGISTERS["x86_64"], _REGISTERS["aarch64"]


class _Unit:
    """The registers of this machine. `why` says why they cannot be read, and is empty if they can."""

    def __init__(self):
        self.registers, self.why = _REGISTERS.get(platform.machine(), ()), ""
        self._now = ctypes.create_string_buffer(_BYTES)
        if not self.registers or platform.system() != "Linux":
            self.why = f"the layout of fenv_t is not known on {platform.system()} {platform.machine()}"
            return
        for name in ("libm.so.6", None):
            try:
                library = ctypes.CDLL(name)
                self._get, self._set = library.fegetenv, library.fesetenv
                break
            except (OSError, AttributeError):
                self.why = "the C library's fegetenv cannot be reached"
        else:
            return
        self.why = ""
        # If registers do not hold the values that they must have at the start of a program, the layout is a
        # different one.
        if self._get(self._now) != 0 or not all(self._value(r) & 0xFFFF for r in self.registers if r[2]):
            self.why = "fegetenv does not give what this package expects"

    def _value(self, register):
        return struct.unpack_from(register[0], self._now, register[1])[0]

    def changed(self):
        """The fields that differ from the default, in words, for example "rounding toward zero"; "" if none do."""
        if self.why or self._get(self._now) != 0:
            return ""
        words = []
        for register in self.registers:
            now = self._value(register)
            for mask, names in register[3]:
                if (now ^ register[2]) & mask:
                    lowest = mask & -mask
                    words.append(names[(now & mask) // lowest] if names else
                                 ("x87 " if "x87" in register[3][0][1][0] else "") + "exceptions unmasked")
        return ", ".join(words)

    def restore(self):
        """Restores the default of every field, without touching the exception flags."""
        if self.why or self._get(self._now) != 0:
            return
        for register in self.registers:
            value = self._value(register)
            for mask, _ in register[3]:
                value = (value & ~mask) | (register[2] & mask)
            struct.pack_into(register[0], self._now, register[1], value)
        self._set(self._now)


_UNIT = _Unit()
_found = []  # what an import had changed before the first call


def about():
    """A sentence for the record if the environment is not watched, or had been changed before the first call;
    otherwise ""."""
    if _UNIT.why:
        return "not watched: " + _UNIT.why
    return _found[0] if _found else ""


def note_imports():
    """Records what the imports of the process changed in this thread."""
    changed = _UNIT.changed()
    if changed and not _found:
        _found.append(f"importing the subject left {changed}; each call begins in the default environment")


class Call:
    """The environment around the calls of one kernel: the default (to nearest, subnormal numbers kept,
    exceptions masked) is set before each call and restored after it, so that results are stored under it.
    `require` checks after a call what it had changed."""

    def __init__(self):
        self._changed = ""

    def __enter__(self):
        self._changed = ""
        if _UNIT.changed():
            _UNIT.restore()

    def __exit__(self, *_):
        self._changed = _UNIT.changed()
        if self._changed:
            _UNIT.restore()

    def require(self):
        """Raises ChangedEnvironment if the last call changed the environment."""
        changed, self._changed = self._changed, ""
        if changed:
            raise ChangedEnvironment(
                "changed the floating-point environment of its caller and did not put it back: " + changed +
                "; save it when a call begins (fegetenv) and restore it before the call returns (fesetenv)")
