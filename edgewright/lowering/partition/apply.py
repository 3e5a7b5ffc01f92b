"""Application of a partition: replaces groups of nodes in the exported program with delegate calls."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import ExportGraphSignature, OutputSpec

from edgewright.backends.table import CONVERT, QUANTIZE, precision_of
from edgewright.formats.layer_table import DelegateLayers
from edgewright.frontend.delegate import LoweredBackendModule, executorch_call_delegate
from edgewright.frontend.importer import import_linked
from edgewright.frontend.replace_graph import with_graph
from edgewright.ir.analysis import count_macs
from edgewright.ir.graph import Graph, Op, Value, argument_name
from edgewright.ir.graph_text import qparams_text, type_text
from edgewright.ir.layer_names import layer_of
from edgewright.lowering.partition.group import duplicate_into_groups, extract, group_ops, readers_of
from edgewright.lowering.partition.report import OpDetail, PartitionReport, Verdict
from edgewright.runtime.delegates import ResultSpec

Lower = Callable[[Graph], LoweredBackendModule]


class Application:
    """One partitioner applied to one method."""

    def __init__(self, exported: ExportedProgram, method: str, backend: str) -> None:
        self.exported = exported
        self.graph, self.nodes = import_linked(exported, method)
        self.report = PartitionReport(method, backend)
        self.backend = backend

    def run(
        self, folded: Graph, rejections: Callable[[Op], Sequence[str]], lower: Lower, *, single: bool = False,
        accepts_group: Callable[[Sequence[Op]], bool] = lambda ops: True,
    ) -> ExportedProgram:  # fmt: skip
        """The program with its groups lowered. ``folded`` is the graph that the backend is matched against."""
        units = self._units(folded, rejections, single, accepts_group)
        for unit in units:
            origins = list({layer_of(op.origin): op.origin for op in unit.graph.ops if op.origin.module}.values())
            unit.lowered = lower(unit.graph)
            if not unit.lowered.layers.origins:
                unit.lowered.layers = DelegateLayers(origins, ordered=False)
            if unit.lowered.estimates is not None:
                self.report.estimates.append(unit.lowered.estimates)
        return self._rewrite(units) if units else self.exported

    def tag(
        self, folded: Graph, rejections: Callable[[Op], Sequence[str]], *, single: bool = False,
        accepts_group: Callable[[Sequence[Op]], bool] = lambda ops: True,
    ) -> list[str]:  # fmt: skip
        """Tag the nodes of each group (``meta["delegation_tag"]``) without lowering; returns the tags."""
        units = self._units(folded, rejections, single, accepts_group)
        for unit in units:
            for node in self._nodes_inside(unit):
                node.meta["delegation_tag"] = unit.graph.name
        return [unit.graph.name for unit in units]

    def _units(
        self, folded: Graph, rejections: Callable[[Op], Sequence[str]], single: bool,
        accepts_group: Callable[[Sequence[Op]], bool],
    ) -> list[_Unit]:  # fmt: skip
        reasons = {op: list(rejections(op)) for op in folded.ops}
        groups = group_ops(folded, lambda op: not reasons[op], single=single)
        conversions = {
            op for op in folded.ops if op.kind == CONVERT
        }  # dynamic quantization, which has no node in the program
        for copy, op in duplicate_into_groups(folded, groups, conversions).items():
            reasons[copy] = reasons[op]
        groups = [g for g in groups if accepts_group(g)]
        self._record_verdicts(folded, groups, reasons)
        _propagate_quantize_orders(folded, {op for ops in groups for op in ops})
        readers = readers_of(folded)
        return [_Unit(extract(folded, ops, f"{self.backend}_{i}", readers)) for i, ops in enumerate(groups)]

    def _record_verdicts(self, folded: Graph, groups: list[list[Op]], reasons: dict[Op, list[str]]) -> None:
        group_of = {op: i for i, ops in enumerate(groups) for op in ops}
        producers: dict[Value, int] = {}
        for op in folded.ops:
            if op.kind == "delegate":  # covered by another partitioner's report
                continue
            delegated = op in group_of
            op_reasons = (
                [] if delegated else reasons[op] or ["left on the CPU: its group would contain only data movement"]
            )
            size = sum(o.nbytes for o in op.outputs if o is not None)
            node = op.origin.node or next((o.name for o in op.outputs if o is not None), "")
            macs = count_macs(op)
            precision = precision_of(op) if macs else ""
            backend, index = (self.backend, group_of[op]) if delegated else ("", -1)
            detail = _detail(op, producers)
            producers.update({o: len(self.report.verdicts) for o in op.outputs if o is not None})
            self.report.verdicts.append(
                Verdict(op.kind, node, op.origin.module, backend, index, op_reasons, macs, size, precision, detail)
            )

    # ------------------------------------------------------------------------------------------ graph rewriting

    def _rewrite(self, units: list[_Unit]) -> ExportedProgram:
        """The program with every unit as one call, without dead nodes."""
        producer_unit = {self.nodes[v]: (unit, i) for unit in units for i, v in enumerate(unit.graph.outputs)}
        old = self.exported.graph_module
        graph = fx.Graph()
        env: dict[fx.Node, Any] = {}
        attributes = {name: getattr(old, name) for name in _attribute_names(old)}
        for node in self.exported.graph.nodes:
            if node.op == "placeholder":
                env[node] = graph.placeholder(node.target)
                env[node].name = node.name
                env[node].meta.update(node.meta)
        output = next(n for n in self.exported.graph.nodes if n.op == "output")
        for node in self._topological_order(output, producer_unit, set(env)):
            if node in producer_unit:
                self._call(graph, env, producer_unit[node][0], attributes)
            else:
                env[node] = graph.node_copy(node, env.__getitem__)
        graph.node_copy(output, env.__getitem__)
        return self._program(graph, attributes, output, env)

    def _topological_order(
        self, output: fx.Node, producer_unit: Mapping[fx.Node, Any], available: set[fx.Node]
    ) -> Iterable[fx.Node]:
        """The live nodes in topological order; the first output of a unit represents the unit."""
        first: dict[Value, fx.Node] = {}
        for node, (unit, _) in producer_unit.items():
            first.setdefault(unit, node)
        visited, order = set(available), []
        stack: list[tuple[fx.Node, bool]] = [(output, False)]
        while stack:
            node, ready = stack.pop()
            node = first[producer_unit[node][0]] if node in producer_unit else node
            if node in visited:
                continue
            if ready:
                visited.add(node)
                if node is not output:
                    order.append(node)
                continue
            stack.append((node, True))
            needs = self._inputs(producer_unit[node][0]) if node in producer_unit else node.all_input_nodes
            stack += [(n, False) for n in reversed(needs) if n not in visited]
        return order

    def _inputs(self, unit: _Unit) -> list[fx.Node]:
        return [self.nodes[v] for v in unit.graph.inputs]

    def _call(self, graph: fx.Graph, env: dict[fx.Node, Any], unit: _Unit, attributes: dict[str, Any]) -> None:
        name = f"lowered_module_{sum(isinstance(a, LoweredBackendModule) for a in attributes.values())}"
        attributes[name] = unit.lowered
        outputs = [self.nodes[v] for v in unit.graph.outputs]
        module_node = graph.get_attr(name)
        call = graph.call_function(executorch_call_delegate, (module_node, *(env[n] for n in self._inputs(unit))))
        call.meta["val"] = [n.meta["val"] for n in outputs]
        call.meta["delegate_orders"] = [[v.dim_order for v in side] for side in (unit.graph.inputs, unit.graph.outputs)]
        call.meta["source_nodes"] = self._source_nodes(unit)
        assert unit.lowered is not None
        unit.lowered.orders, orders = call.meta["delegate_orders"]
        shapes = zip(unit.graph.outputs, orders, strict=True)
        unit.lowered.results = [ResultSpec(v.dtype, v.bound, order) for v, order in shapes]
        for index, node in enumerate(outputs):
            env[node] = graph.call_function(operator.getitem, (call, index))
            env[node].meta.update(node.meta)

    def _source_nodes(self, unit: _Unit) -> tuple[str, ...]:
        """The nodes of the exported program that a unit implements, in program order."""
        names = {name for node in self._nodes_inside(unit) for name in node.meta.get("source_nodes", ())}
        return tuple(sorted(names, key=self._source_order.__getitem__))

    def _nodes_inside(self, unit: _Unit) -> list[fx.Node]:
        """The nodes between the inputs and the outputs of a unit."""
        visited, inside = set(self._inputs(unit)), []
        stack = [self.nodes[v] for v in unit.graph.outputs]
        while stack:
            node = stack.pop()
            if node not in visited and node.op == "call_function":
                visited.add(node)
                inside.append(node)
                stack += node.all_input_nodes
        return inside

    @cached_property
    def _source_order(self) -> dict[str, int]:
        names = (name for node in self.exported.graph.nodes for name in node.meta.get("source_nodes", ()))
        return {name: position for position, name in enumerate(dict.fromkeys(names))}

    def _program(
        self, graph: fx.Graph, attributes: dict[str, Any], output: fx.Node, env: dict[fx.Node, Any]
    ) -> ExportedProgram:
        root = torch.nn.Module()
        for name, attribute in attributes.items():
            setattr(root, name, attribute)
        module = fx.GraphModule(root, graph)
        module.meta.update(self.exported.graph_module.meta)
        specs = []
        for spec, result in zip(self.exported.graph_signature.output_specs, output.args[0], strict=True):  # type: ignore[arg-type]
            argument: Any = spec.arg
            if isinstance(result, fx.Node) and hasattr(argument, "name"):
                argument = type(argument)(name=env[result].name)
            specs.append(OutputSpec(spec.kind, argument, spec.target))
        signature = ExportGraphSignature(self.exported.graph_signature.input_specs, specs)
        return with_graph(self.exported, module, signature)


def _detail(op: Op, producers: Mapping[Value, int]) -> OpDetail:
    operands = list(op.inputs())
    constants = [v for v in operands if v.constant]
    return OpDetail(
        tuple(dict.fromkeys(producers[v] for v in operands if v in producers)),
        tuple(type_text(o) for o in op.outputs if o is not None),
        tuple(f"{argument_name(op, v)}: {qparams_text(v.q)}" for v in constants if v.q is not None),
        op.origin.source,
        sum(v.nbytes for v in constants),
    )


def _propagate_quantize_orders(graph: Graph, delegated: set[Op]) -> None:
    """Quantize nodes outside delegates preserve the dim order of their input; delegates are lowered for that."""
    for op in graph.ops:
        if op.kind == QUANTIZE and op not in delegated and op.outputs[0] is not None:
            op.outputs[0].dim_order = op.args["self"].dim_order


class _Unit:
    """A group, its graph, and the module it is lowered to."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.lowered: LoweredBackendModule | None = None


def _attribute_names(module: fx.GraphModule) -> list[str]:
    return sorted({str(n.target).split(".")[0] for n in module.graph.nodes if n.op == "get_attr"})
