"""Validation of core graphs from untrusted files: structure, quantization, element types and arguments.

Shapes are checked where they are known: graphs with dynamic shapes get theirs with the inputs
(``engine/graph/validate.py``).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from edgewright.errors import ExecutionError, FormatError, LimitError
from edgewright.ir.core.quant_params import check_structure, check_values
from edgewright.ir.core.signatures import OPERANDS, SIGNATURES, check_types
from edgewright.ir.dialect_checks import check_ops
from edgewright.ir.graph import Graph, Op, Value

_MAX_INT = 1 << 32


def validate_graph(graph: Graph, memory: int) -> None:
    """Raise unless a core graph is well-formed and each value fits in ``memory`` bytes."""
    check_structure(graph)
    values = list(graph.values())
    for value in values:
        if value.dtype is None or value.kind != "tensor" or value.state:
            raise FormatError("must be a tensor", where=f"value {value.name!r}", value=value.kind)
        if value.nbytes > memory:
            raise LimitError(f"value {value.name!r}", f"may take {memory} bytes", value=value.nbytes)
    check_values(values)
    for value in (*graph.inputs, *graph.outputs):
        if value.q is not None and value.q.dynamic is not None:
            raise FormatError("must not be quantized at run time", where=f"value {value.name!r}", value=value.q.dynamic)
    unknown = sorted({op.name for op in graph.ops} - set(SIGNATURES))
    if unknown:
        raise ExecutionError("device graph", f"has operators without an implementation: {', '.join(unknown)}"[:200])
    check_ops(graph, _check_op, within="")


def _check_op(op: Op) -> None:
    operands = OPERANDS.get(op.name, ("self",))
    for name in operands:
        _check_tensors(name, op.args.get(name) if name == "bias" else op.args[name])
    if len(op.outputs) != 1 or op.outputs[0] is None:
        raise FormatError("must be one", where="results", value=len(op.outputs))
    expected = ARGUMENTS.get(op.name, {})
    for name, predicate in expected.items():
        if not predicate(op.args.get(name) if name in _OPTIONAL else op.args[name]):
            raise FormatError(_RULES[predicate], where=name, value=op.args.get(name))
    unknown = set(op.args) - set(operands) - set(expected) - {"limits"}
    if unknown:
        raise FormatError("is no argument of the operator", where=sorted(unknown)[0])
    if not _limits(op.args.get("limits")):
        raise FormatError("must be two numbers", where="limits", value=op.args["limits"])
    check_types(op)


def _check_tensors(name: str, argument: Any) -> None:
    tensors = argument if name == "tensors" and isinstance(argument, list) else [argument]
    if not tensors or any(not isinstance(v, Value) for v in tensors if name != "bias" or v is not None):
        raise FormatError("must be a tensor", where=name, value=type(argument).__name__)


# ------------------------------------------------------------------------------------------------------- arguments


def _integers(low: int, count: int | None = None) -> Callable[[Any], bool]:
    def predicate(argument: Any) -> bool:
        is_list = isinstance(argument, list | tuple) and (count is None or len(argument) == count)
        return is_list and all(type(n) is int and low <= n < _MAX_INT for n in argument)

    _RULES[predicate] = f"must be {'' if count is None else f'{count} '}integers from {low}"
    return predicate


def _integer(low: int) -> Callable[[Any], bool]:
    def predicate(argument: Any) -> bool:
        return type(argument) is int and low <= argument < _MAX_INT

    _RULES[predicate] = f"must be an integer from {low}"
    return predicate


def _rule(rule: str) -> Callable[[Callable[[Any], bool]], Callable[[Any], bool]]:
    def register(predicate: Callable[[Any], bool]) -> Callable[[Any], bool]:
        _RULES[predicate] = rule
        return predicate

    return register


_RULES: dict[Callable[[Any], bool], str] = {}
_OPTIONAL = ("output_padding", "transposed")


@_rule("must be two integers from 0, or absent")
def _extra(argument: Any) -> bool:
    return argument is None or _integers(0, 2)(argument)


@_rule("must be true or false")
def _flag(argument: Any) -> bool:
    return argument is None or type(argument) is bool


@_rule("must be a number")
def _real(argument: Any) -> bool:
    return type(argument) in (int, float) and not math.isnan(argument) and abs(argument) < math.inf


def _limits(argument: Any) -> bool:
    """Limits may be out of order; the upper one wins."""
    if argument is None:
        return True
    return (
        isinstance(argument, list | tuple)
        and len(argument) == 2
        and all(type(n) in (int, float) and not math.isnan(n) for n in argument)
    )


_WINDOW = {"padding": _integers(0, 4), "stride": _integers(1, 2), "dilation": _integers(1, 2)}
_CONV = {**_WINDOW, "groups": _integer(1), "output_padding": _extra}
_POOL = {"padding": _integers(0, 4), "stride": _integers(1, 2), "kernel_size": _integers(1, 2)}
ARGUMENTS: dict[str, dict[str, Callable[[Any], bool]]] = {
    **dict.fromkeys(("conv2d", "depthwise_conv2d", "conv_transpose2d"), _CONV),
    "linear": {"transposed": _flag},
    "max_pool2d": {**_POOL, "dilation": _integers(1, 2)},
    "avg_pool2d": _POOL,
    "permute": {"dims": _integers(0)},
    "view": {"size": _integers(-1)},
    "slice": {"start": _integers(0), "length": _integers(0)},
    "pad": {"before": _integers(0), "after": _integers(0), "value": _real},
    "cat": {"dim": _integer(0)},
    "upsample_bilinear2d": {"output_size": _integers(1, 2), "align_corners": _flag},
    "leaky_relu": {"negative_slope": _real},
    "elu": {"alpha": _real},
}
