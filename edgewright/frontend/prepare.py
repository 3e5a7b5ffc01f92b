"""``prepare``: rewrites an ExportedProgram into an equivalent functional one of supported operators only."""

from __future__ import annotations

import itertools
import logging
import operator
from collections.abc import Collection, Iterable
from functools import cached_property
from typing import Any

import torch
from torch import fx
from torch._export.verifier import Verifier
from torch.export import ExportedProgram
from torch.export.graph_signature import (
    ExportGraphSignature,
    InputKind,
    OutputKind,
    OutputSpec,
    TensorArgument,
)
from torch.fx.experimental.proxy_tensor import make_fx

from edgewright.frontend.aliases import NeedsRetrace
from edgewright.frontend.decompose.canonical import to_dtype
from edgewright.frontend.decompose.driver import DecomposingRewriter
from edgewright.frontend.delegate import executorch_call_delegate
from edgewright.frontend.functional import Functionalizer
from edgewright.frontend.mutation import written_names
from edgewright.frontend.replace_graph import with_graph
from edgewright.frontend.rewriter import IsSupported, Remedy, Rewriter, fake_mode

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
    remedy: Remedy = lambda op: "",
    pack_embeddings: bool = False,
) -> ExportedProgram:
    """Rewrite a program into operators for which ``is_supported`` is True. Weights are shared with the original.

    Operators in ``no_decompose`` stay as they are. Unless ``strict``, so do operators that have neither a kernel nor a
    decomposition; else they are an error, with what ``remedy`` says about them. ``pack_embeddings``: no backend will
    look for quantized embeddings any more, so pack their tables.
    """
    options = (is_supported, no_decompose, strict, remedy, pack_embeddings)
    try:
        return ProgramFunctionalizer(exported, DecomposingRewriter(*options)).program()
    except NeedsRetrace as reason:
        log.warning("retracing the entire graph: functionalization does not support %s", reason)
        return _retrace_and_rewrite(exported, DecomposingRewriter(*options))


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
            # Named as before: an input may have the attribute's name.
            attribute = self._copy_attribute(str(node.target))
            new = self.rewriter.graph.create_node("get_attr", attribute, name=node.name)
            new.meta.update(node.meta)
            self.aliases.define(node, new)
        elif node.op == "call_function":
            dynamic = self._dynamic_sizes  # as they are before the first call
            self._call(node)
            self._check_dynamic(dynamic, node)

    @cached_property
    def _dynamic_sizes(self) -> list[tuple[str, int, Any]]:
        """Inputs and dimensions whose size is not fixed."""
        values = ((name, node.meta.get("val")) for name, node in self.placeholders.items())
        tensors = ((name, value) for name, value in values if isinstance(value, torch.Tensor))
        sizes = ((name, dim, size) for name, value in tensors for dim, size in enumerate(value.shape))
        return [(n, d, s) for n, d, s in sizes if isinstance(s, torch.SymInt) and not s.node.expr.is_number]

    def _check_dynamic(self, sizes: list[tuple[str, int, Any]], node: fx.Node) -> None:
        """Raise if a rewrite has compared a dynamic size with a number, which fixes it for the entire program."""
        for name, dim, size in sizes:
            if size.node.expr.is_number:
                reason = f"fixes dimension {dim} of {name!r}, which is dynamic, to {int(size)} where it is decomposed"
                raise self.rewriter.unsupported(node.target, reason)

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
        name = next(n for n in names if n not in self.attributes or _is_same_tensor(self.attributes[n], value))
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
            _lower_higher_order(self, node)
        elif node not in self.inlined:
            super()._call(node, val)

    def _inner_tensor(self, node: fx.Node) -> None:
        """Make an inner tensor of a tensor subclass (a weight quantized by torchao) a constant."""
        path: list[str] = []
        owner: Any = node
        while isinstance(owner, fx.Node) and owner.target is _INNER_TENSOR:
            path.insert(0, str(owner.args[1]))
            owner = owner.args[0]
        target, tensor = self._subclass(owner)
        name = "_".join([*target.split("."), *path])
        self.attributes[name] = operator.attrgetter(".".join(path))(tensor)
        new = self.rewriter.graph.get_attr(name)
        new.meta.update(node.meta)
        self.aliases.define(node, new)

    def _subclass(self, owner: fx.Node) -> tuple[str, Any]:
        """The name of a weight, and the weight itself."""
        if owner.op == "get_attr":
            return str(owner.target), operator.attrgetter(str(owner.target))(self.module)
        specs = {s.arg.name: str(s.target) for s in self.exported.graph_signature.input_specs}
        target = specs[owner.name]
        return target, self.exported.state_dict.get(target, self.exported.constants.get(target))

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
        used: set[fx.Node] = set()
        for index, spec in enumerate(specs):
            if spec.kind in _WRITES and results[index] in used:
                results[index] = self.rewriter.call(aten.clone.default, results[index])
            if spec.kind in _WRITES:
                used.add(results[index])

    def _program(self, specs: list[OutputSpec]) -> ExportedProgram:
        self.rewriter.graph.eliminate_dead_code()
        root = self.exported.graph_module
        module = fx.GraphModule(self.attributes, self.rewriter.graph)
        module.meta.update(root.meta)
        signature = ExportGraphSignature(self.exported.graph_signature.input_specs, specs)
        return with_graph(self.exported, module, signature, [_AnyGraph])


