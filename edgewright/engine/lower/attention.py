"""Attention as one node: keys and values are packed, then blocks of queries go all the way."""

from __future__ import annotations

import math

from edgewright.engine.codegen.epilogue import ScalarStep
from edgewright.engine.codegen.requant import affine_of
from edgewright.engine.graph.layout import Layout, Storage
from edgewright.engine.graph.match_attention import AttentionMatch
from edgewright.engine.graph.nodes import Node
from edgewright.engine.kernels import gemm
from edgewright.engine.kernels.attention import AttentionSpec, BatchStrides, emit_attention
from edgewright.engine.kernels.pack_operand import PackSpec, emit_pack_operand
from edgewright.engine.lower.base import Lowering, LoweringContext
from edgewright.engine.plan import Address
from edgewright.ir.graph import Value

_RATE = 45.0  # products per nanosecond, about


class FusedAttention(Lowering):
    """Two products and the softmax between them."""

    ignores_channel_padding = True

    def __init__(self, node: Node, found: AttentionMatch) -> None:
        super().__init__(node)
        self.found = found
        self.queries, self.keys = (int(n) for n in (found.query.value.bound[-2], found.keys.value.bound[-1]))
        self.depth, self.width = int(found.query.value.bound[-1]), int(found.out.bound[-1])
        self.many = math.prod(int(n) for n in found.out.bound[:-2])

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        return None if node.attention is None else cls(node, node.attention)

    def reads_layout(self, value: Value, layout: Layout) -> bool:
        """Keys and values are packed from wherever they lie."""
        read = (self.found.query.value, self.found.mask)
        return layout.straight or not any(value is v for v in read)

    def writes_layout(self, layout: Layout) -> bool:
        return layout.straight

    def temporaries(self, context: LoweringContext) -> list[int]:
        return [self.many * size for size in self._sizes(*self._panels(context))]

    def _panels(self, context: LoweringContext) -> tuple[list[gemm.Panel], list[gemm.Panel]]:
        isa, values = context.isa, gemm.make_panels(context.isa, self.width, self.queries)
        if not self.found.bytes:
            return gemm.make_panels(isa, self.keys, self.queries), values
        full, rest = divmod(self.keys, 2 * isa.lanes)  # whole vectors, which lie at their own multiples
        last = [gemm.Panel((isa.lanes,) * -(-rest // isa.lanes), rest)] if rest else []
        return [gemm.Panel((isa.lanes,) * 2, 2 * isa.lanes)] * full + last, values

    def _sizes(self, keys: list[gemm.Panel], values: list[gemm.Panel]) -> tuple[int, int]:
        """Bytes of packed keys and values."""
        depth = self.depth // 4 if self.found.bytes else self.depth
        return gemm.packed_size(keys, depth), gemm.packed_size(values, self.keys)

    def emit(self, context: LoweringContext) -> None:
        isa, found, panels = context.isa, self.found, self._panels(context)
        query, keys, values = (context.home(o.value) for o in (found.query, found.keys, found.values))
        out, mask = context.home(found.out), query if found.mask is None else context.home(found.mask)
        places = [Address("arena", offset) for offset in context.temporaries]
        self._pack(context, keys, self._keys(keys, panels[0]), places[0])
        self._pack(context, values, self._values(values, panels[1]), places[1])
        context.barrier = True
        vectors = max(len(p.widths) for p in (*panels[0], *panels[1]))
        made = AttentionSpec(
            self.queries, self.keys, self.depth, gemm.max_tile_pixels(isa, vectors), _walk(query), _walk(out),
            None if found.mask is None else self._mask(mask), tuple(panels[0]), tuple(panels[1]), found.tail,
            self._factor(), found.safe,
        )  # fmt: skip
        context.scratch = max(context.scratch, made.scratch(isa))
        name = context.kernel("attention", made, lambda module, name: emit_attention(module, name, isa, made))
        macs = self.many * self.queries * self.keys * (self.depth + self.width)
        slots = [query.at(), *places, out.at(), mask.at()]
        context.step(name, slots, self.many * made.tiles, macs / _RATE, macs)

    def _factor(self) -> float:
        """What a product of a query's and a key's byte stands for; 0 if they are reals."""
        if not self.found.bytes:
            return 0.0
        factor = 1.0
        for operand in (self.found.query, self.found.keys):
            assert operand.value.q is not None
            factor *= operand.factor * affine_of(operand.value.q).scale
        for item in self.found.tail:
            assert isinstance(item, ScalarStep)
            factor *= item.value if item.kind == "mul" else 1 / item.value
        return factor

    def _keys(self, keys: Storage, panels: list[gemm.Panel]) -> PackSpec:
        shape, strides = keys.layout.shape, keys.layout.strides
        query, bytes_ = self.found.query.value.q, self.found.bytes
        zero = None if query is None or not bytes_ else affine_of(query).zero
        depth = self.depth // 4 if bytes_ else self.depth
        return PackSpec(shape[:-2], strides[:-2], depth, strides[-2], strides[-1], tuple(panels), zero=zero)

    def _values(self, values: Storage, panels: list[gemm.Panel]) -> PackSpec:
        shape, strides = values.layout.shape, values.layout.strides
        affine = None if values.value.q is None else affine_of(values.value.q)
        return PackSpec(shape[:-2], strides[:-2], self.keys, strides[-2], strides[-1], tuple(panels), affine)

    def _pack(self, context: LoweringContext, matrix: Storage, packing: PackSpec, place: Address) -> None:
        name = context.kernel(
            "packing", packing, lambda module, name: emit_pack_operand(module, name, context.isa, packing)
        )
        context.step(name, [matrix.at(), place], self.many * len(packing.panels), self.many * packing.matrix * 0.05)

    def _mask(self, mask: Storage) -> BatchStrides:
        """A mask, in the shape of the scores: 0 where it is repeated."""
        scores, shape = self.found.scores, mask.layout.shape
        own = [1] * (len(scores) - len(shape)) + list(shape)
        steps = [0] * (len(scores) - len(shape)) + list(mask.layout.strides)
        spread = [0 if n == 1 else s for n, s in zip(own, steps, strict=True)]
        return BatchStrides(scores[:-2], tuple(spread[:-2]), spread[-2])


def _walk(home: Storage) -> BatchStrides:
    return BatchStrides(home.layout.shape[:-2], home.layout.strides[:-2], home.layout.strides[-2])
