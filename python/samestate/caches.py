"""Keeps compiled kernels between runs, in a folder for each package and version below the user's cache folder.

SAMESTATE_CACHE=FOLDER moves these folders, and SAMESTATE_CACHE=off leaves each package its default location.
Variables that the user has set are not changed.
"""
import os
import sys

VARIABLE = "SAMESTATE_CACHE"

# {module: (distribution, {variable that the package reads when it is imported: folder below the package's})}
CACHES = {
    "triton": ("triton", {"TRITON_CACHE_DIR": ""}),
    "tilelang": ("tilelang", {"TILELANG_CACHE_DIR": ""}),
    "cutlass": ("nvidia-cutlass-dsl", {"CUTE_DSL_CACHE_DIR": ""}),
    "flashinfer": ("flashinfer-python", {"FLASHINFER_WORKSPACE_BASE": ""}),
    # Torch divides its default folder of extensions by Python version, but not a folder that it is given.
    "torch": ("torch", {"TORCHINDUCTOR_CACHE_DIR": "inductor",
                        "TORCH_EXTENSIONS_DIR": f"extensions-{sys.implementation.cache_tag}"}),
}


def root():
    """The folder of all caches, or None if SAMESTATE_CACHE is off."""
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
        except OSError:  # if the folder cannot be created the package uses its default
            return
        os.environ[variable] = place


def give_all():
    """Sets the variables of packages that are imported already."""
    for name in CACHES:
        if name in sys.modules:
            give(name)
