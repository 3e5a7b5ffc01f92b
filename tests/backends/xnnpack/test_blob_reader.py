"""XNNPACK blobs of stock on this machine: the device graph they are, and the outputs they give."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edgewright.backends.xnnpack.blob import read_blob, write_blob
from edgewright.backends.xnnpack.blob_reader import from_blob
from edgewright.backends.xnnpack.blob_writer import to_blob
from edgewright.errors import MissingDataError
from edgewright.formats import read_program
from edgewright.formats.ptd import read_data
from edgewright.ir.graph import Graph, Value
from edgewright.runtime import Runtime
from tests.support import golden

DELEGATED = [n for n in golden.PROGRAMS if any(p.delegates for p in read_program(golden.path(n)).execution_plan)]
EXACT = [n for n in DELEGATED if "int8_p" in n]  # integers between quantize and dequantize


def blobs(name: str) -> list[tuple[Any, dict[str, Any]]]:
    """The blobs of a golden file, each with the data it may look up."""
    program = read_program(golden.path(name))
    named = {item.key: program.segment(item.segment_index) for item in program.named_data or ()}
    if golden.data(name) is not None:
        named.update({key: entry.data for key, entry in read_data(golden.data(name)).items()})
    return [(program.blob(d), named) for plan in program.execution_plan for d in plan.delegates]


def shown(graph: Graph) -> Any:
    """A graph as plain data, to compare with another."""

    def plain(item: Any) -> Any:
        if isinstance(item, Value):
            return (item.dtype, item.shape, item.q, None if item.data is None else item.data.tobytes())
        if isinstance(item, list | tuple):
            return [plain(i) for i in item]
        return item

    ops = [(op.kind, {k: plain(v) for k, v in op.args.items()}, plain(op.outputs)) for op in graph.ops]
    return plain(graph.inputs), plain(graph.outputs), ops


@pytest.mark.parametrize("name", DELEGATED)
def test_graphs_go_to_blobs_and_back(name: str) -> None:
    for blob, named in blobs(name):
        graph = from_blob(read_blob(blob), named)
        ours, constants = to_blob(graph)
        assert shown(from_blob(read_blob(write_blob(ours)), constants)) == shown(graph)


@pytest.mark.parametrize("name", [n for n in DELEGATED if n in golden.RECORDED])
def test_golden_files_give_stocks_outputs(name: str) -> None:
    loaded = Runtime.get().load_program(golden.path(name), golden.data(name))
    for case in golden.cases(name):
        outputs = loaded.load_method(case.method).execute(case.inputs)
        for ours, stock in zip(outputs, case.outputs, strict=True):
            if name in EXACT:
                np.testing.assert_array_equal(ours, stock)
            else:
                np.testing.assert_allclose(np.asarray(ours, np.float64), stock.astype(np.float64), 1e-5, 1e-6)


def test_missing_constants_are_named() -> None:
    blob, _ = blobs("linear_fp32_xnnpack")[0]
    with pytest.raises(MissingDataError, match="needs the data named"):
        from_blob(read_blob(blob), {})
