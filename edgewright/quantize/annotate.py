"""Annotates a graph module for torchao's PT2E from the ports that a backend's op table declares.

The annotator selects the operators that the backend can run in integers, together with the batch norm and activation
fused into each, and lets ``shared_scales`` decide which tensors share quantization parameters.
"""

# An annotation assigns a quantization spec to every input edge and every result of an operator. Ports declare what an
# operator needs: ``Act`` any scale, ``Weight`` a scale per channel, ``Same`` the scale of another port (max pool,
# reshape), ``Tied`` one scale for several inputs (concat), ``Range`` a fixed range (sigmoid). Selecting operators is
# local; sharing is not, since a chain of reshapes and concats can tie tensors that are far apart. Selection therefore
# runs first, in graph order; then union-find over all constraints yields one leader per set of tied points. The leader
# gets a spec with an observer, and all other points a SharedQuantizationSpec that refers to it.
# Whether a backend accepts an operator is decided by the partitioner's rules, applied to a trial copy of the operator
# with quantized types: first with one scale per channel, then per tensor.

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import fx
from torchao.quantization.pt2e.quantizer import QuantizationAnnotation, QuantizationSpec, SharedQuantizationSpec
from torchao.quantization.pt2e.quantizer.quantizer import Q_ANNOTATION_KEY

from edgewright.backends.table import DYNAMIC, STATIC, Backend
from edgewright.ir.aten.ops import OPS
from edgewright.ir.aten.table import OpDef
from edgewright.ir.graph import Graph, Op, QParams, Value
from edgewright.ir.ports import Act, Index, Port, Range, Same, Tied, Weight
from edgewright.lowering.passes.value_storage import activation_limits
from edgewright.quantize.attention_masks import SCORES, watched_masks
from edgewright.quantize.graph_module import import_module
from edgewright.quantize.recipes import QuantizationConfig, with_own_observer
from edgewright.quantize.shared_scales import Sharing, SharingConstraint, Span, solve_sharing

ConfigOf = Callable[[Op, OpDef, fx.Node], "QuantizationConfig | None"]
Measure = Callable[[set[Any]], dict[Any, Span]]
_BATCH_NORMS = ("aten.batch_norm.default", "aten._native_batch_norm_legit.default")
_ROUNDINGS = ("floor", "ceil", "round", "trunc")
_OF_INTEGERS = ("add", "sub", "rsub", "mul", "neg", "abs", "clamp", "maximum", "minimum", "where")  # are integers, too
_DROPOUTS = ("aten.dropout.default", "aten.feature_dropout.default")  # present in training only


@dataclass
class _QuantizedOp:
    """An operator to quantize, with the batch norm and activation fused into it."""

    config: QuantizationConfig
    nodes: list[fx.Node]  # the operator, then a batch norm, then an activation
    ports: dict[str, Port]
    edges: dict[str, list[fx.Node]] = field(default_factory=dict)  # producers of the activations that each port reads
    weights: dict[fx.Node, Any] = field(default_factory=dict)
    unread: bool = False  # only the indices are used, not the values (max with indices)

    @property
    def result(self) -> fx.Node | None:
        """The node whose result gets a scale; bool results and indices have none."""
        counted = isinstance(self.ports.get("out"), Index) or self.unread
        return None if self.config.is_dynamic or counted else self.nodes[-1]


