"""Object files in this process: results bit for bit those of the runtime, arguments, sizes, several in a program."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from edgewright.bare_metal.object_export import build_object, export_object
from edgewright.program.edge import to_edge_transform_and_lower
from tests.bare_metal import tiny_networks
from tests.bare_metal.native import GuardedMemory, NativeModel, stored_bytes
from tests.bare_metal.programs import WARNINGS, check_natively, compile_network, native_target, save
from tests.bare_metal.tiny_networks import Recurrent


def test_bad_arguments_are_reported(tmp_path: Path) -> None:
    path = save(torch.nn.Linear(8, 4), (torch.ones(1, 8),), tmp_path / "linear.pte")
    about, _ = export_object(path, tmp_path, native_target())
    model = NativeModel(tmp_path, about)
    arena, x, y = (GuardedMemory(n, 64, False).address for n in (about.object.arena_size, 32, 16))
    assert model.call([x], [y], arena) == 0
    assert model.call([None], [y], arena) == model.call([x], [None], arena) == model.call([x], [y], 0) == 1
    assert model.call([x], [y], arena + 1) == 2


def test_quantized_network_natively(tmp_path: Path) -> None:
    check_natively(compile_network("ds_cnn", tmp_path), native_target(), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(tiny_networks.NETWORKS))
def test_networks_natively(name: str, tmp_path: Path) -> None:
    check_natively(compile_network(name, tmp_path), native_target(), tmp_path)


class _Repeated(torch.nn.Module):
    """A layer that is applied again and again, as in every step of a recurrent network."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(4):
            x = torch.tanh(self.layer(x))
        return x


@pytest.mark.parametrize("target", ["cortex-m55", "aarch64-linux", "x86-64-v3"])
def test_weights_of_a_layer_that_is_applied_often_are_stored_once(target: str, tmp_path: Path) -> None:
    path = save(_Repeated(), (torch.ones(1, 64),), tmp_path / "net.pte")
    assert build_object(path, target).object.rodata_size < 1.2 * 64 * 64 * 4


@pytest.mark.slow
def test_steps_of_a_quantized_recurrent_network_share_code(tmp_path: Path) -> None:
    """Twice as many steps take a call each, but no kernels, and compute what the runtime does."""
    torch.manual_seed(0)
    network, sizes = Recurrent().eval(), []
    for steps in (4, 8):
        folder = tmp_path / str(steps)
        folder.mkdir()
        data = [(torch.randn(1, steps, 6) * scale,) for scale in (0.5, 1.0, 2.0)]
        options: dict[str, Any] = {"quantize": "int8", "calibration": data, "integer_io": "int8"}
        path = save(network, data[0], folder / "net.pte", **options)
        sizes.append(build_object(path, "cortex-m4").object.code_size)
        check_natively(path, native_target(), folder)
    assert sizes[1] < 1.35 * sizes[0]


class Moves(torch.nn.Module):
    """Starts with data movement, and returns a view of what it computes."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = torch.relu(x.transpose(1, 2)[:, 1:].contiguous())
        return y.reshape(-1), x.reshape(4, 6) * 2


def test_data_movement_and_views(tmp_path: Path) -> None:
    x = torch.randn(2, 3, 4)
    path = tmp_path / "moves.pte"
    path.write_bytes(to_edge_transform_and_lower(torch.export.export(Moves(), (x,))).to_executorch().buffer)
    about, _ = export_object(path, tmp_path, native_target())
    wanted = stored_bytes(Moves()(x), about.outputs)
    for found, array in zip(NativeModel(tmp_path, about).run([x.numpy()]), wanted, strict=True):
        np.testing.assert_array_equal(found, array)


_MAIN = """
#include "first.h"
#include "second.h"
alignas(64) static unsigned char arena[FIRST_ARENA_SIZE + SECOND_ARENA_SIZE + 1];
int main() {
  float x[FIRST_INPUT_0_SIZE / 4], y[3][FIRST_OUTPUT_0_SIZE / 4];
  for (int i = 0; i < 8; i++) x[i] = 0.25f * static_cast<float>(i);
  const first_inputs in = {x};
  const second_inputs in2 = {x};
  first_outputs out = {y[0]}, again = {y[2]};
  second_outputs out2 = {y[1]};
  if (first_run(&in, &out, arena) || second_run(&in2, &out2, arena) || first_run(&in, &again, arena)) return 1;
  for (int i = 0; i < 4; i++)
    if (y[0][i] != y[2][i] || y[1][i] != 2 * y[0][i]) return 2;
  return 0;
}
"""


def test_several_models_in_a_program(tmp_path: Path) -> None:
    """Two models of the same kernels in one arena, from C++; the second has twice the weights of the first."""
    layer = torch.nn.Linear(8, 4)
    for name in ("first", "second"):
        path = save(layer, (torch.ones(1, 8),), tmp_path / f"{name}.pte")
        export_object(path, tmp_path, native_target(), name=name)
        with torch.no_grad():
            for parameter in layer.parameters():
                parameter *= 2
    (tmp_path / "main.cpp").write_text(_MAIN)
    files = [tmp_path / name for name in ("main.cpp", "first.o", "second.o")]
    subprocess.run(["g++", "-std=c++17", *WARNINGS, *files, "-o", tmp_path / "main"], check=True)
    subprocess.run([tmp_path / "main"], check=True)


def test_instance_norm(tmp_path: Path) -> None:
    """Normalization by statistics of the input, as a part of an object file."""
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Conv2d(3, 6, 3), torch.nn.InstanceNorm2d(6, affine=True), torch.nn.PReLU(6))
    torch.nn.init.normal_(network[1].weight)
    x = torch.randn(1, 3, 9, 11)
    about, _ = export_object(save(network, (x,), tmp_path / "net.pte"), tmp_path, native_target())
    (found,) = NativeModel(tmp_path, about).run([x.numpy()])
    wanted = network(x).detach().numpy()
    np.testing.assert_allclose(found.view(np.float32).reshape(wanted.shape), wanted, rtol=1e-5, atol=1e-5)
