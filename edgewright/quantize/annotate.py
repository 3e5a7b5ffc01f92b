"""Writes what the rows' ports say onto a graph module, as torchao's annotations."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import fx
from torchao.quantization.pt2e.quantizer import QuantizationAnnotation, SharedQuantizationSpec
from torchao.quantization.pt2e.quantizer.quantizer import Q_ANNOTATION_KEY

from edgewright.backends.table import DYNAMIC, STATIC, Backend
from edgewright.ir.aten.ops import OPS
from edgewright.ir.aten.table import OpDef
from edgewright.ir.graph import Graph, Op, QParams, Value
from edgewright.ir.ports import Act, Index, Port, Range, Same, Tied, Weight
from edgewright.lowering.passes.value_storage import activation_limits
from edgewright.quantize.attention_masks import SCORES, watched_masks
from edgewright.quantize.graph_module import import_module
from edgewright.quantize.recipes import QuantizationConfig
from edgewright.quantize.shared_scales import Unit, solve

ConfigOf = Callable[[Op, OpDef, fx.Node], "QuantizationConfig | None"]
_BATCH_NORMS = ("aten.batch_norm.default", "aten._native_batch_norm_legit.default")
_DROPOUTS = ("aten.dropout.default", "aten.feature_dropout.default")  # in training, only gone when it is over


@dataclass
class _Plan:
    """An operator to be quantized, and what is fused onto it."""

    config: QuantizationConfig
    nodes: list[fx.Node]  # of the operator, a batch norm, an activation
    ports: dict[str, Port]
    edges: dict[str, list[fx.Node]] = field(default_factory=dict)  # the activations that each port reads
    weights: dict[fx.Node, Any] = field(default_factory=dict)
    unread: bool = False  # of several results, only places are read

    @property
    def result(self) -> fx.Node | None:
        """What gets a scale; a truth or a place has none."""
        counted = isinstance(self.ports.get("out"), Index) or self.unread
        return None if self.config.is_dynamic or counted else self.nodes[-1]


class Annotator:
    """One pass of a backend's rows over one module. ``inputs_too``: what moves the module's own inputs is quantized."""

    def __init__(
        self, module: fx.GraphModule, backend: Backend, config_of: ConfigOf, target: Any = None,
        inputs_too: bool = False,
    ) -> None:  # fmt: skip
        self.backend = backend
        self.free = ("get_attr", "placeholder") if inputs_too else ("get_attr",)  # integers of these cost nothing
        self.target = target
        self.config_of = config_of
        self.graph, self.nodes = import_module(module)
        self.readers: dict[Value, list[Op]] = {}
        for op in self.graph.ops:
            for value in op.inputs():
                self.readers.setdefault(value, []).append(op)
        self.returned = set(self.graph.outputs)
        self.plans: list[_Plan] = []
        self.planned: set[Op] = set()  # operators
        self.scaled: set[fx.Node] = set()  # nodes whose results have a scale
        self.left: dict[str, str] = {}  # why layers are not quantized, by node

    def run(self) -> None:
        self._plan_all()
        leaders = solve([self._unit(plan) for plan in self.plans])
        fixed = {p.result: p for p in self.plans if isinstance(p.ports.get("out"), Range)}
        masks = watched_masks(leaders)
        for plan in self.plans:
            _write(plan, leaders, fixed, masks)

    def trained_norms(self) -> set[fx.Node]:
        """The batch norms that are part of a layer while it is trained. Nothing is written."""
        self._plan_all()
        return {node for plan in self.plans if plan.config.is_qat for node in plan.nodes[1:] if _is_norm(node)}

    # --------------------------------------------------------------------------------------------------- choosing

    def _plan_all(self) -> None:
        varying = varying_operators(self.graph)
        for op in self.graph.ops:
            plan = self._plan(op) if op in varying and op not in self.planned else None
            if plan is None and op not in self.planned:
                self._note(op, op in varying)
            if plan is not None:
                self.plans.append(plan)
                self.scaled |= {plan.result} if plan.result is not None else set()

    def _plan(self, op: Op) -> _Plan | None:
        row = OPS.of(op)
        op = self._read(op)
        nodes = self._nodes(op)
        node = nodes[0] if nodes else None
        if node is None or node.meta.get(Q_ANNOTATION_KEY, QuantizationAnnotation())._annotated:
            return None
        if op.kind in _DROPOUTS:
            row = OPS["dropout"]
        spec = self.backend.rows.get(row.name) if row is not None else None
        config = self.config_of(op, row, node) if row is not None else None
        if row is None or config is None or (spec is None and op.kind not in _DROPOUTS):
            return None
        precisions = spec.precisions if spec is not None else (STATIC,)
        if (DYNAMIC if config.is_dynamic else STATIC) not in precisions:
            return None
        if spec is not None and "cast" in spec.absorbs:
            op = self._with_cast(op)
        ports = {**row.ports, **(spec.ports if spec is not None else {})}
        plan = _Plan(config, nodes, ports, unread=op.outputs[0] not in self.nodes)
        if not self._operands(op, row, plan):
            return None
        if spec is not None and spec.absorbs:
            self._fuse(op, row, spec.absorbs, plan)
        return plan

    def _note(self, op: Op, varies: bool) -> None:
        """Say why a layer is not quantized, unless another quantizer took it."""
        row, nodes = OPS.of(op), self._nodes(self._read(op))
        if row is None or not nodes or not any(isinstance(port, Weight) for port in row.ports.values()):
            return
        if nodes[0].meta.get(Q_ANNOTATION_KEY, QuantizationAnnotation())._annotated:
            return
        spec, config = self.backend.rows.get(row.name), self.config_of(op, row, nodes[0])
        if config is None:
            why = "left in floating point by the configuration"
        elif spec is None or (DYNAMIC if config.is_dynamic else STATIC) not in spec.precisions:
            why = f"{self.backend.name} has no row for {row.name} in integers"
        elif not varies:
            why = "it depends on no input of the model"
        else:
            why = self.left.get(nodes[0].name, "its operands are not weights and real activations")
        self.left[nodes[0].name] = why

    def _read(self, op: Op) -> Op:
        """An operator without trailing results that nobody reads."""
        outputs = list(op.outputs)
        while len(outputs) > 1 and outputs[-1] not in self.nodes:
            outputs.pop()
        return op if len(outputs) == len(op.outputs) else replace(op, outputs=outputs)

    def _nodes(self, op: Op) -> list[fx.Node]:
        """The node of an operator; of several results, the call and the one that is a quantity, if it is read."""
        out, row = op.outputs[0] if op.outputs else None, OPS.of(op)
        counted = row is not None and isinstance(row.ports.get("out"), Index)
        if out is None or not (counted or out.dtype == np.float32):
            return []
        found = [self.nodes[o] for o in op.outputs if o in self.nodes]
        if not found or any(o is not None and o.dtype == np.float32 for o in op.outputs[1:]):
            return []
        if found[0].target is not operator.getitem:
            return found
        call = found[0].args[0]
        assert isinstance(call, fx.Node)
        return [call, found[0]] if out in self.nodes else [call]

    def _operands(self, op: Op, row: OpDef, plan: _Plan) -> bool:
        """Note the points of every port; False if the backend would refuse the operator."""
        for name, port in plan.ports.items():
            values = op.args.get(name)
            if name == "out" or values is None or not isinstance(port, Act | Weight | Same | Tied | Range):
                continue
            listed = values if isinstance(values, list) else [values]
            if self._takes_numbers(row) and isinstance(values, int | float):
                if math.isinf(values) and isinstance(plan.ports.get("out"), Index):
                    return False  # no integer is infinite: asked of integers, the answer would be another
                continue
            if not all(isinstance(v, Value) and v.dtype == np.float32 and v in self.nodes for v in listed):
                return False
            if not isinstance(port, Weight):
                plan.edges[name] = [self.nodes[v] for v in listed]
        edges = [n for nodes in plan.edges.values() for n in nodes]
        moves = isinstance(plan.ports.get("out"), Same)  # new integers for what has none would only cost
        new = self.scaled.isdisjoint(edges) and any(n.op not in self.free for n in edges)
        if not edges or (moves and (new or plan.config.is_dynamic)):
            return False
        if row.name not in self.backend.rows:
            return True
        axes = _weight_axes(plan)
        found: list[Any] = []
        for axis in dict.fromkeys((axes, None)):
            found = self.backend.refusals(_trial(op, row, plan, _expected(plan, axis)), self.target)
            if not found:
                _weigh(op, plan, axis, self.nodes)
                return True
        self.left[plan.nodes[0].name] = "; ".join(map(str, found))
        return False

    def _takes_numbers(self, row: OpDef) -> bool:
        return row.name in self.backend.rows and self.backend.rows[row.name].numbers

    def _fuse(self, op: Op, row: OpDef, absorbs: tuple[str, ...], plan: _Plan) -> None:
        """Take in the activation that follows, behind a batch norm too while training."""
        last = self._only_reader(op)
        if last is not None and plan.config.is_qat and last.kind in _BATCH_NORMS and row.name.startswith("conv"):
            self._take(last, plan)
            last = self._only_reader(last)
        known = OPS.of(last) if last is not None else None
        if last is None or known is None or known.name not in absorbs:
            return
        if activation_limits(known.name, last) is not None:
            self._take(last, plan)

    def _with_cast(self, op: Op) -> Op:
        """An operator whose only reader makes 32-bit numbers of its result, as one that gives those."""
        last = self._only_reader(op)
        known = OPS.of(last) if last is not None else None
        if last is None or known is None or known.name != "cast" or last.outputs[0] is None:
            return op
        return replace(op, outputs=last.outputs) if last.outputs[0].dtype == np.int32 else op

    def _take(self, op: Op, plan: _Plan) -> None:
        self.planned.add(op)
        out = op.outputs[0]
        assert out is not None
        plan.nodes.append(self.nodes[out])

    def _only_reader(self, op: Op) -> Op | None:
        out = op.outputs[0]
        readers = self.readers.get(out, []) if out is not None else []
        return readers[0] if len(readers) == 1 and out not in self.returned else None

    def _unit(self, plan: _Plan) -> Unit:
        first = plan.nodes[0]
        inputs: dict[str, list[Any]] = {name: [(n, first) for n in nodes] for name, nodes in plan.edges.items()}
        edges = [edge for points in inputs.values() for edge in points]
        # Rows quantized on the fly have no scale to share.
        sources = {} if plan.config.is_dynamic else {e: e[0] for e in edges if e[0] in self.scaled}
        return Unit(plan.ports, inputs, plan.result, sources)


def _is_norm(node: fx.Node) -> bool:
    return str(node.target) in _BATCH_NORMS


def varying_operators(graph: Graph) -> set[Op]:
    """The operators that depend on the graph's inputs or state. Others give the same in every call, and no backend
    takes them: integers would only make them coarser, and an infinite one (the logarithm of a distance of 0, in tables
    of relative positions) would leave no scale for the rest."""
    varying = {v for v in graph.inputs if isinstance(v, Value)}
    found = set()
    for op in graph.ops:
        if op.graphs or any(v in varying or v.state for v in op.inputs()):
            found.add(op)
            varying.update(v for v in op.outputs if v is not None)
    return found


# ------------------------------------------------------------------------------------------- would it be accepted?


def _weight_axes(plan: _Plan) -> int | None:
    """The axis of a weight's scales, if they differ by channel."""
    axes = [port.axis for port in plan.ports.values() if isinstance(port, Weight)]
    return axes[0] if axes and plan.config.is_per_channel else None


