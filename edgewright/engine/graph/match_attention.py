"""Attention matching: softmax(scale * Q K^T + mask) V, found as separate operators and fused into one node.

The match is anchored at the softmax. Backwards it accepts scalar multiplications, one broadcast mask addition and
reshapes that keep the last two dimensions, up to a batched matmul; forwards, reshapes up to the second matmul. Every
intermediate must have a single reader, so that the score matrix need never be stored: the fused kernel computes it
block by block, as in FlashAttention (Dao et al., 2022). If both Q and K were dequantized from int8 and the scores are
only scaled, the product is computed on the int8 values and the scales are folded into the softmax. Queries whose keys
are all masked get zeros where the graph selects them (``safe``), as ATen's _safe_softmax does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from edgewright.engine.codegen.epilogue import Epilogue, ScalarStep, TensorStep
from edgewright.engine.graph.nodes import AttentionMatch, Operand, is_float32, is_quantized8, scalar_epilogue
from edgewright.ir.graph import Graph, Op, Value

_MIN_QUERIES = 4  # with fewer, matrix-vector kernels on the unpacked operands are faster
_MAX_INT8_DEPTH = 1 << 12  # int8 products whose sum is far from overflowing int32
_MAX_KEYS = 1 << 14  # the scores of a block must fit in the cache


@dataclass(frozen=True)
class _Chain:
    """A chain of operators from ``start`` to the softmax's input."""

    ops: tuple[Op, ...]
    start: Value
    epilogue: Epilogue = ()
    mask: Value | None = None
    scores: tuple[int, ...] = ()


def match_attention(graph: Graph) -> list[AttentionMatch]:
    """Find all attention whose intermediates have no other readers."""
    return _AttentionMatcher(graph).run()


