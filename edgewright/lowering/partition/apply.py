"""Gives what a backend takes to it: groups of nodes become calls of a delegate in the exported program."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import ExportGraphSignature, OutputSpec

from edgewright.backends.table import precision_of
from edgewright.frontend.delegate import LoweredBackendModule, executorch_call_delegate
from edgewright.frontend.importer import import_linked
from edgewright.frontend.replace_graph import with_graph
from edgewright.ir.graph import Graph, Op, Value
from edgewright.ir.macs import count_macs
from edgewright.lowering.partition.group import extract, give_copies, group, readers_of
from edgewright.lowering.partition.report import PartitionReport, Verdict
from edgewright.lowering.passes.qdq_folding import CONVERT, QUANTIZE
from edgewright.runtime.delegates import Result

Lower = Callable[[Graph], LoweredBackendModule]


class Application:
    """One partitioner over one method."""

    def __init__(self, exported: ExportedProgram, method: str, backend: str) -> None:
        self.exported = exported
        self.graph, self.nodes = import_linked(exported, method)
        self.report = PartitionReport(method, backend)
        self.backend = backend

    def run(
        self, folded: Graph, refusals: Callable[[Op], Sequence[str]], lower: Lower, *, single: bool = False,
        keep: Callable[[Sequence[Op]], bool] = lambda ops: True,
    ) -> ExportedProgram:  # fmt: skip
        """The program with its groups lowered. ``folded`` is the graph the backend sees."""
        reasons = {op: list(refusals(op)) for op in folded.ops}
        groups = group(folded, lambda op: not reasons[op], single=single)
        conversions = {op for op in folded.ops if op.kind == CONVERT}  # to rows of integers, which no node stands for
        for copy, op in give_copies(folded, groups, conversions).items():
            reasons[copy] = reasons[op]
        groups = [g for g in groups if keep(g)]
        self._tell(folded, groups, reasons)
        _keep_orders(folded, {op for ops in groups for op in ops})
        readers = readers_of(folded)
        units = [_Unit(extract(folded, ops, f"{self.backend}_{i}", readers)) for i, ops in enumerate(groups)]
        for unit in units:
            unit.lowered = lower(unit.graph)
            if unit.lowered.estimates is not None:
                self.report.estimates.append(unit.lowered.estimates)
        return self._replaced(units) if units else self.exported

    def _tell(self, folded: Graph, groups: list[list[Op]], reasons: dict[Op, list[str]]) -> None:
        where = {op: i for i, ops in enumerate(groups) for op in ops}
        for op in folded.ops:
            if op.kind == "delegate":  # another partitioner's: its own report says what is in it
                continue
            taken = op in where
            why = [] if taken else reasons[op] or ["nothing around it to run with"]
            size = sum(o.nbytes for o in op.outputs if o is not None)
            node = op.origin.node or next((o.name for o in op.outputs if o is not None), "")
            macs = count_macs(op)
            held = precision_of(op) if macs else ""
            backend, index = (self.backend, where[op]) if taken else ("", -1)
            self.report.verdicts.append(Verdict(op.kind, node, op.origin.module, backend, index, why, macs, size, held))

    # ---------------------------------------------------------------------------------------------- the new graph

    def _replaced(self, units: list[_Unit]) -> ExportedProgram:
        """The program with every unit as one call; nodes nobody reads any more are left out."""
        made_by = {self.nodes[v]: (unit, i) for unit in units for i, v in enumerate(unit.graph.outputs)}
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
        for node in self._order(output, made_by, set(env)):
            if node in made_by:
                self._call(graph, env, made_by[node][0], attributes)
            else:
                env[node] = graph.node_copy(node, env.__getitem__)
        graph.node_copy(output, env.__getitem__)
        return self._program(graph, attributes, output, env)

    def _order(self, output: fx.Node, made_by: Mapping[fx.Node, Any], known: set[fx.Node]) -> Iterable[fx.Node]:
        """The nodes that are needed, producers first; the first output of a unit stands for all of it."""
        first: dict[Value, fx.Node] = {}
        for node, (unit, _) in made_by.items():
            first.setdefault(unit, node)
        done, order = set(known), []
        stack: list[tuple[fx.Node, bool]] = [(output, False)]
        while stack:
            node, ready = stack.pop()
            node = first[made_by[node][0]] if node in made_by else node
            if node in done:
                continue
            if ready:
                done.add(node)
                if node is not output:
                    order.append(node)
                continue
            stack.append((node, True))
            needs = self._inputs(made_by[node][0]) if node in made_by else node.all_input_nodes
            stack += [(n, False) for n in reversed(needs) if n not in done]
        return order

    def _inputs(self, unit: _Unit) -> list[fx.Node]:
        return [self.nodes[v] for v in unit.graph.inputs]

    def _call(self, graph: fx.Graph, env: dict[fx.Node, Any], unit: _Unit, attributes: dict[str, Any]) -> None:
        name = f"lowered_module_{sum(isinstance(a, LoweredBackendModule) for a in attributes.values())}"
        attributes[name] = unit.lowered
        outputs = [self.nodes[v] for v in unit.graph.outputs]
        held = graph.get_attr(name)
        call = graph.call_function(executorch_call_delegate, (held, *(env[n] for n in self._inputs(unit))))
        call.meta["val"] = [n.meta["val"] for n in outputs]
        call.meta["delegate_orders"] = [[v.dim_order for v in side] for side in (unit.graph.inputs, unit.graph.outputs)]
        call.meta["given"] = self._given(unit)
        assert unit.lowered is not None
        unit.lowered.orders, orders = call.meta["delegate_orders"]
        shapes = zip(unit.graph.outputs, orders, strict=True)
        unit.lowered.results = [Result(v.dtype, v.bound, order) for v, order in shapes]
        for index, node in enumerate(outputs):
            env[node] = graph.call_function(operator.getitem, (call, index))
            env[node].meta.update(node.meta)

    def _given(self, unit: _Unit) -> tuple[str, ...]:
        """The nodes of the user's own program that a unit stands for, in their order."""
        inside = set(self._inputs(unit))
        stack, found = [self.nodes[v] for v in unit.graph.outputs], set()
        while stack:
            node = stack.pop()
            if node not in inside and node.op == "call_function":
                inside.add(node)
                found.update(node.meta.get("given", ()))
                stack += node.all_input_nodes
        return tuple(sorted(found, key=self._order_given.__getitem__))

    @cached_property
    def _order_given(self) -> dict[str, int]:
        given = (name for node in self.exported.graph.nodes for name in node.meta.get("given", ()))
        return {name: place for place, name in enumerate(dict.fromkeys(given))}

    def _program(
        self, graph: fx.Graph, attributes: dict[str, Any], output: fx.Node, env: dict[fx.Node, Any]
    ) -> ExportedProgram:
        holder = torch.nn.Module()
        for name, attribute in attributes.items():
            setattr(holder, name, attribute)
        module = fx.GraphModule(holder, graph)
        module.meta.update(self.exported.graph_module.meta)
        specs = []
        for spec, result in zip(self.exported.graph_signature.output_specs, output.args[0], strict=True):  # type: ignore[arg-type]
            argument: Any = spec.arg
            if isinstance(result, fx.Node) and hasattr(argument, "name"):
                argument = type(argument)(name=env[result].name)
            specs.append(OutputSpec(spec.kind, argument, spec.target))
        signature = ExportGraphSignature(self.exported.graph_signature.input_specs, specs)
        return with_graph(self.exported, module, signature)


def _keep_orders(graph: Graph, taken: set[Op]) -> None:
    """Conversions outside delegates keep their input's order of dimensions, so delegates are lowered for that."""
    for op in graph.ops:
        if op.kind == QUANTIZE and op not in taken and op.outputs[0] is not None:
            op.outputs[0].dim_order = op.args["self"].dim_order


class _Unit:
    """A group on its way to a call."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.lowered: LoweredBackendModule | None = None


def _attribute_names(module: fx.GraphModule) -> list[str]:
    return sorted({str(n.target).split(".")[0] for n in module.graph.nodes if n.op == "get_attr"})
