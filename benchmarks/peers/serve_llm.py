"""Benchmark server for a language model in one runtime: ``python serve_llm.py runtime file threads context``.

The protocol is that of ``edgewright/peers/serve_llama_cpp.py``: one JSON line about the model, then for each line
``{"prompt": n, "depth": d}`` or ``{"generate": n, "depth": d}`` the seconds of n tokens after d others, and the
resident memory of the process.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import random
import sys
import time
from typing import Any


class Edgewright:
    package = "edgewright"

    def __init__(self, path: str, threads: int, context: int) -> None:
        from edgewright.llm.decoder_method import DecoderMethod
        from edgewright.llm.prompt_cache import PromptCache
        from edgewright.runtime.program import Runtime

        decoder = DecoderMethod(Runtime(threads).load_program(path))
        self.vocabulary, self._cache = decoder.vocabulary, PromptCache(decoder)
        self._cache.claim(self)

    def prompt(self, tokens: list[int], depth: int) -> float:
        return self._run(tokens, depth, one_by_one=False)

    def generate(self, tokens: list[int], depth: int) -> float:
        return self._run(tokens, depth, one_by_one=True)

    def _run(self, tokens: list[int], depth: int, *, one_by_one: bool) -> float:
        self._cache.clear()
        if depth:
            self._cache.prefill(self, tokens[:depth])
        start = time.perf_counter()
        if one_by_one:
            for token in tokens[depth:]:
                self._cache.append(self, token)
        else:
            self._cache.prefill(self, tokens)
        return time.perf_counter() - start


class ExecuTorch:
    """The stock runtime on Edgewright's file."""

    package = "executorch"

    def __init__(self, path: str, threads: int, context: int) -> None:
        self._torch: Any = importlib.import_module("torch")
        lib: Any = importlib.import_module("executorch.extension.pybindings.portable_lib")
        importlib.import_module("executorch.extension.llm.custom_ops.custom_ops")
        importlib.import_module("executorch.kernels.quantized")
        lib._unsafe_reset_threadpool(threads)
        self._module = lib._load_for_executorch(path)
        self.vocabulary = self._module.run_method("get_vocab_size", [])[0]
        self._chunk = self._module.run_method("get_max_seq_len", [])[0]

    def prompt(self, tokens: list[int], depth: int) -> float:
        return self._run(tokens, depth, self._chunk)

    def generate(self, tokens: list[int], depth: int) -> float:
        return self._run(tokens, depth, 1)

    def _run(self, tokens: list[int], depth: int, step: int) -> float:
        self._forward(tokens[:depth], 0, self._chunk)
        start = time.perf_counter()
        self._forward(tokens[depth:], depth, step)
        return time.perf_counter() - start

    def _forward(self, tokens: list[int], position: int, step: int) -> None:
        torch = self._torch
        for at in range(0, len(tokens), step):
            self._module.forward([torch.tensor([tokens[at : at + step]]), torch.tensor([position + at])])


class OpenVino:
    """OpenVINO GenAI, which reads GGUF files itself."""

    package = "openvino-genai"

    def __init__(self, path: str, threads: int, context: int) -> None:
        self._genai: Any = importlib.import_module("openvino_genai")
        self._ov: Any = importlib.import_module("openvino")
        self._pipeline = self._genai.LLMPipeline(path, "CPU", INFERENCE_NUM_THREADS=threads)
        self.vocabulary = 32000  # ids that every model has

    def _generate(self, tokens: list[int], count: int) -> list[float]:
        """Microseconds to the first token, and of each after it."""
        np: Any = importlib.import_module("numpy")
        config = self._genai.GenerationConfig(max_new_tokens=count, ignore_eos=True, do_sample=False)
        ids = self._ov.Tensor(np.array([tokens], np.int64))
        inputs = self._genai.TokenizedInputs(ids, self._ov.Tensor(np.ones((1, len(tokens)), np.int64)))
        metrics = self._pipeline.generate(inputs, config).perf_metrics.raw_metrics
        return [*metrics.m_times_to_first_token, *metrics.token_infer_durations[1:]][:count]

    def prompt(self, tokens: list[int], depth: int) -> float:
        if depth:
            raise SystemExit("prompts after other tokens are not measured")
        return self._generate(tokens, 1)[0] / 1e6

    def generate(self, tokens: list[int], depth: int) -> float:
        durations = self._generate(tokens[: max(depth, 1)], len(tokens) - depth + 1)[1:]
        return sum(durations) / 1e6


class OnnxRuntime:
    """ONNX Runtime GenAI, on a folder that its model builder wrote."""

    package = "onnxruntime-genai"

    def __init__(self, path: str, threads: int, context: int) -> None:
        self._genai: Any = importlib.import_module("onnxruntime_genai")
        config = self._genai.Config(path)
        config.overlay(json.dumps({"model": {"decoder": {"session_options": {"intra_op_num_threads": threads}}}}))
        self._model = self._genai.Model(config)
        self.vocabulary, self._context = 32000, context

    def prompt(self, tokens: list[int], depth: int) -> float:
        generator = self._generator(tokens[:depth])
        start = time.perf_counter()
        generator.append_tokens(tokens[depth:])
        generator.generate_next_token()
        return time.perf_counter() - start

    def generate(self, tokens: list[int], depth: int) -> float:
        generator = self._generator(tokens[: max(depth, 1)])
        generator.generate_next_token()
        start = time.perf_counter()
        for _ in tokens[depth:]:
            generator.generate_next_token()
        return time.perf_counter() - start

    def _generator(self, tokens: list[int]) -> Any:
        params = self._genai.GeneratorParams(self._model)
        params.set_search_options(do_sample=False, min_length=self._context, max_length=self._context)
        generator = self._genai.Generator(self._model, params)
        if tokens:
            generator.append_tokens(tokens)
        return generator


RUNTIMES = {"edgewright": Edgewright, "executorch": ExecuTorch, "openvino": OpenVino, "onnxruntime": OnnxRuntime}


def resident_mb() -> float:
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


def main() -> None:
    name, path, threads, context = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # libraries may print to stdout
    draw = random.Random(0)
    start = time.perf_counter()
    runtime: Any = RUNTIMES[name](path, int(threads), int(context))
    loaded = time.perf_counter()
    runtime.prompt([1], 0)
    first = time.perf_counter()
    try:
        version = importlib.metadata.version(runtime.package)
    except importlib.metadata.PackageNotFoundError:
        version = ""
    info = {"version": version, "load_ms": (loaded - start) * 1e3, "first_ms": (first - loaded) * 1e3}
    print(json.dumps(info), file=answers, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        kind = "prompt" if "prompt" in request else "generate"
        depth = request.get("depth", 0)
        tokens = [draw.randrange(runtime.vocabulary) for _ in range(depth + request[kind])]
        seconds = getattr(runtime, kind)(tokens, depth)
        print(json.dumps({"seconds": seconds, "resident_mb": resident_mb()}), file=answers, flush=True)


if __name__ == "__main__":
    main()
