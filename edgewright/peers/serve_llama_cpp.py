"""Benchmark server for a GGUF file in llama.cpp: ``python serve_llama_cpp.py libllama.so model.gguf threads context``.

It drives llama.cpp's C interface by ctypes, in its own process. It prints one JSON line about the model, then answers
each line read from stdin, a JSON object: ``{"prompt": n, "depth": d}`` and ``{"generate": n, "depth": d}`` with the
seconds that n tokens take after d others, as llama-bench measures them; ``{"score": [tokens]}`` with the sum of
negative log likelihoods of all tokens but the first.
"""

from __future__ import annotations

import ctypes
import json
import os
import random
import sys
import time
from typing import Any

_PARAMS_BYTES = 1024  # larger than the parameter structs of any release; they are passed by value, as last argument
_CONTEXT_DEFAULTS = (512, 2048, 512)  # n_ctx, n_batch, n_ubatch, with which the struct starts
_BATCH = 512


class Params(ctypes.Structure):
    _fields_ = [("data", ctypes.c_uint32 * (_PARAMS_BYTES // 4))]


class Batch(ctypes.Structure):
    _fields_ = [
        ("n_tokens", ctypes.c_int32), ("token", ctypes.POINTER(ctypes.c_int32)), ("embd", ctypes.c_void_p),
        ("pos", ctypes.POINTER(ctypes.c_int32)), ("n_seq_id", ctypes.POINTER(ctypes.c_int32)),
        ("seq_id", ctypes.POINTER(ctypes.POINTER(ctypes.c_int32))), ("logits", ctypes.POINTER(ctypes.c_int8)),
    ]  # fmt: skip


LogCallback = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)


def open_library(path: str) -> Any:
    """The library, with the backends beside it: builds have one for each kind of processor."""
    folder = os.path.dirname(os.path.abspath(path))
    lib = ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
    names = sorted(n for n in os.listdir(folder) if n.startswith("libggml.") and ".so" in n)
    ggml = ctypes.CDLL(os.path.join(folder, names[0]), mode=ctypes.RTLD_GLOBAL) if names else lib
    if hasattr(ggml, "ggml_backend_load_all_from_path"):
        ggml.ggml_backend_load_all_from_path(folder.encode())
    for name, result, arguments in (
        ("llama_model_default_params", Params, []), ("llama_context_default_params", Params, []),
        ("llama_model_load_from_file", ctypes.c_void_p, [ctypes.c_char_p, Params]),
        ("llama_init_from_model", ctypes.c_void_p, [ctypes.c_void_p, Params]),
        ("llama_model_get_vocab", ctypes.c_void_p, [ctypes.c_void_p]),
        ("llama_vocab_n_tokens", ctypes.c_int32, [ctypes.c_void_p]),
        ("llama_get_memory", ctypes.c_void_p, [ctypes.c_void_p]),
        ("llama_memory_clear", None, [ctypes.c_void_p, ctypes.c_bool]),
        ("llama_set_n_threads", None, [ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32]),
        ("llama_synchronize", None, [ctypes.c_void_p]), ("llama_decode", ctypes.c_int32, [ctypes.c_void_p, Batch]),
        ("llama_batch_init", Batch, [ctypes.c_int32] * 3),
        ("llama_get_logits_ith", ctypes.POINTER(ctypes.c_float), [ctypes.c_void_p, ctypes.c_int32]),
        ("llama_print_system_info", ctypes.c_char_p, []), ("llama_model_size", ctypes.c_uint64, [ctypes.c_void_p]),
        ("llama_model_n_params", ctypes.c_uint64, [ctypes.c_void_p]),
        ("llama_model_desc", ctypes.c_int32, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t]),
        ("llama_log_set", None, [LogCallback, ctypes.c_void_p]),
    ):  # fmt: skip
        function = getattr(lib, name)
        function.restype, function.argtypes = result, arguments
    return lib


class Model:
    """A model with an empty cache of ``context`` positions."""

    def __init__(self, library: str, path: str, threads: int, context: int) -> None:
        self.lib = lib = open_library(library)
        self._messages: list[str] = []
        self._log = LogCallback(lambda level, text, _: self._messages.append((text or b"").decode(errors="replace")))
        lib.llama_log_set(self._log, None)
        lib.llama_backend_init()
        self.model = lib.llama_model_load_from_file(path.encode(), lib.llama_model_default_params())
        if not self.model:
            raise SystemExit(f"cannot load {path}: {self._reason()}")
        params = lib.llama_context_default_params()
        if tuple(params.data[:3]) != _CONTEXT_DEFAULTS:
            raise SystemExit(f"unknown layout of context parameters: {list(params.data[:6])}")
        params.data[0], params.data[1], params.data[2] = context, max(_BATCH, 2048), _BATCH
        self.context = lib.llama_init_from_model(self.model, params)
        if not self.context:
            raise SystemExit(f"cannot make a context: {self._reason()}")
        lib.llama_set_n_threads(self.context, threads, threads)
        self.vocabulary = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(self.model))
        self._batch = lib.llama_batch_init(_BATCH, 0, 1)
        self._random = random.Random(0)

    def _reason(self) -> str:
        return "".join(self._messages).strip().rsplit("\n", 1)[-1]

    def clear(self) -> None:
        self.lib.llama_memory_clear(self.lib.llama_get_memory(self.context), True)

    def decode(self, tokens: list[int], position: int, *, all_logits: bool = False) -> None:
        batch = self._batch
        batch.n_tokens = len(tokens)
        for i, token in enumerate(tokens):
            batch.token[i], batch.pos[i] = token, position + i
            batch.n_seq_id[i], batch.seq_id[i][0] = 1, 0
            batch.logits[i] = all_logits or i == len(tokens) - 1
        if self.lib.llama_decode(self.context, batch):
            raise SystemExit(f"llama_decode failed: {self._reason()}")

    def draw(self, count: int) -> list[int]:
        return [self._random.randrange(self.vocabulary) for _ in range(count)]

    def measure(self, count: int, depth: int, step: int) -> float:
        """Seconds of ``count`` tokens in calls of ``step``, after ``depth`` others."""
        self.clear()
        self._run(self.draw(depth), 0, _BATCH)
        tokens = self.draw(count)
        self.lib.llama_synchronize(self.context)
        start = time.perf_counter()
        self._run(tokens, depth, step)
        return time.perf_counter() - start

    def _run(self, tokens: list[int], position: int, step: int) -> None:
        for at in range(0, len(tokens), step):
            self.decode(tokens[at : at + step], position + at)
            self.lib.llama_synchronize(self.context)

    def score(self, tokens: list[int]) -> float:
        import numpy as np

        self.clear()
        total = 0.0
        for at in range(0, len(tokens), _BATCH):
            part = tokens[at : at + _BATCH]
            self.decode(part, at, all_logits=True)
            for i, following in enumerate(tokens[at + 1 : at + 1 + len(part)]):
                pointer = self.lib.llama_get_logits_ith(self.context, i)
                logits = np.ctypeslib.as_array(pointer, (self.vocabulary,)).astype(np.float64)
                largest = logits.max()
                total += float(np.log(np.exp(logits - largest).sum()) + largest - logits[following])
        return total

    def facts(self) -> dict[str, Any]:
        text = ctypes.create_string_buffer(256)
        self.lib.llama_model_desc(self.model, text, len(text))
        return {
            "model": text.value.decode(errors="replace"), "bytes": self.lib.llama_model_size(self.model),
            "parameters": self.lib.llama_model_n_params(self.model), "vocabulary": self.vocabulary,
            "features": (self.lib.llama_print_system_info() or b"").decode(errors="replace").strip(),
        }  # fmt: skip


def resident_mb() -> float:
    try:
        with open("/proc/self/status") as lines:
            return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024
    except OSError:  # not Linux
        return 0.0


def answer(model: Model, request: dict[str, Any]) -> dict[str, Any]:
    if "score" in request:
        return {"negative_log_likelihood": model.score(request["score"])}
    kind = "prompt" if "prompt" in request else "generate"
    step = _BATCH if kind == "prompt" else 1
    seconds = model.measure(request[kind], request.get("depth", 0), step)
    return {"seconds": seconds, "resident_mb": resident_mb()}


def main() -> None:
    library, path, threads, context = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # libraries may print to stdout
    start = time.perf_counter()
    model = Model(library, path, int(threads), int(context))
    loaded = time.perf_counter()
    model.decode(model.draw(1), 0)
    model.lib.llama_synchronize(model.context)
    first = time.perf_counter()
    info = {**model.facts(), "load_ms": (loaded - start) * 1e3, "first_ms": (first - loaded) * 1e3}
    print(json.dumps(info), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(model, json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    main()
