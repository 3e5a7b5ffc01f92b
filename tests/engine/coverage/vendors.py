"""Device graphs of every vendor's rows, from the op table's samples, and which of them the engine leaves to numpy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgewright.backends.ethos_u.ops import BACKEND as ETHOS_U
from edgewright.backends.ethos_u.partitioner import to_tosa
from edgewright.backends.ethos_u.target import EthosUCompileSpec
from edgewright.backends.nxp.build_graph import to_tflite
from edgewright.backends.qualcomm.ops import BACKEND as QUALCOMM
from edgewright.backends.qualcomm.partitioner import to_qnn
from edgewright.backends.qualcomm.twin import make_twin
from edgewright.backends.samsung.partitioner import EnnPartitioner, to_enn
from edgewright.engine.compiler import make_plan
from edgewright.errors import ExecutionError
from edgewright.formats.twin_reader import read_twin
from edgewright.ir.aten.ops import OPS
from edgewright.ir.graph import Graph
from tests.backends.ethos_u import rows as ethos_u
from tests.backends.nxp import rows as nxp
from tests.backends.qualcomm import rows as qualcomm
from tests.support import quantized_calls
from tests.support.dialects import NUMERICS
from tests.support.quantized_calls import Case, Scheme

Samples = Callable[[str, Any], Iterator[Case]]
Lower = Callable[[Case], "Graph | None"]  # None: a rule refuses it


@dataclass(frozen=True)
class Vendor:
    """``types``: how real numbers are held, by the name that tables have for it."""

    rows: list[str]
    types: dict[str, Any]
    samples: Samples
    lower: Lower
    numerics: str


def _to_tosa(case: Case) -> Graph | None:
    spec = EthosUCompileSpec("ethos-u85-256")
    return None if ETHOS_U.rejections(case.op, spec) else to_tosa(case.copy(), spec)


def _to_tflite(case: Case) -> Graph | None:
    return None if nxp.BACKEND.rejections(case.op) else to_tflite(case.copy(), nxp.BACKEND.rows)


def _to_qnn(case: Case) -> Graph | None:
    target = qualcomm.target_for()
    if QUALCOMM.rejections(case.op, target):
        return None
    twin = make_twin(to_qnn(case.copy(), target))
    return None if twin is None else read_twin(twin)[""]


_SAMSUNG = EnnPartitioner.for_simulation("E9955")


def _to_enn(case: Case) -> Graph | None:
    return None if _SAMSUNG.rejections(case.op) else to_enn(case.copy())


def _axis(op: str, args: Any, axis: int) -> int | None:
    """Weights of transposed convolutions of groups have one scale."""
    return None if op.startswith("conv_transpose") and args.get("groups", 1) > 1 else axis


def _samsung(op: str, dtype: Any) -> Iterator[Case]:
    held = None if dtype is None else np.dtype(dtype)
    scheme = Scheme(held, axis=_axis, moderate=op != "topk", saturates=False)
    return quantized_calls.cases(op, scheme, _SAMSUNG.backend.rows[op].ports)


def _named(rows: Any) -> list[str]:
    return [name for name in rows if name in OPS]


VENDORS = {
    "ethos_u": Vendor(_named(ETHOS_U.rows), {"int8": 8, "int16": 16}, ethos_u.cases, _to_tosa, "tosa"),
    "nxp": Vendor(_named(nxp.BACKEND.rows), {"int8": 8}, lambda op, _: nxp.cases(op), _to_tflite, "tflite"),
    "qualcomm": Vendor(
        _named(QUALCOMM.rows), {"half": qualcomm.FP16, "uint8": 8, "uint16": 16}, qualcomm.cases, _to_qnn, "qnn"
    ),
    "samsung": Vendor(
        _named(_SAMSUNG.backend.rows),
        {"half": None, **{t: t for t in ("int8", "uint8", "int16", "uint16")}},
        _samsung,
        _to_enn,
        "enn",
    ),
}


def in_numpy(vendor: Vendor, op: str) -> set[str]:
    """The types a row has samples of that the engine leaves some step of to numpy."""
    return {name for name, held in vendor.types.items() if _left(vendor, op, held)}


def _left(vendor: Vendor, op: str, held: Any) -> bool:
    graphs = (vendor.lower(case) for case in vendor.samples(op, held))
    return any(not native(graph, vendor.numerics) for graph in graphs if graph is not None)


def native(graph: Graph, numerics: str = "xnnpack", cpu: str | None = None) -> bool:
    """Whether all steps of a graph are machine code. Only a plan is made: no code."""
    try:
        return all(step.python is None for step in make_plan(graph, 1, NUMERICS[numerics], cpu).steps)
    except ExecutionError:  # refused: numpy, or nobody, runs it
        return False
