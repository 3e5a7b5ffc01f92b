"""Masks of attention: numbers that say "never", such as minus infinity, which no integer can hold.

On their way to a softmax they become ``LOW``, which means the same there. What holds scores and masks in one is watched
without the masked ones, and its range goes on a little below the lowest score: integers end there, and a softmax makes
nothing of what lies there. Steps of scores are coarser by that room, and by no more.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from edgewright.quantize.nonfinite import FiniteMinMaxObserver

KEY = "masks"  # of a node's meta: SOURCE or SCORES
SOURCE, SCORES = "source", "scores"
_GIVEN = "given"  # an input: a mask if it is joined with scores
LOW = -256.0
_NEVER = -1e4  # and below: no score
_HIDDEN = LOW / 2  # and below: masked
_BELOW = {8: 12.0, 16: 16.0}  # of the lowest score; a softmax of as many bits has nothing left there
_SOFTMAX = ("softmax", "_softmax", "log_softmax", "_log_softmax")
_JOINS = (
    "add", "sub", "mul", "where", "masked_fill", "maximum", "minimum", "full", "full_like", "scalar_tensor", "scatter",
)  # fmt: skip
_MOVES = (
    "view", "reshape", "_unsafe_view", "expand", "slice", "select", "unsqueeze", "squeeze", "permute", "transpose",
    "index", "index_select", "clone", "_to_copy", "contiguous", "repeat", "to", "alias",
)  # fmt: skip


class MaskedObserver(FiniteMinMaxObserver):
    """The range of what is not masked, and some room below it; of masks alone, all of it."""

    def __init__(self, *, scores: bool = True, **given: Any) -> None:
        super().__init__(**given)
        self.scores, self.masked = scores, False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.numel() == 0:
            return x
        seen = x.detach().clamp(min=LOW)
        if self.scores:
            kept = seen[~(seen <= _HIDDEN)]  # NaN is no mask
            self.masked |= kept.numel() < seen.numel()
            seen = kept if kept.numel() else torch.zeros(1)
        super().forward(seen)
        return x

    def calculate_qparams(self) -> Any:
        self.report_unnamed()
        bits = 8 if self.quant_max - self.quant_min <= 255 else 16
        low, high = (torch.nan_to_num(v, posinf=0.0, neginf=0.0) for v in (self.min_val, self.max_val))
        return self._calculate_qparams(low - _BELOW[bits] if self.masked else low, high)


def finite_masks(module: fx.GraphModule) -> fx.GraphModule:
    """Make masks on their way to a softmax finite, and note which nodes hold them."""
    finder = _Finder(module)
    for node in list(module.graph.nodes):
        if _name(node) in _SOFTMAX and isinstance(node.args[0], fx.Node):
            finder.kind(node.args[0])
    for node in reversed(module.graph.nodes):
        kind = finder.found.get(node)
        if kind == _GIVEN:
            kind = SOURCE if any(KEY in user.meta for user in node.users) else None
        if kind is not None:
            node.meta[KEY] = kind
            finder.make_finite(node)
    module.recompile()
    return module


def watched_masks(leaders: dict[Any, Any]) -> dict[Any, str]:
    """What is watched as masks, or as scores that may be masked, by the leaders of those that share a scale."""
    found: dict[Any, str] = {}
    for point, leader in leaders.items():
        kind = (point[0] if isinstance(point, tuple) else point).meta.get(KEY)
        if kind is not None and found.get(leader) != SCORES:
            found[leader] = kind
    return found


def _name(node: Any) -> str:
    """Of the operator that a node calls, whatever its overload."""
    target = getattr(node, "target", None)
    is_aten = isinstance(target, torch._ops.OpOverload) and target.namespace == "aten"
    return str(target).split(".")[1].removesuffix("_copy") if is_aten else ""


def _never(given: Any) -> bool:
    return isinstance(given, int | float) and not isinstance(given, bool) and given <= _NEVER


class _Finder:
    """Walks back from a softmax: through what moves and joins, no farther."""

    def __init__(self, module: fx.GraphModule) -> None:
        self.module = module
        self.found: dict[fx.Node, str | None] = {}

    def kind(self, node: fx.Node) -> str | None:
        if node not in self.found:
            self.found[node] = None
            self.found[node] = self._kind(node)
        return self.found[node]

    def _kind(self, node: fx.Node) -> str | None:
        value, name = node.meta.get("val"), _name(node)
        if not isinstance(value, torch.Tensor) or value.dtype != torch.float32:
            return None
        if node.op == "placeholder":
            return _GIVEN
        if node.op == "get_attr":
            return SOURCE if self._is_mask(node) else None
        if name in _MOVES:
            return self.kind(node.all_input_nodes[0])
        if name not in _JOINS:
            return None
        operands = [n for n in node.all_input_nodes if getattr(n.meta.get("val"), "dtype", None) == torch.float32]
        kinds = [self.kind(n) for n in operands]
        said = SOURCE in kinds or any(_never(a) for a in (*node.args, *node.kwargs.values()))
        data = any(k is None and n.op != "get_attr" for k, n in zip(kinds, operands, strict=True))
        if SCORES in kinds or (data and (said or _GIVEN in kinds)):
            return SCORES
        return SOURCE if said else _GIVEN if _GIVEN in kinds else None

    def _is_mask(self, node: fx.Node) -> bool:
        held = _tensor(self.module, node)
        written = any(getattr(getattr(u.target, "_schema", None), "is_mutable", False) for u in node.users)
        return not written and held is not None and bool((held <= _NEVER).any())

    def make_finite(self, node: fx.Node) -> None:
        """Numbers in the node itself, and a constant beside the one that others read."""
        if node.op == "call_function":
            node.args = tuple(LOW if _never(a) else a for a in node.args)
            node.kwargs = {k: LOW if _never(a) else a for k, a in node.kwargs.items()}
            return
        held = _tensor(self.module, node) if node.op == "get_attr" else None
        if held is None:
            return
        name = f"{node.name}_finite"
        self.module.register_buffer(name, held.detach().clamp(min=LOW))
        with self.module.graph.inserting_after(node):
            made = self.module.graph.get_attr(name)
        made.meta = dict(node.meta)
        for user in [u for u in node.users if self.found.get(u) is not None or _name(u) in _SOFTMAX]:
            user.replace_input_with(node, made)


def _tensor(module: fx.GraphModule, node: fx.Node) -> torch.Tensor | None:
    found: Any = module
    for part in str(node.target).split("."):
        found = getattr(found, part)
    return found if isinstance(found, torch.Tensor) else None
