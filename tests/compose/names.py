"""Kernels are cached by their names, whatever graph they come from: one name, one text, across all dialects."""

from __future__ import annotations

from edgewright.engine.compiler import make_plan
from edgewright.errors import EdgewrightError
from tests.compose.builder import build
from tests.compose.dialects import DIALECTS, generate


class Names:
    """Texts by name, as far as graphs have been seen."""

    def __init__(self) -> None:
        self._texts: dict[str, tuple[int, str]] = {}

    def add(self, dialect: str, seed: int, cpu: str) -> list[str]:
        """Names of a graph's kernels that another graph has for other texts."""
        spec = generate(dialect, seed)
        if not spec.outputs:
            return []
        graph = build(spec, DIALECTS[dialect].builder()).graph
        try:
            plan = make_plan(graph, threads=1, numerics=DIALECTS[dialect].numerics, cpu=cpu)
        except EdgewrightError:
            return []  # that it cannot be planned is another test's failure
        wrong = []
        for name, source in plan.kernels.items():
            text = hash(source if isinstance(source, str) else source())
            known, where = self._texts.setdefault(name, (text, f"{dialect} {seed}"))
            if known != text:
                wrong.append(f"{name}: {dialect} {seed} and {where}")
        return wrong
