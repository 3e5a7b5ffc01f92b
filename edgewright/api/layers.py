"""Layers of a quantized graph, from quantized values to the next one, and their evaluation with exact neighbors."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from edgewright.api.quantized_graph import (
    dequantized_node,
    is_dequantize,
    is_dynamic,
    is_quantize,
    is_weight,
    operator_name,
)
from edgewright.frontend.mutation import written_names
from edgewright.frontend.origin import module_path
from edgewright.ir.aten.ops import OPS

Values = dict[str, torch.Tensor]


class Recorded(Values):
    """The results of a call by node name. ``state``: of each buffer that the module writes, the contents in the order
    of execution, each with the name of the node that wrote it; the first was there before the call."""

    def __init__(self) -> None:
        super().__init__()
        self.state: dict[str, list[tuple[str, torch.Tensor]]] = {}


@dataclass(frozen=True)
class QuantizedLayer:
    """``name``: the node that computes the result. ``result``: the node with the value that the hardware has, after
    requantization. ``dequantized``: the same if it is stored in integers, else None. ``nodes``: all that a layer
    computes."""

    name: str
    result: str
    dequantized: str | None
    module: str
    operator: str
    weighted: bool = False
    moves: bool = False  # data movement only
    nodes: tuple[str, ...] = ()


class QuantizedLayers:
    """The layers of a converted module; ``exact`` is the module before quantization."""

    def __init__(self, converted: Any, exact: Any) -> None:
        self.converted = converted
        self.exact = exact
        self._nodes = {node.name: node for node in converted.graph.nodes}
        self._exact_nodes = {node.name: node for node in exact.graph.nodes}
        self._computed = {node.name for node in exact.graph.nodes if node.op == "call_function"}
        self._order = [node.name for node in exact.graph.nodes]
        self._anchors = {n.name for n in converted.graph.nodes if self._is_anchor(n)}
        inputs = [n for n in converted.graph.nodes if n.op == "placeholder" and _dequantized_name(n) is not None]
        ends = [n for n in converted.graph.nodes if n.name in self._anchors and self._is_affected(n)]
        self.all = [*map(_input_layer, inputs), *map(self._layer, ends)]
        self._states = [_State(exact), _State(converted)]

    @contextlib.contextmanager
    def _state_at(self, layer: QuantizedLayer, exact: Recorded) -> Iterator[None]:
        """Both modules with the state that the exact one had when it ran a layer."""
        position = self._order.index(layer.name)
        contents = {target: next(content for node, content in reversed(written)
                                 if not node or self._order.index(node) < position)
                    for target, written in exact.state.items()}  # fmt: skip
        before = [state.read() for state in self._states]
        for state in self._states:
            state.write(contents)
        try:
            yield
        finally:
            for state, content in zip(self._states, before, strict=True):
                state.write(content)

    def _is_anchor(self, node: fx.Node) -> bool:
        """True if a layer ends at a node: its result is quantized, has several readers, or is an output."""
        value = node.meta.get("val")
        if node.name not in self._computed or not isinstance(value, torch.Tensor) or not value.is_floating_point():
            return False
        readers = list(node.users)
        return len(readers) != 1 or is_quantize(readers[0]) or readers[0].op == "output"

    def _is_affected(self, node: fx.Node) -> bool:
        """True if quantization affects a layer."""
        inside = self._inside(node)
        return _dequantized_name(node) is not None or any(is_dequantize(a) for n in inside for a in n.all_input_nodes)

    def _inside(self, anchor: fx.Node) -> list[fx.Node]:
        """The nodes of a layer, last first."""
        nodes, todo = [], [anchor]
        while todo:
            node = todo.pop()
            nodes.append(node)
            todo += [a for a in node.all_input_nodes if a.name in self._computed and a.name not in self._anchors]
        return nodes

    def _layer(self, anchor: fx.Node) -> QuantizedLayer:
        inside = self._inside(anchor)
        weighted = [n for n in inside if any(is_weight(a) for a in n.all_input_nodes)]
        main = weighted[0] if weighted else anchor
        dequantized = _dequantized_name(anchor)
        called = [n for n in reversed(inside) if "." in str(n.target)]
        where = module_path(main), " + ".join(map(operator_name, called))
        return QuantizedLayer(
            anchor.name,
            dequantized or anchor.name,
            dequantized,
            *where,
            bool(weighted),
            all(OPS.moves_data(n.target) for n in called),
            tuple(n.name for n in called),
        )

    def readers(self, layer: QuantizedLayer) -> list[QuantizedLayer]:
        """The layers with weights that read a result, directly or through layers without weights."""
        layer_of = {n.name: layer_ for layer_ in self.all for n in self._inside(self._nodes[layer_.name])}
        result: dict[str, QuantizedLayer] = {}
        todo, seen = [self._nodes[layer.name]], set()
        while todo:
            for user in todo.pop().users:
                reader = layer_of.get(user.name)
                if user.name in seen:
                    continue
                seen.add(user.name)
                if reader is not None and reader.weighted and reader is not layer:
                    result[reader.name] = reader
                else:
                    todo.append(user)
        return list(result.values())

    def sources(self, layer: QuantizedLayer) -> list[str]:
        """The names of the results and inputs that a layer reads."""
        names: dict[str, None] = {}
        for node in self._inside(self._nodes[layer.name]) if layer.name in self._computed else ():
            for argument in map(_unconverted, node.all_input_nodes):
                if argument.op == "placeholder" or argument.name in self._anchors:
                    names.setdefault(argument.name)
        return list(names)

    def operators(self, layer: QuantizedLayer) -> list[fx.Node]:
        """The operators of a layer, in the order of execution."""
        inside = self._inside(self._nodes[layer.name]) if layer.name in self._computed else []
        return [node for node in reversed(inside) if "." in str(node.target)]

    def exact_node(self, name: str) -> fx.Node:
        """A node of the module before quantization."""
        node: fx.Node = self._exact_nodes[name]
        return node

    def quantized_product(self, layer: QuantizedLayer) -> str | None:
        """The name of the last operator of a layer that reads a dequantized constant; None if there is none."""
        return next((node.name for node in reversed(self.operators(layer)) for a in node.all_input_nodes
                     if is_dequantize(a) and is_weight(a)), None)  # fmt: skip

    def weight_error(self, layer: QuantizedLayer, exact: Recorded) -> torch.Tensor:
        """The error of a layer's result if only its weights are quantized, and what is quantized at run time."""
        if layer.name not in self._computed:
            return torch.zeros_like(exact[layer.name])
        with self._state_at(layer, exact):
            return self._eval_weights(self._nodes[layer.name], exact, {}, layer.name) - exact[layer.name]

    def rounding_error(self, layer: QuantizedLayer, exact: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """The error of rounding a layer's exact result to its quantized values."""
        rounded: torch.Tensor = self._quantized_value(layer.name, exact)
        return rounded - exact[layer.name]

    def rounds(self, layer: QuantizedLayer, exact: Recorded) -> bool:
        """True if a layer's result is not on its grid already: that of a pooling is, if its input is."""
        if layer.dequantized is None or layer.name not in self._computed:
            return layer.dequantized is not None
        with self._state_at(layer, exact):
            reference = self._eval_exact(self._exact_nodes[layer.name], exact, {}, layer.name)
        node = self._nodes[layer.dequantized]
        rounded = self._eval_quantized(node, exact, {layer.name: reference}, node)
        return not torch.equal(rounded, reference)

    def _eval_weights(
        self, node: fx.Node, exact: Mapping[str, torch.Tensor], cache: Values, anchor: str
    ) -> torch.Tensor:
        """Evaluate a node of the converted module with exact activations."""
        if node.name in cache:
            return cache[node.name]
        if node.op == "get_attr":
            return _attribute(self.converted, str(node.target))
        quantize = node.all_input_nodes[0] if is_dequantize(node) and not is_weight(node) else None
        if quantize is not None and is_quantize(quantize) and not is_dynamic(quantize):
            return self._eval_weights(quantize.all_input_nodes[0], exact, cache, anchor)
        if node.name != anchor and node.name in exact and (node.op == "placeholder" or node.name in self._anchors):
            return exact[node.name]
        cache[node.name] = _evaluate(node, lambda n: self._eval_weights(n, exact, cache, anchor))
        return cache[node.name]

    def hardware_node(self, name: str) -> str:
        """The node with the value of a result that the hardware has."""
        return _dequantized_name(self._nodes[name]) or name

    def with_only_quantized(self, layer: QuantizedLayer, exact: Recorded) -> torch.Tensor:
        """A layer's result if everything else is exact.

        The layer's own error is the difference between the quantized and the exact layer, both on inputs rounded to
        their quantized values: so a layer that only moves data has none. It is added to the exact result.
        """
        node = self._nodes[layer.result]
        if self._nodes[layer.name].op == "placeholder":
            return self._eval_quantized(node, exact, {}, node)
        with self._state_at(layer, exact):
            quantized: torch.Tensor = self._eval_quantized(node, exact, {}, self._nodes[layer.name])
        with self._state_at(layer, exact):
            reference = self._eval_exact(self._exact_nodes[layer.name], exact, {}, layer.name)
        value = exact[layer.name]
        result = value + (quantized - reference)
        # Squares are not negative, quantized or not. The sum with an error must not be either: its root would be NaN.
        return result.clamp(min=0) if bool((value >= 0).all() and (quantized >= 0).all()) else result

    def _eval_quantized(
        self, node: fx.Node, exact: Mapping[str, torch.Tensor], cache: Values, anchor: fx.Node
    ) -> torch.Tensor:
        """Evaluate a node of the converted module, with exact results of the layers before."""
        if node.name in cache:
            return cache[node.name]
        if node.op == "get_attr":
            return _attribute(self.converted, str(node.target))
        if node is not anchor and node.name in exact and (node.op == "placeholder" or node.name in self._anchors):
            return exact[node.name]
        cache[node.name] = _evaluate(node, lambda n: self._eval_quantized(n, exact, cache, anchor))
        return cache[node.name]

    def _eval_exact(self, node: fx.Node, exact: Mapping[str, torch.Tensor], cache: Values, anchor: str) -> torch.Tensor:
        """Evaluate a node of the exact module, with inputs of the layer rounded to their quantized values."""
        if node.name in cache:
            return cache[node.name]
        if node.op == "get_attr":
            return _attribute(self.exact, str(node.target))
        if node.op == "call_module":  # an observer
            return self._eval_exact(node.all_input_nodes[0], exact, cache, anchor)
        if node.name != anchor and node.name in exact and (node.op == "placeholder" or node.name in self._anchors):
            cache[node.name] = self._quantized_value(node.name, exact)
        else:
            cache[node.name] = _evaluate(node, lambda n: self._eval_exact(n, exact, cache, anchor))
        return cache[node.name]

    def _quantized_value(self, name: str, exact: Mapping[str, torch.Tensor]) -> Any:
        """An exact value after quantization, as its readers get it."""
        dequantized = _dequantized_name(self._nodes[name])
        if dequantized is None:
            return exact[name]
        return self._eval_quantized(self._nodes[dequantized], exact, {}, self._nodes[dequantized])

    def outputs_with(self, layer: QuantizedLayer, result: torch.Tensor, exact: Recorded) -> Values:
        """The model's outputs if only this layer has another result."""
        if torch.equal(result, exact[layer.name]):
            return {name: exact[name] for name in result_names(self.exact)}
        index = self._order.index(layer.name)
        before = set(self._order[:index])
        known = (n for n in self.exact.graph.nodes if n.name in before or n.op == "placeholder")
        env = {n: exact[n.name] for n in known if n.name in exact}
        env.update({n: result for n in self.exact.graph.nodes if n.name == layer.name})
        with self._state_at(layer, exact):
            return _ResultRecorder(self.exact, set(result_names(self.exact))).run_from(env)


def _evaluate(node: fx.Node, value: Callable[[fx.Node], Any]) -> torch.Tensor:
    function: Any = node.target
    args, kwargs = pytree.tree_map_only(fx.Node, value, (node.args, node.kwargs))
    result: torch.Tensor = function(*args, **kwargs)
    return result


def _unconverted(node: fx.Node) -> fx.Node:
    """The node whose value a conversion converts."""
    while is_dequantize(node) or is_quantize(node):
        node = node.all_input_nodes[0]
    return node


def _input_layer(node: fx.Node) -> QuantizedLayer:
    stored = _dequantized_name(node)
    return QuantizedLayer(node.name, stored or node.name, stored, "", "input")


def _dequantized_name(node: fx.Node) -> str | None:
    """The name of the node that dequantizes a result, if it is quantized."""
    node_ = dequantized_node(node)
    return None if node_ is None else node_.name


def _attribute(module: Any, path: str) -> torch.Tensor:
    tensor: torch.Tensor = operator.attrgetter(path)(module)
    return tensor


# ------------------------------------------------------------------------------------------------------ execution


class _State:
    """The buffers that a module writes. ``writes``: by node name, the buffers that the node writes."""

    def __init__(self, module: Any) -> None:
        attributes = {str(node.target) for node in module.graph.nodes if node.op == "get_attr"}
        written = {node.name: sorted(written_names([node]) & attributes) for node in module.graph.nodes}
        self.writes = {node: targets for node, targets in written.items() if targets}
        names = sorted({target for targets in self.writes.values() for target in targets})
        self.buffers = {name: _attribute(module, name) for name in names}

    def read(self) -> Values:
        return {name: buffer.clone() for name, buffer in self.buffers.items()}

    def write(self, contents: Mapping[str, torch.Tensor]) -> None:
        with torch.no_grad():
            for name, buffer in self.buffers.items():
                buffer.copy_(contents[name])


def record(module: Any, leaves: Sequence[Any]) -> Recorded:
    """Every result of a module, inputs included, by node name."""
    return _ResultRecorder(module, None).run_on(leaves)


def without_observers(prepared: Any) -> Any:
    """A prepared module without its observers, which cost more than most layers."""
    for node in list(prepared.graph.nodes):
        if node.op == "call_module":
            node.replace_all_uses_with(node.all_input_nodes[0])
            prepared.graph.erase_node(node)
    prepared.recompile()
    return prepared


def result_names(module: Any) -> list[str]:
    """The names of a module's output nodes, before observers and conversions."""
    names = []
    for node in pytree.tree_leaves(module.graph.output_node().args[0]):
        while isinstance(node, fx.Node) and (node.op == "call_module" or is_dequantize(node) or is_quantize(node)):
            node = node.all_input_nodes[0]
        if isinstance(node, fx.Node):
            names.append(node.name)
    return names


class _ResultRecorder(fx.Interpreter):
    """Runs a module and records the results of all or of some nodes."""

    def __init__(self, module: Any, names: set[str] | None) -> None:
        super().__init__(module, garbage_collect_values=True)
        self._names = names
        self._results = Recorded()
        self._state = _State(module)

    def run_on(self, leaves: Sequence[Any]) -> Recorded:
        self._results.state = {name: [("", content)] for name, content in self._state.read().items()}
        self.run(*leaves, enable_io_processing=False)
        return self._results

    def run_from(self, env: dict[fx.Node, Any]) -> Values:
        for node, value in env.items():  # nodes whose values are known are not run
            self._record(node, value)
        self.run(initial_env=env, enable_io_processing=False)
        return self._results

    def run_node(self, node: fx.Node) -> Any:
        value = super().run_node(node)
        for name in self._state.writes.get(node.name, ()):
            if name in self._results.state:
                self._results.state[name].append((node.name, self._state.buffers[name].clone()))
        self._record(node, value)
        return value

    def _record(self, node: fx.Node, value: Any) -> None:
        is_recorded = node.op != "get_attr" and (self._names is None or node.name in self._names)
        if is_recorded and (isinstance(value, torch.Tensor) or node.op == "placeholder"):
            # A later call writes to what a write returns.
            self._results[node.name] = value.clone() if node.name in self._state.writes else value
