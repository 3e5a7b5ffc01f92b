"""Finds the layer where a file starts to differ from the graph it was lowered from.

The graph is lowered once more, with the results of all its layers as further outputs. Each layer is then computed by
eager torch from what the file gave for the layers before it, so that errors do not add up and the first layer that
breaks its own bound is the one at fault. Outputs in between can hide a fault (of operators that are no longer fused) or
be too many for a vendor's compiler: then one result at a time is opened, by bisection.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import ExportGraphSignature, OutputKind, OutputSpec, TensorArgument
from torch.utils import _pytree as pytree

from edgewright.api.checked_method import Subject, run_file
from edgewright.api.deviation import Output, compared_values, decibels, step_of
from edgewright.api.graph_interpreter import Override, RoundingNoise, Visitor
from edgewright.api.quantized_graph import (
    MOVES,
    constant_nodes,
    is_conversion,
    is_dequantize,
    is_dynamic,
    is_quantize,
    is_weight,
    operator_name,
    operators_before,
)
from edgewright.errors import EdgewrightError
from edgewright.frontend.origin import module_path
from edgewright.units import share

_PRODUCTS = {"convolution", "conv1d", "conv2d", "conv3d", "linear", "mm", "bmm", "addmm", "matmul",
             "scaled_dot_product_attention", "conv_transpose1d", "conv_transpose2d", "lstm", "gru"}  # fmt: skip
_SHOWN = 4  # operators of a layer that are named


@dataclass(frozen=True)
class Fault:
    """A layer that computes something else than its graph, and how far it is off. ``layer`` is empty if the fault
    shows in no layer alone."""

    rule: str
    value: str
    layer: str = ""
    module: str = ""


def locate(subject: Subject, calls: Sequence[Sequence[Any]], actual: Sequence[Sequence[Any]]) -> Fault | None:
    """The first layer at fault; None if every layer is within its rounding, and all of them give what the file gave."""
    search = _Search(subject, calls, actual)
    try:
        values = search.values(search.opened)
    except EdgewrightError:
        return search.bisect()
    if search.is_same(values):
        return search.first_at_fault(values)
    return search.first_at_fault(values) or search.bisect()


def faulty_layer(subject: Subject, calls: Sequence[Sequence[Any]], actual: Sequence[Sequence[Any]]) -> Fault | None:
    """The first layer that is not within its own rounding, with all of them opened at once; None too if they cannot
    be."""
    search = _Search(subject, calls, actual)
    try:
        values = search.values(search.opened)
    except EdgewrightError:
        return None
    return search.first_at_fault(values)


class _Search:
    def __init__(self, subject: Subject, calls: Sequence[Sequence[Any]], actual: Sequence[Sequence[Any]]) -> None:
        self._subject, self._calls, self._actual = subject, calls, actual
        self._exported = subject.reference.exported
        self._constants = constant_nodes(self._exported)
        self._returned = subject.reference.outputs
        self.opened = layer_results(self._exported.graph, self._returned)

    def values(self, nodes: Sequence[fx.Node]) -> list[list[Any]]:
        """What the file gives with these results opened: for each call its own outputs, then these."""
        program = self._subject.lower(with_results(self._exported, [n.name for n in nodes]))
        return run_file(program, "forward", self._calls)

    def is_same(self, values: Sequence[Sequence[Any]]) -> bool:
        """True if opening results has not changed what the file gives, so that its layers are the file's."""
        for given, made in zip(self._actual, values, strict=True):
            for node, a, b in zip(self._returned, given, made, strict=False):
                if compared_values(node, a, b, [], self._subject.rounding).exceeds:
                    return False
        return True

    # ------------------------------------------------------------------------------------------ all layers at once

    def first_at_fault(self, values: Sequence[Sequence[Any]]) -> Fault | None:
        count = len(self._returned)
        given = [self._by_name(call[count:]) for call in values]
        results = self._alone(given, None)
        drawn = [self._alone(given, noise) for noise in self._subject.noises()]
        results_at: list[tuple[Any, Any]] = [(n, n.name) for n in self.opened]
        results_at += [(n, i) for i, n in enumerate(self._returned)]
        for node, at in results_at:
            for number, call in enumerate(values):
                made = given[number][at] if isinstance(at, str) else call[at]
                fault = self._judged(node, results[number][at], made, [d[number][at] for d in drawn])
                if fault is not None:
                    return fault
        return None

    def _by_name(self, values: Sequence[Any]) -> dict[str, Any]:
        """The file's results by node; integers that several dequantize are the same for all of them."""
        found = {}
        for node, value in zip(self.opened, values, strict=True):
            held: Any = node.args[0] if is_dequantize(node) else None
            for same in [u for u in held.users if is_dequantize(u)] if held is not None else [node]:
                found[same.name] = value
        return found

    def _alone(self, given: Sequence[dict[str, Any]], noise: RoundingNoise | None) -> list[dict[Any, Any]]:
        """Every layer computed from what the file gave for those before it; outputs by their number."""
        visitors = [Override(values, noise) for values in given]
        outputs = self._subject.reference.run(self._calls, visitors)
        return [{**v.computed, **dict(enumerate(o))} for v, o in zip(visitors, outputs, strict=True)]

    def _judged(self, node: Any, expected: Any, made: Any, noisy: Sequence[Any]) -> Fault | None:
        found = compared_values(node, expected, made, noisy, self._subject.rounding, self._subject.slack)
        return self._fault(node, found) if found.exceeds else None

    # -------------------------------------------------------------------------------------------- one at a time

    def bisect(self) -> Fault:
        """The first result, in the order they are computed, that is not what rounding explains; opened alone."""
        low, high, found = 0, len(self.opened), None
        try:
            while low < high:
                middle = (low + high) // 2
                fault = self._opened_alone(self.opened[middle])
                low, high, found = (middle + 1, high, found) if fault is None else (low, middle, fault)
        except EdgewrightError as error:
            return Fault("must compute what the graph it was lowered from computes", f"layers cannot be told: {error}")
        return found or Fault(
            "must compute what the graph it was lowered from computes",
            "other outputs; no layer alone shows it: what differs is how layers are fused, or share memory",
        )

    def _opened_alone(self, node: fx.Node) -> Fault | None:
        values = self.values([node])
        results = self._recorded(node, None)
        drawn = [self._recorded(node, noise) for noise in self._subject.noises()]
        for number, call in enumerate(values):
            fault = self._judged(node, results[number], call[-1], [d[number] for d in drawn])
            if fault is not None:
                return fault
        return None

    def _recorded(self, node: fx.Node, noise: Visitor | None) -> list[Any]:
        visitors = [_Record(node.name, noise) for _ in self._calls]
        self._subject.reference.run(self._calls, visitors)
        return [v.value for v in visitors]

    # --------------------------------------------------------------------------------------------------- in words

    def _fault(self, node: Any, found: Output) -> Fault:
        layer, module, operators = self._named(node)
        step = step_of(node)
        if found.discrete:
            allowed, value = "exactly", f"{share(found.distance)} of its elements differ"
        elif step is not None:
            allowed = f"within {found.allowed / step:.2g} steps of rounding"
            value = f"{found.distance / step:.3g} steps (root mean square)"
        else:
            bound = decibels(found.expected, found.allowed)
            allowed, value = f"within {bound:.1f} dB of rounding", f"{found.sqnr:.1f} dB"
        rule = f"{layer} ({operators}) must compute what the graph it was lowered from computes, {allowed}"
        return Fault(rule, value, layer, module)

    def _named(self, node: Any) -> tuple[str, str, str]:
        """What to call a layer: by its module, or by the node of its result; and its operators."""
        if is_dequantize(node):
            node = node.args[0].args[0] if is_quantize(node.args[0]) else node.args[0]
        if not isinstance(node, fx.Node) or node.op != "call_function":
            return f"input {str(node)!r}", "", "quantize"
        inside = operators_before(node, set(self.opened)) or [node]
        computing = [n for n in inside if operator_name(n) not in MOVES] or inside
        weighted = [n for n in computing if any(is_weight(a, self._constants) for a in n.all_input_nodes)]
        module = module_path((weighted or computing)[0])
        operators = [operator_name(n) for n in reversed(inside)]
        shown = " + ".join(operators[-_SHOWN:])
        return (f"layer {module!r}" if module else f"node {node.name!r}"), module, shown


