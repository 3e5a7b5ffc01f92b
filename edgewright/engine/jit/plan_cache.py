"""The plan cache: a blob that was compiled before is neither parsed nor planned again.

The key digests everything a plan depends on: the blob's bytes, the CPU and its features, thread count, numerics, memory
limit, the tuned parameters, and a fingerprint of LLVM and of the sources of the engine and of the numerics. Named data
that the blob looks up is only known after parsing it, so its names and digest are stored in the entry and compared on
load. An entry is a JSON header, the linked image and the packed weights, which are used in place from the mapped file.
It lives in the user's own cache folder (``cache.py``), never in a model file; any deviation from what this engine
writes is a miss.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from edgewright.engine.graph.memory import release_pages
from edgewright.engine.isa import ISA
from edgewright.engine.jit.build import FINGERPRINT
from edgewright.engine.jit.cache import HEADER, cache_key, default_cache
from edgewright.engine.jit.driver import CompiledGraph
from edgewright.engine.jit.elf import CodegenError, CodeImage
from edgewright.engine.jit.weight_store import WeightStore
from edgewright.engine.plan import ALIGN, SLACK, Address, BoundsCheck, KernelArg, Plan, Step, TensorSpec
from edgewright.engine.tuning_params import tuned_fingerprint
from edgewright.ir.core.index_bounds import OutOfRangePolicy
from edgewright.ir.dtypes import dtype_name, parse_dtype
from edgewright.ir.numerics import Numerics

_BUFFERS = ("arena", "weights", "input", "output", "shared")
_MAX_WEIGHTS = 32 << 20  # bytes: larger plans would evict everything else
_LENGTH = 8  # bytes of the header's length field


@dataclass(frozen=True)
class PlanSource:
    """The inputs of a plan: a blob, and the named data it looks up.

    ``digest``: of the blob; ``data``: maps a name to its bytes, or None; ``used``: the names looked up while parsing.
    """

    digest: str
    data: Callable[[str], Any]
    used: Collection[str]

    def key(self, isa: ISA, threads: int, numerics: Numerics, memory: int) -> str:
        options = str((threads, numerics.name, source_fingerprint(_source_of(numerics)), memory, isa.bf16))
        return cache_key(
            "plan", self.digest, isa.cpu, isa.features, options, FINGERPRINT, tuned_fingerprint(isa, threads)
        )

    def data_digest(self, names: list[str]) -> str:
        """Digest the named data; empty if some of it is missing."""
        contents = [self.data(name) for name in names]
        if any(f is None for f in contents):
            return ""
        views = [memoryview(f).cast("B") for f in contents]
        digest = cache_key(*names, *views)
        for view in views:
            if view.nbytes:
                release_pages(np.frombuffer(view, np.uint8))  # may be the last use of these pages
        return digest


@cache
def source_fingerprint(*folders: str) -> str:
    """Fingerprint sources by size and modification time: folders of this package, or absolute paths."""
    files = []
    for start in (Path(__file__).parents[2] / folder for folder in folders):
        for path in start.rglob("*.py") if start.is_dir() else [start] * start.is_file():
            status = os.stat(path)
            files.append(f"{path.name} {status.st_size} {status.st_mtime_ns}")
    return cache_key(*sorted(files))


def _source_of(numerics: Numerics) -> str:
    """The file that defines rounding rules: it may be a backend's."""
    return sys.modules[type(numerics).__module__].__file__ or ""


def load_compiled(origin: PlanSource, key: str, isa: ISA, threads: int) -> CompiledGraph | None:
    """The compiled graph of a cached plan, or None if there is no usable one."""
    plan = load_plan(origin, key, isa)
    try:
        return None if plan is None else CompiledGraph(plan, threads)
    except (CodegenError, KeyError):  # refers to something the entry does not contain
        return None


def load_plan(origin: PlanSource, key: str, isa: ISA) -> Plan | None:
    """The plan stored under ``key``, if its named data is unchanged."""

    def unchanged(header: Mapping[str, Any]) -> bool:
        return bool(header["data"] == origin.data_digest(header["names"]))

    entry = read_entry(key, isa, unchanged)
    return None if entry is None else entry[0]


def read_entry(
    key: str, isa: ISA, accepts: Callable[[Mapping[str, Any]], bool], store: WeightStore | None = None
) -> tuple[Plan, Mapping[str, Any]] | None:
    """The plan stored under ``key``, and the header of its entry, if ``accepts(header)``. ``store``: has the weights
    that plans share."""
    payload = default_cache().view(key)
    if payload is None:
        return None
    try:
        start = _LENGTH + int.from_bytes(payload[:_LENGTH], "little")
        header = json.loads(bytes(payload[_LENGTH:start]))
        if not accepts(header):
            return None
        code = bytes(payload[start : start + _check_type(header["code"], int)])
        start, size = _align_payload(start + len(code)), _check_type(header["weights"], int)
        weights = np.frombuffer(payload, np.uint8)[start : start + size]
        symbols = {name: _check_type(at, int) for name, at in header["symbols"].items()}
        if weights.nbytes != size or any(at >= len(code) for at in symbols.values()):
            return None
        shared = [] if store is None else [store.at([_check_type(n, int) for n in p]) for p in header["shared"]]
        return replace(_plan(header, CodeImage(code, symbols), weights, isa), shared=shared), header
    except (ValueError, LookupError, TypeError):
        return None


