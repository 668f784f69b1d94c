"""The conversation with the judge, version 1 (docs/lookup/subjects.md): JSON objects, one per line, and tensors in
mapped memory.

Uses only the standard library. `take_stdio` reserves stdin and stdout for the conversation before anything of
the subject is imported; `converse` answers until the judge says bye. The function that runs a call is an
argument: Subject.run, or a queue to another thread.
"""
import json
import mmap
import os
import sys
import threading
import traceback

from . import compilers, float_environment, refusals
from .errors import ChangedEnvironment, DeclarationError, Error, NoDevice, ProtocolError, Trespass, Unsupported, text_of
from .guarding import Guard
from .ledger import LEDGER

PROTOCOL = 1
LONGEST_LINE = 4 << 20  # bytes, defined by the protocol
LONGEST_REASON = 2000  # characters of a reason; a trace may be longer
LONGEST_TRACE = 20000


class Stream:
    """Lines of JSON over a pair of binary files. Writing is locked, because the thread that says busy writes too."""

    def __init__(self, source, sink):
        self._source, self._sink, self._lock, self._process = source, sink, threading.Lock(), os.getpid()

    def read(self):
        """The next message, or None at the end of the stream. Raises ProtocolError if a line is not a message."""
        line = self._source.readline(LONGEST_LINE + 1)
        if not line:
            return None
        if len(line) > LONGEST_LINE:
            raise ProtocolError(f"a line of more than {LONGEST_LINE} bytes")
        try:
            message = json.loads(line.decode("utf-8"))
        except ValueError as error:
            raise ProtocolError(f"no JSON: {error}") from None
        if not isinstance(message, dict):
            raise ProtocolError("no object of JSON")
        return message

    def write(self, message):
        """Writes one message; half of a surrogate pair, which UTF-8 cannot represent, becomes a question mark.
        If the kernel forked and the child returned here, the child ends instead, because otherwise two
        processes would answer."""
        if os.getpid() != self._process:
            os._exit(1)
        line = (json.dumps(message, separators=(",", ":"), allow_nan=False, ensure_ascii=False) + "\n").encode(
            "utf-8", "replace")
        with self._lock:
            self._sink.write(line)
            self._sink.flush()

    def close(self):
        for file in (self._source, self._sink):
            try:
                file.close()
            except OSError:
                pass


def take_stdio():
    """The conversation's Stream over copies of stdin and stdout that no child inherits. Afterwards descriptor 0
    is empty and descriptor 1 is stderr, so that output of a subject, even from C, never mixes with answers."""
    sys.stdout.flush()
    source, sink = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return Stream(os.fdopen(source, "rb"), os.fdopen(sink, "wb"))


class Memory:
    """The memory object of a conversation, mapped for reading and writing."""

    def __init__(self, path):
        self._file = open(path, "r+b", buffering=0)
        self._map = self.guard = None

    def map(self, size):
        """The mapping of at least `size` bytes. An old mapping lives as long as arrays on it."""
        if self._map is None or len(self._map) < size:
            actual = os.fstat(self._file.fileno()).st_size
            if actual < size or size < 1:
                raise ProtocolError(f"bytes {size} of a memory object of {actual}")
            if self.guard is not None:
                self.guard.open()  # arrays on the old mapping may still be in use
            try:
                self._map = mmap.mmap(self._file.fileno(), actual)
            except (OSError, ValueError, OverflowError) as error:
                raise Error(f"{actual >> 20} MiB of the memory object, nearly all of it holes, cannot be mapped "
                            f"({error}): raise ulimit -v, or leave out layout=far") from None
            self.guard = Guard(self._map)
        return self._map

    def close(self):
        if self.guard is not None:
            self.guard.open()
        self._map = self.guard = None
        self._file.close()


ITEM = {"fp32": 4, "bf16": 2, "fp16": 2, "int32": 4, "int64": 8}  # bytes of an element


def check_tensor(tensor, size):
    """Raises ProtocolError unless the tensor of a run is inside `size` bytes."""
    try:
        name, dtype, offset = tensor["name"], tensor["dtype"], tensor["offset"]
        shape, strides = tensor["shape"], tensor["strides"]
        if dtype not in ITEM:
            raise ProtocolError(f"{name}: dtype {dtype}; known are {' '.join(ITEM)}")
        if len(shape) != len(strides) or min(shape + strides + [offset, 0]) < 0:
            raise ProtocolError(f"{name}: shape {shape}, strides {strides}, offset {offset}")
        last = sum((n - 1) * s for n, s in zip(shape, strides)) + 1 if 0 not in shape else 0
        if offset % ITEM[dtype] or offset + last * ITEM[dtype] > size:
            raise ProtocolError(f"{name}: {last} elements at offset {offset} of {size} bytes")
    except (KeyError, TypeError) as error:
        raise ProtocolError(f"no tensor: {tensor!r:.200} ({type(error).__name__}: {error})") from None


