"""The manifest: what a file is, who made it and for what, in at most 4 KiB of JSON inside the file."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from edgewright._version import VERSION
from edgewright.pte import schema

KEY = "edgewright.manifest"
MAX_BYTES = 4096


def build(program: schema.Program, targets: list[str], runtime: str) -> bytes:
    """The manifest of a program: the same program always gives the same bytes."""
    import torch

    methods = {plan.name: _method(plan) for plan in program.execution_plan}
    content: dict[str, Any] = {
        "edgewright": VERSION,
        "torch": torch.__version__,
        "schema": program.version,
        "targets": targets,
        "runtime": runtime,
        "constants": _hash(program),
        "methods": methods,
        "operators": sorted({o.key for plan in program.execution_plan for o in plan.operators or ()}),
    }
    return _fit(content)


def _method(plan: schema.ExecutionPlan) -> dict[str, Any]:
    return {
        "instructions": sum(len(chain.instructions) for chain in plan.chains),
        "arena": sum(plan.non_const_buffer_sizes),
        "delegates": sorted(delegate.id for delegate in plan.delegates),
    }


def _hash(program: schema.Program) -> dict[str, Any]:
    digest = hashlib.sha256()
    size = 0
    for segment in (program.segments or [])[:1]:
        data: Any = segment.data
        for chunk in data if not isinstance(data, bytes | bytearray | memoryview) else (data,):
            digest.update(chunk)
            size += len(chunk)
    return {"bytes": size, "sha256": digest.hexdigest()}


def _fit(content: dict[str, Any]) -> bytes:
    """As JSON; what a large program has too much of is counted instead of listed."""
    for field in ("", "operators", "methods"):
        if field:
            content[field] = len(content[field])
        text = json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
        if len(text) <= MAX_BYTES:
            return text
    raise AssertionError("a manifest of counts fits")


def read(program: schema.Program) -> dict[str, Any] | None:
    """The manifest of a file we made, or None."""
    for item in program.named_data or ():
        if item.key == KEY:
            try:
                found = json.loads(bytes(program.segment(item.segment_index)))
            except ValueError:
                return None
            return found if isinstance(found, dict) else None
    return None