def _is_same_tensor(a: Any, b: torch.Tensor) -> bool:
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


class _AnyGraph(Verifier):
    """Accepts any operator: the importer verifies the graph, and torch's dialect rules do not apply to it."""

    dialect = "EDGEWRIGHT"

    def allowed_getattr_types(self) -> tuple[type[Any], ...]:
        return (*super().allowed_getattr_types(), torch.Tensor)

    def check_valid_op(self, op: Any) -> None:
        return None


# ------------------------------------------------------------------------------------------------ control flow
#
# ``cond``, ``map``, ``scan`` and ``while_loop``: branches and loop bodies are submodules of the exported graph module.
# They go through the same rewrites as the method and remain submodules, so that a prepared program still runs in torch.
# Wrappers that only record the mode in which a graph was traced (autocast, grad) are inlined.

# Positions of the subgraphs among a call's arguments.
_SUBGRAPH_POSITIONS = {"cond": (1, 2), "map_impl": (0,), "scan": (0,), "while_loop": (0, 1)}
_WRAPPERS = {
    "wrap_with_set_grad_enabled": 1, "wrap_with_autocast": 4, "tag_activation_checkpoint": 0,
    "wrap_activation_checkpoint": 0, "wrap": 0, "invoke_subgraph": 0, "strict_mode": 0, "hints_wrapper": 0,
}  # fmt: skip


def _lower_higher_order(walk: ProgramFunctionalizer, node: fx.Node) -> None:
    """Rewrite a call of a higher-order operator."""
    kind = str(node.target)
    if kind in _WRAPPERS:
        _inline_wrapper(walk, node, _WRAPPERS[kind])
        return
    args = walk._read(node.args)
    if kind == "out_dtype":  # computes an operator in a wider dtype
        operands = [to_dtype(walk.rewriter, a, args[1]) if isinstance(a, fx.Node) else a for a in args[2:]]
        walk.aliases.define(node, walk.rewriter.call(args[0], *operands))
        return
    if kind not in _SUBGRAPH_POSITIONS:
        raise walk.rewriter.unsupported(node.target, "cannot be represented in .pte files")
    for position in _SUBGRAPH_POSITIONS[kind]:
        name = str(args[position].target)
        walk.attributes[name] = _SubgraphFunctionalizer(walk, walk.attributes[name], node).run()
    val = node.meta["val"]
    walk.rewriter.origin = node
    walk.aliases.define(node, walk.rewriter.unpack(walk.rewriter.emit(node.target, args, val=val), val))


class _SubgraphProgram:
    """Stands in for an exported program: only ``graph_module`` is used."""

    def __init__(self, module: fx.GraphModule) -> None:
        self.graph_module = module