class _AttentionMatcher:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.order = {op: i for i, op in enumerate(graph.ops)}
        self.maker = {v: op for op in graph.ops for v in op.outputs if v is not None}
        self.readers: dict[Value, list[Op]] = {}
        for op in graph.ops:
            for value in op.inputs():
                self.readers.setdefault(value, []).append(op)
        self.outputs = set(graph.outputs)

    def run(self) -> list[AttentionMatch]:
        softmaxes = (op for op in self.graph.ops if op.kind == "core.softmax")
        matches = [self._match(op) for op in softmaxes]
        return [f for f in matches if f is not None]

    def _is_private(self, value: Value, readers: int = 1) -> bool:
        """Whether a value has exactly ``readers`` reads and is not an output."""
        return len(self.readers.get(value, ())) == readers and value not in self.outputs

    def _match(self, op: Op) -> AttentionMatch | None:
        source, out = op.args["self"], op.outputs[0]
        if out is None or not (is_float32(source) and is_float32(out)) or op.args.get("limits") is not None:
            return None
        if len(out.bound) < 2 or int(op.args.get("dim", -1)) not in (-1, len(out.bound) - 1):
            return None
        safe = self._masked_row_select(source, out)
        before, after = self._scores(source, 2 if safe else 1), self._second_matmul(safe[0].outputs[0] if safe else out)
        if before is None or after is None:
            return None
        first, last = self.maker[before.start], after[-1]
        if last.outputs[0] is None or not _matmuls_supported(first, last):
            return None
        matrices = first.args["self"], first.args["other"]
        query, keys, ops = self._int8_operands(*matrices) if _only_scaled(before) else self._float_operands(*matrices)
        values, value_ops = self._dequantized_source(last.args["other"], scaled=False) or self._operand_view(
            last.args["other"]
        )
        result, seen = self._result_view(last.outputs[0])
        matched = {*ops, *value_ops, first, *before.ops, op, *safe, *after, *seen}
        ordered = tuple(sorted(matched, key=lambda o: self.order[o]))
        return AttentionMatch(
            ordered, query, keys, values, result, before.epilogue, before.mask, before.scores, bool(safe)
        )

    # ------------------------------------------------------------------------------------------------------ scores

    def _scores(self, value: Value, readers: int = 1) -> _Chain | None:
        """Match backwards from the softmax's input to the first matmul."""
        chain = _Chain((), value)
        while self._is_private(chain.start, readers if chain.start is value else 1):
            op = self.maker.get(chain.start)
            if op is None or op.args.get("limits") is not None:
                return None
            if op.kind == "core.bmm":
                return chain
            longer = self._extend(chain, op)
            if longer is None:
                return None
            chain = longer
        return None

    def _extend(self, chain: _Chain, op: Op) -> _Chain | None:
        ops = (op, *chain.ops)
        if _keeps_matrices(op):
            return _Chain(ops, op.args["self"], chain.epilogue, chain.mask, chain.scores)
        scalar = _scalar_operand(op)
        if scalar is not None:
            item, start = scalar
            return _Chain(ops, start, (item, *chain.epilogue), chain.mask, chain.scores)
        if op.kind == "core.add" and chain.mask is None:
            for start, mask in ((op.args["self"], op.args["other"]), (op.args["other"], op.args["self"])):
                if start is not mask and _mask_broadcasts(start, mask) and self._scores(start) is not None:
                    epilogue = (TensorStep("add"), *chain.epilogue)
                    return _Chain(ops, start, epilogue, mask, tuple(int(n) for n in start.bound))
        return None

    def _masked_row_select(self, scores: Value, probabilities: Value) -> list[Op]:
        """Match the select of zeros for rows whose scores are all -inf; empty if there is none."""
        if not self._is_private(probabilities) or self.readers[probabilities][0].kind != "core.where":
            return []
        where = self.readers[probabilities][0]
        zeros, value, ops, expected_kinds = where.args["self"], where.args["condition"], [where], list(_ALL_MASKED)
        if where.args["other"] is not probabilities or not zeros.constant or np.any(zeros.data):
            return []
        while expected_kinds and self._is_private(value) and (op := self.maker.get(value)) is not None:
            if op.kind in expected_kinds[0]:
                expected_kinds.pop(0)
            elif op.kind not in ("core.view", "core.clone"):
                return []
            ops.append(op)
            value = op.args["self"]
        return ops if not expected_kinds and value is scores and _reduces_masked_rows(ops, scores) else []

    def _second_matmul(self, value: Value | None) -> list[Op] | None:
        """Match forwards from the softmax's output to the second matmul."""
        ops: list[Op] = []
        while value is not None and self._is_private(value):
            op = self.readers[value][0]
            ops.append(op)
            if op.kind == "core.bmm":
                fits = op.args["self"] is value and op.args["other"] is not value and op.args.get("limits") is None
                return ops if fits else None
            if not _keeps_matrices(op):
                return None
            value = op.outputs[0]
        return None

    def _result_view(self, value: Value) -> tuple[Value, list[Op]]:
        """Skip reshapes of the result that keep its matrices."""
        ops: list[Op] = []
        while self._is_private(value) and _keeps_matrices(op := self.readers[value][0]):
            ops.append(op)
            assert op.outputs[0] is not None
            value = op.outputs[0]
        return value, ops

    def _operand_view(self, value: Value) -> tuple[Operand, tuple[Op, ...]]:
        """Skip reshapes of an operand that keep its matrices."""
        ops: list[Op] = []
        while self._is_private(value) and (op := self.maker.get(value)) is not None and _keeps_matrices(op):
            ops.append(op)
            value = op.args["self"]
        return Operand(value), tuple(ops)

    def _float_operands(self, query: Value, keys: Value) -> tuple[Operand, Operand, tuple[Op, ...]]:
        (first, query_ops), (second, key_ops) = self._operand_view(query), self._operand_view(keys)
        return first, second, (*query_ops, *key_ops)

    # -------------------------------------------------------------------------------------------------------- int8

    def _int8_operands(self, query: Value, keys: Value) -> tuple[Operand, Operand, tuple[Op, ...]]:
        """Queries and keys as the int8 tensors they were dequantized from, if both were."""
        sources = [self._dequantized_source(v) for v in (query, keys)]
        depth = int(query.bound[-1])
        if query is keys or sources[0] is None or sources[1] is None or depth % 16 or depth > _MAX_INT8_DEPTH:
            return self._float_operands(query, keys)
        (first, query_ops), (second, key_ops) = sources[0], sources[1]
        return first, second, (*query_ops, *key_ops)

    def _dequantized_source(self, value: Value, scaled: bool = True) -> tuple[Operand, tuple[Op, ...]] | None:
        factor, ops = 1.0, []
        while self._is_private(value) and (op := self.maker.get(value)) is not None:
            scalar = _scalar_operand(op) if scaled else None
            ops.append(op)
            if op.kind == "core.convert" and op.args.get("limits") is None and is_quantized8(op.args["self"].q):
                return (Operand(op.args["self"], factor), tuple(ops)) if factor > 0 else None
            if scalar is not None and scalar[0].kind in ("mul", "div") and not scalar[0].flipped:
                factor *= scalar[0].value if scalar[0].kind == "mul" else 1 / scalar[0].value
                value = scalar[1]
            elif _keeps_matrices(op):
                value = op.args["self"]
            else:
                return None
        return None


