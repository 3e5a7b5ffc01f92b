"""Checks a model: compiled for its target, run natively, by the reference, and by stock's runtime, beside eager."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any
from unittest import mock

import numpy as np
import torch

import edgewright as ew
import tests.compose.idioms  # noqa: F401  (its layers register themselves)
from edgewright.backends.targets import find_target
from edgewright.errors import EdgewrightError, FormatError, MiscompileError
from edgewright.ir.graph import Array
from edgewright.quantize.methods import join_precision
from edgewright.runtime.jit import segments
from tests.compose.coverage import IMPROVEMENT, Coverage
from tests.compose.models import build_model, samples
from tests.compose.outcome import Failure
from tests.compose.spec import Spec
from tests.support.portable import PortableProgram
from tests.support.stock import StockError, stock

PORTABLE = "portable"  # the target of programs without delegates
_BATCH, _STEPS = 4, 3  # of training
CALLS = 2  # in a row: state lives from the first to the second
# Real numbers: of the largest of an output. Halves have 11 bits, and networks lose some of them on the way.
_BOUND = {None: 1e-4, "fp16": 3e-2}
# Integers: signal to noise against the fake-quantized graph, whose arithmetic is in real numbers, so that single steps
# differ. An output of one number, 23 steps large and 3 steps apart after four layers, is 17.7 dB (seen on imxrt700); a
# wrong value leaves less than 10 dB.
_EMULATED_DB = 20.0  # Qualcomm's rounding is not published: steps differ, values do not
_ENOUGH_DB, _LOST_DB = 40.0, 10.0  # single outputs may lose some decibels with a method that gains on others
# A fake-quantized graph against the model, on calibration data: clipped values leave less. Weights of 4 bits may cancel
# out: two sums of three products, cut by a ReLU, are 11.8 dB.
_FLOAT_DB, _FLOAT_DB_OF_4_BITS = 14.0, 6.0
_LEAST_DB = {"int8": 15.0, "dynamic": 15.0, "dynamic-w4": 15.0, "a16w8": 30.0, "a16w16": 30.0}


@dataclass
class ModelOutcome:
    failure: Failure | None = None
    skipped: str = ""  # typed errors of the compiler: what it documents not to take
    facts: dict[str, Any] = field(default_factory=dict)


def check_model(spec: Spec, cpu: str = "", coverage: Coverage | None = None) -> ModelOutcome:
    network, example = build_model(spec)
    quantize = spec.options["quantize"]
    calls = samples(spec, CALLS + 1)[1:]
    if quantize == "fp16":
        network, example = network.half(), tuple(x.half() for x in example)
        calls = [tuple(x.half() for x in inputs) for inputs in calls]
    coverage = coverage or Coverage()
    try:
        with coverage.recording():  # plans are made here, where the compiler checks its file, and cached
            result = _compiled(network, example, spec)
    except EdgewrightError as error:
        if error.exit_code == 70 or isinstance(error, MiscompileError | FormatError):  # no fault of the model's
            return ModelOutcome(Failure(f"compile {type(error).__name__}", str(error)[:300]))
        return ModelOutcome(skipped=f"{type(error).__name__}: {error}"[:200])
    expected = _expected(result, calls)
    improvements = ("train",) if spec.options.get("train") else spec.options.get("methods", ())
    coverage.counts.update(f"{IMPROVEMENT} {name}" for name in improvements)
    if spec.options.get("methods"):
        detail, kind = _against_preset(spec, calls, expected), "methods lose accuracy"
    else:
        detail, kind = _against_float(spec, calls, expected), "quantization loses accuracy"
    return ModelOutcome(Failure(kind, detail)) if detail else _compare(spec, result, calls, cpu, coverage, expected)


def _compiled(network: Any, example: Sequence[Any], spec: Spec, check: bool = True) -> Any:
    quantize = spec.options["quantize"]
    if spec.options["target"] == PORTABLE:
        return PortableProgram(torch.export.export(network, tuple(example)))
    given: dict[str, Any] = {"check": check}
    if quantize not in (None, "fp16"):
        precision = join_precision(quantize, tuple(spec.options.get("methods", ())))
        given |= {"quantize": precision, "calibration": samples(spec, 8)}
        if spec.options.get("train"):
            given["train"] = partial(_train, samples(spec, _BATCH))
    simulate = True if _qualcomm(spec) and not spec.options.get("emulator") else None
    return ew.compile(network, tuple(example), spec.options["target"], evaluate=0, quiet=True, simulate=simulate,
                      **given)  # fmt: skip


@contextmanager
def all_segments(spec: Spec) -> Iterator[None]:
    """Portable programs of any size have compiled segments, which otherwise must be large."""
    if spec.options["target"] != PORTABLE:
        yield
        return
    with mock.patch.object(segments, "MIN_MACS", 1), mock.patch.object(segments, "_LARGE_RESULT", 0):
        yield


def _train(data: Sequence[tuple[Any, ...]], prepared: Any) -> None:
    """Some steps towards other results, in batches where the model has them."""
    batch = tuple(torch.cat(parts) for parts in zip(*data, strict=True))
    try:
        with torch.no_grad():
            prepared(*batch)
    except (AssertionError, RuntimeError):  # it is prepared for the example's shapes alone
        batch = data[0]
    trainable = [p for p in prepared.parameters() if p.requires_grad]
    if not trainable:
        return
    optimizer = torch.optim.SGD(trainable, 1e-3)
    for _ in range(_STEPS):
        made = prepared(*batch)
        losses = [(t - 0.9 * t.detach()).square().mean() for t in (made if isinstance(made, tuple | list) else (made,))]
        if not any(loss.requires_grad for loss in losses):
            return
        optimizer.zero_grad()
        sum(losses).backward()  # type: ignore[union-attr]
        torch.nn.utils.clip_grad_norm_(trainable, 1.0)
        optimizer.step()


def _qualcomm(spec: Spec) -> bool:
    return find_target(spec.options["target"]).backend == "qualcomm"


def _expected(result: Any, calls: Sequence[Any]) -> list[list[Array]]:
    """What torch makes of the model, or of its fake-quantized graph."""
    module = result.exported.module()
    with torch.no_grad():
        return [_leaves(module(*inputs)) for inputs in calls]


def _against_preset(spec: Spec, calls: Sequence[Any], expected: list[list[Array]]) -> str:
    """Methods are near the float model if their preset is: what they change cancels out, or is rounding."""
    network, example = build_model(spec)
    preset = replace(spec, options={name: value for name, value in spec.options.items() if name != "methods"})
    plain = _expected(_compiled(network, example, preset, check=False), calls)
    for call, sides in enumerate(zip(_exact(spec, calls), plain, expected, strict=True)):
        for at, (want, *both) in enumerate(zip(*sides, strict=True)):
            before, after = (ratio(np.asarray(got, np.float64), np.asarray(want, np.float64)) for got in both)
            if not after >= min(before, _ENOUGH_DB) - _LOST_DB:
                return f"call {call}, output {at}: {after:.1f} dB, {before:.1f} without methods"
    return ""


def _against_float(spec: Spec, calls: Sequence[Any], expected: list[list[Array]]) -> str:
    """Calibration has seen the calls: a quantized graph that is far from the model has wrong scales."""
    if spec.options["quantize"] in _BOUND or spec.options.get("train"):
        return ""
    least = _FLOAT_DB_OF_4_BITS if spec.options["quantize"] == "dynamic-w4" else _FLOAT_DB
    for call, sides in enumerate(zip(_exact(spec, calls), expected, strict=True)):
        for at, (want, got) in enumerate(zip(*sides, strict=True)):
            decibels = ratio(np.asarray(got, np.float64), np.asarray(want, np.float64))
            if not decibels >= least:
                return f"call {call}, output {at}: {decibels:.1f} dB"
    return ""


def _exact(spec: Spec, calls: Sequence[Any]) -> list[list[Array]]:
    """What the model in floating point makes of the calls."""
    network, _ = build_model(spec)  # with the state of a first call
    with torch.no_grad():
        return [_leaves(network(*inputs)) for inputs in calls]


def _leaves(made: Any) -> list[Array]:
    return [t.detach().numpy().copy() for t in (made if isinstance(made, tuple | list) else (made,))]


@contextmanager
def environment(**changed: str) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in changed}
    os.environ.update(changed)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _run(result: Any, calls: Sequence[Any], engine: str, cpu: str, qnn: str = "twin") -> list[list[Array]]:
    chosen = {"EDGEWRIGHT_CPU": cpu} if cpu and engine == "native" else {}
    with environment(EDGEWRIGHT_ENGINE=engine, EDGEWRIGHT_QNN=qnn, **chosen):
        method = result.method()
        return [[np.asarray(o).copy() for o in map(_plain, method.execute([*inputs]))] for inputs in calls]


def _plain(value: Any) -> Any:
    return value.detach().numpy() if isinstance(value, torch.Tensor) else value


def _compare(spec: Spec, result: Any, calls: Sequence[Any], cpu: str, coverage: Coverage,
             expected: list[list[Array]]) -> ModelOutcome:  # fmt: skip
    try:
        with coverage.recording(), all_segments(spec):
            native = _run(result, calls, "native", cpu)
        reference = _run(result, calls, "reference", cpu)
    except EdgewrightError as error:
        return ModelOutcome(Failure(f"run {type(error).__name__}", str(error)[:300]))
    quantize = spec.options["quantize"]
    bound = {None: 1e-5, "fp16": 1e-2}.get(quantize, 1e-5)
    detail = _apart(native, reference, bound, quantize)
    if detail:
        return ModelOutcome(Failure("native differs from reference", detail))
    if spec.options["target"] in ("xnnpack", PORTABLE):
        detail = _against_stock(result, calls, native, quantize)
        if detail:
            return ModelOutcome(Failure("differs from stock", detail))
    if spec.options.get("emulator"):
        detail = _apart(native, _run(result, calls, "native", cpu, "emulator"), 0.0, quantize, _EMULATED_DB)
        if detail:
            return ModelOutcome(Failure("differs from the emulator", detail))
    detail = _against_torch(native, expected, quantize)
    return ModelOutcome(Failure("far from torch", detail) if detail else None)


def _against_stock(result: Any, calls: Sequence[Any], native: list[list[Array]], quantize: str | None) -> str:
    try:
        made = stock().run_many(result.buffer, "forward", [[x.numpy() for x in inputs] for inputs in calls])
    except StockError as error:
        return f"stock: {error}"[:300]
    return _apart(native, made, {None: 1e-4, "fp16": 3e-2}.get(quantize, 1e-4), quantize)


def _apart(
    native: list[list[Array]], other: list[list[Any]], bound: float, quantize: str | None, decibels: float = 30.0
) -> str:
    """Within ``bound`` of the largest; quantized results may be some steps apart where real numbers were rounded."""
    for call, (made, wanted) in enumerate(zip(native, other, strict=True)):
        for at, (got, want) in enumerate(zip(made, wanted, strict=True)):
            a, b = np.asarray(got, np.float64), np.asarray(want, np.float64)
            if a.shape != b.shape:
                return f"call {call}, output {at}: {list(a.shape)}, wanted {list(b.shape)}"
            if not np.array_equal(np.isfinite(a), np.isfinite(b)):
                return f"call {call}, output {at}: {int(np.sum(~np.isfinite(a)))} elements are not finite"
            largest = float(np.abs(b[np.isfinite(b)]).max(initial=0.0))
            apart = float(np.abs(a - b)[np.isfinite(b)].max(initial=0.0))
            if apart <= bound * max(largest, 1e-3) or (quantize not in (None, "fp16") and ratio(a, b) >= decibels):
                continue
            return f"call {call}, output {at}: differs by {apart:.4g} of {largest:.4g}, {ratio(a, b):.1f} dB"
    return ""


def _against_torch(native: list[list[Array]], expected: list[list[Array]], quantize: str | None) -> str:
    for call, (made, wanted) in enumerate(zip(native, expected, strict=True)):
        for at, (got, want) in enumerate(zip(made, wanted, strict=True)):
            a, b = np.asarray(got, np.float64), np.asarray(want, np.float64)
            if a.shape != b.shape:
                return f"call {call}, output {at}: {list(a.shape)}, wanted {list(b.shape)}"
            if quantize in _BOUND:
                largest = float(np.abs(b).max(initial=0.0))
                apart = float(np.abs(a - b).max(initial=0.0))
                if not apart <= _BOUND[quantize] * max(largest, 1e-2):
                    return f"call {call}, output {at}: differs by {apart:.4g} of {largest:.4g}, {ratio(a, b):.1f} dB"
            elif not ratio(a, b) >= _LEAST_DB.get(quantize or "", 15.0):
                return f"call {call}, output {at}: {ratio(a, b):.1f} dB"
    return ""


def ratio(got: Array, want: Array) -> float:
    """Signal to noise, in decibels."""
    power, noise = float(np.sum(want * want)), float(np.sum((got - want) ** 2))
    if not math.isfinite(noise):
        return -math.inf
    if noise == 0:
        return math.inf
    return 10 * math.log10(power / noise) if power > 0 else -math.inf
