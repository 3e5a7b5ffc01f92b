"""The decoder's method ``forward(tokens, input_pos)``: kernel calls and XNNPACK delegates, layer by layer.

A delegate runs from one attention to the next: output projection, feed-forward network, and the projections of the next
layer. Between delegates are the operators on the cache, which know the position. The last delegate computes the logits
of the last token only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from edgewright.errors import UsageError
from edgewright.ir.dtypes import ScalarType
from edgewright.ir.graph import Dim, Graph, Op, Size, Value
from edgewright.llm.config import DecoderConfig
from edgewright.llm.delegate_builder import DelegateBuilder, constant, tensor
from edgewright.llm.rope import Rope
from edgewright.llm.weights import DecoderWeights

_Q = "quantized_decomposed::"
_MASKED = -1e30  # added to scores outside the window: their weight is exactly 0


def build_decoder(
    config: DecoderConfig, weights: DecoderWeights, max_seq: int, max_context: int, kv_cache: str = "fp32"
) -> Graph:
    """The graph of ``forward``: tokens int64 [1, S], S up to ``max_seq``; position int64 [1]; logits float32 [1, V].

    ``kv_cache``: fp32, or int8, in which rows are as in files of the stock exporter.
    """
    return _Decoder(config, weights, max_seq, max_context, kv_cache).build()


@dataclass
class _Positions:
    """Scalars and tables of a call: the position, the length, and slices of the tables by rotation."""

    start: Value
    length: Value
    end: Value
    tables: dict[Rope, tuple[Value, Value]] = field(default_factory=dict)
    mask: Value | None = None


class _Decoder:
    def __init__(
        self, config: DecoderConfig, weights: DecoderWeights, max_seq: int, max_context: int, kv_cache: str
    ) -> None:
        self.config, self.weights, self.int8_cache = config, weights, kv_cache == "int8"
        self.max_seq, self.max_context = max_seq, max_context
        # A length that is always 1 is not dynamic.
        self.length: Size = Dim("s", 1, max_seq) if max_seq > 1 else 1
        self.graph = Graph("forward")

    def build(self) -> Graph:
        tokens = tensor("tokens", (1, self.length), np.int64)
        input_pos = tensor("input_pos", (1,), np.int64)
        self.graph.inputs = [tokens, input_pos]
        positions = self._positions(tokens, input_pos)
        kernel, arguments = self.weights.embedding(tokens)
        hidden = self.call("embedding", (1, self.length, self.config.dim), kernel, **arguments)
        attended: Value | None = None
        for layer in range(self.config.layers):
            hidden, query, key, value = self._projections(layer, hidden, attended)
            attended = self._attention(layer, query, key, value, positions)
        assert attended is not None
        self.graph.outputs = [self._logits(hidden, attended)]
        return self.graph

    # -------------------------------------------------------------------------------------------------- kernel calls

    def call(
        self, name: str, shape: Sequence[Size] | None, kind: str, dtype: Any = np.float32, /, **args: Any
    ) -> Value:  # fmt: skip
        """Append a kernel call; its result is a tensor, or an integer if ``shape`` is None."""
        out = Value(name, kind="int") if shape is None else tensor(name, shape, dtype)
        self.graph.ops.append(Op(kind, args, [out]))
        return out

    def view(self, x: Value, shape: Sequence[Size], positions: _Positions) -> Value:
        size = [positions.length if isinstance(n, Dim) else n for n in shape]
        return self.call(f"{x.name}_view", shape, "aten.view_copy.default", self=x, size=size)

    def last_position(self, x: Value) -> Value:
        shape = (1, *x.shape[2:])
        return self.call(f"{x.name}_last", shape, "aten::select_copy.int_out", self=x, dim=1, index=-1)

    def _positions(self, tokens: Value, input_pos: Value) -> _Positions:
        first = self.call("position", (), "aten::select_copy.int_out", np.int64, self=input_pos, dim=0, index=0)
        start = self.call("start", None, "aten::_local_scalar_dense", self=first)
        length = self.call("length", None, "aten::sym_size.int", self=tokens, dim=1)
        end = self.call("end", None, "executorch_prim::add.Scalar", a=start, b=length)
        positions = _Positions(start, length, end)
        for layer in range(self.config.layers):
            rope = self.config.layer_rope(layer)
            if rope not in positions.tables:
                names = (f"{name}{len(positions.tables)}" for name in ("cos", "sin"))
                tables = [constant(*pair) for pair in zip(names, rope.tables(self.max_context), strict=True)]
                cos, sin = (self._slice(table, positions) for table in tables)
                positions.tables[rope] = cos, sin
        if any(map(self._is_windowed, range(self.config.layers))):
            positions.mask = self._window_mask(positions)
        return positions

    def _slice(self, table: Value, positions: _Positions) -> Value:
        """The rows of a table at the positions of this call."""
        shape = (self.length, *table.shape[1:])
        args = {"self": table, "dim": 0, "start": positions.start, "end": positions.end, "step": 1}
        return self.call(f"{table.name}_rows", shape, "aten::slice_copy.Tensor_out", **args)

    # ----------------------------------------------------------------------------------------------------- attention

    def _is_windowed(self, layer: int) -> bool:
        """Whether a layer needs a mask: a window that holds the whole context needs none."""
        return self.config.is_sliding(layer) and self.config.window < self.max_context

    def _window_mask(self, positions: _Positions) -> Value:
        """0 where key j is visible to the query at position p, 0 <= p - j < window; very negative elsewhere."""
        numbers = np.arange(self.max_context, dtype=np.float32)
        rows = self._slice(constant("positions", numbers[:, None]), positions)
        b = DelegateBuilder("window_mask")
        distance = b.binary("sub", b.input(rows), b.constant(numbers[None]))
        beyond = b.binary("sub", distance, float(self.config.window - 1))
        outside = b.binary("maximum", b.unary("neg", distance), beyond)
        clamped = b.op("clamp", outside.shape, self=outside, limits=(0.0, 1.0))
        mask = tensor("window_mask", (self.length, self.max_context))
        self.graph.ops.append(b.call([(b.binary("mul", clamped, _MASKED), mask)]))
        return mask

    def _attention(self, layer: int, query: Value, key: Value, value: Value, positions: _Positions) -> Value:
        """Rotate, write the caches, attend; [1, S, heads * head_dim]."""
        config = self.config
        query, key = self._rotate(layer, query, key, positions)
        value = self.view(value, key.shape, positions)
        mask = positions.mask if self._is_windowed(layer) else None
        args = {"start_pos": positions.start, "attn_mask": mask, "drpout_p": 0.0, "is_causal": mask is None,
                "scale": config.attention_scale}  # fmt: skip
        shape, kernel = query.shape, "llama::custom_sdpa.out"
        if not self.int8_cache:
            args["query"] = query
            for name, rows in (("key", key), ("value", value)):
                args[name] = self._cache(f"layers.{layer}.{name[0]}_cache", rows, positions)
        else:
            kernel = "llama::custom_quantized_sdpa.out"
            args |= self._int8_operands(layer, query, key, value, positions)
        attended = self.call(f"l{layer}_attended", shape, kernel, **args)
        return self.view(attended, (1, self.length, config.heads * config.head_dim), positions)

    def _cache(self, name: str, rows: Value, positions: _Positions) -> Value:
        """A cache, after the rows of this call are written to it."""
        shape = (1, self.max_context, *rows.bound[2:])
        assert rows.dtype is not None
        zeros = np.broadcast_to(rows.dtype.type(0), shape)
        cache = tensor(name.replace(".", "_"), shape, rows.dtype, data=zeros, state=True, qualified_name=name)
        args = {"value": rows, "cache": cache, "start_pos": positions.start}
        self.call(f"{cache.name}_written", (1,), "llama::update_cache.out", rows.dtype, **args)
        return cache

    def _int8_operands(
        self, layer: int, query: Value, key: Value, value: Value, positions: _Positions
    ) -> dict[str, Any]:
        """Queries, and the caches of keys and values, as int8 rows with scales and zero points."""
        operands: dict[str, Any] = {"is_seq_at_dim_2": False}
        for name, rows in (("query", query), ("key", key), ("value", value)):
            parts = self._int8_rows(rows)
            if name != "query":
                prefix = f"layers.{layer}.{name[0]}_cache"
                parts = [
                    self._cache(f"{prefix}{suffix}", part, positions)
                    for suffix, part in zip(("", "_scales", "_zero_points"), parts, strict=True)
                ]
            names = (name, f"{name[0]}_scales", f"{name[0]}_zero_points")
            operands |= dict(zip(names, parts, strict=True))
        return operands

    def _int8_rows(self, rows: Value) -> list[Value]:
        """The rows as int8, their scales as float32 and their zero points as int8."""
        shape = (*rows.shape[:-1], 1)
        scales = tensor(f"{rows.name}_scales64", shape, np.float64)
        zero_points = tensor(f"{rows.name}_zero_points64", shape, np.int64)
        choose = {"input": rows, "dtype": int(ScalarType.INT8)}
        self.graph.ops.append(Op(f"{_Q}choose_qparams_per_token_asymmetric.out", choose, [scales, zero_points]))
        quantized = self.call(
            f"{rows.name}_int8", rows.shape, f"{_Q}quantize_per_token.out", np.int8, input=rows, scales=scales,
            zero_points=zero_points, quant_min=-128, quant_max=127, dtype=int(ScalarType.INT8),
        )  # fmt: skip
        casts = [
            self.call(x.name[:-2], shape, "aten::_to_copy.out", dtype, self=x, non_blocking=False, memory_format=None)
            for x, dtype in ((scales, np.float32), (zero_points, np.int8))
        ]
        return [quantized, *casts]

    def _rotate(self, layer: int, query: Value, key: Value, positions: _Positions) -> tuple[Value, Value]:
        """Norms of heads, and rotation of their halves."""
        config, rope = self.config, self.config.layer_rope(layer)
        b, half = DelegateBuilder(f"rotate{layer}"), rope.dim // 2
        cos, sin = (
            b.op("view", (1, self.length, 1, half), self=b.input(table), size=[1, self._inferred(), 1, half])
            for table in positions.tables[rope]
        )
        outputs = []
        for name, x, heads in (("q", query, config.heads), ("k", key, config.kv_heads)):
            shape = (1, self.length, heads, config.head_dim)
            inner = b.input(self.view(x, shape, positions))
            if config.qk_norm:
                inner = self._norm(b, inner, f"layers.{layer}.{name}_norm")
            first, second = b.slice_last(inner, 0, half), b.slice_last(inner, half, half)
            left = b.binary("sub", b.binary("mul", first, cos), b.binary("mul", second, sin))
            right = b.binary("add", b.binary("mul", second, cos), b.binary("mul", first, sin))
            rest = config.head_dim - rope.dim
            parts = [left, right, *([b.slice_last(inner, rope.dim, rest)] if rest else [])]
            outputs.append((b.op("cat", shape, tensors=parts, dim=3), tensor(f"l{layer}_{name}_rotated", shape)))
        self.graph.ops.append(b.call(outputs))
        return outputs[0][1], outputs[1][1]

    def _inferred(self) -> int:
        """The length in the size of a view: 0 if it is known at run time only."""
        return 0 if isinstance(self.length, Dim) else 1

    # ---------------------------------------------------------------------------------------------------- delegates

    def _projections(
        self, layer: int, hidden: Value, attended: Value | None
    ) -> tuple[Value, Value, Value, Value]:  # fmt: skip
        """The end of the layer before, and this layer's queries, keys and values; the new residual comes first."""
        config = self.config
        b = DelegateBuilder(f"layer{layer}")
        x = b.input(hidden)
        outputs = []
        if attended is not None:
            x = self._finish_layer(b, layer - 1, x, b.input(attended))
        elif config.embedding_scale != 1:
            x = b.binary("mul", x, config.embedding_scale)
        if x is not b.input(hidden):
            hidden = tensor(f"l{layer}_hidden", hidden.shape)
            outputs.append((x, hidden))
        normed = self._norm(b, x, f"layers.{layer}.attention_norm")
        results = []
        for name, heads in (("q", config.heads), ("k", config.kv_heads), ("v", config.kv_heads)):
            projected = self.weights.linear(b, normed, f"layers.{layer}.{name}")
            results.append(tensor(f"l{layer}_{name}", (1, self.length, heads * config.head_dim)))
            outputs.append((projected, results[-1]))
        self.graph.ops.append(b.call(outputs))
        return hidden, results[0], results[1], results[2]

    def _finish_layer(self, b: DelegateBuilder, layer: int, x: Value, attended: Value) -> Value:
        """Output projection, residual, feed-forward network, residual."""
        prefix, config = f"layers.{layer}", self.config
        projected = self.weights.linear(b, attended, f"{prefix}.o")
        if config.post_norms:
            projected = self._norm(b, projected, f"{prefix}.attention_post_norm")
        x = b.binary("add", x, projected)
        normed = self._norm(b, x, f"{prefix}.ffn_norm")
        gate, up = (self.weights.linear(b, normed, f"{prefix}.{name}") for name in ("gate", "up"))
        hidden = b.binary("mul", _activate(b, gate, config.activation), up)
        projected = self.weights.linear(b, hidden, f"{prefix}.down")
        if config.post_norms:
            projected = self._norm(b, projected, f"{prefix}.ffn_post_norm")
        return b.binary("add", x, projected)

    def _logits(self, hidden: Value, attended: Value) -> Value:
        """The end of the last layer, the last norm and the head, for the last position."""
        config = self.config
        b = DelegateBuilder("head")
        rows = [b.input(self.last_position(x)) for x in (hidden, attended)]
        x = self._finish_layer(b, config.layers - 1, rows[0], rows[1])
        logits = self.weights.head(b, self._norm(b, x, "norm"))
        if config.logit_softcap is not None:
            scaled = b.binary("mul", logits, 1 / config.logit_softcap)
            logits = b.binary("mul", b.unary("tanh", scaled), config.logit_softcap)
        out = tensor("logits", (1, config.vocab_size))
        self.graph.ops.append(b.call([(logits, out)]))
        return out

    def _norm(self, b: DelegateBuilder, x: Value, name: str) -> Value:
        """RMS norm. XNNPACK's graphs have no mean: a linear layer of 1 / n computes it."""
        width = x.bound[-1]
        average = b.constant(np.full((1, width), 1 / width, np.float32))
        mean = b.linear(b.unary("square", x), average)
        factor = b.unary("rsqrt", b.binary("add", mean, self.config.norm_eps))
        return b.binary("mul", b.binary("mul", x, factor), b.constant(self.weights.vector(name)))


def _activate(b: DelegateBuilder, x: Value, activation: str) -> Value:
    if activation == "silu":
        return b.binary("mul", x, b.unary("sigmoid", x))
    if activation == "gelu":
        return b.unary("gelu", x)
    if activation != "gelu_tanh":
        raise UsageError("activation", "must be silu, gelu or gelu_tanh", value=activation)
    cubic = b.binary("mul", b.binary("mul", b.unary("square", x), x), 0.044715)
    inner = b.binary("mul", b.binary("add", x, cubic), (2 / np.pi) ** 0.5)
    half = b.binary("mul", x, 0.5)
    return b.binary("mul", half, b.binary("add", b.unary("tanh", inner), 1.0))
