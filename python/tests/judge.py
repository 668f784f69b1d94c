"""The judge's side of the protocol, for tests: a memory object with guards and poison, requests, and answers.

A stand-in for the command: it knows tensors and messages, nothing of bounds. `call` describes a call of the recurrent
family under any conventions, and `recurrence` is its expectation in float64, from what the subject was given.
"""
import fcntl
import json
import mmap
import os
import socket
import subprocess
import sys

import numpy as np

PYTHON = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
KINDS = {"fp32": "<f4", "bf16": "<u2", "fp16": "<f2", "int32": "<i4", "int64": "<i8"}
GUARD = 0xA5


def bf16(x):
    """bf16 bits, by the nearest even, one value's arithmetic apart from the package's."""
    x = np.asarray(x, np.float32)
    bits = x.view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def widened(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


def encoded(x, dtype):
    return bf16(x) if dtype == "bf16" else np.asarray(x).astype(KINDS[dtype])


def decoded(bits, dtype):
    return widened(bits).astype(np.float64) if dtype == "bf16" else bits.astype(np.float64)


class Judge:
    """One conversation: `Judge(command=[..])` or `Judge(path=..)` of a socket."""

    def __init__(self, command=None, path=None, environment=None, hello=True):
        self.fd = os.memfd_create("samestate", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.fd, 4096)
        fcntl.fcntl(self.fd, 1033, 2)  # F_ADD_SEALS, F_SEAL_SHRINK
        self.process = self.socket = None
        if command:
            env = {**os.environ, "PYTHONPATH": PYTHON, **(environment or {})}
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                            stderr=subprocess.PIPE, env=env)
            self.source, self.sink = self.process.stdout, self.process.stdin
        else:
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.connect(path)
            self.source, self.sink = self.socket.makefile("rb"), self.socket.makefile("wb")
        self.count = 0
        if hello:
            self.ready = self.ask({"type": "hello", "protocol": 1, "samestate": "0.1.0",
                                   "memory": f"/proc/{os.getpid()}/fd/{self.fd}"})

    def send(self, message):
        self.sink.write((json.dumps(message) if isinstance(message, dict) else message).encode() + b"\n")
        self.sink.flush()

    def read(self):
        line = self.source.readline()
        return json.loads(line) if line else None

    def ask(self, message):
        self.send(message)
        return self.read()

    def run(self, kernel, inputs, outputs, gap=0, in_place=(), **fields):
        """inputs {name: (array, dtype)}, outputs {name: (shape, dtype)}; `gap`: elements between rows of the last
        axis; `in_place`: {output: input}. Returns (answer, {name: array of float64}); asserts that guards and inputs
        are what they were."""
        self.count += 1
        at, rows, places = 256, {"inputs": [], "outputs": []}, {}
        for kind, tensors in (("inputs", inputs), ("outputs", outputs)):
            for name, (value, dtype) in tensors.items():
                shape = list(value.shape) if kind == "inputs" else list(value)
                strides, step = [], 1
                for axis, n in reversed(list(enumerate(shape))):
                    strides.insert(0, step)
                    step *= max(n, 1)
                    if axis == len(shape) - 1:
                        step += gap
                item = np.dtype(KINDS[dtype]).itemsize
                if name in dict(in_place) and kind == "outputs":
                    offset = places[dict(in_place)[name]]
                else:
                    offset = at
                    at += (step * item + 511) // 256 * 256
                places[name] = offset
                rows[kind].append({"name": name, "dtype": dtype, "shape": shape, "strides": strides,
                                   "offset": offset})
        if os.fstat(self.fd).st_size < at:
            os.ftruncate(self.fd, at)
        size = os.fstat(self.fd).st_size
        memory = mmap.mmap(self.fd, size)
        whole = np.frombuffer(memory, np.uint8)
        whole[:] = GUARD
        views = {}
        for kind in ("inputs", "outputs"):
            for row in rows[kind]:
                item = np.dtype(KINDS[row["dtype"]]).itemsize
                empty = 0 in row["shape"]
                view = np.empty(row["shape"], KINDS[row["dtype"]]) if empty else np.ndarray(
                    row["shape"], KINDS[row["dtype"]], memory, row["offset"], [s * item for s in row["strides"]])
                views[kind, row["name"]] = (view, row["dtype"])
                if kind == "inputs":
                    view[...] = encoded(*inputs[row["name"]])
        before = whole.copy()
        request = {"type": "run", "id": self.count, "kernel": kernel, "contract": "fp32", "batch": 1, "tokens": 1,
                   "chunk": 0, "scale": 1.0, "heads": "interleaved", "l2norm": False, "threads": 1, "parameters": {},
                   "bytes": size, **rows, **fields}
        request = {key: value for key, value in request.items() if value is not None}
        answer = self.ask(request)
        while answer and answer["type"] == "busy":
            answer = self.read()
        if answer and answer["type"] == "ran":
            assert answer["id"] == self.count, answer
        got = {name: decoded(view.copy(), dtype) for (kind, name), (view, dtype) in views.items() if kind == "outputs"}
        # The memory outside the outputs is unchanged.
        self.changed = whole.copy()
        for (kind, _), (view, _) in views.items():
            if kind == "outputs":
                view.view(KINDS_OF[view.dtype.itemsize])[...] = 0
        masked = whole.copy()
        whole[:] = before
        for (kind, _), (view, _) in views.items():
            if kind == "outputs":
                view.view(KINDS_OF[view.dtype.itemsize])[...] = 0
        self.outside_changed = bool((masked != whole).any())
        return answer, got

    def close(self):
        try:
            self.send({"type": "bye"})
        except (OSError, ValueError):
            pass
        code = None
        if self.process:
            try:
                self.sink.close()
            except OSError:
                pass  # it has ended, with the bye unread
            self.errors = "" if self.process.stderr.closed else self.process.stderr.read().decode()
            code = self.process.wait(20)
            self.source.close()
            self.process.stderr.close()
        else:
            self.source.close()
            self.sink.close()
            self.socket.close()
        os.close(self.fd)
        return code