class Annotator:
    """Annotates one module for one backend. ``inputs_too``: quantize data movement of the module's inputs as well.
    ``measure``: the smallest and largest elements of nodes' results, on calibration data, if there is any."""

    def __init__(
        self, module: fx.GraphModule, backend: Backend, config_of: ConfigOf, target: Any = None,
        inputs_too: bool = False, measure: Measure | None = None,
    ) -> None:  # fmt: skip
        self.backend = backend
        self.free = ("get_attr", "placeholder") if inputs_too else ("get_attr",)  # producers quantized at no cost
        self.target = target
        self.config_of = config_of
        self.measure = measure
        self.graph, self.nodes = import_module(module)
        self.readers: dict[Value, list[Op]] = {}
        for op in self.graph.ops:
            for value in op.inputs():
                self.readers.setdefault(value, []).append(op)
        self.returned = set(self.graph.outputs)
        self.plans: list[_QuantizedOp] = []
        self.planned: set[Op] = set()  # operators fused into a plan
        self.quantized: set[fx.Node] = set()  # the first nodes of the plans
        self.scaled: dict[fx.Node, Any] = {}  # nodes whose results have a scale, and their integer range
        self.converted: dict[Any, Any] = {}  # by node and integer range: the first edge that reads it converted
        self.unquantized: dict[str, str] = {}  # by node: why a layer is not quantized

    def run(self) -> None:
        self._plan_all()
        self.quantized = {plan.nodes[0] for plan in self.plans}
        sharing = solve_sharing([self._unit(plan) for plan in self.plans], self.measure)
        fixed = {p.result: p for p in self.plans if isinstance(p.ports.get("out"), Range)}
        scales = _Scales(sharing, fixed, watched_masks(sharing.leaders))
        for plan in self.plans:
            _annotate(plan, scales)

    def trained_norms(self) -> set[fx.Node]:
        """The batch norms fused into a layer during quantization-aware training. Annotates nothing."""
        self._plan_all()
        return {node for plan in self.plans if plan.config.is_qat for node in plan.nodes[1:] if _is_batch_norm(node)}

    # --------------------------------------------------------------------------------------------------- selection

    def _plan_all(self) -> None:
        varying = varying_operators(self.graph)
        indices = index_operators(self.graph)
        for op in self.graph.ops:
            wanted = op in varying and op not in self.planned and op not in indices
            plan = self._plan(op) if wanted else None
            if plan is None and op not in self.planned:
                self._record_reason(op, op in varying)
            if plan is not None:
                self.plans.append(plan)
                if plan.result is not None:
                    self.scaled[plan.result] = _integer_range(plan.config)

    def _plan(self, op: Op) -> _QuantizedOp | None:
        row = OPS.of(op)
        op = self._without_unused_outputs(op)
        nodes = self._nodes(op)
        node = nodes[0] if nodes else None
        if node is None or node.meta.get(Q_ANNOTATION_KEY, QuantizationAnnotation())._annotated:
            return None
        if op.kind in _DROPOUTS:
            row = OPS["dropout"]
        spec = self.backend.rows.get(row.name) if row is not None else None
        config = self.config_of(op, row, node) if row is not None else None
        if row is not None and spec is not None and config is None:
            self._keep_activation_in_float(op, spec.absorbs)
        if row is None or config is None or (spec is None and op.kind not in _DROPOUTS):
            return None
        precisions = spec.precisions if spec is not None else (STATIC,)
        if (DYNAMIC if config.is_dynamic else STATIC) not in precisions:
            return None
        if spec is not None and "cast" in spec.absorbs:
            op = self._with_cast(op)
        ports = {**row.ports, **(spec.ports if spec is not None else {})}
        plan = _QuantizedOp(config, nodes, ports, unread=op.outputs[0] not in self.nodes)
        if not self._operands(op, row, plan):
            return None
        if spec is not None and spec.absorbs:
            self._fuse(op, row, spec.absorbs, plan)
        return plan

    def _record_reason(self, op: Op, varies: bool) -> None:
        """Record why a layer is not quantized, unless another quantizer annotated it."""
        row, nodes = OPS.of(op), self._nodes(self._without_unused_outputs(op))
        if row is None or not nodes or not any(isinstance(port, Weight) for port in row.ports.values()):
            return
        if nodes[0].meta.get(Q_ANNOTATION_KEY, QuantizationAnnotation())._annotated:
            return
        spec, config = self.backend.rows.get(row.name), self.config_of(op, row, nodes[0])
        if config is None:
            reason = "left in floating point by the configuration"
        elif spec is None or (DYNAMIC if config.is_dynamic else STATIC) not in spec.precisions:
            reason = f"{self.backend.name} has no row for {row.name} in integers"
        elif not varies:
            reason = "it depends on no input of the model"
        else:
            reason = self.unquantized.get(nodes[0].name, "its operands are not float32 weights and activations")
        self.unquantized[nodes[0].name] = reason

    def _without_unused_outputs(self, op: Op) -> Op:
        """An operator without unused trailing results."""
        outputs = list(op.outputs)
        while len(outputs) > 1 and outputs[-1] not in self.nodes:
            outputs.pop()
        return op if len(outputs) == len(op.outputs) else replace(op, outputs=outputs)

    def _nodes(self, op: Op) -> list[fx.Node]:
        """The node of an operator; for a multi-output call, the call and the item of its float result, if used."""
        out, row = op.outputs[0] if op.outputs else None, OPS.of(op)
        is_index = row is not None and isinstance(row.ports.get("out"), Index)
        if out is None or not (is_index or out.dtype == np.float32):
            return []
        used = [self.nodes[o] for o in op.outputs if o in self.nodes]
        if not used or any(o is not None and o.dtype == np.float32 for o in op.outputs[1:]):
            return []
        if used[0].target is not operator.getitem:
            return used
        call = used[0].args[0]
        assert isinstance(call, fx.Node)
        return [call, used[0]] if out in self.nodes else [call]

    def _operands(self, op: Op, row: OpDef, plan: _QuantizedOp) -> bool:
        """Record the producers of every port; False if the backend would reject the operator."""
        for name, port in plan.ports.items():
            values = op.args.get(name)
            if name == "out" or values is None or not isinstance(port, Act | Weight | Same | Tied | Range):
                continue
            operands = values if isinstance(values, list) else [values]
            if self._accepts_scalars(row) and isinstance(values, int | float):
                if math.isinf(values) and isinstance(plan.ports.get("out"), Index):
                    return False  # a comparison with infinity changes its result in integers
                continue
            if not all(isinstance(v, Value) and v.dtype == np.float32 and v in self.nodes for v in operands):
                return False
            if not isinstance(port, Weight):
                plan.edges[name] = [self.nodes[v] for v in operands]
        edges = [n for nodes in plan.edges.values() for n in nodes]
        moves = isinstance(plan.ports.get("out"), Same)  # data movement: quantizing a float input is not worth it
        is_new = self.scaled.keys().isdisjoint(edges) and any(n.op not in self.free for n in edges)
        if not edges or (moves and (is_new or plan.config.is_dynamic)):
            return False
        if row.name not in self.backend.rows:
            return True
        channel_axis = _weight_axis(plan)
        rejections: list[Any] = []
        for axis in dict.fromkeys((channel_axis, None)):
            rejections = self.backend.rejections(_trial_op(op, row, plan, _lowered_axis(plan, axis)), self.target)
            if not rejections:
                _assign_weight_specs(op, plan, axis, self.nodes)
                return True
        self.unquantized[plan.nodes[0].name] = "; ".join(map(str, rejections))
        return False

    def _accepts_scalars(self, row: OpDef) -> bool:
        return row.name in self.backend.rows and self.backend.rows[row.name].numbers

    def _fuse(self, op: Op, row: OpDef, absorbs: tuple[str, ...], plan: _QuantizedOp) -> None:
        """Fuse the activation that follows, in training also behind a batch norm."""
        reader = self._only_reader(op)
        if reader is not None and plan.config.is_qat and reader.kind in _BATCH_NORMS and row.name.startswith("conv"):
            self._absorb(reader, plan)
            reader = self._only_reader(reader)
        row_of_reader = OPS.of(reader) if reader is not None else None
        if reader is None or row_of_reader is None or row_of_reader.name not in absorbs:
            return
        if activation_limits(row_of_reader.name, reader) is not None:
            self._absorb(reader, plan)

    def _keep_activation_in_float(self, op: Op, absorbs: tuple[str, ...]) -> None:
        """Leave the activation of a layer in floating point with its layer. Quantized alone, it would read the layer's
        result with a scale of the range before the clamp, which costs more precision than the float layer gains."""
        reader = self._only_reader(op)
        if reader is not None and reader.kind in _BATCH_NORMS:
            reader = self._only_reader(reader)
        row_of_reader = OPS.of(reader) if reader is not None else None
        if reader is None or row_of_reader is None or row_of_reader.name not in absorbs:
            return
        if activation_limits(row_of_reader.name, reader) is not None:
            self.planned.add(reader)

    def _with_cast(self, op: Op) -> Op:
        """Fuse a cast to int32 that is the only reader of the operator's result."""
        reader = self._only_reader(op)
        row_of_reader = OPS.of(reader) if reader is not None else None
        if reader is None or row_of_reader is None or row_of_reader.name != "cast" or reader.outputs[0] is None:
            return op
        return replace(op, outputs=reader.outputs) if reader.outputs[0].dtype == np.int32 else op

    def _absorb(self, op: Op, plan: _QuantizedOp) -> None:
        self.planned.add(op)
        out = op.outputs[0]
        assert out is not None
        plan.nodes.append(self.nodes[out])

    def _only_reader(self, op: Op) -> Op | None:
        out = op.outputs[0]
        readers = self.readers.get(out, []) if out is not None else []
        return readers[0] if len(readers) == 1 and out not in self.returned else None

    def _unit(self, plan: _QuantizedOp) -> SharingConstraint:
        first = plan.nodes[0]
        inputs: dict[str, list[Any]] = {name: [(n, first) for n in nodes] for name, nodes in plan.edges.items()}
        edges = [edge for points in inputs.values() for edge in points]
        # Dynamically quantized activations have no scale to share.
        shared = {} if plan.config.is_dynamic else {e: self._source(e, plan.config) for e in edges}
        sources = {edge: source for edge, source in shared.items() if source is not None}
        return SharingConstraint(plan.ports, inputs, plan.result, sources, self._read_in_float(plan))

    def _read_in_float(self, plan: _QuantizedOp) -> bool:
        """True if the result is an output, or read by an operator that is not quantized."""
        if plan.result is None:
            return False
        return any(user.op == "output" or user not in self.quantized for user in plan.result.users)

    def _source(self, edge: Any, config: QuantizationConfig) -> Any:
        """The point with whose scale an edge is read: the producer's or, where its value is converted to another
        integer range, that of the first such edge; None if the edge has a scale of its own."""
        producer, target = edge[0], _integer_range(config)
        if producer not in self.scaled or not self.backend.equal_widths or self.scaled[producer] == target:
            return producer if producer in self.scaled else None
        first = self.converted.setdefault((producer, target), edge)
        return None if first == edge else first


