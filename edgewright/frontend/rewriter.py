"""``Rewriter``: builds a functional graph of supported operators from an exported one, node by node, in a single pass.

Views and in-place operators become functional (``aliases.py``), rules rewrite composite operators (``decompose/``), and
an operator that has neither a kernel nor a rule is traced on its own (``decompose/trace_op.py``). Metadata is copied
from the exported node; nothing that is already known is retraced. Rules and traces see this interface; the choice
between them is ``decompose/driver.py``.
"""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cache
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from edgewright.errors import UnsupportedOperatorError
from edgewright.frontend.constant_eval import ConstantEvaluator
from edgewright.frontend.decompose.renames import RENAMES
from edgewright.frontend.origin import describe_node

IsSupported = Callable[[Any], bool]
Remedy = Callable[[Any], str]
aten = torch.ops.aten

NO_KERNEL = "has no kernel in the target runtime and no decomposition into ones that do"
_ELSEWHERE = "Compute it outside of the model, or as a custom operator: the application provides its kernel."
# Replacements for operators that no runtime has. The first three have data-dependent output shapes.
_REPLACEMENTS = {
    "aten.bincount": "Count with torch.nn.functional.one_hot(x, bins).sum(0), which has one shape for all inputs.",
    "aten._unique2": "Its result has as many elements as there are values: count with one_hot(x, values).sum(0) > 0.",
    "aten.unique_dim": "Its result has as many rows as there are different ones; leave it to the caller.",
    "aten.histogram": "torch.histc(x, bins, min, max) counts the same bins.",
    "aten.view_as_complex": "Write products of complex numbers with real ones: a * cos - b * sin, a * sin + b * cos.",
    "aten._fft_c2c": "torch.fft.rfft and irfft have kernels; or multiply by the matrices of cos and sin.",
    "aten._grouped_mm": "Models of transformers: call set_experts_implementation('batched_mm') before export.",
    "transformers.grouped_mm_fallback": "Call the model's set_experts_implementation('batched_mm') before export.",
}


