"""How much machine code a graph gets: bounded, whatever sizes a file asks for. Counted in instructions, not in time."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from edgewright.backends.qualcomm.dialect.numerics import QNN
from edgewright.backends.registry import find_dialect
from edgewright.backends.xnnpack.numerics import XNNPACK
from edgewright.engine import compile, make_plan
from edgewright.engine.codegen import builder
from edgewright.engine.codegen.builder import CodeSizeError
from edgewright.engine.runner import ENGINE_VARIABLE, make_runner
from edgewright.ir.core.execute import Executor
from edgewright.ir.graph import Graph, Op, Value
from tests.engine import vendors
from tests.engine.graphs import biases, check_alike, constant, filters, graph, quantized, random, real
from tests.support.dialects import NUMERICS

MANY, MORE = 2_000, 30_001  # channels, or other sizes
MEMORY = 64 << 20


def instructions(made: Graph, numerics: str = "xnnpack") -> int:
    """Lines of the largest kernel's text."""
    plan = make_plan(made, threads=1, numerics=NUMERICS[numerics], memory=MEMORY)
    assert len(plan.steps) < 2048
    return max((_text(source).count("\n") for source in plan.kernels.values()), default=0)


def _text(source: Any) -> str:
    return source if isinstance(source, str) else str(source())


def _tensor(name: str, held: str, *shape: int) -> Value:
    if held in ("float32", "int16", "int32", "int64"):
        return vendors.plain(name, shape, held)
    return quantized(name, *shape, dtype=held)


def _one(kind: str, held: str, given: tuple[int, ...], made: tuple[int, ...], name: str = "self", **args: Any) -> Graph:
    x, y = _tensor("x", held, *given), _tensor("y", held, *made)
    return graph([x], [y], Op(f"core.{kind}", {name: x, **args}, [y]))


_WINDOW: dict[str, Any] = {"kernel_size": [2, 2], "stride": [1, 1], "padding": [0] * 4}
_CONV: dict[str, Any] = {"stride": [1, 1], "padding": [0] * 4, "dilation": [1, 1], "groups": 1}


def _pool(kind: str, held: str) -> Callable[[int], Graph]:
    return lambda n: _one(kind, held, (1, 3, 3, n), (1, 2, 2, n), **_WINDOW)


def _resize(held: str) -> Callable[[int], Graph]:
    args: dict[str, Any] = {"output_size": [4, 4], "align_corners": False}
    return lambda n: _one("upsample_bilinear2d", held, (1, 3, 3, n), (1, 4, 4, n), "input", **args)


def _conv(held: str, inputs: int, outputs: int) -> Graph:
    quantize = held != "float32"
    x, y = _tensor("x", held, 1, 3, 3, inputs), _tensor("y", held, 1, 3, 3, outputs)
    weight = filters(outputs, 1, 1, inputs, quantize=quantize)
    return graph(
        [x], [y], Op("core.conv2d", {"input": x, "weight": weight, "bias": biases(outputs, quantize), **_CONV}, [y])
    )


def _tosa_resize(held: str, made: str) -> Callable[[int], Graph]:
    def make(n: int) -> Graph:
        x, y = vendors.plain("x", (1, 3, 3, n), held), vendors.plain("y", (1, 6, 6, n), made)
        args = {"scale": [4, 2, 4, 2], "offset": [-1, -1], "border": [1, 1], "mode": "bilinear"}
        return vendors.graph([y], vendors.tosa("resize", y, input=x, **args))

    return make


def _tflite_resize(n: int) -> Graph:
    x, y = vendors.stored("x", (1, 3, 3, n), 0.1), vendors.stored("y", (1, 5, 5, n), 0.1)
    args = {"align_corners": False, "half_pixel_centers": True}
    return vendors.graph([y], vendors.tflite("RESIZE_BILINEAR", [x, vendors.numbers([5, 5])], y, **args))


def _prelu(n: int) -> Graph:
    return _one("prelu", "float32", (1, 3, 3, n), (1, 3, 3, n), weight=constant(np.ones(n, np.float32)))


