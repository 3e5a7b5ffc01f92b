"""The methods that improve rounding beyond a preset, by the names that follow it: ``int8+equalize+bias``.

Needs no torch. Each method is a module of this package; here is only what they are called and in which order they are
applied, which does not depend on the order that they are written in.
"""

from __future__ import annotations

from collections.abc import Collection

from edgewright.errors import UsageError
from edgewright.hints import did_you_mean

EQUALIZE, SMOOTH = "equalize", "smooth"
PERCENTILE, MSE, MSE_WEIGHTS = "percentile", "mse", "mse-weights"
HEADROOM = "headroom"
ADAROUND, BIAS = "adaround", "bias"

METHODS: dict[str, str] = {  # in the order of application
    EQUALIZE: "rescales channels between consecutive layers",
    SMOOTH: "moves large channels of activations behind norms into the weights of linear layers",
    PERCENTILE: "activations' ranges leave out the outermost elements",
    MSE: "activations' ranges have the least squared rounding error",
    MSE_WEIGHTS: "weights' ranges have the least squared rounding error",
    HEADROOM: "16-bit activations' ranges are twice those of the calibration data",
    ADAROUND: "learns for each weight whether to round it up or down",
    BIAS: "corrects the mean error of each channel in the bias",
}
BEST = "-best"  # ending of a preset: tries methods, and keeps those that help
_SEPARATOR = "+"
_EXCLUSIVE = (PERCENTILE, MSE)


def split_precision(precision: str) -> tuple[str, tuple[str, ...]]:
    """The preset and the methods of a precision, in the order of application.

    >>> split_precision("int8+bias+equalize"), split_precision("int8-best")
    (('int8', ('equalize', 'bias')), ('int8-best', ()))
    """
    preset, *names = precision.split(_SEPARATOR)
    for name in names:
        if name not in METHODS:
            remedy = did_you_mean(name, METHODS)
            raise UsageError(f"quantize: method {name!r}", f"must be one of {', '.join(METHODS)}", remedy=remedy)
    if all(name in names for name in _EXCLUSIVE):
        rule = f"must have one of the methods {' and '.join(_EXCLUSIVE)}: both choose activations' ranges"
        raise UsageError("quantize", rule, value=precision)
    if names and preset.endswith(BEST):
        rule = "chooses the methods itself"
        raise UsageError(f"quantize: {preset}", rule, value=precision, remedy=f"Write {preset}, or name the methods.")
    return preset, in_order(names)


def in_order(names: Collection[str]) -> tuple[str, ...]:
    """Methods in the order of application.

    >>> in_order(["bias", "equalize"])
    ('equalize', 'bias')
    """
    return tuple(name for name in METHODS if name in names)


def join_precision(preset: str, methods: tuple[str, ...]) -> str:
    """
    >>> join_precision("int8", ("equalize", "bias"))
    'int8+equalize+bias'
    """
    return _SEPARATOR.join((preset, *methods))
