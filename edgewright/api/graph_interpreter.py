"""The graph that a file was lowered from, run node by node by eager torch: what the file has to compute.

A visitor sees every node's result and may replace it: by one with rounding errors (``RoundingNoise``), or by the
file's own (``Override``), so that errors of one layer do not reach the next.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind

from edgewright.api.quantized_graph import constant_nodes, integer_nodes, is_conversion, is_quantize, target_name
from edgewright.backends.table import Rounding

_TIE = 2.0**-19  # of the largest element: less than a step of 16 bits
_KINDS = (InputKind.USER_INPUT, InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)


class Visitor:
    """Sees the result of every node, and gives the one that its readers get."""

    def visit(self, node: fx.Node, value: Any) -> Any:
        return value

    def inside(self) -> Visitor:
        """The visitor of the branches and bodies of control flow, whose nodes have names of their own."""
        return self


class Reference:
    """An exported program in eager torch. Calls that run together share state, which starts as the program holds it."""

    def __init__(self, exported: ExportedProgram) -> None:
        self.exported = exported
        self.graph: fx.Graph = exported.graph
        specs = exported.graph_signature.output_specs
        self._returned = [i for i, spec in enumerate(specs) if spec.kind == OutputKind.USER_OUTPUT]
        self._written = {i: str(s.target) for i, s in enumerate(specs) if s.kind == OutputKind.BUFFER_MUTATION}

    @property
    def outputs(self) -> list[Any]:
        """The nodes (or constants) that the program returns."""
        results: Any = self.graph.output_node().args[0]
        return [results[i] for i in self._returned]

    @property
    def unsupported(self) -> str:
        """What keeps the program from being run like this; empty if nothing does."""
        others = [s for s in self.exported.graph_signature.input_specs if s.kind not in _KINDS]
        if others:
            return f"the program has an input of kind {others[0].kind.name.lower()}"
        drawn = next((node for node in self.graph.nodes if _is_random(node)), None)
        return f"{target_name(drawn)} draws random numbers" if drawn is not None else ""

    def run(self, calls: Sequence[Sequence[Any]], visitors: Sequence[Visitor] = ()) -> list[list[Any]]:
        """The outputs of each call, one after the other; ``visitors``: one for each call, or none."""
        state = self._state()
        found = []
        for number, leaves in enumerate(calls):
            visitor = visitors[number] if visitors else Visitor()
            with torch.no_grad():
                results = _Walk(self.exported.graph_module, visitor).run(*self._arguments(state, leaves))
            found.append([_copied(results[i]) for i in self._returned])
            for i, name in self._written.items():
                state[name] = results[i]
        return found

    def _state(self) -> dict[str, Any]:
        """Copies of what the program may write to."""
        specs = [s for s in self.exported.graph_signature.input_specs if s.kind == InputKind.BUFFER]
        return {str(s.target): _copied(self._held(str(s.target))) for s in specs}

    def _held(self, name: str) -> Any:
        held = self.exported.state_dict
        return held[name] if name in held else self.exported.constants[name]

    def _arguments(self, state: Mapping[str, Any], leaves: Sequence[Any]) -> list[Any]:
        given = iter(leaves)
        made = []
        for spec in self.exported.graph_signature.input_specs:
            if spec.kind == InputKind.USER_INPUT:
                made.append(_copied(next(given)))
            else:
                name = str(spec.target)
                made.append(state[name] if spec.kind == InputKind.BUFFER else self._held(name))
        return made


class RoundingNoise(Visitor):
    """Rounding errors at random: every quantized activation moves by up to so many steps, every real number by up to
    a fraction of its tensor's largest. What that does to a model's outputs is what rounding can explain."""

    def __init__(self, exported: ExportedProgram, rounding: Rounding, seed: int) -> None:
        self._rounding = rounding
        self._random = torch.Generator().manual_seed(seed)
        self._integer = integer_nodes(exported.graph, constant_nodes(exported))

    def visit(self, node: fx.Node, value: Any) -> Any:
        if node.op != "call_function" or not isinstance(value, torch.Tensor) or not value.numel():
            return value
        if is_quantize(node):
            return self._stepped(node, value)
        if not value.is_floating_point() or node in self._integer or is_conversion(node) or _aliases(node):
            return value
        return self.shaken(value, max(self._rounding.real, float(torch.finfo(value.dtype).eps)))

    def _stepped(self, node: fx.Node, value: torch.Tensor) -> torch.Tensor:
        info = torch.iinfo(value.dtype)
        steps = self._rounding.steps(info.bits)
        bounds = [a for a in node.args[3:5] if isinstance(a, int)] if "per_tensor" in target_name(node) else []
        low, high = bounds if len(bounds) == 2 else (info.min, info.max)
        moved = torch.randint(-steps, steps + 1, value.shape, generator=self._random)
        return (value.to(torch.int64) + moved).clamp(low, high).to(value.dtype)

    def shaken(self, value: torch.Tensor, fraction: float) -> torch.Tensor:
        """Every element moved at random by up to a fraction of the largest."""
        finite = value.double()[torch.isfinite(value)]
        if not finite.numel():
            return value
        moved = torch.rand(value.shape, generator=self._random, dtype=torch.float64) * 2 - 1
        return (value.double() + moved * (fraction * finite.abs().max())).to(value.dtype)


class Override(Visitor):
    """Gives some nodes' readers other results, and keeps what the nodes computed, by name. With ``noise``, results have
    rounding errors, and those given are moved just enough that ties between them are broken at random."""

    def __init__(self, given: Mapping[str, Any], noise: RoundingNoise | None = None) -> None:
        self.given = given
        self.computed: dict[str, Any] = {}
        self._noise = noise

    def visit(self, node: fx.Node, value: Any) -> Any:
        value = self.inside().visit(node, value)
        if node.name not in self.given:
            return value
        self.computed[node.name] = _copied(value)
        given = self.given[node.name]
        return given if self._noise is None else self._noise.shaken(given, _TIE)

    def inside(self) -> Visitor:
        return self._noise or Visitor()


class _Walk(fx.Interpreter):
    def __init__(self, module: fx.GraphModule, visitor: Visitor) -> None:
        super().__init__(module)
        self._visitor = visitor

    def run_node(self, n: fx.Node) -> Any:
        return self._visitor.visit(n, super().run_node(n))

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        held = super().get_attr(target, args, kwargs)
        return _branch(held, self._visitor.inside()) if isinstance(held, fx.GraphModule) else held


def _branch(module: fx.GraphModule, visitor: Visitor) -> Callable[..., Any]:
    """A branch or body of control flow, visited as well."""
    return lambda *args: _Walk(module, visitor).run(*args)


def _copied(value: Any) -> Any:
    """Results may be written to afterwards, in place."""
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


def _is_random(node: fx.Node) -> bool:
    """True for operators that draw numbers: not for those that only might, with a dropout that is off."""
    schema = getattr(node.target, "_schema", None)
    if schema is None or torch.Tag.nondeterministic_seeded not in getattr(node.target, "tags", ()):
        return False
    given = {a.name: node.args[i] if i < len(node.args) else node.kwargs.get(a.name, a.default_value)
             for i, a in enumerate(schema.arguments)}  # fmt: skip
    share = next((given[name] for name in ("dropout_p", "dropout", "p") if name in given), None)
    return given.get("train", True) is not False and not (isinstance(share, float) and share == 0.0)


def _aliases(node: fx.Node) -> bool:
    """True if a result shares memory with an argument: views, and writes in place."""
    schema = getattr(node.target, "_schema", None)
    return schema is None or any(r.alias_info is not None for r in schema.returns)
