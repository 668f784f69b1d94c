"""Adapters: public kernels as subjects, from one table (table.py; docs/lookup/adapters.md is made of it)."""
import importlib
import itertools
import sys
import textwrap

from .. import devices, interpreter
from ..errors import DeclarationError
from ..subject import CONVENTIONS, Subject
from .engines import ENGINES
from .operators import OPERATORS
from .table import ROWS as FAMILY_ROWS

ROWS = FAMILY_ROWS + OPERATORS + ENGINES


def names():
    return [row.name for row in ROWS]


def rows_of(name):
    """The rows of an adapter's name, or of a kernel's name without its form (the chunked and the recurrent one)."""
    return [row for row in ROWS if row.name == name] or [row for row in ROWS if row.kernel == name]


def _loaded(row, device):
    """The function of a row, wrapped by a call of its system's tensors if it needs one. Raises ImportError if
    its package is not installed."""
    found = _found(row, device)
    if row.call:
        from . import named

        found = getattr(named, row.call)(found)
    return found


def public(module, name):
    """The attribute of a package's module. Raises DeclarationError if the installed version does not have it."""
    found = getattr(importlib.import_module(module), name, None)
    if found is None:
        raise DeclarationError(f"{module} has no {name}, which this adapter calls: see docs/lookup/adapters.md for the version that "
                               "was read")
    return found


def _found(row, device):
    module, _, path = row.function.partition(":")
    if row.package == "flash-linear-attention" and module.startswith("fla."):
        from .fla import function

        return function(module, path, device)
    wrapped = path.endswith(".__wrapped__")
    made = path.endswith("()")
    name = path[: -len(".__wrapped__")] if wrapped else path[:-2] if made else path
    found = public(module, name)
    # Without FLA there is no dispatching decorator, and nothing to unwrap.
    return getattr(found, "__wrapped__", found) if wrapped else found() if made else found


def _order(version):
    """The release numbers of a version, followed by the number of a post release; suffixes after these are ignored."""
    release, _, post = version.partition("+")[0].partition(".post")
    numbers = []
    for part in release.split("."):
        digits = "".join(itertools.takewhile(str.isdigit, part))
        numbers.append(int(digits or 0))
    return numbers, int(post) if post.isdigit() else 0


_WARNED = set()


def _warn_of_version(row, version):
    """Warns, once per package and process, if another version is installed than the one the row was read at.
    The row is used anyway."""
    if version is None or version in row.versions or (row.package, row.versions) in _WARNED:
        return
    _WARNED.add((row.package, row.versions))
    newer = all(_order(version) > _order(known) for known in row.versions)
    print(f"samestate.serve: {row.package} {version} is installed, {'newer than' if newer else 'not'} what {row.name} was read "
          f"at: {' '.join(row.versions)}; the row is tried as it stands", file=sys.stderr)


def version_of(row):
    """The installed version of a row's package, or None if it is not installed."""
    from importlib import metadata

    try:
        return metadata.version(row.package)
    except metadata.PackageNotFoundError:
        return None


def subject(row, device=None, contracts=None, limits=(), name=None, **more):
    """The Subject of a row on a device. By default it is on the GPU if the row and the machine support one, and
    otherwise on the CPU if the row supports that. Additional limits narrow it; `contracts` replaces those of
    the row; conventions other than the function's own are not possible."""
    changed = [key for key in more if key in CONVENTIONS or key in ("system", "form", "array", "arguments", "dtypes")]
    if changed:
        raise DeclarationError(f"{row.name}: {' '.join(changed)} is the function's own; what can be said is device, "
                               "contracts, limits, name, options")
    if device is None:
        device = "cpu" if "cpu" in row.devices and not ("cuda" in row.devices and devices.has_gpu()) else "cuda"
        if device == "cpu" and row.package == "flash-linear-attention" and "cuda" in row.devices:
            interpreter.choose(row.name)
    if device not in row.devices:
        raise DeclarationError(f"{row.name} on device {device}: known are {' '.join(row.devices)}")
    version = version_of(row)
    _warn_of_version(row, version)
    function = _loaded(row, device)
    read_at = f"{row.package} {version}; read at {' '.join(row.versions)}"
    options = {**row.options, **more.pop("options", {})}
    variant = more.pop("variant", row.variant if device == "cuda" else ())
    interpreted = row.package == "flash-linear-attention" and device == "cpu"
    if interpreted and any("bf16" in contract for contract in contracts or ()):
        raise DeclarationError(f"{row.name} under {' '.join(contracts)} on the cpu: {interpreter.BF16_REASON}")
    made = Subject(function, row.system, row.form, contracts=contracts or row.devices[device],
                   limits=list(row.limits) + list(limits), array=row.array, device=device, name=name or row.kernel,
                   compiles=device == "cuda" or interpreted,
                   variant=variant, arguments=row.arguments, options=options,
                   about={"adapter": row.name, "package": read_at},
                   gradient_contracts=() if contracts or device == "cpu" else row.gradients, **{**row.conventions, **more},
                   **({"strided": row.strided} if "strided" not in more else {}),
                   **({"dtypes": row.dtypes} if row.dtypes else {}))
    return made


def _laid_out(row):
    """The first sentence of the function that makes a row's call, or '' if the public function is called under
    its own names."""
    from . import named

    return " ".join((getattr(named, row.call).__doc__ or "").rstrip().rstrip(".").split(". ")[0].split()) if row.call else ""


