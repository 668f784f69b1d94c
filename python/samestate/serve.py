"""python3 -m samestate.serve NAME [NAME ..] [--system S --form F --contracts C,C --limits 'L;L' --decay linear
..]

Serves kernels to the judge over stdin and stdout (docs/lookup/subjects.md). NAME is an adapter (docs/lookup/adapters.md),
module:function, path/to/file.py:function, or a module or file for everything that is declared in it; several
names are separated by commas. Options for a function without a declaration follow it, or are part of the same
word:

    samestate gate --subject 'python:file.py:f?system=gated_delta_rule&form=recurrent&decay=linear'
"""
import importlib
import importlib.util
import os
import sys

from .errors import DeclarationError, Error, nearest
from .gradients import with_gradients
from .subject import CONVENTIONS, Subject, about, subject_of

_PLAIN = ("system", "form", "array", "device", "name", "bf16")
_FLAGS = ("strided", "compiles", "deterministic")
_LISTS = {"contracts": ",", "gradient_contracts": ",", "limits": ";", "variant": ",", "taps": ","}
_MAPS = ("dtypes", "arguments", "options")
OPTIONS = _PLAIN + _FLAGS + tuple(_LISTS) + _MAPS + tuple(CONVENTIONS)


def _value(text):
    """A number or truth value if the text is one, else the text."""
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            pass
    return {"True": True, "False": False, "None": None}.get(text, text)


def parsed_options(pairs):
    """{'limits': ['dk <= 64'], ..} from [('limits', 'dk <= 64;chunk in 16 32'), ('dtypes', 'g:bf16,beta:bf16'), ..]."""
    out = {}
    for key, value in pairs:
        key = {"contract": "contracts", "limit": "limits"}.get(key, key)
        if key not in OPTIONS:
            raise DeclarationError(f"option {key}{nearest(key, OPTIONS)}; known are {' '.join(OPTIONS)}")
        if key in _LISTS:
            out[key] = out.get(key, []) + [part.strip() for part in value.split(_LISTS[key]) if part.strip()]
        elif key in _MAPS:
            entries = [part.partition(":") for part in value.split(",") if part]
            out[key] = {name: _value(text) if key == "options" else text for name, _, text in entries}
        elif key in _FLAGS:
            out[key] = value not in ("0", "no", "false", "False")
        else:
            out[key] = value
    return out


def split_name(name):
    """('file.py:f', [('system', 'retention')]) from 'file.py:f?system=retention'; %20 and other escapes are decoded."""
    name, _, query = name.partition("?")
    if not query:
        return name, []
    from urllib.parse import unquote

    pairs = []
    for part in query.split("&"):
        key, equals, value = part.partition("=")
        if not equals:
            raise DeclarationError(f"{part!r} after the ? of {name}: expected KEY=VALUE")
        pairs.append((key, unquote(value)))
    return name, pairs


def joined_name(name, options):
    """The word from which split_name and parsed_options recover the name and options."""
    from urllib.parse import quote

    def text(key, value):
        if key in _LISTS:
            return _LISTS[key].join(value)
        if key in _MAPS:
            return ",".join(f"{k}:{v}" for k, v in value.items())
        return str(value)

    pairs = [f"{k}={quote(text(k, v), safe=',.:/')}" for k, v in options.items() if v not in (None, (), [], {})]
    return name + ("?" + "&".join(pairs) if pairs else "")