def extents(tensor, most=1 << 26):
    """[(begin, end), ..] in bytes of the memory object: the range of a tensor, divided by rows if it is larger
    than `most`, so that distant rows are handled without the memory in between."""
    def spans(shape, strides, begin):
        last = sum((n - 1) * s for n, s in zip(shape, strides)) + 1
        if last * item <= most:
            return [(begin, begin + last * item)]
        far = max(range(len(shape)), key=lambda d: strides[d] if shape[d] > 1 else -1)
        rest = shape[:far] + [1] + shape[far + 1:]
        return [one for i in range(shape[far]) for one in spans(rest, strides, begin + i * strides[far] * item)]

    item = ITEM[tensor["dtype"]]
    return [] if 0 in tensor["shape"] else spans(list(tensor["shape"]), list(tensor["strides"]), tensor["offset"])


def one_line(text):
    """Printable text on one line, without control characters, which a terminal would obey."""
    line = " ".join(text_of(text)[:16 * LONGEST_REASON].split())
    return "".join(c for c in line if c.isprintable() or 0xD800 <= ord(c) <= 0xDFFF)[:LONGEST_REASON] or "(no text)"


def _trace_of(error):
    """The text of the traceback without control characters other than newlines; "" if it cannot be obtained."""
    try:
        trace = "".join(traceback.format_exception(type(error), error, error.__traceback__))[-LONGEST_TRACE:]
    except BaseException:  # an exception whose own attributes raise
        return ""
    return "".join(c for c in trace if c == "\n" or c.isprintable() or 0xD800 <= ord(c) <= 0xDFFF)


def _where_of(error):
    try:
        return refusals.where(error)
    except Exception:
        return ""


# Messages of torch and CUDA once the context of the process is lost; every later call then fails in the same
# way.
_LOST = ("CUDA error", "illegal memory access", "unspecified launch failure", "device-side assert",
         "misaligned address", "CUDA_ERROR")


_traced = set()  # (exception, where) of the errors whose traceback was already sent in this conversation


def answer_to(error, identity):
    """The answer for a call that raised: unsupported, no_device or error, with a reason of one line. An error
    also says where it was raised, and the first error of each kind in a conversation carries its traceback.
    There is an answer for any exception."""
    if isinstance(error, Unsupported):
        return {"type": "unsupported", "id": identity, "reason": one_line(error)}
    if isinstance(error, NoDevice):
        return {"type": "no_device", "id": identity, "reason": one_line(error)}
    text = text_of(error)
    if isinstance(error, SystemExit):
        reason = f"the kernel called sys.exit({'' if error.code is None else text_of(error.code, repr)})"
    elif isinstance(error, Error):
        reason = text
    else:
        reason = f"{type(error).__name__}: {text}"
    answer = {"type": "error", "id": identity, "reason": one_line(reason)}
    if isinstance(error, Trespass):
        answer["trespass"] = True
    if isinstance(error, ChangedEnvironment):
        answer["environment"] = True
    if not isinstance(error, Error):
        kind = answer["exception"], answer["where"] = type(error).__name__, _where_of(error)
        if kind not in _traced:
            _traced.add(kind)
            answer["trace"] = _trace_of(error)
        lost = not isinstance(error, MemoryError) and "out of memory" not in text
        if lost and any(sign in text for sign in _LOST):
            answer["fatal"] = True
    return answer


class Busy:
    """Says busy every `every` seconds while a call compiles, tunes or imports. With `what`, for the first call
    of a variant, it says so the whole time, since the call may be compiling unobserved. No thread is started
    before there is something to say. The choice of a tuner is reported at once, before the kernel runs, because
    a kernel that ends its process cannot report it afterwards."""

    def __init__(self, stream, identity, what="", every=2.0):
        self._what, self._end, self._thread, self._lock = what, threading.Event(), None, threading.Lock()
        self._given = (stream, identity, every)

    def _run(self, stream, identity, every):
        while not self._end.wait(every):
            what = LEDGER.doing() or self._what
            try:
                if what:
                    stream.write({"type": "busy", "id": identity, "what": what})
            except (OSError, ValueError):
                return

    def _start(self):
        with self._lock:
            if self._thread is None and not self._end.is_set():
                self._thread = threading.Thread(target=self._run, args=self._given, daemon=True)
                self._thread.start()

    def _chosen(self):
        stream, identity, _ = self._given
        try:
            stream.write({"type": "busy", "id": identity, "what": "running", "tuned": LEDGER.tuned()})
        except (OSError, ValueError):
            return

    def __enter__(self):
        LEDGER.on_compilation, LEDGER.on_choice = self._start, self._chosen
        if self._what:
            self._start()

    def __exit__(self, *_):
        LEDGER.on_compilation = LEDGER.on_choice = None
        with self._lock:
            self._end.set()
            thread = self._thread
        if thread is not None:
            thread.join()  # no busy message may follow the answer


