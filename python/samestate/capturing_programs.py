"""python3 -m samestate.capture --target package.module:function --dir DIR [options] -- command ...

Runs a program and records real calls of functions in it, in every Python that it starts: each function is
replaced as soon as its module has been imported, before another module can import it by name. The program's
results and exit code are unchanged.

    python3 -m samestate.capture --target vllm.model_executor.models.qwen3_next:chunk_gated_delta_rule \\
        --adapter fla.chunk_gated_delta_rule --dir calls -- vllm serve ...
    samestate judge calls

Calls that were recorded without a declaration, or with a wrong one, can be given one afterwards:

    python3 -m samestate.capture --declare calls --adapter hf.torch_chunk_gated_delta_rule
"""
import argparse
import json
import os
import signal
import subprocess
import sys

from .capturing import FORMAT, MANIFEST, MAX_BYTES, MAX_CALLS, WHY_NOT, Capture, declared
from .errors import DeclarationError, Error

VARIABLE = "SAMESTATE_CAPTURE"


# -- in the program

class _Finder:
    """An entry of sys.meta_path before the others: it finds modules through them, and patches a target's module
    after it has run."""

    def __init__(self, captures):
        self.captures, self.looking = captures, set()

    def find_spec(self, name, path=None, target=None):
        if name not in self.captures or name in self.looking:
            return None
        import importlib.util

        self.looking.add(name)
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self.looking.discard(name)
        if spec is None or spec.loader is None:
            return spec
        load = spec.loader.exec_module

        def exec_module(module):
            load(module)
            for capture in self.captures.pop(name, ()):
                _patched(capture, module)

        try:
            spec.loader.exec_module = exec_module
        except AttributeError as error:
            print(f"samestate.capture: {name} cannot be captured in: {error}", file=sys.stderr)
        return spec


def _patched(capture, module):
    import atexit

    try:
        capture.patch(module)
        atexit.register(capture.close)
    except Exception as error:
        print(f"samestate.capture: {capture.target} is not captured: {type(error).__name__}: {error}", file=sys.stderr)


def install():
    """Reads from the environment what to capture, when a Python starts."""
    said = os.environ.get(VARIABLE)
    if not said:
        return
    captures = {}
    for target, settings in json.loads(said):
        made = Capture(target, settings)
        captures.setdefault(target.partition(":")[0], []).append(made)
    for name in [name for name in captures if name in sys.modules]:
        for made in captures.pop(name):
            _patched(made, sys.modules[name])
    sys.meta_path.insert(0, _Finder(captures))


# -- the command

def _bytes(text):
    """Parses 1073741824, 512m or 2g."""
    units = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
    digits, unit = (text[:-1], units[text[-1].lower()]) if text[-1:].lower() in units else (text, 1)
    if not digits.isdigit() or int(digits) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: write bytes, such as 1073741824, 512m or 2g")
    return int(digits) * unit


def _count(text):
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: write a whole number above 0")
    return int(text)


def _declaration(options):
    """The keyword arguments of a declaration that --as gives."""
    if not options.declaration:
        return {}
    from .serve import parsed_options, split_name

    return parsed_options(split_name("?" + options.declaration)[1])


def lines_of(folder):
    """The lines of a folder's manifest, without those that a killed process left incomplete."""
    path = os.path.join(folder, MANIFEST)
    try:
        with open(path, encoding="utf-8") as file:
            texts = file.read().splitlines()
    except OSError as error:
        raise Error(f"{path}: {error.strerror}; name a folder that samestate.capture wrote") from None
    out = []
    for text in texts:
        try:
            out.append(json.loads(text))
        except ValueError:
            continue
    if not any(isinstance(line, dict) and line.get("format") == FORMAT for line in out):
        raise Error(f"{path}: there is no line of format {FORMAT}; name a folder that samestate.capture wrote")
    return out


def _declare(options):
    """Appends a declaration to a folder's manifest."""
    lines = lines_of(options.declare)
    known = list(dict.fromkeys(line["function"] for line in lines if line.get("event") == "function"))
    named = options.target or known
    for name in named:
        if name not in known:
            raise Error(f"target {name}: no call of it in {options.declare}; there are {' '.join(known)}")
    if len(named) > 1 and not options.target:
        raise Error(f"{options.declare} has calls of {' '.join(named)}: name the one to declare with --target")
    words = _declaration(options)
    if words:
        words["contracts"] = words.get("contracts", ["fp32"])
    if options.adapter:
        made = declared(adapter=options.adapter, **words)
    else:
        system, form = words.pop("system", None), words.pop("form", None)
        if not system or not form:
            raise DeclarationError("give --as 'system=..&form=..' and its conventions, or --adapter NAME")
        contracts, limits = words.pop("contracts"), words.pop("limits", [])
        arguments, fixed = words.pop("arguments", {}), words.pop("options", {})
        words.pop("name", None)
        from .subject import _checked_conventions

        made = {"declaration": {"name": f"captured.{system}.{form}", "system": system, "form": form, "contracts": contracts,
                                "limits": limits, "conventions": _checked_conventions(words)},
                "arguments": arguments, "options": fixed}
    with open(os.path.join(options.declare, MANIFEST), "a", encoding="utf-8") as file:
        for name in named:
            file.write(json.dumps({"event": "declare", "function": name, **made}, allow_nan=False) + "\n")
    print(f"{', '.join(named)}: declared as {made['declaration']['name']}; samestate judge {options.declare}")
    return 0


