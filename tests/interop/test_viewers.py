"""Netron and Model Explorer open our files, for every backend that they know, and show what is in them.

All of it is slow: they are installed first.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

from edgewright import to_edge_transform_and_lower
from edgewright.backends import find_partitioner, find_quantizer
from tests.interop.viewers import ViewerError, Viewers

pytestmark = pytest.mark.slow
TARGETS = {"ethos_u": "ethos-u55-128", "nxp": None, "qualcomm": "SM8650", "samsung": None, "xnnpack": None}
SIMULATED = ("nxp", "samsung")  # their vendors' compilers are not here
DELEGATES = {
    "ethos_u": "EthosUBackend",
    "nxp": "NeutronBackend",
    "qualcomm": "QnnBackend",
    "samsung": "EnnBackend",
    "xnnpack": "XnnpackBackend",
}
# Netron's own words about files of these backends, whoever made them.
UNKNOWN_TO_NETRON = {
    "nxp": "ExecuTorch delegate 'NeutronBackend' not implemented",
    "qualcomm": "Undocumented QNN backend not implemented",
    "samsung": "ExecuTorch delegate 'EnnBackend' not implemented",
}


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 8, 3, padding=1)
        self.head = torch.nn.Linear(8, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.conv(x).relu().mean((2, 3)))


@pytest.fixture(scope="module")
def viewers(tmp_path_factory: pytest.TempPathFactory) -> Viewers:
    return Viewers(tmp_path_factory.mktemp("viewers"))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A small network for every backend, in 8 bits; and for none."""
    torch.manual_seed(0)
    model, x = Net().eval(), (torch.randn(1, 3, 8, 8),)
    folder, found = tmp_path_factory.mktemp("files"), {}
    exported = torch.export.export(model, x)
    for name, target in {"portable": None, **TARGETS}.items():
        partitioners = []
        program = exported
        if name != "portable":
            quantizer = find_quantizer(name).for_target(target)
            quantizer.set_global(quantizer.presets["int8"]())
            prepared = prepare_pt2e(exported.module(), quantizer)
            prepared(*x)
            program = torch.export.export(convert_pt2e(prepared), x)
            made = find_partitioner(name)
            partitioners = [made.for_simulation(target) if name in SIMULATED else made.for_target(target)]
        found[name] = folder / f"{name}.pte"
        to_edge_transform_and_lower(program, partitioner=partitioners).to_executorch().save(found[name])
    return found


@pytest.mark.parametrize("backend", TARGETS)
def test_model_explorer_opens_every_backend(backend: str, files: dict[str, Path], viewers: Viewers) -> None:
    graphs = viewers.model_explorer(files[backend])
    nodes = graphs["forward"]
    labels = [n["label"] for n in nodes]
    assert labels.count(DELEGATES[backend]) == 1
    assert nodes[0]["label"] == "Graph Inputs" and nodes[-1]["label"] == "Graph Outputs"
    for node in nodes[1:]:
        assert node["inputs"], f"{node['label']} hangs in the air"


def test_model_explorer_shows_the_inside_of_xnnpack(files: dict[str, Path], viewers: Viewers) -> None:
    graphs = viewers.model_explorer(files["xnnpack"])
    call = next(n for n in graphs["forward"] if n["label"] == "XnnpackBackend")
    inside = [n["label"] for n in graphs[call["subgraphs"][0]]]
    assert {"XNNConv2d", "XNNFullyConnected"} <= set(inside)


@pytest.mark.parametrize("backend", sorted({"portable", *TARGETS} - set(UNKNOWN_TO_NETRON)))
def test_netron_opens(backend: str, files: dict[str, Path], viewers: Viewers) -> None:
    shown = viewers.netron(files[backend])
    assert shown["format"] == "ExecuTorch v0"
    (graph,) = shown["graphs"]
    assert (graph["inputs"], graph["outputs"]) == (["float32[1,3,8,8]"], ["float32[1,10]"])
    if backend == "portable":
        assert {"convolution", "relu", "mean"} <= {n["name"] for n in graph["nodes"]}
        return
    (call,) = [n for n in graph["nodes"] if n["name"] == DELEGATES[backend]]
    assert call["inside"]["inputs"]
    if backend == "xnnpack":
        assert "XNNConv2d" in [n["name"] for n in call["inside"]["nodes"]]


@pytest.mark.parametrize("backend", sorted(UNKNOWN_TO_NETRON))
def test_netron_says_itself_what_it_does_not_know(backend: str, files: dict[str, Path], viewers: Viewers) -> None:
    with pytest.raises(ViewerError, match=UNKNOWN_TO_NETRON[backend]):
        viewers.netron(files[backend])
