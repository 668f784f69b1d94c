"""Makes the inputs of a call read-only: a kernel that writes to one is detected even if it restores the old
value.

The pages of inputs are write-protected (mprotect). A write raises SIGSEGV, whose handler records the place and
makes the pages writable, so that the kernel continues and its call is answered with what it did. This needs
only the standard library; if the C library cannot be reached, inputs stay writable.
"""
import ctypes
import mmap
import signal
import weakref

from .errors import Trespass

_PAGE = mmap.PAGESIZE
_READ, _WRITE, _SIGINFO, _ONSTACK = 1, 2, 4, 0x08000000
_ADDRESS = 16  # offset of the fault address in siginfo_t on 64-bit Linux
_HANDLER = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)


class _Action(ctypes.Structure):
    _fields_ = [("handler", ctypes.c_void_p), ("mask", ctypes.c_ulong * 16), ("flags", ctypes.c_int),
                ("restorer", ctypes.c_void_p)]


class _Faults:
    """The SIGSEGV handler of this process, which asks each Guard if the page belongs to it."""

    def __init__(self):
        self.guards, self._before = weakref.WeakSet(), _Action()
        try:
            self.libc = ctypes.CDLL(None, use_errno=True)
            self.libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
            self.libc.sigaction.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
        except (OSError, AttributeError):
            self.libc = None
        self._handler = _HANDLER(self._on_fault)  # kept alive, because C holds its address
        self._address = ctypes.cast(self._handler, ctypes.c_void_p).value

    def _on_fault(self, _signal, info, _context):
        try:
            at = ctypes.c_size_t.from_address(info + _ADDRESS).value
            if any(guard.absorbed(at) for guard in list(self.guards)):
                return
        except Exception:
            pass
        # Not an input: the instruction runs again and reaches the previous fault handler.
        self.libc.sigaction(signal.SIGSEGV, ctypes.byref(self._before), None)

    def protect(self, begin, end, protection):
        return self.libc.mprotect(begin, end - begin, protection) == 0

    def watch(self):
        """Reinstalls the handler, because a library that a kernel imports may have replaced it."""
        now = _Action()
        self.libc.sigaction(signal.SIGSEGV, None, ctypes.byref(now))
        if now.handler == self._address:
            return
        self._before = now
        ours = _Action(handler=self._address, flags=_SIGINFO | _ONSTACK)
        self.libc.sigaction(signal.SIGSEGV, ctypes.byref(ours), None)


_FAULTS = _Faults()


class Guard:
    """Guards one mapping of a memory object: the inputs of the current call."""

    def __init__(self, mapped):
        self._closed, self._written = {}, None  # {(begin, end): (name, address of the first element, bytes of one)}
        self._base = ctypes.addressof(ctypes.c_char.from_buffer(mapped)) if _FAULTS.libc else None
        _FAULTS.guards.add(self)

    def absorbed(self, at):
        """True if the fault at this address was a write to an input; its pages are then writable."""
        for (begin, end), (name, data, item) in list(self._closed.items()):
            if begin <= at < end:
                if self._written is None:
                    self._written = name, (at - data) // item
                self._closed.pop((begin, end), None)
                return _FAULTS.protect(begin, end, _READ | _WRITE)
        return False

    def close(self, inputs, outputs):
        """Protects the inputs of a call that share no page with another tensor, and releases what another call
        had protected."""
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
        """Makes everything writable."""
        for begin, end in list(self._closed):
            self._open(begin, end)

    def check(self):
        """Raises Trespass if an input was written to since close()."""
        written, self._written = self._written, None
        if written is not None:
            raise Trespass(f"wrote to its input {written[0]}: element {written[1]} of its buffer")


def _item(tensor):
    from .protocol import ITEM

    return ITEM[tensor["dtype"]]


def _pages(tensor):
    """(begin, end) in the memory object of the pages that hold a tensor, from its first to its last."""
    if 0 in tensor["shape"]:
        return 0, 0
    last = sum((n - 1) * s for n, s in zip(tensor["shape"], tensor["strides"])) + 1
    begin = tensor["offset"] // _PAGE * _PAGE
    return begin, -(-(tensor["offset"] + last * _item(tensor)) // _PAGE) * _PAGE
