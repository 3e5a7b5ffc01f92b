"""Vector arithmetic that maps to target instructions: x86 and AArch64 intrinsics, or IR patterns LLVM selects."""

from __future__ import annotations

from collections.abc import Sequence

from edgewright.engine.codegen.builder import Function, Reg, const, element_type, lane_count, vec
from edgewright.engine.isa import ISA

X86 = "x86_64"
ARM = "arm"
CACHE_LINE = 64  # bytes
WEIGHT_STREAMS = 4  # concurrent read streams: one and a half times the memory bandwidth of a single stream

# ---------------------------------------------------------------------------------------------------------- float32


def _suffix(kind: str) -> str:
    lanes = lane_count(kind)
    short = {"float": "f32", "i32": "i32", "i16": "i16", "i8": "i8", "i64": "i64"}[element_type(kind)]
    return f"v{lanes}{short}" if lanes > 1 else short


def fma(f: Function, a: Reg, b: Reg, c: Reg) -> Reg:
    """a * b + c."""
    return f.call(f"llvm.fma.{_suffix(c.type)}", c.type, a, b, c)


def polynomial(f: Function, x: Reg, coefficients: Sequence[float]) -> Reg:
    """Horner's scheme with fused multiply-adds; the highest power's coefficient comes first."""
    total = const(coefficients[0], x.type)
    for c in coefficients[1:]:
        total = fma(f, total, x, const(c, x.type))
    return total


def fma_bf16_pairs(f: Function, a: Reg, b: Reg, c: Reg) -> Reg:
    """c plus the dot products of bf16 pairs of a and b, accumulated in float32."""
    lanes = lane_count(c.type)
    pairs = [f.bitcast(x, vec(2 * lanes, "bfloat")) for x in (a, b)]
    return f.call(f"llvm.x86.avx512bf16.dpbf16ps.{32 * lanes}", c.type, c, *pairs)


def scalef(f: Function, x: Reg, power: Reg) -> Reg:
    """x * 2**power for 16 floats with integral powers."""
    return f.call("llvm.x86.avx512.mask.scalef.ps.512", x.type, x, power, x, Reg("-1", "i16"), Reg("4", "i32"))


def split_integer_fraction(f: Function, x: Reg) -> tuple[Reg, Reg]:
    """Split 16 non-negative floats into their integer parts (int32) and fractions."""
    kind, all_lanes, as_set = vec(16, "i32"), Reg("-1", "i16"), Reg("4", "i32")
    integers = f.call("llvm.x86.avx512.mask.cvttps2dq.512", kind, x, const(0, kind), all_lanes, as_set)
    toward_zero = Reg("11", "i32")
    return integers, f.call("llvm.x86.avx512.mask.reduce.ps.512", x.type, x, toward_zero, x, all_lanes, as_set)


def permute_float32(f: Function, x: Reg, indices: Reg) -> Reg:
    """x[indices] within a vector of 16 floats."""
    return f.call("llvm.x86.avx512.permvar.sf.512", x.type, x, indices)


def fast_max(f: Function, x: Reg, bound: Reg) -> Reg:
    """max(x, bound); x if either is NaN, as x86's maxps returns its second operand, so this is one instruction."""
    return f.select(f.compare("ogt", bound, x), bound, x)


def fast_min(f: Function, x: Reg, bound: Reg) -> Reg:
    """min(x, bound), with the NaN semantics of ``fast_max``."""
    return f.select(f.compare("olt", bound, x), bound, x)


def clamp(f: Function, x: Reg, low: float, high: float) -> Reg:
    """Clamp to two constants; an infinite one costs nothing. NaN stays NaN."""
    if low != float("-inf"):
        x = fast_max(f, x, const(low, x.type))
    if high != float("inf"):
        x = fast_min(f, x, const(high, x.type))
    return x


def to_float32(f: Function, x: Reg) -> Reg:
    return f.cast("sitofp", x, vec(lane_count(x.type), "float"))


