"""Rotary position embeddings: the frequencies of each scaling scheme, and the tables that a program contains."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgewright.errors import UsageError

Array = np.ndarray[Any, Any]
_MAX_FREQUENCY = 1e9  # times any position, finite in float32


@dataclass(frozen=True)
class Rope:
    """Rotation of the first ``dim`` elements of a head; element i is paired with i + dim / 2.

    Frequency i is ``theta ** (-2 i / dim)``, divided by ``divisors[i]``, or by ``long_divisors[i]`` in programs for
    more than ``original_context`` positions. ``amplitude`` multiplies the tables.
    """

    theta: float
    dim: int
    divisors: tuple[float, ...] = ()
    long_divisors: tuple[float, ...] = ()
    original_context: int = 0
    amplitude: float = 1.0

    def __post_init__(self) -> None:
        for name in ("divisors", "long_divisors"):
            numbers = getattr(self, name)
            if numbers and len(numbers) != self.dim // 2:
                rule = f"needs a factor for each of the {self.dim // 2} frequencies"
                raise UsageError("rotary embedding", rule, value=len(numbers))
            if not all(math.isfinite(n) and n > 0 for n in numbers):
                raise UsageError("rotary embedding", "must have finite, positive factors", value=numbers)
        if not (math.isfinite(self.theta) and self.theta > 0) or self.dim < 2 or self.dim % 2:
            value = f"theta {self.theta}, {self.dim} dimensions"
            raise UsageError("rotary embedding", "needs a positive theta and an even number of dimensions", value=value)
        if not math.isfinite(self.amplitude):
            raise UsageError("rotary embedding", "must have a finite amplitude", value=self.amplitude)
        with np.errstate(all="ignore"):
            highest = max(self.frequencies(context).max() for context in (0, self.original_context + 1))
        if not highest <= _MAX_FREQUENCY:
            rule = f"must have frequencies of at most {_MAX_FREQUENCY:g} radians per position"
            raise UsageError("rotary embedding", rule, value=float(highest))

    def frequencies(self, context: int) -> Array:
        """Radians per position, in a program for ``context`` positions."""
        base = 1.0 / self.theta ** (np.arange(0, self.dim, 2, dtype=np.float64) / self.dim)
        divisors = self.long_divisors if self.long_divisors and context > self.original_context else self.divisors
        return base / np.asarray(divisors) if divisors else base

    def tables(self, context: int) -> tuple[Array, Array]:
        """Cosines and sines, float32 [context, dim / 2].

        Angles are products in float32, as in the frameworks that models are trained in.
        """
        angles = np.outer(np.arange(context, dtype=np.float32), self.frequencies(context).astype(np.float32))
        return (np.cos(angles) * np.float32(self.amplitude)), (np.sin(angles) * np.float32(self.amplitude))


def scaled_rope(theta: float, dim: int, scaling: Mapping[str, Any], context: int) -> Rope:
    """The rotation that ``rope_scaling`` or ``rope_parameters`` of config.json describes; ``context``: the model's."""
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if kind in ("default", None):
        return Rope(theta, dim)
    if kind == "linear":
        return Rope(theta, dim, (_number(scaling, "factor"),) * (dim // 2))
    if kind == "llama3":
        return Rope(theta, dim, _llama3_divisors(theta, dim, scaling))
    if kind == "yarn":
        return _yarn(theta, dim, scaling, context)
    if kind == "longrope":
        return _longrope(theta, dim, scaling, context)
    remedy = "default, linear, llama3, yarn and longrope are supported."
    raise UsageError("rotary embedding", "has a scaling that is not supported", value=str(kind), remedy=remedy)


def is_real(value: object) -> bool:
    """Whether a value of JSON is a finite number, within the range of float64."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return -sys.float_info.max <= value <= sys.float_info.max


def _number(scaling: Mapping[str, Any], name: str, default: float | None = None) -> float:
    value: Any = scaling.get(name, default)
    if not is_real(value) or value <= 0:
        raise UsageError(f"rope_scaling.{name}", "must be a positive number", value=value)
    return float(value)


def _llama3_divisors(theta: float, dim: int, scaling: Mapping[str, Any]) -> tuple[float, ...]:
    """Low frequencies are divided by ``factor``, high ones are kept, those between are interpolated."""
    factor, low, high = (_number(scaling, n) for n in ("factor", "low_freq_factor", "high_freq_factor"))
    original = _number(scaling, "original_max_position_embeddings")
    frequency = Rope(theta, dim).frequencies(0)
    turns = original * frequency / (2 * math.pi)
    smooth = np.clip((turns - low) / (high - low), 0, 1) if high != low else (turns >= low).astype(np.float64)
    return tuple((1 / ((1 - smooth) / factor + smooth)).tolist())


def _yarn(theta: float, dim: int, scaling: Mapping[str, Any], context: int) -> Rope:
    """NTK by parts (Peng et al., "YaRN: Efficient Context Window Extension", 2023)."""
    if theta <= 1:
        raise UsageError("rotary embedding", "needs a theta above 1 for yarn", value=theta)
    original = _number(scaling, "original_max_position_embeddings", context)
    factor = _number(scaling, "factor")
    if scaling.get("mscale") or scaling.get("mscale_all_dim"):
        raise UsageError("rotary embedding", "mscale is not supported", value=scaling.get("mscale"))
    default = 0.1 * math.log(factor) + 1 if factor > 1 else 1.0
    amplitude = _number(scaling, "attention_factor", default) if scaling.get("attention_factor") else default
    fast, slow = _number(scaling, "beta_fast", 32), _number(scaling, "beta_slow", 1)
    first, last = (dim * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(theta)) for turns in (fast, slow))
    if scaling.get("truncate", True):
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, dim - 1)
    interpolated = np.clip((np.arange(dim // 2) - first) / max(last - first, 0.001), 0, 1)
    divisors = 1 / (interpolated / factor + (1 - interpolated))
    return Rope(theta, dim, tuple(divisors.tolist()), amplitude=amplitude)


def _longrope(theta: float, dim: int, scaling: Mapping[str, Any], context: int) -> Rope:
    """Factors for short and for long contexts (Ding et al., "LongRoPE", 2024)."""
    original = int(_number(scaling, "original_max_position_embeddings"))
    short, long = (_factors(scaling.get(name), name) for name in ("short_factor", "long_factor"))
    return Rope(theta, dim, short, long, original, _longrope_amplitude(scaling, context, original))


def _longrope_amplitude(scaling: Mapping[str, Any], context: int, original: int) -> float:
    if scaling.get("attention_factor") is not None:
        return _number(scaling, "attention_factor")
    ratio = _number(scaling, "factor") if scaling.get("factor") is not None else context / original
    return math.sqrt(1 + math.log(ratio) / math.log(original)) if ratio > 1 and original > 1 else 1.0


def _factors(numbers: Any, name: str) -> tuple[float, ...]:
    if not isinstance(numbers, Sequence) or not all(map(is_real, numbers)) or not numbers:
        raise UsageError(f"rope_scaling.{name}", "must be a list of numbers", value=numbers)
    return tuple(float(n) for n in numbers)
