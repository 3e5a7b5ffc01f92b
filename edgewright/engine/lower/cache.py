"""Slices at a run-time position, updates of caches in place, and attention over caches."""

from __future__ import annotations

import math

import numpy as np

from edgewright.engine.codegen.builder import Module
from edgewright.engine.graph.layout import Storage
from edgewright.engine.graph.nodes import Node
from edgewright.engine.isa import ISA
from edgewright.engine.kernels.cache import (
    KEY_BLOCK,
    CachedAttentionSpec,
    emit_cached_attention,
    emit_merge_attention,
    emit_position_copy,
)
from edgewright.engine.kernels.quantized_cache import (
    QuantizedAttentionSpec,
    emit_quantized_attention,
    emit_row_quantization,
)
from edgewright.engine.kernels.quantized_decode import QuantizedDecodeSpec, emit_quantized_decode
from edgewright.engine.lower.base import DenseLowering, Lowering, LoweringContext, is_unfused
from edgewright.engine.lower.move import emit_copy
from edgewright.engine.plan import Address, KernelArg
from edgewright.ir.graph import Value

_POSITIONS = (np.dtype(np.int64), np.dtype(np.int32))
_RATE = 40.0  # approximate multiply-adds per nanosecond on one core
_PARTS = 8  # of the keys of a single position, for threads to share
_TILE_ROWS = 48  # of a unit: enough to repay transposing the keys, few enough to stay in L1
_MAX_KEYS = 1 << 20


def _item(position: Value) -> int:
    assert position.dtype is not None
    return int(position.dtype.itemsize)


def _emit_position_copy(
    context: LoweringContext, tensor: Storage, rows: Storage, position: Value, dim: int, update: bool
) -> None:
    shape, layout = rows.layout.shape, tensor.layout
    run, item = math.prod(layout.shape[dim + 1 :]) * layout.item, _item(position)
    batch, count, size = math.prod(shape[:dim]), shape[dim], layout.shape[dim]
    name = context.kernel(
        "position_copy",
        (run, item, update),
        lambda module, name: emit_position_copy(module, name, run, item, update),
    )
    slots: list[KernelArg] = [tensor.at(), rows.at(), context.storage(position).at(), count, size]
    context.step(name, slots, batch * count, batch * count * (5 + run * 0.05))


class DynamicSlice(DenseLowering):
    """dynamic_slice: a copy of rows."""

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        op = node.op
        supported = is_unfused(node, "core.dynamic_slice") and op.args["position"].dtype in _POSITIONS
        return cls(node) if supported and op.args["self"].q == node.out.q else None

    def emit(self, context: LoweringContext) -> None:
        args = self.node.op.args
        _emit_position_copy(
            context, context.storage(args["self"]), context.storage(self.node.out), args["position"], 0, False
        )


class DynamicUpdateSlice(DenseLowering):
    """dynamic_update_slice: copies the tensor, unless it is updated in place, then overwrites rows."""

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        op = node.op
        if not is_unfused(node, "core.dynamic_update_slice") or op.args["position"].dtype not in _POSITIONS:
            return None
        plain = all(v.q is None and v.dtype == node.out.dtype for v in (op.args["self"], op.args["values"], node.out))
        return cls(node) if plain else None

    def emit(self, context: LoweringContext) -> None:
        args, out = self.node.op.args, context.storage(self.node.out)
        if context.storage(args["self"]).address != out.address:
            emit_copy(context, context.storage(args["self"]), out)
            context.barrier = True
        _emit_position_copy(context, out, context.storage(args["values"]), args["position"], 1, True)