def _integer_range(config: QuantizationConfig) -> tuple[Any, ...]:
    """The type and range of activations."""
    spec = config.activation
    return spec.dtype, spec.quant_min, spec.quant_max


def _is_batch_norm(node: fx.Node) -> bool:
    return str(node.target) in _BATCH_NORMS


def varying_operators(graph: Graph) -> set[Op]:
    """The operators that depend on the graph's inputs or state. Constant ones are not delegated: quantizing them would
    only lose precision, and an infinite element (log(0) in a table of relative positions) would ruin the scale."""
    varying = {v for v in graph.inputs if isinstance(v, Value)}
    result = set()
    for op in graph.ops:
        if op.graphs or any(v in varying or v.state for v in op.inputs()):
            result.add(op)
            varying.update(v for v in op.outputs if v is not None)
    return result


def index_operators(graph: Graph) -> set[Op]:
    """The operators that round elements to integers, compare these, or compute with them until they are cast to
    integers. In quantized form, 3 may be 2.99, which a cast truncates to 2: another element would be read."""
    rounded, cast, result = set[Value](), set[Value](), set[Op]()
    rows = {op: OPS.of(op) for op in graph.ops}
    for op, row in rows.items():
        if row is not None and (row.name in _ROUNDINGS or (_keeps_integers(row) and rounded & set(op.inputs()))):
            rounded.update(v for v in op.outputs if v is not None and v.dtype in (np.float32, np.bool_))
    for op, row in reversed(rows.items()):
        out = op.outputs[0] if op.outputs else None
        if out is None or row is None:
            continue
        if out in rounded and (out in cast or out.dtype == np.bool_):
            result.add(op)
        if op in result or (row.name == "cast" and out.dtype is not None and out.dtype.kind in "iu"):
            cast.update(op.inputs())
    return result


