"""Arithmetic that 32-bit Arm has no instructions for, in LLVM IR: division of int64, and float64 where the
floating-point unit has single precision only.

LLVM calls functions of the compiler's run-time library (libgcc, compiler-rt) and of C's for it. Here they are part of
the object, which needs no library. Results are those of IEEE 754, rounded to nearest, ties to even, with subnormal
numbers. The run-time library's functions pass numbers in general-purpose registers: here they are integers, the bits.

A significand that is to be rounded has its leading bit at 62 and, at bit 0, whether anything below was not zero; its
exponent is biased as float64's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from edgewright.engine.codegen.builder import I64, Function, Module, Operand, Reg, const

_SIGN, _MAGNITUDE, _INFINITY, _NAN, _QUIET = 1 << 63, (1 << 63) - 1, 0x7FF << 52, 0xFFF << 51, 1 << 51
_FRACTION, _IMPLICIT, _BIAS = (1 << 52) - 1, 1 << 52, 1023
_I32, _I128 = "i32", "i128"


class _Library:
    """Functions as they are called, each once."""

    def __init__(self) -> None:
        self.module = Module("arm")

    def define(self, name: str) -> None:
        if name in self.module.functions:
            return
        params, returns, emit = _FUNCTIONS[name]
        named = [(kind, letter) for kind, letter in zip(params, "abc", strict=False)]
        f = self.module.function(name, named, returns, inline=False)
        emit(self, f, *(f.arg(letter) for _, letter in named))

    def call(self, f: Function, name: str, *args: Reg) -> Reg:
        """A call of another function of the library."""
        self.define(name)
        returns = _FUNCTIONS[name][1]
        return f.emit(returns, f"call {returns} @{name}({', '.join(f'{a.type} {a}' for a in args)})")


def arithmetic_library(names: Iterable[str]) -> str:
    """Definitions of some of ``ARITHMETIC_FUNCTIONS``. Nothing calls them before LLVM selects instructions."""
    library, listed = _Library(), sorted(names)
    for name in listed:
        library.define(name)
    used = ", ".join(f"ptr @{name}" for name in listed)
    library.module.declare(
        f'@llvm.compiler.used = appending global [{len(listed)} x ptr] [{used}], section "llvm.metadata"'
    )
    return library.module.text()


# --------------------------------------------------------------------------------------------------------------- parts


def _bits(f: Function, a: Reg, mask: int) -> Reg:
    return f.op("and", a, mask)


def _flag(f: Function, condition: Reg, kind: str = I64) -> Reg:
    return f.cast("zext", condition, kind)


def _either(f: Function, *conditions: Reg) -> Reg:
    result = conditions[0]
    for condition in conditions[1:]:
        result = f.op("or", result, condition)
    return result


def _larger(f: Function, a: Reg, b: Operand, predicate: str = "ugt") -> Reg:
    other = b if isinstance(b, Reg) else const(b, a.type)
    return f.select(f.compare(predicate, a, other), a, other)


def _exponent(f: Function, magnitude: Reg) -> Reg:
    return f.cast("trunc", f.op("lshr", magnitude, 52), _I32)


def _leading_zeros(f: Function, a: Reg) -> Reg:
    """As i32."""
    count = f.call(f"llvm.ctlz.{a.type}", a.type, a, Reg("false", "i1"))
    return f.cast("trunc", count, _I32) if a.type != _I32 else count


def _shift(f: Function, name: str, a: Reg, count: Reg) -> Reg:
    """A shift by an i32."""
    return f.op(name, a, f.cast("zext", count, a.type))


def _shift_right_jamming(f: Function, a: Reg, count: Reg) -> Reg:
    """A shift to the right whose bit 0 says whether a bit that was shifted out, or itself, was not zero."""
    most = {I64: 63, _I32: 31, _I128: 127}[a.type]
    count = _larger(f, count, most, "ult")
    kept = _shift(f, "lshr", a, count)
    lost = f.compare("ne", _shift(f, "shl", kept, count), a)
    return f.op("or", kept, _flag(f, lost, a.type))


def _normalized(f: Function, magnitude: Reg) -> tuple[Reg, Reg]:
    """Of a number that is not zero: the significand with its leading bit at 63, and the exponent."""
    exponent = _exponent(f, magnitude)
    normal = f.compare("ne", exponent, 0)
    fraction = _bits(f, magnitude, _FRACTION)
    significand = f.select(normal, f.op("or", fraction, _IMPLICIT), fraction)
    zeros = _leading_zeros(f, significand)
    biased = f.op("sub", f.add(_larger(f, exponent, 1), 11), zeros)
    return _shift(f, "shl", significand, zeros), biased


def _product(f: Function, a: Reg, b: Reg) -> tuple[Reg, Reg]:
    """The 64 high and the 64 low bits."""
    (low_a, high_a), (low_b, high_b) = (((_bits(f, x, 0xFFFFFFFF)), f.op("lshr", x, 32)) for x in (a, b))
    low, high = f.mul(low_a, low_b), f.mul(high_a, high_b)
    cross = f.add(f.mul(high_a, low_b), f.op("lshr", low, 32))  # below 2**64
    other = f.add(f.mul(low_a, high_b), _bits(f, cross, 0xFFFFFFFF))
    high = f.add(high, f.add(f.op("lshr", cross, 32), f.op("lshr", other, 32)))
    return high, f.op("or", f.op("shl", other, 32), _bits(f, low, 0xFFFFFFFF))


def _return_nan(f: Function, *numbers: Reg) -> list[Reg]:
    """Return a quiet NaN if one of the numbers is NaN, the first of them; the magnitudes."""
    magnitudes = [_bits(f, x, _MAGNITUDE) for x in numbers]
    for number, magnitude in zip(numbers, magnitudes, strict=True):
        f.return_if(f.compare("ugt", magnitude, _INFINITY), f.op("or", number, _QUIET))
    return magnitudes


_NAN_BITS = const(_NAN, I64)


def _round(lib: _Library, f: Function, sign: Reg, exponent: Reg, significand: Reg) -> None:
    """A significand, rounded to float64. Zero has an exponent below 1."""
    below = f.op("sub", const(1, _I32), exponent)
    significand = _shift_right_jamming(f, significand, _larger(f, below, 0, "sgt"))
    odd = _bits(f, f.op("lshr", significand, 10), 1)
    rounded = f.op("lshr", f.add(f.add(significand, 0x1FF), odd), 10)
    base = _larger(f, f.add(exponent, -1), 0, "sgt")  # the leading bit, if there is one, adds 1
    overflow = f.op("or", sign, const(_INFINITY, I64))
    f.return_if(f.compare("sgt", base, 2045), overflow)
    f.ret(f.op("or", sign, f.add(f.op("shl", f.cast("zext", base, I64), 52), rounded)))


# ------------------------------------------------------------------------------------------------------------- float64


def _add(lib: _Library, f: Function, a: Reg, b: Reg) -> None:
    size_a, size_b = _return_nan(f, a, b)
    swapped = f.compare("ult", size_a, size_b)
    big = f.select(swapped, b, a)
    large, little = f.select(swapped, size_b, size_a), f.select(swapped, size_a, size_b)
    differ = f.compare("slt", f.op("xor", a, b), 0)
    infinite = f.compare("eq", large, _INFINITY)
    f.return_if(f.op("and", f.op("and", infinite, differ), f.compare("eq", little, _INFINITY)), _NAN_BITS)
    f.return_if(f.op("or", infinite, f.compare("eq", little, 0)),
                f.select(f.compare("eq", large, 0), f.op("and", a, b), big))  # fmt: skip
    (top, exponent), (bottom, lower) = (_normalized(f, x) for x in (large, little))
    top, bottom = f.op("lshr", top, 2), f.op("lshr", bottom, 2)  # leading bit at 61; nine zeros below remain
    bottom = _shift_right_jamming(f, bottom, f.op("sub", exponent, lower))
    total = f.select(differ, f.op("sub", top, bottom), f.add(top, bottom))
    f.return_if(f.compare("eq", total, 0), const(0, I64))
    zeros = f.add(_leading_zeros(f, total), -1)
    exponent = f.op("sub", f.add(exponent, 1), zeros)
    f.ret(lib.call(f, "ew_round", _bits(f, big, _SIGN), exponent, _shift(f, "shl", total, zeros)))


def _subtract(lib: _Library, f: Function, a: Reg, b: Reg) -> None:
    is_nan = f.compare("ugt", _bits(f, b, _MAGNITUDE), _INFINITY)
    f.ret(lib.call(f, "__adddf3", a, f.select(is_nan, b, f.op("xor", b, const(_SIGN, I64)))))


def _multiply(lib: _Library, f: Function, a: Reg, b: Reg) -> None:
    size_a, size_b = _return_nan(f, a, b)
    sign = _bits(f, f.op("xor", a, b), _SIGN)
    zero = f.compare("eq", _larger(f, size_a, size_b, "ult"), 0)
    infinite = f.compare("eq", _larger(f, size_a, size_b), _INFINITY)
    f.return_if(infinite, f.select(zero, _NAN_BITS, f.op("or", sign, const(_INFINITY, I64))))
    f.return_if(zero, sign)
    (top_a, exponent_a), (top_b, exponent_b) = (_normalized(f, x) for x in (size_a, size_b))
    high, low = _product(f, top_a, top_b)
    carry = f.op("lshr", high, 63)
    lost = _flag(f, f.compare("ne", f.op("or", low, f.op("and", high, carry)), 0))
    significand = f.op("or", f.op("lshr", high, carry), lost)
    exponent = f.add(f.add(exponent_a, exponent_b), f.cast("trunc", carry, _I32))
    f.ret(lib.call(f, "ew_round", sign, f.add(exponent, -_BIAS), significand))


def _divide(lib: _Library, f: Function, a: Reg, b: Reg) -> None:
    size_a, size_b = _return_nan(f, a, b)
    sign = _bits(f, f.op("xor", a, b), _SIGN)
    infinity = f.op("or", sign, const(_INFINITY, I64))
    invalid = f.op("and", f.compare("eq", size_a, size_b), _either(
        f, f.compare("eq", size_a, 0), f.compare("eq", size_a, _INFINITY)))  # fmt: skip
    f.return_if(invalid, _NAN_BITS)
    f.return_if(_either(f, f.compare("eq", size_a, _INFINITY), f.compare("eq", size_b, 0)), infinity)
    f.return_if(_either(f, f.compare("eq", size_b, _INFINITY), f.compare("eq", size_a, 0)), sign)
    (top, exponent_a), (divisor, exponent_b) = (_normalized(f, x) for x in (size_a, size_b))
    top, divisor = f.op("lshr", top, 11), f.op("lshr", divisor, 11)
    less = f.compare("ult", top, divisor)
    exponent = f.op("sub", f.add(f.op("sub", exponent_a, exponent_b), _BIAS), _flag(f, less, _I32))

    def step(_: Reg, values: list[Reg]) -> list[Reg]:
        rest, quotient = values
        bit = f.compare("uge", rest, divisor)
        rest = f.select(bit, f.op("sub", rest, divisor), rest)
        return [f.op("shl", rest, 1), f.op("or", f.op("shl", quotient, 1), _flag(f, bit))]

    first = f.op("shl", top, _flag(f, less))
    rest, quotient = f.loop(const(55, I64), [first, const(0, I64)], step)  # 53 bits, and one to round
    significand = f.op("or", f.op("shl", quotient, 8), _flag(f, f.compare("ne", rest, 0)))
    f.ret(lib.call(f, "ew_round", sign, exponent, significand))


def _fused_multiply_add(lib: _Library, f: Function, *numbers: Reg) -> None:
    """a * b + c, of C's library."""
    bits = [f.bitcast(x, I64) for x in numbers]
    f.ret(f.bitcast(lib.call(f, "ew_fma", *bits), "double"))


