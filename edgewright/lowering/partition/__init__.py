"""Partitioning of a graph among backends: exclusions, groups and reports."""

from __future__ import annotations

from edgewright._lazy import lazy_names

_NAMES = {
    "DontPartition": "edgewright.lowering.partition.exclude",
    "DontPartitionModule": "edgewright.lowering.partition.exclude",
    "DontPartitionName": "edgewright.lowering.partition.exclude",
    "PartitionReport": "edgewright.lowering.partition.report",
    "Partitioner": "edgewright.lowering.partition.partitioner",
    "Verdict": "edgewright.lowering.partition.report",
    "partitioner_of": "edgewright.lowering.partition.partitioner",
}
__all__ = [*_NAMES]

__getattr__, __dir__ = lazy_names(__name__, _NAMES)
