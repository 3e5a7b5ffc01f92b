"""Run as a module, with another release of Qualcomm's libraries: ``compile`` writes a program of ours and what it gives
here, ``stock`` runs it in ExecuTorch's own runtime and compares."""

from __future__ import annotations

import sys
from pathlib import Path

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


def run_all(folder: Path) -> None:
    import torch
    from executorch.extension.pybindings.portable_lib import _load_for_executorch_from_buffer

    for name in ("fp16", "8a8w"):
        data = (folder / f"{name}.pte").read_bytes()  # the module reads it for as long as it lives
        module = _load_for_executorch_from_buffer(data)
        (found,) = module.run_method("forward", [torch.from_numpy(np.load(folder / "x.npy"))])
        print(f"{name}: off by {np.abs(found.numpy() - np.load(folder / f'{name}.npy')).max()}", flush=True)


if __name__ == "__main__":
    {"compile": compile_all, "stock": run_all}[sys.argv[1]](Path(sys.argv[2]))