def _multiply_add_specials(lib: _Library, f: Function, a: Reg, b: Reg, c: Reg) -> None:
    """a * b + c, where a number is zero or infinite, and one of the two roundings changes nothing."""
    size_a, size_b, size_c = (_bits(f, x, _MAGNITUDE) for x in (a, b, c))
    finite, nonzero = (f.op("and", *(f.compare("ne", x, bits) for x in (size_a, size_b))) for bits in (_INFINITY, 0))
    # The size of a finite product does not matter beside an infinite c: it may be rounded to infinity.
    unsized = f.op("and", finite, f.compare("eq", size_c, _INFINITY))
    product = lib.call(f, "__muldf3", *(f.select(unsized, const(_BIAS << 52, I64), x) for x in (a, b)))
    # A c of zero does not change the sign of a product that is rounded to zero.
    f.return_if(f.op("and", nonzero, f.compare("eq", size_c, 0)), product)
    f.ret(lib.call(f, "__adddf3", product, c))


def _fused_multiply_add_bits(lib: _Library, f: Function, a: Reg, b: Reg, c: Reg) -> None:
    """a * b + c, rounded once, in 128 bits."""
    sizes = _return_nan(f, a, b, c)
    size_a, size_b, size_c = sizes
    product_sign = _bits(f, f.op("xor", a, b), _SIGN)
    special = _either(f, *(f.compare("eq", x, bits) for x in sizes for bits in (0, _INFINITY)))
    (value,) = f.if_then_phi(special, [const(0, I64)], lambda: [lib.call(f, "ew_fma_specials", a, b, c)])
    f.return_if(special, value)
    (top_a, exponent_a), (top_b, exponent_b) = (_normalized(f, x) for x in (size_a, size_b))
    high, low = _product(f, top_a, top_b)
    wide = [f.cast("zext", x, _I128) for x in (high, low)]
    product = f.op("lshr", f.op("or", f.op("shl", wide[0], 64), wide[1]), 2)  # 22 low bits are zero
    addend, exponent_c = _normalized(f, size_c)
    addend = f.op("shl", f.cast("zext", addend, _I128), 61)
    # Of bit 124 of both.
    exponent = f.add(f.add(exponent_a, exponent_b), -_BIAS)
    apart = f.op("sub", exponent, exponent_c)
    zero = const(0, _I32)
    product = _shift_right_jamming(f, product, _larger(f, f.op("sub", zero, apart), zero, "sgt"))
    addend = _shift_right_jamming(f, addend, _larger(f, apart, zero, "sgt"))
    c_sign = _bits(f, c, _SIGN)
    differ = f.compare("ne", product_sign, c_sign)
    less = f.compare("ult", product, addend)
    apart_by = f.select(less, f.op("sub", addend, product), f.op("sub", product, addend))
    total = f.select(differ, apart_by, f.add(product, addend))
    f.return_if(f.compare("eq", total, 0), const(0, I64))
    zeros = f.add(_leading_zeros(f, total), -1)
    total = _shift(f, "shl", total, zeros)
    lost = _flag(f, f.compare("ne", f.cast("trunc", total, I64), 0))
    significand = f.op("or", f.cast("trunc", f.op("lshr", total, 64), I64), lost)
    exponent = f.op("sub", f.add(_larger(f, exponent, exponent_c, "sgt"), 2), zeros)
    sign = f.select(f.op("and", differ, less), c_sign, product_sign)
    f.ret(lib.call(f, "ew_round", sign, exponent, significand))


