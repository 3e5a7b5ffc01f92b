"""What runs where: exclusions, groups and reports."""

from __future__ import annotations

from edgewright._lazy import lazy_names

_NAMES = {
    "DontPartition": "edgewright.partition.exclude",
    "DontPartitionModule": "edgewright.partition.exclude",
    "DontPartitionName": "edgewright.partition.exclude",
    "PartitionReport": "edgewright.partition.report",
    "Partitioner": "edgewright.partition.partitioner",
    "Verdict": "edgewright.partition.report",
    "partitioner_of": "edgewright.partition.partitioner",
}
__all__ = [*_NAMES]

__getattr__, __dir__ = lazy_names(__name__, _NAMES)
