"""XNNPACK blobs: read, written, and safe from hostile hands."""

from __future__ import annotations

import pytest

from edgewright.backends.xnnpack import blob as format
from edgewright.backends.xnnpack.nodes import NODE_TYPE, NODES
from edgewright.errors import EdgewrightError, FormatError, UsageError
from edgewright.formats import read_program
from tests.support import golden
from tests.support.mutate import blob_cells, mutations

BLOBS = {
    f"{name}-{plan.name}-{index}": bytes(program.blob(delegate))
    for name in golden.PROGRAMS
    for program in [read_program(golden.path(name))]
    for plan in program.execution_plan
    for index, delegate in enumerate(plan.delegates)
}


@pytest.mark.parametrize("name", BLOBS)
def test_blobs_of_stock_round_trip(name: str) -> None:
    stock = BLOBS[name]
    read = format.read_blob(stock)
    ours = format.write_blob(read)
    assert format.read_blob(ours) == read
    assert len(ours) <= len(stock) + 16


def test_every_node_has_its_number() -> None:
    assert len(NODES) == 47
    assert [NODE_TYPE[n] for n in ("Add", "Conv2d", "Convert", "Concatenate2", "ConvTranspose2d", "Cos")] == [
        1, 7, 18, 32, 39, 47,
    ]  # fmt: skip


def test_a_node_of_the_wrong_table_is_refused() -> None:
    graph = format.read_blob(BLOBS["linear_fp32_xnnpack-forward-0"])
    graph.graph.xnodes[0].type = NODE_TYPE["Add"]
    with pytest.raises(UsageError, match="node"):
        format.write_blob(graph)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda g: setattr(g.xvalues[1].tensor, "id_out", 0), "ids must differ"),
        (lambda g: setattr(g.xvalues[1].tensor, "constant_buffer_idx", 99), "constants"),
        (lambda g: setattr(g.xvalues[0].tensor, "external_id", 99), "externals"),
        (lambda g: setattr(g.xvalues[0].tensor, "flags", 3), "input or an output"),
        (lambda g: setattr(g.xvalues[3].tensor, "external_id", 0), "external ids must differ"),
        (lambda g: setattr(g.xnodes[0].node, "filter_id", 77), "value of the graph"),
        (lambda g: setattr(g.xnodes[0].node, "input1_id", 3), "before its definition"),
        (lambda g: setattr(g.xnodes[0].node, "output_id", 1), "writes a value twice"),
        (lambda g: setattr(g.constant_data[1], "named_key", None), r"constant_data\[1\]"),
    ],
)
def test_graphs_that_mean_nothing_are_refused(change, message: str) -> None:  # type: ignore[no-untyped-def]
    read = format.read_blob(BLOBS["linear_fp32_xnnpack-forward-0"])
    change(read.graph)
    with pytest.raises(FormatError, match=message):
        format.write_blob(read)


@pytest.mark.parametrize("name", ["linear_fp32_xnnpack-forward-0", "conv_relu_int8_pc_xnnpack-forward-0"])
def test_truncated_and_mutated_blobs_give_typed_errors(name: str) -> None:
    data = BLOBS[name]
    refused = 0
    for length in range(len(data)):
        try:
            format.read_blob(data[:length])
        except EdgewrightError:
            refused += 1
    assert refused > len(data) * 0.9
    for label, changed in mutations(data, blob_cells(data)):
        try:
            format.read_blob(changed)
        except EdgewrightError:
            refused += 1
        except Exception as error:  # pragma: no cover
            raise AssertionError(label) from error
    assert refused > 1000