def _square_root(lib: _Library, f: Function, a: Reg) -> None:
    """Of C's library."""
    f.ret(f.bitcast(lib.call(f, "ew_sqrt", f.bitcast(a, I64)), "double"))


def _square_root_bits(lib: _Library, f: Function, a: Reg) -> None:
    (size,) = _return_nan(f, a)
    f.return_if(f.compare("eq", size, 0), a)
    f.return_if(f.compare("slt", a, 0), _NAN_BITS)
    f.return_if(f.compare("eq", size, _INFINITY), a)
    top, biased = _normalized(f, size)
    power = f.add(biased, -_BIAS)
    odd = f.op("and", power, 1)
    rest = _shift(f, "shl", f.op("lshr", top, 10), odd)  # leading bit at 53 or 54

    def step(_: Reg, values: list[Reg]) -> list[Reg]:
        """A bit of the root, from the highest on: the square of root + bit is compared with the number."""
        rest, root, twice, bit = values
        tried = f.add(twice, bit)
        fits = f.compare("ule", tried, rest)
        rest = f.select(fits, f.op("sub", rest, tried), rest)
        twice = f.select(fits, f.add(tried, bit), twice)
        root = f.select(fits, f.add(root, bit), root)
        return [f.op("shl", rest, 1), root, twice, f.op("lshr", bit, 1)]

    carried = [rest, const(0, I64), const(0, I64), const(1 << 53, I64)]
    rest, root, *_ = f.loop(const(54, I64), carried, step)
    significand = f.op("or", f.op("shl", root, 9), _flag(f, f.compare("ne", rest, 0)))
    exponent = f.add(f.op("ashr", power, 1), _BIAS)
    f.ret(lib.call(f, "ew_round", const(0, I64), exponent, significand))