class _Record(Visitor):
    """Keeps the result of one node."""

    def __init__(self, name: str, noise: Visitor | None) -> None:
        self.value: Any = None
        self._name, self._noise = name, noise or Visitor()

    def visit(self, node: fx.Node, value: Any) -> Any:
        value = self._noise.visit(node, value)
        if node.name == self._name:
            self.value = value.clone() if isinstance(value, torch.Tensor) else value
        return value

    def inside(self) -> Visitor:
        return self._noise


def layer_results(graph: fx.Graph, returned: Sequence[Any]) -> list[fx.Node]:
    """Where layers end: what is stored in integers, once each; and of real numbers what products and several others
    read. Fused operators stay together."""
    found: dict[fx.Node, None] = {}
    for node in graph.nodes:
        value = node.meta.get("val")
        if node in returned or not isinstance(value, torch.Tensor):
            continue
        if is_quantize(node) and is_dynamic(node):
            continue  # its scale is the layer's own business, and in the file no tensor
        if is_quantize(node):
            found.update(dict.fromkeys([u for u in node.users if is_dequantize(u) and u not in returned][:1]))
        elif node.op == "call_function" and value.is_floating_point() and not is_conversion(node) and _ends(node):
            found[node] = None
    return list(found)


def _ends(node: fx.Node) -> bool:
    readers = list(node.users)
    if any(is_quantize(r) and not is_dynamic(r) for r in readers) or operator_name(node) in MOVES:
        return False
    if len(readers) > 1:
        return True
    return bool(readers) and (operator_name(readers[0]) in _PRODUCTS or "choose_qparams" in str(readers[0].target))


def with_results(exported: ExportedProgram, names: Sequence[str]) -> ExportedProgram:
    """The program with the results of some nodes as further outputs; all outputs in one tuple."""
    module = copy.deepcopy(exported.graph_module)
    for old, new in zip(exported.graph.nodes, module.graph.nodes, strict=True):
        new.name = old.name  # copies may get other names
    nodes = {node.name: node for node in module.graph.nodes}
    output = module.graph.output_node()
    output.args = ((*output.args[0], *(nodes[name] for name in names)),)
    module.recompile()
    added = [OutputSpec(OutputKind.USER_OUTPUT, TensorArgument(name), None) for name in names]
    specs = [*exported.graph_signature.output_specs, *added]
    count = sum(1 for s in specs if s.kind == OutputKind.USER_OUTPUT)
    first, *rest = exported.module_call_graph
    assert first.signature is not None
    flat = dataclasses.replace(first.signature, out_spec=pytree.tree_structure((0,) * count))
    return ExportedProgram(
        root=module, graph=module.graph,
        graph_signature=ExportGraphSignature(exported.graph_signature.input_specs, specs),
        state_dict=exported.state_dict, range_constraints=dict(exported.range_constraints),
        module_call_graph=[dataclasses.replace(first, signature=flat), *rest], example_inputs=exported.example_inputs,
        constants=exported.constants, verifiers=exported.verifiers,
    )  # fmt: skip