CASES: dict[str, tuple[str, Callable[[int], Graph]]] = {
    **{f"{kind} {held}": ("xnnpack", _pool(kind, held)) for kind in ("max_pool2d", "avg_pool2d")
       for held in ("float32", "int8")},
    **{f"resize {held}": ("xnnpack", _resize(held)) for held in ("float32", "int8")},
    **{f"global mean {held}": ("xnnpack", lambda n, held=held: _one("global_avg_pool2d", held, (1, 3, 3, n),
       (1, 1, 1, n))) for held in ("float32", "int8")},
    **{f"convolution of {held} channels": ("xnnpack", lambda n, held=held: _conv(held, n, 4))
       for held in ("float32", "int8")},
    **{f"convolution to {held} channels": ("xnnpack", lambda n, held=held: _conv(held, 4, n))
       for held in ("float32", "int8")},
    **{f"{kind} {held}": ("xnnpack", lambda n, kind=kind, held=held: _one(kind, held, (2, n), (2, n)))
       for kind in ("sigmoid", "softmax", "hardswish") for held in ("float32", "int8")},
    "prelu": ("xnnpack", _prelu),
    "permute": ("xnnpack", lambda n: _one("permute", "float32", (2, 3, n), (n, 2, 3), dims=[2, 0, 1])),
    **{f"TOSA resize {held}": ("tosa", _tosa_resize(held, made))
       for held, made in (("int16", "int64"), ("float32", "float32"))},
    "TFLite resize": ("tflite", _tflite_resize),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_code_does_not_grow_with_channels(name: str) -> None:
    """Beyond what is written out one after another, more channels are more rounds of a loop."""
    numerics, make = CASES[name]
    many, more = (instructions(make(n), numerics) for n in (MANY, MORE))
    assert max(many, more) < 1200
    assert more - many < 300  # what is left beside whole vectors, in pieces


@pytest.mark.parametrize("kind", ["max_pool2d", "avg_pool2d", "global_avg_pool2d"])
def test_a_step_for_each_of_many_images_is_left_to_the_reference(kind: str) -> None:
    made = _one(kind, "float32", (5000, 2, 2, 1), (5000, 1, 1, 1), **(_WINDOW if kind != "global_avg_pool2d" else {}))
    assert [step.label for step in make_plan(made, threads=1).steps if step.python is not None] == [kind]


@pytest.mark.sample(8)
@pytest.mark.parametrize("name", ["max_pool2d float32", "avg_pool2d int8", "resize float32", "resize int8"])
@pytest.mark.parametrize("channels", [127, 128, 129, 200, 515, 1037])
def test_loops_over_channels_give_the_references_results(name: str, channels: int) -> None:
    made = CASES[name][1](channels)
    given = [random(value) for value in made.inputs]
    check_alike(compile(made, threads=1).run(given), Executor(made, XNNPACK).run(given))


@pytest.mark.sample(2)
@pytest.mark.parametrize("channels", [31, 129, 515])
@pytest.mark.parametrize("name", ["TOSA resize int16", "TFLite resize"])
def test_loops_over_channels_of_vendors_resizing(name: str, channels: int) -> None:
    numerics, make = CASES[name]
    vendors.same(make(channels), numerics)


# ---------------------------------------------------------------------------------------------------------- limits


def test_code_beyond_the_limit_is_run_by_the_reference(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made = _pool("max_pool2d", "float32")(17)
    monkeypatch.setattr(builder, "MAX_INSTRUCTIONS", 20)
    monkeypatch.setenv("EDGEWRIGHT_CACHE", "off")
    with caplog.at_level(logging.WARNING, "edgewright"):
        runner = make_runner(lambda: made, XNNPACK, MEMORY, 1)
    assert runner.how.startswith("numpy reference: kernel ") and "may have 20 instructions" in runner.how
    assert any("may have 20 instructions" in record.getMessage() for record in caplog.records)
    given = [random(value) for value in made.inputs]
    check_alike(runner.run(given), Executor(made, XNNPACK).run(given))
    monkeypatch.setenv(ENGINE_VARIABLE, "native")
    with pytest.raises(CodeSizeError, match="may have 20 instructions"):
        make_runner(lambda: made, XNNPACK, MEMORY, 1)


def test_all_kernels_together_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgewright.engine.compiler._MIN_CODE_LIMIT", 1000)
    monkeypatch.setenv("EDGEWRIGHT_CACHE", "off")
    x = [real(f"x{i}", 2, 3 + i) for i in range(8)]
    y = [real(f"y{i}", 2, 3 + i) for i in range(8)]
    made = graph(x, y, *(Op("core.softmax", {"self": a}, [b]) for a, b in zip(x, y, strict=True)))
    with pytest.raises(CodeSizeError, match="kernels may have 8192 characters of LLVM text"):
        compile(made, threads=1, memory=8192)


@pytest.mark.parametrize("count", [60, 300])
def test_chains_of_integer_operators_are_split(count: int) -> None:
    """Element-wise operators of vendors are one kernel, up to a limit; results stay those of the reference."""
    values = [vendors.plain(f"v{n}", (64,), "int32") for n in range(count + 1)]
    other = vendors.plain("other", (64,), "int32")
    ops = [Op("qnn.ElementWiseAdd", {"inputs": [values[n], other]}, [values[n + 1]]) for n in range(count)]
    chain = Graph("chain", [values[0], other], [values[count]], ops)
    assert instructions(chain, "qnn") < 1_500
    steps = make_plan(chain, 1, "qnn").steps
    assert max(s.label.count("+") + 1 for s in steps) <= 64
    assert len(steps) == -(-count // 64)
    inputs = [np.arange(64, dtype=np.int32), np.arange(64, dtype=np.int32) * 1_000_003]
    (found,) = compile(chain, threads=1, numerics=QNN).run(inputs)
    (expected,) = Executor(chain, QNN, MEMORY, find_dialect).run(inputs)
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("product", [False, True])
def test_chains_of_float32_functions_are_split(product: bool) -> None:
    """Real results stay in registers, and in a product's epilogue, up to a limit."""
    values = [real(f"v{n}", 16, 64) for n in range(41)]
    ops = [Op("core.tanh", {"self": values[n]}, [values[n + 1]]) for n in range(40)]
    given = real("x", 16, 32) if product else values[0]
    if product:
        weight = constant(random(real("w", 64, 32)))
        ops.insert(0, Op("core.linear", {"input": given, "weight": weight, "bias": None}, [values[0]]))
    chain = graph([given], [values[40]], *ops)
    assert instructions(chain) < 20_000
    sizes = [s.label.count("tanh") for s in make_plan(chain, 1).steps if s.label != "clone"]
    assert sorted(sizes) == [8, 32], "results in registers, and an epilogue"
    inputs = [random(given)]
    found, expected = compile(chain, threads=1).run(inputs), Executor(chain, XNNPACK, MEMORY).run(inputs)
    check_alike(found, expected, 1e-5)  # the largest result shrinks to 0.19, and the product's error does not
