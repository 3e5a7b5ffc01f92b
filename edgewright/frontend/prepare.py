"""``prepare``: rewrites an ExportedProgram into an equivalent functional one of supported operators only."""

from __future__ import annotations

import itertools
import logging
import operator
from collections.abc import Collection
from functools import cached_property
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import (
    ExportGraphSignature,
    InputKind,
    OutputKind,
    OutputSpec,
    TensorArgument,
)

from edgewright.frontend.aliases import NeedsRetrace
from edgewright.frontend.constant_eval import written_names
from edgewright.frontend.delegate import executorch_call_delegate
from edgewright.frontend.functional import Functionalizer
from edgewright.frontend.replace_graph import with_graph
from edgewright.frontend.rewriter import IsSupported, Rewriter, fake_mode

log = logging.getLogger("edgewright.frontend")
aten = torch.ops.aten
_WRITES = (OutputKind.BUFFER_MUTATION, OutputKind.USER_INPUT_MUTATION)
_INNER_TENSOR = torch.ops.export.access_subclass_inner_tensor.default


def prepare(
    exported: ExportedProgram,
    is_supported: IsSupported,
    no_decompose: Collection[Any] = frozenset(),
    *,
    strict: bool = True,
) -> ExportedProgram:
    """Rewrite a program into operators for which ``is_supported`` is True. Weights are shared with the original.

    Operators in ``no_decompose`` stay as they are. Unless ``strict``, so do operators that have neither a kernel nor a
    decomposition.
    """
    try:
        return ProgramFunctionalizer(exported, Rewriter(is_supported, no_decompose, strict)).program()
    except NeedsRetrace as reason:
        log.warning("retracing the entire graph: functionalization does not support %s", reason)
        return _retrace_and_rewrite(exported, Rewriter(is_supported, no_decompose, strict))


def _retrace_and_rewrite(exported: ExportedProgram, rewriter: Rewriter) -> ExportedProgram:
    try:
        return ProgramFunctionalizer(exported.run_decompositions({}), rewriter).program()
    except NeedsRetrace as reason:
        raise rewriter.unsupported(str(reason), "cannot be made functional") from reason


