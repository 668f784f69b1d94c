"""What the peers of `samestate bench --peer` have in common: the conversation, and the clock.

A peer is a script that calls `serve(load, measure)`; docs/do/bench.md has the protocol.
"""
import json
import os
import sys

# Libraries print to stdout as they please; the conversation keeps a descriptor of its own.
answers = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)

LEAST_SAMPLES, MOST_SAMPLES, WARM_UP = 10, 1000, 3
SAMPLE_SECONDS = 200e-6  # a sample lasts at least so long
CACHE_TIMES = 4  # tensors are rotated until together they are so many times the L2


class Unsupported(Exception):
    """The peer does not run this case; the text says why."""


def bytes_of(torch, tensors):
    return sum(x.numel() * x.element_size() for x in tensors.values() if isinstance(x, torch.Tensor))


def samples_of(torch, call, calls, seconds):
    """Seconds of one call, a sample each; `call()` runs `calls` of them. Events stand between the samples."""
    def take(count):
        events = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
        events[0].record()
        for i in range(count):
            call()
            events[i + 1].record()
        torch.cuda.synchronize()
        return [events[i].elapsed_time(events[i + 1]) * 1e-3 for i in range(count)]

    estimate = sorted(take(3))[1]
    wanted = int(min(MOST_SAMPLES, max(LEAST_SAMPLES, seconds / max(estimate, 1e-7))))
    return [sample / calls for sample in take(wanted)]


def load_torch():
    """torch where it has a CUDA device, or None and the reason why nothing can run."""
    try:
        import torch
    except Exception as error:  # an installation may be broken in any way
        return None, f"torch cannot be imported: {error}"
    if not torch.cuda.is_available():
        return None, "torch finds no CUDA device"
    return torch, ""


def timed(torch, operator, make_inputs, seconds):
    """Seconds of one call `operator(**inputs)`, a sample each, and how it was timed. make_inputs() draws one set of keyword
    arguments; sets are rotated, so that none is in the cache."""
    first = make_inputs()
    cache = getattr(torch.cuda.get_device_properties(0), "L2_cache_size", 50 * 2**20)
    copies = max(1, -(-CACHE_TIMES * cache // max(bytes_of(torch, first), 1)))
    sets = [first] + [make_inputs() for _ in range(copies - 1)]
    with torch.no_grad():
        for i in range(WARM_UP):  # compiles, and tunes
            operator(**sets[i % copies])
        torch.cuda.synchronize()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for tensors in sets:
            operator(**tensors)
        end.record()
        torch.cuda.synchronize()
        estimate = begin.elapsed_time(end) * 1e-3 / copies
        calls = copies * max(1, int(SAMPLE_SECONDS / max(estimate * copies, 1e-7)))
        try:
            stream = torch.cuda.Stream()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.stream(stream):
                operator(**sets[0])
            torch.cuda.synchronize()
            with torch.cuda.graph(graph):
                for i in range(calls):
                    operator(**sets[i % copies])
            graph.replay()
            torch.cuda.synchronize()
            samples = samples_of(torch, graph.replay, calls, seconds)
            return samples, f"graph of {calls} calls, {copies} input sets"
        except Exception as error:  # what cannot be captured is launched
            torch.cuda.synchronize()
            turn = iter(range(10**12))
            samples = samples_of(torch, lambda: operator(**sets[next(turn) % copies]), 1, seconds)
            return samples, f"events, no graph ({type(error).__name__}), {copies} input sets"


def serve(load, measure):
    """Answers cases until the end of the input. load() -> (torch, "") or (None, why nothing can run);
    measure(torch, case) -> (name of what ran, seconds, note), or throws Unsupported."""
    torch, reason = load()
    for line in sys.stdin:
        case = json.loads(line)
        answer = {"id": case["id"]}
        try:
            if torch is None:
                raise Unsupported(reason)
            answer["kernel"], answer["seconds"], answer["note"] = measure(torch, case)
        except Unsupported as unsupported:
            answer["unsupported"] = str(unsupported)
        except Exception as error:  # one case that fails leaves the others theirs
            answer = {"id": case["id"], "unsupported": f"{type(error).__name__}: {error}".split("\n")[0][:180]}
        if torch is not None:
            torch.cuda.empty_cache()
        answers.write(json.dumps(answer) + "\n")
