"""Interpreter of exported programs in eager torch: the reference for the file that was lowered from the graph.

A visitor sees every node's result and may replace it: by one with simulated rounding errors (``RoundingNoise``), or by
the file's result (``Override``), so that errors of one layer do not reach the next.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind

from edgewright.api.quantized_graph import (
    constant_nodes,
    integer_nodes,
    is_conversion,
    is_dequantize,
    is_dynamic,
    is_quantize,
    target_name,
)
from edgewright.backends.table import Rounding

_TIE = 2.0**-19  # fraction of the largest element: less than a 16-bit step
_CACHED_BYTES = 1 << 30  # of dequantized weights that runs share
_KINDS = (InputKind.USER_INPUT, InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)


class Visitor:
    """Called with the result of every node; returns the one that its readers get."""

    def visit(self, node: fx.Node, value: Any) -> Any:
        return value

    def inside(self) -> Visitor:
        """The visitor for subgraphs of control flow, whose nodes have separate names."""
        return self


class GraphInterpreter:
    """Runs an exported program in eager torch. Calls of one ``run`` share state, which starts at its initial value."""

    def __init__(self, exported: ExportedProgram) -> None:
        self.exported = exported
        self.graph: fx.Graph = exported.graph
        specs = exported.graph_signature.output_specs
        self._returned = [i for i, spec in enumerate(specs) if spec.kind == OutputKind.USER_OUTPUT]
        self._mutated_buffers = {i: str(s.target) for i, s in enumerate(specs) if s.kind == OutputKind.BUFFER_MUTATION}
        self._weights = DequantizedWeights(constant_nodes(exported))

    @property
    def outputs(self) -> list[Any]:
        """The nodes (or constants) that the program returns."""
        results: Any = self.graph.output_node().args[0]
        return [results[i] for i in self._returned]

    @property
    def unsupported_reason(self) -> str:
        """Why the program cannot be interpreted; empty if it can."""
        others = [s for s in self.exported.graph_signature.input_specs if s.kind not in _KINDS]
        if others:
            return f"the program has an input of kind {others[0].kind.name.lower()}"
        random_node = next((node for node in self.graph.nodes if _is_random(node)), None)
        return f"{target_name(random_node)} draws random numbers" if random_node is not None else ""

    def run(self, calls: Sequence[Sequence[Any]], visitors: Sequence[Visitor] = ()) -> list[list[Any]]:
        """The outputs of consecutive calls; ``visitors``: one for each call, or none."""
        state = self._state()
        outputs = []
        for number, leaves in enumerate(calls):
            visitor = visitors[number] if visitors else Visitor()
            with torch.no_grad():
                interpreter = _VisitingInterpreter(self.exported.graph_module, visitor, self._weights)
                results = interpreter.run(*self._arguments(state, leaves))
            outputs.append([_copy(results[i]) for i in self._returned])
            for i, name in self._mutated_buffers.items():
                state[name] = results[i]
        return outputs

    def _state(self) -> dict[str, Any]:
        """Copies of the buffers."""
        specs = [s for s in self.exported.graph_signature.input_specs if s.kind == InputKind.BUFFER]
        return {str(s.target): _copy(self._tensor(str(s.target))) for s in specs}

    def _tensor(self, name: str) -> Any:
        states = self.exported.state_dict
        return states[name] if name in states else self.exported.constants[name]

    def _arguments(self, state: Mapping[str, Any], leaves: Sequence[Any]) -> list[Any]:
        inputs = iter(leaves)
        arguments = []
        for spec in self.exported.graph_signature.input_specs:
            if spec.kind == InputKind.USER_INPUT:
                arguments.append(_copy(next(inputs)))
            else:
                name = str(spec.target)
                arguments.append(state[name] if spec.kind == InputKind.BUFFER else self._tensor(name))
        return arguments


@dataclass
class DequantizedWeights:
    """Dequantized weights, computed in the first of many runs: dequantizing takes longer than most layers that read
    them. Their inputs are constants, which visitors do not replace."""

    constants: Collection[fx.Node]
    size: int = 0
    _values: dict[fx.Node, tuple[torch.Tensor, int]] = field(default_factory=dict)

    def get(self, node: fx.Node) -> torch.Tensor | None:
        """The value of a node, unless it is not cached or something has written to it since."""
        value, version = self._values.get(node, (None, 0))
        return value if value is not None and value._version == version else None

    def add(self, node: fx.Node, value: Any) -> None:
        if not is_dequantize(node) or any(n not in self.constants for n in node.all_input_nodes):
            return
        if isinstance(value, torch.Tensor) and self.size + value.nbytes <= _CACHED_BYTES:
            self.size += value.nbytes
            self._values[node] = value, value._version


class RoundingNoise(Visitor):
    """Simulates rounding errors: perturbs every quantized activation by up to a number of steps, and every float result
    by up to a fraction of its largest element. The change of the outputs is what rounding can explain.

    Errors are independent, which layers that sum over many positions average out. Dynamic quantization has others:
    devices scale each row by itself where the graph has one scale, so rows that are alike, as tokens often are, have
    the same error in each. Draws with an odd seed simulate these: one error for each channel, in all positions.
    """

    def __init__(self, exported: ExportedProgram, rounding: Rounding, seed: int) -> None:
        self._rounding = rounding
        self._is_shared = seed % 2 == 1
        self._random = torch.Generator().manual_seed(seed)
        self._integer = integer_nodes(exported.graph, constant_nodes(exported))

    def visit(self, node: fx.Node, value: Any) -> Any:
        if node.op != "call_function" or not isinstance(value, torch.Tensor) or not value.numel():
            return value
        if is_quantize(node):
            return self._perturb_integers(node, value)
        if not value.is_floating_point() or node in self._integer or is_conversion(node):
            return value
        if _aliases_argument(node) and not _computes_in_place(node):
            return value
        perturbed = self.perturb(value, max(self._rounding.real, float(torch.finfo(value.dtype).eps)))
        return value.copy_(perturbed) if _aliases_argument(node) else perturbed

    def _perturb_integers(self, node: fx.Node, value: torch.Tensor) -> torch.Tensor:
        info = torch.iinfo(value.dtype)
        steps = self._rounding.steps(info.bits)
        bounds = [a for a in node.args[3:5] if isinstance(a, int)] if "per_tensor" in target_name(node) else []
        low, high = bounds if len(bounds) == 2 else (info.min, info.max)
        shape = _per_channel(node, value.shape) if self._is_shared and is_dynamic(node) else value.shape
        offsets = torch.randint(-steps, steps + 1, shape, generator=self._random)
        return (value.to(torch.int64) + offsets).clamp(low, high).to(value.dtype)

    def perturb(self, value: torch.Tensor, fraction: float) -> torch.Tensor:
        """Perturb every element at random by up to a fraction of the largest."""
        finite = value if is_finite(value) else value[torch.isfinite(value)]
        if not finite.numel():
            return value
        largest = finite.abs().max().double()
        offsets = torch.rand(value.shape, generator=self._random, dtype=torch.float64).mul_(2).sub_(1)
        return offsets.mul_(fraction * largest).add_(value).to(value.dtype)


class Override(Visitor):
    """Replaces the results of some nodes, and records what they computed, by name (of those ``kept``, if given).
    With ``noise``, computed results have rounding errors, and replacements are perturbed just enough to break ties at
    random.

    ``undefined``: where dequantized results were NaN or infinite before they were quantized, as when a divisor is
    rounded to zero. Their integers are not defined: NaN becomes 0 in eager torch and the smallest integer in C++
    kernels, and devices divide by zero in different ways.
    """

    def __init__(
        self,
        replacements: Mapping[str, Any],
        noise: RoundingNoise | None = None,
        kept: Collection[str] | None = None,
    ) -> None:
        self.replacements = replacements
        self._kept = replacements if kept is None else kept
        self.computed: dict[str, Any] = {}
        self._noise = noise
        self.undefined: dict[str, torch.Tensor] = {}
        self._nonfinite: dict[fx.Node, torch.Tensor] = {}

    def visit(self, node: fx.Node, value: Any) -> Any:
        value = self.inside().visit(node, value)
        self._track_nonfinite(node, value)
        if node.name not in self.replacements:
            return value
        if node.name in self._kept:
            self.computed[node.name] = _copy(value)
        replacement = self.replacements[node.name]
        return replacement if self._noise is None else self._noise.perturb(replacement, _TIE)

    def _track_nonfinite(self, node: fx.Node, value: Any) -> None:
        source = node.all_input_nodes[0] if node.all_input_nodes else None
        if is_conversion(node) and source in self._nonfinite:
            self._nonfinite[node] = self._nonfinite[source]
            self.undefined[node.name] = self._nonfinite[node]
        elif isinstance(value, torch.Tensor) and value.is_floating_point() and not is_finite(value):
            self._nonfinite[node] = ~value.isfinite()

    def inside(self) -> Visitor:
        return self._noise or Visitor()


class _VisitingInterpreter(fx.Interpreter):
    def __init__(self, module: fx.GraphModule, visitor: Visitor, weights: DequantizedWeights) -> None:
        super().__init__(module)
        self._visitor = visitor
        self._weights = weights

    def run_node(self, n: fx.Node) -> Any:
        value: Any = self._weights.get(n)
        if value is None:
            value = super().run_node(n)
            self._weights.add(n, value)
        return self._visitor.visit(n, value)

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        attribute = super().get_attr(target, args, kwargs)
        return (
            _make_subgraph_runner(attribute, self._visitor.inside(), self._weights)
            if isinstance(attribute, fx.GraphModule)
            else attribute
        )


def _per_channel(node: fx.Node, shape: Sequence[int]) -> list[int]:
    """The shape with one element for each channel: the second dimension of a convolution's input, or the last."""
    readers = [reader for user in node.users for reader in user.users]
    axis = 1 if any("conv" in target_name(reader) for reader in readers) else len(shape) - 1
    return [size if i == axis else 1 for i, size in enumerate(shape)]


