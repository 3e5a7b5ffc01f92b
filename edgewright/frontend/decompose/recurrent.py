"""Decompositions of recurrent layers, unrolled over a static sequence length."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import fx

from edgewright.frontend.decompose.canonical import rule
from edgewright.frontend.rewriter import Rewriter

aten = torch.ops.aten


# One layer in one direction: (rewriter, x, state, parameters, reverse) to its outputs and its final state.
RunLayer = Callable[[Rewriter, fx.Node, Sequence[Any], Sequence[Any], bool], tuple[Any, tuple[Any, ...]]]


@rule(aten.lstm.input)
def lstm(rw: Rewriter, x: fx.Node, state: Sequence[fx.Node], *rest: Any) -> Any:
    return _unroll(rw, aten.lstm.input, _lstm, x, state, *rest)


@rule(aten.gru.input)
def gru(rw: Rewriter, x: fx.Node, state: fx.Node, *rest: Any) -> Any:
    return _unroll(rw, aten.gru.input, _gru, x, [state], *rest)


@rule(aten.rnn_tanh.input)
def rnn_tanh(rw: Rewriter, x: fx.Node, state: fx.Node, *rest: Any) -> Any:
    return _unroll(rw, aten.rnn_tanh.input, partial(_elman, aten.tanh.default), x, [state], *rest)


@rule(aten.rnn_relu.input)
def rnn_relu(rw: Rewriter, x: fx.Node, state: fx.Node, *rest: Any) -> Any:
    return _unroll(rw, aten.rnn_relu.input, partial(_elman, aten.relu.default), x, [state], *rest)


def _unroll(
    rw: Rewriter, target: Any, run: RunLayer, x: fx.Node, state: Sequence[fx.Node], weights: Sequence[fx.Node],
    biases: bool, layers: int, dropout: float, train: bool, bidirectional: bool, batch_first: bool,
) -> Any:  # fmt: skip
    if train and dropout:
        return NotImplemented
    x = rw.call(aten.transpose.int, x, 0, 1) if batch_first else x
    if not isinstance(rw.size(x, 0), int):
        raise rw.unsupported(target, "is unrolled over time, so the length of its sequence must be fixed")
    directions = 2 if bidirectional else 1
    per_layer = len(weights) // (layers * directions)
    final_states: list[tuple[Any, ...]] = []
    for _ in range(layers):
        outputs = []
        for reverse in range(directions):
            layer = len(final_states)
            start = tuple(rw.call(aten.select.int, s, 0, layer) for s in state)
            parameters = weights[layer * per_layer : (layer + 1) * per_layer]
            output, end = run(rw, x, start, _parameters(parameters, biases), bool(reverse))
            outputs.append(output)
            final_states.append(end)
        x = outputs[0] if directions == 1 else rw.call(aten.cat.default, outputs, -1)
    x = rw.call(aten.transpose.int, x, 0, 1) if batch_first else x
    return [x, *(_stack(rw, [end[i] for end in final_states]) for i in range(len(state)))]


def _parameters(weights: Sequence[fx.Node], biases: bool) -> tuple[Any, ...]:
    """The weights and biases of input and state, and the projection."""
    tensors = list(weights)
    inputs, hidden = tensors[:2]
    pair = tensors[2:4] if biases else [None, None]
    rest = tensors[4:] if biases else tensors[2:]
    return inputs, hidden, *pair, rest[0] if rest else None


def _lstm(rw: Rewriter, x: fx.Node, state: Sequence[Any], weights: Sequence[Any], reverse: bool) -> tuple[Any, Any]:
    w_input, w_hidden, b_input, b_hidden, projection = weights
    inputs = rw.call(aten.linear.default, x, w_input, b_input)  # one product for all time steps
    hidden, cell = state
    outputs = []
    for select_input in _time_steps(rw, inputs, reverse):
        gates = rw.call(aten.linear.default, hidden, w_hidden, b_hidden)
        hidden, cell = _lstm_step(rw, rw.call(aten.add.Tensor, gates, select_input()), cell)
        if projection is not None:
            hidden = rw.call(aten.linear.default, hidden, projection)
        outputs.append(hidden)
    return _stack(rw, outputs[::-1] if reverse else outputs), (hidden, cell)


def _gru(rw: Rewriter, x: fx.Node, state: Sequence[Any], weights: Sequence[Any], reverse: bool) -> tuple[Any, Any]:
    w_input, w_hidden, b_input, b_hidden, _ = weights
    inputs = rw.call(aten.linear.default, x, w_input, b_input)
    (hidden,) = state
    outputs = []
    for select_input in _time_steps(rw, inputs, reverse):
        hidden = _gru_step(rw, select_input(), rw.call(aten.linear.default, hidden, w_hidden, b_hidden), hidden)
        outputs.append(hidden)
    return _stack(rw, outputs[::-1] if reverse else outputs), (hidden,)


def _elman(
    activation: Any, rw: Rewriter, x: fx.Node, state: Sequence[Any], weights: Sequence[Any], reverse: bool
) -> tuple[Any, Any]:
    w_input, w_hidden, b_input, b_hidden, _ = weights
    inputs = rw.call(aten.linear.default, x, w_input, b_input)
    (hidden,) = state
    outputs = []
    for select_input in _time_steps(rw, inputs, reverse):
        hidden_part = rw.call(aten.linear.default, hidden, w_hidden, b_hidden)
        hidden = rw.call(activation, rw.call(aten.add.Tensor, hidden_part, select_input()))
        outputs.append(hidden)
    return _stack(rw, outputs[::-1] if reverse else outputs), (hidden,)


def _time_steps(rw: Rewriter, inputs: fx.Node, reverse: bool) -> Iterator[Callable[[], Any]]:
    """Thunks that select the input of each time step, called at the point of use to keep its lifetime short."""
    steps = range(rw.size(inputs, 0))
    for step in reversed(steps) if reverse else steps:
        yield partial(rw.call, aten.select.int, inputs, 0, step)


def _stack(rw: Rewriter, tensors: list[Any]) -> Any:
    """Stack along a new first dimension; for a single tensor this is a view, which costs nothing."""
    if len(tensors) == 1:
        return rw.call(aten.unsqueeze.default, tensors[0], 0)
    return rw.call(aten.stack.default, tensors, 0)


def _lstm_step(rw: Rewriter, gates: fx.Node, cell: fx.Node) -> tuple[Any, Any]:
    size = gates.meta["val"].shape[-1] // 4
    input_gate, forget_gate, new, output_gate = rw.call(aten.split.Tensor, gates, size, -1)
    input_gate, forget_gate, output_gate = (
        rw.call(aten.sigmoid.default, gate) for gate in (input_gate, forget_gate, output_gate)
    )
    added = rw.call(aten.mul.Tensor, input_gate, rw.call(aten.tanh.default, new))
    cell = rw.call(aten.add.Tensor, rw.call(aten.mul.Tensor, forget_gate, cell), added)
    return rw.call(aten.mul.Tensor, output_gate, rw.call(aten.tanh.default, cell)), cell


@rule(aten.gru_cell.default)
def gru_cell(
    rw: Rewriter, x: fx.Node, hidden: fx.Node, w_input: fx.Node, w_hidden: fx.Node, b_input: Any = None,
    b_hidden: Any = None,
) -> Any:  # fmt: skip
    input_part = rw.call(aten.linear.default, x, w_input, b_input)
    hidden_part = rw.call(aten.linear.default, hidden, w_hidden, b_hidden)
    return _gru_step(rw, input_part, hidden_part, hidden)


def _gru_step(rw: Rewriter, input_part: Any, hidden_part: Any, hidden: Any) -> Any:
    """One time step of a GRU, from the projections of input and state."""
    size = input_part.meta["val"].shape[-1] // 3
    gates, states = (rw.call(aten.split.Tensor, part, size, -1) for part in (input_part, hidden_part))
    reset, update = (rw.call(aten.sigmoid.default, rw.call(aten.add.Tensor, gates[i], states[i])) for i in (0, 1))
    candidate = rw.call(aten.add.Tensor, gates[2], rw.call(aten.mul.Tensor, reset, states[2]))
    new = rw.call(aten.tanh.default, candidate)
    change = rw.call(aten.mul.Tensor, update, rw.call(aten.sub.Tensor, hidden, new))
    return rw.call(aten.add.Tensor, new, change)
