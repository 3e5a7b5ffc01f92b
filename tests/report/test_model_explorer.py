"""Figures by node, in Google's Model Explorer: they are of nodes that it shows.

Needs ``pip install ai-edge-model-explorer``, whose own adapter reads the ``.pt2``.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from edgewright.cli import main
from tests.api.models import calls, net

adapter = pytest.importorskip(
    "model_explorer.builtin_pytorch_exportedprogram_adapter", reason="ai-edge-model-explorer is not installed"
)


def test_every_figure_is_of_a_node_that_it_shows(tmp_path: Path) -> None:
    torch.export.save(torch.export.export(net(), (calls(1)[0],)), tmp_path / "net.pt2")
    np.savez(tmp_path / "calib.npz", x=np.stack([c.numpy() for c in calls(8)]))
    model = ["--quantize", "int8", "-q"]
    data = str(tmp_path / "calib.npz")
    assert main(["compile", str(tmp_path / "net.pt2"), "--target", "xnnpack", "--calibrate", data,
                 "-o", str(tmp_path / "net.pte"), *model]) == 0  # fmt: skip
    output = ["-o", str(tmp_path / "r.html"), "--model-explorer", str(tmp_path / "o.json")]
    source = ["--model", str(tmp_path / "net.pt2"), "--inputs", data]
    assert main(["report", str(tmp_path / "net.pte"), *source, *output, *model]) == 0
    reader = adapter.BuiltinPytorchExportedProgramAdapter()
    (graph,) = reader.convert(str(tmp_path / "net.pt2"), {"const_element_count_limit": 16})["graphs"]
    shown = {node.id: node.label for node in graph.nodes}
    for name in ("time", "macs", "weights", "error"):
        figures = json.loads((tmp_path / f"o.{name}.json").read_text())
        assert list(figures) == [graph.id]
        results = figures[graph.id]["results"]
        assert results and set(results) <= set(shown)
        assert any("conv2d" in shown[node] for node in results)
