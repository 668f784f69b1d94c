"""Where the command `samestate` is, and running it."""
import os
import shutil
import subprocess

from .errors import CommandError


def _on_path():
    """The first program `samestate` on PATH, None where there is none: the script of this package's name (main) only
    looks for it."""
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        path = os.path.join(folder or os.curdir, "samestate")
        if os.path.isfile(path) and os.access(path, os.X_OK):
            with open(path, "rb") as file:
                if file.read(4) == b"\x7fELF":
                    return path
    return None


def main():
    """The script `samestate` of an installed wheel: the command in this process's place."""
    import sys

    os.environ.setdefault("SAMESTATE_PYTHON", sys.executable)
    try:
        found = executable()
    except CommandError as error:
        print(f"samestate: {error}", file=sys.stderr)
        return 2
    os.execv(found, [found] + sys.argv[1:])


def executable():
    """The command's path: of the environment's SAMESTATE, beside this package, on PATH; CommandError otherwise."""
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
    """Command-line arguments of {'max_cases': 3, 'law': ['none'], 'effort': None}: None is left out."""
    out = []
    for key, value in options.items():
        for one in value if isinstance(value, (list, tuple)) else [value]:
            if one is not None and one is not False:
                out.append("--" + key.replace("_", "-"))
                if one is not True:
                    out.append(str(one))
    return out


def start(arguments, **more):
    """The command as a child with pipes for stdout and stderr, in a session of its own environment."""
    import sys

    environment = dict(os.environ)
    environment.setdefault("SAMESTATE_PYTHON", sys.executable)
    # A child that serves imports this package from wherever this process did.
    home = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    paths = environment.get("PYTHONPATH")
    environment["PYTHONPATH"] = home + os.pathsep + paths if paths else home
    more.setdefault("stdin", subprocess.DEVNULL)
    return subprocess.Popen([executable()] + list(arguments), env=environment, **more)


def stop(child):
    """Ends a child and what it started; returns when it is gone. At SIGTERM the command would finish the cases that are
    under way, of which nobody wants to know any more; its processes end with it, by PR_SET_PDEATHSIG."""
    if child is None:
        return
    if child.poll() is None:
        child.kill()
        child.wait()
    for pipe in (child.stdout, child.stderr):
        if pipe:
            pipe.close()