def round_to_int(f: Function, x: Reg) -> Reg:
    """Round to int32, ties to even. Values out of range become INT32_MIN, as cvtps2dq returns."""
    lanes = lane_count(x.type)
    kind = vec(lanes, "i32")
    if f.module.arch != X86:
        even = f.call(f"llvm.roundeven.{_suffix(x.type)}", x.type, x)
        integers = f.call(f"llvm.fptosi.sat.{_suffix(kind)}.{_suffix(x.type)}", kind, even)
        return f.select(f.compare("olt", x, const(2.0**31, x.type)), integers, const(-(2**31), kind))
    if lanes == 16:
        none, all_lanes, as_set = const(0, kind), Reg("-1", "i16"), Reg("4", "i32")
        return f.call("llvm.x86.avx512.mask.cvtps2dq.512", kind, x, none, all_lanes, as_set)
    if lanes == 1:
        four = f.emit("<4 x float>", f"insertelement <4 x float> zeroinitializer, float {x}, i32 0")
        return f.emit("i32", f"extractelement <4 x i32> {round_to_int(f, four)}, i32 0")
    if lanes < 4:  # pad to the shortest vector with an instruction
        indices = list(range(lanes))
        four = round_to_int(f, f.shuffle(x, x, [*indices, *indices][:4]))
        return f.shuffle(four, four, indices)
    return f.call({8: "llvm.x86.avx.cvt.ps2dq.256", 4: "llvm.x86.sse2.cvtps2dq"}[lanes], kind, x)


def nearest_int32(f: Function, x: Reg) -> Reg:
    """``round_to_int`` of values that are known to be in range."""
    kind = vec(lane_count(x.type), "i32")
    if f.module.arch != ARM:
        return round_to_int(f, x)
    if f.module.dsp:  # vcvtr: the integer in a floating-point register, rounded in the processor's default mode
        return f.bitcast(by_lane(f, "llvm.arm.vcvtr.f32", x), kind)
    return f.cast("fptosi", f.call(f"llvm.roundeven.{_suffix(x.type)}", x.type, x), kind)


