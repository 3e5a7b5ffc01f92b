"""Runs one network in one engine, as told through a pipe: ``python serve.py peer file input.npy|inputs.npz threads``.

Says what it is and what it computes in one JSON line, then answers each line read with the times of inferences, in
milliseconds: a line holds their number and, if each is to come after a pause, that pause in milliseconds.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import sys
import time
from collections.abc import Callable

PACKAGES = {"edgewright": "edgewright", "litert": "ai-edge-litert"}


def edgewright(path: str, inputs: list, threads: int) -> Callable[[], object]:
    os.environ["EDGEWRIGHT_THREADS"] = str(threads)
    from edgewright.runtime import Runtime

    method = Runtime.get().load_program(path).load_method("forward")
    return lambda: method.execute(inputs)[0]


def executorch(path: str, inputs: list, threads: int) -> Callable[[], object]:
    import torch
    from executorch.extension.pybindings.portable_lib import _load_for_executorch, _unsafe_reset_threadpool

    _unsafe_reset_threadpool(threads)
    module, tensors = _load_for_executorch(path), [torch.from_numpy(x) for x in inputs]
    return lambda: module.forward(tensors)[0].numpy()


def onnxruntime(path: str, inputs: list, threads: int) -> Callable[[], object]:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    given = dict(zip((i.name for i in session.get_inputs()), inputs, strict=True))
    return lambda: session.run(None, given)[0]


def openvino(path: str, inputs: list, threads: int) -> Callable[[], object]:
    import openvino as ov

    # Latency, and no bf16: this processor has it, and it would not be the same arithmetic.
    settings = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
    request = ov.Core().compile_model(path, "CPU", settings).create_infer_request()
    for i, x in enumerate(inputs):
        request.set_input_tensor(i, ov.Tensor(x, shared_memory=True))

    def run() -> object:
        request.infer()
        return request.get_output_tensor(0).data

    return run


def litert(path: str, inputs: list, threads: int) -> Callable[[], object]:
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_path=path, num_threads=threads)
    interpreter.allocate_tensors()
    source, target = interpreter.get_input_details()[0]["index"], interpreter.get_output_details()[0]["index"]

    def run() -> object:
        interpreter.set_tensor(source, inputs[0])
        interpreter.invoke()
        return interpreter.get_tensor(target)

    return run


def peak_mb() -> float:
    """The most memory this process has had. (What getrusage says includes the parent's before the program started.)"""
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def main() -> None:
    peer, path, source, threads = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    start = time.perf_counter()
    import numpy as np

    loaded_inputs = np.load(source)
    inputs = [loaded_inputs[n] for n in loaded_inputs.files] if source.endswith(".npz") else [loaded_inputs]
    run = globals()[peer](path, inputs, int(threads))
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
        times, spent = [], []
        count, _, pause = line.strip().partition(" ")
        for _ in range(int(count)):
            time.sleep(float(pause or 0) / 1e3)
            start, used = time.perf_counter(), time.process_time()
            run()
            times.append((time.perf_counter() - start) * 1e3)
            spent.append((time.process_time() - used) * 1e3)
        print(json.dumps({"times": times, "cpu": min(spent), "peak_mb": peak_mb()}), file=answers, flush=True)


if __name__ == "__main__":
    main()
