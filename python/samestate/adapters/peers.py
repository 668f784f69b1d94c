"""The table of docs/peers.md from records of `samestate gate --subject python:NAME --jsonl FILE`."""
import json
import re
from statistics import median

_PACKAGES = {"fla": "flash-linear-attention", "libggml": "ggml", "mlx": "mlx", "mlx_lm": "mlx-lm",
             "transformers": "transformers", "torch": "torch", "triton": "triton", "numpy": "numpy"}
_OF = {"fla": ("fla", "triton", "torch"), "hf": ("transformers", "torch"), "ggml": ("libggml", "numpy"),
       "mlx": ("mlx_lm", "mlx")}


def records(path):
    """(the run's head, its cases) of a file of records; a line that was cut off ends it."""
    head, cases = {}, []
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            try:
                record = json.loads(line)
            except ValueError:
                break
            if record.get("event") == "run":
                head = record
            elif record.get("event") == "end":
                cases.append(record)
    return head, cases


def versions(head, kernel):
    """'flash-linear-attention 0.6.0, triton 3.6.0' of a run's head, of the packages that matter to the kernel."""
    said, text = {}, head.get("plugins", "")
    for begin in re.finditer(r"\) (?=\{)", text):  # SPEC (hash) {..}, of each subject
        try:
            said.update(json.JSONDecoder().raw_decode(text, begin.end())[0])
        except ValueError:
            pass  # such signs inside a SPEC
    keys = _OF.get(kernel.split(".")[0], tuple(_PACKAGES))
    return ", ".join(f"{_PACKAGES[k]} {said[k]}" for k in keys if k in said)


def _number(value):
    return f"{float(value):.3g}"


def table(paths):
    """Markdown lines, a row for each kernel and contract of the files, and the failures behind it."""
    rows, failures = [], []
    for path in paths:
        head, cases = records(path)
        cases = [r for r in cases if r["verdict"] != "skipped"]  # no device: nothing ran
        for key in sorted({(r["kernel"], r["contract"]) for r in cases}):
            of = [r for r in cases if (r["kernel"], r["contract"]) == key]
            count = {v: sum(r["verdict"] == v for r in of) for v in ("pass", "fail", "vacuous", "unsupported")}
            other = len(of) - sum(count.values())
            passed = [float(r["ratio"]) for r in of if r["verdict"] == "pass"]
            worst = max((r for r in of if r["verdict"] == "pass"), key=lambda r: float(r["ratio"]), default=None)
            beyond = sum(float(r.get("twin_ratio", 0)) > 1 for r in of if r["verdict"] == "pass")
            device = head.get("device") if of[0].get("device") == "cuda" else "cpu"
            rows.append([f"`{key[0]}`", versions(head, key[0]), device, f"`{key[1]}`", len(of), count["pass"],
                         count["fail"] + other, count["vacuous"], count["unsupported"],
                         _number(median(passed)) if passed else "", _number(worst["ratio"]) if worst else "", beyond,
                         f"`{worst['line']}`" if worst else ""])
            kinds = {}
            for r in of:
                if r["verdict"] not in count or r["verdict"] == "fail":
                    law = r.get("law")
                    kinds.setdefault(f"law {law}" if law else f"regime {r['regime']}", []).append(r)
            failures += [f"* `{key[0]}`, `{key[1]}`, {kind}: {len(found)}, first `{found[0]['line']}`: "
                         f"{found[0]['reason']}" for kind, found in kinds.items()]
    head = ("kernel", "versions", "device", "contract", "cases", "pass", "fail", "vacuous", "unsupported",
            "median ratio", "worst", "beyond the twin", "line of the worst")
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(map(str, row)) + " |" for row in rows]
    return lines, failures
