"""What a call costs beyond its kernel, by the door that the kernel came through, and what each costs to open
(docs/subjects.md, "Which door").

usage: PYTHONPATH=python python3 measure/doors.py BUILD [SPEC ..]
       BUILD holds cli/samestate and tests/subject_benchmark (cmake --build --preset release --target subject_benchmark);
       SPEC: other subjects, ./libmine.so of examples/subject_c say

The kernels here do nothing, so that what is timed is the door. Of files: what `repro --dump` writes and `judge` reads,
beyond a repro that does neither; the least of several, since a run is mostly oracle.
"""
import json
import os
import subprocess
import sys
import tempfile
import time

import samestate
from samestate.serving import Server

SIZES = (1 << 12, 1 << 16, 1 << 20)
WIDTH = 64


def _nothing(make):
    kept = {}

    def kernel(q, k, v, g, beta, scale, initial_state):
        if v.shape not in kept:
            kept[v.shape] = make(v.shape), make((v.shape[0], v.shape[2], q.shape[3], v.shape[3]))
        return kept[v.shape]

    return kernel


def _zeros(library):
    def zeros(shape):
        module = __import__(library)
        return module.zeros(tuple(shape), dtype=module.float32)

    return zeros


numpy_nothing, torch_nothing = _nothing(_zeros("numpy")), _nothing(_zeros("torch"))
DECLARED = {"system": "gated_delta_rule", "form": "recurrent", "contracts": ["fp32"]}


def _calls(build, spec, serving=None):
    """Milliseconds a call at each of SIZES."""
    child = subprocess.Popen([os.path.join(build, "tests", "subject_benchmark"), "--benchmark_format=json",
                              "--benchmark_min_warmup_time=0.5"],  # the first call is watched, and compiles what it does
                             env=dict(os.environ, SUBJECT=spec), stdout=subprocess.PIPE, text=True)
    if serving:
        serving.pump(child)
    out = child.communicate()[0]
    if child.returncode:
        sys.exit(f"subject_benchmark of {spec} ended with {child.returncode}")
    rows = json.loads(out)["benchmarks"]
    if len(rows) != len(SIZES) or any(row.get("error_occurred") for row in rows):
        sys.exit(f"subject_benchmark of {spec}: {rows}")
    return [row["real_time"] / 1e3 for row in rows]


def _least(command, times):
    best = float("inf")
    for _ in range(times):
        begin = time.perf_counter()
        ran = subprocess.run(command, capture_output=True, text=True)
        best = min(best, time.perf_counter() - begin)
        if ran.returncode:
            sys.exit(f"{' '.join(command)}: exit {ran.returncode}: {ran.stderr[:500]}")
    return best


def _files(command, folder):
    """(milliseconds that writing a run takes, reading it) at each of SIZES."""
    found = []
    for size in SIZES:
        line = f"v1 linear_attention form=recurrent T={size // WIDTH} dk={WIDTH} dv={WIDTH}"
        path = os.path.join(folder, f"{size}.safetensors")
        repro, times = [command, "repro", line, "--card-budget", "0"], 7 if size < SIZES[-1] else 5
        plain = _least(repro, times)
        written = _least(repro + ["--dump", path], times)
        read = _least([command, "judge", path, "--card-budget", "0"], times)
        found.append((1e3 * (written - plain), 1e3 * (read - plain)))
    return found


def main(build, *specs):
    command = os.path.join(build, "cli", "samestate")
    here = os.path.abspath(__file__)
    os.environ.setdefault("SAMESTATE_PYTHON", sys.executable)
    print(f"{'door':34}" + "".join(f"{size // 1024:>9} k" for size in SIZES) + "   ms a call; s to start")
    nothing = _least([command, "list", "kernels"], 5)
    say = "&".join(f"{key}={','.join(value) if isinstance(value, list) else value}" for key, value in DECLARED.items())
    doors = [(f"process, {library}", f"python:{here}:{library}_nothing?{say}&array={library}")
             for library in ("numpy", "torch")] + [(spec, spec) for spec in specs]
    for name, spec in doors:
        start = _least([command, "list", "kernels", "--subject", spec], 3) - nothing
        print(f"{name:34}" + "".join(f"{ms:11.3f}" for ms in _calls(build, spec)) + f"   {start:.2f}", flush=True)
    server = Server([samestate.Subject(numpy_nothing, name="mine.gated_delta_rule", **DECLARED)])
    try:
        print(f"{'in this process, numpy':34}" + "".join(f"{ms:11.3f}" for ms in _calls(build, server.spec, server)),
              flush=True)
    finally:
        server.close()
    with tempfile.TemporaryDirectory() as folder:
        written, read = zip(*_files(command, folder))
    for name, row in (("file, written", written), ("file, judged instead of run", read)):
        print(f"{name:34}" + "".join(f"{ms:11.1f}" for ms in row))


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(*sys.argv[1:])