class CachedAttention(DenseLowering):
    """cached_attention of float32."""

    def __init__(self, node: Node, spec: CachedAttentionSpec) -> None:
        super().__init__(node)
        self.spec = spec
        self.batch, self.count = (int(n) for n in node.out.bound[:2])
        self.length = int(node.op.args["key"].bound[1])

    kind = "cached_attention"

    @classmethod
    def spec_type(cls, single: bool) -> type[CachedAttentionSpec]:
        return CachedAttentionSpec

    def emit_kernel(self, module: Module, name: str, isa: ISA) -> None:
        emit_cached_attention(module, name, isa, self.spec)

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        op = node.op
        if not is_unfused(node, f"core.{cls.kind}") or op.args["position"].dtype not in _POSITIONS:
            return None
        count, heads, width = (int(n) for n in node.out.bound[1:])
        length, groups = (int(n) for n in op.args["key"].bound[1:3])
        shared, mask = heads // groups, op.args.get("mask") is not None
        tile = 1 if count == 1 else max(2, _TILE_ROWS // shared)
        clamp = length % KEY_BLOCK != 0
        spec = cls.spec_type(tile == 1)(
            groups, shared, width, float(op.args["scale"]), bool(op.args["causal"]), _item(op.args["position"]), tile,
            _PARTS if tile == 1 else 1, mask, clamp,
        )  # fmt: skip
        supported = spec.lanes(context.isa) and length <= _MAX_KEYS
        return cls(node, spec) if supported else None

    def parameters(self, context: LoweringContext) -> list[KernelArg]:
        """Further arguments of the kernel."""
        return []

    @property
    def _units(self) -> int:
        spec = self.spec
        return self.batch * (spec.parts if spec.parts > 1 else spec.groups * self._tiles)

    @property
    def _tiles(self) -> int:
        return -(-self.count // self.spec.tile)

    def temporaries(self, context: LoweringContext) -> list[int]:
        return [self._units * self.spec.groups * self.spec.part_size] if self.spec.parts > 1 else []

    def emit(self, context: LoweringContext) -> None:
        spec, isa, args = self.spec, context.isa, self.node.op.args
        query, key, value = (context.storage(args[name]) for name in ("query", "key", "value"))
        out = context.storage(self.node.out)
        mask = query if args.get("mask") is None else context.storage(args["mask"])
        parts = Address("arena", context.temporaries[0]) if spec.parts > 1 else out.at()
        context.scratch = max(context.scratch, spec.offsets(isa)["end"])
        name = context.kernel(self.kind, spec, lambda module, name: self.emit_kernel(module, name, isa))
        slots: list[KernelArg] = [
            query.at(), key.at(), value.at(), out.at(), context.storage(args["position"]).at(), mask.at(), self.count,
            self.length, self._tiles, parts, *self.parameters(context),
        ]  # fmt: skip
        heads = spec.groups * spec.shared
        macs = self.batch * self.count * heads * self.length * spec.width  # on average half of them, twice
        context.step(name, slots, self._units, macs / _RATE, macs)
        if spec.parts > 1:
            self._emit_merge(context, parts, out, self.batch * heads)

    def _emit_merge(self, context: LoweringContext, parts: Address, out: Storage, heads: int) -> None:
        spec, isa = self.spec, context.isa
        name = context.kernel(
            "merge_attention", spec, lambda module, name: emit_merge_attention(module, name, isa, spec)
        )
        context.barrier = True
        context.step(name, [parts, out.at()], heads, heads * spec.width * spec.parts * 0.2)


class QuantizedCachedAttention(CachedAttention):
    """quantized_cached_attention."""

    kind = "quantized_cached_attention"

    @classmethod
    def spec_type(cls, single: bool) -> type[CachedAttentionSpec]:
        return QuantizedDecodeSpec if single else QuantizedAttentionSpec

    def emit_kernel(self, module: Module, name: str, isa: ISA) -> None:
        if isinstance(self.spec, QuantizedDecodeSpec):
            emit_quantized_decode(module, name, isa, self.spec)
        else:
            emit_quantized_attention(module, name, isa, self.spec)

    def parameters(self, context: LoweringContext) -> list[KernelArg]:
        args = self.node.op.args
        names = (f"{tensor}_{name}" for tensor in ("query", "key", "value") for name in ("scale", "zero_point"))
        return [context.storage(args[name]).at() for name in names]


class RowQuantization(DenseLowering):
    """row_scale, row_zero_point and quantize_rows."""

    @classmethod
    def accept(cls, node: Node, context: LoweringContext) -> Lowering | None:
        kinds = ("core.row_scale", "core.row_zero_point", "core.quantize_rows")
        return cls(node) if is_unfused(node, *kinds) else None

    def emit(self, context: LoweringContext) -> None:
        x, out = context.storage(self.node.op.args["self"]), context.storage(self.node.out)
        kind, lanes, length = self.node.op.name, context.isa.lanes, x.layout.shape[-1]
        name = context.kernel(
            kind, length, lambda module, name: emit_row_quantization(module, name, lanes, kind, length)
        )
        rows = math.prod(x.layout.shape[:-1])
        context.step(name, [x.at(), out.at()], rows, rows * (30 + length * 0.1))
