"""What a call costs beyond its kernel, by the door that the kernel came through, and what each costs to open
(docs/lookup/subjects.md, "Which door").

usage: PYTHONPATH=python python3 measure/doors.py BUILD [SPEC ..]
       BUILD holds cli/samestate and tests/subject_benchmark (cmake --build --preset release --target subject_benchmark);
       SPEC: other subjects, ./libmine.so of examples/subject_c say

The kernels here do nothing, so that what is timed is the door. Of files: what `repro --dump` writes and `judge` reads,
beyond a repro that does neither; the least of several, since a run is mostly oracle.

Last the gate, of one kernel in C (measure/doors/door_kernel.c; cc and c++ are asked for) through every door: the same cases
on one thread, over the plugin. What runs beside it slows both, so a round goes through all doors and the median of the
rounds' ratios is shown, with the processor's time, children included, beside the clock's.
"""
import ctypes
import json
import os
import resource
import statistics
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


# The kernel of the gate, by a process: numpy's pointers through ctypes, as whoever has a library in C and tests in Python.

_door = None


def door(q, k, v, g, beta, scale, initial_state, head_map, cu_seqlens, output_final_state):
    global _door
    import numpy

    if _door is None:
        _door = ctypes.CDLL(os.environ["SAMESTATE_DOOR"]).door_kernel
        _door.restype = None
        _door.argtypes = [ctypes.c_void_p] * 9 + [ctypes.c_int64] * 6 + [ctypes.c_float, ctypes.c_int]
    B, T, Hk, dk = q.shape
    Hv, dv = v.shape[2:]
    N = B if cu_seqlens is None else len(cu_seqlens) - 1
    o = numpy.empty((B, T, Hv, dv), numpy.float32)
    last = numpy.empty((N, Hv, dk, dv), numpy.float32) if output_final_state else None
    given = (q, k, v, g, beta, initial_state, cu_seqlens, o, last)
    _door(*(x.ctypes.data if x is not None else None for x in given), N, T, Hk, Hv, dk, dv, scale, head_map == "tiled")
    return o, last


def _compiled(folder):
    """(the kernel, the plugin, the C library), compiled into the folder."""
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    here = os.path.join(root, "measure", "doors")
    built = [os.path.join(folder, name) for name in ("door_kernel.so", "door_plugin.so", "door_subject.so")]
    shared = ["-O2", "-shared", "-fPIC", "-I", root]
    kernel = os.path.join(folder, "door_kernel.o")
    for command in (["cc", "-O2", "-fPIC", "-c", os.path.join(here, "door_kernel.c"), "-o", kernel],
                    ["cc", *shared, kernel, "-o", built[0], "-lm"],
                    ["c++", "-std=c++20", *shared, os.path.join(here, "door_plugin.cpp"), kernel, "-o", built[1], "-lm"],
                    ["cc", *shared, os.path.join(here, "door_subject.c"), kernel, "-o", built[2], "-lm"]):
        subprocess.run(command, check=True)
    return built


def _bury():
    """Waits for what is left of the processes that were started."""
    try:
        while True:
            os.waitpid(-1, 0)
    except ChildProcessError:
        pass


def _gates(command, folder, rounds=5, cases=1500):
    """{door: (ratio to the plugin by the clock, by the processor's time)}, seconds of the plugin, cases. Of calls on dense
    tensors, which all doors hand over as they are: cases of several calls have parts of tensors."""
    kernel, plugin, library = _compiled(folder)
    os.environ["SAMESTATE_DOOR"] = kernel
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER: a subject's time counts too, which outlives its worker
    spec = (f"python:{os.path.abspath(__file__)}:door?system=gated_delta_rule&form=recurrent&contracts=fp32&"
            "name=door.gated_delta_rule&limits=l2norm%20=%200&strided=0")
    doors = {"plugin": ["--plugin", plugin], "C library": ["--subject", library], "process, numpy": ["--subject", spec]}
    taken = {name: [] for name in doors}
    for _ in range(rounds):
        for name, option in doors.items():
            before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
            ran = subprocess.run([command, "gate", *option, "--layout", "dense", "--form", "recurrent,packed", "--law",
                                  "none", "--max-cases", str(cases), "--threads", "1"], capture_output=True, text=True)
            wall = time.perf_counter() - begin
            _bury()
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            if ran.returncode:
                sys.exit(f"gate through the door {name}: exit {ran.returncode}: {ran.stdout[-800:]}{ran.stderr[-400:]}")
            spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            taken[name].append((wall, spent))
    of = {name: [statistics.median(t[i] / p[i] for t, p in zip(times, taken["plugin"])) for i in (0, 1)]
          for name, times in taken.items()}
    return of, min(wall for wall, _ in taken["plugin"]), cases


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
    with tempfile.TemporaryDirectory() as folder:
        ratios, seconds, cases = _gates(command, folder)
    print(f"\nthe gate, {cases} cases on one thread, {seconds:.1f} s through the plugin")
    for name, (wall, spent) in ratios.items():
        print(f"{name:34}{wall:11.2f} of its time, {spent:.2f} of the processor's")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(*sys.argv[1:])