def _only_scaled(chain: _Chain) -> bool:
    """Whether scores are only multiplied by positive scalars."""
    return all(
        isinstance(i, ScalarStep) and i.kind in ("mul", "div") and not i.flipped and i.value > 0 for i in chain.epilogue
    )


_ALL_MASKED = (("core.logical_not",), ("core.amax",), ("core.logical_not",), ("core.eq",))  # in reverse order


def _reduces_masked_rows(ops: Sequence[Op], scores: Value) -> bool:
    """Whether scores are compared with -inf and the results reduced along rows."""
    compared, reduce = ops[-1].args["other"], next(op for op in ops if op.kind in _ALL_MASKED[1])
    dims, last = reduce.args.get("dim"), len(scores.bound) - 1
    rows = list(dims) if isinstance(dims, list | tuple) else [dims]
    return compared.constant and compared.data.size == 1 and compared.data.item() == -np.inf and rows in ([-1], [last])


def _keeps_matrices(op: Op) -> bool:
    """Whether an operator is a reshape that keeps the last two dimensions."""
    out = op.outputs[0]
    if op.kind not in ("core.view", "core.clone", "core.expand") or out is None:
        return False
    source = op.args["self"]
    if op.kind == "core.expand" and source.bound != out.bound:
        return False
    return min(len(source.bound), len(out.bound)) >= 2 and source.bound[-2:] == out.bound[-2:] and source.q == out.q


def _scalar_operand(op: Op) -> tuple[ScalarStep, Value] | None:
    """A binary operator with a scalar constant, and its other operand."""
    items, out = scalar_epilogue(op), op.outputs[0]
    if not items or out is None or not isinstance(items[0], ScalarStep) or op.args.get("limits") is not None:
        return None
    source = op.args["other" if items[0].flipped else "self"]
    return (items[0], source) if is_float32(source) and source.bound == out.bound else None


def _mask_broadcasts(scores: Value, mask: Value) -> bool:
    """Whether a mask broadcasts to the shape of scores and has full rows."""
    if not (is_float32(scores) and is_float32(mask)) or len(mask.bound) > len(scores.bound) or not mask.bound:
        return False
    paired = zip(reversed(mask.bound), reversed(scores.bound), strict=False)
    return mask.bound[-1] == scores.bound[-1] and all(m in (1, s) for m, s in paired)


def _matmuls_supported(first: Op, last: Op) -> bool:
    """Whether both matmuls have equal batch dimensions and supported sizes and types."""
    values: Sequence[Value] = [*first.inputs(), *last.inputs()]
    values = [*values, *(v for op in (first, last) for v in op.outputs if v is not None)]
    same_batch: Callable[[Value, Value], bool] = lambda a, b: a.bound[:-2] == b.bound[:-2]  # noqa: E731
    same = same_batch(first.args["self"], first.args["other"]) and same_batch(last.args["self"], last.args["other"])
    queries, keys = (int(n) for n in last.args["self"].bound[-2:])
    return (
        same and queries > _MIN_QUERIES and keys <= _MAX_KEYS and all(is_float32(v) and not v.constant for v in values)
    )
