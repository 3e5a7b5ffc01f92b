"""Every row on the op table's own samples: refused by a rule, or compiled by Vela and run with the right integers.

In a quick run each operator meets one target, by turns; ``-m slow`` runs all of them.
"""

from __future__ import annotations

import pytest

from edgewright.backends.ethos_u.ops import BACKEND
from edgewright.backends.ethos_u.target import ACCELERATORS, EthosUCompileSpec
from edgewright.ir.aten.ops import OPS
from tests.backends.ethos_u.hand_written import case
from tests.backends.ethos_u.rows import cases, check
from tests.support.quantized_calls import Case

ROWS = [name for name in BACKEND.rows if name in OPS]
TARGETS = list(ACCELERATORS)
SPEC = EthosUCompileSpec("ethos-u85-256")
MOST = {8: 2, 16: 32}  # last places that a result may be off: tables of 16 bits are interpolated
LOOSER = {}  # operators of which more is known than that, by name and bits


def turn(index: int) -> str:
    return TARGETS[(index * 3) % len(TARGETS)]


def tried(op: str, bits: int, target: str, most: int | None = None) -> int:
    """Check the samples of a row; gives how many were taken."""
    taken = 0
    for index, sample in enumerate(cases(op, bits)):
        if most is not None and index >= most:
            break
        outcome = check(sample, target)
        taken += not outcome.rejections
        assert all(outcome.rejections), sample.name
        limit = LOOSER.get((op, bits), MOST[bits])
        assert outcome.steps <= limit, f"{sample.name}: {outcome.steps} last places off on {target}"
    return taken


@pytest.mark.sample(40)
@pytest.mark.parametrize("op", ROWS)
@pytest.mark.parametrize("bits", [8, 16])
def test_rows_are_refused_by_a_rule_or_compiled_and_right(op: str, bits: int) -> None:
    tried(op, bits, turn(ROWS.index(op) + bits), most=12)


@pytest.mark.slow
@pytest.mark.parametrize("op", ROWS)
@pytest.mark.parametrize("target", TARGETS)
def test_rows_on_every_target(op: str, target: str) -> None:
    for bits in (8, 16):
        tried(op, bits, target)


@pytest.mark.parametrize("op", ROWS)
def test_every_row_takes_something(op: str) -> None:
    """A row that refuses all its samples, on the largest target, would be no row."""
    assert any(not BACKEND.rejections(sample.op, SPEC) for sample in cases(op)), op


def convolution(
    x: tuple[int, ...], weight: tuple[int, ...], stride: int = 1, padding: int = 0, dilation: int = 1, groups: int = 1,
    transposed: bool = False, extra: int = 0, bits: int = 8,
) -> Case:  # fmt: skip
    dims = len(weight) - 2
    lists = [[n] * dims for n in (stride, padding, dilation)]
    return case("aten.convolution.default", x, weight, (weight[1] * groups if transposed else weight[0],), *lists,
                transposed, [extra] * dims, groups, bits=bits)  # fmt: skip


CONVOLUTIONS = {
    "stride 4": {"x": (1, 4, 17, 17), "weight": (8, 4, 3, 3), "stride": 4},
    "stride 8": {"x": (1, 4, 33, 33), "weight": (8, 4, 3, 3), "stride": 8},
    "dilation 4": {"x": (1, 4, 20, 20), "weight": (8, 4, 3, 3), "dilation": 4},
    "window over 64": {"x": (1, 2, 70, 70), "weight": (2, 2, 66, 66)},
    "batch of 3": {"x": (3, 4, 8, 8), "weight": (8, 4, 3, 3), "padding": 1},
    "no batch": {"x": (4, 8, 8), "weight": (8, 4, 3, 3)},
    "depthwise stride 4": {"x": (1, 8, 20, 20), "weight": (8, 1, 3, 3), "groups": 8, "stride": 4},
    "depthwise stride 9": {"x": (1, 8, 30, 30), "weight": (8, 1, 3, 3), "groups": 8, "stride": 9},
    "depthwise times 2": {"x": (1, 8, 12, 12), "weight": (16, 1, 3, 3), "groups": 8},
    "grouped": {"x": (1, 8, 10, 10), "weight": (12, 2, 3, 3), "groups": 4, "padding": 1},
    "transposed stride 2": {
        "x": (1, 4, 8, 8),
        "weight": (4, 6, 3, 3),
        "transposed": True,
        "stride": 2,
        "padding": 1,
        "extra": 1,
    },
    "transposed stride 3": {"x": (1, 4, 8, 8), "weight": (4, 6, 5, 5), "transposed": True, "stride": 3, "padding": 1},
    "transposed stride 4": {"x": (1, 4, 5, 5), "weight": (4, 6, 3, 3), "transposed": True, "stride": 4, "extra": 3},
    "transposed dilated": {"x": (1, 4, 8, 8), "weight": (4, 6, 3, 3), "transposed": True, "dilation": 2},
    "transposed grouped": {"x": (1, 4, 8, 8), "weight": (4, 3, 3, 3), "transposed": True, "groups": 2, "stride": 2},
    "sequence": {"x": (1, 4, 40), "weight": (8, 4, 9), "stride": 4, "padding": 4},
    "sequence upwards": {"x": (1, 4, 10), "weight": (4, 8, 4), "transposed": True, "stride": 2},
    "uneven fit": {"x": (1, 4, 10, 10), "weight": (8, 4, 3, 3), "stride": 3, "padding": 1},
}


@pytest.mark.sample(13)
@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_of_every_form(name: str, bits: int) -> None:
    index = list(CONVOLUTIONS).index(name)
    for target in ("ethos-u55-128", TARGETS[index % len(TARGETS)]):
        outcome = check(convolution(**CONVOLUTIONS[name], bits=bits), target)
        assert not outcome.rejections
        assert outcome.steps <= 2


def test_what_has_no_form_is_refused_with_the_number() -> None:
    refused = check(convolution((1, 8, 40, 40), (8, 1, 3, 3), groups=8, stride=5), "ethos-u55-128").rejections
    (why,) = refused
    assert "must be at most 3, or a product of two such strides, on U55 and U65; got [5, 5]" in why
    assert check(convolution((1, 8, 40, 40), (8, 1, 3, 3), groups=8, stride=5), "ethos-u85-256").rejections == []
