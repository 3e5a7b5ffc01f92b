"""The dialects that graphs are drawn in."""

from __future__ import annotations

from tests.compose import generate as core
from tests.compose.spec import Spec

GENERATE = {"core": core.generate}


def generate(dialect: str, seed: int) -> Spec:
    return GENERATE[dialect](seed)
