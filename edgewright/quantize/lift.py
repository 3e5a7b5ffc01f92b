"""The exported program of a converted model, without tracing it again."""

# ``ExportedProgram.module()`` makes placeholders of weights into attributes of a module, ``convert_pt2e`` inserts
# quantize and dequantize operators between its nodes. ``torch.export.export`` would execute all of it once more, with
# fake tensors and Python's dispatcher, a third of the time that quantizing a network takes. Little new can come of it:
# every node already is an ATen operator, and most have their fake result from the first export. So attributes become
# placeholders again, inputs, outputs and the ranges of symbols are those of the first export, and a node is executed
# only if the first export does not have it with the same operator and operands of the same types and layouts.
# To read: torch/export/exported_program.py, and ``ExportGraphSignature`` in torch/export/graph_signature.py.

from __future__ import annotations

import operator
import re
from collections.abc import Iterator
from typing import Any

import torch
from torch import fx
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses import FakeTensor, FakeTensorMode
from torch.export import ExportedProgram, ExportGraphSignature
from torch.export.graph_signature import ConstantArgument, InputKind, InputSpec, OutputKind, OutputSpec, TensorArgument

_PREFIXES = {InputKind.PARAMETER: "p", InputKind.BUFFER: "b"}


def lift(converted: fx.GraphModule, exported: ExportedProgram) -> ExportedProgram | None:
    """The program of a model that was made from ``exported.module()``; None if it has to be traced: it contains control
    flow, or its inputs and outputs are no longer those of the program."""
    return _Lifting(converted, exported).run() if _is_liftable(converted, exported) else None


def _is_liftable(converted: fx.GraphModule, exported: ExportedProgram) -> bool:
    nodes = list(converted.graph.nodes)
    attributes = [_attribute(converted, node) for node in nodes if node.op == "get_attr"]
    inputs = [node for node in nodes if node.op == "placeholder"]
    outputs = exported.graph_signature.output_specs
    return (
        all(isinstance(value, torch.Tensor) for value in attributes)
        and all(spec.kind == OutputKind.USER_OUTPUT for spec in outputs)
        and len(inputs) == sum(spec.kind == InputKind.USER_INPUT for spec in exported.graph_signature.input_specs)
        and len(nodes[-1].args[0]) == len(outputs)
        and any(isinstance(node.meta.get("val"), FakeTensor) for node in nodes)
        and all(node.op != "call_module" or _is_guard(node) for node in nodes)
    )


def _attribute(module: torch.nn.Module, node: fx.Node) -> Any:
    return operator.attrgetter(str(node.target))(module)


def _is_guard(node: fx.Node) -> bool:
    """True for the module that compares inputs with the example inputs; export adds it to the modules it returns."""
    return node.op == "call_module" and not node.users and node.target == "_guards_fn"