def _compare(unordered: int) -> Callable[[_Library, Function, Reg, Reg], None]:
    """-1, 0 or 1; of NaN, ``unordered``."""

    def emit(lib: _Library, f: Function, a: Reg, b: Reg) -> None:
        sizes = [_bits(f, x, _MAGNITUDE) for x in (a, b)]
        f.return_if(f.compare("ugt", _larger(f, *sizes), _INFINITY), const(unordered, _I32))
        f.return_if(f.compare("eq", f.op("or", *sizes), 0), const(0, _I32))  # zeros of both signs are equal
        # In two's complement, larger is larger: negative numbers are negated magnitudes.
        first, second = (f.select(f.compare("slt", x, 0), f.op("sub", const(0, I64), size), x)
                         for x, size in zip((a, b), sizes, strict=True))  # fmt: skip
        above, below = (_flag(f, f.compare(p, first, second), _I32) for p in ("sgt", "slt"))
        f.ret(f.op("sub", above, below))

    return emit


def _unordered(lib: _Library, f: Function, a: Reg, b: Reg) -> None:
    sizes = [_bits(f, x, _MAGNITUDE) for x in (a, b)]
    f.ret(_flag(f, f.compare("ugt", _larger(f, *sizes), _INFINITY), _I32))


# --------------------------------------------------------------------------------------------------------- conversions


