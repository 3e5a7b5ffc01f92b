"""Plans kept on disk with the objects they need: a file that was compiled before is neither read nor planned again.

A plan is addressed by a digest of the bytes it was made from, of this engine and of all it was told. It holds numbers,
objects and packed weights, in the user's own folder, like every object (``cache.py``); what is not exactly what this
engine writes is made again. Nothing of it ever comes from a model file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from edgewright.engine.graph.constant_buffer import release_pages
from edgewright.engine.isa import ISA
from edgewright.engine.jit.build import FINGERPRINT
from edgewright.engine.jit.cache import HEADER, cache_key, default_cache
from edgewright.engine.jit.driver import CompiledGraph
from edgewright.engine.jit.elf import CodegenError, CodeImage
from edgewright.engine.plan import ALIGN, SLACK, Address, BoundsCheck, KernelArg, Plan, Step, TensorSpec
from edgewright.engine.tuning_params import tuned_fingerprint
from edgewright.ir.core.index_bounds import OutOfRangePolicy
from edgewright.ir.dtypes import dtype_name, parse_dtype

_BUFFERS = ("arena", "weights", "input", "output")
_MOST = 32 << 20  # bytes of packed weights: more would push everything else out of the cache
_LENGTH = 8  # bytes that hold the length of the numbers


@dataclass(frozen=True)
class PlanSource:
    """What a plan is made from: a blob, and the data it looks up by name.

    ``digest`` is of the blob; ``data`` gives the bytes of a name, or None; ``used`` are the names that were looked up
    when the blob was read.
    """

    digest: str
    data: Callable[[str], Any]
    used: Collection[str]

    def key(self, isa: ISA, threads: int, numerics: str, memory: int) -> str:
        told = str((threads, numerics, memory, isa.bf16))
        return cache_key("plan", self.digest, isa.cpu, isa.features, told, FINGERPRINT, tuned_fingerprint(isa, threads))

    def data_digest(self, names: list[str]) -> str:
        """Of everything the blob looks up; empty if some of it is missing."""
        found = [self.data(name) for name in names]
        if any(f is None for f in found):
            return ""
        views = [memoryview(f).cast("B") for f in found]
        made = cache_key(*names, *views)
        for view in views:
            if view.nbytes:
                release_pages(np.frombuffer(view, np.uint8))  # a file's pages: nobody may need them again
        return made


@cache
def source_fingerprint(*folders: str) -> str:
    """The code in some of the package's folders, as far as it can be seen: plans are made of it beside the engine's."""
    seen = []
    for start in folders:
        for folder, _, names in os.walk(Path(__file__).parents[2] / start):
            for path in (os.path.join(folder, name) for name in names if name.endswith(".py")):
                status = os.stat(path)
                seen.append(f"{os.path.basename(path)} {status.st_size} {status.st_mtime_ns}")
    return cache_key(*sorted(seen))


def load_compiled(origin: PlanSource, key: str, isa: ISA, threads: int) -> CompiledGraph | None:
    """The compiled graph of a stored plan, or None if there is none that can be used."""
    plan = load_plan(origin, key, isa)
    try:
        return None if plan is None else CompiledGraph(plan, threads)
    except (CodegenError, KeyError):  # it names what is not in it
        return None


def load_plan(origin: PlanSource, key: str, isa: ISA) -> Plan | None:
    """The plan stored under ``key``, if it was made from the same data."""
    payload = default_cache().view(key)
    if payload is None:
        return None
    try:
        start = _LENGTH + int.from_bytes(payload[:_LENGTH], "little")
        facts = json.loads(bytes(payload[_LENGTH:start]))
        if facts["data"] != origin.data_digest(facts["names"]):
            return None
        code = bytes(payload[start : start + _checked(facts["code"], int)])
        start, size = _aligned(start + len(code)), _checked(facts["weights"], int)
        weights = np.frombuffer(payload, np.uint8)[start : start + size]
        symbols = {name: _checked(at, int) for name, at in facts["symbols"].items()}
        whole = weights.nbytes == size and all(at < len(code) for at in symbols.values())
        return _plan(facts, CodeImage(code, symbols), weights, isa) if whole else None
    except (ValueError, LookupError, TypeError):
        return None


def save_compiled(graph: CompiledGraph, origin: PlanSource, key: str) -> None:
    """Store a plan and its code; those with steps in Python, and very large ones, are not."""
    plan, image = graph.plan, graph.image
    if plan.weights.nbytes > _MOST or any(step.python is not None for step in plan.steps):
        return
    names = sorted(origin.used)
    facts = {
        "names": names,
        "data": origin.data_digest(names),
        "sizes": [plan.arena_size, plan.scratch_size],
        "edges": [[[t.name, dtype_name(t.dtype), t.shape] for t in tensors] for tensors in (plan.inputs, plan.outputs)],
        "steps": [_numbers(step) for step in plan.steps],
        "updates": plan.updates,
        "checks": [[c.outside.subject, c.outside.wrap, c.size] for c in plan.checks],
        "code": len(image.code),
        "symbols": dict(image.symbols),
        "weights": plan.weights.nbytes,
    }
    text = json.dumps(facts).encode()
    front = b"".join((len(text).to_bytes(_LENGTH, "little"), text, image.code))
    front = front.ljust(_aligned(len(front)), b"\0")
    default_cache().put(key, b"".join((front, plan.weights.tobytes(), bytes(SLACK))))


def _aligned(start: int) -> int:
    """The next place in an entry where weights may lie to be used where they were read to."""
    return -(-(start + HEADER) // ALIGN) * ALIGN - HEADER


def _numbers(step: Step) -> list[Any]:
    args = [_number(a) if not isinstance(a, Address) else [_BUFFERS.index(a.buffer), int(a.offset), a.index]
            for a in step.args]  # fmt: skip
    counts = (int(n) for n in (step.units, step.grain, step.macs, step.bytes))
    return [step.kernel, args, *counts, step.barrier, step.label]


def _number(slot: Any) -> int | float:
    return float(slot) if isinstance(slot, float | np.floating) else int(slot)


def _plan(facts: Mapping[str, Any], image: CodeImage, weights: Any, isa: ISA) -> Plan:
    arena, scratch = (_checked(n, int) for n in facts["sizes"])
    inputs, outputs = (tuple(_tensor(t) for t in edge) for edge in facts["edges"])
    steps = tuple(_step(step) for step in facts["steps"])
    updates = tuple(_update(pair, inputs, outputs) for pair in facts["updates"])
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
        checks=tuple(_check(check) for check in facts["checks"]),
    )


def _check(stored: Any) -> BoundsCheck:
    subject, wrap, size = stored
    return BoundsCheck(OutOfRangePolicy(_checked(subject, str), _checked(wrap, bool)), _checked(size, int))


def _update(stored: Any, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> tuple[int, int]:
    output, given = (_checked(n, int) for n in stored)
    if (inputs[given].dtype, inputs[given].shape) != (outputs[output].dtype, outputs[output].shape):
        raise ValueError(f"not alike: {stored!r}")
    return output, given


def _tensor(stored: Any) -> TensorSpec:
    name, dtype, shape = stored
    return TensorSpec(_checked(name, str), parse_dtype(_checked(dtype, str)), tuple(_checked(n, int) for n in shape))


def _step(stored: Any) -> Step:
    kernel, args, *counts, barrier, label = stored
    units, grain, macs, touched = (_checked(n, int) for n in counts)
    names = (_checked(kernel, str), _checked(label, str))
    slots = tuple(_slot(a) for a in args)
    return Step(names[0], slots, units, grain, _checked(barrier, bool), names[1], macs, touched)


def _slot(stored: Any) -> KernelArg:
    if isinstance(stored, list):
        buffer, offset, index = (_checked(n, int) for n in stored)
        return Address(_BUFFERS[buffer], offset, index)
    if type(stored) not in (int, float):
        raise ValueError(f"not a number: {stored!r}")
    number: int | float = stored
    return number


def _checked(value: Any, kind: Any) -> Any:
    if type(value) is not kind or (type(value) is int and value < 0):
        raise ValueError(f"not {kind.__name__}: {value!r}")
    return value