class _Lifting:
    def __init__(self, converted: fx.GraphModule, exported: ExportedProgram) -> None:
        self._converted = converted
        self._exported = exported
        self._graph = fx.Graph()
        self._copies: dict[fx.Node, fx.Node] = {}
        self._originals = {node.name: node for node in exported.graph.nodes}
        self._input_specs: list[InputSpec] = []
        self._state: dict[str, torch.Tensor] = {}
        self._constants: dict[str, Any] = {}
        values = (node.meta.get("val") for node in converted.graph.nodes)
        self._fake_mode: FakeTensorMode = next(v.fake_mode for v in values if isinstance(v, FakeTensor))

    def run(self) -> ExportedProgram:
        self._lift_weights()
        specs = [s for s in self._exported.graph_signature.input_specs if s.kind == InputKind.USER_INPUT]
        inputs = [node for node in self._converted.graph.nodes if node.op == "placeholder"]
        for node, spec in zip(inputs, specs, strict=True):
            self._copy(node)
            self._input_specs.append(InputSpec(spec.kind, _renamed(spec.arg, self._copies[node].name), spec.target))
        for node in self._converted.graph.nodes:
            if node.op in ("call_function", "output"):
                self._copy(node)
        return self._program()

    def _lift_weights(self) -> None:
        """One placeholder for each attribute that is read: parameters first, then buffers, as ``torch.export`` does."""
        readers: dict[str, list[fx.Node]] = {}
        for node in self._converted.graph.nodes:
            if node.op == "get_attr":
                readers.setdefault(str(node.target), []).append(node)
        order = {name: position for position, name in enumerate(_names(self._converted))}
        for target in sorted(readers, key=lambda name: order.get(name, len(order))):
            value = _attribute(self._converted, readers[target][0])
            kind = InputKind.PARAMETER if isinstance(value, torch.nn.Parameter) else InputKind.BUFFER
            persistent = None if kind == InputKind.PARAMETER else self._is_persistent(target)
            placeholder = self._graph.placeholder(f"{_PREFIXES[kind]}_{target.replace('.', '_')}")
            placeholder.target = placeholder.name  # an identifier, and no other's: the graph's code has it as parameter
            placeholder.meta["val"] = self._fake_mode.from_tensor(value.detach(), static_shapes=True)
            for node in readers[target]:
                self._copies[node] = placeholder
            self._input_specs.append(InputSpec(kind, TensorArgument(placeholder.name), target, persistent))
            (self._constants if persistent is False else self._state)[target] = value

    def _is_persistent(self, target: str) -> bool:
        path, _, name = target.rpartition(".")
        return name not in self._converted.get_submodule(path)._non_persistent_buffers_set

    def _copy(self, node: fx.Node) -> None:
        copy = self._copies[node] = self._graph.node_copy(node, lambda n: self._copies[n])
        if node.op != "call_function" or self._has_result(copy):
            return
        if isinstance(copy.target, torch._ops.OpOverload):
            _rename(copy, str(copy.target.overloadpacket.__name__))
        args, kwargs = fx.map_arg((copy.args, copy.kwargs), lambda n: n.meta["val"])
        with self._fake_mode, enable_python_dispatcher(), torch.no_grad():
            copy.meta["val"] = copy.target(*args, **kwargs)  # type: ignore[operator]

    def _has_result(self, copy: fx.Node) -> bool:
        """True if the first export executed a node with this operator and such operands."""
        original = self._originals.get(copy.name)
        return (
            original is not None and original.target == copy.target and "val" in copy.meta
            and _operands(original) == _operands(copy)
        )  # fmt: skip

    def _program(self) -> ExportedProgram:
        results: Any = self._graph.output_node().args[0]
        specs = self._exported.graph_signature.output_specs
        outputs = [
            OutputSpec(s.kind, _renamed(s.arg, n.name) if isinstance(n, fx.Node) else s.arg, s.target)
            for n, s in zip(results, specs, strict=True)
        ]
        return ExportedProgram(
            root=torch.nn.Module(), graph=self._graph,
            graph_signature=ExportGraphSignature(self._input_specs, outputs),
            state_dict=self._state, range_constraints=self._exported.range_constraints,
            module_call_graph=self._exported.module_call_graph[:1], example_inputs=self._exported.example_inputs,
            constants=self._constants, verifiers=self._exported.verifiers,
        )  # fmt: skip


def _names(module: torch.nn.Module) -> Iterator[str]:
    for named in (module.named_parameters(remove_duplicate=False), module.named_buffers(remove_duplicate=False)):
        for name, _ in named:
            yield name


def _rename(node: fx.Node, operator_name: str) -> None:
    """Name a node by its operator, as tracing does."""
    if not re.fullmatch(operator_name + r"(_\d+)?", node.name):
        node._rename(operator_name)


def _operands(node: fx.Node) -> str:
    """The operands of a node, with the type and layout of each in its place."""
    return str(fx.map_arg((node.args, node.kwargs), lambda n: _layout(n.meta.get("val"))))


def _layout(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return f"{value.dtype} {list(value.shape)} {list(value.stride())}"
    return [_layout(v) for v in value] if isinstance(value, list | tuple) else str(value)


def _renamed(argument: Any, name: str) -> Any:
    return argument if isinstance(argument, ConstantArgument) else type(argument)(name)
