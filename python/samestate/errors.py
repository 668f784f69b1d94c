"""The exceptions of this package."""
import unittest


class Error(Exception):
    """Base class: a message of one line with the value, the limit and the remedy."""


class DeclarationError(Error, ValueError):
    """A declaration that contradicts itself or the function's signature, or names something unknown. `missing`
    is {word: guess} for everything that the declaration of a plain function lacks."""

    missing = {}


class CommandError(Error):
    """The command `samestate` was not found, or ended with exit code 2."""


class Unsupported(Error):
    """Raised by a kernel that does not support this call. Inside the limits that it declares this is a failure."""


class NoDevice(Error):
    """The device that a kernel needs is not available."""


class ReturnError(Error):
    """The function did not return what was asked for."""


class ProtocolError(Error):
    """A message that the protocol does not have; the call is answered with an error."""


class Trespass(Error):
    """The kernel touched memory that it must not touch; the text says how."""


class ChangedEnvironment(Error):
    """The kernel changed the floating-point control bits; the text says which."""


class Failed(AssertionError):
    """A kernel failed. `record` is the record of the case as `--jsonl` writes it, or None if there is no single
    case; `summary`, set by samestate.check, is the Summary of the whole gate."""

    def __init__(self, text, record=None):
        super().__init__(text)
        self.record, self.summary = record, None


class NothingRan(unittest.SkipTest):
    """Nothing could run here (exit code 77); a test that raises it is skipped."""


def nearest(word, words, count=3):
    """', did you mean a or b?' for the words that are similar; '' if none is."""
    import difflib

    found = difflib.get_close_matches(str(word), [str(w) for w in words], count, 0.5)
    return f", did you mean {' or '.join(found)}?" if found else ""


def text_of(error, of=str):
    """The text of an exception, by str or repr. These may fail, because they run code of a foreign class."""
    try:
        return of(error)
    except BaseException as failure:  # including SystemExit: getting the text of an error must not end the process
        return f"(its text could not be had: __{of.__name__}__ raised {type(failure).__name__})"