def _module(where):
    """The module of a dotted name or of a file, which may import modules beside it."""
    if where.endswith(".py") or os.sep in where:
        if not os.path.exists(where):
            raise DeclarationError(f"there is no file {where} (from {os.getcwd()})")
        path = os.path.abspath(where)
        folder, stem = os.path.dirname(path), os.path.splitext(os.path.basename(path))[0]
        if folder not in sys.path:
            sys.path.insert(0, folder)
        loaded = sys.modules.get(stem)
        if loaded is not None and os.path.abspath(getattr(loaded, "__file__", "") or "") == path:
            return loaded
        name = stem if loaded is None else f"samestate_subject_{stem}"
        spec = importlib.util.spec_from_file_location(name, path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
        return module
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    return importlib.import_module(where)


def _declared_in(module):
    """The Subjects declared in a module itself, in the order of the file."""
    found = {}
    for value in vars(module).values():
        made = getattr(value, "__samestate__", None)
        if isinstance(made, Subject) and made.function.__module__ == module.__name__:
            found[id(made)] = made
    return list(found.values())


def subjects_of(name, options=None):
    """The Subjects of a NAME. Raises DeclarationError if there are none, and ImportError if an import fails."""
    name, pairs = split_name(name)
    declaration = parsed_options(pairs)
    declaration.update(options or {})
    where, colon, attribute = name.rpartition(":")
    if not colon:
        where, attribute = name, ""
    if not colon and not where.endswith(".py"):
        from . import adapters

        rows = adapters.rows_of(where)
        if rows:
            return [adapters.subject(row, **declaration) for row in rows]
        if importlib.util.find_spec(where.split(".")[0]) is None:
            raise DeclarationError(f"no adapter and no module {where}{nearest(where, adapters.names())}; "
                                   "`python3 -m samestate.adapters` lists the adapters")
    module = _module(where)
    if not attribute:
        found = _declared_in(module)
        if not found:
            raise DeclarationError(f"{where} declares no kernel: name a function, {where}:NAME, or write "
                                   "@samestate.kernel(system, form) above one")
        return found
    function = module
    for part in attribute.split("."):
        if not hasattr(function, part):
            names = [n for n, v in vars(module).items() if callable(v) and not n.startswith("_")]
            raise DeclarationError(f"{where} has no {attribute}{nearest(attribute, names)}")
        function = getattr(function, part)
    try:
        return [subject_of(function, **declaration)]
    except DeclarationError as error:
        if not error.missing:
            raise
        whole = {**{key: value for key, value in declaration.items() if value not in (None, [], {})}, **error.missing}
        raise DeclarationError(
            f"{error}; missing: {', '.join(error.missing)}. The whole declaration, with guesses to be corrected: "
            f"--subject 'python:{joined_name(name, whole)}'") from None


def _arguments(words):
    """(names, options) of a command line."""
    names, pairs, words = [], [], list(words)
    while words:
        word = words.pop(0)
        if not word.startswith("--"):
            names.append(word)
            continue
        key, equals, value = word[2:].partition("=")
        if not equals:
            if not words:
                raise DeclarationError(f"{word} without a value")
            value = words.pop(0)
        pairs.append((key.replace("-", "_"), value))
    if not names:
        raise DeclarationError("there is no NAME; give an adapter, module:function or file.py:function")
    return names, parsed_options(pairs)


def several(name):
    """['a', 'b'] from 'a,b'; what follows a ? belongs to the last name, including commas."""
    head, mark, query = name.partition("?")
    names = head.split(",")
    return names[:-1] + [names[-1] + mark + query]


def _seconds_until_now():
    """{"import": seconds since the start of this process}; None if /proc does not have it."""
    import time

    try:
        with open("/proc/self/stat", "rb") as file:
            ticks = int(file.read().rpartition(b")")[2].split()[19])  # field 22, in ticks since boot
        return {"import": max(0.0, round(time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK"), 3))}
    except (OSError, ValueError, IndexError, AttributeError):
        return None


def _not_started(stream, why):
    """Says why there is nothing to serve, both to a person and to the judge, and ends at once, because threads
    of an imported library may take longer to end than the judge waits."""
    print(f"samestate.serve: {why}", file=sys.stderr)
    sys.stderr.flush()
    try:
        stream.write({"type": "error", "id": None, "reason": why})
    except (OSError, ValueError):
        pass  # nobody is listening
    os._exit(2)


def main(words=None):
    from . import compilers, protocol, tuning

    words = sys.argv[1:] if words is None else words
    if words and words[0] in ("-h", "--help"):
        print(__doc__.strip())
        return 0
    stream = protocol.take_stdio()
    try:
        names, options = _arguments(words)
        tuning.obey_environment()
        compilers.start()
        made = [s for name in names for one in several(name) for s in subjects_of(one, options)]
        subjects = protocol.by_name(with_gradients(made))
        for subject in made:
            subject.library()
    except ImportError as error:
        return _not_started(stream, f"{' '.join(words)}: {protocol.one_line(error)}; install what is missing for "
                                    f"{sys.executable}, or set SAMESTATE_PYTHON")
    except Error as error:
        return _not_started(stream, protocol.one_line(error))
    except (Exception, SystemExit) as error:
        import traceback

        traceback.print_exc()
        return _not_started(stream, f"{' '.join(words)} cannot be imported: {type(error).__name__}: {protocol.one_line(error)}")
    try:
        protocol.converse(stream, subjects, about, seconds=_seconds_until_now())
    except KeyboardInterrupt:
        pass
    except (Error, OSError) as error:
        print(f"samestate.serve: {protocol.one_line(error)}", file=sys.stderr)
        return 2
    sys.stderr.flush()
    # Anything that the subject left running (threads, a device clean-up that hangs) must not delay the judge.
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
