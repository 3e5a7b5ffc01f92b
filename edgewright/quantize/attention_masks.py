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
_INPUT = "input"  # a graph input, a cast of a condition, or a fill: a mask if it is combined with scores
LOW = -256.0
_MASK_LIMIT = -100.0  # scalars up to this are masks, and tables that have no other large elements, ...
_SURE_LIMIT = -1e4  # ... unless more than a softmax reads masked scores; constants up to this are masks in any case
_MASKED_LIMIT = LOW / 2  # elements up to this are masked
_MARGIN = {8: 12.0, 16: 16.0}  # by bits: the margin below the lowest score at which a softmax rounds to zero
_SOFTMAX = ("softmax", "_softmax", "log_softmax", "_log_softmax")
_FILLS = ("full", "full_like", "scalar_tensor")
_ARITHMETIC = ("add", "sub", "rsub", "mul")  # a scalar operand of these is no mask by itself: ``scores * -100``
_COMBINING = (
    *_ARITHMETIC, *_FILLS, "where", "masked_fill", "maximum", "minimum", "scatter",
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
    finder = _MaskFinder(module, _MASK_LIMIT)
    if finder.is_visible():
        finder = _MaskFinder(module, _SURE_LIMIT)
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


def _has_one_low(table: torch.Tensor) -> bool:
    """True for a low number, alone or among elements near zero, as in Swin; not for biases that grow with distance."""
    low = table <= _MASK_LIMIT
    others = table[~low]
    is_apart = (others.numel() > 0 or table.numel() == 1) and bool((others > _MASK_LIMIT / 4).all())
    is_apart = is_apart and bool(low.any())
    return is_apart and bool((table[low] == table[low][0]).all())


def _finite(table: torch.Tensor) -> torch.Tensor:
    return torch.where(table <= _MASK_LIMIT, LOW, table) if _has_one_low(table) else table.clamp(min=LOW)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


class _MaskFinder:
    """Classifies nodes backwards from a softmax, through data movement and elementwise combinations only."""

    def __init__(self, module: fx.GraphModule, limit: float) -> None:
        self.module, self.limit = module, limit
        self.kinds: dict[fx.Node, str | None] = {}
        for node in list(module.graph.nodes):
            if _op_name(node) in _SOFTMAX and isinstance(node.args[0], fx.Node):
                self.kind(node.args[0])

    def is_visible(self) -> bool:
        """True if a reader other than a softmax would see that masked elements became ``LOW``; a logarithm of a softmax
        returns them."""
        return any(
            self.kinds.get(user) is None and _op_name(user) not in ("softmax", "_softmax")
            for node, kind in self.kinds.items()
            if kind == SCORES or (kind == SOURCE and node.op != "get_attr")
            for user in node.users
        )

    def _is_mask_constant(self, value: Any) -> bool:
        return _is_number(value) and value <= self.limit

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
            operand = node.all_input_nodes[0]
            is_condition = not operand.meta["val"].is_floating_point()  # as numbers: ``mask.float()``
            return _INPUT if is_condition else self.kind(operand)
        if name not in _COMBINING:
            return None
        if name in _FILLS:
            return SOURCE if any(self._is_mask_constant(a) for a in node.args) else _INPUT
        operands = [n for n in node.all_input_nodes if getattr(n.meta.get("val"), "dtype", None) == torch.float32]
        kinds = [self.kind(n) for n in operands]
        has_mask = SOURCE in kinds or any(self._is_mask_constant(a) for a in (*node.args, *node.kwargs.values()))
        has_scores = any(k is None and n.op != "get_attr" for k, n in zip(kinds, operands, strict=True))
        if name in _ARITHMETIC and has_scores and (len(operands) == 1 or self._has_scalar_table(operands)):
            return None
        if SCORES in kinds or (has_scores and (has_mask or _INPUT in kinds)):
            return SCORES
        return SOURCE if has_mask else _INPUT if _INPUT in kinds else None

    def _has_scalar_table(self, operands: list[fx.Node]) -> bool:
        """True for ``scores * torch.tensor(-100.0)``, too."""
        return any(n.op == "get_attr" and n.meta["val"].numel() == 1 for n in operands)

    def _is_mask(self, node: fx.Node) -> bool:
        tensor = _get_tensor(self.module, node)
        is_written = any(getattr(getattr(u.target, "_schema", None), "is_mutable", False) for u in node.users)
        if is_written or tensor is None:
            return False
        return bool((tensor <= _SURE_LIMIT).any()) or (self.limit > _SURE_LIMIT and _has_one_low(tensor))

    def make_finite(self, node: fx.Node) -> None:
        """Clamp scalar arguments of a call; replace a constant mask by a clamped copy for the readers on the path."""
        if node.op == "call_function":
            node.args = tuple(LOW if self._is_mask_constant(a) else a for a in node.args)
            node.kwargs = {k: LOW if self._is_mask_constant(a) else a for k, a in node.kwargs.items()}
            return
        tensor = _get_tensor(self.module, node) if node.op == "get_attr" else None
        if tensor is None:
            return
        name = f"{node.name}_finite"
        self.module.register_buffer(name, _finite(tensor.detach()))
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
