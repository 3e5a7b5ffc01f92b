"""Exports small models with the ExecuTorch on the path, and records what its runtime gives: ``export.py FOLDER``.

Runs in every release, so it uses only what all of them have, and nothing of Edgewright.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn


class Image(nn.Module):
    """A convolution and a linear layer; constants that XNNPACK reads in place."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 8, 3, padding=1), nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.conv(x)).mean((2, 3))) * 2


class State(nn.Module):
    """Adds up what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(2, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.total.add_(x)
        return self.total * 1


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 8))


IMAGE, ROWS = (1, 3, 8, 8), (4, 64)


def lower(model: Any, inputs: tuple[Any, ...], *, xnnpack: bool, **options: Any) -> bytes:
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower

    exported = torch.export.export(model, inputs, **options)
    partitioners = [XnnpackPartitioner()] if xnnpack else []
    return bytes(to_edge_transform_and_lower(exported, partitioner=partitioners).to_executorch().buffer)


def quantized(model: nn.Module, inputs: tuple[Any, ...], **options: Any) -> Any:
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
        XNNPACKQuantizer,
        get_symmetric_quantization_config,
    )
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    quantizer = XNNPACKQuantizer().set_global(get_symmetric_quantization_config(is_per_channel=True, **options))
    prepared = prepare_pt2e(torch.export.export(model, inputs).module(), quantizer)
    prepared(*inputs)
    return convert_pt2e(prepared)


def four_bits(model: nn.Module) -> nn.Module:
    from torchao.quantization import quantize_
    from torchao.quantization.granularity import PerGroup
    from torchao.quantization.quant_api import Int8DynamicActivationIntxWeightConfig

    quantize_(model, Int8DynamicActivationIntxWeightConfig(weight_dtype=torch.int4, weight_granularity=PerGroup(32)))
    return model


def dynamic_rows(model: nn.Module, inputs: tuple[Any, ...]) -> bytes:
    return lower(model, inputs, xnnpack=False, dynamic_shapes=({0: torch.export.Dim("rows", min=1, max=8)},))


# Name, model, shape of the input, and how it becomes a program.
FILES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], Callable[[nn.Module, tuple[Any, ...]], bytes]]] = {
    "image_portable": (Image, IMAGE, lambda m, i: lower(m, i, xnnpack=False)),
    "image_xnnpack": (Image, IMAGE, lambda m, i: lower(m, i, xnnpack=True)),
    "image_int8_xnnpack": (Image, IMAGE, lambda m, i: lower(quantized(m, i), i, xnnpack=True)),
    "image_int8_portable": (Image, IMAGE, lambda m, i: lower(quantized(m, i), i, xnnpack=False)),
    "mlp_dynamic_int8_xnnpack": (mlp, ROWS, lambda m, i: lower(quantized(m, i, is_dynamic=True), i, xnnpack=True)),
    "mlp_4bit_xnnpack": (mlp, ROWS, lambda m, i: lower(four_bits(m), i, xnnpack=True)),
    "mlp_dynamic_rows_portable": (mlp, ROWS, dynamic_rows),
    "state_portable": (State, (2, 4), lambda m, i: lower(m, i, xnnpack=False)),
}


def make(folder: Path) -> None:
    from executorch.runtime import Runtime

    import_module("executorch.kernels.quantized")  # finds the runtime's library once that is loaded
    arrays: dict[str, np.ndarray] = {}
    for name, (kind, shape, compile_model) in FILES.items():
        torch.manual_seed(0)
        model = kind().eval().requires_grad_(False)
        inputs = (torch.randn(shape),)
        program = compile_model(model, inputs)
        (folder / f"{name}.pte").write_bytes(program)
        method = Runtime.get().load_program(program).load_method("forward")
        for call in range(2):
            x = torch.randn(shape)
            arrays[f"{name}.{call}.in"] = x.numpy()
            arrays[f"{name}.{call}.out"] = method.execute([x])[0].clone().numpy()
    np.savez_compressed(folder / "calls.npz", **arrays)


if __name__ == "__main__":
    sys.path = [path for path in sys.path if Path(path or ".").resolve() != Path(__file__).parent]
    spec = find_spec("executorch")
    assert spec is not None and spec.submodule_search_locations is not None
    os.environ["PATH"] = f"{next(iter(spec.submodule_search_locations))}/data/bin{os.pathsep}{os.environ['PATH']}"
    make(Path(sys.argv[1]))