def _expected(plan: _Plan, axis: int | None) -> int | None:
    """Lowering spreads one scale over the channels where rows are quantized on the fly."""
    axes = [port.axis for port in plan.ports.values() if isinstance(port, Weight)]
    return axes[0] if plan.config.is_dynamic and axes else axis


def _trial(op: Op, row: OpDef, plan: _Plan, axis: int | None) -> Op:
    """The operator as it will come to lowering, quantized."""
    args = dict(op.args)
    if row.name.startswith("conv"):  # one operator there, told apart by these
        args.setdefault("transposed", row.name.startswith("conv_transpose"))
        args.setdefault("output_padding", [0] * int(row.name[-2]))
    spec = plan.config.activation
    limits = (int(spec.quant_min or 0), int(spec.quant_max or 0))
    stored = np.dtype(str(spec.dtype).removeprefix("torch."))
    q = QParams(1.0, 0, stored, *limits, dynamic="per_token" if spec.is_dynamic else None)
    for name in plan.edges:
        held = args[name]
        listed = [replace(v, q=q, dtype=stored) for v in (held if isinstance(held, list) else [held])]
        args[name] = listed if isinstance(held, list) else listed[0]
    for name, port in plan.ports.items():
        if isinstance(port, Weight) and isinstance(args.get(name), Value):
            args[name] = replace(args[name], q=_weight_parameters(args[name], plan.config, axis))
    out = op.outputs[0]
    assert out is not None
    first = replace(out, q=q, dtype=stored) if plan.result is not None or plan.unread else out
    return Op(row.name, args, [first, *(o for o in op.outputs[1:] if o is not None)], op.origin)


