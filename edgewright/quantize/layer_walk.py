"""A walk through a calibrated model, layer by layer, of the exact values and of the rounded ones side by side.

At each quantized layer, methods see what it should compute, what it computes behind the layers that were rounded before
it, and may change its weight and bias. One pass adjusts all layers, each on what those before it now compute.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import fx

from edgewright.frontend.mutation import written_names
from edgewright.quantize.call_state import State, contents, states_before
from edgewright.quantize.layers import Layer, find_layers, is_observer, tensor_of
from edgewright.quantize.simulate import ExactRun, Rounding, Simulation, round_to

_MEMORY = 1 << 30  # bytes of values that are alive at once, about
_CALLS = 64  # of the calibration data, at most


@dataclass
class LayerSamples:
    """A layer on some inputs. ``exact``: its results in the model in floating point. ``inputs``: what it reads when all
    before it is rounded. ``rounding``: of its weight, as calibrated."""

    layer: Layer
    rounding: Rounding
    inputs: list[torch.Tensor]
    exact: list[torch.Tensor]

    @property
    def weight(self) -> torch.Tensor:
        return tensor_of(self.layer.module, self.layer.weight).detach()

    @property
    def bias(self) -> torch.Tensor | None:
        bias = self.layer.bias
        return None if bias is None else tensor_of(self.layer.module, bias).detach()

    def results(self) -> list[torch.Tensor]:
        """What the layer computes with its weight and bias as they are now."""
        weight = round_to(self.weight, self.rounding)
        return [self.layer.run(x, weight, self.bias) for x in self.inputs]


Method = Callable[[LayerSamples], None]


def adjust_layers(prepared: fx.GraphModule, calls: Sequence[Any], methods: Sequence[Method]) -> int:
    """Let methods change every quantized layer, in order. ``calls``: the flattened inputs of each call. Returns the
    number of layers."""
    live = _live_bytes(prepared.graph) + sum(value.nbytes for value in contents(prepared).values())
    count = max(1, min(len(calls), _CALLS, int(_MEMORY / max(1, 2 * live))))
    return _Walk(prepared, calls, [i * len(calls) // count for i in range(count)], methods).run()


class _Values(dict[fx.Node, list[Any]]):
    """The result of each node in each call; one for all calls if it depends on constants only. ``states``: of the
    model, before each call; nodes that write to it change these tensors."""

    def __init__(self, states: Sequence[State]) -> None:
        super().__init__()
        self.state = {name: [state[name] for state in states] for name in states[0]}

    def at(self, node: fx.Node, call: int) -> Any:
        values = self[node]
        return values[call if len(values) > 1 else 0]


class _Walk:
    def __init__(
        self, prepared: fx.GraphModule, calls: Sequence[Any], chosen: Sequence[int], methods: Sequence[Method]
    ) -> None:
        self._prepared, self._methods = prepared, methods
        self._simulation = Simulation(prepared)
        self._calls = [calls[i] for i in chosen]
        self._exact = _Values(states_before(ExactRun(prepared), calls, chosen))
        self._rounded = _Values(states_before(self._simulation, calls, chosen))
        self._written = written_names(prepared.graph.nodes)
        self._layers = {layer.node: layer for layer in find_layers(prepared)}
        self._last_use = _last_uses(prepared.graph)

    def run(self) -> int:
        inputs = iter(range(len(self._calls[0])))
        adjusted = 0
        for node in list(self._prepared.graph.nodes):
            if node.op == "output":
                break
            if node.op == "placeholder":
                index = next(inputs)
                for values in (self._exact, self._rounded):
                    leaves = [call[index] for call in self._calls]
                    values[node] = [x.clone() if str(node.target) in self._written else x for x in leaves]
            else:
                adjusted += self._step(node)
            for dead in self._last_use.get(node, ()):
                self._exact.pop(dead, None)
                self._rounded.pop(dead, None)
        return adjusted

    def _step(self, node: fx.Node) -> int:
        if is_observer(self._prepared, node):
            source: Any = node.args[0]
            rounding = self._simulation.rounding(self._prepared.get_submodule(str(node.target)))
            self._exact[node] = self._exact[source]
            self._rounded[node] = [round_to(x, rounding) for x in self._rounded[source]]
            return 0
        self._exact[node] = self._evaluate(node, self._exact)
        layer = self._layers.get(node)
        rounding = None if layer is None or layer.observer is None else self._simulation.rounding(layer.observer)
        if layer is None or rounding is None:
            self._rounded[node] = self._evaluate(node, self._rounded)
            return 0
        inputs = [self._rounded.at(layer.source, i) for i in range(len(self._calls))]
        exact = [self._exact.at(node, i) for i in range(len(self._calls))]
        samples = LayerSamples(layer, rounding, inputs, exact)
        for method in self._methods:
            method(samples)
        self._rounded[node] = samples.results()
        return 1

    def _evaluate(self, node: fx.Node, values: _Values) -> list[Any]:
        """A node's result for each call; once if it depends on constants only."""
        if node.op == "get_attr" and str(node.target) in values.state:
            return values.state[str(node.target)]
        count = max((len(values[n]) for n in node.all_input_nodes), default=1)
        results = []
        for index in range(count):
            args, kwargs = fx.map_arg((node.args, node.kwargs), partial(values.at, call=index))
            call = getattr(self._simulation, node.op)
            results.append(call(node.target, args, kwargs))
        return results


def _last_uses(graph: fx.Graph) -> dict[fx.Node, list[fx.Node]]:
    """By node: the nodes that nothing reads after it."""
    last: dict[fx.Node, fx.Node] = {}
    for node in graph.nodes:
        last[node] = node
        for operand in node.all_input_nodes:
            last[operand] = node
    uses: dict[fx.Node, list[fx.Node]] = {}
    for node, user in last.items():
        uses.setdefault(user, []).append(node)
    return uses


def _live_bytes(graph: fx.Graph) -> int:
    """The most bytes of results that are alive at once, for one call."""
    uses, live, most = _last_uses(graph), 0, 0
    for node in graph.nodes:
        live += _bytes(node)
        most = max(most, live)
        live -= sum(_bytes(dead) for dead in uses.get(node, ()))
    return most


def _bytes(node: fx.Node) -> int:
    value = node.meta.get("val")
    if node.op == "get_attr" or not isinstance(value, torch.Tensor):
        return 0
    sizes = [size if isinstance(size, int) else 1 for size in value.shape]
    return math.prod(sizes) * value.element_size()
