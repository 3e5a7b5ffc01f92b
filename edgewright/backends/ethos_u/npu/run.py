"""A stream run on memories: by the simulator the first time, and from then on as what was compiled of that run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from edgewright.backends.ethos_u.npu.compiled_stream import Kept
from edgewright.backends.ethos_u.npu.memory import Budget, Memory
from edgewright.backends.ethos_u.npu.simulator import Npu
from edgewright.backends.ethos_u.npu.stream import Program
from edgewright.engine.jit.thread_count import thread_count
from edgewright.engine.runner import native_available
from edgewright.errors import InputError, MissingError

Array = np.ndarray[Any, Any]
STEPS = 1 << 38  # multiplications


def supported(accelerator: str) -> str | None:
    """Why an NPU's stream cannot be run here, or None.

    >>> supported("ethos-u55-128")
    >>> supported("ethos-u85-256")
    'ethos-u85-256 is not simulated yet'
    """
    simulated = {f"ethos-u55-{macs}" for macs in (32, 64, 128, 256)} | {"ethos-u65-256"}
    return None if accelerator in simulated else f"{accelerator} is not simulated yet"


def run(
    program: Program,
    *,
    weights: bytes,
    scratch: Array,
    fast_scratch: Array | None = None,
    regions: Mapping[int, Array] | None = None,
    steps: int = STEPS,
    threads: int | None = 1,
) -> None:
    """Run a program in place on ``scratch``, which holds its inputs and will hold its outputs.

    Regions 0, 1 and 2 are the constants, the scratch and the fast scratch; ``regions`` adds others or replaces them.
    ``threads``: of what was compiled, None for as many as are useful.
    """
    reason = supported(program.accelerator)
    if reason is not None:
        raise MissingError("command stream", f"cannot be run: {reason}")
    memories = {0: np.frombuffer(weights, np.uint8), 1: _bytes_of(scratch, "scratch")}
    if fast_scratch is not None:
        memories[2] = _bytes_of(fast_scratch, "fast_scratch")
    memories.update({region: _bytes_of(array, f"region {region}") for region, array in (regions or {}).items()})
    machine = Npu(program, Memory(program.accelerator, memories), Budget(steps))
    if regions or not native_available():
        machine.run()
        return
    kept = program.kept.get("run")
    count = thread_count(threads)
    if not isinstance(kept, Kept) or not kept.fits(weights, memories, count):
        kept = program.kept["run"] = Kept(program.digest, weights, memories, count)
    replay = kept.replay(memories)
    if replay is None:
        kept.record = machine.run()
    else:
        machine.repeat(replay)


def _bytes_of(memory: Any, name: str) -> Array:
    array = memory if isinstance(memory, np.ndarray) else np.frombuffer(memory, np.uint8)
    if not array.flags.c_contiguous:
        raise InputError(name, "must be contiguous")
    return array.reshape(-1).view(np.uint8)
