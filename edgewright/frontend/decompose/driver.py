"""The rewrite driver: a rule if there is one, the operator itself if it is supported, else its trace."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from edgewright.errors import UnsupportedOperatorError
from edgewright.frontend.decompose import (  # noqa: F401  (they register rules)
    backward,
    conv3d,
    layers,
    matmul,
    order_statistics,
    quantized_embedding,
    recurrent,
    runtime_limits,
    softmax,
    special,
)
from edgewright.frontend.decompose.canonical import RULES
from edgewright.frontend.decompose.complex_numbers import check_operands
from edgewright.frontend.decompose.renames import RENAMES
from edgewright.frontend.decompose.trace_op import decompose
from edgewright.frontend.rewriter import NO_KERNEL, Rewriter

aten = torch.ops.aten
_MAX_DEPTH = 12  # of nested decompositions


class DecomposingRewriter(Rewriter):
    """The rewriter that applies all rules and decompositions."""

    _depth = 0

    def call(self, op: Any, *args: Any, val: Any = None, **kwargs: Any) -> Any:
        """The result of ``op``: rewritten by a rule, emitted as is, or decomposed. ``val``: its fake result, if any."""
        if op is aten.sym_size.int and isinstance(args[0], fx.Node) and op not in self.no_decompose:
            return self.size(args[0], args[1])
        op = op if op in self.no_decompose else RENAMES.get(op, op)
        rule = RULES.get(op)
        if rule is not None and op not in self.no_decompose:
            result = rule(self, *args, **kwargs)
            if result is not NotImplemented:
                return result
        if isinstance(op, torch._ops.OpOverload) and op.namespace == "aten" and self.is_supported(op):
            check_operands(self, op, args)
        is_table = self.packs_embeddings and self.origin is not None and op is self.origin.target
        if self.is_supported(op) or op in self.no_decompose or (is_table and quantized_embedding.is_table(self.origin)):
            if val is None:
                val = self.fake(op, args, kwargs)
            return self.unpack(self.emit(op, args, kwargs, val=val), val)
        if self._depth >= _MAX_DEPTH:
            raise self.unsupported(op, "decomposes without end")
        self._depth += 1
        try:
            return decompose(self, op, args, kwargs)
        except UnsupportedOperatorError as error:
            constant = self._evaluate(op, args, kwargs)
            if constant is not None:
                return constant
            if self.strict and self.remedy(op):  # what it decomposes into is of less use to the reader
                raise self.unsupported(op, NO_KERNEL) from error
            if self.strict:
                raise
            val = self.fake(op, args, kwargs) if val is None else val
            return self.unpack(self.emit(op, args, kwargs, val=val), val)
        finally:
            self._depth -= 1

    def _evaluate(self, op: Any, args: Any, kwargs: Any) -> fx.Node | None:
        """The result of a call that reads no input, as a constant: a resized position embedding, for example. None for
        any other call."""
        if self.add_constant is None:
            return None
        value = self.constants.call(op, args, kwargs)
        return self.add_constant(value.contiguous()) if isinstance(value, torch.Tensor) else None
