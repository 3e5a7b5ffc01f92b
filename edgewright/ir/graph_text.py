"""A device graph as text: one line per input, operator and output. Needs no torch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from edgewright.ir.graph import Graph, Op, QParams, Value

_MAX_ITEMS = 8  # list items to print


def graph_lines(graph: Graph, *, full: bool = False) -> list[str]:
    """The lines of a graph; ``full``: with constants and all parameters of operators.

    >>> x = Value("x", np.dtype("f4"), (1, 3))
    >>> y = Value("y", np.dtype("f4"), (1, 3))
    >>> print(*graph_lines(Graph("g", [x], [y], [Op("relu", {"self": x}, [y])])), sep="\\n")
    in   %x float32[1, 3]
         %y = relu(%x) -> float32[1, 3]
    out  %y
    """
    constants = list(_constants(graph))
    lines = [f"in   {_declaration(v)}" for v in graph.inputs]
    if full:
        lines += [f"data {_declaration(v)}" for v in constants]
    lines += [f"     {line}" for op in graph.ops for line in _op_lines(op, full)]
    lines += [f"out  {', '.join(_operand_text(v) for v in graph.outputs)}"]
    if constants and not full:
        size = sum(v.data.nbytes for v in constants if v.data is not None)
        lines.append(f"data {len(constants)} constant{'s' if len(constants) > 1 else ''}, {size:,} bytes")
    return lines


def _op_lines(op: Op, full: bool) -> Iterator[str]:
    operands = [_argument(name, value, full) for name, value in op.args.items()]
    outputs = [v for v in op.outputs if v is not None]
    results = ", ".join(f"%{v.name}" for v in outputs)
    shapes = ", ".join(type_text(v) for v in outputs)
    yield f"{results} = {op.name}({', '.join(filter(None, operands))}) -> {shapes}"
    for name, inner in op.graphs.items():
        yield f"  {name}:"
        yield from (f"    {line}" for line in graph_lines(inner, full=full))


def _argument(name: str, value: Any, full: bool) -> str:
    """An operand by the name of its value, an attribute as ``name=value``; default attributes are omitted."""
    if isinstance(value, Value):
        return _operand_text(value)
    if isinstance(value, list | tuple) and any(isinstance(v, Value) for v in value):
        return ", ".join(_operand_text(v) for v in value if v is not None)
    if value is None or (not full and (value is False or value == "")):
        return ""
    return f"{name}={_literal(value)}"


def _operand_text(value: Any) -> str:
    if not isinstance(value, Value):
        return _literal(value)
    return f"%{value.name}" if not value.constant else f"%{value.name}[{', '.join(map(str, value.shape))}]"


def _declaration(value: Any) -> str:
    return f"%{value.name} {type_text(value)}" if isinstance(value, Value) else _literal(value)


def _literal(value: Any) -> str:
    if isinstance(value, np.ndarray):
        value = value.reshape(-1)[: _MAX_ITEMS + 1].tolist()
    if isinstance(value, list | tuple):
        more = ", ..." if len(value) > _MAX_ITEMS else ""
        return f"[{', '.join(_literal(v) for v in value[:_MAX_ITEMS])}{more}]"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def type_text(value: Value) -> str:
    kind = value.kind if value.dtype is None else str(value.dtype)
    text = f"{kind}[{', '.join(map(str, value.shape))}]"
    if value.dim_order and list(value.dim_order) != sorted(value.dim_order):
        text += f" order {list(value.dim_order)}"
    return f"{text} {qparams_text(value.q)}" if value.q is not None else text


def qparams_text(q: QParams) -> str:
    if q.dynamic:
        return f"quantized {q.dynamic} when it runs"
    if isinstance(q.scale, tuple):
        suffix = f"along {q.axis}" if q.block is None else f"per {q.block} along {q.axis}"
        return f"{len(q.scale)} scales {suffix}"
    return f"scale {q.scale:.6g} zero {q.zero_point}"


def _constants(graph: Graph) -> Iterator[Value]:
    yield from dict.fromkeys(v for op in graph.ops for v in op.inputs() if v.constant)
