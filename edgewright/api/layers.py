"""Layers of a quantized graph: from quantized values to the next one; evaluated alone, or with exact neighbours."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from edgewright.api.quantized_graph import MOVES, is_dequantize, is_quantize, is_weight, operator_name, stored_node
from edgewright.frontend.origin import module_path

Values = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Layer:
    """``name``: of the node that gives its result. ``result``: of the node that has it as the hardware does.
    ``stored``: the same if it is held in integers, else None."""

    name: str
    result: str
    stored: str | None
    module: str
    operator: str
    weighted: bool = False
    moves: bool = False  # elements only, and computes nothing


class Layers:
    """The layers of a converted module; ``exact`` is the same module before it was quantized."""

    def __init__(self, converted: Any, exact: Any) -> None:
        self.converted = converted
        self.exact = exact
        self._nodes = {node.name: node for node in converted.graph.nodes}
        self._exact_nodes = {node.name: node for node in exact.graph.nodes}
        self._known = {node.name for node in exact.graph.nodes if node.op == "call_function"}
        self._order = [node.name for node in exact.graph.nodes]
        self._anchors = {n.name for n in converted.graph.nodes if self._is_anchor(n)}
        inputs = [n for n in converted.graph.nodes if n.op == "placeholder" and _stored(n) is not None]
        ends = [n for n in converted.graph.nodes if n.name in self._anchors and self._touched(n)]
        self.found = [*map(_input, inputs), *map(self._layer, ends)]

    def _is_anchor(self, node: fx.Node) -> bool:
        """True if a node's result is quantized, read by several, or the model's: a layer ends there."""
        value = node.meta.get("val")
        if node.name not in self._known or not isinstance(value, torch.Tensor) or not value.is_floating_point():
            return False
        readers = list(node.users)
        return len(readers) != 1 or is_quantize(readers[0]) or readers[0].op == "output"

    def _touched(self, node: fx.Node) -> bool:
        """True if quantization has anything to do with a layer."""
        inside = self._inside(node)
        return _stored(node) is not None or any(is_dequantize(a) for n in inside for a in n.all_input_nodes)

    def _inside(self, anchor: fx.Node) -> list[fx.Node]:
        """The nodes of a layer, its last first."""
        found, todo = [], [anchor]
        while todo:
            node = todo.pop()
            found.append(node)
            todo += [a for a in node.all_input_nodes if a.name in self._known and a.name not in self._anchors]
        return found

    def _layer(self, anchor: fx.Node) -> Layer:
        inside = self._inside(anchor)
        weighted = [n for n in inside if any(is_weight(a) for a in n.all_input_nodes)]
        main = weighted[0] if weighted else anchor
        stored = _stored(anchor)
        names = [operator_name(n) for n in reversed(inside) if "." in str(n.target)]
        found = module_path(main), " + ".join(names)
        return Layer(anchor.name, stored or anchor.name, stored, *found, bool(weighted), set(names) <= MOVES)

    def readers(self, layer: Layer) -> list[Layer]:
        """The layers with weights that read a result, directly or through others that only move or combine it."""
        of = {n.name: each for each in self.found for n in self._inside(self._nodes[each.name])}
        found: dict[str, Layer] = {}
        todo, seen = [self._nodes[layer.name]], set()
        while todo:
            for user in todo.pop().users:
                reader = of.get(user.name)
                if user.name in seen:
                    continue
                seen.add(user.name)
                if reader is not None and reader.weighted and reader is not layer:
                    found[reader.name] = reader
                else:
                    todo.append(user)
        return list(found.values())

    def held(self, name: str) -> str:
        """The node that has a result as the hardware does."""
        return _stored(self._nodes[name]) or name

    def alone(self, layer: Layer, exact: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """A layer's result if everything else were exact.

        What it adds to the error is the difference between the hardware's result and the exact layer's, both on inputs
        as the hardware holds them: a layer that only moves values adds nothing.
        """
        node = self._nodes[layer.result]
        if self._nodes[layer.name].op == "placeholder":
            return self._hardware(node, exact, {}, node)
        made: torch.Tensor = self._hardware(node, exact, {}, self._nodes[layer.name])
        wanted = self._exact(self._exact_nodes[layer.name], exact, {}, layer.name)
        return exact[layer.name] + (made - wanted)

    def _hardware(
        self, node: fx.Node, exact: Mapping[str, torch.Tensor], held: Values, anchor: fx.Node
    ) -> torch.Tensor:
        """A node of the converted module; layers before this one are exact."""
        if node.name in held:
            return held[node.name]
        if node.op == "get_attr":
            return _attribute(self.converted, str(node.target))
        if node is not anchor and node.name in exact and (node.op == "placeholder" or node.name in self._anchors):
            return exact[node.name]
        held[node.name] = _called(node, lambda n: self._hardware(n, exact, held, anchor))
        return held[node.name]

    def _exact(self, node: fx.Node, exact: Mapping[str, torch.Tensor], held: Values, anchor: str) -> torch.Tensor:
        """The same of the exact module, whose inputs are as the hardware holds them."""
        if node.name in held:
            return held[node.name]
        if node.op == "get_attr":
            return _attribute(self.exact, str(node.target))
        if node.op == "call_module":  # an observer
            return self._exact(node.all_input_nodes[0], exact, held, anchor)
        if node.name != anchor and node.name in exact and (node.op == "placeholder" or node.name in self._anchors):
            held[node.name] = self._seen(node.name, exact)
        else:
            held[node.name] = _called(node, lambda n: self._exact(n, exact, held, anchor))
        return held[node.name]

    def _seen(self, name: str, exact: Mapping[str, torch.Tensor]) -> Any:
        """An exact value as its readers get it."""
        stored = _stored(self._nodes[name])
        if stored is None:
            return exact[name]
        return self._hardware(self._nodes[stored], exact, {}, self._nodes[stored])

    def outputs_with(self, layer: Layer, own: torch.Tensor, exact: Mapping[str, torch.Tensor]) -> Values:
        """The model's outputs if this layer alone were quantized."""
        place = self._order.index(layer.name)
        before = set(self._order[:place])
        env = {n: exact[n.name] for n in self.exact.graph.nodes if n.name in before and n.name in exact}
        env.update({n: own for n in self.exact.graph.nodes if n.name == layer.name})
        return _Recorder(self.exact, set(result_names(self.exact))).go(env)


