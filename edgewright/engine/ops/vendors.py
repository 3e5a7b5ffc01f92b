"""Lowerings of vendors' operators that the engine has none of its own for."""

from __future__ import annotations

from edgewright.engine.ops.base import Lowering
from edgewright.engine.ops.folds import Folded
from edgewright.engine.ops.pairs import WholeMatMul
from edgewright.engine.ops.softmax8 import ByteSoftmax
from edgewright.engine.ops.wholes import WholeMap
from edgewright.engine.ops.words import WordDepthwise, WordProduct

VENDORS: list[type[Lowering]] = [WordProduct, WordDepthwise, WholeMap, Folded, ByteSoftmax, WholeMatMul]