def markdown():
    """docs/lookup/adapters.md."""
    lines = [
        "# Adapters for public kernels", "",
        "This page lists the public kernels that can be gated by name, and how each is called.", "",
        "`samestate gate --subject python:NAME` calls the function by keyword, as its package has it.",
        "Conventions are named where they differ from the canonical call",
        "([conventions](subjects.md#conventions)); for systems of named tensors they say how tensors lie",
        "(`python/samestate/adapters/named.py`). A row with `cuda`",
        "runs on the GPU if the machine has one, else on the CPU if the row has that; `?device=cpu` and",
        "`?device=cuda` ask for either. Tuning and caches are explained in",
        "[python/README.md](../../python/README.md#kernels-that-are-compiled-when-they-are-called).", "",
        "A name after a dot, such as `.cp`, is one of the kernels among which the function before it",
        "chooses; its options and limits keep the call to that one. If a package is newer than its row, one",
        "line on stderr names both versions, and the row is tried as it stands. The page is",
        "`python3 -m samestate.adapters --markdown`.", "",
        "| NAME | kernel | package, read at | device: contracts | conventions | limits | ran |",
        "|---|---|---|---|---|---|---|"]
    for row in ROWS:
        contracts = "; ".join(f"{device}: {' '.join(c)}" for device, c in row.devices.items())
        conventions = "; ".join(filter(None, [
            ", ".join(f"{k} {v}" for k, v in row.conventions.items()),
            "" if row.strided is None else "contiguous tensors",
            ", ".join(f"`{k}={v!r}`" for k, v in row.options.items()), _laid_out(row)]))
        if row.dtypes:
            kind = sorted(set(row.dtypes.values()))
            conventions = "; ".join(filter(None, [conventions.rstrip("."), *(
                f"{dtype}: {', '.join(k for k, v in row.dtypes.items() if v == dtype)}" for dtype in kind)]))
        ran = ", ".join(f"{device}: {version}" for device, version in row.tried.items())
        tried = "; ".join(filter(None, [ran, row.untried and f"needs {row.untried}"])) or "not yet"
        lines.append(f"| `{row.name}` | `{row.kernel}.{row.form}` | {row.package} {', '.join(row.versions)} | "
                     f"{contracts} | {conventions} | {', '.join(f'`{x}`' for x in row.limits) or 'none'} | {tried} |")
    lines += ["", "## What a caller gets wrong", ""]
    for row in filter(lambda row: row.traps, ROWS):
        lines += textwrap.wrap(f"* `{row.name}`: {row.traps}.", 100, subsequent_indent="  ", break_on_hyphens=False)
    lines += ["", "## Which twins decide", "",
              "Under a contract with `card:nearest` the distance to the twin is reported and fails nothing; bounds,",
              "laws and exact regimes decide either way. `chunk_gated_delta_rule` and `chunk_delta_rule` of bf16",
              "tensors have the contract that `samestate card` read on an H100 ([cards](../understand/card.md)): of",
              "1,162 and 1,018 cases none lay beyond its twin, and under `--strict` nothing failed but two resets",
              "that give NaN. No card was read of their fp16 tensors (one of 923 cases beyond the twin, and none of",
              "864), nor of fp32 tensors of the first (161 of 859 beyond, up to 3.2 times the limit). Rows whose",
              "contract is a guess from the source are nearest until they run.",
              "", "## What did not run", "",
              "Packages that need a device (`engines.py`, and rows that say `not yet`) were read, and each row is",
              "tested on an imitation of its function (`python/tests/test_imitations.py`). In addition, the",
              "following ran on a CPU: the Triton sources of vLLM's and SGLang's chunked rule (two cases each, and",
              "those of [peers.md](peers.md) that fail), of SGLang's packed decode (two cases) and of mamba_ssm's",
              "three functions (one each, and five packed batches of the chunked scan) ran in Triton's interpreter,",
              "and the references in torch that causal_conv1d and mamba_ssm bring (`causal_conv1d_ref`,",
              "`causal_conv1d_update_ref`, `selective_scan_ref`; 60 cases each): all passed.",
              "", "## What is not here", "",
              "* bf16 in Triton's interpreter, whose casts to bf16 truncate, and whose `tl.dot` multiplies bit",
              "  patterns.",
              "* 16-bit tensors of Hugging Face's other norms, l2norm and rotary embedding: they round in between",
              "  (the normalised row before its weight, each product), which no contract of these systems has.",
              "* Packed scans of mamba_ssm's `selective_scan_fn`, which takes neither `cu_seqlens` nor `seq_idx`.",
              "* `mamba_inner_fn` and `mamba2_split_conv1d_scan_combined` of Hugging Face: without mamba_ssm they",
              "  are None.",
              "* `delta_rule_chunkwise`, `delta_rule_parallel` and `naive_chunk_linear_attn` of",
              "  flash-linear-attention, which take whole chunks only, and `naive_retention`, which returns no",
              "  final state.",
              "", "## Options in the name", "",
              "`python:fla.chunk_gated_delta_rule?device=cpu` chooses a device, `?limits=dk <= 64;T <= 256` narrows",
              "the limits and `?contracts=bf16` names other contracts. The kernel's name,",
              "`python:fla.gated_delta_rule`, takes the chunked and the",
              "recurrent function together, as decoding needs.", ""]
    return "\n".join(lines)
