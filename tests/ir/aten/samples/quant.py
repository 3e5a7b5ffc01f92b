"""Samples of quantization. The expectation is torch's decomposed operator where there is one, else written out here."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.ao.quantization.fx._decomposed

from edgewright.ir.dtypes import ScalarType
from tests.ir.aten.harness import TORCH, Sample, channels_last, to_array, to_torch
from tests.ir.aten.samples.values import array, normal, unlike_stock

Q = "quantized_decomposed::"
EAGER = torch.ops.quantized_decomposed
F32, F64, F16 = (int(s) for s in (ScalarType.FLOAT32, ScalarType.FLOAT64, ScalarType.FLOAT16))
RANGES = {
    "int8": (-128, 127),
    "uint8": (0, 255),
    "int16": (-32768, 32767),
    "uint16": (0, 65535),
    "int32": (-(2**31), 2**31 - 1),
}
TIES = array([0.25, 0.75, 1.25, -0.25, -0.75, -1.25, 1e9, -1e9, np.inf, -np.inf, 0.0, -0.0])


def number(name: str) -> int:
    return int(ScalarType[name.upper()])


def eager(op: Any, args: list, types: tuple[int, ...] = (), names: tuple[str, ...] = ()) -> list[np.ndarray]:
    """What torch gives for ``args``, in which the positions of ``types`` hold scalar type numbers."""
    values = [to_torch(a) for a in args]
    for i in types:
        values[i] = None if values[i] is None else TORCH[ScalarType(values[i]).name.lower()]
    keywords = {name: values.pop() for name in reversed(names)}
    result = op(*values, **keywords)
    return [to_array(t) for t in (result if isinstance(result, tuple) else (result,))]


def to_whole() -> list[Sample]:
    key, tensor = f"{Q}quantize_per_tensor.out", f"{Q}quantize_per_tensor.Tensor_out"
    calls = []
    for name, (low, high) in RANGES.items():
        if name != "int32":
            calls.append([normal("float32", 3, 5), 0.037, 3, low, high, number(name)])
    i8 = number("int8")
    calls += [
        [x, 0.5, -3, -128, 127, i8] for x in (TIES, normal("float16", 4), normal("bfloat16", 4), normal("float32"))
    ]
    calls += [[normal("float32", 0, 2), 0.5, 0, -128, 127, i8], [normal("float32", 9), 0.1, 1, -8, 7, i8]]
    calls += [[normal("float32", 9), 1e-6, 5, -1000, 1000, number("int32")]]
    calls += [[channels_last(normal("float32", 1, 2, 3, 2)), 0.1, 1, 0, 255, number("uint8")]]
    found = [Sample(key, c, expect=eager(EAGER.quantize_per_tensor.default, c, (5,))) for c in calls]
    for scale, zero, *rest in ((0.1, 3, 0, 255, number("uint8")), (0.037, -3, -128, 127, i8)):
        args = [normal("float32", 3, 4), array([scale], "float64"), array([zero], "int64"), *rest]
        found.append(Sample(tensor, args, expect=eager(EAGER.quantize_per_tensor.tensor, args, (5,))))
        args = [normal("float32", 3, 4), array(scale, "float32"), array(zero, "int32"), *rest]
        found.append(
            Sample(
                tensor,
                args,
                expect=eager(EAGER.quantize_per_tensor.tensor, args, (5,)),
                stock=False,
                why="wants float64, int64",
            )
        )
    return found


def to_real() -> list[Sample]:
    key, tensor = f"{Q}dequantize_per_tensor.out", f"{Q}dequantize_per_tensor.Tensor_out"
    found = []
    for name, (low, high) in RANGES.items():
        args = [array(np.linspace(low, high, 7), name), 0.037, 3, low, high, number(name), None]
        found.append(Sample(key, args, expect=eager(EAGER.dequantize_per_tensor.default, args, (5,), ("out_dtype",))))
    q = array([[-128, 0, 5], [127, 1, -1]], "int8")
    for out in (F32, F64, F16):
        args = [q, 0.1, -7, -128, 127, number("int8"), out]
        expect = eager(EAGER.dequantize_per_tensor.default, args, (5, 6), ("out_dtype",))
        found.append(Sample(key, args, expect=expect, stock=out == F32, why="" if out == F32 else "float32 only"))
    for x in (q, q[:0], q.T):
        args = [x, array([0.1], "float64"), array([-7], "int64"), -128, 127, number("int8"), None]
        found.append(Sample(tensor, args, expect=eager(EAGER.dequantize_per_tensor.tensor, args, (5,), ("out_dtype",))))
    return found


def per_channel() -> list[Sample]:
    key, back = f"{Q}quantize_per_channel.out", f"{Q}dequantize_per_channel.out"
    found = []
    x = normal("float32", 3, 4, 2)
    for axis, name, scale_type in (
        (0, "int8", "float64"),
        (1, "uint8", "float64"),
        (-1, "int8", "float64"),
        (2, "int8", "float32"),
        (1, "int16", "float64"),
    ):
        low, high = RANGES[name]
        count = x.shape[axis]
        scales, zeros = array(np.linspace(0.01, 0.3, count), scale_type), array(range(1, count + 1), "int64")
        args = [x, scales, zeros, axis, low, high, number(name)]
        expect = eager(EAGER.quantize_per_channel.default, args, (6,))
        found.append(Sample(key, args, expect=expect))
        for zero in (zeros, None):
            args = [expect[0], scales, zero, axis, low, high, number(name), None]
            found.append(
                Sample(back, args, expect=eager(EAGER.dequantize_per_channel.default, args, (6,), ("out_dtype",)))
            )
    float_zeros = [expect[0], scales, array([0.5, 1.5, -2.0, 0.0], "float32"), 1, low, high, number(name), None]
    wanted = eager(EAGER.dequantize_per_channel.default, float_zeros, (6,), ("out_dtype",))
    return [*found, Sample(back, float_zeros, expect=wanted)]


def per_token() -> list[Sample]:
    choose, key, back = (
        f"{Q}choose_qparams_per_token_asymmetric.out",
        f"{Q}quantize_per_token.out",
        f"{Q}dequantize_per_token.out",
    )
    one_sided = array([[1, 2, 3], [-1, -2, -3], [5, 5, 5], [-1, 0, 1]])
    # The stock runtime has another smallest scale, which the kernel follows (runtime/kernels/test_llama_kernels.py).
    tiny = array([[0, 0, 0], [1e-9, 0, 0]])
    found = []
    for x in (normal("float32", 2, 3, 5), one_sided, normal("float32", 4, 1), normal("float32", 6), tiny):
        args = [x, number("int8")]
        scales, zeros = expect = eager(EAGER.choose_qparams_per_token_asymmetric.default, args, (1,))
        if x is not tiny:
            found.append(Sample(choose, args, expect=expect, rtol=1e-7))
        args = [x, scales, zeros, -128, 127, number("int8")]
        (q,) = expect = eager(EAGER.quantize_per_token.default, args, (5,))
        found.append(Sample(key, args, expect=expect))
        args = [q, scales, zeros, -128, 127, number("int8"), F32]
        found.append(Sample(back, args, expect=eager(EAGER.dequantize_per_token.default, args, (5, 6))))
    args = [
        normal("float32", 3, 4),
        array([[0.1], [0.2], [0.3]]),
        array([[1], [-2], [0]], "int64"),
        -8,
        7,
        number("int8"),
    ]
    expect = eager(EAGER.quantize_per_token.default, args, (5,))
    return [*found, Sample(key, args, expect=expect, stock=False, why="wants float64 scales")]


def choices() -> list[Sample]:
    eps = 1.1920928955078125e-07
    key = f"{Q}choose_qparams.Tensor_out"
    found = []
    for x in (
        normal("float32", 3, 4),
        -np.abs(normal("float32", 5)),
        np.abs(normal("float32", 5)) + 1,
        array([[2.5] * 3]),
    ):
        for low, high, name in ((-128, 127, "int8"), (0, 255, "uint8"), (-127, 127, "int8")):
            args = [x, low, high, eps, number(name)]
            found.append(Sample(key, args, expect=eager(EAGER.choose_qparams.tensor, args, (4,)), rtol=1e-7))
    for x in (np.zeros((2, 2), np.float32), array([1e-9, -1e-9])):
        args = [x, -128, 127, eps, number("int8")]
        expect = eager(EAGER.choose_qparams.tensor, args, (4,))
        found.append(Sample(key, args, expect=expect, rtol=1e-7, stock=False, why="has its own smallest scale"))
    return found


def sums() -> list[Sample]:
    a, b = array([[0, 3, 255], [128, 7, 200]], "uint8"), array([[1, 250, 255], [0, 9, 100]], "uint8")
    found = []
    for sa, za, sb, zb, so, zo, low, high in (
        (0.1, 3, 0.2, 128, 0.3, 10, 0, 255),
        (0.5, 0, 0.5, 0, 1.0, 0, 0, 255),
        (0.01, 255, 0.02, 0, 0.05, 100, 50, 200),
    ):
        real = (a.astype(np.float32) - za) * np.float32(sa) + (b.astype(np.float32) - zb) * np.float32(sb)
        q = np.clip(np.rint(real / np.float32(so)) + zo, low, high).astype(np.uint8)
        found.append(Sample(f"{Q}add.out", [a, sa, za, 0, 255, b, sb, zb, 0, 255, so, zo, low, high], expect=[q]))
    return found


def rows_of(q: np.ndarray, scales: np.ndarray, zeros: np.ndarray | None) -> np.ndarray:
    """Dequantized rows, column by column."""
    groups = scales.reshape(len(q), -1)
    size = -(-q.shape[1] // groups.shape[1])
    shifts = np.zeros_like(groups) if zeros is None else zeros.reshape(groups.shape)
    columns = [(q[:, i].astype(np.float64) - shifts[:, i // size]) * groups[:, i // size] for i in range(q.shape[1])]
    return np.stack(columns, 1)


def pack(q: np.ndarray, bits: int) -> np.ndarray:
    """Four bits: first in the high half. Two bits: first in the low ones."""
    if bits == 8:
        return q
    u = (q.astype(int) + 2 ** (bits - 1)).reshape(len(q), -1, 8 // bits)
    weights = [16, 1] if bits == 4 else [1, 4, 16, 64]
    return (u * weights).sum(-1).astype(np.uint8)


def lookups() -> list[Sample]:
    found = []
    for name, bits in (("byte", 8), ("4bit", 4), ("2bit", 2)):
        low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
        q = np.random.default_rng(bits).integers(low, high + 1, (5, 8)).astype(np.int8)
        for groups, zeroed, indices in (
            ((), False, [[4, 0], [2, 2]]),
            ((2,), True, [3, 1, 0]),
            ((4,), False, [1]),
            ((), True, []),
        ):
            scales = np.abs(normal("float32", 5, *groups, seed=3)) + np.float32(0.1)
            zeros = array(normal("int8", 5, *groups) % 3, "float32") if zeroed else None
            args = [pack(q, bits), scales, zeros, low, high, array(indices, "int64")]
            expect = [rows_of(q, scales, zeros)[args[5]].astype(np.float32)]
            found.append(Sample(f"{Q}embedding_{name}.out", args, expect=expect))
            found.append(Sample(f"{Q}embedding_{name}.dtype_out", [*args, F32], expect=expect))
            half = [a.astype(np.float16) if a is not None else None for a in (scales, zeros)]
            expect = [
                rows_of(q, *(None if a is None else a.astype(np.float64) for a in half))[args[5]].astype(np.float16)
            ]
            found.append(Sample(f"{Q}embedding_{name}.dtype_out", [args[0], *half, *args[3:], F16], expect=expect))
    q = array(np.arange(20).reshape(4, 5) * 13, "uint8")
    args = [q, array([0.5, 1, 2, 3]), array([128, 0, 1, 2]), 0, 255, array([3, 0], "int64")]
    return [
        *found,
        Sample(f"{Q}embedding_byte.out", args, expect=[rows_of(q, args[1], args[2])[[3, 0]].astype(np.float32)]),
    ]


def products() -> list[Sample]:
    found = []
    for name, tolerance in (("float32", None), ("float16", 1e-2)):
        x, w = normal(name, 3, 6), normal("int8", 4, 6)
        for groups in ((), (2,), (3,)):
            scales = np.abs(normal(name, 4, *groups, seed=3))
            expect = [(x.astype(np.float64) @ rows_of(w, scales.astype(np.float64), None).T).astype(x.dtype)]
            for dtype in (None, number(name)):
                found.append(Sample(f"{Q}mixed_linear.out", [x, w, scales, None, dtype], expect=expect, rtol=tolerance))
        w = normal("int8", 6, 4)
        scales = np.abs(normal(name, 6, seed=3))
        expect = [(x.astype(np.float64) @ rows_of(w, scales.astype(np.float64), None)).astype(x.dtype)]
        found.append(Sample(f"{Q}mixed_mm.out", [x, w, scales, None], expect=expect, rtol=tolerance))
    zeros = array([1, 0, -2, 0.5, 3, 0])
    expect = [
        (normal("float32", 3, 6).astype(np.float64) @ rows_of(w, np.float64([1, 2, 3, 4, 5, 6]), zeros)).astype(
            np.float32
        )
    ]
    args = [normal("float32", 3, 6), w, array([1, 2, 3, 4, 5, 6]), zeros]
    return [*found, Sample(f"{Q}mixed_mm.out", args, expect=expect, stock=False, why="takes no zero points")]


def reason(sample: Sample) -> str:
    if not sample.stock:
        return sample.why
    x, name = sample.args[0], sample.key.partition("::")[2]
    if x is TIES:
        return "infinities wrap around"
    if name.startswith("quantize_per_tensor") and str(x.dtype) == "bfloat16":
        return "no bfloat16"
    if name.startswith("quantize_per_channel") and sample.args[1].dtype != np.float64:
        return "wants float64 scales"
    if name.startswith("dequantize_per_channel") and sample.args[2] is not None and sample.args[2].dtype != np.int64:
        return "wants int64 zero points"
    return "differences wrap around" if name.startswith("dequantize_per_tensor") and x.dtype == np.int32 else ""


SAMPLES = unlike_stock(
    [*to_whole(), *to_real(), *per_channel(), *per_token(), *choices(), *sums(), *lookups(), *products()], reason
)
