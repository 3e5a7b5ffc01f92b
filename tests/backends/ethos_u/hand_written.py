"""Cases made by hand: convolutions and the like with parameters of our choosing."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.backends.ethos_u.rows import ports, scheme
from tests.ir.aten.harness import Sample
from tests.ir.aten.overload_calls import Call, named
from tests.support.quantized_calls import Case, Maker


def case(overload: str, *args: Any, bits: int = 8, **keyword: Any) -> Case:
    """A call of an ATen operator, quantized; shapes stand for random tensors of single precision."""
    random = np.random.default_rng(0)
    given = [_tensor(a, random) for a in args]
    call = Call(overload, named(overload, given, keyword), Sample(overload, args))
    row = call.row()
    assert row is not None
    made = Maker(call, scheme(bits), ports(row.name)).run()
    assert made is not None
    return made


def _tensor(given: Any, random: np.random.Generator) -> Any:
    if isinstance(given, tuple):
        return random.standard_normal(given).astype(np.float32)
    if isinstance(given, list) and given and isinstance(given[0], tuple):
        return [_tensor(g, random) for g in given]
    return given
