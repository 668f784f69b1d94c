"""The wheel: the package, and beside it the command where one has been built (README.md, "A wheel").

The command is taken from the build folder that SAMESTATE_BUILD names, else from build/release of this repository; without
one the wheel is pure Python. Its libraries come along with the texts of their licences, but those of the C and C++ runtimes; the tag is auditwheel's for
a file that asks for the newest glibc that the command and its libraries ask for.
"""
import os
import re
import shutil
import subprocess
import tempfile

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:
    from wheel.bdist_wheel import bdist_wheel

HERE = os.path.dirname(os.path.abspath(__file__))
# What every machine of a manylinux tag has, and what of a GPU's driver only it may bring.
SYSTEMS_OWN = re.compile(r"(ld-linux|linux-vdso|lib(c|m|dl|rt|pthread|stdc\+\+|gcc_s|cuda))[-.]")


def build_folder():
    """The folder of a built command, None where there is none; SystemExit where the one that was named has none."""
    named = os.environ.get("SAMESTATE_BUILD")
    folder = named or os.path.join(os.path.dirname(HERE), "build", "release")
    if os.path.exists(os.path.join(folder, "cli", "samestate")):
        return folder
    if named:
        raise SystemExit(f"SAMESTATE_BUILD={named}: no cli/samestate in it; name a build folder, as build/release")
    return None


def libraries_of(program):
    """Paths of the libraries that it is linked to, the system's own left out."""
    said = subprocess.run(["ldd", program], check=True, stdout=subprocess.PIPE, universal_newlines=True).stdout
    missing = re.findall(r"(\S+) => not found", said)
    if missing:
        raise SystemExit(f"{program}: {', '.join(missing)} not found")
    return [path for name, path in re.findall(r"(\S+) => (/\S+)", said) if not SYSTEMS_OWN.match(name)]


def glibc_of(path):
    """The second number of the newest glibc 2 that the file asks for."""
    with open(path, "rb") as file:
        return max([int(n) for n in re.findall(rb"GLIBC_2\.(\d+)", file.read())], default=17)


def said_by(*command):
    """Lines that a program printed; none where it is not there or found nothing."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, universal_newlines=True)
    except OSError:
        return []
    return done.stdout.splitlines() if done.returncode == 0 else []


def licences_of(library):
    """Paths of the texts under which a library of this machine may be passed on, by dpkg or rpm, or from the folder that
    SAMESTATE_LICENSES names, in files that begin with the library's name (libfmt.txt); SystemExit where there is none."""
    stem = os.path.basename(library).split(".so")[0]
    own = os.environ.get("SAMESTATE_LICENSES")
    found = [os.path.join(own, name) for name in sorted(os.listdir(own)) if name.startswith(stem + ".")] if own else []
    real = os.path.realpath(library)
    for path in [] if found else [library, real, "/usr" + library, real[4:] if real.startswith("/usr/") else real]:
        for line in said_by("dpkg", "-S", path)[:1]:
            found.append(f"/usr/share/doc/{line.split(':')[0]}/copyright")
        for package in said_by("rpm", "-qf", path)[:1]:
            found += said_by("rpm", "-q", "--licensefiles", package)
        found = [path for path in found if os.path.isfile(path)]
        if found:
            break
    # Debian's files name the longer texts by their path.
    for path in list(found):
        with open(path, encoding="utf-8", errors="replace") as file:
            common = sorted(set(re.findall(r"/usr/share/common-licenses/[A-Za-z0-9.-]*[A-Za-z0-9]", file.read())))
        found += [text for text in common if os.path.isfile(text)]
    if not found:
        raise SystemExit(f"{library} goes into the wheel, and neither dpkg nor rpm knows its licence: put the text into a "
                         f"folder as {stem}.txt and name that by SAMESTATE_LICENSES")
    return found


def add_library(library, folder):
    """Copies a library into the folder, and the texts of its licence into licenses/ beside it: libfmt.so.9.copyright."""
    name, licenses = os.path.basename(library), os.path.join(folder, "licenses")
    os.makedirs(licenses, exist_ok=True)
    shutil.copy(os.path.realpath(library), os.path.join(folder, name))
    for path in licences_of(library):
        shutil.copy(path, os.path.join(licenses, f"{name}.{os.path.basename(path)}"))


def add_command(folder, package):
    """Copies the command into package/bin, what it reads into package/share, its libraries into package/lib."""
    with tempfile.TemporaryDirectory() as prefix:
        subprocess.run(["cmake", "--install", folder, "--component", "command", "--strip", "--prefix", prefix],
                       check=True, stdout=subprocess.DEVNULL)
        for part in ("bin", "lib", "share"):
            shutil.rmtree(os.path.join(package, part), ignore_errors=True)
        for part in ("bin", "share"):
            shutil.copytree(os.path.join(prefix, part), os.path.join(package, part))
    os.mkdir(os.path.join(package, "lib"))
    for library in libraries_of(os.path.join(package, "bin", "samestate")):
        add_library(library, os.path.join(package, "lib"))


class WithCommand(Distribution):
    """One with a program in it belongs to a platform, as one with an extension module does."""

    def has_ext_modules(self):
        return build_folder() is not None


class Package(build_py):
    def run(self):
        super().run()
        folder = build_folder()
        if folder and not getattr(self, "editable_mode", False):
            add_command(folder, os.path.join(self.build_lib, "samestate"))


class Wheel(bdist_wheel):
    def finalize_options(self):
        super().finalize_options()
        self.root_is_pure = build_folder() is None

    def get_tag(self):
        if self.root_is_pure:
            return super().get_tag()
        package = os.path.join(self.get_finalized_command("build_py").build_lib, "samestate")
        files = [entry.path for part in ("bin", "lib") for entry in os.scandir(os.path.join(package, part))
                 if entry.is_file()]
        return "py3", "none", f"manylinux_2_{max(map(glibc_of, files))}_{os.uname().machine}"


setup(distclass=WithCommand, cmdclass={"build_py": Package, "bdist_wheel": Wheel})
