"""python3 -m samestate.adapters [--markdown]: lists the adapters, and says if their packages are installed."""
import sys

from . import ROWS, markdown, version_of

if sys.argv[1:] == ["--markdown"]:
    sys.stdout.write(markdown())
elif sys.argv[1:]:
    sys.exit("usage: python3 -m samestate.adapters [--markdown]")
else:
    for row in ROWS:
        print(f"{row.name:42} {row.system + '.' + row.form:30} {row.package} {version_of(row) or '(not installed)'}")
