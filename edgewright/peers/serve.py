"""Runs one network in one engine, as told through a pipe: ``python serve.py peer file input.npy|inputs.npz threads``.

Says what it is and what it computes in one JSON line, then answers each line read with the times of inferences, in
milliseconds: a line holds their number and, if each is to come after a pause, that pause in milliseconds.

A process of its own, started by path: peers share no library, thread or memory with Edgewright, nothing of which
imports this file, and they may lie in another environment than it does.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

PACKAGES = {"litert": "ai-edge-litert"}
Run = Callable[[], Any]


def edgewright(path: str, inputs: list[Any], threads: int) -> Run:
    os.environ["EDGEWRIGHT_THREADS"] = str(threads)
    from edgewright.runtime import Runtime

    method = Runtime.get().load_program(path).load_method("forward")
    return lambda: method.execute(inputs)[0]


def executorch(path: str, inputs: list[Any], threads: int) -> Run:
    import torch

    lib = importlib.import_module("executorch.extension.pybindings.portable_lib")
    lib._unsafe_reset_threadpool(threads)
    module, tensors = lib._load_for_executorch(path), [torch.from_numpy(x) for x in inputs]
    return lambda: module.forward(tensors)[0].numpy()


def onnxruntime(path: str, inputs: list[Any], threads: int) -> Run:
    ort = importlib.import_module("onnxruntime")
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    places = session.get_inputs()
    given = {p.name: fitted(x, p.shape, p.name) for p, x in zip(places, inputs, strict=True)}
    return lambda: session.run(None, given)[0]


def openvino(path: str, inputs: list[Any], threads: int) -> Run:
    ov = importlib.import_module("openvino")
    # Latency, and no bf16: this processor has it, and it would not be the same arithmetic.
    settings = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
    model = ov.Core().compile_model(path, "CPU", settings)
    request = model.create_infer_request()
    for i, (place, x) in enumerate(zip(model.inputs, inputs, strict=True)):
        shape = list(place.shape) if place.partial_shape.is_static else list(x.shape)
        request.set_input_tensor(i, ov.Tensor(fitted(x, shape, f"input {i}"), shared_memory=True))

    def run() -> Any:
        request.infer()
        return request.get_output_tensor(0).data

    return run


def litert(path: str, inputs: list[Any], threads: int) -> Run:
    interpreter = importlib.import_module("ai_edge_litert.interpreter").Interpreter(
        model_path=path, num_threads=threads
    )
    interpreter.allocate_tensors()
    places, (target, *_) = interpreter.get_input_details(), interpreter.get_output_details()
    given = [(p["index"], quantized(fitted(x, p["shape"], p["name"]), p)) for p, x in zip(places, inputs, strict=True)]

    def run() -> Any:
        for index, x in given:
            interpreter.set_tensor(index, x)
        interpreter.invoke()
        return real(interpreter.get_tensor(target["index"]), target)

    return run


def fitted(x: Any, shape: Any, name: str) -> Any:
    """An input as a peer's file has it: images with their channels last, if that is how it wants them."""
    import numpy as np

    wanted = tuple(n if isinstance(n, int | np.integer) else None for n in shape)

    def fits(given: tuple[int, ...]) -> bool:
        return len(given) == len(wanted) and all(w in (None, g) for w, g in zip(wanted, given, strict=True))

    if fits(x.shape):
        return np.ascontiguousarray(x)
    if x.ndim == 4 and fits(x.transpose(0, 2, 3, 1).shape):
        return np.ascontiguousarray(x.transpose(0, 2, 3, 1))
    raise SystemExit(f"{name} must have the shape {list(wanted)}; got {list(x.shape)}")


def quantized(x: Any, place: Any) -> Any:
    """A float input in the integers that a file takes."""
    import numpy as np

    scale, zero = place["quantization"]
    if x.dtype.kind != "f" or np.dtype(place["dtype"]).kind == "f":
        return x.astype(place["dtype"])
    limits = np.iinfo(place["dtype"])
    return np.clip(np.round(x / (scale or 1)) + zero, limits.min, limits.max).astype(place["dtype"])


def real(y: Any, place: Any) -> Any:
    scale, zero = place["quantization"]
    return (y.astype("float32") - zero) * scale if scale else y


def peak_mb() -> float:
    """The most memory this process has had. (What getrusage says includes the parent's before the program started.)"""
    try:
        with open("/proc/self/status") as lines:
            return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024
    except OSError:  # another system than Linux
        return 0.0


def main() -> None:
    peer, path, source, threads = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    start = time.perf_counter()
    import numpy as np

    held = np.load(source)
    inputs = [held[n] for n in held.files] if source.endswith(".npz") else [held]
    run: Run = globals()[peer](path, inputs, int(threads))
    loaded = time.perf_counter()
    logits = np.asarray(run()).reshape(-1)
    facts = {
        "version": importlib.metadata.version(PACKAGES.get(peer, peer)),
        "load_ms": (loaded - start) * 1e3,
        "first_ms": (time.perf_counter() - loaded) * 1e3,
        "logits": logits.astype(float).tolist(),
    }
    print(json.dumps(facts), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps({**measured(run, line), "peak_mb": peak_mb()}), file=answers, flush=True)


def measured(run: Run, line: str) -> dict[str, Any]:
    """Times of as many inferences as a line asks for."""
    times, spent = [], []
    count, _, pause = line.strip().partition(" ")
    for _ in range(int(count)):
        time.sleep(float(pause or 0) / 1e3)
        start, used = time.perf_counter(), time.process_time()
        run()
        times.append((time.perf_counter() - start) * 1e3)
        spent.append((time.process_time() - used) * 1e3)
    return {"times": times, "cpu": min(spent, default=0.0)}


if __name__ == "__main__":
    main()