def _make_subgraph_runner(module: fx.GraphModule, visitor: Visitor, weights: DequantizedWeights) -> Callable[..., Any]:
    """A callable that interprets a subgraph of control flow with a visitor."""
    return lambda *args: _VisitingInterpreter(module, visitor, weights).run(*args)


def is_finite(value: torch.Tensor) -> bool:
    """True if no element is infinite or NaN. A sum is finite only then, and one pass over the elements; an infinite one
    may be an overflow."""
    return math.isfinite(value.sum().item()) or bool(value.isfinite().all())


def _copy(value: Any) -> Any:
    """A copy, because later nodes may write to the result in place."""
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


def _is_random(node: fx.Node) -> bool:
    """True for operators that draw random numbers, except dropout that is disabled."""
    schema = getattr(node.target, "_schema", None)
    if schema is None or torch.Tag.nondeterministic_seeded not in getattr(node.target, "tags", ()):
        return False
    arguments = {a.name: node.args[i] if i < len(node.args) else node.kwargs.get(a.name, a.default_value)
             for i, a in enumerate(schema.arguments)}  # fmt: skip
    share = next((arguments[name] for name in ("dropout_p", "dropout", "p") if name in arguments), None)
    return arguments.get("train", True) is not False and not (isinstance(share, float) and share == 0.0)


def _computes_in_place(node: fx.Node) -> bool:
    """True for arithmetic in place: not for views, and not for copies, which do not round."""
    schema = getattr(node.target, "_schema", None)
    return schema is not None and schema.is_mutable and node.target is not torch.ops.aten.copy_.default


def _aliases_argument(node: fx.Node) -> bool:
    """True if a result shares memory with an argument: views and in-place operators."""
    schema = getattr(node.target, "_schema", None)
    return schema is None or any(r.alias_info is not None for r in schema.returns)
