"""Inputs of a call that can only be read: a kernel that writes to one is found out, even where it puts the old value back.

The pages of inputs are closed for writing (mprotect). A write raises SIGSEGV, whose handler notes the place and opens the
pages again, so that the kernel goes on and its call is answered with what it did. Standard library alone; where the C
library cannot be reached inputs stay open.
"""
import ctypes
import mmap
import signal

from .errors import Trespass

_PAGE = mmap.PAGESIZE
_READ, _WRITE, _SIGINFO, _ONSTACK = 1, 2, 4, 0x08000000
_ADDRESS = 16  # of the fault, in siginfo_t of 64-bit Linux
_HANDLER = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)


class _Action(ctypes.Structure):
    _fields_ = [("handler", ctypes.c_void_p), ("mask", ctypes.c_ulong * 16), ("flags", ctypes.c_int),
                ("restorer", ctypes.c_void_p)]


class _Closed:
    """Pages [begin, end) of one input: `data` is the address of its first element of `item` bytes."""

    def __init__(self, begin, end, name, data, item):
        self.begin, self.end, self.name, self.data, self.item = begin, end, name, data, item
        self.key = begin, end


class Guard:
    """Of one process: the inputs of the call under way."""

    def __init__(self):
        self._closed, self._of, self._base, self._written = {}, None, 0, None
        self._before = _Action()
        try:
            self._libc = ctypes.CDLL(None, use_errno=True)
            self._libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
            self._libc.sigaction.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
        except (OSError, AttributeError):
            self._libc = None
        self._handler = _HANDLER(self._on_fault)  # kept: C holds its address
        self._address = ctypes.cast(self._handler, ctypes.c_void_p).value

    def _on_fault(self, _signal, info, _context):
        try:
            at = ctypes.c_size_t.from_address(info + _ADDRESS).value
            for closed in list(self._closed.values()):
                if closed.begin <= at < closed.end:
                    if self._written is None:
                        self._written = closed.name, (at - closed.data) // closed.item
                    self._closed.pop(closed.key, None)
                    if self._libc.mprotect(closed.begin, closed.end - closed.begin, _READ | _WRITE) == 0:
                        return
        except Exception:
            pass
        # Not of an input: the instruction runs again, into whoever handled faults before.
        self._libc.sigaction(signal.SIGSEGV, ctypes.byref(self._before), None)

    def _watch(self):
        now = _Action()
        self._libc.sigaction(signal.SIGSEGV, None, ctypes.byref(now))
        if now.handler == self._address:
            return
        self._before = now
        ours = _Action(handler=self._address, flags=_SIGINFO | _ONSTACK)
        self._libc.sigaction(signal.SIGSEGV, ctypes.byref(ours), None)

    def close(self, mapped, inputs, outputs):
        """Closes the inputs of a call that share no page with an output, and opens what another call had closed."""
        if self._libc is None or not isinstance(mapped, mmap.mmap):
            return
        if mapped is not self._of:
            self._of, self._closed = mapped, {}
            self._base = ctypes.addressof(ctypes.c_char.from_buffer(mapped))
        self._written = None
        taken = [_pages(tensor) for tensor in outputs]
        wanted = {}
        for tensor in inputs:
            begin, end = _pages(tensor)
            if begin == end or any(begin < e and b < end for b, e in taken):
                continue
            one = _Closed(self._base + begin, self._base + end, tensor["name"], self._base + tensor["offset"],
                          _item(tensor))
            wanted[one.key] = one
        for key in [key for key in self._closed if key not in wanted]:
            self._closed.pop(key)
            self._libc.mprotect(key[0], key[1] - key[0], _READ | _WRITE)
        for key, one in wanted.items():
            closed = key in self._closed
            self._closed[key] = one
            if not closed and self._libc.mprotect(key[0], key[1] - key[0], _READ) != 0:
                self._closed.pop(key)
        if self._closed:
            self._watch()

    def check(self):
        """Raises Trespass where an input was written since close()."""
        written, self._written = self._written, None
        if written is not None:
            raise Trespass(f"wrote to its input {written[0]}: element {written[1]} of its buffer")


def _item(tensor):
    from .protocol import ITEM

    return ITEM[tensor["dtype"]]


def _pages(tensor):
    """(begin, end) in the memory object of the pages that hold a tensor, all of them from its first to its last."""
    if 0 in tensor["shape"]:
        return 0, 0
    last = sum((n - 1) * s for n, s in zip(tensor["shape"], tensor["strides"])) + 1
    begin = tensor["offset"] // _PAGE * _PAGE
    return begin, -(-(tensor["offset"] + last * _item(tensor)) // _PAGE) * _PAGE


GUARD = Guard()
