"""Caches on disk of packages that compile: kept between runs, a folder a package and version, below the user's cache folder.

SAMESTATE_CACHE=FOLDER puts them elsewhere, SAMESTATE_CACHE=off leaves each package its own place. What the user has set
stays.
"""
import os
import sys

VARIABLE = "SAMESTATE_CACHE"

# Module: (distribution, {variable that it reads when it is imported: folder below its own}).
CACHES = {
    "triton": ("triton", {"TRITON_CACHE_DIR": ""}),
    "tilelang": ("tilelang", {"TILELANG_CACHE_DIR": ""}),
    "cutlass": ("nvidia-cutlass-dsl", {"CUTE_DSL_CACHE_DIR": ""}),
    "flashinfer": ("flashinfer-python", {"FLASHINFER_WORKSPACE_BASE": ""}),
    # A folder of one's own for extensions is one for all Pythons, whose libraries are not each other's.
    "torch": ("torch", {"TORCHINDUCTOR_CACHE_DIR": "inductor",
                        "TORCH_EXTENSIONS_DIR": f"extensions-{sys.implementation.cache_tag}"}),
}


def root():
    """The folder of all caches; None where there is to be none."""
    said = os.environ.get(VARIABLE, "")
    if said.lower() == "off":
        return None
    if said:
        return os.path.abspath(os.path.expanduser(said))
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(base, "samestate")


def give(name):
    """Sets the variables of a package that is about to be imported."""
    row = CACHES.get(name)
    if row is None:
        return
    folder = root()
    if folder is None:
        return
    from importlib import metadata

    distribution, variables = row
    try:
        version = metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return
    own = os.path.join(folder, f"{distribution}-{version}")
    for variable, below in variables.items():
        if os.environ.get(variable):
            continue
        place = os.path.join(own, below) if below else own
        try:
            os.makedirs(place, exist_ok=True)
        except OSError:  # a home that nobody can write to: the package does as it does
            return
        os.environ[variable] = place


def give_all():
    """The same for packages that were imported before."""
    for name in CACHES:
        if name in sys.modules:
            give(name)