def _keeps_integers(row: OpDef) -> bool:
    out = row.ports.get("out")
    return row.name in _OF_INTEGERS or isinstance(out, Same | Index)


# ----------------------------------------------------------------------------------------- trial of the backend's rules


def _weight_axis(plan: _QuantizedOp) -> int | None:
    """The axis of a weight's scales, if they are per channel."""
    axes = [port.axis for port in plan.ports.values() if isinstance(port, Weight)]
    return axes[0] if axes and plan.config.is_per_channel else None


def _lowered_axis(plan: _QuantizedOp, axis: int | None) -> int | None:
    """The axis after lowering, which broadcasts one scale over channels if activations are dynamically quantized."""
    axes = [port.axis for port in plan.ports.values() if isinstance(port, Weight)]
    return axes[0] if plan.config.is_dynamic and axes else axis


def _trial_op(op: Op, row: OpDef, plan: _QuantizedOp, axis: int | None) -> Op:
    """The operator as lowering will see it, quantized."""
    args = dict(op.args)
    if row.name.startswith("conv"):  # lowering has one operator for all, distinguished by these arguments
        args.setdefault("transposed", row.name.startswith("conv_transpose"))
        args.setdefault("output_padding", [0] * int(row.name[-2]))
    spec = plan.config.activation
    limits = (int(spec.quant_min or 0), int(spec.quant_max or 0))
    dtype = np.dtype(str(spec.dtype).removeprefix("torch."))
    q = QParams(1.0, 0, dtype, *limits, dynamic="per_token" if spec.is_dynamic else None)
    for name in plan.edges:
        operand = args[name]
        operands = [replace(v, q=q, dtype=dtype) for v in (operand if isinstance(operand, list) else [operand])]
        args[name] = operands if isinstance(operand, list) else operands[0]
    for name, port in plan.ports.items():
        if isinstance(port, Weight) and isinstance(args.get(name), Value):
            args[name] = replace(args[name], q=_weight_parameters(args[name], plan.config, axis))
    out = op.outputs[0]
    assert out is not None
    first = replace(out, q=q, dtype=dtype) if plan.result is not None or plan.unread else out
    return Op(row.name, args, [first, *(o for o in op.outputs[1:] if o is not None)], op.origin)