def _extend(lib: _Library, f: Function, a: Reg) -> None:
    """float32 to float64, exactly."""
    size = f.cast("zext", f.op("and", a, 0x7FFFFFFF), I64)
    sign = f.op("shl", f.cast("zext", f.op("lshr", a, 31), I64), 63)
    f.return_if(f.compare("eq", size, 0), sign)
    special = f.op("or", f.op("shl", size, 29), const(_INFINITY, I64))
    quiet = f.select(f.compare("ugt", size, 0x7F800000), const(_QUIET, I64), const(0, I64))
    f.return_if(f.compare("uge", size, 0x7F800000), f.op("or", sign, f.op("or", special, quiet)))
    normal = f.add(f.op("shl", size, 29), (_BIAS - 127) << 52)
    f.return_if(f.compare("uge", size, 1 << 23), f.op("or", sign, normal))
    zeros = _leading_zeros(f, size)  # of 64; the value is size * 2**-149
    fraction = _bits(f, _shift(f, "shl", size, f.add(zeros, -11)), _FRACTION)
    exponent = f.op("sub", const(_BIAS - 149 + 63, _I32), zeros)
    f.ret(f.op("or", sign, f.op("or", f.op("shl", f.cast("zext", exponent, I64), 52), fraction)))


def _round_float32(lib: _Library, f: Function, sign: Reg, exponent: Reg, significand: Reg) -> None:
    """As ``_round``, to float32: the leading bit is at 30, the exponent biased as float32's, the sign at bit 31."""
    below = f.op("sub", const(1, _I32), exponent)
    significand = _shift_right_jamming(f, significand, _larger(f, below, 0, "sgt"))
    odd = _bits(f, f.op("lshr", significand, 7), 1)
    rounded = f.op("lshr", f.add(f.add(significand, 0x3F), odd), 7)
    base = _larger(f, f.add(exponent, -1), 0, "sgt")
    f.return_if(f.compare("sgt", base, 253), f.op("or", sign, 0x7F800000))
    f.ret(f.op("or", sign, f.add(f.op("shl", base, 23), rounded)))


