"""Conversion of a QNN device graph to a host twin, with all parameters explicit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from edgewright.backends.qualcomm.dialect.table import PREFIX, QNN
from edgewright.ir.graph import Graph, Op


def unsupported_ops(device: Graph) -> list[str]:
    """Operators of a device graph that the table lacks."""
    return sorted({op.kind for op in device.ops} - set(QNN))


def to_twin(device: Graph) -> Graph:
    """Convert a device graph whose operators are all in the table."""
    ops = [Op(f"{PREFIX}{op.kind}", _arguments(op), list(op.outputs), op.origin) for op in device.ops]
    return Graph(device.name, list(device.inputs), list(device.outputs), ops)


def _arguments(op: Op) -> dict[str, Any]:
    params: Mapping[str, Any] = op.args["params"]
    defaults = {name: number.default for name, number in QNN[op.kind].params.items() if number.default is not None}
    return {
        "inputs": list(op.args["inputs"]),
        **defaults,
        **{name: _to_python(value) for name, value in params.items()},
    }


def _to_python(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value
