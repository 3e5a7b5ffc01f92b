"""Values that are cut from one tensor, changed and joined again: each is made in its place, and nowhere beside it."""

from __future__ import annotations

from itertools import accumulate

import pytest

from edgewright.ir.graph import Graph, Op, Value
from tests.engine.graphs import compare, cpus, graph, quantized, random, real


def rejoined(shape: tuple[int, ...], widths: tuple[int, ...], quantize: bool, turned: bool) -> Graph:
    """The channels of a tensor in parts, a function of each, and all of them in one tensor again."""

    def value(name: str, width: int, step: int = 0) -> Value:
        return quantized(name, *shape, width, scale=0.05 + step / 100) if quantize else real(name, *shape, width)

    x, whole = value("x", sum(widths)), value("whole", sum(widths))
    ops, parts = [Op("core.abs", {"self": x}, [whole])], []
    for i, (end, width) in enumerate(zip(accumulate(widths), widths, strict=True)):
        cut, made = value(f"cut{i}", width), value(f"made{i}", width, step=1)
        start, length = [0] * len(shape) + [end - width], [*shape, width]
        ops += [Op("core.slice", {"self": whole, "start": start, "length": length}, [cut]),
                Op("core.sigmoid" if i % 2 else "core.hardswish", {"self": cut}, [made])]  # fmt: skip
        parts.append(made)
    joined, out = value("joined", sum(widths), step=1), value("out", sum(widths), step=2)
    ops += [Op("core.cat", {"tensors": parts[::-1] if turned else parts, "dim": len(shape)}, [joined]),
            Op("core.tanh", {"self": joined}, [out])]  # fmt: skip
    return graph([x], [out], *ops)


@pytest.mark.parametrize("cpu", cpus())
@pytest.mark.parametrize("turned", [False, True], ids=["in-order", "turned"])
@pytest.mark.parametrize("quantize", [False, True], ids=["real", "bytes"])
@pytest.mark.parametrize("shape", [(16,), (2, 5), (2, 3, 5)])
@pytest.mark.parametrize("widths", [(2, 5), (5, 2), (4, 4), (3, 4, 9), (16, 1, 15), (20, 12)])
def test_parts_leave_each_other_alone(
    cpu: str, shape: tuple[int, ...], widths: tuple[int, ...], quantize: bool, turned: bool
) -> None:
    made = rejoined(shape, widths, quantize, turned)
    compare(made, [random(made.inputs[0])], cpu)
