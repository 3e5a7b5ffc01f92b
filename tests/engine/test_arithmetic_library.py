"""Functions of object files for arithmetic that a processor lacks: against numpy here, and on a board."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from edgewright.engine.arithmetic_library import ARITHMETIC_FUNCTIONS, arithmetic_library

COUNT = 200_000
_TYPES = {"i64": np.uint64, "i32": np.uint32}
_CONVERSIONS = {  # argument, result
    "__floatsidf": (np.int32, np.float64), "__floatunsidf": (np.uint32, np.float64),
    "__floatdidf": (np.int64, np.float64), "__floatundidf": (np.uint64, np.float64),
    "__floatdisf": (np.int64, np.float32), "__floatundisf": (np.uint64, np.float32),
    "__extendsfdf2": (np.float32, np.float64), "__truncdfsf2": (np.float64, np.float32),
}  # fmt: skip
_TO_INTEGER = {
    "__fixdfsi": (np.float64, np.int32), "__fixunsdfsi": (np.float64, np.uint32),
    "__fixdfdi": (np.float64, np.int64), "__fixunsdfdi": (np.float64, np.uint64),
    "__fixsfdi": (np.float32, np.int64), "__fixunssfdi": (np.float32, np.uint64),
}  # fmt: skip
_ARITHMETIC = {"__adddf3": np.add, "__subdf3": np.subtract, "__muldf3": np.multiply, "__divdf3": np.divide}
_DIVISIONS = ("__udivdi3", "__umoddi3", "__divdi3", "__moddi3")
_COMPARISONS = {"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater,
                "ge": np.greater_equal}  # fmt: skip


@pytest.fixture(scope="module")
def library() -> Iterator[Any]:
    """Machine code for this processor, with a loop for each function."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    text = arithmetic_library(ARITHMETIC_FUNCTIONS) + "".join(map(_loop, sorted(ARITHMETIC_FUNCTIONS)))
    machine = llvm.Target.from_default_triple().create_target_machine(opt=2)
    with llvm.create_mcjit_compiler(llvm.parse_assembly(text), machine) as engine:
        engine.finalize_object()
        yield engine


def _signature(name: str) -> tuple[list[str], str]:
    """Types of arguments and of the result, in the text of the definition."""
    (line,) = (x for x in arithmetic_library([name]).splitlines() if f"@{name}(" in x and x.startswith("define"))
    head, arguments = line.removeprefix("define internal ").split("(", 1)
    return [each.split()[0] for each in arguments.split(")")[0].split(", ")], head.split()[0]


def _loop(name: str) -> str:
    """``NAME.loop(arguments, results, count)``; arguments of one element are stored side by side."""
    kinds, result = _signature(name)
    lines = [f"\ndefine void @{name}.loop(ptr %x, ptr %y, i64 %n) {{", "entry:", "  br label %head", "head:",
             "  %i = phi i64 [0, %entry], [%j, %head]"]  # fmt: skip
    for k, kind in enumerate(kinds):
        lines += [f"  %k{k} = mul i64 %i, {len(kinds)}", f"  %o{k} = add i64 %k{k}, {k}"]
        lines += [f"  %p{k} = getelementptr {kind}, ptr %x, i64 %o{k}", f"  %a{k} = load {kind}, ptr %p{k}"]
    listed = ", ".join(f"{kind} %a{k}" for k, kind in enumerate(kinds))
    lines += [f"  %r = call {result} @{name}({listed})", f"  %q = getelementptr {result}, ptr %y, i64 %i",
              f"  store {result} %r, ptr %q", "  %j = add i64 %i, 1", "  %more = icmp ult i64 %j, %n",
              "  br i1 %more, label %head, label %done", "done:", "  ret void", "}", ""]  # fmt: skip
    return "\n".join(lines)


def call(library: Any, name: str, *arrays: Any, result: type) -> Any:
    arguments = np.ascontiguousarray(np.stack(arrays, -1))
    results: Any = np.zeros(len(arrays[0]), result)
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(
        library.get_function_address(f"{name}.loop")
    )
    function(arguments.ctypes.data, results.ctypes.data, len(results))
    return results


