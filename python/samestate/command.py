"""Finds and runs the command `samestate`."""
import os
import shutil
import subprocess

from .errors import CommandError


def _on_path():
    """The first program `samestate` on PATH, or None. The script of this package with the same name (main) is
    skipped, because it only looks for the program."""
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        path = os.path.join(folder or os.curdir, "samestate")
        if os.path.isfile(path) and os.access(path, os.X_OK):
            with open(path, "rb") as file:
                if file.read(4) == b"\x7fELF":
                    return path
    return None


def main():
    """The script `samestate` of an installed wheel: replaces this process by the command."""
    import sys

    os.environ.setdefault("SAMESTATE_PYTHON", sys.executable)
    try:
        found = executable()
    except CommandError as error:
        print(f"samestate: {error}", file=sys.stderr)
        return 2
    os.execv(found, [found] + sys.argv[1:])


def executable():
    """The path of the command: from the environment variable SAMESTATE, beside this package, or on PATH. Raises
    CommandError if there is none."""
    named = os.environ.get("SAMESTATE")
    if named:
        found = shutil.which(named)
        if found:
            return found
        raise CommandError(f"SAMESTATE={named}: no such executable; name the command `samestate` of a build")
    beside = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "samestate")
    if os.access(beside, os.X_OK) and not os.path.isdir(beside):
        return beside
    found = _on_path()
    if found:
        return found
    raise CommandError(f"the command `samestate` is neither at {beside} nor on PATH; "
                       "set SAMESTATE to the path of the executable")


def arguments_of(options):
    """Command-line arguments from {'max_cases': 3, 'law': ['none'], 'effort': None}; None is left out."""
    out = []
    for key, value in options.items():
        for one in value if isinstance(value, (list, tuple)) else [value]:
            if one is not None and one is not False:
                out.append("--" + key.replace("_", "-"))
                if one is not True:
                    out.append(str(one))
    return out


def start(arguments, **more):
    """Starts the command as a child in a session of its own, with pipes for stdout and stderr."""
    import sys

    environment = dict(os.environ)
    environment.setdefault("SAMESTATE_PYTHON", sys.executable)
    # A child that serves imports this package from the same place as this process.
    home = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    paths = environment.get("PYTHONPATH")
    environment["PYTHONPATH"] = home + os.pathsep + paths if paths else home
    more.setdefault("stdin", subprocess.DEVNULL)
    return subprocess.Popen([executable()] + list(arguments), env=environment, **more)


def stop(child):
    """Ends a child and everything that it started, and returns when it is gone. On SIGTERM the command would
    finish the running cases, which are no longer of interest; its processes end with it, through
    PR_SET_PDEATHSIG."""
    if child is None:
        return
    if child.poll() is None:
        child.kill()
        child.wait()
    for pipe in (child.stdout, child.stderr):
        if pipe:
            pipe.close()
