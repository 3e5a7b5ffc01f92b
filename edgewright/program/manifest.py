"""The manifest: a description of a program's build and targets, at most 4 KiB of JSON inside the file."""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from edgewright._version import VERSION
from edgewright.backends.targets import device_of
from edgewright.formats import schema

KEY = "edgewright.manifest"
MAX_BYTES = 4096

# Lists that are replaced with counts, in this order, until the manifest of a large program fits.
_SHRINKABLE = ("estimates", "operators", "methods", "delegates", "quantized_io", "targets", "runtime")


def build(
    program: schema.Program, targets: Sequence[str], runtime: str, estimates: Sequence[Mapping[str, Any]] = (),
    versions: Mapping[str, str] | None = None, quantized_io: Mapping[str, Mapping[str, Any]] | None = None,
) -> bytes:  # fmt: skip
    """The manifest of a program; deterministic. ``versions``: of the packages that exported the model.
    ``quantized_io``: type, scale and zero point of integer inputs and outputs, by name (``input0``, ``output0``)."""
    content: dict[str, Any] = {
        "edgewright": VERSION,
        **(versions or {}),
        "schema": program.version,
        "targets": list(targets),
        "runtime": runtime,
        "methods": {plan.name: _method(plan) for plan in program.execution_plan},
        "operators": sorted({o.key for plan in program.execution_plan for o in plan.operators or ()}),
        "delegates": _delegates(program),
        "segments": [_digest(segment.data) for segment in (program.segments or ())[:8]],
    }
    if quantized_io:
        content["quantized_io"] = {name: dict(parameters) for name, parameters in quantized_io.items()}
    if estimates:
        content["estimates"] = [{key: e[key] for key in e if key != "layers"} for e in estimates[:8]]
    return _shrink_to_limit(content)


def targets_of(program: schema.Program) -> list[str]:
    """The targets of a program: the devices of its delegates, and ``portable`` for portable kernels."""
    targets = {device_of(delegate) for plan in program.execution_plan for delegate in plan.delegates}
    if any(plan.operators or not plan.delegates for plan in program.execution_plan):
        targets.add("portable")
    return sorted(targets)


def _method(plan: schema.ExecutionPlan) -> dict[str, Any]:
    return {
        "instructions": sum(len(chain.instructions) for chain in plan.chains),
        "arena": sum(plan.non_const_buffer_sizes),
        "delegates": len(plan.delegates),
    }


def _delegates(program: schema.Program) -> dict[str, Any]:
    """Calls and blob bytes by backend."""
    entries = [delegate for plan in program.execution_plan for delegate in plan.delegates]
    calls = Counter(delegate.id for delegate in entries)
    blobs = {(d.id, d.processed.location, d.processed.index): len(program.blob(d)) for d in entries}
    return {
        backend: {"calls": calls[backend], "bytes": sum(size for key, size in blobs.items() if key[0] == backend)}
        for backend in sorted(calls)
    }


def _digest(data: Any) -> dict[str, Any]:
    """Size and hash of a segment, which may be in pieces."""
    digest = hashlib.sha256()
    for piece in (data,) if isinstance(data, bytes | bytearray | memoryview) else data:
        digest.update(piece)
    return {"bytes": len(data), "sha256": digest.hexdigest()}


def _shrink_to_limit(content: dict[str, Any]) -> bytes:
    text = _json(content)
    for name in _SHRINKABLE:
        if len(text) <= MAX_BYTES:
            break
        if name in content:
            content[name] = len(content[name])
        text = _json(content)
    assert len(text) <= MAX_BYTES, "a manifest of counts fits"
    return text


def _json(content: dict[str, Any]) -> bytes:
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()


def read(program: schema.Program) -> dict[str, Any] | None:
    """The manifest of a file, or None if it has no readable one. The content is not verified."""
    for item in program.named_data or ():
        if item.key == KEY:
            return parse(program.segment(item.segment_index))
    return None


def parse(data: Any) -> dict[str, Any] | None:
    """A manifest's content, or None unless it is a JSON object within the size limit."""
    if len(data) > MAX_BYTES:
        return None
    try:
        content = json.loads(bytes(data), parse_constant=_number, parse_float=_number, parse_int=_integer)
    except (ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def _number(text: str) -> float:
    """JSON has no infinity or NaN, so neither may be accepted."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number


def _integer(text: str) -> int:
    if len(text) > 20:
        raise ValueError("more than 64 bits")
    return int(text)
