"""Runs on an AArch64 Python (under qemu): graphs and files through the engine and through the reference, as JSON.

    python -m tests.support.aarch64_check nodes ISA NUMBER OF     # every OFth node case, from NUMBER
    python -m tests.support.aarch64_check files FILE.pte ...

A line for each: what it was, what ran it, and the largest difference, relative to the largest result.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np


def difference(got: Sequence[Any], want: Sequence[Any]) -> float:
    worst = 0.0
    for a, b in zip(got, want, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        one, other = (np.nan_to_num(x.astype(np.float64)) for x in (a, b))
        scale = 1.0 if b.dtype.kind in "iub" else max(float(np.abs(other).max(initial=0)), 1e-6)
        worst = max(worst, float(np.abs(one - other).max(initial=0)) / scale)
    return worst


def nodes(cpu: str, first: int, of: int) -> None:
    from edgewright.backends.xnnpack.numerics import XNNPACK
    from edgewright.engine import compile
    from edgewright.ir.core.execute import Executor
    from tests.backends.node_cases import EXACT, FLOAT, ROWS

    groups = {"real": FLOAT, "bytes": EXACT, "rows": ROWS}
    cases = [(kind, name, make) for kind, group in groups.items() for name, make in group.items()]
    for kind, name, make in cases[first::of]:
        graph, given = make()
        made = compile(graph, 2, cpu=cpu)
        steps = [step.label for step in made.plan.steps if step.python is not None]
        far = difference(made.run(given), Executor(graph, XNNPACK).run(given))
        print(json.dumps({"case": f"{kind} {name}", "isa": cpu, "in_numpy": steps, "difference": far}))


def files(paths: Sequence[str]) -> None:
    from edgewright.engine.profile import Profile
    from edgewright.runtime.example_inputs import ones
    from edgewright.runtime.program import Runtime

    for path in paths:
        results = []
        profile = Profile()
        for engine in ("native", "reference"):
            os.environ["EDGEWRIGHT_ENGINE"] = engine
            method = Runtime.get().load_program(path).load_method("forward")
            inputs = [np.linspace(-1, 1, x.size, dtype=x.dtype).reshape(x.shape) for x in ones(method.metadata)]
            results.append(method.execute(inputs, profile=profile if engine == "native" else None))
        told = {"case": os.path.basename(path), "isa": os.environ.get("EDGEWRIGHT_CPU", "")}
        print(json.dumps({**told, "difference": difference(*results)}))


if __name__ == "__main__":
    what, *rest = sys.argv[1:]
    if what == "nodes":
        nodes(rest[0], int(rest[1]), int(rest[2]))
    else:
        files(rest)
