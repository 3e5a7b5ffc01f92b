"""Runs a stream on memory regions: interpreted the first time, compiled from the trace of that run afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from edgewright.backends.ethos_u.npu.compiled_stream import CompiledStream
from edgewright.backends.ethos_u.npu.memory import Budget, NpuMemory
from edgewright.backends.ethos_u.npu.pass_timer import PassTimer
from edgewright.backends.ethos_u.npu.simulator import Npu
from edgewright.backends.ethos_u.npu.stream import CommandStream
from edgewright.engine.jit.thread_count import thread_count
from edgewright.engine.profile import Profile
from edgewright.engine.runner import native_available
from edgewright.errors import InputError, MissingError

Array = np.ndarray[Any, Any]
STEPS = 1 << 38  # multiplications


def supported(accelerator: str) -> str | None:
    """Why streams for this NPU cannot run here, or None.

    >>> supported("ethos-u55-128")
    >>> supported("ethos-u85-256")
    'ethos-u85-256 is not simulated yet'
    """
    simulated = {f"ethos-u55-{macs}" for macs in (32, 64, 128, 256)} | {"ethos-u65-256"}
    return None if accelerator in simulated else f"{accelerator} is not simulated yet"


def run(
    program: CommandStream,
    *,
    weights: bytes,
    scratch: Array,
    fast_scratch: Array | None = None,
    regions: Mapping[int, Array] | None = None,
    steps: int = STEPS,
    threads: int | None = 1,
    profile: Profile | None = None,
) -> None:
    """Run a program in place on ``scratch``, which holds its inputs and receives its outputs.

    Regions 0, 1 and 2 are the constants, the scratch and the fast scratch; ``regions`` adds or replaces regions.
    ``threads``: thread count of the compiled replay; None chooses one. ``profile``: gets the times of the passes.
    """
    reason = supported(program.accelerator)
    if reason is not None:
        raise MissingError("command stream", f"cannot be run: {reason}")
    memories = {0: np.frombuffer(weights, np.uint8), 1: _bytes_of(scratch, "scratch")}
    if fast_scratch is not None:
        memories[2] = _bytes_of(fast_scratch, "fast_scratch")
    memories.update({region: _bytes_of(array, f"region {region}") for region, array in (regions or {}).items()})
    timer = PassTimer(profile, program)
    npu = Npu(program, NpuMemory(program.accelerator, memories), Budget(steps))
    if regions or not native_available():
        npu.run(timer)
        timer.finish()
        return
    compiled = program.cache.get("run")
    count = thread_count(threads)
    if not isinstance(compiled, CompiledStream) or not compiled.matches(weights, memories, count):
        compiled = program.cache["run"] = CompiledStream(program, weights, memories, count)
    replay = compiled.replay(memories)
    if replay is None:
        compiled.trace = npu.run(timer)
    else:
        npu.replay(replay, timer)
    timer.finish()


def _bytes_of(memory: Any, name: str) -> Array:
    array = memory if isinstance(memory, np.ndarray) else np.frombuffer(memory, np.uint8)
    if not array.flags.c_contiguous:
        raise InputError(name, "must be contiguous")
    return array.reshape(-1).view(np.uint8)
