"""python3 -m samestate.adapters [--markdown | --peers FILE ..]: the adapters, and whether their packages are here; the
table of recorded runs (gate --jsonl)."""
import sys

from . import ROWS, markdown, version_of

if sys.argv[1:] == ["--markdown"]:
    sys.stdout.write(markdown())
elif sys.argv[1:2] == ["--peers"] and sys.argv[2:]:
    from .peers import table

    lines, failures = table(sys.argv[2:])
    print("\n".join(lines + [""] + failures))
elif sys.argv[1:]:
    sys.exit("usage: python3 -m samestate.adapters [--markdown | --peers FILE ..]")
else:
    for row in ROWS:
        print(f"{row.name:42} {row.system + '.' + row.form:30} {row.package} {version_of(row) or '(not installed)'}")
