"""Language models that ExecuTorch's own exporter wrote, here and in its runtime: with int8 keys and values, and with a
sliding window over a ring buffer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgewright.runtime import Runtime
from edgewright.runtime.specialized_step import SpecializedSegmentStep
from tests.support.stock import stock

GOLDEN = Path(__file__).parents[1] / "golden"
# How much of a method is machine code, and how far its logits may be from the stock runtime's.
CASES = {"int8_cache": (0.9, 1e-3), "ring_cache": (0.85, 1e-5)}


@pytest.mark.parametrize("name", CASES)
def test_an_exported_file_says_what_it_says_in_the_stock_runtime(name: str) -> None:
    share, tolerance = CASES[name]
    path = GOLDEN / f"llama_{name}_xnnpack.pte"
    program, tokens = path.read_bytes(), np.random.default_rng(0).integers(0, 64, (1, 44))
    starts = [0, 12, *range(20, 44)]
    calls: list[list[Any]] = [[tokens[:, a:b], np.array([a])] for a, b in zip(starts, [*starts[1:], 44], strict=True)]
    theirs = np.concatenate([outputs[0] for outputs in stock().run_many(program, "forward", calls)])
    method = Runtime.get().load_program(program).load_method("forward")
    ours = np.concatenate([method.execute(call)[0] for call in calls])
    assert np.linalg.norm(ours - theirs) < tolerance * np.linalg.norm(theirs)
    assert ours.argmax(1).tolist() == theirs.argmax(1).tolist()
    assert method._specializer is not None
    for chains in method._specializer._by_shapes.values():
        segments = [step for step in chains[0] if isinstance(step, SpecializedSegmentStep)]
        assert sum(step.length for step in segments) > share * len(chains[0])
        assert all(step.python is None for segment in segments for step in segment.compiled.plan.steps)
