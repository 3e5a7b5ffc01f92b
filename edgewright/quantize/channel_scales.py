"""Scales of channels, which a producer divides by and all readers multiply with: the result is the same, and 8 bits for
a tensor serve channels of different size better. Equalization and smoothing differ in their producers only.

For each tensor, scales are powers of the channels' ranges in the calibration data over powers of the readers' weights
(Xiao et al., "SmoothQuant", 2023; for weights of the producer in place of activations: Nagel et al., "Data-Free
Quantization Through Weight Equalization and Bias Correction", 2019). The exponent is chosen for each tensor: the one
with the least error of the readers' results on inputs that the ranges were not taken from. None is a choice.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import fx
from torchao.quantization.pt2e import PlaceholderObserver

from edgewright.quantize.call_state import restored_state, state_names
from edgewright.quantize.layers import (
    Layer,
    find_layers,
    is_observer,
    operator_name,
    replace_tensor,
    skip_observer,
    tensor_of,
)
from edgewright.quantize.simulate import ExactRun, axis_of, parameters_for, round_to

aten = torch.ops.aten

LAYER, NORM, GATE = "layer", "norm", "gate"  # what divides: a layer, a norm's constants, a layer behind a product
_EXPONENTS = (0.25, 0.5, 0.75, 1.0)
_MOST = 16.0  # the largest ratio of two scales: what calibration hardly saw keeps some room
_HEADROOM = 1.25  # multiple of the calibrated maximum that a clamp must leave alone
_GAIN = 0.9  # of the error without scales: what scales must achieve
_JUDGING = 8  # calls that judge, and do not count for ranges

# Pooling, activations with f(s x) = s f(x) for s > 0, and what does not compute.
_HOMOGENEOUS = re.compile("relu|leaky_relu|dropout|clone|contiguous|(max|avg|adaptive_avg)_pool[123]d")
_CLAMPS = {"relu6", "hardtanh", "clamp", "clamp_max"}
_NORMS = {"layer_norm", "native_layer_norm", "rms_norm", "_fused_rms_norm"}
_RESHAPES = {"view", "reshape", "flatten"}


@dataclass(frozen=True)
class Part:
    """A constant of the producer, and the axis of its channels (of None: one number per channel)."""

    constant: fx.Node
    axis: int


@dataclass(frozen=True)
class Clamp:
    """A clamp whose result must not reach its limit, except in channels that are not scaled."""

    node: fx.Node
    axis: int
    limit: float


@dataclass(frozen=True)
class Producer:
    """What divides by the scales. ``clamps`` are in between. ``repeat``: elements of
    the readers' channels for each of the producer's. ``layer``: if its weights have one scale together."""

    kind: str
    parts: tuple[Part, ...]
    clamps: tuple[Clamp, ...] = ()
    repeat: int = 1
    layer: Layer | None = None


@dataclass(frozen=True)
class Junction:
    """A tensor whose channels can be scaled: its producer and all readers."""

    tensor: fx.Node
    producer: Producer
    readers: tuple[Layer, ...]

    @property
    def axis(self) -> int:
        return self.readers[0].axis(len(self.tensor.meta["val"].shape))


@dataclass
class _Seen:
    """What calibration showed of a junction: the range of each channel, and errors by exponent (0: no scales)."""

    low: torch.Tensor | None = None
    high: torch.Tensor | None = None
    room: torch.Tensor | None = None  # the largest share of a clamp's limit, in all calibration data
    errors: dict[float, float] = field(default_factory=dict)

    @property
    def largest(self) -> torch.Tensor:
        assert self.low is not None and self.high is not None
        return torch.maximum(-self.low, self.high)

    def bounds(self, scales: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The range of the tensor after its channels were divided."""
        assert self.low is not None and self.high is not None
        return (self.low / scales).min().reshape(1), (self.high / scales).max().reshape(1)


