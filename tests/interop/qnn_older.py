"""Run as a module, with another release of Qualcomm's libraries: ``compile`` writes a program of ours and what it gives
here, ``stock`` runs it in ExecuTorch's own runtime and compares."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np


def compile_all(folder: Path) -> None:
    from edgewright.backends.qualcomm import QuantDtype
    from edgewright.backends.qualcomm.qnn.library import find_folder
    from tests.backends.qualcomm.lowered import lower, quantize
    from tests.backends.qualcomm.test_models import cifarnet

    print("libraries:", find_folder())
    model, inputs = cifarnet()
    np.save(folder / "x.npy", inputs[0].numpy())
    for name in ("fp16", "8a8w"):
        chosen = model if name == "fp16" else quantize(model, inputs, QuantDtype.use_8a8w)
        made = lower(chosen, inputs, "SM8550", fp16=name == "fp16")
        (folder / f"{name}.pte").write_bytes(made.program)
        np.save(folder / f"{name}.npy", made(*inputs).numpy())


def compile_language_model(folder: Path) -> None:
    """A program of two methods, and the tensors of each call of a prompt of two blocks and of three tokens."""
    from edgewright.llm.compile_qualcomm import QualcommOptions, compile_for_qualcomm
    from edgewright.llm.static_cache import StaticCacheDecoder
    from edgewright.llm.vocabulary import Vocabulary
    from edgewright.runtime import Runtime
    from tests.llm.tiny_model import checkpoint

    (folder / "tiny.gguf").write_bytes(checkpoint())
    windows = np.random.default_rng(0).integers(0, 256, (2, 24))
    compile_for_qualcomm(
        folder / "tiny.gguf", folder / "llm.pte", "SM8550", options=QualcommOptions(weight_sharing=False),
        prefill_len=8, max_context_len=32, vocabulary=Vocabulary(), calibrate=windows,
    )  # fmt: skip
    decoder = StaticCacheDecoder(Runtime.get().load_program(folder / "llm.pte"))
    find, calls = decoder._method, []

    def recorded(name: str) -> Any:
        def execute(inputs: list[np.ndarray]) -> list[np.ndarray]:
            outputs = find(name).execute(inputs)
            calls.append((name, inputs, [np.asarray(x) for x in outputs]))
            return outputs

        return SimpleNamespace(execute=execute)

    decoder._method = recorded  # type: ignore[method-assign]
    decoder.forward(windows[0, :13].tolist(), 0)
    for position in (13, 14, 15):
        decoder.forward([int(windows[0, position])], position)
    assert [name for name, _, _ in calls] == ["prefill_forward"] * 2 + ["kv_forward"] * 3
    (folder / "calls.pickle").write_bytes(pickle.dumps(calls))


def run_language_model(folder: Path) -> None:
    import torch
    from executorch.extension.pybindings.portable_lib import _load_for_executorch_from_buffer

    data = (folder / "llm.pte").read_bytes()
    module = _load_for_executorch_from_buffer(data)
    for name, inputs, outputs in pickle.loads((folder / "calls.pickle").read_bytes()):
        found = module.run_method(name, [torch.from_numpy(x) for x in inputs])
        differ = max(int(np.abs(f.numpy().astype(int) - o).max()) for f, o in zip(found, outputs, strict=True))
        print(f"{name}: off by {differ}", flush=True)


def run_all(folder: Path) -> None:
    import torch
    from executorch.extension.pybindings.portable_lib import _load_for_executorch_from_buffer

    for name in ("fp16", "8a8w"):
        data = (folder / f"{name}.pte").read_bytes()  # the module reads it for as long as it lives
        module = _load_for_executorch_from_buffer(data)
        (found,) = module.run_method("forward", [torch.from_numpy(np.load(folder / "x.npy"))])
        print(f"{name}: off by {np.abs(found.numpy() - np.load(folder / f'{name}.npy')).max()}", flush=True)


if __name__ == "__main__":
    tasks = {
        "compile": compile_all, "stock": run_all,
        "compile-llm": compile_language_model, "stock-llm": run_language_model,
    }  # fmt: skip
    tasks[sys.argv[1]](Path(sys.argv[2]))
