"""Conversion of a QNN device graph to a host twin, with all parameters explicit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from edgewright.ir.graph import Graph, Op
from edgewright.ir.qnn.table import PREFIX, QNN


def missing(device: Graph) -> list[str]:
    """Operators of a device graph that have no meaning here."""
    return sorted({op.kind for op in device.ops} - set(QNN))


def to_twin(device: Graph) -> Graph:
    """The same graph with the operators of the table; those must have a meaning."""
    ops = [Op(f"{PREFIX}{op.kind}", _arguments(op), list(op.outputs), op.origin) for op in device.ops]
    return Graph(device.name, list(device.inputs), list(device.outputs), ops)


def _arguments(op: Op) -> dict[str, Any]:
    given: Mapping[str, Any] = op.args["params"]
    known = {name: number.default for name, number in QNN[op.kind].params.items() if number.default is not None}
    return {"inputs": list(op.args["inputs"]), **known, **{name: _plain(value) for name, value in given.items()}}


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value