def floats(dtype: Any, seed: int, near: Any = None) -> Any:
    """Bits of all kinds: uniform, of few digits (ties), of close exponents, subnormal, and special numbers."""
    rng, bits = np.random.default_rng(seed), 8 * np.dtype(dtype).itemsize
    integer: Any = np.dtype(f"uint{bits}")
    fraction, top = (52, 2047) if bits == 64 else (23, 255)
    raw = rng.integers(0, np.iinfo(integer).max, COUNT, integer, endpoint=True)
    sign, mantissa = raw >> integer.type(bits - 1), raw & integer.type((1 << fraction) - 1)
    kept = rng.integers(0, fraction + 1, COUNT).astype(integer)  # zeros, or ones, below
    few = mantissa >> kept << kept | np.where(rng.random(COUNT) < 0.2, (integer.type(1) << kept) - integer.type(1), 0)
    middle = rng.integers(top // 2 - 70, top // 2 + 70, COUNT).astype(integer)
    exponent = np.choose(rng.integers(0, 6, COUNT), [
        rng.integers(0, top + 1, COUNT), middle, middle, rng.integers(0, 3, COUNT), np.full(COUNT, top // 2),
        rng.integers(top - 3, top + 1, COUNT)]).astype(integer)  # fmt: skip
    made = sign << integer.type(bits - 1) | exponent << integer.type(fraction) | few.astype(integer)
    if near is not None:  # of almost the same size, so that sums cancel
        close = near.view(integer) ^ integer.type(1 << (bits - 1)) ^ (raw & integer.type(3))
        made = np.where(rng.random(COUNT) < 0.2, close, made)
    special = np.array([0.0, np.inf, np.nan, 1.0, 0.5, np.finfo(dtype).tiny, np.finfo(dtype).max,
                        np.finfo(dtype).smallest_subnormal], dtype)  # fmt: skip
    every = np.concatenate([special, -special]).view(integer)
    some = rng.random(COUNT) < 0.05
    return np.where(some, every[rng.integers(0, len(every), COUNT)], made).view(dtype)


def integers(dtype: Any, seed: int) -> Any:
    """Of every number of bits, with what is next to powers of two."""
    rng, bits = np.random.default_rng(seed), 8 * np.dtype(dtype).itemsize
    unsigned: Any = np.dtype(f"uint{bits}")
    raw: Any = rng.integers(0, np.iinfo(unsigned).max, COUNT, unsigned, endpoint=True)
    raw >>= rng.integers(0, bits, COUNT).astype(raw.dtype)
    powers = np.left_shift(raw.dtype.type(1), rng.integers(0, bits, COUNT).astype(raw.dtype))
    raw = np.where(rng.random(COUNT) < 0.3, powers + rng.integers(-1, 2, COUNT).astype(raw.dtype), raw)
    negative = rng.random(COUNT) < 0.5
    return np.where(negative, -raw.view(f"int{bits}"), raw.view(f"int{bits}")).astype(f"int{bits}").view(dtype)


def assert_same(found: Any, wanted: Any) -> None:
    """The same bits, or NaN."""
    if found.dtype.kind == "f":
        nan = np.isnan(wanted)
        np.testing.assert_array_equal(np.isnan(found), nan)
        found, wanted = (np.where(nan, 0, x).view(f"u{x.itemsize}") for x in (found, wanted))
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("name", _ARITHMETIC)
def test_arithmetic(library: Any, name: str) -> None:
    a = floats(np.float64, 1)
    b = floats(np.float64, 2, near=a)
    with np.errstate(all="ignore"):
        wanted = _ARITHMETIC[name](a, b)
    assert_same(call(library, name, a, b, result=np.float64), wanted)


def test_square_root(library: Any) -> None:
    a = floats(np.float64, 3)
    a = np.where(np.arange(COUNT) % 2, np.abs(a), a)
    with np.errstate(all="ignore"):
        assert_same(call(library, "sqrt", a, result=np.float64), np.sqrt(a))


def _exact_fma(a: float, b: float, c: float) -> float:
    """a * b + c in rational numbers, rounded once by the division of integers."""
    if not c and a and b:  # an addend of zero does not change the sign of a product that is rounded to zero
        return float(np.float64(a) * np.float64(b))
    if math.isfinite(a) and math.isfinite(b) and not math.isfinite(c):  # even if the product is rounded to infinity
        return c
    if not all(map(math.isfinite, (a, b, c))) or not a or not b:
        return float(np.float64(a) * np.float64(b) + np.float64(c))
    total = Fraction(a) * Fraction(b) + Fraction(c)
    try:
        return total.numerator / total.denominator if total else 0.0
    except OverflowError:
        return math.inf if total > 0 else -math.inf


def test_fused_multiply_add(library: Any) -> None:
    """Also where product and addend cancel, and where their rounding to subnormal numbers counts."""
    count = 20_000
    a, b = (floats(np.float64, seed)[:count] for seed in (4, 5))
    with np.errstate(all="ignore"):
        product = a * b
    rng = np.random.default_rng(6)
    c = np.where(rng.random(count) < 0.5, floats(np.float64, 7)[:count], -product)
    last_bits = rng.integers(0, 4, count) * (rng.random(count) < 0.3)
    c = (c.view(np.uint64) ^ last_bits.astype(np.uint64)).view(np.float64)
    with np.errstate(all="ignore"):
        wanted = np.array([_exact_fma(*row) for row in zip(a.tolist(), b.tolist(), c.tolist(), strict=True)])
    assert_same(call(library, "fma", a, b, c, result=np.float64), wanted)


@pytest.mark.parametrize("name", _COMPARISONS)
def test_comparisons(library: Any, name: str) -> None:
    """Of the run-time library: the result compared with 0 is the relation, and false of NaN, but of "not equal"."""
    a = floats(np.float64, 8)
    b = np.where(np.arange(COUNT) % 4, floats(np.float64, 9, near=-a), a)
    found = call(library, f"__{name}df2", a, b, result=np.int32)
    np.testing.assert_array_equal(_COMPARISONS[name](found, 0), _COMPARISONS[name](a, b))


def test_unordered(library: Any) -> None:
    a, b = floats(np.float64, 8), floats(np.float64, 9)
    found = call(library, "__unorddf2", a, b, result=np.int32)
    np.testing.assert_array_equal(found != 0, np.isnan(a) | np.isnan(b))


@pytest.mark.parametrize("name", _CONVERSIONS)
def test_conversions(library: Any, name: str) -> None:
    source, result = _CONVERSIONS[name]
    x = floats(source, 10) if np.dtype(source).kind == "f" else integers(source, 10)
    with np.errstate(all="ignore"):
        assert_same(call(library, name, x, result=result), x.astype(result))


@pytest.mark.parametrize("name", _TO_INTEGER)
def test_truncation_to_integers(library: Any, name: str) -> None:
    """Out of range, the nearest integer; of NaN, 0."""
    types: tuple[Any, Any] = _TO_INTEGER[name]
    source, result = types
    x = np.concatenate([floats(source, 11), integers(np.int64, 12).astype(source) * source(0.75)])
    limits = np.iinfo(result)
    inside = np.isfinite(x) & (x > float(limits.min) - 1) & (x < float(limits.max))
    wanted = np.where(inside, x, 0).astype(result)
    wanted = np.where(inside | np.isnan(x), wanted, np.where(x > 0, limits.max, limits.min)).astype(result)
    np.testing.assert_array_equal(call(library, name, x, result=result), wanted)


@pytest.mark.parametrize("name", _DIVISIONS)
def test_division_of_integers(library: Any, name: str) -> None:
    signed = name in ("__divdi3", "__moddi3")
    dtype = np.int64 if signed else np.uint64
    a, b = integers(dtype, 13), integers(dtype, 14)
    b = np.where(b == 0, dtype(3), b)
    if signed:
        b = np.where((a == np.iinfo(dtype).min) & (b == -1), 7, b)
        quotient = np.sign(a) * np.sign(b) * (np.abs(a).view(np.uint64) // np.abs(b).view(np.uint64)).view(np.int64)
    else:
        quotient = a // b
    wanted = quotient if "div" in name else a - quotient * b
    np.testing.assert_array_equal(call(library, name, a, b, result=dtype), wanted)


def test_every_function_is_tested() -> None:
    comparisons = {f"__{name}df2" for name in (*_COMPARISONS, "unord")}
    assert {*_ARITHMETIC, *_CONVERSIONS, *_TO_INTEGER, *_DIVISIONS, *comparisons, "fma", "sqrt"} == ARITHMETIC_FUNCTIONS