def _weight_parameters(weight: Value, config: QuantizationConfig, axis: int | None) -> QParams:
    spec = config.weight
    limits = (int(spec.quant_min or 0), int(spec.quant_max or 0))
    stored = np.dtype(str(spec.dtype).removeprefix("torch."))
    if axis is None:
        return QParams(1.0, 0, stored, *limits)
    count = weight.bound[axis]
    return QParams((1.0,) * count, (0,) * count, stored, *limits, axis=axis)


def _weigh(op: Op, plan: _Plan, axis: int | None, nodes: dict[Value, fx.Node]) -> None:
    for name, port in plan.ports.items():
        if isinstance(port, Weight) and isinstance(op.args.get(name), Value):
            plan.weights[nodes[op.args[name]]] = plan.config.weight_spec(axis)


# --------------------------------------------------------------------------------------------------------- writing


def annotate_ends(module: fx.GraphModule, config: QuantizationConfig) -> None:
    """Say how the inputs and outputs of a module are stored."""
    for node in module.graph.nodes:
        if node.op == "placeholder" and _is_real(node):
            node.meta[Q_ANNOTATION_KEY] = QuantizationAnnotation(output_qspec=config.activation, _annotated=True)
        elif node.op == "output":
            results = [n for n in node.all_input_nodes if _is_real(n)]
            specs = dict.fromkeys(results, config.activation)
            node.meta[Q_ANNOTATION_KEY] = QuantizationAnnotation(input_qspec_map=specs, _annotated=True)