def scale_channels(
    prepared: fx.GraphModule, kinds: Iterable[str], calls: Sequence[Any], run: Callable[..., Any]
) -> int:
    """Scale the channels of all tensors whose producers are of these kinds, where it helps. ``run(interpreter, call)``
    interprets a call. Returns how many tensors were scaled."""
    junctions = [j for j in find_junctions(prepared) if j.producer.kind in kinds]
    if not junctions:
        return 0
    seen = {junction.tensor: _Seen() for junction in junctions}
    count = max(1, min(len(calls) // 4, _JUDGING))
    judging = [calls[(i + 1) * len(calls) // count - 1] for i in range(count)]
    by_tensor = {junction.tensor: junction for junction in junctions}
    by_node: dict[fx.Node, list[Junction]] = {}
    for junction in junctions:
        for node in dict.fromkeys((junction.tensor, *(clamp.node for clamp in junction.producer.clamps))):
            by_node.setdefault(node, []).append(junction)
    judges = {id(call) for call in judging} if len(calls) > 1 else set()
    for part, counts in (([c for c in calls if id(c) not in judges], True), (judging, False)):
        _observe(prepared, calls, part, run, partial(_record_node, by_node, seen, counts), by_node)
    scales = {j.tensor: {e: _scales(j, seen[j.tensor], e) for e in _EXPONENTS} for j in junctions}
    _observe(prepared, calls, judging, run, lambda n, x: _judge(by_tensor[n], seen[n], scales[n], x), by_tensor)
    changed = 0
    for junction in junctions:
        errors = seen[junction.tensor].errors
        best = min(errors, key=lambda exponent: (errors[exponent], exponent)) if errors else 0.0
        if best and errors[best] < _GAIN * errors[0.0]:
            _apply(junction, scales[junction.tensor][best])
            changed += 1
    return changed


def _observe(
    prepared: fx.GraphModule, every: Sequence[Any], calls: Sequence[Any], run: Callable[..., Any],
    visit: Callable[[fx.Node, Any], None], nodes: Any,
) -> None:  # fmt: skip
    """Visit the results of some nodes in some of the calls. Of a model with state every call runs, in their order,
    because one depends on those before it."""

    class Observing(ExactRun):
        def run_node(self, n: fx.Node) -> Any:
            result = super().run_node(n)
            if n in nodes:
                visit(n, result)
            return result

    visited = {id(call) for call in calls}
    with restored_state(prepared):
        for call in every if state_names(prepared) else calls:
            run(Observing(prepared) if id(call) in visited else ExactRun(prepared), call)


# ----------------------------------------------------------------------------------------------------------- junctions


def find_junctions(prepared: fx.GraphModule) -> list[Junction]:
    """The tensors that only layers read, and whose producer can divide by scales of their channels."""
    layers = {layer.node: layer for layer in find_layers(prepared)}
    by_source: dict[fx.Node, list[Layer]] = {}
    for layer in layers.values():
        by_source.setdefault(skip_observer(prepared, layer.source), []).append(layer)
    finder = _ProducerFinder(prepared, layers)
    result = []
    for tensor, readers in by_source.items():
        value = tensor.meta.get("val")
        if tensor.op != "call_function" or not isinstance(value, torch.Tensor) or value.dtype != torch.float32:
            continue
        if any(reader.is_transposed and reader.groups != 1 for reader in readers):
            continue
        axes = {reader.axis(value.dim()) for reader in readers}
        if _readers(prepared, tensor) != {r.node for r in readers} or len(axes) != 1:
            continue
        producer = finder.find(tensor, axes.pop())
        if producer is not None:
            result.append(Junction(tensor, producer, tuple(readers)))
    return result


def _readers(prepared: fx.GraphModule, node: fx.Node) -> set[fx.Node]:
    """The nodes that read a result, behind observers."""
    readers: set[fx.Node] = set()
    for user in node.users:
        readers |= _readers(prepared, user) if is_observer(prepared, user) else {user}
    return readers


class _ProducerFinder:
    """Follows a tensor back to what can divide it by scales, through operators that scales pass unchanged."""

    def __init__(self, prepared: fx.GraphModule, layers: dict[fx.Node, Layer]) -> None:
        self._prepared, self._layers = prepared, layers

    def find(self, node: fx.Node, axis: int) -> Producer | None:
        """The producer of a tensor with channels along ``axis``."""
        layer = self._layers.get(node)
        if layer is not None:
            return self._of_layer(layer, axis)
        name, value = operator_name(node), node.meta.get("val")
        if node.op != "call_function" or not isinstance(value, torch.Tensor) or not node.args:
            return None
        call = _norm_of(node)
        if call is not None:
            return self._of_norm(call, axis, value.dim())
        if name in ("mul", "add"):
            return self._of_arithmetic(node, axis, name)
        if _HOMOGENEOUS.fullmatch(name):
            return self._before(node.args[0], axis)
        if name in _CLAMPS:
            return self._of_clamp(node, axis, name)
        if name in _RESHAPES:
            return self._of_reshape(node, axis)
        if name == "mean" and len(node.args) > 1:
            return self._of_mean(node, axis)
        return None

    def _before(self, operand: Any, axis: int) -> Producer | None:
        """The producer of an operand that nothing else reads."""
        node = skip_observer(self._prepared, operand)
        if not isinstance(node, fx.Node) or len(_readers(self._prepared, node)) != 1:
            return None
        return self.find(node, axis)

    def _constant(self, operand: Any) -> fx.Node | None:
        """A constant that only one node reads."""
        node = skip_observer(self._prepared, operand)
        if not isinstance(node, fx.Node) or node.op != "get_attr":
            return None
        same = [n for n in self._prepared.graph.nodes if n.op == "get_attr" and n.target == node.target]
        readers = [reader for n in same for reader in _readers(self._prepared, n)]
        return node if len(readers) == 1 and tensor_of(self._prepared, node).dtype == torch.float32 else None

    def _of_layer(self, layer: Layer, axis: int) -> Producer | None:
        value = layer.node.meta["val"]
        if axis != layer.axis(value.dim()) or (layer.is_transposed and layer.groups != 1):
            return None
        bias = [Part(layer.bias, 0)] if layer.bias is not None else []
        per_channel = layer.observer is None or axis_of(layer.observer) is not None
        weight = Part(layer.weight, 1 if layer.is_transposed else 0)
        return Producer(LAYER, (weight, *bias), layer=None if per_channel else layer)

    def _of_norm(self, node: fx.Node, axis: int, rank: int) -> Producer | None:
        operands = [a for a in node.args[2:4] if isinstance(a, fx.Node)]
        constants = [self._constant(operand) for operand in operands]
        if axis != rank - 1 or len(node.args[1]) != 1 or not constants or None in constants:  # type: ignore[arg-type]
            return None
        if not isinstance(node.args[2], fx.Node):
            return None
        return Producer(NORM, tuple(Part(c, 0) for c in constants if c is not None))

    def _of_arithmetic(self, node: fx.Node, axis: int, name: str) -> Producer | None:
        """A product divides one factor, a sum both terms; of constants, those with one element per channel."""
        value, operands = node.meta["val"], node.args[:2]
        if len(operands) != 2 or node.kwargs or not all(isinstance(o, fx.Node) for o in operands):
            return None
        constants = [self._constant(operand) for operand in operands]
        parts = [self._vector(c, axis, value.dim(), int(value.shape[axis])) for c in constants]
        if name == "mul" and any(part is not None for part in parts):
            return Producer(NORM, tuple(p for p in parts if p is not None)[:1])
        shapes = [tuple(skip_observer(self._prepared, o).meta["val"].shape) for o in operands]
        if name == "mul" and shapes[0] == shapes[1]:
            producers = [self._before(operand, axis) for operand in operands]
            chosen = next((p for p in producers if p is not None and not p.clamps), None)
            return None if chosen is None else replace(chosen, kind=GATE)
        if name == "add" and sum(part is not None for part in parts) == 1:
            index = next(i for i, part in enumerate(parts) if part is not None)
            part, producer = parts[index], self._before(operands[1 - index], axis)
            if part is not None and producer is not None and not producer.clamps and producer.repeat == 1:
                return replace(producer, parts=(*producer.parts, part))
        return None

    def _vector(self, constant: fx.Node | None, axis: int, rank: int, count: int) -> Part | None:
        if constant is None:
            return None
        shape = tensor_of(self._prepared, constant).shape
        own = axis - (rank - len(shape))
        fits = 0 <= own < len(shape) and shape[own] == count and shape.numel() == count
        return Part(constant, own) if fits else None

    def _of_clamp(self, node: fx.Node, axis: int, name: str) -> Producer | None:
        """A clamp from 0, or without a lower limit, is homogeneous below its upper limit."""
        low, high = _limits(node, name)
        producer = self._before(node.args[0], axis) if low in (0, None) else None
        if producer is None or high is None:
            return producer
        if not isinstance(high, int | float) or high <= 0:
            return None
        return replace(producer, clamps=(*producer.clamps, Clamp(node, axis, float(high))))

    def _of_reshape(self, node: fx.Node, axis: int) -> Producer | None:
        """Channels that become blocks of features: (N, C, H, W) to (N, C H W)."""
        source = skip_observer(self._prepared, node.args[0])
        before, after = source.meta["val"].shape, node.meta["val"].shape
        if len(after) != 2 or axis != 1 or len(before) < 2 or before[0] != after[0]:
            return None
        if not all(isinstance(size, int) for size in (*before[1:], after[1])) or after[1] % before[1]:
            return None
        producer = self._before(node.args[0], 1)
        return None if producer is None else replace(producer, repeat=producer.repeat * (after[1] // before[1]))

    def _of_mean(self, node: fx.Node, axis: int) -> Producer | None:
        rank = skip_observer(self._prepared, node.args[0]).meta["val"].dim()
        axes: Any = node.args[1]
        if not axes or any(a % rank <= axis for a in axes):
            return None
        return self._before(node.args[0], axis)


def _limits(node: fx.Node, name: str) -> tuple[Any, Any]:
    """The limits of a clamp. A lower limit of NaN is none that scales pass."""
    if name == "relu6":
        return 0.0, 6.0
    if node.kwargs:
        return math.nan, None
    if name == "clamp_max":
        return None, node.args[1]
    defaults: tuple[Any, Any] = (-1.0, 1.0) if name == "hardtanh" else (None, None)
    limits: list[Any] = [*node.args[1:3], *defaults[len(node.args) - 1 :]]
    return limits[0], limits[1]


def _norm_of(node: fx.Node) -> fx.Node | None:
    """The norm whose result a node is, also where a norm returns its statistics, which nothing reads."""
    if node.target is operator.getitem:
        call = node.args[0]
        if isinstance(call, fx.Node) and len(call.users) == 1 and node.args[1] == 0 and operator_name(call) in _NORMS:
            return call
    return node if operator_name(node) in _NORMS else None


# -------------------------------------------------------------------------------------------------------------- scales


def _by_channel(x: torch.Tensor, junction: Junction) -> torch.Tensor:
    """(channels of the producer, everything else)."""
    rows = x.detach().movedim(junction.axis, 0)
    return rows.reshape(rows.shape[0] // junction.producer.repeat, -1)


def _record_node(junctions: Any, seen: Any, counts: bool, node: fx.Node, x: torch.Tensor) -> None:
    """Record the ranges of a result. Of inputs that judge, only the room below clamps counts."""
    for junction in junctions[node]:
        record = seen[junction.tensor]
        for clamp in junction.producer.clamps:
            if clamp.node is node:
                share = x.detach().movedim(clamp.axis, 0).flatten(1).amax(1) / clamp.limit
                record.room = share if record.room is None else torch.maximum(record.room, share)
        if node is junction.tensor and counts:
            rows = _by_channel(x, junction)
            low, high = rows.amin(1).clamp(max=0), rows.amax(1).clamp(min=0)
            record.low = low if record.low is None else torch.minimum(record.low, low)
            record.high = high if record.high is None else torch.maximum(record.high, high)


def _scales(junction: Junction, seen: _Seen, exponent: float) -> torch.Tensor:
    """The scales of the producer's channels, the largest of which is 1."""
    largest = seen.largest
    used = largest > 1e-6 * float(largest.max())
    weights = torch.stack([_reader_range(r, junction.producer.repeat) for r in junction.readers]).amax(0)
    weights = weights.clamp(min=1e-4 * float(weights.max()) or 1.0)
    scales = largest.clamp(min=1e-30).pow(exponent) / weights.pow(1 - exponent)
    scales = torch.where(used, scales, scales[used].max() if bool(used.any()) else 1.0)
    scales = (scales / scales.max()).clamp(min=1 / _MOST)
    if seen.room is not None:  # channels that reach the limit of a clamp keep it, others must stay below
        scales = scales.maximum(_HEADROOM * seen.room).clamp(max=1.0)
    return scales


def _reader_range(layer: Layer, repeat: int) -> torch.Tensor:
    """The largest share of an output channel's largest weight that each input channel has. Scales of output channels
    follow their largest weight, so that shares matter, not sizes."""
    weight = tensor_of(layer.module, layer.weight).detach().abs()
    largest_taps = weight.flatten(2).amax(2) if weight.dim() > 2 else weight
    if layer.is_transposed:  # (inputs, outputs)
        largest_taps = largest_taps.t()
    per_channel = axis_of(layer.observer) is not None
    largest = largest_taps.amax(1, keepdim=True) if per_channel else largest_taps.amax().reshape(1, 1)
    shares = (largest_taps / largest.clamp(min=1e-30)).reshape(layer.groups, -1, largest_taps.shape[1])
    return shares.amax(1).reshape(-1, repeat).amax(1)


def _scaled_weight(layer: Layer, scales: torch.Tensor) -> torch.Tensor:
    """A reader's weight, multiplied along its input channels."""
    weight = tensor_of(layer.module, layer.weight).detach()
    if layer.is_transposed:
        return weight * scales.reshape(-1, *(1,) * (weight.dim() - 1))
    groups = scales.reshape(layer.groups, 1, -1).expand(-1, weight.shape[0] // layer.groups, -1)
    return weight * groups.reshape(weight.shape[0], -1, *(1,) * (weight.dim() - 2))


def _apply(junction: Junction, scales: torch.Tensor) -> None:
    module = junction.readers[0].module
    for part in junction.producer.parts:
        tensor = tensor_of(module, part.constant).detach()
        shape = [-1 if axis == part.axis else 1 for axis in range(tensor.dim())]
        by_part = scales.repeat_interleave(tensor.shape[part.axis] // len(scales))
        replace_tensor(module, part.constant, tensor / by_part.reshape(shape))
    for reader in junction.readers:
        replace_tensor(
            module, reader.weight, _scaled_weight(reader, scales.repeat_interleave(junction.producer.repeat))
        )


# --------------------------------------------------------------------------------------------------------------- error


def _judge(junction: Junction, seen: _Seen, scales: dict[float, torch.Tensor], x: torch.Tensor) -> None:
    """Add up the readers' relative errors on one input, by exponent."""
    ones = torch.ones_like(seen.largest)
    exact = [_bare(reader, x, tensor_of(reader.module, reader.weight)) for reader in junction.readers]
    for exponent, by_channel in {0.0: ones, **scales}.items():
        expanded = by_channel.repeat_interleave(junction.producer.repeat)
        shape = [-1 if axis == junction.axis else 1 for axis in range(x.dim())]
        rounded = _round_activation(junction, seen, x / expanded.reshape(shape), by_channel)
        total = 0.0
        for reader, expected in zip(junction.readers, exact, strict=True):
            weight = _round_weight(reader, _scaled_weight(reader, expanded))
            noise = float((_bare(reader, rounded, weight) - expected).square().sum())
            total += noise / max(float(expected.square().sum()), 1e-30)
        if junction.producer.layer is not None:
            total += _producer_error(junction.producer.layer, by_channel)
        seen.errors[exponent] = seen.errors.get(exponent, 0.0) + total


def _bare(layer: Layer, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    result: torch.Tensor = layer.run(x, weight, None)
    return result


def _round_activation(junction: Junction, seen: _Seen, x: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """Rounded as the tensor's observer will, with the range that the scaled channels have."""
    module = junction.readers[0].module
    observers = [module.get_submodule(str(u.target)) for u in junction.tensor.users if is_observer(module, u)]
    observer: Any = observers[0] if observers else None
    if isinstance(observer, PlaceholderObserver):  # one scale per row, at run time
        step = (x.amax(-1, keepdim=True) - x.amin(-1, keepdim=True)).clamp(min=1e-12) / 255
        return torch.round(x / step) * step
    low, high = seen.bounds(scales)
    return round_to(x, parameters_for(observer, low, high))


def _round_weight(layer: Layer, weight: torch.Tensor) -> torch.Tensor:
    axis = axis_of(layer.observer)
    rows = weight.reshape(1, -1) if axis is None else weight.transpose(0, axis).flatten(1)
    return round_to(weight, parameters_for(layer.observer, rows.amin(1), rows.amax(1)))


def _producer_error(layer: Layer, scales: torch.Tensor) -> float:
    """The relative error of a producer's weights, whose channels share one scale."""
    weight = tensor_of(layer.module, layer.weight).detach()
    axis = 1 if layer.is_transposed else 0
    shape = [-1 if a == axis else 1 for a in range(weight.dim())]
    by_row = scales.repeat_interleave(weight.shape[axis] // len(scales)).reshape(shape)
    error = _round_weight(layer, weight / by_row) * by_row - weight
    return float(error.square().sum() / weight.square().sum().clamp(min=1e-30))
