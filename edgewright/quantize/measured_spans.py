"""The ranges of a model's intermediate results, measured before observers are inserted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from edgewright.frontend.mutation import written_names


def measure_spans(
    module: fx.GraphModule, examples: Sequence[Sequence[Any]], points: set[Any]
) -> dict[Any, tuple[float, float]]:
    """The smallest and largest finite elements of ``points`` (nodes, and edges, which have their producer's) over calls
    with flattened inputs. The module's state is restored afterwards."""
    nodes = {point: point[0] if isinstance(point, tuple) else point for point in points}
    recorder = _Recorder(module, set(nodes.values()))
    if not recorder.watched:
        return {}
    written = written_names(module.graph.nodes)
    state = {name: buffer.clone() for name, buffer in module.named_buffers() if name in written}
    with torch.no_grad():
        for inputs in examples:
            copies = [x.clone() if isinstance(x, torch.Tensor) else x for x in inputs]
            recorder.run(*copies, enable_io_processing=False)
        for name, value in state.items():
            module.get_buffer(name).copy_(value)
    return {point: recorder.spans[node] for point, node in nodes.items() if node in recorder.spans}


class _Recorder(fx.Interpreter):
    def __init__(self, module: fx.GraphModule, watched: set[fx.Node]) -> None:
        super().__init__(module)
        self.watched = watched
        self.spans: dict[Any, tuple[float, float]] = {}

    def run_node(self, node: fx.Node) -> Any:
        result = super().run_node(node)
        if node in self.watched and isinstance(result, torch.Tensor):
            finite = result[result.isfinite()]
            if finite.numel():
                low, high = self.spans.get(node, (0.0, 0.0))
                self.spans[node] = min(low, float(finite.min())), max(high, float(finite.max()))
        return result
