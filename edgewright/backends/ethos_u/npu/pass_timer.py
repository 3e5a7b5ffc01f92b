"""Times of a stream for profiles, by layer of the user's model: an operation of Vela is one or more passes, each of
which the engine may compile to several steps."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby

from edgewright.backends.ethos_u.npu.stream import CommandStream, Instruction
from edgewright.engine.profile import Profile, StepTime
from edgewright.ir.graph import Origin
from edgewright.ir.layer_names import layer_of

_INTERPRETED = " (interpreted)"


class PassTimer:
    """Adds the times of one run to ``profile``; times nothing if it is None."""

    def __init__(self, profile: Profile | None, stream: CommandStream) -> None:
        self._profile, self._stream = profile, stream
        passes = [i for i in stream.instructions if i.is_pass] if profile is not None and stream.origins else []
        groups = groupby(passes, key=self._layer)
        self._groups = [(layer, Counter(_verb(i) for i in group)) for layer, group in groups]
        self._at = 0  # of the group that runs next
        self._steps: list[StepTime] = []

    def _layer(self, instruction: Instruction) -> str:
        return layer_of(self._stream.origins.get(instruction.offset, Origin()))

    @contextmanager
    def time(self, instruction: Instruction) -> Iterator[None]:
        """Time an interpreted pass."""
        start = time.perf_counter_ns()
        yield
        if self._profile is not None:
            end, name = time.perf_counter_ns(), f"{_verb(instruction)}{_INTERPRETED}"
            self._steps.append(StepTime(0, 0, name, start, end, layer=self._layer(instruction)))

    def run(self, run: Callable[[Profile | None], object]) -> None:
        """Run compiled passes."""
        inner = None if self._profile is None else Profile()
        run(inner)
        self._steps += [] if inner is None else inner.parts

    def finish(self) -> None:
        """Add the run to the profile; the steps of one layer are one step of it."""
        if self._profile is None or not self._steps:
            return
        steps = self._steps
        if self._groups:
            steps = [self._join(layer, list(group)) for layer, group in groupby(steps, key=lambda s: s.layer)]
        self._profile.add_graph_run(self._steps[0].start, self._steps[-1].end, steps)

    def _join(self, layer: str, steps: Sequence[StepTime]) -> StepTime:
        macs, touched = sum(s.macs for s in steps), sum(s.bytes for s in steps)
        name = self._describe(layer) or "+".join(dict.fromkeys(s.name.removesuffix(_INTERPRETED) for s in steps))
        name += _INTERPRETED if any(s.name.endswith(_INTERPRETED) for s in steps) else ""
        return StepTime(0, 0, name, steps[0].start, steps[-1].end, macs=macs, bytes=touched, layer=layer)

    def _describe(self, layer: str) -> str:
        """The passes of the next group of this layer: ``2 dma, 2 conv``."""
        later = range(self._at, len(self._groups))
        found = next((at for at in later if self._groups[at][0] == layer), None)
        if found is None:
            return ""
        self._at = found + 1
        counts = self._groups[found][1]
        return ", ".join(verb if count == 1 else f"{count} {verb}" for verb, count in counts.items())


def _verb(instruction: Instruction) -> str:
    return instruction.command.name.lower().removesuffix("_start")