class ProgramFunctionalizer(Functionalizer):
    """Functionalizes an exported program. ``attributes`` are the subgraphs and constants of the new graph."""

    def __init__(self, exported: Any, rewriter: Rewriter) -> None:
        super().__init__(rewriter)
        self.exported = exported
        self.module: fx.GraphModule = exported.graph_module  # the one being rewritten
        rewriter.mode = rewriter.mode or fake_mode(n.meta.get("val") for n in self.module.graph.nodes)
        if hasattr(exported, "graph_signature"):
            rewriter.constants.lookup, rewriter.add_constant = self._constant, self.add_constant
        self.attributes: dict[str, Any] = {}
        self.placeholders: dict[str, fx.Node] = {}
        self.inlined: set[fx.Node] = set()  # results of inlined subgraphs: already defined

    def program(self) -> ExportedProgram:
        result: ExportedProgram = self.run()
        return result

    def run(self) -> Any:
        for node in self.module.graph.nodes:
            if node.op == "output":
                return self._finish(node)
            self.visit(node)
        raise AssertionError("a graph has an output")

    def visit(self, node: fx.Node) -> None:
        self.rewriter.origin = node if node.op == "call_function" else None
        if node.op == "placeholder":
            new = self.rewriter.graph.placeholder(node.target)  # type: ignore[arg-type]
            new.name = node.name  # fx refuses names of builtins in a new graph
            new.meta.update(node.meta)
            self.placeholders[node.name] = node
            self.aliases.define(node, new)
        elif node.op == "get_attr":
            new = self.rewriter.graph.get_attr(self._copy_attribute(str(node.target)))
            new.meta.update(node.meta)
            self.aliases.define(node, new)
        elif node.op == "call_function":
            self._call(node)

    @cached_property
    def _written_names(self) -> set[str] | None:
        """Names of the tensors that the program writes; None if a subgraph writes any, since it uses other names."""
        root = self.exported.graph_module
        inner = [m for m in root.modules() if isinstance(m, fx.GraphModule) and m is not root]
        if any(written_names(m.graph.nodes) for m in inner):
            return None
        return written_names(root.graph.nodes) | set(self.exported.graph_signature.buffers_to_mutate.values())

    def _constant(self, node: fx.Node) -> Any:
        """The weight or constant behind an input or attribute of the new graph; None for any other node."""
        name = target = str(node.target)
        if node.op == "placeholder":
            specs = self.exported.graph_signature.input_specs
            targets = (str(s.target) for s in specs if s.arg.name == node.name and s.kind != InputKind.USER_INPUT)
            target = next(targets, "")
        if not target or self._written_names is None or not self._written_names.isdisjoint((name, target)):
            return None
        tables = (self.exported.state_dict, self.exported.constants, self.attributes)
        return next((table[target] for table in tables if target in table), None)

    def add_constant(self, value: torch.Tensor) -> fx.Node:
        """Add a constant to the new graph; equal constants share an attribute."""
        names = (f"known_{n}" for n in itertools.count())
        name = next(n for n in names if n not in self.attributes or _same(self.attributes[n], value))
        self.attributes[name] = value
        new = self.rewriter.graph.get_attr(name)
        assert self.rewriter.mode is not None
        new.meta["val"] = self.rewriter.mode.from_tensor(value, static_shapes=True)
        return new

    def _copy_attribute(self, target: str) -> str:
        """The name, in the new module, of an attribute of the module being rewritten."""
        attribute = operator.attrgetter(target)(self.module)
        name, count = target, 0
        while self.attributes.setdefault(name, attribute) is not attribute:
            count += 1
            name = f"{target}_{count}"
        return name

    def _call(self, node: fx.Node, val: Any = None) -> None:
        if node.target is executorch_call_delegate:
            self._symbolic(node)
        elif node.target is _INNER_TENSOR:
            self._inner_tensor(node)
        elif isinstance(node.target, torch._ops.HigherOrderOperator):
            from edgewright.frontend.control_flow import lower_higher_order

            lower_higher_order(self, node)
        elif node not in self.inlined:
            super()._call(node, val)

    def _inner_tensor(self, node: fx.Node) -> None:
        """Make an inner tensor of a tensor subclass (a weight quantized by torchao) a constant."""
        path: list[str] = []
        holder: Any = node
        while isinstance(holder, fx.Node) and holder.target is _INNER_TENSOR:
            path.insert(0, str(holder.args[1]))
            holder = holder.args[0]
        specs = {s.arg.name: str(s.target) for s in self.exported.graph_signature.input_specs}
        target = specs[holder.name]
        tensor = self.exported.state_dict.get(target, self.exported.constants.get(target))
        name = "_".join([*target.split("."), *path])
        self.attributes[name] = operator.attrgetter(".".join(path))(tensor)
        new = self.rewriter.graph.get_attr(name)
        new.meta.update(node.meta)
        self.aliases.define(node, new)

    def _finish(self, output: fx.Node) -> Any:
        signature = self.exported.graph_signature
        results = list(self._read(output.args[0]))
        specs = list(signature.output_specs)
        mutated = {s.target for s in specs if s.kind in _WRITES}
        for spec in signature.input_specs:
            node = self.placeholders.get(spec.arg.name)
            new = self.aliases.final_write(node) if node is not None else None
            if new is None or spec.target in mutated:
                continue
            kind = OutputKind.USER_INPUT_MUTATION if spec.kind == InputKind.USER_INPUT else OutputKind.BUFFER_MUTATION
            target = spec.arg.name if spec.kind == InputKind.USER_INPUT else spec.target
            position = sum(s.kind != OutputKind.USER_OUTPUT for s in specs)
            specs.insert(position, OutputSpec(kind, TensorArgument(name=""), target))
            results.insert(position, new)
        self._separate_writes(specs, results)
        end = self.rewriter.graph.output(tuple(results))
        end.meta.update(output.meta)
        return self._program(_rename_outputs(specs, results))

    def _separate_writes(self, specs: list[OutputSpec], results: list[Any]) -> None:
        """Give every write a distinct node: signatures refer to writes by node name."""
        named: set[fx.Node] = set()
        for index, spec in enumerate(specs):
            if spec.kind in _WRITES and results[index] in named:
                results[index] = self.rewriter.call(aten.clone.default, results[index])
            if spec.kind in _WRITES:
                named.add(results[index])

    def _program(self, specs: list[OutputSpec]) -> ExportedProgram:
        self.rewriter.graph.eliminate_dead_code()
        root = self.exported.graph_module
        module = fx.GraphModule(self.attributes, self.rewriter.graph)
        module.meta.update(root.meta)
        signature = ExportGraphSignature(self.exported.graph_signature.input_specs, specs)
        return with_graph(self.exported, module, signature, [_AnyGraph])


def _same(a: Any, b: torch.Tensor) -> bool:
    return isinstance(a, torch.Tensor) and a.dtype == b.dtype and torch.equal(a, b)


def _rename_outputs(specs: list[OutputSpec], results: list[Any]) -> list[OutputSpec]:
    """Output specs with the names of the returned nodes."""
    renamed = []
    for spec, result in zip(specs, results, strict=True):
        argument: Any = spec.arg
        if isinstance(result, fx.Node) and hasattr(argument, "name"):
            argument = type(argument)(name=result.name)
        renamed.append(OutputSpec(spec.kind, argument, spec.target))
    return renamed


from torch._export.verifier import Verifier  # noqa: E402


class _AnyGraph(Verifier):
    """Accepts any operator: the importer verifies the graph, and torch's dialect rules do not apply to it."""

    dialect = "EDGEWRIGHT"

    def allowed_getattr_types(self) -> tuple[type[Any], ...]:
        return (*super().allowed_getattr_types(), torch.Tensor)

    def check_valid_op(self, op: Any) -> None:
        return None