def _truncate(lib: _Library, f: Function, a: Reg) -> None:
    """float64 to float32, rounded."""
    size = _bits(f, a, _MAGNITUDE)
    sign = f.cast("trunc", f.op("shl", f.op("lshr", a, 63), 31), _I32)
    payload = f.cast("trunc", f.op("lshr", _bits(f, size, _FRACTION), 29), _I32)
    f.return_if(f.compare("ugt", size, _INFINITY), f.op("or", f.op("or", sign, 0x7FC00000), payload))
    infinite = f.compare("eq", size, _INFINITY)
    exponent = f.select(infinite, const(255, _I32), f.add(_exponent(f, size), 127 - _BIAS))
    leading = f.select(f.compare("uge", size, _IMPLICIT), const(1 << 30, _I32), const(0, _I32))
    fraction = _bits(f, size, _FRACTION)
    high = f.cast("trunc", f.op("lshr", fraction, 22), _I32)
    lost = _flag(f, f.compare("ne", _bits(f, fraction, (1 << 22) - 1), 0), _I32)
    significand = f.op("or", f.op("or", leading, high), lost)
    f.ret(lib.call(f, "ew_round32", sign, exponent, significand))


def _sign_and_size(f: Function, a: Reg) -> tuple[Reg, Reg]:
    """Whether an integer is negative, and its absolute value."""
    negative = f.compare("slt", a, 0)
    return negative, f.select(negative, f.op("sub", const(0, a.type), a), a)


def _from_integer(signed: bool) -> Callable[[_Library, Function, Reg], None]:
    """An integer of 32 or 64 bits to float64."""

    def emit(lib: _Library, f: Function, a: Reg) -> None:
        wide = f.cast("sext" if signed else "zext", a, I64)
        negative, size = _sign_and_size(f, wide) if signed else (Reg("false", "i1"), wide)
        f.return_if(f.compare("eq", size, 0), const(0, I64))
        zeros = _leading_zeros(f, size)
        top = _shift(f, "shl", size, zeros)
        significand = f.op("or", f.op("lshr", top, 1), _bits(f, top, 1))
        sign = f.select(negative, const(_SIGN, I64), const(0, I64))
        f.ret(lib.call(f, "ew_round", sign, f.op("sub", const(_BIAS + 63, _I32), zeros), significand))

    return emit


def _from_integer_to_float32(signed: bool) -> Callable[[_Library, Function, Reg], None]:
    """An integer of 64 bits to float32, rounded once."""

    def emit(lib: _Library, f: Function, a: Reg) -> None:
        negative, size = _sign_and_size(f, a) if signed else (Reg("false", "i1"), a)
        f.return_if(f.compare("eq", size, 0), const(0, _I32))
        zeros = _leading_zeros(f, size)
        top = _shift_right_jamming(f, _shift(f, "shl", size, zeros), const(33, _I32))
        sign = f.select(negative, const(1 << 31, _I32), const(0, _I32))
        exponent = f.op("sub", const(127 + 63, _I32), zeros)
        f.ret(lib.call(f, "ew_round32", sign, exponent, f.cast("trunc", top, _I32)))

    return emit


