"""The methods of a program for Qualcomm's SoCs, in the order of inputs and outputs of ExecuTorch's runner.

Inputs: tokens, mask, mask of sliding layers if there are any, positions, keys of all layers, values of all layers.
Outputs: logits, and the new keys and values of all layers, which the caller copies into its caches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgewright.ir.graph import Graph, Op, QParams, Value
from edgewright.ir.verify import verify
from edgewright.llm.config import DecoderConfig
from edgewright.llm.qnn_graph import QnnOperators, SharedConstants, tensor
from edgewright.llm.static_decoder import Call, StaticDecoder

HIDDEN = "hidden"


@dataclass(frozen=True)
class MethodShape:
    """A method of ``length`` tokens in a context of ``context`` positions, in ``shards`` parts."""

    name: str
    config: DecoderConfig
    length: int
    context: int
    shards: int

    @property
    def windowed(self) -> bool:
        """Whether sliding layers have a mask of their own. ExecuTorch's runner passes one to all Gemma models."""
        sliding = any(self.config.sliding_layers)
        return sliding and (self.config.family == "gemma3" or self.config.window < self.context)

    def layers(self, shard: int) -> range:
        """Layers of a shard: the first ones have one more if they cannot be divided evenly."""
        even, more = divmod(self.config.layers, self.shards)
        start = shard * even + min(shard, more)
        return range(start, start + even + (shard < more))

    @property
    def key_shape(self) -> tuple[int, ...]:
        return (1, self.config.kv_heads, self.config.head_dim, self.context - self.length)

    @property
    def value_shape(self) -> tuple[int, ...]:
        return (1, self.config.kv_heads, self.context - self.length, self.config.head_dim)


def build_shards(shape: MethodShape, constants: SharedConstants) -> list[Graph]:
    """The device graphs of a method."""
    result, q = [], None
    for shard in range(shape.shards):
        graph = _build_shard(shape, shard, q, constants)
        q = graph.outputs[0].q
        result.append(graph)
    return result


def _build_shard(shape: MethodShape, shard: int, hidden_q: QParams | None, constants: SharedConstants) -> Graph:
    ops = QnnOperators(shape.name, constants)
    decoder, length, layers = StaticDecoder(shape.config, ops), shape.length, shape.layers(shard)
    if shard == 0:
        hidden = decoder.embed(ops.input("tokens", (1, length)), length)
    else:
        hidden = ops.input(HIDDEN, (1, 1, length, shape.config.dim), hidden_q)
    call = _inputs(shape, layers, ops, decoder)
    keys, values = [], []
    for layer in layers:
        hidden, key, value = decoder.layer(layer, hidden, call)
        keys.append(key)
        values.append(value)
    result = decoder.logits(hidden, length) if shard == shape.shards - 1 else hidden
    ops.graph.outputs = [result, *keys, *values]
    verify(ops.graph)
    return ops.graph


def _inputs(shape: MethodShape, layers: range, ops: QnnOperators, decoder: StaticDecoder[Value]) -> Call[Value]:
    """Inputs of a shard, without masks that none of its layers reads."""
    slides = [shape.windowed and shape.config.is_sliding(layer) for layer in layers]
    full = ops.mask_input("atten_mask", shape.length, shape.context) if not all(slides) else None
    window = ops.mask_input("window_mask", shape.length, shape.context) if any(slides) else full
    masks = (full or window, window)
    positions = ops.input("input_pos", (1, shape.length))
    used = {shape.config.layer_rope(layer) for layer in layers}
    rotations = decoder.rotations(positions, shape.length, used)
    encodings = ops.encodings
    keys = [ops.input(f"k_cache_{n}", shape.key_shape, encodings[f"layers.{n}.cached_key"]) for n in layers]
    values = [ops.input(f"v_cache_{n}", shape.value_shape, encodings[f"layers.{n}.cached_value"]) for n in layers]
    caches = {layer: (keys[i], values[i]) for i, layer in enumerate(layers)}
    return Call(shape.length, rotations, masks, caches)  # type: ignore[arg-type]


def connect_shards(shape: MethodShape, graphs: Sequence[Graph], calls: Sequence[Mapping[str, Any]]) -> Graph:
    """The method: a delegate call for each shard. ``calls``: arguments of the calls."""
    inputs = {value.name: _plain(value) for graph in graphs for value in graph.inputs if value.name != HIDDEN}
    method = Graph(shape.name)
    first = ["tokens", "atten_mask", *(["window_mask"] if shape.windowed else []), "input_pos"]
    for name in first[1:-1]:  # a mask that no layer reads is an input nevertheless
        inputs.setdefault(name, tensor(name, (1, 1, shape.length, shape.context), None, np.uint16))
    caches = [f"{kind}_cache_{n}" for kind in "kv" for n in range(shape.config.layers)]
    method.inputs = [inputs[name] for name in (*first, *caches)]
    keys: list[Value] = []
    values: list[Value] = []
    hidden: Value | None = None
    for shard, (graph, call) in enumerate(zip(graphs, calls, strict=True)):
        results = [_plain(value, f"s{shard}_{n}") for n, value in enumerate(graph.outputs)]
        operands = [hidden if value.name == HIDDEN else inputs[value.name] for value in graph.inputs]
        method.ops.append(Op("delegate", {**call, "inputs": operands}, [*results]))
        hidden = results[0]
        count = len(shape.layers(shard))
        keys += results[1 : 1 + count]
        values += results[1 + count :]
    assert hidden is not None
    method.outputs = [hidden, *keys, *values]
    return method


def _plain(value: Value, name: str = "") -> Value:
    """A tensor of the method, which stores the integers of a quantized one."""
    return tensor(name or value.name, value.bound, None, value.dtype)
