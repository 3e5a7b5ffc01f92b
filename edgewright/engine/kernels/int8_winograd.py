"""Exact Winograd F(4x4, 3x3) for int8 convolutions, in int32 arithmetic modulo 2**32.

The filter transform G has fractions, but with its rows scaled by 4, 6, 6, 24, 24 and 1 it is integral, and with the
matching factors in the output transform the algorithm computes 24 * 24 = 576 times the convolution, in integers.
Transformed weights and inputs fit in int16, so the gemms use int16 dot products (pmaddwd, vpdpwssd). Their int32 sums
may overflow, which is harmless: integers modulo 2**32 form a ring, so 576 r is right modulo 2**32.
576 = 9 * 64: multiplying by the inverse of the odd factor 9 modulo 2**32 leaves 64 r, and an arithmetic shift by 6
recovers r if |r| < 2**25, which a bound on the weights guarantees (``max_abs_output``). The result equals the direct
convolution bit by bit, with four times fewer multiplications. For exact division by a modular inverse see Hacker's
Delight, chapter 10.
"""

from __future__ import annotations

import numpy as np

from edgewright.engine.codegen.builder import PTR, Function, Module, Reg, const, vec
from edgewright.engine.codegen.vector import Int16Dot, unpack_uint8_to_four
from edgewright.engine.isa import ISA
from edgewright.engine.kernels.gemm import Window
from edgewright.engine.kernels.int8_gemm import (
    Int8Epilogue,
    Int8EpilogueEmitter,
    accumulate_tile,
    channel_order,
    load_requantizers,
)
from edgewright.engine.kernels.winograd import OutputTiles, PatchRow, emit_output_tiles
from edgewright.ir.graph import Array

_FILTER_TRANSFORM = np.array([[1, 0, 0], [-1, -1, -1], [-1, 1, -1], [1, 2, 4], [1, -2, 4], [0, 0, 1]], np.int32)
_INVERSE_OF_9 = pow(9, -1, 1 << 32) - (1 << 32)
_SHIFT_64 = 6
MAX_ABS_OUTPUT = 1 << 25


def max_abs_output(filters: Array) -> int:
    """The largest magnitude of an output, for ``filters`` [channels, 3, 3, inputs] and uint8 inputs."""
    flat = filters.reshape(len(filters), -1)
    above, below = (np.maximum(sign * flat, 0, dtype=np.int32).sum(axis=1, dtype=np.int64) for sign in (1, -1))
    return 255 * int(max(above.max(initial=0), below.max(initial=0)))


def transform_weights(filters: Array) -> Array:
    """The scaled G g G^T: ``filters`` [channels, 3, 3, inputs] to [points, channels, inputs] of int16."""
    taps = filters.transpose(1, 2, 0, 3).reshape(9, -1).astype(np.int32)
    points = np.kron(_FILTER_TRANSFORM, _FILTER_TRANSFORM) @ taps
    return points.astype(np.int16).reshape(36, filters.shape[0], filters.shape[3])


