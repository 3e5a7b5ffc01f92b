"""``prepare``: an ExportedProgram in, one of the same meaning out, functional and made of taken operators only."""

from __future__ import annotations

import logging
import operator
from collections.abc import Collection
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
from torch.utils import _pytree as pytree

from edgewright.frontend.aliases import Aliases, NeedsRetrace, Step, functional_of, viewed_argument
from edgewright.frontend.rewriter import Rewriter, Takes

log = logging.getLogger("edgewright.frontend")
aten = torch.ops.aten


def prepare(
    exported: ExportedProgram, takes: Takes, kept: Collection[Any] = frozenset(), *, strict: bool = True
) -> ExportedProgram:
    """Rewrite a program into operators that ``takes`` accepts. Weights are shared with the original, not copied.

    Operators in ``kept`` stay as they are. Unless ``strict``, so does what nothing takes and nothing decomposes.
    """
    try:
        return _Walk(exported, Rewriter(takes, kept, strict)).run()
    except NeedsRetrace as reason:
        log.warning("retracing the whole graph: %s is not covered by rewrites", reason)
        return _Walk(exported.run_decompositions({}), Rewriter(takes, kept, strict)).run()


class _Walk:
    """One pass over the nodes of a program."""

    def __init__(self, exported: ExportedProgram, rewriter: Rewriter) -> None:
        self.exported = exported
        self.rewriter = rewriter
        self.aliases = Aliases(rewriter)

    def run(self) -> ExportedProgram:
        placeholders: dict[str, fx.Node] = {}
        for node in self.exported.graph.nodes:
            self.rewriter.origin = node if node.op == "call_function" else None
            if node.op == "placeholder":
                new = self.rewriter.graph.placeholder(node.target)
                new.name = node.name  # a new graph would not name a node after a builtin
                new.meta.update(node.meta)
                placeholders[node.name] = node
                self.aliases.define(node, new)
            elif node.op == "get_attr":
                new = self.rewriter.graph.get_attr(node.target)
                new.meta.update(node.meta)
                self.aliases.define(node, new)
            elif node.op == "call_function":
                self._call(node)
            elif node.op == "output":
                return self._finish(node, placeholders)
        raise AssertionError("a graph has an output")

    def _read(self, tree: Any) -> Any:
        return pytree.tree_map_only(fx.Node, self.aliases.read, tree)

    def _call(self, node: fx.Node) -> None:
        op: Any = node.target
        if op is operator.getitem and isinstance(self.aliases.read(node.args[0]), list | tuple):  # type: ignore[arg-type]
            self.aliases.define(node, self.aliases.read(node.args[0])[node.args[1]])  # type: ignore[arg-type]
            return
        if isinstance(op, torch._ops.HigherOrderOperator):
            from edgewright.frontend.control import lower_higher_order

            self.aliases.define(node, lower_higher_order(self.rewriter, self.exported, node, self._read(node.args)))
            return
        if not isinstance(op, torch._ops.OpOverload):
            self._symbolic(node)
            return
        if op._schema.is_mutable:
            self._mutation(node)
            return
        result = self.rewriter.call(op, *self._read(node.args), val=node.meta.get("val"), **self._read(node.kwargs))
        viewed = viewed_argument(op)
        source = node.args[viewed] if viewed is not None and viewed < len(node.args) else None
        if isinstance(source, fx.Node) and isinstance(result, fx.Node):
            rest = tuple(self._read(node.args[viewed + 1 :]))  # type: ignore[operator]
            self.aliases.define_view(node, source, Step(op, rest, self._read(node.kwargs)), result)
        else:
            self.aliases.define(node, result)

    def _symbolic(self, node: fx.Node) -> None:
        """Arithmetic on sizes stays as it is."""
        self.aliases.define(node, self.rewriter.emit(node.target, self._read(node.args), val=node.meta["val"]))

    def _mutation(self, node: fx.Node) -> None:
        op: Any = node.target
        target = node.args[0]
        written = [a.name for a in op._schema.arguments if a.alias_info and a.alias_info.is_write]
        if len(written) != 1 or not isinstance(target, fx.Node) or op._schema.arguments[0].name != written[0]:
            if op in _ASSERTIONS:
                return
            raise NeedsRetrace(f"{op}")
        args, kwargs = self._read(node.args), self._read(node.kwargs)
        val = target.meta["val"]
        if op is aten.copy_.default:
            result = self._copied(args[0], args[1])
        else:
            functional = functional_of(op)
            result = self.rewriter.call(functional, *args, val=None, **kwargs)
            if result.meta["val"].dtype != val.dtype:
                result = self.rewriter.call(aten._to_copy.default, result, dtype=val.dtype)
        self.aliases.write(target, result)
        self.aliases.define_same(node, target)

    def _copied(self, target: fx.Node, source: fx.Node) -> Any:
        """What ``target`` holds after ``target.copy_(source)``."""
        wanted, given = target.meta["val"], source.meta["val"]
        if given.dtype != wanted.dtype:
            source = self.rewriter.call(aten._to_copy.default, source, dtype=wanted.dtype)
        if given.shape != wanted.shape:
            source = self.rewriter.call(aten.expand.default, source, self.rewriter.shape(target))
        return source

    def _finish(self, output: fx.Node, placeholders: dict[str, fx.Node]) -> ExportedProgram:
        signature = self.exported.graph_signature
        results = list(self._read(output.args[0]))
        specs = list(signature.output_specs)
        mutated = {s.target for s in specs if s.kind in (OutputKind.BUFFER_MUTATION, OutputKind.USER_INPUT_MUTATION)}
        for spec in signature.input_specs:
            node = placeholders.get(spec.arg.name)
            new = self.aliases.written(node) if node is not None else None
            if new is None or spec.target in mutated:
                continue
            kind = OutputKind.USER_INPUT_MUTATION if spec.kind == InputKind.USER_INPUT else OutputKind.BUFFER_MUTATION
            target = spec.arg.name if spec.kind == InputKind.USER_INPUT else spec.target
            position = sum(s.kind != OutputKind.USER_OUTPUT for s in specs)
            specs.insert(position, OutputSpec(kind, TensorArgument(name=""), target))
            results.insert(position, new)
        end = self.rewriter.graph.output(tuple(results))
        end.meta.update(output.meta)
        return self._program(_renamed(specs, results))

    def _program(self, specs: list[OutputSpec]) -> ExportedProgram:
        self.rewriter.graph.eliminate_dead_code()
        root = self.exported.graph_module
        module = fx.GraphModule(root, self.rewriter.graph)
        module.meta.update(root.meta)
        signature = ExportGraphSignature(self.exported.graph_signature.input_specs, specs)
        return ExportedProgram(
            root=module,
            graph=module.graph,
            graph_signature=signature,
            state_dict=self.exported.state_dict,
            range_constraints=self.exported.range_constraints,
            module_call_graph=self.exported.module_call_graph,
            example_inputs=self.exported.example_inputs,
            constants=self.exported.constants,
            verifiers=[_AnyGraph],
        )


_ASSERTIONS = {aten._assert_async.msg, aten._assert_async.default}


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

    def check_valid_op(self, op: Any) -> None:
        return None