def _called(node: fx.Node, value: Callable[[fx.Node], Any]) -> torch.Tensor:
    function: Any = node.target
    args, kwargs = pytree.tree_map_only(fx.Node, value, (node.args, node.kwargs))
    made: torch.Tensor = function(*args, **kwargs)
    return made


def _input(node: fx.Node) -> Layer:
    stored = _stored(node)
    return Layer(node.name, stored or node.name, stored, "", "input")


def _stored(node: fx.Node) -> str | None:
    """The name of the node that gives a result back from integers, if it is held in them."""
    found = stored_node(node)
    return None if found is None else found.name


def _attribute(module: Any, path: str) -> torch.Tensor:
    held: torch.Tensor = operator.attrgetter(path)(module)
    return held


# ------------------------------------------------------------------------------------------------------ running


def record(module: Any, leaves: Sequence[Any]) -> Values:
    """Every result of a module, by the name of its node; inputs too."""
    return _Recorder(module, None).start(leaves)


def result_names(module: Any) -> list[str]:
    """The nodes that a module's outputs are, without what observes or converts them."""
    found = []
    for node in pytree.tree_leaves(module.graph.output_node().args[0]):
        while isinstance(node, fx.Node) and (node.op == "call_module" or is_dequantize(node) or is_quantize(node)):
            node = node.all_input_nodes[0]
        if isinstance(node, fx.Node):
            found.append(node.name)
    return found


class _Recorder(fx.Interpreter):
    """Runs a module and keeps results: all, or those of some nodes."""

    def __init__(self, module: Any, names: set[str] | None) -> None:
        super().__init__(module, garbage_collect_values=True)
        self._names = names
        self._kept: Values = {}

    def start(self, leaves: Sequence[Any]) -> Values:
        self.run(*leaves, enable_io_processing=False)
        return self._kept

    def go(self, env: dict[fx.Node, Any]) -> Values:
        for node, value in env.items():  # nodes whose values are known are not run
            self._keep(node, value)
        self.run(initial_env=env, enable_io_processing=False)
        return self._kept

    def run_node(self, node: fx.Node) -> Any:
        value = super().run_node(node)
        self._keep(node, value)
        return value

    def _keep(self, node: fx.Node, value: Any) -> None:
        wanted = node.op != "get_attr" and (self._names is None or node.name in self._names)
        if wanted and (isinstance(value, torch.Tensor) or node.op == "placeholder"):
            self._kept[node.name] = value