def pack_weights(buffer: Array, lanes: int, filters: Array, vectors: int) -> None:
    """Pack per point panels of ``vectors`` vectors: each step has the weights of two inputs for every channel."""
    channels, block = len(filters), 4 * lanes
    steps = filters.shape[3] // 2
    panels = buffer.view(np.int32).reshape(36, channels // (vectors * lanes), steps, vectors * lanes)
    panels_per_block = block // (vectors * lanes)
    for start in range(0, channels, block):
        pairs = transform_weights(filters[start : start + block]).view(np.int32)[:, channel_order(lanes, 4)]
        first = start // (vectors * lanes)
        panels[:, first : first + panels_per_block] = pairs.reshape(
            36, panels_per_block, vectors * lanes, steps
        ).transpose(0, 1, 3, 2)


def pack_epilogue_params(lanes: int, bias: Array, factors: Array, notes: Array) -> Array:
    """Per block of channels its bias and requantization factors, then the epilogue's parameters."""
    order = channel_order(lanes, 4)
    rows = np.concatenate((bias[None], factors.view(np.int32)))
    blocks = rows.reshape(len(rows), -1, 4 * lanes)[:, :, order].transpose(1, 0, 2)
    return np.concatenate((np.ascontiguousarray(blocks).view(np.uint8).reshape(-1), notes))


def emit_tile(module: Module, isa: ISA, pixels: int, vectors: int, window: Window, out_step: int) -> Function:
    """Emit ``tile(data, weights, out, second)``: int32 sums of one point."""
    name = f"tile_{pixels}_{vectors}"
    f = module.function(name, [(PTR, n) for n in ("data", "weights", "out", "second")])
    zeros = [const(0, vec(isa.lanes, "i32"))] * vectors
    panel = window.depth * vectors * 4 * isa.lanes
    sums = accumulate_tile(f, Int16Dot(f, isa), pixels, window, f.arg("weights"), zeros, ahead=panel)
    for p in range(pixels):
        for j in range(vectors):
            f.store(sums[p * vectors + j], f.arg("out"), p * out_step + 4 * isa.lanes * j, 4)
    f.ret()
    return f


def _output_transform(f: Function, x: list[Reg]) -> list[Reg]:
    """24 * A^T x in one dimension."""

    def times(a: Reg, factor: int) -> Reg:
        return f.op("mul", a, const(factor, a.type))

    def add(a: Reg, b: Reg) -> Reg:
        return f.op("add", a, b)

    total, difference = times(add(x[1], x[2]), 4), times(f.op("sub", x[1], x[2]), 4)
    outer_sum, outer_difference = add(x[3], x[4]), f.op("sub", x[3], x[4])
    return [
        add(add(times(x[0], 6), total), outer_sum),
        add(difference, times(outer_difference, 2)),
        add(total, times(outer_sum, 4)),
        add(add(difference, times(outer_difference, 8)), times(x[5], 24)),
    ]


def _accumulators(f: Function, patches: PatchRow, lanes: int, now: list[Reg]) -> list[Reg]:
    """A vector of channels: transform its points to the tile's accumulators, in place."""
    kind, vector, (points, params), half_transformed = vec(lanes, "i32"), 4 * lanes, now, []
    for c in range(patches.side):
        half_transformed.append(
            _output_transform(f, [f.load(kind, points, (r * patches.side + c) * patches.point, 4) for r in range(6)])
        )
    bias = f.load(kind, params, 0, 4)
    for r in range(4):
        for c, x in enumerate(_output_transform(f, [line[r] for line in half_transformed])):
            exact = f.op("ashr", f.op("mul", x, const(_INVERSE_OF_9, kind)), _SHIFT_64)
            f.store(f.op("add", exact, bias), points, (r * 4 + c) * patches.point, 4)
    return [f.gep(points, vector), f.gep(params, vector)]


def emit_output_transform(module: Module, lanes: int, outputs: OutputTiles, epilogue: Int8Epilogue) -> Function:
    """Emit ``outputs(points, out, second, params, rows)``, see ``winograd.emit_output_tiles``; overwrites points."""
    kind, patches = vec(lanes, "i32"), outputs.patches
    vector, head = 4 * lanes, 16 * lanes * (1 + epilogue.factor_words)
    params_offset = patches.channels // (4 * lanes) * head

    def tile(f: Function, now: list[Reg], columns: int) -> list[Reg]:
        points, out, second, params = now
        f.loop(4, [points, params], lambda _, pointers: _accumulators(f, patches, lanes, pointers))
        factors = load_requantizers(f, epilogue, f.gep(params, 4 * vector), lanes, 4, 4)
        finish = Int8EpilogueEmitter(f, epilogue, f.gep(f.arg("bias"), params_offset))

        def store(r: int) -> None:
            for c in range(columns):
                at = (r * 4 + c) * patches.point
                four = [f.load(kind, points, at + vector * j, 4) for j in range(4)]
                residual_offset = r * outputs.residual_row + c * outputs.residual_pixel_stride
                other = None
                if epilogue.sum:
                    other = unpack_uint8_to_four(f, f.load(vec(4 * lanes, "i8"), second, residual_offset))
                f.store(finish.store(four, factors, other), out, r * patches.row + c * patches.pixel)

        store(0)
        for r in range(1, 4):
            f.if_then(f.compare("ugt", f.arg("rows"), r), lambda r=r: store(r))  # type: ignore[misc]
        return [f.gep(points, 4 * vector), f.gep(out, vector), f.gep(second, vector), f.gep(params, head)]

    return emit_output_tiles(module, outputs, 4 * lanes, tile)