def _summary(folder, before):
    """One line for each function: how many calls this run recorded, and why others were left out."""
    path = os.path.join(folder, MANIFEST)
    if not os.path.exists(path):
        return ["nothing was recorded: no Python of the command imported a module of the targets (one that is started with "
                "-I or -E, or in a container, is not reached)"]
    lines = [line for line in lines_of(folder)[before:] if isinstance(line, dict)]
    counts = {}
    for line in lines:
        one = counts.setdefault(line.get("function"), dict.fromkeys(("recorded", "seen", "ended", "begun", "replaced")
                                                                    + WHY_NOT, 0))
        if line.get("event") == "function":
            one["begun"] += 1
        elif line.get("event") == "call":
            one["recorded"] += 1
        elif line.get("event") == "end":
            one["ended"] += 1
            for key in ("seen", "replaced") + WHY_NOT:
                one[key] += line.get(key, 0)
    out = []
    for name, one in counts.items():
        others = ", ".join(f"{key} {one[key]}" for key in WHY_NOT if one[key])
        killed = max(one["begun"] - one["ended"], 0)
        seen = f" of {one['seen']} calls" if one["seen"] else " calls"
        notes = [f"{killed} process(es) did not end by themselves"] if killed else []
        if one["replaced"]:
            notes.append("something else was put in its place after it was imported")
        elif not one["seen"] and not killed:
            notes.append("it was never called by the name that was replaced")
        out.append(f"{name}: {one['recorded']}{seen} recorded{'; not recorded: ' + others if others else ''}"
                   f"{'; ' + '; '.join(notes) if notes else ''}")
    return out or ["nothing was recorded: no Python of the command imported a module of the targets"]


def _environment(options, declaration):
    settings = {"dir": os.path.abspath(options.dir), "every": options.every, "max_calls": options.max_calls,
                "max_bytes": options.max_bytes, "declaration": declaration}
    adapters = options.adapter or []
    targets = [(target, {**settings, "adapter": adapters[i] if i < len(adapters) else None})
               for i, target in enumerate(options.target)]
    here = os.path.dirname(os.path.abspath(__file__))
    paths = [os.path.join(here, "capture_site")] + [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p]
    return {**os.environ, VARIABLE: json.dumps(targets), "PYTHONPATH": os.pathsep.join(paths)}


def _parser():
    parser = argparse.ArgumentParser(prog="python3 -m samestate.capture", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", action="append", default=[], metavar="MODULE:FUNCTION",
                        help="the function, by the module from which the program takes it; may be given more than once")
    parser.add_argument("--dir", metavar="DIR", help="the folder of the calls; what is there stays, and more is added")
    parser.add_argument("--adapter", action="append", metavar="NAME",
                        help="what the function computes, as a row of docs/lookup/adapters.md; of several targets one each, in order")
    parser.add_argument("--as", dest="declaration", metavar="WORDS",
                        help="the same in the words of a declaration: 'system=gated_delta_rule&form=chunked&contracts=bf16&state=vk'")
    parser.add_argument("--every", type=_count, default=1, metavar="N", help="record each N-th call (1)")
    parser.add_argument("--max-calls", type=_count, default=MAX_CALLS, metavar="N",
                        help=f"record at most N calls of a function and process ({MAX_CALLS})")
    parser.add_argument("--max-bytes", type=_bytes, default=MAX_BYTES, metavar="N",
                        help="and at most so many bytes of them, as 512m or 2g (1g)")
    parser.add_argument("--declare", metavar="DIR", help="declare what was recorded in DIR, and run nothing")
    parser.add_argument("command", nargs="*", help="the program and its arguments, behind --")
    return parser


def main(arguments):
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        if options.declare:
            if options.adapter and len(options.adapter) > 1:
                raise Error("--declare takes one --adapter")
            options.adapter = options.adapter[0] if options.adapter else None
            return _declare(options)
        if not options.target or not options.dir or not options.command:
            parser.error("give --target, --dir and, after --, a command")
        if options.adapter and len(options.adapter) > len(options.target):
            raise Error(f"{len(options.adapter)} adapters for {len(options.target)} targets; give one for each")
        for target in options.target:
            Capture(target, {})
        for adapter in options.adapter or ():
            declared(adapter=adapter)
        environment = _environment(options, _declaration(options))
        before = len(lines_of(options.dir)) if os.path.exists(os.path.join(options.dir, MANIFEST)) else 0
    except Error as error:
        print(f"samestate.capture: {error}", file=sys.stderr)
        return 2
    try:
        child = subprocess.Popen(options.command, env=environment)
    except OSError as error:
        print(f"samestate.capture: {options.command[0]}: {error.strerror}", file=sys.stderr)
        return 2
    # An interrupt goes to the program, which ends as it likes; a signal to this process alone is passed on.
    signal.signal(signal.SIGINT, lambda *_: None)
    signal.signal(signal.SIGTERM, lambda number, _: child.send_signal(number))
    code = child.wait()
    try:
        for line in _summary(options.dir, before):
            print(f"samestate.capture: {line}", file=sys.stderr)
    except Error as error:
        print(f"samestate.capture: {error}", file=sys.stderr)
    return code if code >= 0 else 128 - code