def save_compiled(graph: CompiledGraph, origin: PlanSource, key: str) -> None:
    """Store a plan and its image, unless it has Python steps or very large weights."""
    names = sorted(origin.used)
    write_entry(key, graph, lambda: {"names": names, "data": origin.data_digest(names)})


def write_entry(key: str, graph: CompiledGraph, facts: Callable[[], Mapping[str, Any]]) -> bool:
    """Store a plan and its image with ``facts`` in the header; False if it has Python steps or very large weights."""
    plan, image = graph.plan, graph.image
    if plan.weights.nbytes > _MAX_WEIGHTS or any(step.python is not None for step in plan.steps):
        return False
    header = {
        **facts(),
        "sizes": [plan.arena_size, plan.scratch_size],
        "edges": [[[t.name, dtype_name(t.dtype), t.shape] for t in tensors] for tensors in (plan.inputs, plan.outputs)],
        "steps": [_encode_step(step) for step in plan.steps],
        "updates": plan.updates,
        "checks": [[c.outside.subject, c.outside.wrap, c.size] for c in plan.checks],
        "code": len(image.code),
        "symbols": dict(image.symbols),
        "weights": plan.weights.nbytes,
    }
    text = json.dumps(header).encode()
    prefix = b"".join((len(text).to_bytes(_LENGTH, "little"), text, image.code))
    prefix = prefix.ljust(_align_payload(len(prefix)), b"\0")
    default_cache().put(key, b"".join((prefix, plan.weights.tobytes(), bytes(SLACK))))
    return True


def _align_payload(start: int) -> int:
    """The next offset in an entry that is aligned in memory when the entry is mapped."""
    return -(-(start + HEADER) // ALIGN) * ALIGN - HEADER


def _encode_step(step: Step) -> list[Any]:
    args = [_encode_number(a) if not isinstance(a, Address) else [_BUFFERS.index(a.buffer), int(a.offset), a.index]
            for a in step.args]  # fmt: skip
    counts = (int(n) for n in (step.units, step.grain, step.macs, step.bytes))
    return [step.kernel, args, *counts, step.barrier, step.label, step.layer]


def _encode_number(slot: Any) -> int | float:
    return float(slot) if isinstance(slot, float | np.floating) else int(slot)


def _plan(header: Mapping[str, Any], image: CodeImage, weights: Any, isa: ISA) -> Plan:
    arena, scratch = (_check_type(n, int) for n in header["sizes"])
    inputs, outputs = (tuple(_tensor(t) for t in edge) for edge in header["edges"])
    steps = tuple(_step(step) for step in header["steps"])
    updates = tuple(_update(pair, inputs, outputs) for pair in header["updates"])
    return Plan(
        steps=steps,
        kernels={},
        image=image,
        weights=weights,
        arena_size=arena,
        scratch_size=scratch,
        inputs=inputs,
        outputs=outputs,
        cpu=isa.cpu,
        features=isa.features,
        updates=updates,
        checks=tuple(_check(check) for check in header["checks"]),
    )


def _check(encoded: Any) -> BoundsCheck:
    subject, wrap, size = encoded
    return BoundsCheck(OutOfRangePolicy(_check_type(subject, str), _check_type(wrap, bool)), _check_type(size, int))


def _update(encoded: Any, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> tuple[int, int]:
    output, source = (_check_type(n, int) for n in encoded)
    if (inputs[source].dtype, inputs[source].shape) != (outputs[output].dtype, outputs[output].shape):
        raise ValueError(f"not alike: {encoded!r}")
    return output, source


def _tensor(encoded: Any) -> TensorSpec:
    name, dtype, shape = encoded
    return TensorSpec(
        _check_type(name, str), parse_dtype(_check_type(dtype, str)), tuple(_check_type(n, int) for n in shape)
    )


def _step(encoded: Any) -> Step:
    kernel, args, *counts, barrier, label, layer = encoded
    units, grain, macs, bytes_touched = (_check_type(n, int) for n in counts)
    names = (_check_type(kernel, str), _check_type(label, str), _check_type(layer, str))
    slots = tuple(_slot(a) for a in args)
    return Step(names[0], slots, units, grain, _check_type(barrier, bool), *names[1:], macs, bytes_touched)


def _slot(encoded: Any) -> KernelArg:
    if type(encoded) is list:
        buffer, offset, index = encoded
        if not (type(buffer) is type(offset) is type(index) is int and min(encoded) >= 0):
            raise ValueError(f"not an address: {encoded!r}")
        return Address(_BUFFERS[buffer], offset, index)
    if type(encoded) not in (int, float):
        raise ValueError(f"not a number: {encoded!r}")
    number: int | float = encoded
    return number


def _check_type(value: Any, kind: Any) -> Any:
    if type(value) is not kind or (type(value) is int and value < 0):
        raise ValueError(f"not {kind.__name__}: {value!r}")
    return value
