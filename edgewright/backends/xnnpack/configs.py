"""Operator configs for ``XnnpackPartitioner(configs=[...])``, derived from the rows: one class per name."""

from __future__ import annotations

from edgewright.backends.xnnpack.ops import BACKEND

CONFIGS = BACKEND.configs()
ALL_PARTITIONER_CONFIGS = list(CONFIGS.values())
