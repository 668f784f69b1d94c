"""The wheel: the package, and beside it the command where one has been built (README.md, "A wheel").

The command is taken from the build folder that SAMESTATE_BUILD names, else from build/release of this repository; without
one the wheel is pure Python. Its libraries come along, but those of the C and C++ runtimes; the tag is auditwheel's for
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
        shutil.copy(os.path.realpath(library), os.path.join(package, "lib", os.path.basename(library)))


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
        files = [os.path.join(package, part, name) for part in ("bin", "lib")
                 for name in os.listdir(os.path.join(package, part))]
        return "py3", "none", f"manylinux_2_{max(map(glibc_of, files))}_{os.uname().machine}"


setup(distclass=WithCommand, cmdclass={"build_py": Package, "bdist_wheel": Wheel})