def _is_real(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return getattr(value, "dtype", None) == torch.float32


def _write(plan: _Plan, leaders: dict[Any, Any], fixed: dict[Any, _Plan], masks: dict[Any, str]) -> None:
    first, last = plan.nodes[0], plan.nodes[-1]
    specs: dict[fx.Node, Any] = {}
    for nodes in plan.edges.values():
        for node in nodes:
            specs[node] = _spec((node, first), plan, leaders, fixed, masks)
    specs.update(plan.weights)
    for node in plan.nodes:
        node.meta[Q_ANNOTATION_KEY] = QuantizationAnnotation(_annotated=True)
    first.meta[Q_ANNOTATION_KEY].input_qspec_map = specs
    if plan.result is not None:
        last.meta[Q_ANNOTATION_KEY].output_qspec = _spec(last, plan, leaders, fixed, masks)


def _spec(point: Any, plan: _Plan, leaders: dict[Any, Any], fixed: dict[Any, _Plan], masks: dict[Any, str]) -> Any:
    leader = leaders[point]
    if leader != point:
        return SharedQuantizationSpec(leader)
    port = fixed[point].ports["out"] if point in fixed else None
    if isinstance(port, Range):
        return plan.config.fixed(port.lo, port.hi, port.narrows)
    return plan.config.masked(masks[point] == SCORES) if point in masks else plan.config.activation