class Rewriter(ABC):
    """Builds the new graph. ``is_supported(op)`` is True for operators with kernels; ``no_decompose`` are operators
    to leave as they are regardless; ``remedy(op)`` says which runtime has an unsupported one, or nothing.
    ``packs_embeddings``: quantized embedding tables are packed."""

    def __init__(
        self,
        is_supported: IsSupported,
        no_decompose: Collection[Any] = frozenset(),
        strict: bool = True,
        remedy: Remedy = lambda op: "",
        packs_embeddings: bool = False,
    ) -> None:
        self.graph = fx.Graph()
        self.is_supported = is_supported
        self.no_decompose = no_decompose
        self.strict = strict
        self.remedy = remedy
        self.packs_embeddings = packs_embeddings
        self.origin: fx.Node | None = None  # the exported node being rewritten
        self.mode: Any = None  # the fake mode, for operators that create tensors
        self.constants = ConstantEvaluator(lambda node: None)  # of a program, it looks up weights
        self.add_constant: Callable[[torch.Tensor], fx.Node] | None = None  # None if the graph may have no constants
        self.rule_cache: dict[Any, Any] = {}  # nodes that a rule reuses
        self._sizes: dict[Any, fx.Node] = {}  # by symbolic expression
        self._views = _views_of_copies()

    # ----------------------------------------------------------------------------------------------- emission

    def emit(self, op: Any, args: Sequence[Any], kwargs: dict[str, Any] | None = None, *, val: Any) -> fx.Node:
        """Append a call without rewriting it. ``val`` is its fake result."""
        node = self.graph.call_function(op, tuple(args), kwargs or {})
        node.meta["val"] = val
        if self.origin is not None:
            for key in ("nn_module_stack", "stack_trace", "source_fn_stack", "torch_fn", "delegate_orders"):
                if key in self.origin.meta:
                    node.meta[key] = self.origin.meta[key]
            node.meta["origin"] = self.origin.name
            sources = self.origin.meta.get("source_nodes", (self.origin.name,))  # names in the user's program
            node.meta["source_nodes"] = sources
        return node

    @abstractmethod
    def call(self, op: Any, *args: Any, val: Any = None, **kwargs: Any) -> Any:
        """The result of ``op`` in terms of supported operators. ``val``: its fake result, if any."""

    def unpack(self, node: fx.Node, val: Any) -> Any:
        """A multi-output call as a list of nodes, one per result; any other call as it is."""
        if not isinstance(val, tuple | list):
            return node
        return [self.emit(operator.getitem, (node, i), val=v) if v is not None else None for i, v in enumerate(val)]

    # ------------------------------------------------------------------------------------------------- values

    def fake(self, op: Any, args: Sequence[Any], kwargs: dict[str, Any] | None = None) -> Any:
        """The fake result of ``op`` for the fake values of its arguments."""
        op = self._views.get(op, op)
        values = pytree.tree_map_only(fx.Node, lambda n: n.meta["val"], (tuple(args), kwargs or {}))
        mode = fake_mode(pytree.tree_leaves(values)) or self.mode
        if mode is None:
            return op(*values[0], **values[1])
        with mode:
            return op(*values[0], **values[1])

    def shape(self, node: fx.Node) -> list[Any]:
        """The sizes of a tensor: integers, and nodes for the dynamic ones."""
        return [self.size(node, dim) for dim in range(node.meta["val"].dim())]

    def size(self, node: fx.Node, dim: int) -> Any:
        """One size of a tensor: an integer, or a node that computes it."""
        size = node.meta["val"].shape[dim]
        if isinstance(size, int):
            return size
        if size.node.is_constant():
            return int(size)
        expression = size.node.expr
        if expression not in self._sizes:
            source = self._source(expression) or (node, dim)
            self._sizes[expression] = self.emit(aten.sym_size.int, source, val=size)
        return self._sizes[expression]

    def _source(self, size: Any) -> tuple[fx.Node, int] | None:
        """An input and dimension of this size, which is known without computing any tensor."""
        for node in self.graph.find_nodes(op="placeholder"):
            val = node.meta.get("val")
            for dim, extent in enumerate(val.shape if isinstance(val, torch.Tensor) else ()):
                if isinstance(extent, torch.SymInt) and extent.node.expr == size:
                    return node, dim
        return None

    def plus(self, a: Any, b: Any) -> Any:
        """The sum of two sizes: an integer, or a node that computes it."""
        if isinstance(a, int) and isinstance(b, int):
            return a + b
        values = [v.meta["val"] if isinstance(v, fx.Node) else v for v in (a, b)]
        return self.emit(operator.add, (a, b), val=values[0] + values[1])

    def scalar(self, number: Any, dtype: torch.dtype, like: fx.Node) -> fx.Node:
        """A 0-d tensor of a number, for operators that accept tensors only."""
        mode = like.meta["val"].fake_mode
        with mode:
            val = torch.empty((), dtype=dtype)
        return self.emit(aten.full.default, ([], number), {"dtype": dtype}, val=val)

    def unsupported(self, op: Any, reason: str) -> UnsupportedOperatorError:
        """The error for an operator that cannot be lowered."""
        where, line = describe_node(self.origin)
        replacement = self.remedy(op) or _REPLACEMENTS.get(str(op).rpartition(".")[0], "")
        if reason == NO_KERNEL:
            replacement = replacement or _ELSEWHERE
        return UnsupportedOperatorError(f"{op}{where}", reason, remedy="\n  ".join(filter(None, (line, replacement))))


@cache
def _views_of_copies() -> dict[Any, Any]:
    """Copying operators and their view variants: the fake kernels of some copies fail on symbolic sizes."""
    return {aten.split_copy.Tensor: aten.split.Tensor, **{c: v for v, c in RENAMES.items() if "_copy" in str(c)}}


def fake_mode(values: Iterable[Any]) -> Any:
    """The fake mode of any of these values, or None."""
    return next((v.fake_mode for v in values if isinstance(v, torch.Tensor) and hasattr(v, "fake_mode")), None)


def is_dynamic(value: Any) -> bool:
    """True if a fake value's shape (or the number itself) is symbolic."""
    if isinstance(value, torch.Tensor):
        return any(not isinstance(s, int) for s in value.shape)
    return isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool)


def is_dynamic_storage(value: torch.Tensor) -> bool:
    """True if a fake tensor's strides are symbolic, as those of ``x[:, -1:]`` are for an ``x`` of dynamic length."""
    return any(not isinstance(s, int) for s in value.stride())
