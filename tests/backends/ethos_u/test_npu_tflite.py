"""NPU modes that only TFLite files lead to, held to real arithmetic.

Unsigned bytes, LRELU, tables of 32 bits, products of 64 bits, rounding twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from edgewright.backends.ethos_u.npu import decode, disassemble
from edgewright.errors import MissingError
from tests.backends.ethos_u.tflite_graphs import Quantized, compile_tflite, real_answer, tflite
from tests.backends.ethos_u.tosa_graphs import simulate

IMAGE = (1, 8, 8, 16)


def image(dtype: str, scale: float, zero: int = 0) -> Quantized:
    return Quantized(IMAGE, dtype, scale, zero)


def row(dtype: str, scale: float, zero: int = 0) -> Quantized:
    return Quantized((1, 100), dtype, scale, zero)


def softmax(x: Any) -> Any:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def leaky(x: Any) -> Any:
    return np.where(x < 0, 0.1 * x, x)


def mean3x3(x: Any) -> Any:
    def total(a: Any) -> Any:
        padded = np.pad(a, ((0, 0), (1, 1), (1, 1), (0, 0)))
        return sum(padded[:, y : y + 8, x : x + 8] for y in range(3) for x in range(3))

    return total(x) / total(np.ones_like(x))


POOL = {"Padding": 0, "StrideW": 1, "StrideH": 1, "FilterWidth": 3, "FilterHeight": 3}
OPERATORS: dict[str, tuple[Callable[..., Any], str, dict[str, Any]]] = {  # meaning, options, their fields
    "SOFTMAX": (softmax, "SoftmaxOptions", {"Beta": 1.0}),
    "LEAKY_RELU": (leaky, "LeakyReluOptions", {"Alpha": 0.1}),
    "TANH": (np.tanh, "", {}),
    "ADD": (np.add, "AddOptions", {}),
    "SUB": (np.subtract, "SubOptions", {}),
    "MUL": (np.multiply, "MulOptions", {}),
    "ABS": (np.abs, "", {}),
    "AVERAGE_POOL_2D": (mean3x3, "Pool2DOptions", POOL),
    "QUANTIZE": (lambda x: x, "QuantizeOptions", {}),
}
CASES: dict[str, tuple[str, list[Quantized], Quantized]] = {  # operator, inputs, output
    "softmax i8": ("SOFTMAX", [row("i8", 0.1, -3)], row("i8", 1 / 256, -128)),
    "softmax u8": ("SOFTMAX", [row("u8", 0.1, 3)], row("u8", 1 / 256)),
    "softmax i16": ("SOFTMAX", [row("i16", 3e-4)], row("i16", 2**-15)),
    "leaky i8": ("LEAKY_RELU", [image("i8", 0.05, 4)], image("i8", 0.05, 4)),
    "leaky i16": ("LEAKY_RELU", [image("i16", 5e-4)], image("i16", 5e-4)),
    "tanh i8": ("TANH", [image("i8", 0.05, 4)], image("i8", 1 / 128)),
    "add i8": ("ADD", [image("i8", 0.05, 4), image("i8", 0.03, -7)], image("i8", 0.07, 3)),
    "add u8": ("ADD", [image("u8", 0.05, 124), image("u8", 0.03, 97)], image("u8", 0.07, 133)),
    "add i8 of one scale": ("ADD", [image("i8", 0.05, 4)] * 2, image("i8", 0.09, 3)),
    "add i16": ("ADD", [image("i16", 5e-4), image("i16", 3e-4)], image("i16", 7e-4)),
    "add i16 of one scale": ("ADD", [image("i16", 5e-4)] * 2, image("i16", 7e-4)),
    "sub i8": ("SUB", [image("i8", 0.05, 4), image("i8", 0.03, -7)], image("i8", 0.07, 3)),
    "mul u8": ("MUL", [image("u8", 0.05, 124), image("u8", 0.03, 97)], image("u8", 0.1, 133)),
    "mul i16": ("MUL", [image("i16", 5e-4), image("i16", 3e-4)], image("i16", 3e-3)),
    "abs i8": ("ABS", [image("i8", 0.05, 4)], image("i8", 0.06, -20)),
    "average i8": ("AVERAGE_POOL_2D", [image("i8", 0.05, 4)], image("i8", 0.05, 4)),
    "average i16": ("AVERAGE_POOL_2D", [image("i16", 5e-4)], image("i16", 5e-4)),
    "quantize i8 to u8": ("QUANTIZE", [image("i8", 0.05, 4)], image("u8", 0.07, 132)),
    "quantize i16 to i8": ("QUANTIZE", [image("i16", 5e-4)], image("i8", 0.13, -4)),
}
LOOSE = {"softmax i16": 2.5}  # its tables are coarser than its steps


def compiled(name: str, accelerator: str = "ethos-u55-128") -> Any:
    operator, inputs, output = CASES[name]
    _, options, fields = OPERATORS[operator]
    return compile_tflite(tflite(operator, inputs, output, options, **fields), accelerator)


def stored_inputs(tensors: list[Quantized]) -> list[np.ndarray]:
    rng = np.random.default_rng(11)
    return [rng.integers(*t.limits, t.shape, endpoint=True).astype(t.kind) for t in tensors]


@pytest.mark.parametrize("accelerator", ["ethos-u55-32", "ethos-u55-128", "ethos-u65-256"])
@pytest.mark.parametrize("name", CASES)
def test_within_half_a_step(name: str, accelerator: str) -> None:
    operator, inputs, output = CASES[name]
    stored = stored_inputs(inputs)
    expected = real_answer(OPERATORS[operator][0], inputs, output, stored)
    answer = simulate(compiled(name, accelerator), stored)[0].view(output.kind).reshape(output.shape)
    assert np.abs(answer - expected).max() <= LOOSE.get(name, 0.51)
    assert len(np.unique(answer)) > 5


@pytest.mark.parametrize(("name", "text"), [("leaky i16", "ELEMENTWISE LRELU"), ("softmax i8", "ELEMENTWISE CLZ"),
                                            ("softmax i8", "clamp -128..127  function 16")])  # fmt: skip
def test_the_modes_are_there(name: str, text: str) -> None:
    """The cases above test what they are meant to."""
    assert text in disassemble(decode(bytes(compiled(name).command_stream)))


def test_built_in_curves_are_refused_by_name() -> None:
    data = tflite("TANH", [image("i16", 2**-13)], image("i16", 2**-15))
    model = compile_tflite(data, "ethos-u55-128")
    with pytest.raises(MissingError, match="activation 3: must be none or a lookup table"):
        simulate(model, stored_inputs([image("i16", 2**-13)]))