KINDS_OF = {2: "<u2", 4: "<u4", 8: "<u8"}


def serve(*words, **more):
    return Judge([sys.executable, "-m", "samestate.serve", *words], **more)


def recurrence(x, system, scale, heads="interleaved", l2norm=False, lengths=None, ends=None):
    """o [B, T, Hv, dv] and states [N, Hv, dk, dv] in float64 of canonical tensors {q, k, v, g, beta, initial_state}."""
    q, k, v = (x[n].astype(np.float64) for n in "qkv")
    if l2norm:
        q, k = (y / np.sqrt((y * y).sum(-1, keepdims=True) + 1e-6) for y in (q, k))
    batch, tokens, hv, dv = v.shape
    head = np.arange(hv) // (hv // q.shape[2]) if heads == "interleaved" else np.arange(hv) % q.shape[2]
    spans = [(b, 0, tokens) for b in range(batch)]
    if lengths is not None:
        ends = np.cumsum([0] + list(lengths))
    if ends is not None:
        spans = [(0, a, b) for a, b in zip(ends[:-1], ends[1:])]
    o, final = np.zeros(v.shape), np.zeros((len(spans), hv, q.shape[3], dv))
    for n, (b, begin, end) in enumerate(spans):
        S = final[n] if x.get("initial_state") is None else x["initial_state"][n].astype(np.float64)
        for t in range(begin, end):
            if "g" in x:
                S = S * np.exp(x["g"][b, t].astype(np.float64))[:, None, None]
            kt, vt = k[b, t][head], v[b, t]
            if "beta" in x:
                correct = vt - np.einsum("hkv,hk->hv", S, kt) if system in ("gated_delta_rule", "delta_rule") else vt
                vt = x["beta"][b, t].astype(np.float64)[:, None] * correct
            S = S + kt[:, :, None] * vt[:, None, :]
            o[b, t] = scale * np.einsum("hkv,hk->hv", S, q[b, t][head])
        final[n] = S
    return o, final


def data(system, B=2, T=6, Hk=2, Hv=4, dk=8, dv=8, seed=0, N=None):
    """Canonical tensors in float32; T = 0 allowed. `N`: sequences, where it is not the batch."""
    rng = np.random.default_rng(seed)
    unit = lambda y: y / np.sqrt((y * y).sum(-1, keepdims=True) + 1e-30)
    x = {"q": unit(rng.standard_normal((B, T, Hk, dk))), "k": unit(rng.standard_normal((B, T, Hk, dk))),
         "v": rng.standard_normal((B, T, Hv, dv))}
    if system in ("gated_delta_rule", "retention"):
        x["g"] = -rng.random((B, T, Hv))
    if system in ("gated_delta_rule", "delta_rule"):
        x["beta"] = 0.1 + 0.8 * rng.random((B, T, Hv))
    x["initial_state"] = 0.3 * rng.standard_normal((N or B, Hv, dk, dv))
    return {name: y.astype(np.float32) for name, y in x.items()}


def converted(x, conventions, scale, lengths=None):
    """({name: (array, dtype)} as the subject is given it, the canonical tensors that this stands for)."""
    say = lambda key, default: conventions.get(key, default)
    x = {n: y.astype(np.float64) for n, y in x.items() if y is not None}
    given, back = {n: y.copy() for n, y in x.items()}, x
    if "g" in x:
        to, of = {
            "ln": (lambda g: g, lambda g: g),
            "log2": (lambda g: g / np.log(2), lambda g: g * np.log(2)),
            "linear": (np.exp, np.log),
            "raw": (lambda g: np.log(np.expm1(-g)), lambda r: -np.log1p(np.exp(r))),
        }[say("decay", "ln")]
        given["g"] = to(x["g"]).astype(np.float32)
        back["g"] = of(given["g"].astype(np.float64))
    if "beta" in x and say("beta", "beta") != "beta":
        full = 2 if say("beta", "beta") == "twice_logit" else 1
        given["beta"] = np.log(x["beta"] / full / (1 - x["beta"] / full)).astype(np.float32)
        back["beta"] = full / (1 + np.exp(-given["beta"].astype(np.float64)))
    if say("scale", "argument") == "folded":
        given["q"] = (x["q"] * scale).astype(np.float32)
        back["q"] = given["q"].astype(np.float64) / scale
    if say("heads", "both") == "repeated":
        for n in ("q", "k"):
            given[n] = np.repeat(given[n], x["v"].shape[2] // x["q"].shape[2], 2)
    if "initial_state" in x and say("state", "kv") == "vk":
        given["initial_state"] = given["initial_state"].swapaxes(-1, -2)
    for n in ("q", "k", "v", "g", "beta"):
        if n in given and say("layout", "BTHD") == "BHTD":
            given[n] = given[n].swapaxes(1, 2)
        if n in given and say("layout", "BTHD") == "THD":
            given[n] = given[n].reshape((-1,) + given[n].shape[2:])
    out = {n: (y, "fp32") for n, y in given.items()}
    if lengths is not None:
        out["cu_seqlens"] = (np.cumsum([0] + list(lengths)), say("cu_seqlens", "int64"))
    return out, back
