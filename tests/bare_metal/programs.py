"""Programs that object files are made of, inputs for them, and what this machine's runtime computes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import edgewright
from edgewright.bare_metal.object_export import export_object
from edgewright.bare_metal.object_header import ObjectDescription
from edgewright.engine.isa import host_isa
from edgewright.runtime import Runtime
from tests.bare_metal import tiny_networks
from tests.bare_metal.boards import require_tools
from tests.bare_metal.native import NativeModel, stored_bytes
from tests.cli.cli import GOLDEN

U55 = GOLDEN / "ethos_u" / "ethos_u55_128.pte"
WARNINGS = ("-Wall", "-Wextra", "-Werror", "-Wpedantic")


def save(module: torch.nn.Module, inputs: tuple[Any, ...], path: Path, target: Any = "xnnpack", **options: Any) -> Path:
    edgewright.compile(module, inputs, target, check=False, evaluate=0, quiet=True, **options).save(path)
    return path


def compile_network(name: str, folder: Path) -> Path:
    network, x = tiny_networks.make(name)
    options: dict[str, Any] = {}
    if name != "lstm":
        generator = torch.Generator().manual_seed(1)
        data = [(torch.randn(x.shape, generator=generator),) for _ in range(4)]
        options = {"quantize": "int8", "calibration": data, "integer_io": "int8"}
    result = edgewright.compile(network, (x,), "xnnpack", check=False, evaluate=0, quiet=True, **options)
    result.save(folder / f"{name}.pte")
    return folder / f"{name}.pte"


def random_inputs(about: ObjectDescription, count: int) -> list[np.ndarray]:
    rng, port = np.random.default_rng(5), about.inputs[0]
    if port.type == "int8":
        return [rng.integers(-128, 128, port.shape).astype(np.int8) for _ in range(count)]
    return [rng.standard_normal(port.shape).astype(np.float32) for _ in range(count)]


def expected_output(path: Path, x: np.ndarray) -> np.ndarray:
    (y,) = Runtime(threads=1).load_program(path).load_method("forward").execute([x])
    return np.asarray(y)


def native_target() -> str:
    isa = host_isa()
    if isa.arch != "x86_64" or isa.lanes < 8:
        pytest.skip("needs an x86-64 processor with AVX2")
    require_tools("gcc")
    return "x86-64-v3"


def check_natively(path: Path, target: str, folder: Path) -> None:
    """An object file in this process gives the runtime's results, bit for bit."""
    about, _ = export_object(path, folder, target)
    model = NativeModel(folder, about)
    for x in random_inputs(about, 3):
        (y,) = model.run([x])
        np.testing.assert_array_equal(y, *stored_bytes([expected_output(path, x)], about.outputs))
