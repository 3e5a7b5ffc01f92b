"""Rules for recurrent layers, unrolled over their (fixed) sequence length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from edgewright.frontend.rewriter import Rewriter
from edgewright.frontend.rules import rule

aten = torch.ops.aten


@rule(aten.lstm.input)
def lstm(
    rw: Rewriter, x: fx.Node, state: Sequence[fx.Node], weights: Sequence[fx.Node], biases: bool, layers: int,
    dropout: float, train: bool, bidirectional: bool, batch_first: bool,
) -> Any:  # fmt: skip
    if train and dropout:
        return NotImplemented
    x = rw.call(aten.transpose.int, x, 0, 1) if batch_first else x
    if not isinstance(rw.size(x, 0), int):
        raise rw.unsupported(aten.lstm.input, "is unrolled over time, so the length of its sequence must be fixed")
    directions = 2 if bidirectional else 1
    each = len(weights) // (layers * directions)
    last: list[tuple[Any, Any]] = []
    for _ in range(layers):
        outputs = []
        for reverse in range(directions):
            at = len(last)
            start = tuple(rw.call(aten.select.int, s, 0, at) for s in state)
            own = weights[at * each : (at + 1) * each]
            output, end = _run(rw, x, start, _parameters(own, biases), bool(reverse))
            outputs.append(output)
            last.append(end)
        x = outputs[0] if directions == 1 else rw.call(aten.cat.default, outputs, -1)
    x = rw.call(aten.transpose.int, x, 0, 1) if batch_first else x
    return [x, *(_stacked(rw, [end[i] for end in last]) for i in range(2))]


def _parameters(own: Sequence[fx.Node], biases: bool) -> tuple[Any, ...]:
    """Weights and biases of inputs and state, and the projection."""
    given = list(own)
    inputs, hidden = given[:2]
    pair = given[2:4] if biases else [None, None]
    rest = given[4:] if biases else given[2:]
    return inputs, hidden, *pair, rest[0] if rest else None


def _run(rw: Rewriter, x: fx.Node, state: tuple[Any, ...], weights: tuple[Any, ...], reverse: bool) -> tuple[Any, Any]:
    """One layer in one direction: its outputs, and its state at the end."""
    w_input, w_hidden, b_input, b_hidden, projection = weights
    inputs = rw.call(aten.linear.default, x, w_input, b_input)  # of all steps at once
    hidden, cell = state
    steps = range(rw.size(x, 0))
    outputs = []
    for step in reversed(steps) if reverse else steps:
        gates = rw.call(aten.linear.default, hidden, w_hidden, b_hidden)
        gates = rw.call(aten.add.Tensor, gates, rw.call(aten.select.int, inputs, 0, step))
        hidden, cell = _step(rw, gates, cell)
        if projection is not None:
            hidden = rw.call(aten.linear.default, hidden, projection)
        outputs.append(hidden)
    return _stacked(rw, outputs[::-1] if reverse else outputs), (hidden, cell)


def _stacked(rw: Rewriter, tensors: list[Any]) -> Any:
    """One tensor of one more dimension; of a single step it is the same with another shape, which costs nothing."""
    if len(tensors) == 1:
        return rw.call(aten.unsqueeze.default, tensors[0], 0)
    return rw.call(aten.stack.default, tensors, 0)


def _step(rw: Rewriter, gates: fx.Node, cell: fx.Node) -> tuple[Any, Any]:
    size = gates.meta["val"].shape[-1] // 4
    take, keep, new, give = rw.call(aten.split.Tensor, gates, size, -1)
    take, keep, give = (rw.call(aten.sigmoid.default, gate) for gate in (take, keep, give))
    added = rw.call(aten.mul.Tensor, take, rw.call(aten.tanh.default, new))
    cell = rw.call(aten.add.Tensor, rw.call(aten.mul.Tensor, keep, cell), added)
    return rw.call(aten.mul.Tensor, give, rw.call(aten.tanh.default, cell)), cell


@rule(aten.gru_cell.default)
def gru_cell(
    rw: Rewriter, x: fx.Node, hidden: fx.Node, w_input: fx.Node, w_hidden: fx.Node, b_input: Any = None,
    b_hidden: Any = None,
) -> Any:  # fmt: skip
    given = rw.call(aten.linear.default, x, w_input, b_input)
    kept = rw.call(aten.linear.default, hidden, w_hidden, b_hidden)
    size = given.meta["val"].shape[-1] // 3
    gates, states = (rw.call(aten.split.Tensor, both, size, -1) for both in (given, kept))
    reset, update = (rw.call(aten.sigmoid.default, rw.call(aten.add.Tensor, gates[i], states[i])) for i in (0, 1))
    candidate = rw.call(aten.add.Tensor, gates[2], rw.call(aten.mul.Tensor, reset, states[2]))
    new = rw.call(aten.tanh.default, candidate)
    change = rw.call(aten.mul.Tensor, update, rw.call(aten.sub.Tensor, hidden, new))
    return rw.call(aten.add.Tensor, new, change)