_FIELDS = ("id", "kernel", "contract", "batch", "tokens", "parameters", "bytes", "inputs", "outputs")
_FAMILY_FIELDS = ("chunk", "scale", "heads", "l2norm")  # only for calls of the recurrent family


def run(subjects, request, memory, stream):
    """Runs one request and returns its answer; raises nothing except KeyboardInterrupt."""
    identity, subject = request.get("id"), None
    compilers.attach()
    LEDGER.begin()
    try:
        lacking = [field for field in _FIELDS if field not in request]
        if lacking:
            raise ProtocolError(f"a run without {' and '.join(lacking)}")
        subject = subjects.get(request["kernel"])
        if subject is None:
            raise ProtocolError(f"kernel {request['kernel']} is not served; these are: {' '.join(subjects)}")
        lacking = [field for field in _FAMILY_FIELDS if field not in request and subject.family]
        if lacking:
            raise ProtocolError(f"a run of {subject.system} without {' and '.join(lacking)}")
        mapped = memory.map(request["bytes"])
        for tensor in request["inputs"] + request["outputs"]:
            check_tensor(tensor, len(mapped))
        memory.guard.close(request["inputs"], request["outputs"])
        new = subject.is_new_variant(request)
        with Busy(stream, identity, "first call of these sizes" if new else ""):
            subject.run(request, mapped)
        memory.guard.check()
        subject.require_environment()
        answer = {"type": "ran", "id": identity, **LEDGER.report()}
        if subject.ran_by(request):
            answer["function"] = subject.ran_by(request)
        return answer
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever a kernel raises, including SystemExit, becomes the verdict of its case
        answer = answer_to(error, identity)
        refused = subject is not None and subject.refused(error)
        if answer["type"] == "error":
            answer.update(LEDGER.report())
            if subject is not None and isinstance(error, Exception):
                answer["reason"] += subject.hint(request, error, refused)
            if refused:
                answer["refusal"] = True
        return answer
    finally:
        LEDGER.end()


def converse(stream, subjects, about, call=run, seconds=None):
    """Answers until bye or the end of the stream. `subjects` is {name: Subject}; `about()` returns the record
    for `ready`; `call(subjects, request, memory, stream)` returns the answer of a run; `seconds`, {"import":
    s}, is the time from the start of the process to `ready`."""
    memory = None
    try:
        while True:
            try:
                message = stream.read()
            except ProtocolError as error:
                stream.write({"type": "error", "id": None, "reason": one_line(error)})
                continue
            kind = "bye" if message is None else message.get("type")
            if kind == "bye":
                return
            if kind == "hello":
                if message.get("protocol") != PROTOCOL:
                    raise ProtocolError(f"samestate {message.get('samestate')} speaks protocol "
                                        f"{message.get('protocol')}, this package {PROTOCOL}: install the package "
                                        "of the command's version")
                if memory is not None:
                    memory.close()
                memory = Memory(message["memory"])
                float_environment.note_imports()
                _traced.clear()  # in a new conversation no traceback has been sent
                declared = [subject.declaration() for subject in subjects.values()]
                ready = {"type": "ready", "protocol": PROTOCOL, "kernels": declared, "about": about()}
                stream.write({**ready, "seconds": seconds} if seconds else ready)
            elif kind in ("plan", "verdict"):  # from `samestate serve`, for those who want to know
                continue
            elif kind == "run" and memory is not None:
                stream.write(call(subjects, message, memory, stream))
            else:
                reason = "a run before hello" if kind == "run" else f"no such message: {kind}"
                stream.write({"type": "error", "id": message.get("id"), "reason": reason})
    except (BrokenPipeError, ConnectionResetError):
        return  # the judge is gone
    finally:
        if memory is not None:
            memory.close()


def by_name(subjects):
    """{name: Subject}. Raises DeclarationError if two have the same name."""
    out = {}
    for subject in subjects:
        if subject.name in out:
            raise DeclarationError(f"two kernels of the name {subject.name}: give one of them name=..")
        out[subject.name] = subject
    return out
