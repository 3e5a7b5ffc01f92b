"""The core dialect: XNNPACK's nodes in fp32, fp16, int8 and with dynamically quantized activations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from edgewright.ir.graph import Array, QParams, Value
from tests.compose.builder import F16, F32, I8, I32, INF, U8, Builder, StepDef
from tests.compose.draw import Draw
from tests.compose.spec import Step, need

TYPES = {"f32": F32, "f16": F16, "i8": I8, "u8": U8, "i32": I32, "i64": np.dtype(np.int64), "bool": np.dtype(np.bool_)}
STEPS: dict[str, StepDef] = {}


def step(name: str, draw: Callable[[Draw, Core], Step | None], weight: float = 1.0) -> Any:
    """Register how a step is drawn and, as a decorator, how it is built."""

    def register(build: Callable[[Core, Step], None]) -> Callable[[Core, Step], None]:
        STEPS[name] = StepDef(draw, build, weight)  # type: ignore[arg-type]
        return build

    return register


class Core(Builder):
    steps = STEPS

    def op(self, kind: str, args: dict[str, Any], out: Value) -> Value:
        """Append ``core.<kind>``: steps name operators without their dialect."""
        return super().op(f"core.{kind}", args, out)

    def input(self, step: Step) -> None:
        dtype = TYPES[step["type"]]
        q = byte_q(step["scale"], step["zero"], dtype) if dtype in (I8, U8) else None
        self.keep(self.new(step["shape"], dtype, q))

    def as_input(self, value: Value) -> Step | None:
        name = next((n for n, t in TYPES.items() if t == value.dtype), None)
        if name is None or dynamic(value):
            return None
        made: Step = {"type": name, "shape": list(value.bound)}
        if value.q is not None:
            zero = int(np.asarray(value.q.zero_point)) - (128 if name == "u8" else 0)
            made |= {"scale": float(np.asarray(value.q.scale)), "zero": zero}
        return made

    def limits(self, name: str | None, out: Value) -> dict[str, Any]:
        """Fused limits, in the output's own range."""
        if name is None:
            return {}
        unit = 1.0 if out.q is None else float(np.float32(out.q.scale)) * 20
        return {"limits": {"relu": (0.0, INF), "relu6": (0.0, 3 * unit), "clip": (-unit, unit)}[name]}


def byte_q(scale: float, zero: int, dtype: Any = I8) -> QParams:
    info = np.iinfo(dtype)
    moved = int(zero) + (128 if info.min == 0 else 0)
    return QParams(float(np.float32(scale)), moved, np.dtype(dtype), int(info.min), int(info.max))


def scale_of(value: Value) -> float:
    assert value.q is not None
    return float(value.q.scale)  # type: ignore[arg-type]


def out_q(like: Value, scale: float, step: Step) -> QParams:
    """An output's parameters: ``scale`` fits what is expected, the step's factor makes it saturate or not."""
    factor, zero = step.get("q", (1.0, 0))
    assert like.dtype is not None
    return byte_q(scale * factor, zero, like.dtype)


def draw_q(d: Draw) -> list[Any]:
    return [d.one((0.5, 1.0, 1.0, 1.0, 1.7)), d.one((0, 0, 3, -7, 25, -40, -128, 127))]


def draw_limits(d: Draw) -> str | None:
    return d.one((None, None, "relu", "relu6", "clip"))


# ----------------------------------------------------------------------------------------------------- what fits


def real(v: Value) -> bool:
    return v.q is None and v.dtype in (F32, F16)


def single(v: Value) -> bool:
    return v.q is None and v.dtype == F32


def dynamic(v: Value) -> bool:
    return v.q is not None and v.q.dynamic is not None


def byte(v: Value) -> bool:
    return v.q is not None and v.q.dynamic is None


def plain(v: Value) -> bool:
    """What any operator may move: not rows that carry their own scales."""
    return not dynamic(v)


def arithmetic(v: Value) -> bool:
    """What XNNPACK computes with: real numbers, and bytes with one scale."""
    return real(v) or byte(v)


def image(v: Value) -> bool:
    return len(v.bound) == 4


def like(v: Value) -> Callable[[Value], bool]:
    """Of the same element type: real numbers, or integers whatever their scale."""
    return lambda o: plain(o) and o.dtype == v.dtype and (o.q is None) == (v.q is None)


def weights_of(rng: np.random.Generator, shape: Any, depth: int) -> Array:
    return (rng.standard_normal(shape) / np.sqrt(max(1, depth))).astype(np.float32)


def int_weights(rng: np.random.Generator, shape: Any, axis: int, depth: int, per_channel: bool) -> tuple[Array, Any]:
    scales = (rng.random(shape[axis]) + 0.3) * 0.02 / np.sqrt(max(1, depth))
    held: Any = tuple(np.asarray(scales, np.float32).tolist()) if per_channel else float(np.float32(scales[0]))
    data = rng.integers(-127, 128, shape).astype(np.int8)
    return data, QParams(held, 0, I8, -128, 127, axis if per_channel else None)


def bias_of(b: Core, rng: np.random.Generator, channels: int, x: Value, wq: QParams | None) -> Value:
    if not byte(x):
        return b.constant((rng.standard_normal(channels) * 0.3).astype(F32 if dynamic(x) else x.dtype))
    assert wq is not None
    combined = np.float32(scale_of(x)) * np.asarray(wq.scale, np.float32)
    listed: Any = tuple(np.broadcast_to(combined, (channels,)).tolist()) if wq.axis is not None else float(combined)
    info = np.iinfo(np.int32)
    axis = 0 if wq.axis is not None else None
    q = QParams(listed, 0, np.dtype(np.int32), int(info.min), int(info.max), axis)
    return b.constant(rng.integers(-3000, 3000, channels).astype(np.int32), q)


def fits_macs(macs: int, most: int) -> None:
    need(macs <= most, "a moderate number of products")
