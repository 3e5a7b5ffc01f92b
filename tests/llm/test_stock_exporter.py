"""A language model that ExecuTorch's own exporter wrote, with int8 keys and values, here and in its runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from edgewright.runtime import Runtime
from edgewright.runtime.specialized_step import SpecializedSegmentStep
from tests.support.stock import stock

PROGRAM = Path(__file__).parents[1] / "golden" / "llama_int8_cache_xnnpack.pte"


def test_an_exported_file_says_what_it_says_in_the_stock_runtime() -> None:
    program, tokens = PROGRAM.read_bytes(), np.random.default_rng(0).integers(0, 64, (1, 44))
    starts = [0, 12, *range(20, 44)]
    calls: list[list[Any]] = [[tokens[:, a:b], np.array([a])] for a, b in zip(starts, [*starts[1:], 44], strict=True)]
    theirs = np.concatenate([outputs[0] for outputs in stock().run_many(program, "forward", calls)])
    method = Runtime.get().load_program(program).load_method("forward")
    ours = np.concatenate([method.execute(call)[0] for call in calls])
    assert np.linalg.norm(ours - theirs) < 1e-3 * np.linalg.norm(theirs)
    assert ours.argmax(1).tolist() == theirs.argmax(1).tolist()
    assert method._specializer is not None
    for chains in method._specializer._by_shapes.values():
        segments = [step for step in chains[0] if isinstance(step, SpecializedSegmentStep)]
        assert sum(step.length for step in segments) > 0.9 * len(chains[0])
        assert all(step.python is None for segment in segments for step in segment.compiled.plan.steps)
