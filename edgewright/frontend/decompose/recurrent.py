"""Rules for recurrent layers, unrolled over their (fixed) sequence length."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import fx

from edgewright.frontend.decompose.canonical import rule
from edgewright.frontend.rewriter import Rewriter

aten = torch.ops.aten


# One layer in one direction, from (x, state, parameters, reverse): its outputs, and its state at the end.
Run = Callable[[Rewriter, fx.Node, Sequence[Any], Sequence[Any], bool], tuple[Any, tuple[Any, ...]]]


@rule(aten.lstm.input)
def lstm(rw: Rewriter, x: fx.Node, state: Sequence[fx.Node], *rest: Any) -> Any:
    return _unrolled(rw, aten.lstm.input, _lstm, x, state, *rest)


@rule(aten.gru.input)
def gru(rw: Rewriter, x: fx.Node, state: fx.Node, *rest: Any) -> Any:
    return _unrolled(rw, aten.gru.input, _gru, x, [state], *rest)


@rule(aten.rnn_tanh.input)
def rnn_tanh(rw: Rewriter, x: fx.Node, state: fx.Node, *rest: Any) -> Any:
    return _unrolled(rw, aten.rnn_tanh.input, partial(_plain, aten.tanh.default), x, [state], *rest)


@rule(aten.rnn_relu.input)
def rnn_relu(rw: Rewriter, x: fx.Node, state: fx.Node, *rest: Any) -> Any:
    return _unrolled(rw, aten.rnn_relu.input, partial(_plain, aten.relu.default), x, [state], *rest)


def _unrolled(
    rw: Rewriter, target: Any, run: Run, x: fx.Node, state: Sequence[fx.Node], weights: Sequence[fx.Node], biases: bool,
    layers: int, dropout: float, train: bool, bidirectional: bool, batch_first: bool,
) -> Any:  # fmt: skip
    if train and dropout:
        return NotImplemented
    x = rw.call(aten.transpose.int, x, 0, 1) if batch_first else x
    if not isinstance(rw.size(x, 0), int):
        raise rw.unsupported(target, "is unrolled over time, so the length of its sequence must be fixed")
    directions = 2 if bidirectional else 1
    each = len(weights) // (layers * directions)
    last: list[tuple[Any, ...]] = []
    for _ in range(layers):
        outputs = []
        for reverse in range(directions):
            at = len(last)
            start = tuple(rw.call(aten.select.int, s, 0, at) for s in state)
            own = weights[at * each : (at + 1) * each]
            output, end = run(rw, x, start, _parameters(own, biases), bool(reverse))
            outputs.append(output)
            last.append(end)
        x = outputs[0] if directions == 1 else rw.call(aten.cat.default, outputs, -1)
    x = rw.call(aten.transpose.int, x, 0, 1) if batch_first else x
    return [x, *(_stacked(rw, [end[i] for end in last]) for i in range(len(state)))]


def _parameters(own: Sequence[fx.Node], biases: bool) -> tuple[Any, ...]:
    """Weights and biases of inputs and state, and the projection."""
    given = list(own)
    inputs, hidden = given[:2]
    pair = given[2:4] if biases else [None, None]
    rest = given[4:] if biases else given[2:]
    return inputs, hidden, *pair, rest[0] if rest else None


def _lstm(rw: Rewriter, x: fx.Node, state: Sequence[Any], weights: Sequence[Any], reverse: bool) -> tuple[Any, Any]:
    w_input, w_hidden, b_input, b_hidden, projection = weights
    inputs = rw.call(aten.linear.default, x, w_input, b_input)  # of all steps at once
    hidden, cell = state
    outputs = []
    for given in _steps(rw, inputs, reverse):
        gates = rw.call(aten.linear.default, hidden, w_hidden, b_hidden)
        hidden, cell = _step(rw, rw.call(aten.add.Tensor, gates, given()), cell)
        if projection is not None:
            hidden = rw.call(aten.linear.default, hidden, projection)
        outputs.append(hidden)
    return _stacked(rw, outputs[::-1] if reverse else outputs), (hidden, cell)


def _gru(rw: Rewriter, x: fx.Node, state: Sequence[Any], weights: Sequence[Any], reverse: bool) -> tuple[Any, Any]:
    w_input, w_hidden, b_input, b_hidden, _ = weights
    inputs = rw.call(aten.linear.default, x, w_input, b_input)
    (hidden,) = state
    outputs = []
    for given in _steps(rw, inputs, reverse):
        hidden = _gated(rw, given(), rw.call(aten.linear.default, hidden, w_hidden, b_hidden), hidden)
        outputs.append(hidden)
    return _stacked(rw, outputs[::-1] if reverse else outputs), (hidden,)


def _plain(
    activation: Any, rw: Rewriter, x: fx.Node, state: Sequence[Any], weights: Sequence[Any], reverse: bool
) -> tuple[Any, Any]:
    w_input, w_hidden, b_input, b_hidden, _ = weights
    inputs = rw.call(aten.linear.default, x, w_input, b_input)
    (hidden,) = state
    outputs = []
    for given in _steps(rw, inputs, reverse):
        kept = rw.call(aten.linear.default, hidden, w_hidden, b_hidden)
        hidden = rw.call(activation, rw.call(aten.add.Tensor, kept, given()))
        outputs.append(hidden)
    return _stacked(rw, outputs[::-1] if reverse else outputs), (hidden,)


def _steps(rw: Rewriter, inputs: fx.Node, reverse: bool) -> Iterator[Callable[[], Any]]:
    """What gives the part of each step, taken where it is used: memory is planned by where tensors begin and end."""
    steps = range(rw.size(inputs, 0))
    for step in reversed(steps) if reverse else steps:
        yield partial(rw.call, aten.select.int, inputs, 0, step)


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
    return _gated(rw, given, kept, hidden)


def _gated(rw: Rewriter, given: Any, kept: Any, hidden: Any) -> Any:
    """A step of a GRU, from what the input and the state give to its gates."""
    size = given.meta["val"].shape[-1] // 3
    gates, states = (rw.call(aten.split.Tensor, both, size, -1) for both in (given, kept))
    reset, update = (rw.call(aten.sigmoid.default, rw.call(aten.add.Tensor, gates[i], states[i])) for i in (0, 1))
    candidate = rw.call(aten.add.Tensor, gates[2], rw.call(aten.mul.Tensor, reset, states[2]))
    new = rw.call(aten.tanh.default, candidate)
    change = rw.call(aten.mul.Tensor, update, rw.call(aten.sub.Tensor, hidden, new))
    return rw.call(aten.add.Tensor, new, change)
