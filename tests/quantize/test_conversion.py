"""``convert_pt2e`` quantizes weights, and computes nothing else with them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import fx, nn

import edgewright as ew
from edgewright.quantize import pt2e


def test_conversion_dequantizes_no_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """torchao dequantizes each weight while it folds constants, and throws the result away."""
    computed: list[str] = []
    run_node, convert = fx.Interpreter.run_node, pt2e.convert_pt2e

    def record(interpreter: fx.Interpreter, node: fx.Node) -> Any:
        computed.append(str(node.target))
        return run_node(interpreter, node)

    def converted(model: fx.GraphModule) -> fx.GraphModule:
        with monkeypatch.context() as patch:
            patch.setattr(fx.Interpreter, "run_node", record)
            return convert(model)

    monkeypatch.setattr(pt2e, "convert_pt2e", converted)
    model, x = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 4)).eval(), torch.ones(1, 8)
    result = ew.compile(model, x, quantize="int8", calibration=[x], check=False, evaluate=0, quiet=True)
    targets = [str(node.target) for node in result.exported.graph.nodes]
    assert sum("dequantize_per_channel" in t for t in targets) == 2
    assert sum(".quantize_per_channel" in t for t in computed) == 2 and not any("dequantize" in t for t in computed)
