"""Inputs of a call that can only be read: a kernel that writes to one is found out, even where it puts the old value back.

The pages of inputs are closed for writing (mprotect). A write raises SIGSEGV, whose handler notes the place and opens the
pages again, so that the kernel goes on and its call is answered with what it did. Standard library alone; where the C
library cannot be reached inputs stay open.
"""
import ctypes
import mmap
import signal
import weakref

from .errors import Trespass

_PAGE = mmap.PAGESIZE
_READ, _WRITE, _SIGINFO, _ONSTACK = 1, 2, 4, 0x08000000
_ADDRESS = 16  # of the fault, in siginfo_t of 64-bit Linux
_HANDLER = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)


class _Action(ctypes.Structure):
    _fields_ = [("handler", ctypes.c_void_p), ("mask", ctypes.c_ulong * 16), ("flags", ctypes.c_int),
                ("restorer", ctypes.c_void_p)]


class _Faults:
    """The handler of SIGSEGV of this process, which asks each Guard whose page it was."""

    def __init__(self):
        self.guards, self._before = weakref.WeakSet(), _Action()
        try:
            self.libc = ctypes.CDLL(None, use_errno=True)
            self.libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
            self.libc.sigaction.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
        except (OSError, AttributeError):
            self.libc = None
        self._handler = _HANDLER(self._on_fault)  # kept: C holds its address
        self._address = ctypes.cast(self._handler, ctypes.c_void_p).value

    def _on_fault(self, _signal, info, _context):
        try:
            at = ctypes.c_size_t.from_address(info + _ADDRESS).value
            if any(guard.absorbed(at) for guard in list(self.guards)):
                return
        except Exception:
            pass
        # Not of an input: the instruction runs again, into whoever handled faults before.
        self.libc.sigaction(signal.SIGSEGV, ctypes.byref(self._before), None)

    def protect(self, begin, end, protection):
        return self.libc.mprotect(begin, end - begin, protection) == 0

    def watch(self):
        """A library that a kernel imports may have put a handler of its own in the place of this one."""
        now = _Action()
        self.libc.sigaction(signal.SIGSEGV, None, ctypes.byref(now))
        if now.handler == self._address:
            return
        self._before = now
        ours = _Action(handler=self._address, flags=_SIGINFO | _ONSTACK)
        self.libc.sigaction(signal.SIGSEGV, ctypes.byref(ours), None)


_FAULTS = _Faults()


class Guard:
    """Of one mapping of a memory object: the inputs of the call under way."""

    def __init__(self, mapped):
        self._closed, self._written = {}, None  # {(begin, end): (name, address of the first element, bytes of one)}
        self._base = ctypes.addressof(ctypes.c_char.from_buffer(mapped)) if _FAULTS.libc else None
        _FAULTS.guards.add(self)

    def absorbed(self, at):
        """Whether the fault at this address was a write to an input; its pages are open then."""
        for (begin, end), (name, data, item) in list(self._closed.items()):
            if begin <= at < end:
                if self._written is None:
                    self._written = name, (at - data) // item
                self._closed.pop((begin, end), None)
                return _FAULTS.protect(begin, end, _READ | _WRITE)
        return False

    def close(self, inputs, outputs):
        """Closes the inputs of a call that share no page with another tensor, and opens what another call had closed."""
        self._written = None
        if self._base is None:
            return
        pages = [_pages(tensor) for tensor in inputs + outputs]
        wanted = {}
        for i, tensor in enumerate(inputs):
            begin, end = pages[i]
            if begin == end or any(begin < e and b < end for j, (b, e) in enumerate(pages) if j != i):
                continue
            wanted[self._base + begin, self._base + end] = tensor["name"], self._base + tensor["offset"], _item(tensor)
        for begin, end in [key for key in self._closed if key not in wanted]:
            self._open(begin, end)
        for key, one in wanted.items():
            if key in self._closed or _FAULTS.protect(*key, _READ):
                self._closed[key] = one
        if self._closed:
            _FAULTS.watch()

    def _open(self, begin, end):
        self._closed.pop((begin, end), None)
        _FAULTS.protect(begin, end, _READ | _WRITE)

    def open(self):
        """Opens all that is closed."""
        for begin, end in list(self._closed):
            self._open(begin, end)

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
