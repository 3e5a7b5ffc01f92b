"""Quantization of attention masks, whose minus infinity no integer can represent.

Before a softmax, masked elements become ``LOW``, which has the same effect. Observers of masked scores ignore masked
elements and extend the range a little below the lowest score: masked elements saturate at its lower end, where the
softmax rounds them to zero. The scale of the scores grows by that margin only.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from edgewright.ir.aten.ops import OPS
from edgewright.quantize.nonfinite import FiniteMinMaxObserver

KEY = "masks"  # key in a node's meta: SOURCE (a mask) or SCORES (masked scores)
SOURCE, SCORES = "source", "scores"
_INPUT = "input"  # a graph input: a mask if it is combined with scores
LOW = -256.0
_MASK_LIMIT = -1e4  # constants up to this are masks
_MASKED_LIMIT = LOW / 2  # elements up to this are masked
_MARGIN = {8: 12.0, 16: 16.0}  # by bits: the margin below the lowest score at which a softmax rounds to zero
_SOFTMAX = ("softmax", "_softmax", "log_softmax", "_log_softmax")
_COMBINING = (
    "add", "sub", "mul", "where", "masked_fill", "maximum", "minimum", "full", "full_like", "scalar_tensor", "scatter",
)  # fmt: skip


class MaskedObserver(FiniteMinMaxObserver):
    """Observes the range of unmasked scores with a margin below it; for masks alone, the full range."""

    def __init__(self, *, scores: bool = True, **options: Any) -> None:
        super().__init__(**options)
        self.scores, self.masked = scores, False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.numel() == 0:
            return x
        observed = x.detach().clamp(min=LOW)
        if self.scores:
            unmasked = observed[~(observed <= _MASKED_LIMIT)]  # NaN is not masked
            self.masked |= unmasked.numel() < observed.numel()
            observed = unmasked if unmasked.numel() else torch.zeros(1)
        super().forward(observed)
        return x

    def calculate_qparams(self) -> Any:
        self.report_unnamed()
        bits = 8 if self.quant_max - self.quant_min <= 255 else 16
        low, high = (torch.nan_to_num(v, posinf=0.0, neginf=0.0) for v in (self.min_val, self.max_val))
        return self._calculate_qparams(low - _MARGIN[bits] if self.masked else low, high)


def finite_masks(module: fx.GraphModule) -> fx.GraphModule:
    """Make the masks that reach a softmax finite, and mark the nodes that compute masks or masked scores."""
    finder = _MaskFinder(module)
    for node in list(module.graph.nodes):
        if _op_name(node) in _SOFTMAX and isinstance(node.args[0], fx.Node):
            finder.kind(node.args[0])
    for node in reversed(module.graph.nodes):
        kind = finder.kinds.get(node)
        if kind == _INPUT:
            kind = SOURCE if any(KEY in user.meta for user in node.users) else None
        if kind is not None:
            node.meta[KEY] = kind
            finder.make_finite(node)
    module.recompile()
    return module


def watched_masks(leaders: dict[Any, Any]) -> dict[Any, str]:
    """The kind of mask of each set of points that share a scale, by the set's leader."""
    kinds: dict[Any, str] = {}
    for point, leader in leaders.items():
        kind = (point[0] if isinstance(point, tuple) else point).meta.get(KEY)
        if kind is not None and kinds.get(leader) != SCORES:
            kinds[leader] = kind
    return kinds


def _op_name(node: Any) -> str:
    """The name of the operator that a node calls, without overload and ``_copy`` suffix."""
    target = getattr(node, "target", None)
    is_aten = isinstance(target, torch._ops.OpOverload) and target.namespace == "aten"
    return str(target).split(".")[1].removesuffix("_copy") if is_aten else ""


def _is_mask_constant(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value <= _MASK_LIMIT


class _MaskFinder:
    """Classifies nodes backwards from a softmax, through data movement and elementwise combinations only."""

    def __init__(self, module: fx.GraphModule) -> None:
        self.module = module
        self.kinds: dict[fx.Node, str | None] = {}

    def kind(self, node: fx.Node) -> str | None:
        if node not in self.kinds:
            self.kinds[node] = None
            self.kinds[node] = self._kind(node)
        return self.kinds[node]

    def _kind(self, node: fx.Node) -> str | None:
        value, name = node.meta.get("val"), _op_name(node)
        if not isinstance(value, torch.Tensor) or value.dtype != torch.float32:
            return None
        if node.op == "placeholder":
            return _INPUT
        if node.op == "get_attr":
            return SOURCE if self._is_mask(node) else None
        if OPS.passes_on(node.target):
            return self.kind(node.all_input_nodes[0])
        if name not in _COMBINING:
            return None
        operands = [n for n in node.all_input_nodes if getattr(n.meta.get("val"), "dtype", None) == torch.float32]
        kinds = [self.kind(n) for n in operands]
        has_mask = SOURCE in kinds or any(_is_mask_constant(a) for a in (*node.args, *node.kwargs.values()))
        has_scores = any(k is None and n.op != "get_attr" for k, n in zip(kinds, operands, strict=True))
        if SCORES in kinds or (has_scores and (has_mask or _INPUT in kinds)):
            return SCORES
        return SOURCE if has_mask else _INPUT if _INPUT in kinds else None

    def _is_mask(self, node: fx.Node) -> bool:
        tensor = _get_tensor(self.module, node)
        is_written = any(getattr(getattr(u.target, "_schema", None), "is_mutable", False) for u in node.users)
        return not is_written and tensor is not None and bool((tensor <= _MASK_LIMIT).any())

    def make_finite(self, node: fx.Node) -> None:
        """Clamp scalar arguments of a call; replace a constant mask by a clamped copy for the readers on the path."""
        if node.op == "call_function":
            node.args = tuple(LOW if _is_mask_constant(a) else a for a in node.args)
            node.kwargs = {k: LOW if _is_mask_constant(a) else a for k, a in node.kwargs.items()}
            return
        tensor = _get_tensor(self.module, node) if node.op == "get_attr" else None
        if tensor is None:
            return
        name = f"{node.name}_finite"
        self.module.register_buffer(name, tensor.detach().clamp(min=LOW))
        with self.module.graph.inserting_after(node):
            constant = self.module.graph.get_attr(name)
        constant.meta = dict(node.meta)
        for user in [u for u in node.users if self.kinds.get(u) is not None or _op_name(u) in _SOFTMAX]:
            user.replace_input_with(node, constant)


def _get_tensor(module: fx.GraphModule, node: fx.Node) -> torch.Tensor | None:
    attribute: Any = module
    for part in str(node.target).split("."):
        attribute = getattr(attribute, part)
    return attribute if isinstance(attribute, torch.Tensor) else None
