"""Attention in a graph: a product of queries and keys, what is done to it, a softmax, and its product with values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from edgewright.engine.codegen.epilogue import Epilogue, ScalarStep, TensorStep
from edgewright.engine.graph.nodes import is_float32, is_quantized8, scalar_epilogue
from edgewright.ir.graph import Graph, Op, Value

_FEW = 4  # queries: so few are multiplied with keys and values as they lie
_DEEP = 1 << 12  # products of bytes, whose sum is far from 32 bits
_MANY = 1 << 14  # keys: the scores of a block must stay in the cache


@dataclass(frozen=True)
class Operand:
    """A matrix: real numbers, or bytes that ``factor`` times their meaning are to be multiplied."""

    value: Value
    factor: float = 1.0


@dataclass(frozen=True)
class AttentionMatch:
    """``ops`` in the order of the graph. ``scores`` is the shape in which the mask is added.

    ``safe``: queries all of whose keys are masked get zeros.
    """

    ops: tuple[Op, ...]
    query: Operand
    keys: Operand
    values: Operand
    out: Value
    tail: Epilogue
    mask: Value | None
    scores: tuple[int, ...]
    safe: bool = False

    @property
    def bytes(self) -> bool:
        """Whether scores are products of bytes."""
        return self.query.value.q is not None

    def replace_value(self, old: Value, new: Value) -> AttentionMatch:
        """The same with another value in the place of one."""
        made = [replace(o, value=new) if o.value is old else o for o in (self.query, self.keys, self.values)]
        mask = new if self.mask is old else self.mask
        return replace(self, query=made[0], keys=made[1], values=made[2], mask=mask)


@dataclass(frozen=True)
class _Chain:
    """Operators from a value back to another."""

    ops: tuple[Op, ...]
    start: Value
    tail: Epilogue = ()
    mask: Value | None = None
    scores: tuple[int, ...] = ()


def match_attention(graph: Graph) -> list[AttentionMatch]:
    """All attention in a graph whose middle nothing else sees."""
    return _Finder(graph).run()


class _Finder:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.place = {op: i for i, op in enumerate(graph.ops)}
        self.maker = {v: op for op in graph.ops for v in op.outputs if v is not None}
        self.readers: dict[Value, list[Op]] = {}
        for op in graph.ops:
            for value in op.inputs():
                self.readers.setdefault(value, []).append(op)
        self.outputs = set(graph.outputs)

    def run(self) -> list[AttentionMatch]:
        softmaxes = (op for op in self.graph.ops if op.kind == "softmax")
        found = [self._around(op) for op in softmaxes]
        return [f for f in found if f is not None]

    def _hidden(self, value: Value, readers: int = 1) -> bool:
        """So many operators read a value, once each, and nothing else ever sees it."""
        return len(self.readers.get(value, ())) == readers and value not in self.outputs

    def _around(self, op: Op) -> AttentionMatch | None:
        given, out = op.args["self"], op.outputs[0]
        if out is None or not (is_float32(given) and is_float32(out)) or op.args.get("limits") is not None:
            return None
        if len(out.bound) < 2 or int(op.args.get("dim", -1)) not in (-1, len(out.bound) - 1):
            return None
        safe = self._made_safe(given, out)
        before, after = self._scores(given, 2 if safe else 1), self._after(safe[0].outputs[0] if safe else out)
        if before is None or after is None:
            return None
        first, last = self.maker[before.start], after[-1]
        if last.outputs[0] is None or not _products(first, last):
            return None
        matrices = first.args["self"], first.args["other"]
        query, keys, ops = self._bytes(*matrices) if _plain(before) else self._reals(*matrices)
        values, more = self._from_bytes(last.args["other"], scaled=False) or self._source(last.args["other"])
        made, seen = self._seen(last.outputs[0])
        together = {*ops, *more, first, *before.ops, op, *safe, *after, *seen}
        ordered = tuple(sorted(together, key=lambda o: self.place[o]))
        return AttentionMatch(ordered, query, keys, values, made, before.tail, before.mask, before.scores, bool(safe))

    # ------------------------------------------------------------------------------------------------------ scores

    def _scores(self, value: Value, readers: int = 1) -> _Chain | None:
        """From what the softmax is given back to a product."""
        chain = _Chain((), value)
        while self._hidden(chain.start, readers if chain.start is value else 1):
            op = self.maker.get(chain.start)
            if op is None or op.args.get("limits") is not None:
                return None
            if op.kind == "bmm":
                return chain
            further = self._back(chain, op)
            if further is None:
                return None
            chain = further
        return None

    def _back(self, chain: _Chain, op: Op) -> _Chain | None:
        ops = (op, *chain.ops)
        if _same_matrices(op):
            return _Chain(ops, op.args["self"], chain.tail, chain.mask, chain.scores)
        scalar = _scalar(op)
        if scalar is not None:
            item, start = scalar
            return _Chain(ops, start, (item, *chain.tail), chain.mask, chain.scores)
        if op.kind == "add" and chain.mask is None:
            for start, mask in ((op.args["self"], op.args["other"]), (op.args["other"], op.args["self"])):
                if start is not mask and _masks(start, mask) and self._scores(start) is not None:
                    tail = (TensorStep("add"), *chain.tail)
                    return _Chain(ops, start, tail, mask, tuple(int(n) for n in start.bound))
        return None

    def _made_safe(self, scores: Value, shares: Value) -> list[Op]:
        """What puts zeros in the place of shares where all scores are minus infinity; empty if nothing does."""
        if not self._hidden(shares) or self.readers[shares][0].kind != "where":
            return []
        where = self.readers[shares][0]
        zeros, value, ops, wanted = where.args["self"], where.args["condition"], [where], list(_ALL_MASKED)
        if where.args["other"] is not shares or not zeros.constant or np.any(zeros.data):
            return []
        while wanted and self._hidden(value) and (op := self.maker.get(value)) is not None:
            if op.kind in wanted[0]:
                wanted.pop(0)
            elif op.kind not in ("view", "clone"):
                return []
            ops.append(op)
            value = op.args["self"]
        return ops if not wanted and value is scores and _rows_of_infinity(ops, scores) else []

    def _after(self, value: Value | None) -> list[Op] | None:
        """From shares to their product with values."""
        ops: list[Op] = []
        while value is not None and self._hidden(value):
            op = self.readers[value][0]
            ops.append(op)
            if op.kind == "bmm":
                fits = op.args["self"] is value and op.args["other"] is not value and op.args.get("limits") is None
                return ops if fits else None
            if not _same_matrices(op):
                return None
            value = op.outputs[0]
        return None

    def _seen(self, value: Value) -> tuple[Value, list[Op]]:
        """A result in the shape it is read in."""
        ops: list[Op] = []
        while self._hidden(value) and _same_matrices(op := self.readers[value][0]):
            ops.append(op)
            assert op.outputs[0] is not None
            value = op.outputs[0]
        return value, ops

    def _source(self, value: Value) -> tuple[Operand, tuple[Op, ...]]:
        """A matrix in the shape it was made in."""
        ops: list[Op] = []
        while self._hidden(value) and (op := self.maker.get(value)) is not None and _same_matrices(op):
            ops.append(op)
            value = op.args["self"]
        return Operand(value), tuple(ops)

    def _reals(self, query: Value, keys: Value) -> tuple[Operand, Operand, tuple[Op, ...]]:
        (first, one), (second, other) = self._source(query), self._source(keys)
        return first, second, (*one, *other)

    # ------------------------------------------------------------------------------------------------------- bytes

    def _bytes(self, query: Value, keys: Value) -> tuple[Operand, Operand, tuple[Op, ...]]:
        """Both as the bytes they were made from, if both were."""
        found = [self._from_bytes(v) for v in (query, keys)]
        depth = int(query.bound[-1])
        if query is keys or found[0] is None or found[1] is None or depth % 16 or depth > _DEEP:
            return self._reals(query, keys)
        (first, one), (second, other) = found[0], found[1]
        return first, second, (*one, *other)

    def _from_bytes(self, value: Value, scaled: bool = True) -> tuple[Operand, tuple[Op, ...]] | None:
        factor, ops = 1.0, []
        while self._hidden(value) and (op := self.maker.get(value)) is not None:
            scalar = _scalar(op) if scaled else None
            ops.append(op)
            if op.kind == "convert" and op.args.get("limits") is None and is_quantized8(op.args["self"].q):
                return (Operand(op.args["self"], factor), tuple(ops)) if factor > 0 else None
            if scalar is not None and scalar[0].kind in ("mul", "div") and not scalar[0].flipped:
                factor *= scalar[0].value if scalar[0].kind == "mul" else 1 / scalar[0].value
                value = scalar[1]
            elif _same_matrices(op):
                value = op.args["self"]
            else:
                return None
        return None


def _plain(chain: _Chain) -> bool:
    """Scores are only multiplied by positive numbers."""
    return all(
        isinstance(i, ScalarStep) and i.kind in ("mul", "div") and not i.flipped and i.value > 0 for i in chain.tail
    )


_ALL_MASKED = (("logical_not",), ("amax", "any"), ("logical_not",), ("eq",))  # from the last to the first


def _rows_of_infinity(ops: Sequence[Op], scores: Value) -> bool:
    """Whether scores are compared with minus infinity, and the answers joined along rows."""
    equal, most = ops[-1].args["other"], next(op for op in ops if op.kind in _ALL_MASKED[1])
    dims, last = most.args.get("dim"), len(scores.bound) - 1
    rows = list(dims) if isinstance(dims, list | tuple) else [dims]
    return equal.constant and equal.data.size == 1 and equal.data.item() == -np.inf and rows in ([-1], [last])


def _same_matrices(op: Op) -> bool:
    """Another shape with the same last two dimensions."""
    out = op.outputs[0]
    if op.kind not in ("view", "clone", "expand") or out is None:
        return False
    given = op.args["self"]
    if op.kind == "expand" and given.bound != out.bound:
        return False
    return min(len(given.bound), len(out.bound)) >= 2 and given.bound[-2:] == out.bound[-2:] and given.q == out.q


def _scalar(op: Op) -> tuple[ScalarStep, Value] | None:
    """An operator with one constant number, and what else it reads."""
    items, out = scalar_epilogue(op), op.outputs[0]
    if not items or out is None or not isinstance(items[0], ScalarStep) or op.args.get("limits") is not None:
        return None
    given = op.args["other" if items[0].flipped else "self"]
    return (items[0], given) if is_float32(given) and given.bound == out.bound else None


def _masks(scores: Value, mask: Value) -> bool:
    """Whether a mask is repeated to the shape of scores, whose rows it holds."""
    if not (is_float32(scores) and is_float32(mask)) or len(mask.bound) > len(scores.bound) or not mask.bound:
        return False
    paired = zip(reversed(mask.bound), reversed(scores.bound), strict=False)
    return mask.bound[-1] == scores.bound[-1] and all(m in (1, s) for m, s in paired)


def _products(first: Op, last: Op) -> bool:
    """Two products of the same matrices, one for each of a batch."""
    values: Sequence[Value] = [*first.inputs(), *last.inputs()]
    values = [*values, *(v for op in (first, last) for v in op.outputs if v is not None)]
    alike: Callable[[Value, Value], bool] = lambda a, b: a.bound[:-2] == b.bound[:-2]  # noqa: E731
    same = alike(first.args["self"], first.args["other"]) and alike(last.args["self"], last.args["other"])
    queries, keys = (int(n) for n in last.args["self"].bound[-2:])
    return same and queries > _FEW and keys <= _MANY and all(is_float32(v) and not v.constant for v in values)
