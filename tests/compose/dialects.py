"""The dialects that graphs are drawn in: how each is generated, built, and run by its own meaning."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from edgewright.backends.xnnpack.numerics import XNNPACK
from edgewright.ir.core.execute import Executor
from edgewright.ir.graph import Array, Graph
from edgewright.ir.numerics import Numerics
from tests.compose import generate as core
from tests.compose.builder import Builder
from tests.compose.core import Core
from tests.compose.enn import Enn
from tests.compose.qnn import Qnn
from tests.compose.spec import Spec
from tests.compose.tflite import Tflite
from tests.compose.tosa import Tosa
from tests.compose.vendor_blocks import generate as generate_vendor
from tests.support import dialects

_HALF = 1e-3  # real numbers are held in 16 bits, whose step in the last place it is
Execute = Callable[[Graph, Sequence[Array]], list[Array]]


@dataclass(frozen=True)
class Dialect:
    """``bound``: of real results, as a share of the largest. ``varies``: graphs are planned as those whose sizes are
    known when they run, each together with one of a larger batch."""

    generate: Callable[[int], Spec]
    builder: Callable[[], Builder]
    numerics: Numerics
    execute: Execute
    bound: float = 2e-6
    varies: bool = False


def _execute_core(graph: Graph, inputs: Sequence[Array]) -> list[Array]:
    return Executor(graph, XNNPACK).run(inputs)


def _vendor(name: str, builder: Callable[[], Builder], bound: float = 2e-6) -> Dialect:
    dialect = dialects.DIALECTS[name]
    return Dialect(partial(generate_vendor, name, builder), builder, dialect.numerics, dialect.execute, bound)


DIALECTS: dict[str, Dialect] = {
    "core": Dialect(core.generate, Core, XNNPACK, _execute_core),
    "varying": Dialect(partial(core.generate, dialect="varying"), Core, XNNPACK, _execute_core, varies=True),
    "tosa": _vendor("tosa", Tosa),
    "tflite": _vendor("tflite", Tflite),
    "qnn": _vendor("qnn", Qnn, _HALF),
    "enn": _vendor("enn", Enn, _HALF),
}


def generate(dialect: str, seed: int) -> Spec:
    return DIALECTS[dialect].generate(seed)
