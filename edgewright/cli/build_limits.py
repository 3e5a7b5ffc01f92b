"""Limits that fail a build: the memory a program needs."""

from __future__ import annotations

from edgewright.errors import LimitError
from edgewright.units import size


def memory_error(subject: str, planned: int, npu: int, limit: int | None) -> LimitError | None:
    """The error of a program that needs more memory than the limit: planned memory and the NPU's."""
    if limit is None or planned + npu <= limit:
        return None
    remedy = "Nothing was written. Raise --max-memory, or reduce the model's largest activations."
    rule = f"must need at most {size(limit)} ({limit} bytes) of memory"
    parts = f": {size(planned)} planned and {size(npu)} of the NPU's" if npu else ""
    return LimitError(subject, rule, value=f"{size(planned + npu)} ({planned + npu} bytes){parts}", remedy=remedy)