def _weight_parameters(weight: Value, config: QuantizationConfig, axis: int | None) -> QParams:
    spec = config.weight
    limits = (int(spec.quant_min or 0), int(spec.quant_max or 0))
    dtype = np.dtype(str(spec.dtype).removeprefix("torch."))
    if axis is None:
        return QParams(1.0, 0, dtype, *limits)
    count = weight.bound[axis]
    return QParams((1.0,) * count, (0,) * count, dtype, *limits, axis=axis)


def _assign_weight_specs(op: Op, plan: _QuantizedOp, axis: int | None, nodes: dict[Value, fx.Node]) -> None:
    for name, port in plan.ports.items():
        if isinstance(port, Weight) and isinstance(op.args.get(name), Value):
            plan.weights[nodes[op.args[name]]] = plan.config.weight_spec(axis)


# ----------------------------------------------------------------------------------------------------- annotation


def annotate_io(module: fx.GraphModule, config: QuantizationConfig) -> None:
    """Annotate the inputs and outputs of a module."""
    for node in module.graph.nodes:
        if node.op == "placeholder" and _is_float32(node):
            node.meta[Q_ANNOTATION_KEY] = QuantizationAnnotation(output_qspec=config.activation, _annotated=True)
        elif node.op == "output":
            results = [n for n in node.all_input_nodes if _is_float32(n)]
            specs = dict.fromkeys(results, config.activation)
            node.meta[Q_ANNOTATION_KEY] = QuantizationAnnotation(input_qspec_map=specs, _annotated=True)


