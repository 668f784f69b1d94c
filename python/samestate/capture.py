"""python3 -m samestate.capture --target package.module:function --dir DIR -- command ...

Records real calls of a program (docs/subjects.md, "Capture"). The name `samestate.capture` always refers to the
function in capturing.py, whichever way it is imported.
"""
import sys

if __name__ == "__main__":
    from samestate.capturing_programs import main

    sys.exit(main(sys.argv[1:]))

from .capturing import capture  # noqa: E402

sys.modules[__name__] = capture