def _to_integer(signed: bool, kind: str) -> Callable[[_Library, Function, Reg], None]:
    """float64 to an integer, truncated; the nearest one outside of its range, and 0 of NaN."""

    def emit(lib: _Library, f: Function, a: Reg) -> None:
        size, width = _bits(f, a, _MAGNITUDE), 64 if kind == I64 else 32
        negative, magnitude_bits = f.compare("slt", a, 0), width - signed
        nothing = _either(f, f.compare("ult", size, _BIAS << 52), f.compare("ugt", size, _INFINITY))
        f.return_if(nothing, const(0, kind))
        if not signed:
            f.return_if(negative, const(0, kind))
        least = const(-(1 << width - 1) if signed else 0, kind)
        most = const((1 << magnitude_bits) - 1, kind)
        beyond = f.compare("uge", size, (_BIAS + magnitude_bits) << 52)
        f.return_if(beyond, f.select(negative, least, most))
        top = f.op("or", f.op("shl", _bits(f, size, _FRACTION), 11), const(1 << 63, I64))
        whole = _shift(f, "lshr", top, f.op("sub", const(_BIAS + 63, _I32), _exponent(f, size)))
        number = f.cast("trunc", whole, kind)
        f.ret(f.select(negative, f.op("sub", const(0, kind), number), number))

    return emit


def _widened(name: str) -> Callable[[_Library, Function, Reg], None]:
    """A conversion of float32 by that of float64, which has every float32."""

    def emit(lib: _Library, f: Function, a: Reg) -> None:
        f.ret(lib.call(f, name, lib.call(f, "__extendsfdf2", a)))

    return emit


# -------------------------------------------------------------------------------------------------------------- int64


def _divide_unsigned(lib: _Library, f: Function, a: Reg, b: Reg) -> None:
    """Quotient and remainder."""
    pair = "{ i64, i64 }"

    def both(quotient: Reg, rest: Reg) -> Reg:
        first = f.emit(pair, f"insertvalue {pair} poison, i64 {quotient}, 0")
        return f.emit(pair, f"insertvalue {pair} {first}, i64 {rest}, 1")

    def in_32_bits() -> list[Reg]:
        x, y = (f.cast("trunc", v, _I32) for v in (a, b))
        quotient = f.op("udiv", x, y)
        rest = f.op("sub", x, f.mul(quotient, y))
        return [f.cast("zext", v, I64) for v in (quotient, rest)]

    small = f.compare("ult", f.op("or", a, b), 1 << 32)
    values = f.if_then_phi(small, [const(0, I64), const(0, I64)], in_32_bits)
    f.return_if(small, both(*values))
    f.return_if(f.compare("ult", a, b), both(const(0, I64), a))
    shift = f.op("sub", *(_leading_zeros(f, x) for x in (b, a)))  # of the divisor, up to the dividend

    def step(_: Reg, held: list[Reg]) -> list[Reg]:
        rest, divisor, quotient = held
        bit = f.compare("uge", rest, divisor)
        rest = f.select(bit, f.op("sub", rest, divisor), rest)
        quotient = f.op("or", f.op("shl", quotient, 1), _flag(f, bit))
        return [rest, f.op("lshr", divisor, 1), quotient]

    times = f.cast("zext", f.add(shift, 1), I64)
    rest, _, quotient = f.loop(times, [a, _shift(f, "shl", b, shift), const(0, I64)], step)
    f.ret(both(quotient, rest))


