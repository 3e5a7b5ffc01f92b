"""Arrays that a compiled graph is called with again and again: only those that changed are validated and passed again.

A method with a cache for each layer has a hundred and more inputs and outputs, nearly all of them the same arrays in
every call. Validating all of them takes longer than many a graph runs.
"""

from __future__ import annotations

from collections.abc import Sequence

from edgewright.engine.jit.driver import CompiledGraph, fits
from edgewright.engine.jit.threads import address_of
from edgewright.ir.graph import Array


class BoundArrays:
    """The arrays of the last call of a graph. They are kept alive: the caller owns them anyway."""

    def __init__(self, graph: CompiledGraph) -> None:
        self.graph = graph
        self.addresses: list[int] = []
        self._arrays: list[Array] = []
        self._specs = [*graph.plan.inputs, *graph.plan.outputs]
        self._sizes = [spec.nbytes for spec in self._specs]

    def run(self, inputs: Sequence[Array], outputs: Sequence[Array | None]) -> bool:
        """Run the graph. Returns False without running it if ``CompiledGraph.run`` has to copy an array, or report
        one."""
        graph, arrays, last = self.graph, [*inputs, *outputs], self._arrays
        changed = [i for i, array in enumerate(arrays) if array is not last[i]] if last else list(range(len(arrays)))
        if changed and not self._bind(arrays, changed, len(inputs)):
            self._arrays = []
            return False
        graph.run_bound(self, self.addresses, changed)
        return True

    def _bind(self, arrays: list[Array | None], changed: list[int], count: int) -> bool:
        specs, sizes = self._specs, self._sizes
        if not self.graph.native or len(arrays) != len(specs) or count != len(self.graph.plan.inputs):
            return False
        addresses = list(self.addresses) if self._arrays else [0] * len(arrays)
        bound = list(self._arrays) if self._arrays else []
        for i in changed:
            array = arrays[i]
            if array is None or not fits(array, specs[i]):
                return False
            flags = array.flags
            if not (flags.c_contiguous and flags.aligned and (flags.writeable or i < count)):
                return False
            addresses[i] = address_of(array)
            if bound:
                bound[i] = array
        if any(i >= count for i in changed):
            separate = self._separate(addresses, sizes, count)
        else:
            separate = all(self._apart_from_outputs(i, addresses, sizes, count) for i in changed)
        if separate:
            self.addresses, self._arrays = addresses, bound or [a for a in arrays if a is not None]
        return separate

    def _separate(self, addresses: list[int], sizes: list[int], count: int) -> bool:
        """Whether outputs overlap neither each other nor inputs, except for updates in place, and these are in
        place."""
        in_place = {source: count + output for output, source in self.graph.plan.updates}
        if any(addresses[source] != addresses[output] for source, output in in_place.items()):
            return False
        ranges = sorted(
            (addresses[i], addresses[i] + sizes[i], i >= count) for i in range(len(addresses)) if i not in in_place
        )
        end, output_end = 0, 0
        for start, stop, is_output in ranges:
            if start < (end if is_output else output_end):
                return False
            end = max(end, stop)
            output_end = max(output_end, stop) if is_output else output_end
        return True

    @staticmethod
    def _apart_from_outputs(index: int, addresses: list[int], sizes: list[int], count: int) -> bool:
        start = addresses[index]
        stop = start + sizes[index]
        return all(stop <= a or a + n <= start for a, n in zip(addresses[count:], sizes[count:], strict=True))
