"""python3 -m samestate.adapters [--markdown]: the adapters, and whether their packages are here."""
import sys

from . import ROWS, markdown, version_of

if sys.argv[1:] == ["--markdown"]:
    sys.stdout.write(markdown())
elif sys.argv[1:]:
    sys.exit("usage: python3 -m samestate.adapters [--markdown]")
else:
    for row in ROWS:
        print(f"{row.name:42} {row.system + '.' + row.form:30} {row.package} {version_of(row) or '(not installed)'}")