def annotate_float_io(module: fx.GraphModule, config: QuantizationConfig) -> None:
    """Annotate the inputs and outputs that are in floating point after operators were annotated, as what reads or
    computes them is not quantized: a softmax, for example."""
    graph, nodes = import_module(module)
    producers = {nodes[value]: op for op in graph.ops for value in op.outputs if value in nodes}
    for node in module.graph.nodes:
        if node.op == "placeholder" and _is_float32(node) and not all(_reads_integers(u, node) for u in node.users):
            _annotation(node).output_qspec = config.activation
    for result in module.graph.output_node().all_input_nodes:
        if _is_float32(result) and _annotation(result).output_qspec is None:
            row = OPS.of(producers[result]) if result in producers else None
            port = row.ports.get("out") if row is not None else None
            known = config.known_range_spec(port.lo, port.hi, port.narrows) if isinstance(port, Range) else None
            _annotation(result).output_qspec = known or config.activation


def _annotation(node: fx.Node) -> QuantizationAnnotation:
    """The annotation of a node, which is added if there is none."""
    annotation: QuantizationAnnotation = node.meta.setdefault(Q_ANNOTATION_KEY, QuantizationAnnotation())
    annotation._annotated = True
    return annotation


def _reads_integers(reader: fx.Node, node: fx.Node) -> bool:
    annotation = reader.meta.get(Q_ANNOTATION_KEY, QuantizationAnnotation())
    return annotation.input_qspec_map.get(node) is not None


def _is_float32(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return getattr(value, "dtype", None) == torch.float32


@dataclass(frozen=True)
class _Scales:
    """What decides the spec of a point: the points with which it shares its scale, the operators with a fixed range by
    their results, and the masks."""

    sharing: Sharing
    fixed: dict[Any, _QuantizedOp]
    masks: dict[Any, str]

    def spec(self, point: Any, plan: _QuantizedOp) -> Any:
        leader = self.sharing.leaders[point]
        if leader != point:
            return SharedQuantizationSpec(leader)
        port = self.fixed[point].ports["out"] if point in self.fixed else None
        if isinstance(port, Range):
            spec = plan.config.known_range_spec(port.lo, port.hi, port.narrows)
        elif point in self.masks:
            spec = plan.config.mask_spec(self.masks[point] == SCORES)
        else:
            spec = plan.config.activation
        has_observer = isinstance(spec, QuantizationSpec)
        return with_own_observer(spec, str(point)) if has_observer and point in self.sharing.own else spec


def _annotate(plan: _QuantizedOp, scales: _Scales) -> None:
    first, last = plan.nodes[0], plan.nodes[-1]
    specs: dict[fx.Node, Any] = {}
    for nodes in plan.edges.values():
        for node in nodes:
            specs[node] = scales.spec((node, first), plan)
    specs.update(plan.weights)
    for node in plan.nodes:
        node.meta[Q_ANNOTATION_KEY] = QuantizationAnnotation(_annotated=True)
    first.meta[Q_ANNOTATION_KEY].input_qspec_map = specs
    if plan.result is not None:
        last.meta[Q_ANNOTATION_KEY].output_qspec = scales.spec(last, plan)
