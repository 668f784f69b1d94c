"""What can go wrong, by whom it is answered."""
import unittest


class Error(Exception):
    """Of this package: one line with the value, the limit and the remedy."""


class DeclarationError(Error, ValueError):
    """A declaration that contradicts itself or the function's signature, or names what there is not. `missing`: {word: guess}
    of all that a plain function's declaration lacks."""

    missing = {}


class CommandError(Error):
    """The command `samestate` is not found, or ended with exit code 2."""


class Unsupported(Error):
    """Raised by a kernel: this call is not done. Inside the limits that it declares that is a failure."""


class NoDevice(Error):
    """The device of a kernel is not there."""


class ReturnError(Error):
    """What the function returned is not what was asked for."""


class ProtocolError(Error):
    """A message that the protocol does not have; the call is answered with an error."""


class Trespass(Error):
    """The kernel touched memory that is not its to touch; the text says what it did."""


class ChangedEnvironment(Error):
    """The kernel left other floating-point control bits than it found; the text says which."""


class Failed(AssertionError):
    """A kernel failed; `record` is the case's record as `--jsonl` writes it, None where there is no such case;
    `summary`, of samestate.check, is the Summary of the whole gate."""

    def __init__(self, text, record=None):
        super().__init__(text)
        self.record, self.summary = record, None


class NothingRan(unittest.SkipTest):
    """Nothing could run here (exit code 77): a test that raises it is skipped."""


def nearest(word, words, count=3):
    """', did you mean a or b?' of the words that look like it; '' where none does."""
    import difflib

    found = difflib.get_close_matches(str(word), [str(w) for w in words], count, 0.5)
    return f", did you mean {' or '.join(found)}?" if found else ""


def text_of(error, of=str):
    """The text of an exception, by str or repr, which may fail to give one: that of somebody else's class runs that class."""
    try:
        return of(error)
    except BaseException as failure:  # sys.exit too: the text of an error ends no process
        return f"(its text could not be had: __{of.__name__}__ raised {type(failure).__name__})"
