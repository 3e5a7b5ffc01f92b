"""XNNPACK blobs with every number at its extremes, loaded and run: a result or our error, and no more memory."""

from __future__ import annotations

import resource

import pytest

from edgewright.formats import read_program
from tests.backends.device import program
from tests.backends.node_cases import EXACT, FLOAT, ROWS
from tests.support import golden, hostile
from tests.support.mutate import blob_cells, mutations

GOLDEN = ["linear_fp32_xnnpack", "conv_relu_int8_pc_xnnpack", "misc_ops_fp32_xnnpack", "mlp_8da4w_g32_xnnpack"]
NODES = {
    **{k: FLOAT[k] for k in ("max_pool2d", "avg_pool2d", "pad", "slice", "view", "permute", "cat_3", "resize", "bmm")},
    **{k: FLOAT[k] for k in ("conv2d_grouped", "depthwise_conv2d", "conv_transpose2d", "prelu", "add", "elu")},
    **{k: EXACT[k] for k in ("add_0", "mul_0", "linear_by_channel", "global_avg_pool2d_0", "conv2d_by_tensor")},
    **{k: ROWS[k] for k in ("conv2d_8", "linear_4_by_32")},
}
FILES = {**{n: lambda n=n: golden.path(n).read_bytes() for n in GOLDEN},
         **{n: lambda n=n: program(NODES[n]()[0]) for n in NODES}}  # fmt: skip


@pytest.mark.sample("linear_fp32_xnnpack")
@pytest.mark.parametrize("name", FILES)
def test_mutated_blobs_give_results_or_our_errors(name: str) -> None:
    data = FILES[name]()
    delegate = read_program(data).execution_plan[0].delegates[0]
    blob = bytes(read_program(data).blob(delegate))
    at = data.index(blob)
    outcomes: set[str] = set()
    for label, changed in mutations(blob, blob_cells(blob)):
        assert len(changed) == len(blob)
        try:
            outcomes.update(hostile.run(data[:at] + changed + data[at + len(blob) :]))
        except Exception as error:
            raise AssertionError(label) from error
    assert {"ok", "FormatError"} <= outcomes


def test_memory_stays_within_limits() -> None:
    """The largest amount this process ever had, after the tests above: far below what a bad size asks for."""
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 4 << 20  # KiB