def prefetch(f: Function, pointer: Reg, offset: int, into_l1: bool = True) -> None:
    """Prefetch a cache line for reading: into L1 or, unless ``into_l1``, into L2."""
    f.module.declare("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
    f.emit_void(f"call void @llvm.prefetch.p0(ptr {f.gep(pointer, offset)}, i32 0, i32 {3 if into_l1 else 2}, i32 1)")


# --------------------------------------------------------------------------------------------------------- integers


def int_max(f: Function, a: Reg, b: Reg, signed: bool = True) -> Reg:
    return f.call(f"llvm.{'s' if signed else 'u'}max.{_suffix(a.type)}", a.type, a, b)


def int_min(f: Function, a: Reg, b: Reg, signed: bool = True) -> Reg:
    return f.call(f"llvm.{'s' if signed else 'u'}min.{_suffix(a.type)}", a.type, a, b)


def widen_int8(f: Function, x: Reg, signed: bool = False) -> Reg:
    """int8 or uint8 lanes to 32 bits."""
    return f.cast("sext" if signed else "zext", x, vec(lane_count(x.type), "i32"))


class Int8Dot:
    """Dot products of four uint8 activations and four int8 weights, accumulated in int32 lanes.

    Four implementations, all exact:

    - VNNI (vpdpbusd) and AArch64 I8MM (usdot) take unsigned by signed operands directly.
    - AArch64 dotprod (sdot) takes only signed by signed. Since x = (x - 128) + 128, data are XORed with 0x80 and
      128 * sum(w) is added back: two sdot with the constant 64, computed once per weight vector.
    - Arm's DSP extension (smlad) multiplies int16 pairs, lane by lane: even and odd bytes are extended (sxtb16).
    - Without a dot product instruction, even and odd bytes are widened to int16 and multiplied by pmaddwd. (pmaddubsw
      would be shorter, but it saturates at int16.)

    ``data`` and ``weights`` prepare an operand once, however often ``add`` uses it. See Intel's "Deep Learning Boost"
    chapter of the optimization reference manual, and SDOT/USDOT in the Arm ARM.
    """

    def __init__(self, f: Function, isa: ISA) -> None:
        self.f, self.isa = f, isa

    def data(self, x: Reg) -> tuple[Reg, ...]:
        if self.isa.signed:
            return (self.f.op("xor", x, -128),)
        if self.isa.dot:
            return (x,)
        if self.isa.dsp:
            words = self._words(x)
            odd = self.f.op("lshr", words, 8)
            return self.f.op("and", words, EVEN_BYTES), self.f.op("and", odd, EVEN_BYTES)
        int16 = self.f.bitcast(x, vec(lane_count(x.type) // 2, "i16"))
        return self.f.op("and", int16, 255), self.f.op("lshr", int16, 8)

    def weights(self, w: Reg) -> tuple[Reg, ...]:
        if self.isa.signed:
            kind, half = vec(lane_count(w.type) // 4, "i32"), const(64, w.type)
            return w, self._signed(self._signed(const(0, kind), half, w), half, w)
        if self.isa.dot:
            return (w,)
        if self.isa.dsp:
            return extend_int8_pairs(self.f, self._words(w))
        int16 = self.f.bitcast(w, vec(lane_count(w.type) // 2, "i16"))
        return self.f.op("ashr", self.f.op("shl", int16, 8), 8), self.f.op("ashr", int16, 8)

    def _words(self, x: Reg) -> Reg:
        """Bytes, or an int32 that holds four, as int32."""
        return x if x.type == "i32" else self.f.bitcast(x, vec(lane_count(x.type) // 4, "i32"))

    def add(self, total: Reg, x: tuple[Reg, ...], w: tuple[Reg, ...]) -> Reg:
        lanes, f = lane_count(total.type), self.f
        if self.isa.signed:
            return self._signed(f.add(total, w[1]), x[0], w[0])
        if self.isa.dot and f.module.arch == "aarch64":
            return f.call("llvm.aarch64.neon.usdot.v4i32.v16i8", total.type, total, x[0], w[0])
        if self.isa.dot:
            return f.call(f"llvm.x86.avx512.vpdpbusd.{lanes * 32}", total.type, total, x[0], w[0])
        for a, b in zip(x, w, strict=True):
            total = smlad(f, a, b, total) if self.isa.dsp else f.add(total, madd_int16(f, a, b))
        return total

    def _signed(self, total: Reg, x: Reg, w: Reg) -> Reg:
        return self.f.call("llvm.aarch64.neon.sdot.v4i32.v16i8", total.type, total, x, w)


class Int16Dot:
    """Dot products of two int16 pairs, accumulated in int32 lanes modulo 2**32.

    Intermediate overflow is harmless if the final sum fits in int32.
    """

    def __init__(self, f: Function, isa: ISA) -> None:
        self.f, self.isa = f, isa

    def data(self, x: Reg) -> tuple[Reg, ...]:
        return (self.f.bitcast(x, vec(lane_count(x.type) // 2, "i16")),)

    weights = data

    def add(self, total: Reg, x: tuple[Reg, ...], w: tuple[Reg, ...]) -> Reg:
        lanes, f = lane_count(total.type), self.f
        if self.isa.dot and f.module.arch == X86:
            return f.call(f"llvm.x86.avx512.vpdpwssd.{lanes * 32}", total.type, total, x[0], w[0])
        if self.isa.dsp:
            return smlad(f, f.bitcast(x[0], total.type), f.bitcast(w[0], total.type), total)
        return f.add(total, madd_int16(f, x[0], w[0]))


EVEN_BYTES = 0x00FF00FF


def opaque(f: Function, pointer: Reg) -> Reg:
    """The same pointer, of which LLVM knows nothing more: it stays in a register of its own, instead of becoming the
    sum of a base and a common index, which takes more registers or instructions."""
    return f.call("llvm.launder.invariant.group.p0", "ptr", pointer)


def by_lane(f: Function, name: str, *operands: Reg) -> Reg:
    """A scalar intrinsic, whose operands and result have one type, for each lane."""
    kind, single = operands[0].type, element_type(operands[0].type)
    if lane_count(kind) == 1:
        return f.call(name, kind, *operands)
    result = Reg("poison", kind)
    for lane in range(lane_count(kind)):
        scalars = [f.emit(single, f"extractelement {kind} {x}, i32 {lane}") for x in operands]
        value = f.call(name, single, *scalars)
        result = f.emit(kind, f"insertelement {kind} {result}, {single} {value}, i32 {lane}")
    return result


def smlad(f: Function, x: Reg, w: Reg, total: Reg) -> Reg:
    """Arm's DSP extension: the products of both int16 halves of x and w, added to total modulo 2**32."""
    return by_lane(f, "llvm.arm.smlad", x, w, total)


def extend_int8_pairs(f: Function, words: Reg) -> tuple[Reg, Reg]:
    """Even and odd bytes of int32 lanes, sign-extended to the int16 halves of two int32 vectors (sxtb16)."""
    rotated = f.call(f"llvm.fshr.{_suffix(words.type)}", words.type, words, words, const(8, words.type))
    return by_lane(f, "llvm.arm.sxtb16", words), by_lane(f, "llvm.arm.sxtb16", rotated)


def dot16(f: Function, x: Reg, w: Reg, total: Reg) -> Reg:
    """Helium's vmladava: the dot product of 16 int8, added to a scalar modulo 2**32."""
    signed, add, straight = const(0, "i32"), const(0, "i32"), const(0, "i32")
    return f.call("llvm.arm.mve.vmldava.v16i8", "i32", signed, add, straight, total, x, w)


def madd_int16(f: Function, x: Reg, w: Reg) -> Reg:
    """pmaddwd: products of int16 lanes, adjacent pairs summed to int32."""
    lanes = lane_count(x.type) // 2
    kind = vec(lanes, "i32")
    if f.module.arch == X86:
        name = {16: "avx512.pmaddw.d.512", 8: "avx2.pmadd.wd", 4: "sse2.pmadd.wd"}[lanes]
        return f.call(f"llvm.x86.{name}", kind, x, w)
    wide = vec(2 * lanes, "i32")
    products = f.op("mul", f.cast("sext", x, wide), f.cast("sext", w, wide))
    return f.add(
        f.shuffle(products, products, range(0, 2 * lanes, 2)), f.shuffle(products, products, range(1, 2 * lanes, 2))
    )


def _pack_saturated(f: Function, a: Reg, b: Reg, low: int, high: int, to: str) -> Reg:
    """x86's pack semantics in portable IR: saturate both to half width, alternating 128-bit blocks of a and b."""
    lanes, block_lanes = lane_count(a.type), 128 // int(element_type(a.type)[1:])
    kind = vec(lanes, to)
    minimum, maximum = const(low, a.type), const(high, a.type)
    first, second = (f.cast("trunc", int_min(f, int_max(f, x, minimum), maximum), kind) for x in (a, b))
    order = [
        part + start + i for start in range(0, lanes, block_lanes) for part in (0, lanes) for i in range(block_lanes)
    ]
    return f.shuffle(first, second, order)


def permute_int8(f: Function, first: Reg, indices: Reg, second: Reg) -> Reg:
    """Bytes selected from the concatenation of two 64-byte vectors."""
    return f.call("llvm.x86.avx512.vpermi2var.qi.512", first.type, first, indices, second)


def pack_int16(f: Function, a: Reg, b: Reg) -> Reg:
    """packssdw: int32 to int16 with saturation, alternating 128-bit blocks of a and b."""
    lanes = lane_count(a.type)
    if f.module.arch != X86:
        return _pack_saturated(f, a, b, -(1 << 15), (1 << 15) - 1, "i16")
    name = {16: "avx512.packssdw.512", 8: "avx2.packssdw", 4: "sse2.packssdw.128"}[lanes]
    return f.call(f"llvm.x86.{name}", vec(2 * lanes, "i16"), a, b)


def pack_uint8(f: Function, a: Reg, b: Reg) -> Reg:
    """packuswb: int16 to uint8 with saturation, alternating 128-bit blocks of a and b."""
    lanes = lane_count(a.type)
    if f.module.arch != X86:
        return _pack_saturated(f, a, b, 0, 255, "i8")
    name = {32: "avx512.packuswb.512", 16: "avx2.packuswb", 8: "sse2.packuswb.128"}[lanes]
    return f.call(f"llvm.x86.{name}", vec(2 * lanes, "i8"), a, b)


def saturating_add(f: Function, a: Reg, b: Reg) -> Reg:
    return f.call(f"llvm.sadd.sat.{_suffix(a.type)}", a.type, a, b)


def pack_four_to_uint8(f: Function, four: Sequence[Reg], zero: Reg | None) -> Reg:
    """Saturate four int32 vectors to one of uint8, adding ``zero`` (int16) in between.

    Every 128-bit block of the result holds four bytes of the first vector, then of the second, third and fourth.
    """
    if f.module.arch == ARM:  # one clamp suffices, in scalars and with vectors of 128 bits
        lanes, kind = lane_count(four[0].type), four[0].type
        if zero is not None:
            offset = f.cast("sext", f.shuffle(zero, zero, range(lanes)), kind)
            four = [saturating_add(f, x, offset) for x in four]
        low, high = const(0, kind), const(255, kind)
        narrow = [f.cast("trunc", int_min(f, int_max(f, x, low), high), vec(lanes, "i8")) for x in four]
        halves = [f.shuffle(a, b, range(2 * lanes)) for a, b in (narrow[:2], narrow[2:])]
        return f.shuffle(halves[0], halves[1], range(4 * lanes))
    int16_pair = [pack_int16(f, four[0], four[1]), pack_int16(f, four[2], four[3])]
    if zero is not None:
        int16_pair = [saturating_add(f, w, zero) for w in int16_pair]
    return pack_uint8(f, *int16_pair)


def interleave(f: Function, a: Reg, b: Reg) -> tuple[Reg, Reg]:
    """x86's unpack: interleave a and b within each 128-bit block; returns the low halves and the high halves."""
    lanes, size = lane_count(a.type), int(element_type(a.type)[1:])
    block_lanes = 128 // size
    low, high = [], []
    for start in range(0, lanes, block_lanes):
        for i in range(start, start + block_lanes // 2):
            low += [i, lanes + i]
            high += [block_lanes // 2 + i, lanes + block_lanes // 2 + i]
    return f.shuffle(a, b, low), f.shuffle(a, b, high)


def unpack_uint8_to_four(f: Function, x: Reg) -> list[Reg]:
    """The inverse of ``pack_four_to_uint8``, without the zero point."""
    zero = const(0, x.type)
    wide = vec(lane_count(x.type) // 2, "i16")
    int16 = [f.bitcast(h, wide) for h in interleave(f, x, zero)]
    four = [q for h in int16 for q in interleave(f, h, const(0, wide))]
    return [f.bitcast(q, vec(lane_count(x.type) // 4, "i32")) for q in four]


def transpose(f: Function, rows: Sequence[Reg]) -> list[Reg]:
    """Transpose a square matrix held in registers; its size is a power of two.

    log2(n) rounds of butterflies, as in a fast Fourier transform: round k exchanges bit k of the row index with bit k
    of the column index, by swapping the off-diagonal blocks of size 2**k between rows i and i | 2**k. Each round is n
    two-input shuffles, so the total is n log2(n) shuffles and no memory traffic. See Eklundh, "A fast computer method
    for matrix transposing" (1972), and Hacker's Delight, section 7-3, for the same scheme on bit matrices.
    """
    columns, size = list(rows), len(rows)
    bit = 1
    while bit < size:
        for i in (i for i in range(size) if not i & bit):
            a, b = columns[i], columns[i | bit]
            columns[i] = f.shuffle(a, b, [size + lane - bit if lane & bit else lane for lane in range(size)])
            columns[i | bit] = f.shuffle(a, b, [size + lane if lane & bit else lane + bit for lane in range(size)])
        bit *= 2
    return columns
