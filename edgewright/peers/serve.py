"""Benchmark server for one network in one runtime: ``python serve.py peer file input.npy|inputs.npz threads``.

Prints one JSON line with version and outputs, then answers each line read from stdin with inference times in
milliseconds. A line holds the number of inferences and, optionally, a pause in milliseconds before each.

It runs in its own process, started by path: peers share no library, thread or memory with Edgewright, and may be
installed in another environment.
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
    input_infos = session.get_inputs()
    feeds = {p.name: match_layout(x, p.shape, p.name) for p, x in zip(input_infos, inputs, strict=True)}
    return lambda: session.run(None, feeds)[0]


def openvino(path: str, inputs: list[Any], threads: int) -> Run:
    ov = importlib.import_module("openvino")
    # Latency, and no bf16: it would not be the same arithmetic.
    settings = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
    model = ov.Core().compile_model(path, "CPU", settings)
    request = model.create_infer_request()
    for i, (port, x) in enumerate(zip(model.inputs, inputs, strict=True)):
        shape = list(port.shape) if port.partial_shape.is_static else list(x.shape)
        request.set_input_tensor(i, ov.Tensor(match_layout(x, shape, f"input {i}"), shared_memory=True))

    def run() -> Any:
        request.infer()
        return request.get_output_tensor(0).data

    return run


def litert(path: str, inputs: list[Any], threads: int) -> Run:
    interpreter = importlib.import_module("ai_edge_litert.interpreter").Interpreter(
        model_path=path, num_threads=threads
    )
    interpreter.allocate_tensors()
    input_infos, (target, *_) = interpreter.get_input_details(), interpreter.get_output_details()
    prepared = [
        (p["index"], quantize(match_layout(x, p["shape"], p["name"]), p))
        for p, x in zip(input_infos, inputs, strict=True)
    ]

    def run() -> Any:
        for index, x in prepared:
            interpreter.set_tensor(index, x)
        interpreter.invoke()
        return dequantize(interpreter.get_tensor(target["index"]), target)

    return run


def match_layout(x: Any, shape: Any, name: str) -> Any:
    """An input in the layout of the peer's file: transposed to channels last if the shape requires it."""
    import numpy as np

    expected = tuple(n if isinstance(n, int | np.integer) else None for n in shape)

    def matches(actual: tuple[int, ...]) -> bool:
        return len(actual) == len(expected) and all(w in (None, g) for w, g in zip(expected, actual, strict=True))

    if matches(x.shape):
        return np.ascontiguousarray(x)
    if x.ndim == 4 and matches(x.transpose(0, 2, 3, 1).shape):
        return np.ascontiguousarray(x.transpose(0, 2, 3, 1))
    raise SystemExit(f"{name} must have the shape {list(expected)}; got {list(x.shape)}")


def quantize(x: Any, info: Any) -> Any:
    """Quantize a float input to the integer type of the file."""
    import numpy as np

    scale, zero = info["quantization"]
    if x.dtype.kind != "f" or np.dtype(info["dtype"]).kind == "f":
        return x.astype(info["dtype"])
    limits = np.iinfo(info["dtype"])
    return np.clip(np.round(x / (scale or 1)) + zero, limits.min, limits.max).astype(info["dtype"])


def dequantize(y: Any, info: Any) -> Any:
    scale, zero = info["quantization"]
    return (y.astype("float32") - zero) * scale if scale else y


def peak_mb() -> float:
    """Peak memory of this process. (getrusage would include the parent's before exec.)"""
    try:
        with open("/proc/self/status") as lines:
            return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024
    except OSError:  # not Linux
        return 0.0


def main() -> None:
    peer, path, source, threads = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # libraries may print to stdout
    start = time.perf_counter()
    import numpy as np

    data = np.load(source)
    inputs = [data[n] for n in data.files] if source.endswith(".npz") else [data]
    run: Run = globals()[peer](path, inputs, int(threads))
    loaded = time.perf_counter()
    logits = np.asarray(run()).reshape(-1)
    info = {
        "version": importlib.metadata.version(PACKAGES.get(peer, peer)),
        "load_ms": (loaded - start) * 1e3,
        "first_ms": (time.perf_counter() - loaded) * 1e3,
        "logits": logits.astype(float).tolist(),
    }
    print(json.dumps(info), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps({**measure_runs(run, line), "peak_mb": peak_mb()}), file=answers, flush=True)


def measure_runs(run: Run, line: str) -> dict[str, Any]:
    """Times of the inferences that a line requests."""
    times, cpu_times = [], []
    count, _, pause = line.strip().partition(" ")
    for _ in range(int(count)):
        time.sleep(float(pause or 0) / 1e3)
        start, used = time.perf_counter(), time.process_time()
        run()
        times.append((time.perf_counter() - start) * 1e3)
        cpu_times.append((time.process_time() - used) * 1e3)
    return {"times": times, "cpu": min(cpu_times, default=0.0)}


if __name__ == "__main__":
    main()
