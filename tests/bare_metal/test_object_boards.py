"""Object files on QEMU's boards, bit for bit as the runtime, and how their instructions are counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from edgewright.bare_metal.object_export import export_object
from tests.bare_metal import tiny_networks
from tests.bare_metal.boards import (
    BOARDS,
    FOLDER,
    GCC,
    QEMU,
    boot,
    count_instructions,
    link_program,
    require_tools,
    run_on_board,
    trace_functions,
)
from tests.bare_metal.programs import compile_network, expected_output, random_inputs, save
from tests.bare_metal.tiny_networks import FloatingPoint, Recurrent

# Instructions per product; with less than two products for each operand that is loaded and extended it is more.
_MOST_PER_MAC = {("cortex-m4", "ds_cnn"): 1.95, ("cortex-m4", "cifar_net"): 1.53, ("cortex-m4", "mobilenet_v2"): 2.55}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(tiny_networks.NETWORKS))
@pytest.mark.parametrize("target", BOARDS)
def test_networks_on_boards(target: str, name: str, tmp_path: Path) -> None:
    require_tools(GCC, QEMU)
    path = compile_network(name, tmp_path)
    about, _ = export_object(path, tmp_path, target)
    inputs = random_inputs(about, 4)
    for x, execution in zip(inputs, run_on_board(target, tmp_path, inputs), strict=True):
        assert execution.output == expected_output(path, x).tobytes()
        assert 0 < execution.stack < 8192
        # At most 16 products an instruction, of Helium's VMLADAV on int8.
        assert about.macs / 16 < execution.instructions < _MOST_PER_MAC.get((target, name), 20) * about.macs


@pytest.mark.slow
@pytest.mark.parametrize("target", BOARDS)
def test_a_quantized_recurrent_network_on_boards(target: str, tmp_path: Path) -> None:
    require_tools(GCC, QEMU)
    torch.manual_seed(0)
    data = [(torch.randn(1, 8, 6) * scale,) for scale in (0.5, 1.0, 2.0)]
    options: dict[str, Any] = {"quantize": "int8", "calibration": data, "integer_io": "int8"}
    path = save(Recurrent().eval(), data[0], tmp_path / "net.pte", **options)
    about, _ = export_object(path, tmp_path, target)
    inputs = random_inputs(about, 3)
    for x, execution in zip(inputs, run_on_board(target, tmp_path, inputs), strict=True):
        assert execution.output == expected_output(path, x).tobytes()


@pytest.mark.parametrize("target", ["cortex-m4", "cortex-m55"])
def test_float64_on_boards(target: str, tmp_path: Path) -> None:
    """Without a library for what a Cortex-M4 has no instructions for, the bits are the same."""
    require_tools(GCC, QEMU)
    torch.manual_seed(0)
    path = save(FloatingPoint(), (torch.randn(3, 16),), tmp_path / "net.pte", quantize="dynamic")
    about, _ = export_object(path, tmp_path, target)
    inputs = random_inputs(about, 3)
    for x, execution in zip(inputs, run_on_board(target, tmp_path, inputs), strict=True):
        assert execution.output == expected_output(path, x).tobytes()


class _Residual(torch.nn.Module):
    """A residual block around an operator that keeps the shape."""

    def __init__(self, inner: torch.nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x + self.inner(x))


def random_network(seed: int) -> tuple[torch.nn.Module, tuple[int, ...]]:
    """Two convolutions of random sizes, strides, dilations and groups, and what may follow them."""
    rng = np.random.default_rng(seed)
    pick = lambda *values: values[rng.integers(len(values))]  # noqa: E731
    channels, layers = pick(1, 2, 3, 4, 8, 20, 33), list[torch.nn.Module]()
    shape, width = (1, channels, pick(7, 12), pick(9, 14)), channels
    for _ in range(2):
        kernel, dilation, groups = (pick(1, 2, 3), pick(1, 3, 4)), pick(1, 1, 2), pick(1, 1, width)
        out = width * pick(1, 1, 2) if groups > 1 else pick(3, 12, 16, 31, 40)
        layers += [torch.nn.Conv2d(width, out, kernel, pick(1, 2), pick(0, 1), 1, groups), pick(
            torch.nn.ReLU(), torch.nn.ReLU6(), torch.nn.Identity(), torch.nn.Hardtanh(-1.0, 0.5))]  # fmt: skip
        if dilation > 1 and kernel == (3, 3):
            layers[-2].dilation = (2, 2)
        width = out
    if pick(True, False):
        layers.append(_Residual(torch.nn.Conv2d(width, width, 3, 1, 1, groups=pick(1, width))))
    layers += (
        [torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(width, 10)] if pick(True, False) else []
    )
    return torch.nn.Sequential(*layers).eval(), shape


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("target", ["cortex-m4", "cortex-m55"])
def test_random_convolutions_on_boards(target: str, seed: int, tmp_path: Path) -> None:
    require_tools(GCC, QEMU)
    torch.manual_seed(seed)
    network, shape = random_network(seed)
    data = [(torch.randn(shape),) for _ in range(3)]
    options: dict[str, Any] = {"quantize": "int8", "calibration": data, "integer_io": "int8"}
    path = save(network, data[0], tmp_path / "net.pte", **options)
    about, _ = export_object(path, tmp_path, target)
    inputs = random_inputs(about, 2)
    for x, execution in zip(inputs, run_on_board(target, tmp_path, inputs), strict=True):
        assert execution.output == expected_output(path, x).tobytes()


@pytest.mark.slow
def test_clock_of_the_boards_counts_instructions(tmp_path: Path) -> None:
    """Ticks of -icount against a trace of every instruction between the model's first and last address."""
    require_tools(GCC, QEMU)
    path = compile_network("lstm", tmp_path)
    for target in ("cortex-m4", "cortex-m55"):
        about, _ = export_object(path, tmp_path, target)
        inputs = random_inputs(about, 1)
        (execution,) = run_on_board(target, tmp_path, inputs)
        assert abs(count_instructions(target, tmp_path, inputs) / execution.instructions - 1) < 1e-3


@pytest.mark.parametrize("target", ["cortex-m4", "cortex-m55"])
def test_ticks_of_known_loops(target: str, tmp_path: Path) -> None:
    """Ticks are proportional to the number of instructions, whatever they are: adds, loads, divisions, floats."""
    require_tools(GCC, QEMU)
    count = 20_000
    image = link_program(target, tmp_path / "clock.elf", FOLDER / "clock.c", f"-DCOUNT={count}")
    *ticks, thrice = (int(line, 16) for line in boot(target, image, "-icount", "shift=0").split())
    assert len(ticks) == 4
    for each in (*ticks[1:], thrice / 3):
        assert abs(each / ticks[0] - 1) < 2e-3


@pytest.mark.slow
@pytest.mark.parametrize("target", BOARDS)
def test_trace_of_known_loops(target: str, tmp_path: Path) -> None:
    """The trace that the ticks of a model are compared with counts every instruction once."""
    require_tools(GCC, QEMU)
    count = 1000
    image = link_program(target, tmp_path / "clock.elf", FOLDER / "clock.c", f"-DCOUNT={count}")
    names = ("adds_loop", "loads_loop", "divisions_loop", "floats_loop")
    found = [trace_functions(target, image, [name]) for name in names]
    assert found == [2 * 3 + 10 * 4 * count, *[3 + 10 * count] * 3]
