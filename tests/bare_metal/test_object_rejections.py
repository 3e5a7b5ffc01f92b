"""What has no object file, or is too large for one: rejected with the layer and the remedy."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path

import pytest
import torch

from edgewright.bare_metal.object_export import build_object
from edgewright.errors import LimitError, UnsupportedOperatorError, UsageError
from edgewright.program.edge import to_edge_transform_and_lower
from tests.bare_metal.programs import save


def test_rejections_name_the_rule(tmp_path: Path) -> None:
    x = torch.ones(1, 8)
    path = save(torch.nn.Linear(8, 64), (x,), tmp_path / "linear.pte")
    with pytest.raises(UsageError, match="cortex-m55"):
        build_object(path, "cortex-m56")
    with pytest.raises(LimitError, match="--flash"):
        build_object(path, "cortex-m4", flash=1000)
    with pytest.raises(LimitError, match="--sram"):
        build_object(path, "cortex-m4", sram=100)


class _TwoInputs(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.activation, self.left, self.right = torch.nn.ReLU(), torch.nn.Linear(8, 4), torch.nn.Linear(8, 4)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.left(x) + self.right(self.activation(y))


@pytest.mark.parametrize("delegated", [True, False])
def test_a_dynamic_shape_is_rejected_with_the_layer_that_reads_it(delegated: bool, tmp_path: Path) -> None:
    sizes = {"x": None, "y": {0: torch.export.Dim("n", max=4)}}
    module, inputs = _TwoInputs(), (torch.ones(1, 8), torch.ones(2, 8))
    path = tmp_path / "dynamic.pte"
    if delegated:
        save(module, inputs, path, dynamic_shapes=sizes)
    else:
        exported = torch.export.export(module, inputs, dynamic_shapes=sizes)
        path.write_bytes(to_edge_transform_and_lower(exported).to_executorch().buffer)
    subject = r"input 1 of 'forward' \(first read by layer activation\): must have a fixed shape .*\[4, 8\]\n"
    with pytest.raises(UsageError, match=rf"{subject}.*without dynamic_shapes"):
        build_object(path, "cortex-m4")


class _Nonzero(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nonzero(x > 0)


def test_a_size_that_depends_on_values_is_rejected_with_the_operator(tmp_path: Path) -> None:
    path = save(torch.nn.Sequential(OrderedDict(front=torch.nn.Linear(4, 4), found=_Nonzero())), (torch.ones(2, 4),),
                tmp_path / "nonzero.pte")  # fmt: skip
    with pytest.raises(UnsupportedOperatorError, match=r"nonzero\.out in layer found: has a result whose size depends"):
        build_object(path, "cortex-m4")


class _Counter(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls.add_(1)
        return x * self.calls


def test_state_is_rejected_with_the_layer_that_keeps_it(tmp_path: Path) -> None:
    layers = OrderedDict(front=torch.nn.Linear(8, 4), count=_Counter())
    path = save(torch.nn.Sequential(layers), (torch.ones(1, 8),), tmp_path / "state.pte")
    with pytest.raises(UnsupportedOperatorError, match="layer count: must keep no state between calls\n"):
        build_object(path, "cortex-m4")


def test_what_does_not_fit_names_the_layer_that_takes_most(tmp_path: Path) -> None:
    """Of flash, the layer with most weights; of memory, the one with the largest tensors."""
    layers = {"wide": torch.nn.Linear(8, 900), "deep": torch.nn.Linear(900, 40), "last": torch.nn.Linear(40, 4)}
    path = save(torch.nn.Sequential(OrderedDict(layers)), (torch.ones(5, 8),), tmp_path / "layers.pte")
    with pytest.raises(LimitError, match=r"Quantize to int8.* Largest layer: deep \(14\d KiB\)"):
        build_object(path, "cortex-m4", flash=100_000)
    with pytest.raises(LimitError, match=r"Quantize to int8.* Largest layer: (wide|deep) \(1\d\.\d KiB\)"):
        build_object(path, "cortex-m4", sram=10_000)


def test_delegates_without_code_are_rejected(tmp_path: Path) -> None:
    path = save(torch.nn.Linear(8, 8), (torch.ones(1, 8),), tmp_path / "qnn.pte", "sm8550", simulate=True)
    with pytest.raises(UsageError, match="QnnBackend"):
        build_object(path, "cortex-m4")
