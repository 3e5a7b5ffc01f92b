"""Vector arithmetic: everything that names an instruction, or must be written so that LLVM finds it."""

from __future__ import annotations

from collections.abc import Sequence

from edgewright.engine.codegen.builder import Function, Reg, const, element_type, lane_count, vec
from edgewright.engine.host_arch import is_aarch64
from edgewright.engine.isa import ISA

CACHE_LINE = 64  # bytes of memory that come together
WEIGHT_STREAMS = 4  # places that are read in turn: memory gives half as much again as from one

# ------------------------------------------------------------------------------------------------------------ reals


def _suffix(kind: str) -> str:
    lanes = lane_count(kind)
    short = {"float": "f32", "i32": "i32", "i16": "i16", "i8": "i8", "i64": "i64"}[element_type(kind)]
    return f"v{lanes}{short}" if lanes > 1 else short


def fma(f: Function, a: Reg, b: Reg, c: Reg) -> Reg:
    """a * b + c."""
    return f.call(f"llvm.fma.{_suffix(c.type)}", c.type, a, b, c)


def fma_bf16_pairs(f: Function, a: Reg, b: Reg, c: Reg) -> Reg:
    """a * b + c of numbers of 16 bits, two in the place of one, added to single precision."""
    lanes = lane_count(c.type)
    both = [f.bitcast(x, vec(2 * lanes, "bfloat")) for x in (a, b)]
    return f.call(f"llvm.x86.avx512bf16.dpbf16ps.{32 * lanes}", c.type, c, *both)


def scalef(f: Function, x: Reg, power: Reg) -> Reg:
    """x * 2**power, of 16 reals; powers are whole."""
    return f.call("llvm.x86.avx512.mask.scalef.ps.512", x.type, x, power, x, Reg("-1", "i16"), Reg("4", "i32"))


def split_integer_fraction(f: Function, x: Reg) -> tuple[Reg, Reg]:
    """16 reals that are not negative, as integers below them and what is left."""
    kind, all_lanes, as_set = vec(16, "i32"), Reg("-1", "i16"), Reg("4", "i32")
    whole = f.call("llvm.x86.avx512.mask.cvttps2dq.512", kind, x, const(0, kind), all_lanes, as_set)
    toward_zero = Reg("11", "i32")
    return whole, f.call("llvm.x86.avx512.mask.reduce.ps.512", x.type, x, toward_zero, x, all_lanes, as_set)


def permute_float32(f: Function, x: Reg, places: Reg) -> Reg:
    """Elements of 16 by their places."""
    return f.call("llvm.x86.avx512.permvar.sf.512", x.type, x, places)


def fast_max(f: Function, x: Reg, bound: Reg) -> Reg:
    """The larger one; x if it is NaN. (One instruction: x86 gives the second operand if either is NaN.)"""
    return f.select(f.compare("ogt", bound, x), bound, x)


def fast_min(f: Function, x: Reg, bound: Reg) -> Reg:
    return f.select(f.compare("olt", bound, x), bound, x)


def clamp(f: Function, x: Reg, low: float, high: float) -> Reg:
    """Between two constants, either of which may be infinite."""
    if low != float("-inf"):
        x = fast_max(f, x, const(low, x.type))
    if high != float("inf"):
        x = fast_min(f, x, const(high, x.type))
    return x


def to_float32(f: Function, x: Reg) -> Reg:
    return f.cast("sitofp", x, vec(lane_count(x.type), "float"))


def round_to_int(f: Function, x: Reg) -> Reg:
    """The nearest integer, the even one of two. Beyond 32 bits, the lowest one."""
    lanes = lane_count(x.type)
    kind = vec(lanes, "i32")
    if is_aarch64():
        even = f.call(f"llvm.roundeven.{_suffix(x.type)}", x.type, x)
        whole = f.call(f"llvm.fptosi.sat.{_suffix(kind)}.{_suffix(x.type)}", kind, even)
        return f.select(f.compare("olt", x, const(2.0**31, x.type)), whole, const(-(2**31), kind))
    if lanes == 16:
        none, all_lanes, as_set = const(0, kind), Reg("-1", "i16"), Reg("4", "i32")
        return f.call("llvm.x86.avx512.mask.cvtps2dq.512", kind, x, none, all_lanes, as_set)
    if lanes == 1:
        four = f.emit("<4 x float>", f"insertelement <4 x float> zeroinitializer, float {x}, i32 0")
        return f.emit("i32", f"extractelement <4 x i32> {round_to_int(f, four)}, i32 0")
    if lanes < 4:  # part of the shortest vector there is an instruction for
        own = list(range(lanes))
        four = round_to_int(f, f.shuffle(x, x, [*own, *own][:4]))
        return f.shuffle(four, four, own)
    return f.call({8: "llvm.x86.avx.cvt.ps2dq.256", 4: "llvm.x86.sse2.cvtps2dq"}[lanes], kind, x)


