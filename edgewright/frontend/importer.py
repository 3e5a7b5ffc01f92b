"""``import_graph``: converts a prepared ExportedProgram to an ``ir.Graph``; nothing else interprets FX nodes."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, InputSpec, OutputKind
from torch.utils import _pytree as pytree
from torch.utils._sympy.value_ranges import bound_sympy

from edgewright.errors import ExportError
from edgewright.frontend.delegate import executorch_call_delegate
from edgewright.frontend.origin import frames, module_classes, module_path, source_line
from edgewright.frontend.tensors import DTYPES, dim_order_of, to_array
from edgewright.ir.aten.dialect import ATEN
from edgewright.ir.graph import Array, Dim, Graph, Op, Origin, Size, Value
from edgewright.ir.verify import verify

_KINDS = {torch.SymInt: "int", int: "int", torch.SymBool: "bool", bool: "bool", torch.SymFloat: "float", float: "float"}
_UNBOUNDED = (1 << 31) - 1

# A parameter with a gradient is state: the training loop writes it between calls.
_MUTATION_KINDS = (OutputKind.BUFFER_MUTATION, OutputKind.GRADIENT_TO_PARAMETER)
_RESULT_KINDS = (
    OutputKind.USER_OUTPUT,
    OutputKind.LOSS_OUTPUT,
    OutputKind.GRADIENT_TO_PARAMETER,
    OutputKind.GRADIENT_TO_USER_INPUT,
)


def import_graph(exported: ExportedProgram, name: str = "forward") -> Graph:
    """The graph of a program's method. Its constants are views of the program's weights."""
    graph = _Importer(exported, name).run()
    verify(graph, ATEN)
    return graph


def import_linked(exported: ExportedProgram, name: str = "forward") -> tuple[Graph, dict[Value, fx.Node]]:
    """The graph of a method, and the node behind each of its values."""
    importer = _Importer(exported, name)
    graph = importer.run()
    verify(graph, ATEN)
    return graph, {value: node for node, value in importer.env.items() if isinstance(value, Value)}


class _Importer:
    def __init__(self, exported: ExportedProgram, name: str) -> None:
        self.exported = exported
        self.module: fx.GraphModule = exported.graph_module  # or a branch of it
        self.graph = Graph(name)
        self.env: dict[fx.Node, Any] = {}

    def run(self) -> Graph:
        specs = {spec.arg.name: spec for spec in self.exported.graph_signature.input_specs}
        for node in self.exported.graph.nodes:
            if node.op == "placeholder":
                self._placeholder(node, specs[node.name])
            elif node.op == "output":
                self._outputs(node)
            else:
                self.visit(node)
        return self.graph

    def visit(self, node: fx.Node) -> None:
        """Import a call, or a subgraph or constant attribute of the module."""
        if node.op == "call_function":
            self._call(node)
            return
        attribute = operator.attrgetter(str(node.target))(self.module)
        self.env[node] = attribute
        if isinstance(attribute, torch.Tensor):
            order = tuple(range(attribute.dim()))
            self.env[node] = Value(
                node.name, np.dtype(DTYPES[attribute.dtype]), tuple(attribute.shape), order, to_array(attribute)
            )

    # ------------------------------------------------------------------------------------------------- values

    def _placeholder(self, node: fx.Node, spec: InputSpec) -> None:
        if spec.kind == InputKind.USER_INPUT:
            value: Any = spec.arg.value if isinstance(spec.arg, ConstantArgument) else self._value(node)
            self.env[node] = value
            self.graph.inputs.append(value)
            return
        if not node.users and not self._is_mutated(spec):
            return
        tensor = self._tensor(spec)
        value = self._value(node)
        value.data = to_array(tensor)
        value.dim_order = dim_order_of(tensor)
        value.qualified_name = str(spec.target)
        value.state = self._is_mutated(spec)
        self.env[node] = value

    def _is_mutated(self, spec: InputSpec) -> bool:
        outputs = self.exported.graph_signature.output_specs
        return any(o.kind in _MUTATION_KINDS and o.target == spec.target for o in outputs)

    def _tensor(self, spec: InputSpec) -> torch.Tensor:
        target = str(spec.target)
        is_persistent = spec.kind == InputKind.PARAMETER or (spec.kind == InputKind.BUFFER and spec.persistent)
        tensor: Any = self.exported.state_dict.get(target) if is_persistent else self.exported.constants.get(target)
        if isinstance(tensor, torch.Tensor):
            return tensor
        raise ExportError(f"input {spec.arg.name!r}", f"is a {spec.kind.name.lower()}, which no runtime supports")

    def _value(self, node: fx.Node, val: Any = None, suffix: str = "") -> Value:
        val = node.meta.get("val") if val is None else val
        name = node.name + suffix
        if isinstance(val, torch.Tensor):
            shape = tuple(self._size(s) for s in val.shape)
            order = dim_order_of(val) if node.op == "placeholder" else tuple(range(val.dim()))
            return Value(name, np.dtype(DTYPES[val.dtype]), shape, order)
        kind = next((k for cls, k in _KINDS.items() if isinstance(val, cls)), None)
        if kind is None:
            raise ExportError(f"node {name!r}", "has a value that no runtime supports", value=type(val).__name__)
        return Value(name, kind=kind)

    def _size(self, size: Any) -> Size:
        if isinstance(size, int):
            return size
        expression = size.node.expr
        if expression.is_number:
            return int(expression)
        bounds = bound_sympy(expression, _ranges(self.exported.range_constraints, size.node.shape_env))
        lower = int(bounds.lower) if bounds.lower.is_Integer else 0
        upper = int(bounds.upper) if bounds.upper.is_Integer else _UNBOUNDED
        return Dim(str(expression), max(lower, 0), min(upper, _UNBOUNDED))

    # -------------------------------------------------------------------------------------------------- calls

    def _call(self, node: fx.Node) -> None:
        target: Any = node.target
        if target is operator.getitem and isinstance(node.args[0], fx.Node):
            source = self.env[node.args[0]]
            if isinstance(source, list):
                self.env[node] = source[node.args[1]]  # type: ignore[index]
                return
        args, kwargs = self._read((node.args, node.kwargs))
        val = node.meta.get("val")
        outputs: list[Value | None]
        if isinstance(val, tuple | list):
            outputs = [None if v is None else self._value(node, v, f"_{i}") for i, v in enumerate(val)]
            self.env[node] = outputs
        else:
            outputs = [] if val is None else [self._value(node)]
            self.env[node] = outputs[0] if outputs else None
        op = Op(kind_of(target), named_arguments(target, args, kwargs), outputs, self._origin(node))
        if target is executorch_call_delegate:
            _describe_delegate(op, args, node)
        self._control(op, node)
        self.graph.ops.append(op)

    def _control(self, op: Op, node: fx.Node) -> None:
        """Import branches and loop bodies as subgraphs."""
        if isinstance(node.target, torch._ops.HigherOrderOperator):
            _import_branches(self, op)

    def _read(self, tree: Any) -> Any:
        return pytree.tree_map_only(fx.Node, self.env.__getitem__, tree)

    def _origin(self, node: fx.Node) -> Origin:
        name = str(node.meta.get("origin", node.name))
        exported_names = tuple(node.meta.get("source_nodes", (node.name,)))
        return Origin(
            name, module_path(node), tuple(frames(node)), module_classes(node), source_line(node), exported_names
        )

    def _outputs(self, node: fx.Node) -> None:
        signature = self.exported.graph_signature
        by_target = {str(s.target): s.arg.name for s in signature.input_specs if s.kind != InputKind.USER_INPUT}
        by_name = {n.name: v for n, v in self.env.items() if n.op == "placeholder"}
        for spec, result in zip(signature.output_specs, node.args[0], strict=True):  # type: ignore[arg-type]
            value = self._read(result)
            if spec.kind in _RESULT_KINDS:
                self.graph.outputs.append(value)
                if spec.kind == OutputKind.GRADIENT_TO_PARAMETER:
                    self.graph.weights.append(by_name[by_target[str(spec.target)]])
            elif spec.kind == OutputKind.BUFFER_MUTATION:
                state = by_name[by_target[str(spec.target)]]
                self.graph.updates += [] if value is state else [(state, value)]  # state that is only read
            elif spec.kind == OutputKind.USER_INPUT_MUTATION:
                self.graph.updates.append((by_name[str(spec.target)], value))
            elif spec.kind != OutputKind.TOKEN:
                raise ExportError(f"output {result}", f"is a {spec.kind.name.lower()}, which no runtime supports")


def _ranges(constraints: Mapping[Any, Any], shape_env: Any) -> dict[Any, Any]:
    """The range of each symbol: from the program, or from torch if a decomposition introduced it."""
    return {**shape_env.var_to_range, **constraints}


def _describe_delegate(op: Op, args: Any, node: fx.Node) -> None:
    """Describe a delegate call by the fields of the module that it calls."""
    lowered, *inputs = args
    op.kind = "delegate"
    input_orders, output_orders = node.meta["delegate_orders"]
    constants = [_delegate_constant(f"{node.name}_constant_{i}", data) for i, data in enumerate(lowered.constants)]
    inputs, input_orders = [*inputs, *constants], [*input_orders, *(v.dim_order for v in constants)]
    op.args = {"id": lowered.backend_id, "blob": lowered.processed_bytes, "specs": dict(lowered.compile_specs),
               "named": lowered.named_data, "twin": lowered.twin, "overread": lowered.overread, "inputs": inputs,
               "orders": input_orders, "estimates": lowered.estimates, "layers": lowered.layers}  # fmt: skip
    for value, order in zip(op.outputs, output_orders, strict=True):
        if value is not None:
            value.dim_order = order


def _delegate_constant(name: str, data: Array) -> Value:
    return Value(name, data.dtype, data.shape, tuple(range(data.ndim)), data)


# ------------------------------------------------------------------------------------------------ control flow


def _import_branches(importer: _Importer, op: Op) -> None:
    """Import the subgraphs of a control flow operator, and name its arguments.

    Subgraphs capture operands: they read the outer graph's values directly. Loop-carried values are the outputs of the
    loop operator, which its subgraphs read; the outputs of the body are their next values. ``inputs`` of a body are
    slices of ``xs``.
    """
    args = list(op.args.values())
    if op.kind == "cond":
        op.args = {"pred": args[0], "operands": list(args[3])}
        op.graphs = {
            name: _import_subgraph(importer, args[i], name, args[3]) for i, name in ((1, "true"), (2, "false"))
        }
    elif op.kind == "while_loop":
        op.args = {"initial": list(args[2]), "operands": list(args[3])}
        bindings = [*op.outputs, *args[3]]
        op.graphs = {
            name: _import_subgraph(importer, args[i], name, bindings) for i, name in ((0, "condition"), (1, "body"))
        }
    elif op.kind in ("map_impl", "scan"):
        initial, xs, operands = ([], *args[1:]) if op.kind == "map_impl" else args[1:]
        op.args = {"initial": list(initial), "xs": list(xs), "operands": list(operands)}
        bindings = [*op.outputs[: len(initial)], *([_SLICE] * len(xs)), *operands]
        op.graphs = {"body": _import_subgraph(importer, args[0], "body", bindings)}


_SLICE = object()


def _import_subgraph(importer: _Importer, module: fx.GraphModule, name: str, bindings: Iterable[Any]) -> Graph:
    child = type(importer)(importer.exported, name)
    child.module = module
    for node, value in zip(module.graph.find_nodes(op="placeholder"), bindings, strict=True):
        if value is _SLICE:
            value = child._value(node)
            value.dim_order = tuple(range(len(value.shape)))
            child.graph.inputs.append(value)
        child.env[node] = value
    for node in module.graph.nodes:
        if node.op not in ("placeholder", "output"):
            child.visit(node)
    results = child._read(module.graph.output_node().args[0])
    child.graph.outputs = list(results) if isinstance(results, tuple | list) else [results]
    return child.graph


# ------------------------------------------------------------------------------------------------------- names


def kind_of(target: Any) -> str:
    """An operator's name: ``aten.add.Tensor``, ``operator.mul``."""
    if isinstance(target, torch._ops.OpOverload | torch._ops.HigherOrderOperator):
        return str(target)
    module = getattr(target, "__module__", "") or ""
    return f"{module.lstrip('_')}.{target.__name__}"


def named_arguments(target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """A call's arguments by name, in schema order, with defaults."""
    if not isinstance(target, torch._ops.OpOverload):
        return {**{f"arg{i}": a for i, a in enumerate(args)}, **kwargs}
    by_name = {}
    for position, argument in enumerate(target._schema.arguments):
        if position < len(args) and not argument.kwarg_only:
            value = args[position]
        else:
            value = kwargs.get(argument.name, argument.default_value if argument.has_default_value() else None)
        by_name[argument.name] = _expand_int_list(value, argument)
    return by_name


def _expand_int_list(value: Any, argument: Any) -> Any:
    """``stride=2`` where the schema says ``int[2]`` means ``[2, 2]``."""
    if (
        isinstance(value, int)
        and not isinstance(value, bool)
        and argument.N
        and "int[" in str(argument.real_type).lower()
    ):
        return [value] * argument.N
    return list(value) if isinstance(value, tuple) else value
