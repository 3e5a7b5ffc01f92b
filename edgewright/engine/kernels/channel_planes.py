"""Planar to channels-last conversion (NCHW to NHWC) for few channels, optionally quantized to 8 bits."""

from __future__ import annotations

from dataclasses import dataclass

from edgewright.engine.codegen.builder import I64, PTR, Function, Module, Reg, const, vec
from edgewright.engine.codegen.requant import Affine, quantize_to_int32


@dataclass(frozen=True)
class PlanesSpec:
    """Strides in bytes. With ``affine`` the output is quantized, clamped to [low, high]."""

    channels: int
    columns: int
    plane: int
    in_row: int
    out_row: int
    pixel: int  # of the output
    affine: Affine | None = None
    low: int = 0
    high: int = 255


def emit_planes_to_channels_last(module: Module, name: str, lanes: int, planes: PlanesSpec) -> None:
    """Work units are rows of one image, at least ``lanes`` pixels long. Arguments: first plane, output."""
    f = module.kernel(name)
    data, out = f.load_arg(PTR, 0), f.load_arg(PTR, 1)

    def row(y: Reg) -> None:
        source, target = f.gep(data, f.mul(y, planes.in_row)), f.gep(out, f.mul(y, planes.out_row))

        def pixels(x: Reg) -> None:
            at, to = f.gep(source, f.mul(x, 4)), f.gep(target, f.mul(x, planes.pixel))
            loaded = [f.load(vec(lanes, "float"), at, c * planes.plane) for c in range(planes.channels)]
            offset = 0
            for vector in _interleave_or_quantize(f, planes, loaded, lanes):
                f.store(vector, to, offset)
                offset += 4 * lanes

        last = planes.columns - lanes
        f.for_range(const(0, I64), const(last, I64), pixels, lanes)
        pixels(const(last, I64))  # overlaps the vector before it

    f.for_range(f.arg("begin"), f.arg("end"), row)
    f.ret()


def _interleave_or_quantize(f: Function, planes: PlanesSpec, loaded: list[Reg], lanes: int) -> list[Reg]:
    if planes.affine is None:
        return _interleave(f, loaded, lanes)
    packed = None
    for c, x in enumerate(loaded):
        byte = quantize_to_int32(f, x, planes.affine, planes.low, planes.high)
        moved = f.op("shl", byte, 8 * c) if c else byte
        packed = moved if packed is None else f.op("or", packed, moved)
    assert packed is not None
    if planes.pixel == 4:
        return [packed]
    unpacked = f.bitcast(packed, vec(4 * lanes, "i8"))
    mask = [4 * p + c for p in range(lanes) for c in range(planes.channels)]
    return [f.shuffle(unpacked, unpacked, mask)]


def _interleave(f: Function, loaded: list[Reg], lanes: int) -> list[Reg]:
    """Interleave the channels: element t of the result belongs to pixel t // channels."""
    vectors = []
    for start in range(0, lanes * len(loaded), lanes):
        elements = range(start, start + lanes)
        vector = loaded[0]
        first = [t // len(loaded) if t % len(loaded) == 0 else -1 for t in elements]
        vector = f.shuffle(vector, vector, first)
        for c in range(1, len(loaded)):
            mask = [lanes + t // len(loaded) if t % len(loaded) == c else t - start for t in elements]
            vector = f.shuffle(vector, loaded[c], mask)
        vectors.append(vector)
    return vectors