def prefetch(f: Function, pointer: Reg, offset: int, near: bool = True) -> None:
    """Have a line of memory come nearer, while something else is computed: to the first cache, or to the second."""
    f.module.declare("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
    f.emit_void(f"call void @llvm.prefetch.p0(ptr {f.gep(pointer, offset)}, i32 0, i32 {3 if near else 2}, i32 1)")


# --------------------------------------------------------------------------------------------------------- integers


def int_max(f: Function, a: Reg, b: Reg, signed: bool = True) -> Reg:
    return f.call(f"llvm.{'s' if signed else 'u'}max.{_suffix(a.type)}", a.type, a, b)


def int_min(f: Function, a: Reg, b: Reg, signed: bool = True) -> Reg:
    return f.call(f"llvm.{'s' if signed else 'u'}min.{_suffix(a.type)}", a.type, a, b)


def widen_int8(f: Function, x: Reg, signed: bool = False) -> Reg:
    """Bytes to 32 bits."""
    return f.cast("sext" if signed else "zext", x, vec(lane_count(x.type), "i32"))


class Int8Dot:
    """Sums of four products of an unsigned byte and a signed one, into 32-bit lanes.

    Without the instruction, even and odd bytes are multiplied as 16 bits, which is exact; where both bytes must be
    signed, data are taken less 128, and 128 times the weights added. What either needs of an operand is prepared once
    (``data``, ``weights``) however often it is used.
    """

    def __init__(self, f: Function, isa: ISA) -> None:
        self.f, self.isa = f, isa

    def data(self, x: Reg) -> tuple[Reg, ...]:
        if self.isa.signed:
            return (self.f.op("xor", x, -128),)
        if self.isa.dot:
            return (x,)
        halves = self.f.bitcast(x, vec(lane_count(x.type) // 2, "i16"))
        return self.f.op("and", halves, 255), self.f.op("lshr", halves, 8)

    def weights(self, w: Reg) -> tuple[Reg, ...]:
        if self.isa.signed:
            kind, half = vec(lane_count(w.type) // 4, "i32"), const(64, w.type)
            return w, self._signed(self._signed(const(0, kind), half, w), half, w)
        if self.isa.dot:
            return (w,)
        halves = self.f.bitcast(w, vec(lane_count(w.type) // 2, "i16"))
        return self.f.op("ashr", self.f.op("shl", halves, 8), 8), self.f.op("ashr", halves, 8)

    def add(self, total: Reg, x: tuple[Reg, ...], w: tuple[Reg, ...]) -> Reg:
        lanes, f = lane_count(total.type), self.f
        if self.isa.signed:
            return self._signed(f.add(total, w[1]), x[0], w[0])
        if self.isa.dot and is_aarch64():
            return f.call("llvm.aarch64.neon.usdot.v4i32.v16i8", total.type, total, x[0], w[0])
        if self.isa.dot:
            return f.call(f"llvm.x86.avx512.vpdpbusd.{lanes * 32}", total.type, total, x[0], w[0])
        for a, b in zip(x, w, strict=True):
            total = f.add(total, madd_int16(f, a, b))
        return total

    def _signed(self, total: Reg, x: Reg, w: Reg) -> Reg:
        return self.f.call("llvm.aarch64.neon.sdot.v4i32.v16i8", total.type, total, x, w)


class Int16Dot:
    """Sums of two products of 16 bits, into 32-bit lanes; whatever leaves those is cut off, and nothing is lost of a
    sum that ends within them."""

    def __init__(self, f: Function, isa: ISA) -> None:
        self.f, self.isa = f, isa

    def data(self, x: Reg) -> tuple[Reg, ...]:
        return (self.f.bitcast(x, vec(lane_count(x.type) // 2, "i16")),)

    weights = data

    def add(self, total: Reg, x: tuple[Reg, ...], w: tuple[Reg, ...]) -> Reg:
        lanes, f = lane_count(total.type), self.f
        if self.isa.dot and not is_aarch64():
            return f.call(f"llvm.x86.avx512.vpdpwssd.{lanes * 32}", total.type, total, x[0], w[0])
        return f.add(total, madd_int16(f, x[0], w[0]))


def madd_int16(f: Function, x: Reg, w: Reg) -> Reg:
    """Products of 16 bits, two that lie side by side added, in 32 bits."""
    lanes = lane_count(x.type) // 2
    kind = vec(lanes, "i32")
    if not is_aarch64():
        name = {16: "avx512.pmaddw.d.512", 8: "avx2.pmadd.wd", 4: "sse2.pmadd.wd"}[lanes]
        return f.call(f"llvm.x86.{name}", kind, x, w)
    wide = vec(2 * lanes, "i32")
    each = f.op("mul", f.cast("sext", x, wide), f.cast("sext", w, wide))
    return f.add(f.shuffle(each, each, range(0, 2 * lanes, 2)), f.shuffle(each, each, range(1, 2 * lanes, 2)))


def _pack_saturated(f: Function, a: Reg, b: Reg, low: int, high: int, to: str) -> Reg:
    """Both saturated to half their size, 128 bits of a and of b in turn; the compiler has an instruction for it."""
    lanes, each = lane_count(a.type), 128 // int(element_type(a.type)[1:])
    kind = vec(lanes, to)
    least, most = const(low, a.type), const(high, a.type)
    first, second = (f.cast("trunc", int_min(f, int_max(f, x, least), most), kind) for x in (a, b))
    order = [part + start + i for start in range(0, lanes, each) for part in (0, lanes) for i in range(each)]
    return f.shuffle(first, second, order)


def permute_int8(f: Function, first: Reg, places: Reg, second: Reg) -> Reg:
    """Bytes of two vectors of 64, by their places in both."""
    return f.call("llvm.x86.avx512.vpermi2var.qi.512", first.type, first, places, second)


def pack_int16(f: Function, a: Reg, b: Reg) -> Reg:
    """32 bits to 16, saturated, 128 bits of a and of b in turn."""
    lanes = lane_count(a.type)
    if is_aarch64():
        return _pack_saturated(f, a, b, -(1 << 15), (1 << 15) - 1, "i16")
    name = {16: "avx512.packssdw.512", 8: "avx2.packssdw", 4: "sse2.packssdw.128"}[lanes]
    return f.call(f"llvm.x86.{name}", vec(2 * lanes, "i16"), a, b)


def pack_uint8(f: Function, a: Reg, b: Reg) -> Reg:
    """Signed 16 bits to unsigned 8, saturated, 128 bits of a and of b in turn."""
    lanes = lane_count(a.type)
    if is_aarch64():
        return _pack_saturated(f, a, b, 0, 255, "i8")
    name = {32: "avx512.packuswb.512", 16: "avx2.packuswb", 8: "sse2.packuswb.128"}[lanes]
    return f.call(f"llvm.x86.{name}", vec(2 * lanes, "i8"), a, b)


def saturating_add(f: Function, a: Reg, b: Reg) -> Reg:
    return f.call(f"llvm.sadd.sat.{_suffix(a.type)}", a.type, a, b)


def pack_four_to_uint8(f: Function, four: Sequence[Reg], zero: Reg | None) -> Reg:
    """Four vectors of 32 bits as bytes, ``zero`` (16 bits) added on the way.

    In each 128 bits lie four bytes of the first, then of the second, the third and the fourth.
    """
    words = [pack_int16(f, four[0], four[1]), pack_int16(f, four[2], four[3])]
    if zero is not None:
        words = [saturating_add(f, w, zero) for w in words]
    return pack_uint8(f, *words)


def interleave(f: Function, a: Reg, b: Reg) -> tuple[Reg, Reg]:
    """Elements of a and b in turn, inside each 128 bits: the lower halves, the upper halves."""
    lanes, size = lane_count(a.type), int(element_type(a.type)[1:])
    each = 128 // size
    low, high = [], []
    for start in range(0, lanes, each):
        for i in range(start, start + each // 2):
            low += [i, lanes + i]
            high += [each // 2 + i, lanes + each // 2 + i]
    return f.shuffle(a, b, low), f.shuffle(a, b, high)


def unpack_uint8_to_four(f: Function, x: Reg) -> list[Reg]:
    """The inverse of ``pack_four_to_uint8`` for unsigned bytes, without its addition."""
    zero = const(0, x.type)
    wide = vec(lane_count(x.type) // 2, "i16")
    halves = [f.bitcast(h, wide) for h in interleave(f, x, zero)]
    four = [q for h in halves for q in interleave(f, h, const(0, wide))]
    return [f.bitcast(q, vec(lane_count(x.type) // 4, "i32")) for q in four]


def transpose(f: Function, rows: Sequence[Reg]) -> list[Reg]:
    """As many rows as each has elements, turned: a power of two."""
    made, size = list(rows), len(rows)
    bit = 1
    while bit < size:
        for i in (i for i in range(size) if not i & bit):
            a, b = made[i], made[i | bit]
            made[i] = f.shuffle(a, b, [size + lane - bit if lane & bit else lane for lane in range(size)])
            made[i | bit] = f.shuffle(a, b, [size + lane if lane & bit else lane + bit for lane in range(size)])
        bit *= 2
    return made