class _SubgraphFunctionalizer(ProgramFunctionalizer):
    """Functionalizes a branch or a loop body."""

    def __init__(self, outer: ProgramFunctionalizer, module: fx.GraphModule, call: fx.Node) -> None:
        rewriter = outer.rewriter
        options = (rewriter.is_supported, rewriter.no_decompose, rewriter.strict, rewriter.remedy)
        super().__init__(_SubgraphProgram(module), DecomposingRewriter(*options))
        self.call = call

    def _constant(self, node: fx.Node) -> Any:
        """None: what the operands of a branch are is only known outside it."""
        return None

    def visit(self, node: fx.Node) -> None:
        """Nodes without a source line get that of the call."""
        for key in ("stack_trace", "nn_module_stack"):
            if not node.meta.get(key) and self.call.meta.get(key):
                node.meta[key] = self.call.meta[key]
        super().visit(node)

    def _finish(self, output: fx.Node) -> fx.GraphModule:
        if any(self.aliases.final_write(node) is not None for node in self.placeholders.values()):
            self.rewriter.origin = self.call
            raise self.rewriter.unsupported(self.call.target, "must not write to its operands in a branch")
        self.rewriter.graph.output(self._read(output.args[0]))
        self.rewriter.graph.eliminate_dead_code()
        return fx.GraphModule(self.attributes, self.rewriter.graph)


def _inline_wrapper(walk: ProgramFunctionalizer, call: fx.Node, position: int) -> None:
    """Rewrite a wrapped graph in place of its call; operands and results alias those of the call."""
    graph: Any = call.args[position]
    module = walk.attributes[str(walk.aliases.read(graph).target)]
    operands = [a for a in _flatten(call.args[position + 1 :]) if not isinstance(a, str)]
    if str(call.target) == "wrap_with_autocast":
        module = _apply_autocast(module, call)
    outer, walk.module = walk.module, module
    for node, operand in zip(module.graph.find_nodes(op="placeholder"), operands, strict=False):
        _define_alias(walk, node, operand)
    for node in module.graph.nodes:
        if node.op not in ("placeholder", "output"):
            node.meta.setdefault("nn_module_stack", call.meta.get("nn_module_stack", {}))
            walk.visit(node)
    walk.module = outer
    results = module.graph.output_node().args[0]
    if isinstance(results, fx.Node):
        _define_alias(walk, call, results)
        return
    for user in [u for u in call.users if u.target.__name__ == "getitem"]:  # type: ignore[union-attr]
        _define_alias(walk, user, results[user.args[1]])
        walk.inlined.add(user)
    walk.aliases.define(call, [walk._read(r) for r in results])


def _define_alias(walk: ProgramFunctionalizer, node: fx.Node, source: Any) -> None:
    if isinstance(source, fx.Node):
        walk.aliases.define_same(node, source)
    else:
        walk.aliases.define(node, source)


def _flatten(tree: Any) -> Iterable[Any]:
    for item in tree:
        if isinstance(item, tuple | list):
            yield from _flatten(item)
        elif not isinstance(item, dict):
            yield item


def _apply_autocast(module: fx.GraphModule, call: fx.Node) -> fx.GraphModule:
    """Retrace a graph under autocast to make its casts explicit: torch.export leaves them to the wrapper."""
    device, dtype, enabled, cache = call.args[:4]
    if not enabled:
        return module
    values = [n.meta["val"] for n in module.graph.find_nodes(op="placeholder")]

    def run(*inputs: Any) -> Any:
        with torch.autocast(device, dtype, enabled, cache):  # type: ignore[arg-type]
            return fx.Interpreter(module).run(*inputs)

    with fake_mode(values):
        traced: fx.GraphModule = make_fx(run, tracing_mode="symbolic", _allow_non_fake_inputs=True)(*values)
    for node in traced.graph.nodes:
        node.meta.setdefault("stack_trace", call.meta.get("stack_trace"))
    return traced
