"""Fused scaled dot-product attention.

Keys and values are packed into GEMM panels, then one kernel takes a tile of queries through scores, mask, softmax and
the product with the values while the scores stay in thread scratch: memory is O(keys) per tile, not O(queries * keys).
Unlike FlashAttention (Dao et al., 2022) the tile keeps the scores of all keys, so the softmax needs no online
rescaling and the results do not depend on a block size over keys. int8 queries and keys multiply as integers; the
scales of both and of constant factors fold into one multiplier (``_score_scale``).
"""

from __future__ import annotations

import math

from edgewright.engine.codegen.epilogue import ScalarStep
from edgewright.engine.codegen.requant import affine_of
from edgewright.engine.graph.layout import Layout, Storage
from edgewright.engine.graph.nodes import AttentionMatch, Node
from edgewright.engine.kernels import gemm
from edgewright.engine.kernels.attention import AttentionSpec, BatchStrides, emit_attention
from edgewright.engine.kernels.matmul import PackSpec, emit_pack_operand
from edgewright.engine.lower.base import Lowering, LoweringContext
from edgewright.engine.plan import Address
from edgewright.ir.graph import Value

_RATE = 45.0  # approximate multiply-adds per nanosecond on one core


class FusedAttention(Lowering):
    """Two matrix products and the softmax between them, as found by ``graph/match_attention.py``."""

    ignores_channel_padding = True

    def __init__(self, node: Node, match: AttentionMatch) -> None:
        super().__init__(node)
        self.match = match
        self.queries, self.keys = (int(n) for n in (match.query.value.bound[-2], match.keys.value.bound[-1]))
        self.depth, self.width = int(match.query.value.bound[-1]), int(match.out.bound[-1])
        self.batch_count = math.prod(int(n) for n in match.out.bound[:-2])

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        return None if node.attention is None else cls(node, node.attention)

    def reads_layout(self, value: Value, layout: Layout) -> bool:
        """Packing reads keys and values with any strides."""
        read_in_place = (self.match.query.value, self.match.mask)
        return layout.straight or not any(value is v for v in read_in_place)

    def writes_layout(self, layout: Layout) -> bool:
        return layout.straight

    def temporaries(self, context: LoweringContext) -> list[int]:
        return [self.batch_count * size for size in self._packed_sizes(*self._panels(context))]

    def _panels(self, context: LoweringContext) -> tuple[list[gemm.Panel], list[gemm.Panel]]:
        isa, values = context.isa, gemm.make_panels(context.isa, self.width, self.queries)
        if not self.match.bytes:
            return gemm.make_panels(isa, self.keys, self.queries), values
        full, remainder = divmod(self.keys, 2 * isa.lanes)  # full vectors, at aligned offsets
        last = [gemm.Panel((isa.lanes,) * -(-remainder // isa.lanes), remainder)] if remainder else []
        return [gemm.Panel((isa.lanes,) * 2, 2 * isa.lanes)] * full + last, values

    def _packed_sizes(self, keys: list[gemm.Panel], values: list[gemm.Panel]) -> tuple[int, int]:
        """Bytes of the packed keys and values of one matrix."""
        depth = self.depth // 4 if self.match.bytes else self.depth
        return gemm.packed_size(keys, depth), gemm.packed_size(values, self.keys)

    def emit(self, context: LoweringContext) -> None:
        isa, match, panels = context.isa, self.match, self._panels(context)
        query, keys, values = (context.storage(o.value) for o in (match.query, match.keys, match.values))
        out, mask = context.storage(match.out), query if match.mask is None else context.storage(match.mask)
        packed = [Address("arena", offset) for offset in context.temporaries]
        self._emit_packing(context, keys, self._key_packing(keys, panels[0]), packed[0])
        self._emit_packing(context, values, self._value_packing(values, panels[1]), packed[1])
        context.barrier = True
        vectors = max(len(p.widths) for p in (*panels[0], *panels[1]))
        spec = AttentionSpec(
            self.queries, self.keys, self.depth, gemm.max_tile_pixels(isa, vectors), _walk(query), _walk(out),
            None if match.mask is None else self._mask(mask), tuple(panels[0]), tuple(panels[1]), match.epilogue,
            self._score_scale(), match.safe,
        )  # fmt: skip
        context.scratch = max(context.scratch, spec.scratch(isa))
        name = context.kernel("attention", spec, lambda module, name: emit_attention(module, name, isa, spec))
        macs = self.batch_count * self.queries * self.keys * (self.depth + self.width)
        slots = [query.at(), *packed, out.at(), mask.at()]
        context.step(name, slots, self.batch_count * spec.tiles, macs / _RATE, macs)

    def _score_scale(self) -> float:
        """The factor from int8 products to scores; 0 if queries and keys are floats."""
        if not self.match.bytes:
            return 0.0
        scale = 1.0
        for operand in (self.match.query, self.match.keys):
            assert operand.value.q is not None
            scale *= operand.factor * affine_of(operand.value.q).scale
        for item in self.match.epilogue:
            assert isinstance(item, ScalarStep)
            scale *= item.value if item.kind == "mul" else 1 / item.value
        return scale

    def _key_packing(self, keys: Storage, panels: list[gemm.Panel]) -> PackSpec:
        shape, strides = keys.layout.shape, keys.layout.strides
        query, bytes_ = self.match.query.value.q, self.match.bytes
        zero = None if query is None or not bytes_ else affine_of(query).zero
        depth = self.depth // 4 if bytes_ else self.depth
        return PackSpec(shape[:-2], strides[:-2], depth, strides[-2], strides[-1], tuple(panels), zero=zero)

    def _value_packing(self, values: Storage, panels: list[gemm.Panel]) -> PackSpec:
        shape, strides = values.layout.shape, values.layout.strides
        affine = None if values.value.q is None else affine_of(values.value.q)
        return PackSpec(shape[:-2], strides[:-2], self.keys, strides[-2], strides[-1], tuple(panels), affine)

    def _emit_packing(self, context: LoweringContext, matrix: Storage, packing: PackSpec, address: Address) -> None:
        name = context.kernel(
            "packing", packing, lambda module, name: emit_pack_operand(module, name, context.isa, packing)
        )
        context.step(
            name,
            [matrix.at(), address],
            self.batch_count * len(packing.panels),
            self.batch_count * packing.matrix * 0.05,
        )

    def _mask(self, mask: Storage) -> BatchStrides:
        """Strides of the mask in the shape of the scores; 0 where it is broadcast."""
        scores, shape = self.match.scores, mask.layout.shape
        sizes = [1] * (len(scores) - len(shape)) + list(shape)
        steps = [0] * (len(scores) - len(shape)) + list(mask.layout.strides)
        strides = [0 if n == 1 else s for n, s in zip(sizes, steps, strict=True)]
        return BatchStrides(scores[:-2], tuple(strides[:-2]), strides[-2])


def _walk(storage: Storage) -> BatchStrides:
    return BatchStrides(storage.layout.shape[:-2], storage.layout.strides[:-2], storage.layout.strides[-2])