def _divide_signed(lib: _Library, f: Function, a: Reg, b: Reg) -> None:
    """Quotient, truncated, and remainder, with the dividend's sign."""
    pair = "{ i64, i64 }"
    (minus_a, size_a), (minus_b, size_b) = (_sign_and_size(f, x) for x in (a, b))
    made = lib.call(f, "ew_udivmod", size_a, size_b)
    result = Reg("poison", pair)
    for position, minus in enumerate((f.op("xor", minus_a, minus_b), minus_a)):
        part = f.emit(I64, f"extractvalue {pair} {made}, {position}")
        part = f.select(minus, f.op("sub", const(0, I64), part), part)
        result = f.emit(pair, f"insertvalue {pair} {result}, i64 {part}, {position}")
    f.ret(result)


def _part_of_division(name: str, position: int) -> Callable[[_Library, Function, Reg, Reg], None]:
    def emit(lib: _Library, f: Function, a: Reg, b: Reg) -> None:
        f.ret(f.emit(I64, f"extractvalue {{ i64, i64 }} {lib.call(f, name, a, b)}, {position}"))

    return emit


# ----------------------------------------------------------------------------------------------------------- functions


_PAIR, _UNARY, _BINARY = "{ i64, i64 }", (I64,), (I64, I64)
# Of each function: types of its arguments and of its result, and what emits its body.
_FUNCTIONS: dict[str, tuple[tuple[str, ...], str, Callable[..., None]]] = {
    "ew_round": ((I64, _I32, I64), I64, _round),
    "ew_fma": ((I64, I64, I64), I64, _fused_multiply_add_bits),
    "ew_fma_specials": ((I64, I64, I64), I64, _multiply_add_specials),
    "ew_sqrt": (_UNARY, I64, _square_root_bits),
    "ew_round32": ((_I32, _I32, _I32), _I32, _round_float32),
    "__adddf3": (_BINARY, I64, _add),
    "__subdf3": (_BINARY, I64, _subtract),
    "__muldf3": (_BINARY, I64, _multiply),
    "__divdf3": (_BINARY, I64, _divide),
    "fma": (("double",) * 3, "double", _fused_multiply_add),
    "sqrt": (("double",), "double", _square_root),
    **{f"__{name}df2": (_BINARY, _I32, _compare(1)) for name in ("eq", "ne", "lt", "le")},
    **{f"__{name}df2": (_BINARY, _I32, _compare(-1)) for name in ("gt", "ge")},
    "__unorddf2": (_BINARY, _I32, _unordered),
    "__extendsfdf2": ((_I32,), I64, _extend),
    "__truncdfsf2": (_UNARY, _I32, _truncate),
    "__floatsidf": ((_I32,), I64, _from_integer(True)),
    "__floatunsidf": ((_I32,), I64, _from_integer(False)),
    "__floatdidf": (_UNARY, I64, _from_integer(True)),
    "__floatundidf": (_UNARY, I64, _from_integer(False)),
    "__floatdisf": (_UNARY, _I32, _from_integer_to_float32(True)),
    "__floatundisf": (_UNARY, _I32, _from_integer_to_float32(False)),
    "__fixdfsi": (_UNARY, _I32, _to_integer(True, _I32)),
    "__fixunsdfsi": (_UNARY, _I32, _to_integer(False, _I32)),
    "__fixdfdi": (_UNARY, I64, _to_integer(True, I64)),
    "__fixunsdfdi": (_UNARY, I64, _to_integer(False, I64)),
    "__fixsfdi": ((_I32,), I64, _widened("__fixdfdi")),
    "__fixunssfdi": ((_I32,), I64, _widened("__fixunsdfdi")),
    "ew_udivmod": (_BINARY, _PAIR, _divide_unsigned),
    "ew_divmod": (_BINARY, _PAIR, _divide_signed),
    "__udivdi3": (_BINARY, I64, _part_of_division("ew_udivmod", 0)),
    "__umoddi3": (_BINARY, I64, _part_of_division("ew_udivmod", 1)),
    "__divdi3": (_BINARY, I64, _part_of_division("ew_divmod", 0)),
    "__moddi3": (_BINARY, I64, _part_of_division("ew_divmod", 1)),
}
ARITHMETIC_FUNCTIONS = frozenset(name for name in _FUNCTIONS if not name.startswith("ew_"))
