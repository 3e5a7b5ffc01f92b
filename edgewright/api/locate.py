"""Locates the first layer at which a file differs from the graph it was lowered from."""

# The graph is lowered again with the results of all layers as additional outputs, and run. Eager torch then computes
# each layer from the *file's* results of the layers before it (``Override``), so that errors do not accumulate: the
# first layer outside its own rounding bound is at fault. Most layers are within a step of their own; for the others,
# the bound comes from several draws of simulated rounding errors, with the same replaced inputs. A network has hundreds
# of layers, so that some exceed the worst of a few draws by chance: a suspect is judged again with more draws. Two
# things can prevent locating it so. Intermediate outputs break fusion, which may hide the fault: if the outputs of the
# instrumented program differ from those of the original file, its layers are not the file's. And a vendor's compiler
# may reject that many outputs. In both cases the search bisects: it exposes one result at a time, in execution order,
# and compares it with the graph under accumulated rounding, which grows monotonically enough along the graph for
# bisection (Zeller, "Why Programs Fail", on isolating failure causes).

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import ExportGraphSignature, OutputKind, OutputSpec, TensorArgument
from torch.utils import _pytree as pytree

from edgewright.api.checked_method import MORE_SEEDS, CheckedMethod, run_file
from edgewright.api.deviation import OutputDeviation, bits_of, compare_values, decibels, step_of
from edgewright.api.graph_interpreter import Override, RoundingNoise, Visitor
from edgewright.api.half_overflow import HALF_MAX, HalfRange
from edgewright.api.quantized_graph import (
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
from edgewright.ir.aten.ops import OPS
from edgewright.ir.aten.table import OpClass
from edgewright.units import share

_MAX_NAMED_OPERATORS = 4  # operators of a layer to name
_UNDEFINED = "undefined"  # key of the masks of undefined elements, among results by node and index


@dataclass(frozen=True)
class Fault:
    """A layer that differs from its graph, and by how much. ``layer`` is empty if no single layer shows the fault."""

    rule: str
    value: str
    layer: str = ""
    module: str = ""
    overflow: bool = False  # a value exceeds the device's half-precision floats


@dataclass(frozen=True)
class _LayerResult:
    """A layer's result, or an output, in one of the calls: what the graph computes, and what the file does."""

    node: Any
    key: str | int
    call: int
    expected: Any
    actual: Any


def locate(subject: CheckedMethod, calls: Sequence[Sequence[Any]], actual: Sequence[Sequence[Any]]) -> Fault | None:
    """The first layer at fault; None if every layer is within rounding and the instrumented program agrees with the
    file."""
    search = _FaultSearch(subject, calls, actual)
    try:
        values = search.values(search.exposed)
    except EdgewrightError:
        return search.bisect()
    if search.is_same(values):
        return search.first_at_fault(values)
    return search.first_at_fault(values) or search.bisect()


def faulty_layer(
    subject: CheckedMethod, calls: Sequence[Sequence[Any]], actual: Sequence[Sequence[Any]]
) -> Fault | None:
    """The first layer outside its rounding bound, with all results exposed at once; raises if they cannot be."""
    search = _FaultSearch(subject, calls, actual)
    return search.first_at_fault(search.values(search.exposed))


class _FaultSearch:
    def __init__(self, subject: CheckedMethod, calls: Sequence[Sequence[Any]], actual: Sequence[Sequence[Any]]) -> None:
        self._subject, self._calls, self._actual = subject, calls, actual
        self._exported = subject.reference.exported
        self._constants = constant_nodes(self._exported)
        self._returned = subject.reference.outputs
        self.exposed = layer_results(self._exported.graph, self._returned)
        self._half_range = HalfRange(subject.reference, calls, subject.rounding)

    def values(self, nodes: Sequence[fx.Node]) -> list[list[Any]]:
        """The file's results with these nodes as further outputs: for each call its outputs, then theirs."""
        program = self._subject.lower(with_results(self._exported, [n.name for n in nodes]))
        return run_file(program, "forward", self._calls)

    def is_same(self, values: Sequence[Sequence[Any]]) -> bool:
        """True if the additional outputs have not changed the program's outputs, so that its layers are the file's."""
        for expected, outputs in zip(self._actual, values, strict=True):
            for node, a, b in zip(self._returned, expected, outputs, strict=False):
                if compare_values(node, a, b, [], self._subject.rounding).exceeds:
                    return False
        return True

    # ------------------------------------------------------------------------------------------ all layers at once

    def first_at_fault(self, values: Sequence[list[Any]]) -> Fault | None:
        count = len(self._returned)
        replacements = [self._by_name(call[count:]) for call in values]
        for call in values:
            del call[count:]  # the replacements are all of a network's layers, and so were these
        exact = self._run_isolated(replacements, None)
        results = [
            _LayerResult(node, key, number, _settle(node, exact[number], key, actual), actual)
            for node, key in self._keys()
            for number, call in enumerate(values)
            for actual in [replacements[number][key] if isinstance(key, str) else call[key]]
        ]
        suspects = [r for r in results if self._check_node(r.node, r.expected, r.actual, []) is not None]
        del exact, results
        noisy_runs = self._noisy_runs(replacements, suspects, self._subject.noises()) if suspects else []
        suspects = [r for r in suspects if self._check_result(r, noisy_runs) is not None]
        if not suspects:
            return None
        noisy_runs += self._noisy_runs(replacements, suspects, self._subject.noises(MORE_SEEDS))
        return next(filter(None, (self._check_result(r, noisy_runs) for r in suspects)), None)

    def _keys(self) -> list[tuple[Any, str | int]]:
        """What is compared: layers by name, outputs by index."""
        return [*((n, n.name) for n in self.exposed), *((n, i) for i, n in enumerate(self._returned))]

    def _noisy_runs(
        self, replacements: Sequence[dict[str, Any]], suspects: Sequence[_LayerResult], noises: Sequence[RoundingNoise]
    ) -> list[list[dict[Any, Any]]]:
        kept = {r.key for r in suspects if isinstance(r.key, str)}
        return [self._run_isolated(replacements, noise, kept) for noise in noises]

    def _check_result(self, result: _LayerResult, noisy_runs: Sequence[Sequence[dict[Any, Any]]]) -> Fault | None:
        noisy = [run[result.call][result.key] for run in noisy_runs]
        return self._check_node(result.node, result.expected, result.actual, noisy)

    def _by_name(self, values: Sequence[Any]) -> dict[str, Any]:
        """The file's results by node; all dequantize nodes of the same integers share one."""
        results = {}
        for node, value in zip(self.exposed, values, strict=True):
            integers: Any = node.args[0] if is_dequantize(node) else None
            value = _on_grid(node, value)
            for reader in [u for u in integers.users if is_dequantize(u)] if integers is not None else [node]:
                results[reader.name] = value
        return results

    def _run_isolated(
        self, replacements: Sequence[dict[str, Any]], noise: RoundingNoise | None, kept: Collection[str] | None = None
    ) -> list[dict[Any, Any]]:
        """Every layer computed from the file's results of the layers before it, or those ``kept``; outputs by index."""
        visitors = [Override(values, noise, kept) for values in replacements]
        outputs = self._subject.reference.run(self._calls, visitors)
        return [
            {**v.computed, **dict(enumerate(o)), _UNDEFINED: v.undefined}
            for v, o in zip(visitors, outputs, strict=True)
        ]

    def _check_node(self, node: Any, expected: Any, actual: Any, noisy: Sequence[Any]) -> Fault | None:
        deviation = compare_values(node, expected, actual, noisy, self._subject.rounding, self._subject.slack)
        if not deviation.exceeds:
            return None
        return self._overflow(node, expected, actual) or self._fault(node, deviation)

    # -------------------------------------------------------------------------------------------- one at a time

    def bisect(self) -> Fault:
        """The first result, in execution order, that rounding does not explain when exposed alone."""
        low, high, first_fault = 0, len(self.exposed), None
        try:
            while low < high:
                middle = (low + high) // 2
                fault = self._check_exposed(self.exposed[middle])
                low, high, first_fault = (middle + 1, high, first_fault) if fault is None else (low, middle, fault)
        except EdgewrightError as error:
            return Fault("must compute what the graph it was lowered from computes", f"no layer can be named: {error}")
        return first_fault or Fault(
            "must compute what the graph it was lowered from computes",
            "other outputs; no layer alone shows it: what differs is how layers are fused, or share memory",
        )

    def _check_exposed(self, node: fx.Node) -> Fault | None:
        values = self.values([node])
        results = self._record_node(node, None)
        noisy_runs = [self._record_node(node, noise) for noise in self._subject.noises()]
        for number, call in enumerate(values):
            fault = self._check_node(node, results[number], call[-1], [d[number] for d in noisy_runs])
            if fault is not None:
                noisy_runs += [self._record_node(node, noise) for noise in self._subject.noises(MORE_SEEDS)]
                fault = self._check_node(node, results[number], call[-1], [d[number] for d in noisy_runs])
            if fault is not None:
                return fault
        return None

    def _record_node(self, node: fx.Node, noise: Visitor | None) -> list[Any]:
        visitors = [_NodeRecorder(node.name, noise) for _ in self._calls]
        self._subject.reference.run(self._calls, visitors)
        return [v.value for v in visitors]

    # -------------------------------------------------------------------------------------------------- reporting

    def _fault(self, node: Any, deviation: OutputDeviation) -> Fault:
        layer, module, operators = self._describe_layer(node)
        step = step_of(node)
        if deviation.discrete:
            allowed, value = "exactly", f"{share(deviation.distance)} of its elements differ"
        elif step is not None:
            allowed = f"within {deviation.allowed / step:.2g} steps of rounding"
            value = f"{deviation.distance / step:.3g} steps (root mean square)"
        else:
            bound = decibels(deviation.expected, deviation.allowed)
            allowed, value = f"within {bound:.1f} dB of rounding", f"{deviation.sqnr:.1f} dB"
        rule = f"{layer} ({operators}) must compute what the graph it was lowered from computes, {allowed}"
        return Fault(rule, value, layer, module)

    def _overflow(self, node: Any, expected: Any, actual: Any) -> Fault | None:
        """The fault of a half-precision device whose range the layer exceeds; None if it does not."""
        inside = operators_before(node, set(self.exposed)) if isinstance(node, fx.Node) else []
        value = self._half_range.overflow(node, inside, expected, actual) if inside else ""
        if not value:
            return None
        layer, module, operators = self._describe_layer(node)
        within = f"must stay within {HALF_MAX:,.0f}, the largest half-precision number of this device"
        return Fault(f"{layer} ({operators}) {within}", value, layer, module, overflow=True)

    def _describe_layer(self, node: Any) -> tuple[str, str, str]:
        """The name of a layer (its module, or the node of its result), its module, and its operators."""
        if is_dequantize(node):
            node = node.args[0].args[0] if is_quantize(node.args[0]) else node.args[0]
        if not isinstance(node, fx.Node) or node.op != "call_function":
            return f"input {str(node)!r}", "", "quantize"
        inside = operators_before(node, set(self.exposed)) or [node]
        computing = [n for n in inside if not OPS.moves_data(n.target)] or inside
        weighted = [n for n in computing if any(is_weight(a, self._constants) for a in n.all_input_nodes)]
        module = module_path((weighted or computing)[0])
        operators = [operator_name(n) for n in reversed(inside)]
        label = " + ".join(operators[-_MAX_NAMED_OPERATORS:])
        return (f"layer {module!r}" if module else f"node {node.name!r}"), module, label


def _on_grid(node: fx.Node, value: Any) -> Any:
    """A dequantized result without the rounding of its output: devices with half-precision floats return 15.06 as
    15.0625, which is several steps of a layer that subtracts 15 from it."""
    step = step_of(node) if is_dequantize(node) else None
    if step is None or bits_of(node) > 8 or not isinstance(value, torch.Tensor):
        return value
    return torch.round(value / step) * step


def _settle(node: Any, results: dict[Any, Any], key: Any, actual: Any) -> Any:
    """The graph's result; where it is not defined, the file's counts."""
    undefined = results[_UNDEFINED].get(node.name if isinstance(node, fx.Node) else None)
    return results[key] if undefined is None else torch.where(undefined, torch.as_tensor(actual), results[key])


class _NodeRecorder(Visitor):
    """Records the result of one node."""

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
    """The last node of each layer: results stored in integers, once each; and float results that a product or several
    nodes read. Fused operators stay together."""
    results: dict[fx.Node, None] = {}
    for node in graph.nodes:
        value = node.meta.get("val")
        if node in returned or not isinstance(value, torch.Tensor):
            continue
        if is_quantize(node) and is_dynamic(node):
            continue  # dynamically quantized: internal to the layer, and not a tensor of the file
        if is_quantize(node):
            results.update(dict.fromkeys([u for u in node.users if is_dequantize(u) and u not in returned][:1]))
        elif node.op == "call_function" and value.is_floating_point() and not is_conversion(node) and _ends_layer(node):
            results[node] = None
    return list(results)


def _ends_layer(node: fx.Node) -> bool:
    readers = list(node.users)
    if any(is_quantize(r) and not is_dynamic(r) for r in readers) or OPS.moves_data(node.target):
        return False
    if len(readers) > 1:
        return True
    return bool(readers) and (_is_product(readers[0]) or "choose_qparams" in str(readers[0].target))


def _is_product(node: fx.Node) -> bool:
    return OpClass.PRODUCT in OPS.classes(node.target) or operator_name(node) in ("lstm", "gru")


def with_results(exported: ExportedProgram, names: Sequence[str]) -> ExportedProgram:
    """A copy of the program with the results of some nodes as further outputs; all outputs in one tuple."""
    module = copy.deepcopy(exported.graph_module)
    for old, new in zip(exported.graph.nodes, module.graph.nodes, strict=True):
        new.name = old.name  # copying may rename nodes
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
