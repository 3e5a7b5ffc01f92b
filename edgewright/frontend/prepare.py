"""``prepare``: an ExportedProgram in, one of the same meaning out, functional and made of taken operators only."""

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
from edgewright.frontend.constant_eval import written
from edgewright.frontend.delegate import executorch_call_delegate
from edgewright.frontend.functional import Functional
from edgewright.frontend.replace_graph import with_graph
from edgewright.frontend.rewriter import Rewriter, Takes, fake_mode

log = logging.getLogger("edgewright.frontend")
aten = torch.ops.aten
_WRITES = (OutputKind.BUFFER_MUTATION, OutputKind.USER_INPUT_MUTATION)
_INNER_TENSOR = torch.ops.export.access_subclass_inner_tensor.default


def prepare(
    exported: ExportedProgram, takes: Takes, kept: Collection[Any] = frozenset(), *, strict: bool = True
) -> ExportedProgram:
    """Rewrite a program into operators that ``takes`` accepts. Weights are shared with the original, not copied.

    Operators in ``kept`` stay as they are. Unless ``strict``, so does what nothing takes and nothing decomposes.
    """
    try:
        return Walk(exported, Rewriter(takes, kept, strict)).program()
    except NeedsRetrace as reason:
        log.warning("retracing the whole graph: %s is not covered by rewrites", reason)
        return _retraced(exported, Rewriter(takes, kept, strict))


def _retraced(exported: ExportedProgram, rewriter: Rewriter) -> ExportedProgram:
    try:
        return Walk(exported.run_decompositions({}), rewriter).program()
    except NeedsRetrace as reason:
        raise rewriter.unsupported(str(reason), "cannot be made functional") from reason


class Walk(Functional):
    """One pass over the nodes of a program. ``attributes`` are the branches and constants that the new graph holds."""

    def __init__(self, exported: Any, rewriter: Rewriter) -> None:
        super().__init__(rewriter)
        self.exported = exported
        self.module: fx.GraphModule = exported.graph_module  # the one being read
        rewriter.mode = rewriter.mode or fake_mode(n.meta.get("val") for n in self.module.graph.nodes)
        if hasattr(exported, "graph_signature"):
            rewriter.known.held, rewriter.hold = self._constant, self.hold
        self.attributes: dict[str, Any] = {}
        self.placeholders: dict[str, fx.Node] = {}
        self.inlined: set[fx.Node] = set()  # results of wrapped graphs: defined where the graph was walked

    def program(self) -> ExportedProgram:
        made: ExportedProgram = self.run()
        return made

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
            new.name = node.name  # a new graph would not name a node after a builtin
            new.meta.update(node.meta)
            self.placeholders[node.name] = node
            self.aliases.define(node, new)
        elif node.op == "get_attr":
            new = self.rewriter.graph.get_attr(self._held(str(node.target)))
            new.meta.update(node.meta)
            self.aliases.define(node, new)
        elif node.op == "call_function":
            self._call(node)

    @cached_property
    def _written(self) -> set[str] | None:
        """What the program changes as it runs; None if graphs within it do, which have other names for it."""
        root = self.exported.graph_module
        inner = [m for m in root.modules() if isinstance(m, fx.GraphModule) and m is not root]
        if any(written(m.graph.nodes) for m in inner):
            return None
        return written(root.graph.nodes) | set(self.exported.graph_signature.buffers_to_mutate.values())

    def _constant(self, node: fx.Node) -> Any:
        """The weight or constant that an input or attribute of the new graph is; None for any other."""
        name = target = str(node.target)
        if node.op == "placeholder":
            specs = self.exported.graph_signature.input_specs
            known = (str(s.target) for s in specs if s.arg.name == node.name and s.kind != InputKind.USER_INPUT)
            target = next(known, "")
        if not target or self._written is None or not self._written.isdisjoint((name, target)):
            return None
        held = (self.exported.state_dict, self.exported.constants, self.attributes)
        return next((each[target] for each in held if target in each), None)

    def hold(self, value: torch.Tensor) -> fx.Node:
        """A constant of the new graph; equal ones are one."""
        names = (f"known_{n}" for n in itertools.count())
        name = next(n for n in names if n not in self.attributes or _same(self.attributes[n], value))
        self.attributes[name] = value
        new = self.rewriter.graph.get_attr(name)
        assert self.rewriter.mode is not None
        new.meta["val"] = self.rewriter.mode.from_tensor(value, static_shapes=True)
        return new

    def _held(self, target: str) -> str:
        """The name an attribute of the module being read has in the new one."""
        held = operator.attrgetter(target)(self.module)
        name, count = target, 0
        while self.attributes.setdefault(name, held) is not held:
            count += 1
            name = f"{target}_{count}"
        return name

    def _call(self, node: fx.Node, val: Any = None) -> None:
        if node.target is executorch_call_delegate:
            self._symbolic(node)
        elif node.target is _INNER_TENSOR:
            self._inner(node)
        elif isinstance(node.target, torch._ops.HigherOrderOperator):
            from edgewright.frontend.control_flow import lower_higher_order

            lower_higher_order(self, node)
        elif node not in self.inlined:
            super()._call(node, val)

    def _inner(self, node: fx.Node) -> None:
        """A part of a weight that is several tensors (quantized by torchao): a constant of its own."""
        path: list[str] = []
        holder: Any = node
        while isinstance(holder, fx.Node) and holder.target is _INNER_TENSOR:
            path.insert(0, str(holder.args[1]))
            holder = holder.args[0]
        specs = {s.arg.name: str(s.target) for s in self.exported.graph_signature.input_specs}
        target = specs[holder.name]
        held = self.exported.state_dict.get(target, self.exported.constants.get(target))
        name = "_".join([*target.split("."), *path])
        self.attributes[name] = operator.attrgetter(".".join(path))(held)
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
            new = self.aliases.written(node) if node is not None else None
            if new is None or spec.target in mutated:
                continue
            kind = OutputKind.USER_INPUT_MUTATION if spec.kind == InputKind.USER_INPUT else OutputKind.BUFFER_MUTATION
            target = spec.arg.name if spec.kind == InputKind.USER_INPUT else spec.target
            position = sum(s.kind != OutputKind.USER_OUTPUT for s in specs)
            specs.insert(position, OutputSpec(kind, TensorArgument(name=""), target))
            results.insert(position, new)
        self._separate(specs, results)
        end = self.rewriter.graph.output(tuple(results))
        end.meta.update(output.meta)
        return self._program(_renamed(specs, results))

    def _separate(self, specs: list[OutputSpec], results: list[Any]) -> None:
        """Give every write a node of its own: signatures name writes by their nodes."""
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


def _renamed(specs: list[OutputSpec], results: list[Any]) -> list[OutputSpec]:
    """Output specs that name the nodes now returned."""
    renamed = []
    for spec, result in zip(specs, results, strict=True):
        argument: Any = spec.arg
        if isinstance(result, fx.Node) and hasattr(argument, "name"):
            argument = type(argument)(name=result.name)
        renamed.append(OutputSpec(spec.kind, argument, spec.target))
    return renamed


from torch._export.verifier import Verifier  # noqa: E402


class _AnyGraph(Verifier):
    """Our graphs are checked by the importer; torch's own dialect rules do not apply to them."""

    dialect = "EDGEWRIGHT"

    def allowed_getattr_types(self) -> tuple[type[Any], ...]:
        return (*super().allowed_getattr_types(), torch.Tensor)

    def check_valid_op(self, op: Any) -> None:
        return None
